"""The loop: steps, warm-up, what reaches the replay, chunks and lanes that change nothing, who plays."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.envs.climb import ClimbFamily
from mesax.errors import UsageError
from mesax.mesa.mixing import Mixing
from mesax.nets import Adam, Mlp
from mesax.policy import EpsilonRandom, ExplorationPolicySet
from mesax.training.loop import LearningLoop, Start, mean_over_rounds
from mesax.training.rollout import mean_rewards
from mesax.training.schedule import Budget, Schedule
from mesax.types import Linear, masked_mean, tree_index, tree_stack
from methods.helpers import Preferences

FAMILY = ClimbFamily(num_actions=3, num_stages=2)
TASKS = jax.device_get(FAMILY.split(0, 2, 1).train)
# Forty episodes per round into a ring of a hundred: it wraps around in the middle of a batch.
SCHEDULE = Schedule(
    total_steps=800, warmup_steps=100, num_envs=40, updates_per_round=2, batch_size=8, replay_capacity=100
)
WARM_UP, ROUNDS = 2, 10
KEY = jax.random.key(4)


@dataclass(frozen=True)
class TableLearner(OffPolicy):
    """As little as an off-policy algorithm can be: prefer actions that paid. Compiles at once."""

    def init(self, spec, key):
        return jax.random.normal(key, (spec.num_agents, spec.action_space.num_actions))

    def greedy(self, spec, state):
        del spec
        return Preferences(1e3 * state)

    def behavior(self, spec, state, elapsed):
        return EpsilonRandom(Preferences(state), 1.0 - elapsed.fraction, spec.action_space)

    def update(self, spec, state, batch, elapsed, key):
        paid = spec.action_space.encode(batch.action) * batch.reward[..., None, None]
        noise = 0.01 * jax.random.normal(key, state.shape)
        metrics = {"paid": masked_mean(batch.reward, batch.mask)}
        return state + 0.1 * jnp.mean(paid, axis=(0, 1)) + noise, metrics


@dataclass(frozen=True)
class Tenfold:
    """Pays ten times the reward and counts the episodes that it saw."""

    def learner_spec(self, spec):
        return spec

    def equip(self, spec, state, policy):
        del spec, state
        return policy

    def begin(self, spec, given, key):
        return given

    def observe(self, spec, state, episodes, key):
        del spec
        return state + len(episodes.reward), replace(episodes, reward=10.0 * episodes.reward)


EXPLORERS = ExplorationPolicySet(Preferences(1e3 * np.eye(3, dtype=np.float32)[np.array([[0, 1], [2, 2]])]))
LOOP = LearningLoop(FAMILY.env, TableLearner(), SCHEDULE, reward_model=Tenfold(), keep_episodes=True)


def begin(loop: LearningLoop, tasks, key):
    return loop.warm_up(tasks, loop.init(Start(), jnp.zeros((), jnp.int32), key), key)


def advance(loop: LearningLoop, tasks, state, key, rounds: int, explorer=None):
    return loop.advance(tasks, explorer, state, key, rounds)


jit_begin = jax.jit(begin, static_argnums=0)
jit_advance = jax.jit(advance, static_argnums=(0, 4))


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.fixture(scope="module")
def run():
    """A whole run: after the warm-up and at its end, with both logs."""
    start, warm_up_log = jit_begin(LOOP, TASKS, KEY)
    end, log = jit_advance(LOOP, TASKS, start, KEY, 4)
    return jax.device_get((start, warm_up_log, end, log))


def test_steps_are_counted(run):
    start, _, end, log = run
    assert SCHEDULE.steps_per_round(2) == 80
    assert (SCHEDULE.warmup_rounds(2), SCHEDULE.rounds(2), SCHEDULE.steps(2)) == (WARM_UP, ROUNDS, 800)
    assert (int(start.round), int(end.round)) == (WARM_UP, WARM_UP + 4)
    assert (int(start.replay.added), int(end.replay.added)) == (40 * WARM_UP, 40 * (WARM_UP + 4))
    assert log.episodes.reward.shape == (4, 40, 2)


def test_warm_up_is_random_and_teaches_nothing(run):
    start, log, _, _ = run
    fresh = jax.jit(lambda key: LOOP.init(Start(), jnp.zeros((), jnp.int32), key))(KEY)
    assert_same(start.learner, fresh.learner)
    assert int(fresh.replay.size) == 0 and int(fresh.round) == 0
    actions = np.asarray(log.episodes.action)
    joint = np.bincount((actions @ [3, 1]).ravel(), minlength=9) / (actions.size / 2)
    np.testing.assert_allclose(joint, np.full(9, 1 / 9), atol=0.08)
    assert not np.any(log.episodes.label.actor)
    assert len({round_.tobytes() for round_ in actions}) == WARM_UP  # rounds do not repeat


def test_replay_holds_the_episodes_with_the_reward_to_learn_from(run):
    _, warm_up_log, end, log = run
    logs = ((warm_up_log, WARM_UP), (log, 4))
    played = [tree_index(log.episodes, r) for log, number in logs for r in range(number)]
    every = jax.tree.map(lambda *leaves: np.concatenate(leaves), *played)
    slots = np.arange(len(every.reward))[-100:]
    held = jax.tree.map(lambda leaf: np.asarray(leaf)[slots % 100], end.replay.episodes)
    expected = tree_index(every, slots)
    assert_same(held, replace(expected, reward=10.0 * expected.reward))
    assert int(end.reward) == 40 * (WARM_UP + 4)


def test_metrics_of_a_round(run):
    _, _, _, log = run
    returns = np.asarray(log.episodes.reward).sum(axis=2)
    np.testing.assert_allclose(log.metrics["train_return"], returns.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(log.metrics["learnt_return"], 10 * returns.mean(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(log.metrics["explorer_share"], np.zeros(4))
    np.testing.assert_array_equal(log.metrics["explorer_return"], np.zeros(4))
    assert log.metrics["paid"].shape == (4,)


def test_how_a_run_is_cut_changes_nothing(run):
    start, _, end, log = run
    state, logs = start, []
    for _ in range(4):
        state, piece = jit_advance(LOOP, TASKS, state, KEY, 1)
        logs.append(piece)
    assert_same(state, end)
    assert_same(jax.tree.map(lambda *leaves: np.concatenate(leaves), *logs), log)


elapsed = jax.jit(LOOP.elapsed)


def test_progress_is_a_fraction_of_what_follows_the_warm_up(run):
    start, _, end, _ = run
    assert float(elapsed(start.round).fraction) == 0.0
    assert float(elapsed(end.round).fraction) == pytest.approx(4 / (ROUNDS - WARM_UP))


def test_elapsed_steps_include_the_warm_up(run):
    start, _, end, _ = run
    per_round = SCHEDULE.steps_per_round(LOOP.env.spec.horizon)
    assert float(elapsed(start.round).steps) == WARM_UP * per_round
    assert float(elapsed(end.round).steps) == (WARM_UP + 4) * per_round
    assert [float(elapsed(state.round).own_steps) for state in (start, end)] == [0.0, 4 * per_round]


def test_nothing_is_kept_unless_asked_for():
    loop = replace(LOOP, keep_episodes=False)
    _, log = jax.eval_shape(partial(begin, loop), TASKS, KEY)
    assert log.episodes is None


def test_mixing_nobody_in_equals_the_learner_alone(run):
    """Algorithm 2 with p_e = 0: every array of the run is the same, bit for bit."""
    start, _, end, _ = run
    loop = replace(LOOP, behavior=Mixing(Linear(0.0, 0.0, 1.0)))
    mixed, log = jit_advance(loop, TASKS, start, KEY, 4, EXPLORERS)
    assert_same(mixed, end)
    np.testing.assert_array_equal(log.metrics["explorer_share"], np.zeros(4))


def test_mixing_follows_its_schedule(run):
    start, _, _, _ = run
    loop = replace(LOOP, behavior=Mixing(Linear(1.0, 0.0, 0.5)))
    _, log = jit_advance(loop, TASKS, start, KEY, 4, EXPLORERS)
    actor, action = np.asarray(log.episodes.label.actor), np.asarray(log.episodes.action)
    assert set(actor[0]) == {1, 2}
    np.testing.assert_allclose(np.mean(actor > 0, axis=1), [1.0, 0.75, 0.5, 0.25], atol=0.2)
    for explorer, joint in [(1, [0, 1]), (2, [2, 2])]:
        assert np.all(action[actor == explorer] == joint)
    returns = np.asarray(log.episodes.reward).sum(axis=2)
    np.testing.assert_allclose(mean_over_rounds(log.metrics)["explorer_return"], returns[actor > 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(log.metrics["explorer_share"], np.mean(actor > 0, axis=1), rtol=1e-6)


@dataclass(frozen=True)
class KeyKeeper(TableLearner):
    """Remembers the key that it was made from."""

    def init(self, spec, key):
        del spec
        return jax.random.key_data(key)


def test_a_fresh_learner_shares_no_key_with_a_round():

    @jax.jit
    def keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(the learner's key and what it is split into, keys of fifty rounds)."""
        fresh = replace(LOOP, algorithm=KeyKeeper()).init(Start(), jnp.zeros((), jnp.int32), key)
        own = jax.random.split(jax.random.wrap_key_data(fresh.learner), 2)
        rounds = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(50))
        return jnp.concatenate([fresh.learner[None], jax.random.key_data(own)]), jax.random.key_data(rounds)

    own, rounds = ({key.tobytes() for key in np.asarray(some)} for some in keys(KEY))
    assert len(own) == 3 and len(rounds) == 50 and not own & rounds


