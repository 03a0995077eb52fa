"""The climb game among landmarks: its reward case by case, what agents see, and the way layouts are drawn."""

import dataclasses
import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily, ParticleState, ParticleTask
from mesax.errors import UsageError
from mesax.types import Transition, leading_size, tree_index

CORNERS = ((-0.5, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.5, 0.5))
AWAY = (0.0, 0.0)
NAN = float("nan")


def task_of(landmarks, target: int, count: int = 2) -> ParticleTask:
    return ParticleTask(*jax.device_put((np.array(landmarks, np.float32), np.int32(target), np.int32(count))))


def task_in(tasks: ParticleTask, index: int = 0) -> ParticleTask:
    return jax.device_put(tree_index(jax.device_get(tasks), index))


@partial(jax.jit, static_argnums=0)
def step(world: ParticleClimb, task: ParticleTask, state: ParticleState, action: jax.Array):
    return world.step(task, state, action, jax.random.key(0))


def at_rest(places) -> ParticleState:
    position = np.array(places, np.float32)
    return ParticleState(*jax.device_put((position, np.zeros_like(position))))


def reward_at(world: ParticleClimb, task: ParticleTask, places) -> float:
    """Reward of a step that leaves agents at rest where they are."""
    state = at_rest(places)
    after, outcome = step(world, task, state, np.zeros(world.num_agents, np.int32))
    np.testing.assert_array_equal(after.position, state.position)
    return float(outcome.reward)


# The reward


@pytest.mark.parametrize("delta", [0.5, 0.2])
def test_the_reward_of_two_out_of_three(delta: float):
    """Exactly two on the target pay 1, none pays 1 - delta, one or three pay nothing; nor does any absence."""
    world = ParticleClimb(num_agents=3, num_landmarks=4, delta=delta)
    task = task_of(CORNERS, target=1)
    pays = {0: 1 - delta, 1: 0.0, 2: 1.0, 3: 0.0}
    seen = set()
    for where in itertools.product(range(5), repeat=3):  # 4: on no landmark
        reward = reward_at(world, task, [(*CORNERS, AWAY)[index] for index in where])
        expected = 0.0 if 4 in where else pays[where.count(1)]
        assert reward == pytest.approx(expected), where
        seen.add((4 in where, where.count(1)))
    assert seen == {(False, number) for number in range(4)} | {(True, number) for number in range(3)}


def test_all_agents_together():
    world = ParticleClimb(num_agents=2, num_landmarks=4)
    rewards = [
        reward_at(world, task_of(CORNERS, 3), [CORNERS[i], CORNERS[j]]) for i, j in [(3, 3), (3, 0), (0, 0), (0, 2)]
    ]
    assert rewards == [1.0, 0.0, 0.5, 0.5]


def test_the_rim_of_a_disc():
    world = ParticleClimb(num_agents=1, num_landmarks=1, radius=0.25)
    task = task_of([(0.0, 0.0)], 0, count=1)
    places = [(0.24, 0.0), (0.0, -0.24), (0.25, 0.0), (0.2, 0.2)]
    assert [reward_at(world, task, [place]) for place in places] == [1.0, 1.0, 0.0, 0.0]


def test_of_several_landmarks_within_reach_the_first_counts():
    world = ParticleClimb(num_agents=2, num_landmarks=2, radius=0.5)
    close = [(-0.2, 0.0), (0.2, 0.0)]
    both, second = (0.05, -0.1), (0.6, 0.0)
    for target, places, reward in [(0, (both, both), 1.0), (1, (both, both), 0.5), (0, (both, second), 0.0)]:
        assert reward_at(world, task_of(close, target), places) == reward
    offsets = (np.array(close)[None] - np.array([both, second])[:, None]).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(world.occupied)(offsets), np.eye(2, dtype=bool))


def test_the_reward_belongs_to_the_place_reached():
    """Velocity-first, a push from just outside ends inside; position-first it takes another step."""
    task = task_of([(0.5, 0.0)], 0, count=1)
    for integration, rewards in (("velocity-first", [1.0, 1.0]), ("position-first", [0.0, 1.0])):
        world = ParticleClimb(1, 1, integration=integration)
        state, paid = at_rest([[0.27, 0.0]]), []
        for action in (2, 0):
            state, outcome = step(world, task, state, np.array([action], np.int32))
            paid.append(float(outcome.reward))
            assert not outcome.terminated
        assert paid == rewards


# What agents see


