"""The paper's own particle world: its maps to the digit, recorded episodes step by step, and how tasks share maps."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.jammed_layouts import jammed_layout
from mesax.envs.particle_climb import PAPER_WORLD, JammedFamily, ParticleState, ParticleTask, pulled_in
from mesax.errors import UsageError
from mesax.types import Transition, tree_index

# (landmarks, difficulty, seed): maps that the authors' code drew.
MAPS = {
    (3, 0.1, 0): [(0.250579, 0.01271), (0.072143, -0.07775), (0.211865, -0.239986)],
    (4, 0.1, 0): [(-0.085012, 0.085048), (-0.190861, -0.224657), (-0.281726, 0.032398), (-0.025952, -0.10898)],
    (4, 0.2, 5): [(0.084576, 0.423483), (0.094105, 0.187664), (0.32474, 0.348741), (0.418093, 0.146735)],
    (5, 0.1, 0): [
        (0.04686, 0.272787),
        (0.252484, 0.206694),
        (-0.072467, 0.436584),
        (0.200577, 0.401845),
        (0.405627, 0.408819),
    ],
    (5, 0.1, 1): [
        (-0.446077, -0.525334),
        (-0.35638, 0.010739),
        (-0.179512, 0.134472),
        (-0.245714, -0.160971),
        (-0.320386, -0.347687),
    ],
    (5, 0.1, 2): [
        (0.667575, 0.212272),
        (0.610398, 0.015678),
        (0.686675, -0.189029),
        (0.483089, 0.298683),
        (0.695551, 0.412416),
    ],
    (5, 0.2, 0): [
        (0.182455, 0.298974),
        (0.04934, 0.460663),
        (0.333561, 0.146623),
        (0.049913, 0.149156),
        (0.354025, 0.432777),
    ],
    (5, 0.3, 1): [
        (-0.18834, -0.232625),
        (-0.166473, -0.02606),
        (-0.574625, -0.366019),
        (-0.394605, -0.013712),
        (-0.316005, -0.41922),
    ],
    (6, 0.1, 0): [
        (-0.282909, 0.333383),
        (0.10316, 0.388617),
        (-0.171742, 0.66498),
        (0.015926, 0.586029),
        (-0.104585, 0.425053),
        (-0.363909, 0.119648),
    ],
    (6, 0.1, 1): [
        (0.131875, -0.187737),
        (-0.059241, 0.033955),
        (-0.037575, -0.369666),
        (-0.251842, -0.258069),
        (-0.209159, 0.17312),
        (-0.069789, -0.168143),
    ],
    (6, 0.1, 2): [
        (0.247496, 0.148317),
        (-0.040177, -0.079281),
        (0.214224, -0.049799),
        (-0.144751, 0.171921),
        (0.05071, 0.104266),
        (-0.266977, -0.099215),
    ],
    (6, 1.0, 0): [
        (-0.481235, 0.250568),
        (0.544317, 0.374867),
        (-0.186141, 0.76498),
        (0.178377, 0.793328),
        (-0.237607, 0.373878),
        (-0.615763, -0.181758),
    ],
}
EPISODES = json.loads((Path(__file__).parent / "recorded_episodes.json").read_text())
ACTION = np.array([0, 2, 1, 4, 3])
"""The authors number the actions none, +x, -x, +y, -y; ours follow mpe2."""


def family_of(agents: int = 2, landmarks: int = 5, *, difficulty: float | None = 0.1, **settings) -> JammedFamily:
    world = replace(PAPER_WORLD, num_agents=agents, num_landmarks=landmarks, difficulty=difficulty)
    return JammedFamily(world, **settings)


@pytest.mark.parametrize("which", MAPS)
def test_maps_are_the_authors_own(which):
    landmarks, difficulty, seed = which
    np.testing.assert_allclose(jammed_layout(seed, landmarks, 0.1, difficulty), MAPS[which], atol=1e-5)


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: f"{episode['agents']} agents")
def test_recorded_episodes(episode):
    """Every position, reward and observation of an episode of random actions, from the authors' start."""
    family = family_of(episode["agents"], episode["landmarks"])
    tasks = family.split(episode["seed"], 0, 1).test
    task: ParticleTask = jax.device_put(tree_index(jax.device_get(tasks), 0))
    assert int(task.target) == episode["target"]
    start = jnp.array(episode["start"], jnp.float32)
    actions = ACTION[[[int(action) for action in joint] for joint in episode["actions"]]]

    @partial(jax.jit, static_argnums=0)
    def play(world, task, start, actions):
        def step(state, action):
            state, outcome = world.step(task, state, action, jax.random.key(0))
            return state, (state.position, outcome.obs, outcome.reward)

        state = ParticleState(start, jnp.zeros_like(start))
        return world.observe(task, state), jax.lax.scan(step, state, actions)[1]

    first, (positions, observed, rewards) = play(family.world, task, start, actions)
    assert len(episode["rewards"]) == family.world.horizon == 75
    np.testing.assert_allclose(first, episode["first_obs"], atol=1e-5)
    np.testing.assert_allclose(positions, episode["positions"], atol=1e-5)
    np.testing.assert_array_equal(rewards, np.array(episode["rewards"], np.float32))
    np.testing.assert_allclose(observed[-1], episode["last_obs"], atol=1e-5)
    np.testing.assert_allclose(observed[:-1], [seen_at(family, where, task) for where in positions[:-1]], atol=1e-6)