@example(total=10, warmup=0, envs=1, evaluations=6, horizon=1)
@given(
    total=st.integers(10**4, 10**6),
    warmup=st.integers(0, 10**4),
    envs=st.integers(1, 300),
    evaluations=st.integers(1, 100),
    horizon=st.integers(1, 100),
)
def test_schedules_meet_their_budget(total: int, warmup: int, envs: int, evaluations: int, horizon: int):
    schedule = Schedule(
        total_steps=total, warmup_steps=warmup, num_envs=envs, replay_capacity=300, num_evaluations=evaluations
    )
    per_round = envs * horizon
    warm = schedule.warmup_rounds(horizon)
    assert warm >= 1 and (warm - 1) * per_round < max(warmup, 1) <= warm * per_round
    number, length = schedule.chunks(horizon)
    assert 1 <= number <= evaluations and length >= 1
    assert schedule.rounds(horizon) == warm + number * length
    assert schedule.steps(horizon) == schedule.rounds(horizon) * per_round
    wanted = max(1, -(-total // per_round) - warm)
    assert abs(number * length - wanted) <= (0.05 * wanted if wanted >= 10 else 0.5 * number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"total_steps": 0}, "total-steps must be at least 1, not 0"),
        ({"num_envs": 0}, "num-envs must be at least 1, not 0"),
        ({"batch_size": 0}, "batch-size must be at least 1, not 0"),
        ({"num_evaluations": 0}, "num-evaluations must be at least 1, not 0"),
        ({"warmup_steps": -1}, "warmup-steps must lie between 0 and 2147483647, not -1"),
        ({"total_steps": 500, "warmup_steps": 501}, "warmup-steps 501 are more than the total-steps 500"),
        ({"updates_per_round": 0}, "updates-per-round must be at least 1, not 0"),
        ({"num_envs": 60, "replay_capacity": 50}, "replay-capacity 50 is less than num-envs 60"),
    ],
)
def test_impossible_schedules(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        Schedule(**settings)


def test_a_budget_of_no_steps_has_no_rounds():
    budget = Budget(0, num_envs=3)
    assert (budget.chunks(7), budget.rounds(7), budget.steps(7), budget.segment(7, lanes=2)) == ((0, 1), 0, 0, 1)
    with pytest.raises(UsageError, match="total-steps must be at least 0, not -1"):
        Budget(-1)


CLIMB = ClimbFamily(num_actions=5, counts=(2,))
CLIMB_LOOP = LearningLoop(
    CLIMB.env,
    Maddpg(
        actor_net=Mlp((16,)),
        critic_net=Mlp((32,)),
        actor_update=JointImprovement(),
        actor_optimizer=Adam(5e-3),
        critic_optimizer=Adam(1e-2),
    ),
    Schedule(total_steps=1_920, warmup_steps=320, num_envs=32, updates_per_round=8, replay_capacity=1_920),
)


def climb(task, key):
    """A whole run of MADDPG, ending with a greedy evaluation."""
    tasks = tree_stack([task])
    state, _ = begin(CLIMB_LOOP, tasks, key)
    state, _ = CLIMB_LOOP.advance(tasks, None, state, key, 50)
    policy = CLIMB_LOOP.algorithm.greedy(CLIMB.env.spec, state.learner)
    return state, mean_rewards(CLIMB.env, tasks, policy, key, 4)


def test_lanes():
    """Runs side by side share a program; all that they may share. One test, because the program is slow to compile."""
    tasks, seeds = jax.device_get(CLIMB.split(0, 3, 1).train), np.arange(3)

    @jax.jit
    def run(tasks, seeds):
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(2), seed))(seeds)
        return jax.vmap(climb)(tasks, keys)

    def program(tasks, seeds):
        return jax.device_get(run(tasks, seeds))

    states, rewards = program(tasks, seeds)
    # The loop learns what only a joint move improves.
    np.testing.assert_array_equal(rewards, np.ones((3, 1)))
    # A lane does not see its neighbors: bit for bit the same, whatever runs beside it and wherever it stands.
    order = np.array([2, 0, 0])
    others = program(tree_index(tasks, order), seeds[order])
    for lane, source in enumerate(order.tolist()):
        assert_same(tree_index(others, lane), tree_index((states, rewards), source))
    # Alone, it plays the same; its nets agree to rounding only, because XLA sums in another order for one lane.
    alone, alone_rewards = program(tree_index(tasks, slice(1, 2)), seeds[1:2])
    alone, together = tree_index(alone, 0), tree_index(states, 1)
    assert_same((alone.replay, alone_rewards[0]), (together.replay, rewards[1]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), alone.learner, together.learner)
