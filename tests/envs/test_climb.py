"""Climb games: reward tables by enumeration, equilibria, observations, and the way tasks are drawn."""

import itertools
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesax.envs.climb import ClimbFamily, ClimbGame, ClimbTask
from mesax.errors import UsageError
from mesax.suites.climb.suite import ClimbSuite
from mesax.types import Transition, leading_size, tree_index

PAPER = ClimbSuite().family("climb-multi")


def reward_table(game: ClimbGame, count: int, special: int) -> np.ndarray:
    """Rewards of all joint actions, one axis per agent, from the environment's own step."""
    shape = (game.num_actions,) * game.num_agents
    joint = jnp.asarray(list(np.ndindex(*shape)))
    task = ClimbTask(jnp.array([count]), jnp.array([special]))
    state, _ = game.reset(task, jax.random.key(0))
    rewards = jax.jit(jax.vmap(lambda action: game.step(task, state, action, jax.random.key(0))[1].reward))(joint)
    return np.asarray(rewards).reshape(shape)


def equilibria(table: np.ndarray) -> set[tuple[int, ...]]:
    """Joint actions that no single agent gains by leaving."""
    best_replies = [table >= table.max(axis=agent, keepdims=True) for agent in range(table.ndim)]
    return {tuple(map(int, cell)) for cell in np.argwhere(np.all(best_replies, axis=0))}


def pairs(tasks: ClimbTask) -> list[tuple[tuple[int, int], ...]]:
    counts, specials = np.asarray(tasks.count).tolist(), np.asarray(tasks.special).tolist()
    return [tuple(zip(k, u, strict=True)) for k, u in zip(counts, specials, strict=True)]


@pytest.mark.parametrize(("count", "cells"), [(2, (1, 81, 18)), (1, (18, 81, 1))])
def test_the_papers_tables(count: int, cells: tuple[int, int, int]):
    table = reward_table(ClimbGame(), count, special=7)
    assert tuple(int(np.sum(table == value)) for value in (1.0, 0.5, 0.0)) == cells
    np.testing.assert_allclose(table.mean(), {2: 0.415, 1: 0.585}[count], rtol=1e-5)


@pytest.mark.parametrize(
    ("agents", "actions", "count", "delta"),
    [(1, 2, 1, 0.5), (2, 2, 2, 0.1), (3, 4, 1, 0.5), (3, 4, 2, 0.75), (3, 4, 3, 0.5), (4, 3, 2, 0.9)],
)
def test_tables_of_any_size(agents: int, actions: int, count: int, delta: float):
    special = actions - 1
    table = reward_table(ClimbGame(agents, actions, delta=delta), count, special)
    for joint in np.ndindex(*table.shape):
        players = joint.count(special)
        expected = 1.0 if players == count else 1.0 - delta if players == 0 else 0.0
        assert table[joint] == pytest.approx(expected)
    assert np.sum(table == 1.0) == comb(agents, count) * (actions - 1) ** (agents - count)
    assert np.sum(np.isclose(table, 1.0 - delta)) == (actions - 1) ** agents


def test_safe_play_is_an_equilibrium_unless_one_agent_is_enough():
    together = reward_table(ClimbGame(), count=2, special=3)
    safe = {cell for cell in np.ndindex(10, 10) if 3 not in cell}
    assert equilibria(together) == safe | {(3, 3)}
    alone = reward_table(ClimbGame(), count=1, special=3)
    assert equilibria(alone) == {cell for cell in np.ndindex(10, 10) if cell.count(3) == 1}


def test_two_of_three_is_an_equilibrium_trap_too():
    table = reward_table(ClimbGame(3, 4), count=2, special=0)
    best = {cell for cell in np.ndindex(4, 4, 4) if cell.count(0) == 2}
    safe = {cell for cell in np.ndindex(4, 4, 4) if 0 not in cell}
    assert equilibria(table) == best | safe


