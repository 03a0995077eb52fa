"""Boxes cut into points: numbers by hand, learners that see nothing but indices, wrappers in either order."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.binned import Binned, BinnedPolicy, Grid
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Sum
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.errors import UsageError
from mesax.nets import Mlp
from mesax.policy import UniformPolicy
from mesax.training.rollout import play
from mesax.types import Box, Discrete, Elapsed, EnvSpec, blank_episode, tree_stack
from probes import ContinuousGame, ContinuousTask, put, stacked

SPEC = EnvSpec(2, 3, Box(2), 4)
GAME = ContinuousGame(size=2)
TASK = stacked([ContinuousTask(put(np.zeros((2, 2, 2)), np.float32))])
VALUES = ValueDecomposition(Sum(), Mlp((4,)))


def test_eleven_points_are_the_papers():
    points = np.asarray(jax.jit(Grid(11, 1).points)(np.arange(11)))
    np.testing.assert_allclose(points[:, 0], np.arange(-10, 11, 2) / 10, atol=1e-6)


def test_numbers_of_a_pair_by_hand():
    """Three points each: index 5 has digits 1 and 2, so the point (0, 1)."""
    grid = Grid(3, 2)
    played = put([[-0.9, -2.0], [0.4, 0.6], [7.0, 0.51]])
    points, numbers = jax.jit(lambda: (grid.points(put([0, 5, 8])), grid.index(played)))()
    np.testing.assert_array_equal(points, [[-1, -1], [0, 1], [1, 1]])
    np.testing.assert_array_equal(numbers, [0, 5, 8])


@pytest.mark.parametrize("bins, size", [(11, 1), (11, 2), (10, 3), (2, 5)])
def test_every_point_has_its_own_number(bins: int, size: int):
    grid, numbers = Grid(bins, size), np.arange(bins**size)
    points = np.asarray(jax.jit(grid.points)(numbers))
    np.testing.assert_array_equal(jax.jit(grid.index)(points), numbers)
    assert points.shape == (bins**size, size)
    assert float(points.min()) == -1.0 and float(points.max()) == 1.0


def test_the_nearest_point_wins():
    grid, played = Grid(7, 1), np.random.default_rng(0).uniform(-1, 1, (200, 1)).astype(np.float32)
    known = np.linspace(-1, 1, 7)
    np.testing.assert_array_equal(jax.jit(grid.index)(played), np.abs(played - known).argmin(axis=1))


KEY = jax.random.key(7)


@dataclass(frozen=True)
class Recorder(OffPolicy):
    """An algorithm that keeps what it was given."""

    def init(self, spec, key):
        return spec

    def observe(self, spec, state, fresh):
        return spec, fresh

    def update(self, spec, state, batch, elapsed, key):
        return (spec, batch), {"elapsed": elapsed.fraction, "draw": jax.random.uniform(key)}

    def behavior(self, spec, state, elapsed):
        return UniformPolicy(spec.action_space)

    def greedy(self, spec, state):
        return UniformPolicy(spec.action_space)


@pytest.mark.parametrize("way", ["update", "observe"])
def test_learners_see_indices(way):
    learner = Binned(Recorder(), bins=5)

    @jax.jit
    def compute(action):
        batch = replace(tree_stack([blank_episode(SPEC)] * 3), action=action)
        metrics = {}
        if way == "update":
            (spec, seen), metrics = learner.update(SPEC, learner.init(SPEC, KEY), batch, Elapsed.at(0.5), KEY)
        else:
            spec, seen = learner.observe(SPEC, learner.init(SPEC, KEY), batch)
        assert spec == learner.init(SPEC, KEY) == replace(SPEC, action_space=Discrete(25))
        return seen, metrics, batch.obs, Grid(5, 2).index(action), jax.random.uniform(KEY)

    action = np.random.default_rng(1).uniform(-1, 1, (3, 4, 2, 2))
    seen, metrics, obs, numbers, draw = jax.device_get(compute(action))
    assert metrics == ({"elapsed": 0.5, "draw": draw} if way == "update" else {})
    np.testing.assert_array_equal(seen.action, numbers)
    assert seen.action.dtype == np.int32 and seen.action.shape == (3, 4, 2)
    np.testing.assert_array_equal(seen.obs, obs)


MAPPO = Mappo(Mlp((4,)), Mlp((4,)), epochs=1)


@pytest.mark.parametrize(
    "learner, on_policy",
    [(Normalized(Binned(VALUES, 3)), False), (Binned(Normalized(VALUES), 3), False), (Binned(MAPPO, 3), True)],
    ids=["inside", "outside", "on-policy"],
)
def test_plays_and_learns(learner, on_policy: bool):
    """From its own episodes and, off-policy, from anybody's; it plays points only."""

    @jax.jit
    def run(key):
        state = learner.init(GAME.spec, key)
        policy = learner.behavior(GAME.spec, state, Elapsed.at(0.5))
        episodes = play(GAME, TASK, policy, key, 8)
        greedy = play(GAME, TASK, learner.greedy(GAME.spec, state), key, 2)
        batch = episodes if on_policy else play(GAME, TASK, UniformPolicy(GAME.spec.action_space), key, 8)
        metrics = learner.update(GAME.spec, state, batch, Elapsed.at(0.5), key)[1]
        return episodes.action, greedy.action, episodes.label.actor, metrics

    played, greedy, actor, metrics = jax.device_get(run(jax.random.key(0)))
    for actions in (played, greedy):
        assert actions.shape[1:] == (2, 2, 2)
        assert set(np.unique(actions)) <= {-1.0, 0.0, 1.0}
    assert len(np.unique(played)) == 3 and np.all(actor == 0)
    assert all(np.isfinite(value) for value in metrics.values())


def test_the_memory_of_the_wrapped_policy_holds_the_index():
    learner = Binned(VALUES, 3)

    @jax.jit
    def compute(key):
        policy = learner.behavior(SPEC, learner.init(SPEC, key), Elapsed.at(0.0))
        assert isinstance(policy, BinnedPolicy)
        action, (_, last) = policy.act(policy.start(key), jnp.ones((2, 3)), jax.random.fold_in(key, 1))
        return policy.grid.points(last), action

    np.testing.assert_array_equal(*compute(jax.random.key(0)))


def test_too_many_actions_are_refused():
    with pytest.raises(UsageError, match="11 bins for each of 3 numbers are 1331 actions, more than 1000"):
        Binned(VALUES).init(replace(SPEC, action_space=Box(3)), jax.random.key(0))


def test_discrete_actions_are_refused():
    with pytest.raises(UsageError, match="discrete already"):
        Binned(VALUES).init(replace(SPEC, action_space=Discrete(3)), jax.random.key(0))


def test_one_bin_is_no_choice():
    with pytest.raises(UsageError, match="bins must be at least 2, not 1"):
        Binned(VALUES, 1)