@pytest.mark.parametrize("observe_position", [False, True])
def test_observations_by_hand(observe_position: bool):
    world = ParticleClimb(num_agents=3, num_landmarks=2, observe_position=observe_position)
    task = task_of([(1.0, 0.0), (0.0, -1.0)], target=0)
    position = np.array([[0.0, 0.0], [0.5, 0.25], [-1.0, 1.0]], np.float32)
    velocity = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
    rows = [
        # velocity, landmarks, others in order of their number
        [0.1, 0.2, 1.0, 0.0, 0.0, -1.0, 0.5, 0.25, -1.0, 1.0],
        [0.3, 0.4, 0.5, -0.25, -0.5, -1.25, -0.5, -0.25, -1.5, 0.75],
        [0.5, 0.6, 2.0, -1.0, 1.0, -2.0, 1.0, -1.0, 1.5, -0.75],
    ]
    own, rest = np.split(np.array(rows), [2], axis=1)
    expected = np.hstack([own, position, rest] if observe_position else [own, rest])

    @jax.jit
    def seen(position: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        obs = world.observe(task, ParticleState(position, velocity))
        return obs, world.landmark_offsets(obs)

    obs, offsets = map(np.asarray, seen(position, velocity))
    np.testing.assert_allclose(obs, expected, atol=1e-6)
    assert world.spec.obs_size == expected.shape[1]
    np.testing.assert_allclose(offsets[1], [[0.5, -0.25], [-0.5, -1.25]], atol=1e-6)


def test_the_target_is_hidden():
    family = ParticleClimbFamily()
    task = task_in(family.split(0, 1, 0).train)
    other = task_of(task.landmarks, (int(task.target) + 1) % 5)
    reset = jax.jit(lambda task: family.env.reset(task, jax.random.key(3)))
    views = [reset(one)[1] for one in (task, other)]
    np.testing.assert_array_equal(*views)


def test_agents_start_at_rest_anywhere_in_their_square():
    world = ParticleClimb(num_agents=3, start_range=0.4)
    task = task_in(ParticleClimbFamily().split(0, 1, 0).train)
    draw = jax.jit(lambda key: jax.vmap(lambda key: world.reset(task, key))(jax.random.split(key, 200)))
    starts = jax.device_get(draw(jax.random.key(0)))[0]
    assert not np.any(starts.velocity)
    np.testing.assert_allclose([starts.position.min(), starts.position.max()], [-0.4, 0.4], atol=0.01)
    assert np.abs(starts.position.mean(axis=0)).max() < 0.1


# Tasks


def tasks_of(tasks: ParticleTask) -> list[tuple]:
    tasks = jax.device_get(tasks)
    return [
        (*map(tuple, np.asarray(task.landmarks).tolist()), int(task.target), int(task.count))
        for task in (tree_index(tasks, index) for index in range(leading_size(tasks)))
    ]


FAMILIES = {
    "default": ParticleClimbFamily(),
    "two of three": ParticleClimbFamily(ParticleClimb(num_agents=3, num_landmarks=8), gap=0.0),
    "one landmark": ParticleClimbFamily(ParticleClimb(num_landmarks=1)),
    "wide": ParticleClimbFamily(ParticleClimb(wall=None, radius=0.5), landmark_range=3.0, gap=0.5),
    "near": ParticleClimbFamily(difficulty=(0.8, 1.0)),
    "far": ParticleClimbFamily(difficulty=(1.1, 1.6)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_splits(name: str):
    family = FAMILIES[name]
    split = family.split(3, 12, 7)
    train, test = tasks_of(split.train), tasks_of(split.test)
    assert (len(train), len(test)) == (12, 7)
    layouts = [task[:-2] for task in train + test]
    assert len(set(layouts)) == 19, "every task has a layout of its own, so training and test tasks differ"
    assert len({mark for layout in layouts for mark in layout}) == 19 * family.world.num_landmarks
    again = family.split(3, 12, 7)
    assert tasks_of(again.train) + tasks_of(again.test) == train + test
    fewer = family.split(3, 12, 0)
    assert tasks_of(fewer.train) == train and leading_size(fewer.test) == 0
    assert tasks_of(family.split(3, 5, 3).train) == train[:5]
    assert tasks_of(family.split(3, 0, 3).test) == test[:3]
    other = family.split(4, 12, 7)
    assert not set(tasks_of(other.train) + tasks_of(other.test)) & set(train + test)
    for *layout, target, count in train + test:
        marks = np.array(layout)
        assert np.abs(marks).max() <= family.landmark_range
        apart = [math.dist(one, two) for one, two in itertools.combinations(layout, 2)]
        assert min(apart, default=np.inf) > 2 * family.world.radius + family.gap - 1e-6
        assert 0 <= target < family.world.num_landmarks and count == family.count
        if family.difficulty is not None:
            low, high = family.difficulty
            assert low - 1e-6 <= family.mean_distance(marks) <= high + 1e-6


def test_no_tasks_at_all():
    assert leading_size(ParticleClimbFamily().split(0, 0, 0).train) == 0


def test_targets_are_even_among_training_and_among_test_tasks():
    for seed in range(4):
        split = ParticleClimbFamily().split(seed, 10, 7)
        assert np.bincount(split.train.target, minlength=5).tolist() == [2] * 5
        assert sorted(np.bincount(split.test.target, minlength=5).tolist()) == [1, 1, 1, 2, 2]


def test_difficulty_is_the_mean_distance_from_the_starts():
    family = ParticleClimbFamily(ParticleClimb(num_landmarks=2))
    layout = np.array([(0.3, -0.8), (-0.5, 0.1)])
    starts = np.random.default_rng(0).uniform(-1, 1, (20_000, 1, 2))
    sampled = np.mean(np.linalg.norm(starts - layout, axis=-1))
    assert family.mean_distance(layout) == pytest.approx(sampled, abs=0.04)
    assert family.mean_distance(np.zeros((1, 2))) < family.mean_distance(layout)


def test_description_facts_and_breakdown():
    family = ParticleClimbFamily(ParticleClimb(num_agents=3, num_landmarks=2, horizon=4, delta=0.25))
    task = task_of([(0.25, -0.5), (-0.75, 0.5)], target=1)
    info = family.describe(task)
    assert (info.label, info.group) == ("u=1 at (-0.75, +0.50)", "k=2")
    assert info.target == [[1, 2], [0.25, -0.5], [-0.75, 0.5]]
    rewards = np.array([0.0, 0.75, 1.0, 1.0])
    assert float(family.score(jnp.asarray(rewards))) == 2.75
    assert family.breakdown(task, rewards) == {"k=2": 2.75}
    assert (family.suboptimal_return, family.optimal_threshold, family.optimal_return) == (3.0, 3.5, 4.0)
    assert family.facts()["return_is"] == "sum" and family.facts()["num_landmarks"] == 2
    assert family.facts()["lowest_return"] == 0.0
    assert family.num_tasks is None and family.configuration_shape == (1, 2)


def test_rewarding_configurations_are_the_targets():
    family = ParticleClimbFamily()
    split = family.split(0, 3, 2)
    assert family.rewarding_configurations(split.train).tolist() == sorted(split.train.target.tolist())
    assert family.rewarding_configurations(family.split(0, 0, 2).train).tolist() == []


# Configurations

SPOTS = (0.0, 0.5, 0.98, 1.02, 1.5)
"""Distances from a landmark, in radii."""


def steps_paid(family: ParticleClimbFamily, task: ParticleTask, position):
    """A step's configuration, and its reward if each landmark in turn were the target."""
    world, key = family.env, jax.random.key(0)
    state, action = ParticleState(position, jnp.zeros_like(position)), jnp.zeros(len(position), jnp.int32)
    elsewhere = world.observe(task, ParticleState(position + 10.0, state.velocity))  # what counts is where a step ends

    def paid(target):
        outcome = world.step(dataclasses.replace(task, target=target), state, action, key)[1]
        return outcome.reward, outcome.obs

    rewards, seen = jax.vmap(paid)(jnp.arange(family.world.num_landmarks))
    return family.configuration(Transition(elsewhere, action, seen[0])), rewards


GAMES = {n: ParticleClimbFamily(ParticleClimb(n, 4), count=2) for n in (2, 3)}
PAID = {
    n: jax.jit(lambda task, position, family=family: steps_paid(family, task, position)) for n, family in GAMES.items()
}
DRAWN = {n: jax.device_get(family.split(0, 20, 0).train) for n, family in GAMES.items()}


@given(st.sampled_from([2, 3]), st.integers(0, 19), st.data())
@settings(max_examples=150)
def test_a_step_pays_on_a_target_if_and_only_if_it_is_the_configuration(number: int, which: int, data):
    """Few landmarks and spots are drawn from, so that agents often meet."""
    family, task = GAMES[number], tree_index(DRAWN[number], which)
    places = []
    for _ in range(number):
        near, spot = data.draw(st.integers(0, 1)), data.draw(st.sampled_from(SPOTS))
        angle = data.draw(st.floats(0, 2 * math.pi))
        step = spot * family.world.radius * np.array([math.cos(angle), math.sin(angle)])
        places.append(np.asarray(task.landmarks)[near] + step)
    # Beyond the wall a step would move agents; what is tested here is the reading of places.
    position = np.clip(np.array(places, np.float32), -1.0, 1.0)
    configuration, rewards = PAID[number](task, position)
    paying = np.flatnonzero(np.asarray(rewards) == 1.0).tolist()
    assert paying == ([int(configuration)] if configuration >= 0 else [])


def test_the_property_above_sees_meetings_and_misses():
    family, task = GAMES[3], tree_index(DRAWN[3], 0)
    marks = task.landmarks
    places = {0: [0, 0, 1], 3: [3, 1, 3], -1: [2, 2, 2]}
    for expected, where in places.items():
        configuration, rewards = PAID[3](task, marks[where])
        assert int(configuration) == expected
        assert (np.asarray(rewards) == 1.0).any() == (expected >= 0)
    absent = marks[[0, 0, 1]] + np.array([[0.0], [0.0], [0.21]], np.float32)
    assert int(PAID[3](task, absent)[0]) == -1
    assert family.configuration_shape == (1, 4)


# What cannot be


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_agents": 0}, "num-agents must be at least 1, not 0"),
        ({"num_landmarks": 0}, "num-landmarks must be at least 1, not 0"),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, not 1.0"),
        ({"delta": NAN}, "delta must lie strictly between 0 and 1, not nan"),
        ({"radius": 0.0}, "radius must be above 0, not 0.0"),
        ({"radius": NAN}, "radius must be above 0, not nan"),
        ({"start_range": -1.0}, "start-range must be above 0, not -1.0"),
        ({"agent_size": 0.0}, "agent-size must be above 0, not 0.0"),
        ({"acceleration": 0.0}, "acceleration must be above 0, not 0.0"),
        ({"integration": "both"}, "integration must be position-first or velocity-first, not both"),
        ({"wall": -1.0}, "wall must be above 0, not -1.0"),
        ({"wall": 0.5}, "start-range 1.0 reaches beyond the wall at 0.5"),
    ],
)
def test_impossible_worlds(settings: dict, message: str):
    with pytest.raises(UsageError) as caught:
        ParticleClimb(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "k must lie between 1 and the number of agents 2, not 0"),
        ({"count": 3}, "k must lie between 1 and the number of agents 2, not 3"),
        (
            {"world": ParticleClimb(num_landmarks=1), "count": 1},
            "with k below the number of agents there must be a second landmark for the others",
        ),
        ({"landmark_range": 0.0}, "landmark-range must be above 0, not 0.0"),
        ({"landmark_range": NAN}, "landmark-range must be above 0, not nan"),
        ({"landmark_range": 1.5}, "landmark-range 1.5 reaches beyond the wall at 1.0"),
        ({"gap": -0.1}, "gap must not be negative, not -0.1"),
        ({"gap": NAN}, "gap must not be negative, not nan"),
        ({"difficulty": (1.0, 1.0)}, r"difficulty must be two growing distances, not (1.0, 1.0)"),
        ({"difficulty": (-1.0, 1.0)}, r"difficulty must be two growing distances, not (-1.0, 1.0)"),
        ({"difficulty": (NAN, 1.0)}, r"difficulty must be two growing distances, not (nan, 1.0)"),
        (
            {"world": ParticleClimb(num_landmarks=40)},
            "40 landmarks of radius 0.2 cannot be placed without overlap within +-0.9",
        ),
    ],
)
def test_impossible_families(settings: dict, message: str):
    with pytest.raises(UsageError) as caught:
        ParticleClimbFamily(**settings)
    assert str(caught.value) == message


def test_layouts_that_cannot_be_found():
    crowded = ParticleClimbFamily(ParticleClimb(num_landmarks=4), landmark_range=0.2)
    message = r"^4 landmarks of radius 0\.2 cannot be placed without overlap within \+-0\.2$"
    with pytest.raises(UsageError, match=message):
        crowded.split(0, 1, 0)
    message = r"cannot be placed without overlap within \+-0\.9 at a mean distance of 3\.0 to 4\.0$"
    with pytest.raises(UsageError, match=message):
        ParticleClimbFamily(difficulty=(3.0, 4.0)).split(0, 0, 1)


@pytest.mark.parametrize("target", [-1, 5])
def test_targets_outside_the_layout(target: int):
    task = task_of(task_in(ParticleClimbFamily().split(0, 1, 0).train).landmarks, target)
    with pytest.raises(UsageError, match=f"^target {target} is none of the landmarks 0 to 4$"):
        ParticleClimbFamily().describe(task)