def test_observation_is_the_stage_and_the_joint_actions_so_far():
    game = ClimbGame(num_agents=2, num_actions=3, num_stages=3)
    task = ClimbTask(jnp.array([1, 2, 2]), jnp.array([0, 1, 2]))
    played = jnp.array([[0, 1], [1, 1], [2, 0]])
    key = jax.random.key(0)
    state, obs = game.reset(task, key)
    step = jax.jit(game.step)
    rewards, ends = [], []
    for stage in range(3):
        assert obs.shape == (2, game.spec.obs_size) == (2, 3 + 2 * 2 * 3)
        history = np.zeros((2, 2, 3))
        for earlier in range(stage):
            history[earlier] = np.eye(3)[np.asarray(played[earlier])]
        expected = np.concatenate([np.eye(3)[stage], history.ravel()])
        np.testing.assert_array_equal(obs, [expected, expected])
        state, outcome = step(task, state, played[stage], key)
        obs = outcome.obs
        rewards.append(float(outcome.reward))
        ends.append(bool(outcome.terminated))
    assert rewards == [1.0, 1.0, 0.0]
    assert ends == [False, False, True]


def test_without_history_agents_see_the_stage_alone():
    game = ClimbGame(num_actions=3, num_stages=3, see_history=False)
    assert game.spec.obs_size == 3
    task, key = ClimbTask(jnp.array([2, 2, 2]), jnp.array([0, 1, 2])), jax.random.key(0)
    state, obs = game.reset(task, key)
    seen, rewards, step = [obs], [], jax.jit(game.step)
    for played in ([0, 0], [0, 2], [2, 1]):
        state, outcome = step(task, state, jnp.array(played), key)
        seen.append(outcome.obs)
        rewards.append(float(outcome.reward))
    stages = np.concatenate([np.eye(3), np.zeros((1, 3))])  # nothing once the last is over
    np.testing.assert_array_equal(seen, np.stack([stages, stages], axis=1))
    assert rewards == [1.0, 0.5, 0.0]


def test_the_papers_five_stage_game():
    assert (PAPER.env.spec.num_agents, PAPER.env.spec.obs_size, PAPER.env.spec.horizon) == (2, 5, 5)
    assert PAPER.num_actions == 10 and PAPER.possible_counts == (2,) and PAPER.groups == ("k=2",)
    assert (PAPER.optimal_return, PAPER.suboptimal_return) == (1.0, 0.5)
    assert float(PAPER.score(jnp.array([1.0, 0.5, 0.0, 0.5, 0.5]))) == 0.5


@pytest.mark.parametrize(
    ("seed", "specials"),
    [(0, (5, 0, 3, 3, 7)), (1, (5, 8, 9, 5, 0)), (2, (8, 8, 6, 2, 8)), (3, (8, 9, 3, 8, 8)), (4, (7, 5, 1, 8, 7))],
)
def test_the_first_test_task_is_the_papers(seed: int, specials: tuple[int, ...]):
    """Those of the authors' code."""
    split = PAPER.split(seed, 10, 5)
    own, *others = pairs(split.test)
    assert own == tuple((2, special) for special in specials)
    assert own not in pairs(split.train) and len({own, *others, *pairs(split.train)}) == 15
    assert pairs(PAPER.split(seed, 10, 1).test) == [own]
    assert pairs(PAPER.split(seed, 10, 0).train) == pairs(split.train)


def test_published_tasks_are_never_training_tasks():
    """With few tasks in all, a draw that did not know of the first would soon meet it."""
    family = ClimbFamily(num_actions=2, num_stages=2, counts=(2,), published=True)
    for seed in range(10):
        split = family.split(seed, 3, 1)
        assert len(set(pairs(split.train) + pairs(split.test))) == 4
    with pytest.raises(UsageError, match="this family has 4 tasks, fewer than 4 for training \\+ 1 for testing"):
        family.split(0, 4, 0)
    one_step = ClimbFamily(counts=(2,), published=True).split(0, 5, 2)
    assert pairs(one_step.test)[0] == ((2, 5),) and ((2, 5),) not in pairs(one_step.train)
    with pytest.raises(UsageError, match=r"published tasks have one k: say which with counts, not \(1, 2\)"):
        ClimbFamily(published=True)


