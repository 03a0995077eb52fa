"""How much is played and learned: budgets of environment steps, cut into rounds, chunks and segments.

A *round* plays `num_envs` episodes side by side and learns from them; a *chunk* is what happens between two
evaluations; a *segment* is the part of a chunk after which a run can be saved and stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from mesax.errors import UsageError
from mesax.ranges import above, at_least, at_most, between
from mesax.types import Elapsed, Key

INIT_STREAM = 2**32 - 1
EVALUATION_STREAM = 2**32 - 2
REWARD_STREAM = 2**32 - 3
STORE_STREAM = 2**32 - 4
"""Beyond all rounds, which draw from `fold_in(key, round)`."""
MOST_STEPS = 2**31 - 1
"""Of a budget: rounds and steps are counted in 32 bits."""
SEGMENT_TRANSITIONS = 150_000
"""Transitions played or learned from in one call of a compiled program, at most: a second or two on one core."""


@dataclass(frozen=True)
class Budget:
    """Environment steps (joint steps), cut into rounds of episodes side by side and chunks between evaluations."""

    total_steps: int = 50_000
    """Budget, warm-up included; 0: nothing is learned, and what there is at the start is evaluated once."""
    num_envs: int = 50
    """Episodes played side by side in a round."""
    num_evaluations: int = 50
    """Greedy evaluations at most, evenly spaced over the budget."""

    def __post_init__(self) -> None:
        """Refuse budgets that cannot be spent."""
        at_least(self, 0, "total_steps")
        at_least(self, 1, "num_envs", "num_evaluations")
        at_most(self, MOST_STEPS, "total_steps", "num_envs", "num_evaluations")

    def steps_per_round(self, horizon: int) -> int:
        """Environment steps of one round."""
        return self.num_envs * horizon

    def warmup_rounds(self, horizon: int) -> int:
        """Rounds before the first chunk."""
        del horizon
        return 0

    def chunks(self, horizon: int) -> tuple[int, int]:
        """(number of chunks, rounds in each) after the warm-up; an evaluation follows each chunk.

        All chunks are equal, so that one compiled program serves. From ten rounds on the budget is met to within 5%;
        of fewer, chunks are whole rounds, and a budget of less than a round is one round long.
        """
        if not self.total_steps:
            return 0, 1
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
    """Updates after each round of episodes."""
    batch_size: int = 32
    """Episodes in an update."""
    replay_capacity: int = 50_000
    """Episodes kept."""

    def __post_init__(self) -> None:
        """Refuse schedules that cannot run."""
        super().__post_init__()
        at_least(self, 1, "total_steps", "updates_per_round", "batch_size", "replay_capacity")
        between(self, 0, MOST_STEPS, "warmup_steps")
        if self.warmup_steps > self.total_steps:
            raise UsageError(
                f"warmup-steps {self.warmup_steps} are more than the total-steps {self.total_steps} they are part of"
            )
        if self.num_envs > self.replay_capacity:
            raise UsageError(f"replay-capacity {self.replay_capacity} is less than num-envs {self.num_envs}")

    def transitions(self, horizon: int) -> int:
        """Transitions that a round plays and learns from."""
        return self.steps_per_round(horizon) + self.updates_per_round * self.batch_size * horizon

    def warmup_rounds(self, horizon: int) -> int:
        """Random rounds; at least one, so that there is something to learn from."""
        return max(1, -(-self.warmup_steps // self.steps_per_round(horizon)))


@dataclass(frozen=True)
class Prioritized(Schedule):
    """The same from a replay that shows episodes the more often, the more wrong the learner last was about them.

    For learners that log `episode_error`, a number for every episode of a batch.
    """

    exponent: float = 0.5
    """Episodes are drawn in proportion to their error to this power; 0: all alike."""
    first: float = 100.0
    """What counts as the error of an episode that has not been learned from."""

    def __post_init__(self) -> None:
        """Refuse what draws nothing."""
        super().__post_init__()
        at_least(self, 0, "exponent")
        above(self, 0, "first")


def on_policy(schedule: Budget, num_envs: int) -> Budget:
    """As many environment steps and evaluations as `schedule` has, for a learner without replay."""
    return Budget(schedule.total_steps, num_envs, schedule.num_evaluations)


def round_keys(key: Key, number: Int[Array, ""]) -> tuple[Key, Key]:
    """(to play, to learn) of one round."""
    key_play, key_learn = jax.random.split(jax.random.fold_in(key, number))
    return key_play, key_learn


def store_key(key: Key, number: Int[Array, ""]) -> Key:
    """Called with the fresh episodes of one round before they are learned from."""
    return jax.random.fold_in(jax.random.fold_in(key, number), STORE_STREAM)
