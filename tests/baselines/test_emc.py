"""EMC by hand: the memory, curiosity with linear nets, what each learner is told; and what is refused."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.mixers import Sum
from mesax.algorithms.value_decomposition import Hint, Soft, ValueDecomposition, Values, ValueState
from mesax.baselines.emc import (
    BestReturns,
    Curiosity,
    CuriosityState,
    Emc,
    EmcState,
    EpisodicMemory,
    Falling,
    discounted_returns,
    one_of,
)
from mesax.errors import UsageError
from mesax.nets import Adam, Mlp, Team, Trainable
from mesax.types import Discrete, Elapsed, EnvSpec, Episode, Label
from probes import Summing, put, stacked

SPEC = EnvSpec(num_agents=2, obs_size=1, action_space=Discrete(2), horizon=2)
VDN = ValueDecomposition(Sum(), Mlp(()), last_action=False, discount=0.9, target=Soft(0.25), optimizer=Adam(0.1))
# Scale .2 at first, and .1 after 1,000 steps.
EMC = Emc(VDN, Curiosity(Falling(0.2, 0.5, 1_000), target_rate=0.25, optimizer=Adam(0.1)), BestReturns(0.5, 64))

# Values of (action 0, action 1) per unit of the sum of an agent's observations.
CONTROL = [[[0.0, 1.0]], [[0.0, 1.0]]]
TARGET = [[[2.0, 1.0]], [[0.5, -1.0]]]
CURIOUS = [[[1.0, 0.0]], [[0.0, 2.0]]]
SOFT = [[[0.3, 0.4]], [[0.0, 0.1]]]
PREDICTOR = [[[0.0, 0.0]], [[0.0, 0.0]]]


def team(weights) -> Team:
    return Team(Summing(put(weights)), 2, shared=False)


def value_state(online, target) -> ValueState:
    online, target = (Values(team(weights), Sum().build(SPEC, jax.random.key(0))) for weights in (online, target))
    return ValueState(Trainable.create(online, VDN.optimizer), target, jnp.zeros((), jnp.int32))


@cache
@jax.jit
def linear_state() -> EmcState:
    curious = CuriosityState(value_state(CURIOUS, SOFT), Trainable.create(team(PREDICTOR), Adam(0.1)))
    return EmcState(value_state(CONTROL, TARGET), curious, EMC.memory.build(SPEC, jax.random.key(1)))


def episode(terminated: tuple[bool, bool] = (False, False)) -> Episode:
    """Sums of observations are (1, .5, 3.5) and (2, 2.5, -1.5)."""
    return Episode(
        obs=np.array([[[1.0], [2.0]], [[-0.5], [0.5]], [[3.0], [-4.0]]], np.float32),
        action=np.array([[0, 1], [1, 0]], np.int32),
        reward=np.array([1.0, 2.0], np.float32),
        terminated=np.array(terminated),
        mask=np.array([True, not terminated[0]]),
        label=Label(np.array(0, np.int32), np.zeros(0, np.float32)),
    )


@pytest.mark.parametrize(
    ("steps", "scale"), [(0, 0.2), (4_999, 0.2), (5_000, 0.18), (14_999, 0.162), (10**6, 0.01), (math.inf, 0.01)]
)
def test_curiosity_falls_in_steps_to_its_floor(steps, scale):
    falling = jax.jit(Falling(0.2, 0.9, 5_000, floor=0.01).__call__)
    np.testing.assert_allclose(falling(Elapsed.at(0.5, steps)), scale, rtol=1e-6)
    np.testing.assert_allclose(falling(Elapsed.at(0.5, steps + 700, warmup=700)), scale, rtol=1e-6)


# Sums at times 1 and 2 are (.5, 2.5) and (3.5, -1.5): ten times the soft target's values have norms of
# 5 |sum| for the first agent and |sum| for the second, and the predictor says zero.
NEWS = np.array([(5 * 0.5 + 2.5) / 2, (5 * 3.5 + 1.5) / 2])
# Chosen values at both steps, and the target nets' values of what the online nets choose next.
CHOSEN = np.array([2.0, 0.5])
FOLLOWING = np.array([0.5 - 2.5, 3.5 - 0.75])
REWARD = np.array([1.0, 2.0])


@pytest.fixture(scope="module")
def update():
    run = jax.jit(lambda state, batch, elapsed: EMC.update(SPEC, state, batch, elapsed, jax.random.key(0)))

    def updated(state, *episodes, steps=0.0):
        after, metrics = run(state, stacked(list(episodes)), Elapsed.at(0.5, steps))
        return after, jax.device_get(metrics)

    return updated


@pytest.mark.parametrize(("steps", "scale"), [(0.0, 0.2), (1_000.0, 0.1)])
def test_news_is_paid_to_the_control_learner_alone(update, steps, scale):
    state, metrics = update(linear_state(), episode(), steps=steps)
    np.testing.assert_allclose(metrics["prediction_error"], NEWS.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["intrinsic_mean"], scale * NEWS.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["curiosity_scale"], scale, rtol=1e-6)
    targets = REWARD + scale * NEWS + 0.9 * FOLLOWING
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], np.square(CHOSEN - targets).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["episode_error"], [np.square(CHOSEN - targets).mean()], rtol=1e-4)
    # The curious VDN prefers (0, 1) at time 1 and (0, 0) at time 2; it plays (0, 1) and (1, 0).
    own = REWARD + 0.9 * np.array([0.3 * 0.5 + 0.1 * 2.5, 0.3 * 3.5])
    np.testing.assert_allclose(metrics["curious_loss"], np.square([1.0 + 4.0, 0.0] - own).mean(), rtol=1e-4)
    # Adam's first step moves what is predicted toward the target: up for positive sums' values, by its rate.
    moved = np.asarray(state.curiosity.predictor.net.nets.weight)
    np.testing.assert_allclose(moved[0], [[0.1, 0.1]], rtol=1e-3)
    soft = np.asarray(state.curiosity.values.target.agents.nets.weight)
    online = np.asarray(state.curiosity.values.values.net.agents.nets.weight)
    np.testing.assert_allclose(soft, 0.75 * np.array(SOFT) + 0.25 * online, rtol=1e-5)


def test_the_predictor_learns_what_it_is_shown(update):
    """Of values that stay what they are, there is less and less news."""
    state, before = update(linear_state(), episode())
    for _ in range(60):
        still = replace(state.curiosity, values=linear_state().curiosity.values)
        state, after = update(replace(state, curiosity=still), episode())
    assert after["prediction_error"] < 0.2 * before["prediction_error"]


def test_what_never_happened_is_no_news(update):
    first, second = episode((True, False)), episode((True, False))
    second.obs[2], second.reward[1] = 99.0, 50.0
    metrics = [update(linear_state(), given)[1] for given in (first, second)]
    np.testing.assert_allclose(metrics[0]["prediction_error"], NEWS[0], rtol=1e-4)
    for name in metrics[0]:
        np.testing.assert_array_equal(metrics[0][name], metrics[1][name], err_msg=name)


def test_remembered_returns_pull_at_the_team_value(update):
    """The better of two episodes is remembered; replayed, the worse one is told what was possible from there on."""
    worse, better = episode(), replace(episode(), reward=np.array([0.0, 7.0], np.float32))
    observe = jax.jit(lambda state, *fresh: EMC.observe(SPEC, state, jax.tree.map(lambda *e: jnp.stack(e), *fresh)))
    state = observe(linear_state(), worse, better)
    assert float(state.memory.known) == 0.0 and float(state.memory.occupancy) == 2 / 64
    state = observe(state, worse)
    assert float(state.memory.known) == 1.0 and float(state.memory.occupancy) == 2 / 64
    _, metrics = update(state, worse)
    # From the second state 7 was earned; the last state is known to nobody, so the second step has no hint.
    hint = 1.0 + 0.9 * 7.0
    np.testing.assert_allclose(metrics["memory_value"], hint, rtol=1e-5)
    np.testing.assert_allclose(metrics["hint_loss"], 0.5 * (CHOSEN[0] - hint) ** 2 / 2, rtol=1e-5)
    assert float(metrics["memory_hit_rate"]) == 0.5
    # Where the task is over, nothing more was to be had: that is known without a memory.
    _, metrics = update(linear_state(), episode((True, False)))
    np.testing.assert_allclose(metrics["hint_loss"], 0.5 * (CHOSEN[0] - 1.0) ** 2, rtol=1e-5)


def test_where_the_horizon_ends_the_task_its_last_step_is_known():
    """Nothing follows it: its reward is all there was to be had. Of the first step nothing is known yet."""
    emc = replace(EMC, control=replace(VDN, horizon_ends=True))
    _, metrics = jax.jit(emc.hint)(linear_state(), stacked([episode()]))
    assert float(metrics["memory_hit_rate"]) == 0.5
    np.testing.assert_allclose(metrics["memory_value"], 2.0, rtol=1e-6)


def test_a_lower_bound_pulls_only_upward():
    hint = Hint(put([[3.0, 3.0, 3.0]]), put([[0.5, 0.5, 0.0]]), at_least=True)
    predicted = put([[[1.0], [5.0], [1.0]]])
    upward, both = jax.jit(lambda x: (hint.error(x), replace(hint, at_least=False).error(x)))(predicted)
    np.testing.assert_allclose(np.asarray(upward)[0, :, 0], [2.0, 0.0, 0.0])
    np.testing.assert_allclose(np.asarray(both)[0, :, 0], [2.0, 2.0, 0.0])


def test_returns_are_discounted_backwards_and_end_with_the_episode():
    long = replace(episode((True, False)), reward=np.array([3.0, 50.0], np.float32))
    returns = jax.jit(lambda episodes: discounted_returns(episodes, 0.5))(stacked([episode(), long]))
    np.testing.assert_allclose(returns, [[2.0, 2.0], [3.0, 0.0]])


REMEMBER, RECALL = jax.jit(EpisodicMemory.remember), jax.jit(EpisodicMemory.recall)


def table(capacity: int) -> EpisodicMemory:
    """One agent with one number, told apart by its whole part."""
    build = BestReturns(capacity=capacity, size=1).build
    shapes = jax.eval_shape(lambda key: build(replace(SPEC, num_agents=1), key), jax.random.key(0))
    empty = jax.tree.map(lambda leaf: put(np.zeros(leaf.shape, leaf.dtype)), shapes)
    return replace(empty, projection=put([[1.0]]))


def padded(numbers: Sequence[float]) -> np.ndarray:
    """One shape for few of them and one for many: for each a program is compiled."""
    return np.resize(np.array(numbers, np.float32), 8 if len(numbers) <= 8 else 200)


def filled(memory: EpisodicMemory, *pairs: tuple[float, float], mask=True) -> EpisodicMemory:
    states, returns = (padded(part) for part in zip(*pairs, strict=True))
    return REMEMBER(memory, states[:, None, None], returns, mask & (np.arange(len(states)) < len(pairs)))


def recalled(memory: EpisodicMemory, *states: float) -> list[float | None]:
    values, found = jax.device_get(RECALL(memory, padded(states)[:, None, None]))
    return [float(value) if there else None for value, there in zip(values, found, strict=True)][: len(states)]


def test_the_memory_keeps_the_best_return_of_every_cell():
    memory = filled(table(1_024), (0.2, 1.0), (1.5, -3.0), (0.9, 2.0), (-0.5, 4.0))
    assert recalled(memory, 0.0, 0.99, 1.0, -0.01, 2.0) == [2.0, 2.0, -3.0, 4.0, None]
    memory = filled(memory, (0.5, 1.5), (1.1, -2.0))
    assert recalled(memory, 0.0, 1.0, -1.0) == [2.0, -2.0, 4.0]
    assert recalled(filled(memory, (7.0, 1.0), mask=False), 7.0, 0.0) == [None, 2.0]
    assert float(memory.occupancy) == 3 / 1_024


def test_the_latest_states_have_a_full_memory():
    memory = filled(table(1), (0.0, 5.0))
    assert recalled(memory, 0.0, 1.0) == [5.0, None]
    memory = filled(memory, (1.0, 2.0), (1.0, 3.0))
    assert recalled(memory, 0.0, 1.0) == [None, 3.0]
    many = filled(table(16), *((float(number), float(number)) for number in range(200)))
    kept = [value for value in recalled(many, *map(float, range(200))) if value is not None]
    assert float(many.occupancy) == 1.0 and len(kept) == 16  # one state each, and with its own return
    assert recalled(many, *kept) == kept


def test_equal_states_of_many_agents_share_a_cell_and_others_do_not():
    spec = replace(SPEC, num_agents=3, obs_size=5)
    states = np.random.default_rng(4).normal(size=(500, 3, 5)).astype(np.float32)

    @jax.jit
    def compute(states):
        memory = BestReturns(capacity=2**14, tolerance=0.05).build(spec, jax.random.key(3))
        memory = memory.remember(states, jnp.arange(500.0), jnp.ones(500, bool))
        return memory.recall(states), memory.recall(states + 1.0)[1]

    (values, found), others = jax.device_get(compute(states))
    assert np.mean(found) > 0.95 and np.array_equal(values[found], np.arange(500.0)[found])
    assert not np.any(others)


def test_with_its_parts_switched_off_it_is_the_control_learner():
    plain = Emc(VDN, None, None)
    key = jax.random.key(0)
    states = jax.jit(lambda: (VDN.init(SPEC, key), plain.init(SPEC, key)))()
    jax.tree.map(np.testing.assert_array_equal, states[0], states[1].control)
    batch = stacked([episode(), episode((True, False))])
    (first, expected), (second, metrics) = (
        jax.jit(lambda state, batch, learner=learner: learner.update(SPEC, state, batch, Elapsed.end(), key))(
            state, batch
        )
        for learner, state in zip((VDN, plain), states, strict=True)
    )
    jax.tree.map(np.testing.assert_array_equal, first, second.control)
    assert set(metrics) == {*expected, "episode_error"}
    assert plain.observe(SPEC, states[1], batch) is states[1]


def test_a_memory_beyond_this_machine_is_refused():
    with pytest.raises(
        UsageError, match=r"a memory of 1,000,000,000,000 entries takes 29,802\.3 GiB .* more than"
    ) as e:
        replace(EMC, memory=BestReturns(capacity=10**12)).check(SPEC, 8)
    assert "\n" not in str(e.value)


def test_curiosity_about_a_single_step_needs_the_last_action():
    once = replace(SPEC, horizon=1)
    with pytest.raises(UsageError, match=r"set control\.last-action to true"):
        EMC.check(once, 8)
    EMC.check(SPEC, 8)
    replace(EMC, control=replace(VDN, last_action=True)).check(once, 8)
    replace(EMC, curiosity=None).check(once, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BestReturns(capacity=0),
        lambda: BestReturns(tolerance=0.0),
        lambda: BestReturns(weight=-1.0),
        lambda: Falling(start=-1.0),
        lambda: Falling(factor=1.1),
        lambda: Falling(steps=0),
        lambda: Falling(0.1, floor=0.2),
        lambda: Curiosity(gain=0.0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(UsageError, match=r"not (from )?-?\d"):
        make()


def test_only_one_of_several_functions_is_computed():
    functions = (lambda x: {"sum": jnp.sum(x)}, lambda x: (2.0 * x, jnp.max(x)))
    told = jax.jit(jax.vmap(lambda which: one_of(which, functions, put([1.0, 4.0]))))(put([0, 1], np.int32))
    first, second = jax.device_get(told)
    np.testing.assert_array_equal(first["sum"], [5.0, 0.0])
    np.testing.assert_array_equal(second[0], [[0.0, 0.0], [2.0, 8.0]])
    np.testing.assert_array_equal(second[1], [0.0, 4.0])
