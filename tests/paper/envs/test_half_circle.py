"""Point navigation by hand: moves, what is paid where, and goals that training has not seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.types import tree_index
from paper.envs.half_circle import HalfCircle, HalfCircleFamily, HalfCircleTask

WORLD = HalfCircle()


def reward_at(place: tuple[float, float], dense: bool) -> float:
    """Of standing still there, with the goal at (0, 2)."""
    task = HalfCircleTask(jnp.array([0.0, 2.0]), jnp.asarray(dense))
    return float(WORLD.step(task, jnp.asarray(place), jnp.zeros((1, 2)), jax.random.key(0))[1].reward)


def test_what_is_paid_where():
    assert reward_at((0.0, 2.0), False) == reward_at((0.0, 2.0), True) == 1.0
    assert reward_at((0.4, 2.0), False) == pytest.approx(0.5)
    assert reward_at((0.0, 0.0), False) == 0.0
    assert reward_at((0.0, 0.0), True) == pytest.approx(1 - 2 / 0.8)


def test_no_move_is_longer_than_a_stride():
    task = HalfCircleTask(jnp.array([0.0, 2.0]), jnp.asarray(False))
    for action, moved in (([1.0, 0.0], [0.4, 0.0]), ([0.5, 0.0], [0.2, 0.0]), ([3.0, 3.0], [0.4 / 2**0.5] * 2)):
        state, step = WORLD.step(task, jnp.zeros(2), jnp.array([action]), jax.random.key(0))
        assert state == pytest.approx(moved) and step.obs[0] == pytest.approx(moved) and not step.terminated


def test_the_best_return_is_that_of_the_straight_way():
    family = HalfCircleFamily()
    task = tree_index(family.split(0, 1, 1).test, 0)
    state, total = jnp.zeros(2), 0.0
    for _ in range(WORLD.horizon):
        strides = (task.goal - state) / WORLD.stride
        direct = strides / jnp.maximum(jnp.linalg.norm(strides), 1.0)
        state, step = WORLD.step(task, state, direct[None], jax.random.key(0))
        total += float(step.reward)
    assert total == pytest.approx(family.optimal_return, abs=1e-3) and family.optimal_return == pytest.approx(16.5)


def test_goals_of_both_kinds_lie_on_the_half_circle():
    split = HalfCircleFamily().split(3, 30, 20)
    for tasks in (split.train, split.test):
        assert np.linalg.norm(tasks.goal, axis=1) == pytest.approx(np.full(len(tasks.goal), 2.0))
        assert np.all(tasks.goal[:, 1] >= 0)
    assert np.all(split.train.dense) and not np.any(split.test.dense)
    goals = np.concatenate([split.train.goal, split.test.goal])
    assert len(np.unique(goals, axis=0)) == 50
    assert np.array_equal(HalfCircleFamily().split(3, 30, 1).train.goal, split.train.goal)
    assert HalfCircleFamily().describe(HalfCircleTask(jnp.array([0.0, 2.0]), jnp.asarray(False))).label == "90 degrees"


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"reach": 3.0}, "reach must lie"), ({"horizon": 4}, "do not lead"), ({"stride": np.nan}, "do not lead")],
)
def test_impossible_planes_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        HalfCircle(**settings)
