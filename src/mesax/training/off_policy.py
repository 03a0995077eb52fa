"""The off-policy loop, as pure functions: play some episodes, store them, update a few times.

    warm_up:  rounds of uniformly random episodes into the replay
    advance:  per round, `num_envs` episodes by `behave(...)`, relabeled by the reward model, then `updates_per_round`
              updates from replayed episodes

MESA touches this loop in three places, each a value: who behaves, which reward, who else reads the collected data.
Round r draws its randomness from `fold_in(key, r)`, so how a run is cut into chunks cannot change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from mesax.algorithms.base import OffPolicyAlgorithm
from mesax.envs.base import Environment
from mesax.errors import UsageError
from mesax.policy import ExploreOrExploit, Policy, UniformPolicy
from mesax.replay import Replay
from mesax.rewards.base import RewardModel, TaskReward
from mesax.training.rollout import play
from mesax.types import Elapsed, EnvSpec, Episode, Key, Line, Linear, Metrics, blank_episode, tree_index

INIT_STREAM = 2**32 - 1
REWARD_STREAM = 2**32 - 3
"""Beyond all rounds, which draw from `fold_in(key, round)`; evaluations have the number between."""
SEGMENT_TRANSITIONS = 150_000
"""Transitions played or learnt from in one call of a compiled program, at most: a second or two on one core."""


@dataclass(frozen=True)
class Budget:
    """Environment steps (joint steps), cut into rounds of episodes side by side and chunks between evaluations."""

    total_steps: int = 50_000
    """Budget, warm-up included."""
    num_envs: int = 50
    """Episodes played side by side in a round."""
    num_evaluations: int = 50
    """Greedy evaluations at most, evenly spaced over the budget."""

    def __post_init__(self) -> None:
        """Refuse budgets that cannot be spent."""
        for name in ("total_steps", "num_envs", "num_evaluations"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")

    def steps_per_round(self, horizon: int) -> int:
        """Environment steps of one round."""
        return self.num_envs * horizon

    def warmup_rounds(self, horizon: int) -> int:
        """Rounds before the first chunk."""
        del horizon
        return 0

    def chunks(self, horizon: int) -> tuple[int, int]:
        """(number of chunks, rounds in each) after the warm-up; an evaluation follows each chunk.

        All chunks are equal, so that one compiled program serves; the budget is met to within 5%.
        """
        rounds = max(1, -(-self.total_steps // self.steps_per_round(horizon)) - self.warmup_rounds(horizon))
        number = max(1, min(self.num_evaluations, rounds // 10 or rounds))
        return number, max(1, round(rounds / number))

    def segment(self, horizon: int, lanes: int) -> int:
        """Rounds between two moments at which a run can be saved and stopped; they divide a chunk evenly.

        They follow from the configuration and not from the clock: a run that goes on must be cut as before.
        """
        _, rounds = self.chunks(horizon)
        most = max(1, SEGMENT_TRANSITIONS // (lanes * self.transitions(horizon)))
        return max(number for number in range(1, min(most, rounds) + 1) if rounds % number == 0)

    def transitions(self, horizon: int) -> int:
        """Transitions that a round plays and learns from; on-policy learners pass over theirs a few times."""
        return 4 * self.steps_per_round(horizon)

    def rounds(self, horizon: int) -> int:
        """All rounds, warm-up included."""
        number, length = self.chunks(horizon)
        return self.warmup_rounds(horizon) + number * length

    def steps(self, horizon: int) -> int:
        """Environment steps that a run takes."""
        return self.rounds(horizon) * self.steps_per_round(horizon)

    def elapsed(self, horizon: int, number: Int[Array, ""]) -> Elapsed:
        """How far a run has come at round `number`."""
        warmup = self.warmup_rounds(horizon)
        each = jnp.asarray(self.steps_per_round(horizon), jnp.float32)
        return Elapsed((number - warmup) / (self.rounds(horizon) - warmup), number * each, (number - warmup) * each)


@dataclass(frozen=True)
class Schedule(Budget):
    """How much an off-policy learner collects and learns."""

    warmup_steps: int = 3_000
    """Uniformly random steps before the first update."""
    updates_per_round: int = 2
    batch_size: int = 32
    """Episodes in an update."""
    replay_capacity: int = 50_000
    """Episodes kept."""

    def __post_init__(self) -> None:
        """Refuse schedules that cannot run."""
        super().__post_init__()
        for name in ("updates_per_round", "batch_size", "replay_capacity"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if self.warmup_steps < 0:
            raise UsageError(f"warmup-steps must not be negative, not {self.warmup_steps}")
        if self.num_envs > self.replay_capacity:
            raise UsageError(f"replay-capacity {self.replay_capacity} is less than num-envs {self.num_envs}")

    def transitions(self, horizon: int) -> int:
        """Transitions that a round plays and learns from."""
        return self.steps_per_round(horizon) + self.updates_per_round * self.batch_size * horizon

    def warmup_rounds(self, horizon: int) -> int:
        """Random rounds; at least one, so that there is something to learn from."""
        return max(1, -(-self.warmup_steps // self.steps_per_round(horizon)))


def round_keys(key: Key, number: Int[Array, ""]) -> tuple[Key, Key]:
    """(to play, to learn) of one round."""
    key_play, key_learn = jax.random.split(jax.random.fold_in(key, number))
    return key_play, key_learn


class LoopState(eqx.Module):
    """Everything that a round changes."""

    learner: Any
    replay: Replay
    reward: Any
    round: Int[Array, ""]


class RoundLog(eqx.Module):
    """What a round leaves behind: metrics, and the episodes as played (with the task's own reward)."""

    metrics: Metrics
    episodes: Episode | None


def returns_of(played: Episode, learnt_from: Episode) -> Metrics:
    """What a round's episodes returned, in the task's reward and in the one that is learnt from.

    `cut_short` is the share of episodes that the environment itself broke off.
    """
    explored = played.actor > 0
    cut_short = ~played.mask[:, -1] & ~jnp.any(played.terminated & played.mask, axis=1)
    returns = jnp.sum(played.reward, axis=1)
    return {
        "train_return": jnp.mean(returns),
        "learnt_return": jnp.mean(jnp.sum(learnt_from.reward, axis=1)),
        "cut_short": jnp.mean(cut_short.astype(jnp.float32)),
        "explorer_share": jnp.mean(explored.astype(jnp.float32)),
        "explorer_return": jnp.mean(jnp.where(explored, returns, 0.0)),
    }


def summarize(metrics: Metrics) -> Metrics:
    """Means over stacked rounds; the explorers' return becomes a mean over *their* episodes."""
    if not metrics:
        return {}
    means = jax.tree.map(jnp.mean, metrics)
    share = means["explorer_share"]
    return means | {"explorer_return": means["explorer_return"] / jnp.where(share > 0, share, 1.0)}


class Behavior(Protocol):
    """Who gathers data: a frozen dataclass; explorers travel as an argument."""

    def __call__(self, learner: Policy, explorer: Any, elapsed: Elapsed) -> Policy:
        """Policy for the next round's episodes."""


@dataclass(frozen=True)
class LearnerAlone:
    """The learner's own behavior policy."""

    def __call__(self, learner: Policy, explorer: Any, elapsed: Elapsed) -> Policy:
        """Nobody else plays."""
        del explorer, elapsed
        return learner


@dataclass(frozen=True)
class Mixing:
    """Algorithm 2: an explorer plays an episode with annealed probability p_e, else the learner."""

    probability: Line = Linear(0.8, 0.0, 0.6)
    """p_e over the run."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        for end in (self.probability.start, self.probability.end):
            if not 0.0 <= end <= 1.0:
                raise UsageError(f"an explorer's share must lie between 0 and 1, not {end}")

    def __call__(self, learner: Policy, explorer: Any, elapsed: Elapsed) -> Policy:
        """Mix at this point of the run."""
        return ExploreOrExploit(learner, explorer, self.probability(elapsed))


@dataclass(frozen=True)
class OffPolicyLoop:
    """One algorithm on one environment with one schedule; hashable, so it names its compiled program."""

    env: Environment
    algorithm: OffPolicyAlgorithm
    schedule: Schedule
    behavior: Behavior = LearnerAlone()
    reward_model: RewardModel = TaskReward()
    keep_episodes: bool = False
    """Hand the collected episodes back to the host."""

    @property
    def learner_spec(self) -> EnvSpec:
        """Sizes as the learner sees them."""
        return self.reward_model.learner_spec(self.env.spec)

    def init(self, reward_state: PyTree, key: Key) -> LoopState:
        """Fresh learner and an empty replay."""
        spec = self.env.spec
        reward_state = self.reward_model.begin(spec, reward_state, jax.random.fold_in(key, REWARD_STREAM))

        def example(reward_state: PyTree) -> Episode:
            episodes = jax.tree.map(lambda leaf: leaf[None], blank_episode(spec))
            return tree_index(self.reward_model.observe(spec, reward_state, episodes)[1], 0)

        replay = Replay.create(jax.eval_shape(example, reward_state), self.schedule.replay_capacity)
        learner = self.algorithm.init(self.learner_spec, jax.random.fold_in(key, INIT_STREAM))
        return LoopState(learner, replay, reward_state, jnp.zeros((), jnp.int32))

    def warm_up(self, tasks: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
        """Fill the replay with uniformly random episodes."""

        def body(state: LoopState, _: None) -> tuple[LoopState, RoundLog]:
            policy, key_play = self.newcomer(), jax.random.fold_in(key, state.round)
            return self.store(state, play(self.env, tasks, policy, key_play, self.schedule.num_envs))

        return jax.lax.scan(body, state, None, self.schedule.warmup_rounds(self.env.spec.horizon))

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: LoopState, key: Key, num_rounds: int
    ) -> tuple[LoopState, RoundLog]:
        """`num_rounds` rounds of playing and learning."""

        def body(state: LoopState, _: None) -> tuple[LoopState, RoundLog]:
            key_play, key_learn = round_keys(key, state.round)
            policy = self.player(state.learner, state.reward, state.round, explorer)
            return self.learn(state, play(self.env, tasks, policy, key_play, self.schedule.num_envs), key_learn)

        return jax.lax.scan(body, state, None, num_rounds)

    def elapsed(self, number: Int[Array, ""]) -> Elapsed:
        """How far the run has come at round `number`."""
        return self.schedule.elapsed(self.env.spec.horizon, number)

    def newcomer(self) -> Policy:
        """Who plays the warm-up."""
        return UniformPolicy(self.env.spec.action_space)

    def player(self, learner: Any, reward: Any, number: Int[Array, ""], explorer: PyTree) -> Policy:
        """Who plays round `number`."""
        elapsed = self.elapsed(number)
        own = self.algorithm.behavior(self.learner_spec, learner, elapsed)
        own = self.reward_model.equip(self.env.spec, reward, own)
        return self.behavior(own, explorer, elapsed)

    def learn(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """Store a round's episodes, then update from replayed ones."""
        state, log = self.store(state, episodes)

        def learn(learner: Any, key: Key) -> tuple[Any, Metrics]:
            key_sample, key_update = jax.random.split(key)
            batch = state.replay.sample(key_sample, self.schedule.batch_size)
            return self.algorithm.update(self.learner_spec, learner, batch, key_update)

        keys = jax.random.split(key, self.schedule.updates_per_round)
        learner, metrics = jax.lax.scan(learn, state.learner, keys)
        metrics = log.metrics | jax.tree.map(jnp.mean, metrics)
        return LoopState(learner, state.replay, state.reward, state.round), RoundLog(metrics, log.episodes)

    def store(self, state: LoopState, episodes: Episode) -> tuple[LoopState, RoundLog]:
        """Relabel a round's episodes and put them into the replay."""
        reward, learnt_from = self.reward_model.observe(self.env.spec, state.reward, episodes)
        metrics = returns_of(episodes, learnt_from)
        state = LoopState(state.learner, state.replay.add(learnt_from), reward, state.round + 1)
        return state, RoundLog(metrics, episodes if self.keep_episodes else None)
