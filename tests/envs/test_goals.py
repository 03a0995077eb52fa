"""Agents that are told what a task asks for: the right numbers, in the right place, in JAX and on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.base import HostStep
from mesax.envs.climb import ClimbGame, ClimbTask, SpecialAction
from mesax.envs.goals import HostToldGoal, ToldGoal, telling, without_goal
from mesax.envs.particle_climb import ParticleClimb, ParticleTask, TargetLandmark
from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerTask, TargetAngle
from mesax.errors import UsageError
from mesax.types import blank_episode

KEY = jax.random.key(0)


def test_a_climb_game_tells_the_special_action_of_the_stage_and_not_how_many_must_play_it():
    game = ClimbGame(num_actions=4, num_stages=2)
    env = ToldGoal(game, SpecialAction())
    assert env.spec.obs_size == 4 + game.spec.obs_size
    for count in (jnp.array([1, 2]), jnp.array([2, 1])):
        task = ClimbTask(count, jnp.array([3, 0]))
        np.testing.assert_array_equal(env.reset(task, KEY)[1][:, :4], [[0, 0, 0, 1]] * 2)
    task = ClimbTask(jnp.array([1, 2]), jnp.array([3, 0]))
    state, obs = env.reset(task, KEY)
    np.testing.assert_array_equal(obs[:, 4:], game.reset(task, KEY)[1])
    state, outcome = env.step(task, state, jnp.array([3, 1]), KEY)
    assert outcome.reward == 1.0 and not outcome.terminated
    np.testing.assert_array_equal(outcome.obs[:, :4], [[1, 0, 0, 0]] * 2)
    _, outcome = env.step(task, state, jnp.array([0, 0]), KEY)
    assert outcome.terminated
    np.testing.assert_array_equal(outcome.obs[:, :4], np.zeros((2, 4)))


def test_how_many_must_play_it_is_told_where_that_is_asked_for():
    game, counts = ClimbGame(num_actions=4, num_stages=2), jnp.array([1, 2])
    env, task = ToldGoal(game, SpecialAction(tell_count=True)), ClimbTask(counts, jnp.array([3, 0]))
    assert env.spec.obs_size == 5 + game.spec.obs_size
    state, obs = env.reset(task, KEY)
    np.testing.assert_array_equal(obs[:, :5], [[0, 0, 0, 1, 1]] * 2)
    np.testing.assert_array_equal(env.step(task, state, counts, KEY)[1].obs[:, :5], [[1, 0, 0, 0, 2]] * 2)
    world, landmarks = ParticleClimb(num_agents=3, num_landmarks=2), jnp.array([[0.5, 0.5], [-0.5, 0.0]])
    env = ToldGoal(world, TargetLandmark(tell_count=True))
    _, obs = env.reset(ParticleTask(landmarks, jnp.array(1), jnp.array(2)), KEY)
    np.testing.assert_array_equal(obs[:, :3], [[0, 1, 2]] * 3)
    assert obs.shape == (3, 3 + world.spec.obs_size)


def test_a_particle_world_tells_the_number_of_the_landmark():
    world = ParticleClimb(num_landmarks=3)
    task = ParticleTask(jnp.array([[0.5, 0.5], [-0.5, 0.0], [0.0, -0.7]]), jnp.array(1), jnp.array(2))
    env = ToldGoal(world, TargetLandmark())
    _, obs = env.reset(task, KEY)
    np.testing.assert_array_equal(obs[:, :3], [[0, 1, 0]] * 2)
    np.testing.assert_array_equal(obs[:, 3:], world.reset(task, KEY)[1])


class Still:
    """Copies that show their number."""

    def __init__(self, copies: int) -> None:
        self.obs = np.arange(copies, dtype=np.float32)[:, None, None] * np.ones((1, 2, 6), np.float32)

    def reset(self, tasks, seeds) -> np.ndarray:
        del tasks, seeds
        return self.obs

    def step(self, actions, alive) -> HostStep:
        del actions
        return HostStep(self.obs + 10.0, np.zeros(len(alive), np.float32), ~alive, ~alive)

    def close(self) -> None: ...


def test_a_host_environment_tells_every_copy_its_own_angle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SwimmerClimb, "batch", lambda self, copies, threads: Still(copies))
    env = telling(SwimmerClimb(), TargetAngle())
    assert isinstance(env, HostToldGoal) and env.spec.obs_size == 7
    batch = env.batch(3, 1)
    angles = np.array([0.2, -0.3, 0.4], np.float32)
    first = batch.reset(SwimmerTask(angles), np.zeros(3, np.uint32))
    later = batch.step(np.zeros((3, 2, 1)), np.ones(3, bool)).obs
    assert first.dtype == later.dtype == np.float32
    for obs, more in ((first, 0.0), (later, 10.0)):
        np.testing.assert_array_equal(obs[..., 0], np.stack([angles, angles], axis=1))
        np.testing.assert_array_equal(obs[:, 0, 1:], (np.arange(3) + more)[:, None] * np.ones((1, 6)))


def test_nothing_is_told_without_a_goal_and_of_another_world():
    game = ClimbGame()
    assert telling(game, None) is game
    with pytest.raises(UsageError, match="belongs to a particle world, not to ClimbGame"):
        _ = ToldGoal(game, TargetLandmark()).spec
    with pytest.raises(UsageError, match="belongs to a climb game, not to ParticleClimb"):
        _ = ToldGoal(ParticleClimb(), SpecialAction()).spec


def test_what_was_told_can_be_left_out_again():
    game = ClimbGame(num_actions=3)
    told = blank_episode(ToldGoal(game, SpecialAction()).spec)
    assert without_goal(game, told).obs.shape == blank_episode(game.spec).obs.shape
