"""The on-policy loop under the driver: steps, whom it learns from, chunks and lanes that change nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.base import OnPolicy
from mesax.algorithms.mappo import Mappo
from mesax.errors import UsageError
from mesax.nets import Mlp
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training.driver import Chunk, _Advance, _Begin, learn
from mesax.training.loop import LearningLoop, Start
from mesax.training.schedule import Budget
from mesax.types import tree_index
from methods.helpers import TWO_STAGE, Preferences, same_bits
from probes import Walk, WalkTask

BUDGET = Budget(total_steps=780, num_envs=10, num_evaluations=3)


@dataclass(frozen=True)
class TableLearner(OnPolicy):
    """As little as an on-policy algorithm can be: prefer what paid. It notes what it is given; compiles at once."""

    def init(self, spec, key):
        table = jax.random.normal(key, (spec.num_agents, spec.action_space.num_actions))
        notes = {"updates": jnp.zeros((), jnp.int32), "progress": jnp.zeros((2,)), "action": jnp.zeros((10, 2, 2))}
        return {"table": table, "paid": jnp.zeros((10, 2))} | notes

    def behavior(self, spec, state, elapsed):
        del spec
        return Preferences(state["table"] * (1.0 + elapsed.fraction))

    def greedy(self, spec, state):
        del spec
        return Preferences(1e3 * state["table"])

    def update(self, spec, state, batch, elapsed, key):
        paid = spec.action_space.encode(batch.action) * batch.reward[..., None, None]
        noise = 0.01 * jax.random.normal(key, state["table"].shape)
        after = {
            "table": state["table"] + 0.001 * jnp.mean(paid, axis=(0, 1)) + noise,
            "paid": batch.reward,
            "updates": state["updates"] + 1,
            "progress": jnp.stack([state["progress"][1], elapsed.fraction]),
            "action": batch.action.astype(jnp.float32),
        }
        return after, {"loss": -jnp.mean(batch.reward)}


@dataclass(frozen=True)
class Tenfold:
    """Pays ten times the reward."""

    def learner_spec(self, spec):
        return spec

    def equip(self, spec, state, policy):
        del spec, state
        return policy

    def begin(self, spec, given, key):
        return given

    def observe(self, spec, state, episodes, key):
        del spec
        return state, replace(episodes, reward=10.0 * episodes.reward)


LOOP = LearningLoop(TWO_STAGE.env, TableLearner(), BUDGET, reward_model=Tenfold(), keep_episodes=True)


keys_of = jax.jit(jax.vmap(lambda lane: jax.random.fold_in(jax.random.key(7), lane)))


def start(loop: LearningLoop, lanes: list[int], eval_episodes: int = 2, **options) -> Iterator[Chunk]:
    """Lane i has task i and key i, wherever it stands."""
    tasks = tree_index(jax.device_get(TWO_STAGE.split(0, 3, 0).train), np.array(lanes)[:, None])
    return learn(loop, tasks, keys_of(np.array(lanes)), eval_episodes=eval_episodes, **options)


@pytest.fixture(scope="module")
def chunks() -> list[Chunk]:
    return list(start(LOOP, [0, 1]))


def parts(chunk: Chunk, lane: int) -> tuple:
    """All that a chunk says of one lane."""
    return tree_index((chunk.learner, chunk.rewards, chunk.metrics, chunk.episodes), lane)


def test_steps_are_counted(chunks: list[Chunk]):
    """Three times thirteen rounds of twenty steps after a look at the start; every round is learnt from once."""
    assert [chunk.step for chunk in chunks] == [0, 260, 520, 780]
    assert BUDGET.steps(2) == 780
    assert chunks[0].episodes is None and chunks[0].metrics == {}
    assert [chunk.episodes.reward.shape for chunk in chunks[1:]] == [(2, 13, 10, 2)] * 3
    played = np.cumsum([np.sum(chunk.episodes.mask[0]) for chunk in chunks[1:]])
    assert played.tolist() == [chunk.step for chunk in chunks[1:]]
    assert [chunk.learner["updates"].tolist() for chunk in chunks] == [[0, 0], [13, 13], [26, 26], [39, 39]]


def test_progress_runs_from_0_to_the_end(chunks: list[Chunk]):
    np.testing.assert_allclose(chunks[0].learner["progress"][0], [0.0, 0.0])
    np.testing.assert_allclose(chunks[-1].learner["progress"][0], [37 / 39, 38 / 39], rtol=1e-6)


def test_the_learner_sees_its_latest_episodes_with_the_reward_to_learn_from(chunks: list[Chunk]):
    for chunk in chunks[1:]:
        latest = jax.tree.map(lambda leaf: np.asarray(leaf)[:, -1], chunk.episodes)
        np.testing.assert_array_equal(chunk.learner["action"], latest.action)
        np.testing.assert_array_equal(chunk.learner["paid"], 10.0 * latest.reward)
        returns = np.asarray(chunk.episodes.reward).sum(axis=-1).mean(axis=(1, 2))
        np.testing.assert_allclose(chunk.metrics["train_return"], returns, rtol=1e-5)
        np.testing.assert_allclose(chunk.metrics["learnt_return"], 10.0 * returns, rtol=1e-5)
        np.testing.assert_allclose(chunk.metrics["loss"], -5.0 * returns, rtol=1e-4)
        assert chunk.metrics["explorer_share"].tolist() == [0.0, 0.0]


def test_rounds_do_not_repeat(chunks: list[Chunk]):
    actions = np.concatenate([chunk.episodes.action[0] for chunk in chunks[1:]])
    assert len({round_.tobytes() for round_ in actions}) == 39


def test_the_same_seed_twice_is_identical(chunks: list[Chunk]):
    for first, second in zip(chunks, start(LOOP, [0, 1]), strict=True):
        assert all(same_bits(parts(first, lane), parts(second, lane)) for lane in (0, 1))
    assert not same_bits(parts(chunks[-1], 0), parts(chunks[-1], 1))


def test_how_a_run_is_cut_changes_nothing(chunks: list[Chunk]):
    others = list(start(replace(LOOP, schedule=replace(BUDGET, num_evaluations=1)), [0, 1]))
    assert [chunk.step for chunk in others] == [0, 780]
    assert same_bits(others[-1].learner, chunks[-1].learner)
    np.testing.assert_array_equal(others[-1].rewards, chunks[-1].rewards)
    played, replayed = (np.concatenate([c.episodes.action for c in run[1:]], axis=1) for run in (chunks, others))
    np.testing.assert_array_equal(played, replayed)


def test_a_lane_alone_computes_the_same_to_rounding(chunks: list[Chunk]):
    for first, second in list(zip(chunks, start(LOOP, [1]), strict=True))[1:]:
        np.testing.assert_array_equal(first.episodes.action[1], second.episodes.action[0])
        np.testing.assert_allclose(first.learner["table"][1], second.learner["table"][0], atol=1e-5)
        np.testing.assert_array_equal(first.rewards[1], second.rewards[0])


def test_neighbors_and_position_change_nothing_for_mappo():
    """With networks too, bit for bit; leaves without numbers (no deviations of discrete actions) pass the driver."""
    loop = LearningLoop(TWO_STAGE.env, Mappo(Mlp(()), Mlp(()), epochs=1), Budget(60, 10, 1))
    runs = [list(start(loop, lanes, eval_episodes=0)) for lanes in ([0, 1], [1, 2])]
    assert [chunk.step for chunk in runs[0]] == [0, 60]
    for pair, swapped in zip(*runs, strict=True):
        assert same_bits(parts(pair, 1), parts(swapped, 0))
        assert not pair.step or set(pair.metrics) >= {"actor_loss", "critic_loss", "entropy", "clipped", "train_return"}
    assert not same_bits(runs[0][0].learner, runs[0][1].learner)


def test_the_first_round_has_the_program_of_all_others():
    """Standard deviations are numbers without a type of their own at first; what rounds are given has one."""
    loop = LearningLoop(Walk(), Mappo(Mlp(()), Mlp(())), Budget(60, 10, 1))
    tasks, keys = WalkTask(np.ones((1, 1), np.float32)), keys_of(np.arange(1))
    learner = jax.eval_shape(lambda key: loop.algorithm.init(loop.env.spec, key), keys[0])
    assert learner.actors.net.log_std.weak_type
    before, _ = jax.eval_shape(_Begin(loop), tasks, Start(), (), keys)
    after, _ = jax.eval_shape(_Advance(loop, 1), tasks, None, before, keys)

    def types(state) -> list:
        return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(state)]

    assert types(before) == types(after)


def test_nobody_else_may_play():
    explorer = UniformPolicy(TWO_STAGE.env.spec.action_space, EXPLORER)
    run = start(LOOP, [0, 1], start=Start(explorer=explorer))
    next(run)
    with pytest.raises(UsageError, match="cannot learn from another's episodes"):
        next(run)


def test_nothing_is_kept_unless_asked_for():
    loop, tasks = replace(LOOP, keep_episodes=False), TWO_STAGE.split(0, 3, 0).train
    _, log = jax.eval_shape(lambda key: loop.warm_up(tasks, loop.init(Start(), (), key), key), jax.random.key(0))
    assert log.episodes is None