def test_the_one_step_game_shows_a_constant():
    game = ClimbGame()
    assert game.spec.obs_size == 1 and game.spec.horizon == 1
    _, obs = game.reset(ClimbTask(jnp.array([1]), jnp.array([0])), jax.random.key(0))
    np.testing.assert_array_equal(obs, np.ones((2, 1)))


@pytest.mark.parametrize(
    ("family", "train", "test"),
    [
        (ClimbFamily(), 10, 10),
        (ClimbFamily(num_actions=3), 4, 2),
        (ClimbFamily(num_agents=3, num_actions=4), 5, 4),
        (ClimbFamily(num_actions=3, num_stages=2), 20, 16),
        (ClimbFamily(num_stages=5), 10, 10),
        (PAPER, 10, 10),
    ],
)
def test_splits_are_disjoint_and_repeatable(family: ClimbFamily, train: int, test: int):
    split = family.split(3, train, test)
    assert (leading_size(split.train), leading_size(split.test)) == (train, test)
    drawn = pairs(split.train) + pairs(split.test)
    assert len(set(drawn)) == train + test
    assert all(1 <= k <= family.num_agents and 0 <= u < family.num_actions for task in drawn for k, u in task)
    assert all(len(task) == family.num_stages for task in drawn)
    again = family.split(3, train, test)
    assert pairs(again.train) + pairs(again.test) == drawn
    fewer = family.split(3, train, 1)
    assert pairs(fewer.train) == pairs(split.train)
    assert pairs(fewer.test) == pairs(split.test)[:1]
    other = family.split(4, train, test)
    assert pairs(other.train) + pairs(other.test) != drawn


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(2, 6), st.data())
@settings(max_examples=30)
def test_counts_are_stratified_in_one_step_games(seed: int, agents: int, actions: int, data):
    family = ClimbFamily(num_agents=agents, num_actions=actions)
    train = data.draw(st.integers(0, family.num_tasks - 1))
    test = data.draw(st.integers(1, family.num_tasks - train))
    for tasks in (family.split(seed, train, test).train, family.split(seed, train, test).test):
        frequencies = np.bincount([task[0][0] for task in pairs(tasks)], minlength=agents + 1)[1:]
        assert frequencies.max() - frequencies.min() <= 1


def test_every_task_is_drawn_when_all_are_asked_for():
    split = ClimbFamily().split(0, 10, 10)
    every = {((k, u),) for k in (1, 2) for u in range(10)}
    assert set(pairs(split.train) + pairs(split.test)) == every
    multi = ClimbFamily(num_actions=2, num_stages=2).split(0, 8, 8)
    assert len(set(pairs(multi.train) + pairs(multi.test))) == 16


def test_stages_of_longer_games_draw_both_counts():
    tasks = ClimbFamily(num_stages=5).split(0, 40, 40).train
    assert 0.35 < float(jnp.mean(tasks.count == 2)) < 0.65
    assert set(np.unique(tasks.special)) == set(range(10))


def test_counts_can_be_restricted():
    family = ClimbFamily(counts=(2,))
    assert family.num_tasks == 10 and family.groups == ("k=2",)
    assert set(np.unique(family.split(0, 5, 5).train.count)) == {2}
    assert set(np.unique(ClimbFamily(num_stages=3, counts=(1,)).split(0, 5, 5).test.count)) == {1}


def test_more_tasks_than_there_are():
    message = "this family has 20 tasks, fewer than 15 for training \\+ 6 for testing"
    with pytest.raises(UsageError, match=message):
        ClimbFamily().split(0, 15, 6)