def seen_at(family: JammedFamily, positions: np.ndarray, task: ParticleTask) -> np.ndarray:
    """Offsets to the landmarks in order, then to the other agents; nothing else."""
    places = np.asarray(positions)
    return np.array(
        [
            np.concatenate([np.asarray(task.landmarks) - own, np.delete(places, number, axis=0) - own]).reshape(-1)
            for number, own in enumerate(places)
        ]
    )


# Tasks


def test_tasks_share_layouts():
    """Thirty training tasks are six layouts with five targets each; test tasks are one layout with all its targets."""
    family = family_of()
    tasks = jax.device_get(family.split(seed=2, num_train=30, num_test=5))
    layouts = tasks.train.landmarks.reshape(6, 5, 5, 2)
    np.testing.assert_array_equal(layouts, np.broadcast_to(layouts[:, :1], layouts.shape))
    assert len(np.unique(layouts[:, 0, 0], axis=0)) == 6
    assert [sorted(row) for row in tasks.train.target.reshape(6, 5)] == [[0, 1, 2, 3, 4]] * 6
    np.testing.assert_allclose(tasks.test.landmarks, [MAPS[5, 0.1, 2]] * 5, atol=1e-5)
    assert tasks.test.target.tolist() == [2, 3, 4, 0, 1]  # the authors' task of a seed has its number as target
    known = {tuple(layout[0]) for layout in layouts[:, 0]}
    assert not known & {tuple(jammed_layout(seed, 5, 0.1, 0.1)[0]) for seed in range(20)}


