"""Scenes of particle episodes show where agents were, the landmarks they met at, and what it earned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.base import configurations_of
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily, ParticleState, ParticleTask
from mesax.policy import UniformPolicy
from mesax.suites.particles.render import positions_of, scene
from mesax.training.driver import play_episodes
from mesax.types import Label, tree_index

HORIZON, EPISODES = 60, 6


class Tour(eqx.Module):
    """Everyone to one landmark after another, by full thrust along the longer way, braking in time."""

    order: jax.Array
    family: ParticleClimbFamily = eqx.field(static=True)
    leg: int = eqx.field(static=True, default=20)

    def start(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, memory, obs, key):
        goal = self.order[jnp.minimum(memory // self.leg, len(self.order) - 1)]
        way = self.family.env.landmark_offsets(obs)[:, goal] - 0.25 * obs[:, :2]
        axis = jnp.argmax(jnp.abs(way), axis=1)
        forward = jnp.take_along_axis(way, axis[:, None], axis=1)[:, 0] > 0
        return jnp.where(jnp.abs(way).max(axis=1) < 0.05, 0, 1 + 2 * axis + forward), memory + 1

    def label(self, memory):
        return Label.of(0)


def played(family: ParticleClimbFamily, policy, episodes: int):
    tasks = jax.device_get(family.split(0, 0, 1).test)
    found = play_episodes(family.env, tasks, policy, jax.random.key(1), episodes)
    return tree_index(tasks, 0), found


def test_positions_are_read_from_what_agents_saw():
    world = ParticleClimb(num_agents=3, num_landmarks=2, observe_position=True)
    random = np.random.default_rng(0)
    landmarks, places = random.uniform(-1, 1, (2, 2)), random.uniform(-1, 1, (4, 5, 3, 2))
    task = ParticleTask(*jax.device_put((landmarks.astype(np.float32), np.int32(0), np.int32(2))))
    observe = jax.jit(lambda place: world.observe(task, ParticleState(place, jnp.ones((3, 2)))))
    obs = np.stack([observe(one) for one in places.reshape(-1, 3, 2).astype(np.float32)]).reshape(4, 5, 3, -1)
    np.testing.assert_allclose(positions_of(world, np.asarray(task.landmarks), obs), places, atol=1e-6)


def test_a_tour_visits_its_landmarks_in_order():
    family = ParticleClimbFamily(ParticleClimb(horizon=HORIZON))
    task, episodes = played(family, Tour(jnp.array([2, 0, 3]), family), EPISODES)
    shown = scene(family, task, episodes)
    assert shown.view == (-1.04, 1.04, -1.04, 1.04), "all within the wall"
    landmarks = np.array([shape.center for shape in shown.shapes[1:]])
    np.testing.assert_allclose(landmarks, task.landmarks)
    roles = [shape.role for shape in shown.shapes]
    assert roles == ["wall", "place", "place", "place", "target", "place"] and int(task.target) == 3
    assert shown.places == {number: str(number) for number in range(5)}
    assert "just 2 of 2 agents on landmark 3" in shown.about
    visited = configurations_of(family, episodes)
    for number, take in enumerate(shown.takes):
        met = [place for _, place in take.visits if place in (2, 0, 3)]
        assert list(dict.fromkeys(met)) == [2, 0, 3], "it may pass over others on the way"
        assert np.all(np.linalg.norm(take.points[-1] - landmarks[3], axis=1) < family.env.radius)
        assert np.abs(take.points).max() <= 1.0 and take.points.shape == (HORIZON + 1, 2, 2)
        np.testing.assert_array_equal(take.rewards[1:] == 1.0, visited[number] == 3)
        assert shown.return_of(take) == pytest.approx(float(family.score(jnp.asarray(take.rewards[1:]))))


def test_a_plane_without_end_is_shown_as_far_as_agents_went():
    family = ParticleClimbFamily(ParticleClimb(3, 4, horizon=20, wall=None, delta=0.2, agents_collide=True))
    shown = scene(family, *played(family, UniformPolicy(family.env.spec.action_space), 5))
    left, right, bottom, top = shown.view
    assert right - left == pytest.approx(top - bottom) and all(shape.role != "wall" for shape in shown.shapes)
    points = np.concatenate([take.points.reshape(-1, 2) for take in shown.takes])
    assert np.all(points > [left, bottom]) and np.all(points < [right, top])