@pytest.mark.parametrize("kind", [ClimbGame, ClimbFamily])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_actions": 1}, "num-actions must be at least 2, not 1"),
        ({"num_stages": 0}, "num-stages must be at least 1, not 0"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1, not 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, not 1.0"),
        ({"delta": float("nan")}, "delta must lie strictly between 0 and 1, not nan"),
    ],
)
def test_impossible_games(kind, settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        kind(**settings)


def test_impossible_numbers_of_agents():
    with pytest.raises(UsageError, match="num-agents must be at least 1, not 0"):
        ClimbGame(num_agents=0)
    with pytest.raises(UsageError):
        ClimbFamily(num_agents=0)


@pytest.mark.parametrize("settings", [{"num_actions": 10**9}, {"num_agents": 10**9}, {"num_stages": 22_000_000}])
def test_games_too_large_to_count_their_choices(settings: dict):
    """At once, and not after minutes of drawing tasks."""
    with pytest.raises(UsageError, match="at most 2147483647 joint choices"):
        ClimbFamily(**settings)


@pytest.mark.parametrize("counts", [(3,), (0,), (1, 3)])
def test_impossible_counts(counts: tuple[int, ...]):
    with pytest.raises(UsageError, match=r"k must lie between 1 and the number of agents 2, not [03]"):
        ClimbFamily(counts=counts)


@pytest.mark.parametrize("counts", [(), (1, 1)])
def test_counts_must_be_different_and_some(counts: tuple[int, ...]):
    with pytest.raises(UsageError, match="counts must be different numbers from 1 to 2"):
        ClimbFamily(counts=counts)


def test_description_and_breakdown():
    family = ClimbFamily(num_stages=3)
    task = ClimbTask(jnp.array([1, 2, 1]), jnp.array([4, 0, 9]))
    info = family.describe(task)
    assert info.label == "k=1 u=4 | k=2 u=0 | k=1 u=9"
    assert info.group is None
    assert info.target == [[1, 4], [2, 0], [1, 9]]
    rewards = np.array([1.0, 0.5, 0.0])
    assert family.breakdown(task, rewards) == {"k=1": 0.5, "k=2": 0.5}
    assert float(family.score(jnp.asarray(rewards))) == 0.5
    same = ClimbTask(jnp.array([2, 2, 2]), jnp.array([0, 0, 0]))
    assert family.describe(same).group == "k=2"
    assert family.breakdown(same, rewards) == {"k=2": 0.5}


def test_facts():
    family = ClimbFamily(delta=0.25)
    assert (family.optimal_return, family.suboptimal_return) == (1.0, 0.75)
    assert family.suboptimal_return < family.optimal_threshold <= family.optimal_return
    assert family.facts()["return_is"] == "mean" and family.facts()["lowest_return"] == 0.0


def test_configurations_number_stages_and_joint_actions():
    family = ClimbFamily(num_agents=3, num_actions=3, num_stages=2)
    game, key = family.env, jax.random.key(0)
    task = tree_index(family.split(0, 1, 1).train, 0)
    joint = jnp.asarray(list(itertools.product(range(3), repeat=3)))

    def number(first, second):
        state, obs = game.reset(task, key)
        state, middle = game.step(task, state, first, key)
        last = game.step(task, state, second, key)[1].obs
        one = family.configuration(Transition(obs, first, middle.obs))
        return one, family.configuration(Transition(middle.obs, second, last))

    firsts, seconds = jax.jit(jax.vmap(number))(joint, joint)
    np.testing.assert_array_equal(firsts, np.arange(27))
    np.testing.assert_array_equal(seconds, 27 + np.arange(27))


@pytest.mark.parametrize("family", [ClimbFamily(), ClimbFamily(num_agents=3, num_actions=3, num_stages=2)])
def test_rewarding_configurations_by_enumeration(family: ClimbFamily):
    tasks = family.split(1, 3, 1).train
    game, expected = family.env, set()
    joint = list(itertools.product(range(family.num_actions), repeat=family.num_agents))
    for task in pairs(tasks):
        for stage, (count, special) in enumerate(task):
            paid = jax.vmap(lambda a, k=count, u=special: game.reward(jnp.asarray(k), jnp.asarray(u), a))(
                jnp.asarray(joint)
            )
            expected |= {stage * len(joint) + index for index in np.flatnonzero(paid == 1.0)}
    assert family.rewarding_configurations(tasks).tolist() == sorted(expected)