def test_how_many_targets_a_layout_has_is_a_setting():
    tasks = jax.device_get(family_of(targets_each=2).split(seed=0, num_train=7, num_test=3))
    assert len(np.unique(tasks.train.landmarks[:, 0], axis=0)) == 4
    assert tasks.train.target.tolist() == [0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_allclose(tasks.test.landmarks[:2], [MAPS[5, 0.1, 0]] * 2, atol=1e-5)
    assert not np.allclose(tasks.test.landmarks[2], tasks.test.landmarks[0])


def test_training_tasks_do_not_depend_on_the_number_of_test_tasks():
    family = family_of(3, 6)
    few, many = (jax.device_get(family.split(1, 12, number).train) for number in (1, 9))
    jax.tree.map(np.testing.assert_array_equal, few, many)


@pytest.mark.parametrize("difficulty", [0.1, 0.3])
def test_agents_start_near_a_landmark(difficulty: float):
    family = family_of(difficulty=difficulty)
    task: ParticleTask = jax.device_put(tree_index(jax.device_get(family.split(0, 0, 1).test), 0))
    state, _ = jax.jit(jax.vmap(family.world.reset, in_axes=(None, 0)))(task, jax.random.split(jax.random.key(0), 500))
    distances = np.linalg.norm(np.asarray(state.position)[:, :, None] - np.asarray(task.landmarks), axis=-1)
    limit = 2 * np.sqrt(2) * difficulty
    assert distances.min(axis=-1).max() <= limit + 1e-6
    on_circle = np.isclose(distances, limit, atol=1e-5)
    assert on_circle.any(axis=-1).mean() > 0.4, "agents that start farther away are pulled in"
    assert on_circle.any(axis=(0, 1)).all(), "to every landmark"
    np.testing.assert_array_equal(state.velocity, 0)


def test_starts_are_pulled_onto_the_circle_and_no_further():
    positions, nearby = jnp.array([[1.0, 0.0], [0.1, 0.0]]), jnp.zeros((2, 2))
    np.testing.assert_allclose(pulled_in(positions, nearby, 0.1), [[0.2828427, 0.0], [0.1, 0.0]], atol=1e-6)


def test_at_difficulty_1_agents_start_anywhere():
    family = family_of(difficulty=1.0)
    task: ParticleTask = jax.device_put(tree_index(jax.device_get(family.split(0, 0, 1).test), 0))
    state, _ = jax.jit(jax.vmap(family.world.reset, in_axes=(None, 0)))(task, jax.random.split(jax.random.key(0), 500))
    assert np.abs(state.position).max() > 0.99


@pytest.mark.parametrize(
    ("difficulty", "lost", "levels"),
    [
        (0.1, (3.5, 1.8), (71.5, 36.6)),
        (0.2, (3.5, 1.8), (75 - 5.2, (75 - 3.75) / 2)),
        (0.5, (6.9, 5.7), (66.8, (75 - 6.3) / 2)),
        (0.5, (10.0, 4.0), (65.0, 35.5)),
    ],
    ids=["the paper's", "between two that were measured", "typed for the hard world", "typed with levels"],
)
def test_scripted_levels_follow_the_difficulty(difficulty: float, lost: tuple, levels: tuple):
    family = JammedFamily(replace(PAPER_WORLD, difficulty=difficulty), lost=lost)
    assert (family.optimal_return, family.suboptimal_return) == pytest.approx(levels)
    assert family.facts()["lost"] == pytest.approx([75 - levels[0], 75 - 2 * levels[1]])


@pytest.mark.parametrize("lost", [(80.0, 0.0), (-1.0, 0.0), (60.0, 0.0), (float("nan"), 0.0)])
def test_levels_that_are_no_returns_are_refused(lost: tuple[float, float]):
    with pytest.raises(UsageError, match=r"^lost "):
        JammedFamily(lost=lost)


def test_what_another_task_would_pay():
    """Two on landmark 3: that pays 1 under its own task, .5 under any other."""
    family = family_of()
    tasks = jax.device_get(family.split(0, 5, 0).train)
    places = jnp.array([tasks.landmarks[0, 3]] * 2)
    task: ParticleTask = jax.device_put(tree_index(tasks, 0))
    obs = family.world.observe(task, ParticleState(places, jnp.zeros((2, 2))))
    transition = Transition(obs, jnp.zeros(2, jnp.int32), obs)
    paid = [float(family.world.would_pay(jax.device_put(tree_index(tasks, i)), transition)) for i in range(5)]
    assert paid == [0.5, 0.5, 0.5, 1.0, 0.5]
    assert int(family.configuration(transition)) == 3


# Bad input


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: family_of(landmarks=100).split(0, 0, 1), "does not hold 100 landmarks of radius 0.1: choose fewer"),
        (lambda: family_of(difficulty=0.0), "difficulty must be above 0, not 0.0: the paper's is 0.1"),
        (lambda: family_of(difficulty=1.5), "at most 1, not 1.5: the paper's is 0.1, and at 1 landmarks are spread"),
        (lambda: family_of(difficulty=None), "difficulty must lie above 0 and be at most 1, not None"),
        (lambda: family_of(targets_each=6), "targets-each must lie between 1 and the number of landmarks 5"),
        (lambda: family_of(count=3), "k must lie between 1 and the number of agents 2"),
    ],
)
def test_worlds_that_cannot_be_drawn(build, said: str):
    with pytest.raises(UsageError, match=said):
        build()
