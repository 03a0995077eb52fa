"""The contract of a learner: all that the loop, and MESA around it, may know of one.

Off- and on-policy learners differ in one fact, `needs_replay`: batches are drawn from all episodes so far (and may have
been played by anybody), or are the episodes that `behavior` has just played. `OffPolicy` and `OnPolicy` say so and fill
in what most learners leave alone; inheriting from them is a convenience, not a condition.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from mesax.errors import UsageError
from mesax.nets import NetConfig
from mesax.policy import Policy
from mesax.types import Elapsed, EnvSpec, Episode, Key, Metrics

State = TypeVar("State")
EPISODE_ERROR = "episode_error"
"""A metric with a number for every episode of the batch, by which a prioritized replay draws; few learners have it."""


@runtime_checkable
class Learner(Protocol[State]):
    """A frozen dataclass of hyper-parameters with pure functions over a learner state."""

    @property
    def needs_replay(self) -> bool:
        """Whether it learns from replayed episodes; if not, from the latest ones only."""

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Refuse rounds of `num_envs` episodes that it cannot learn from with a `UsageError`."""

    def init(self, spec: EnvSpec, key: Key) -> State:
        """Fresh learner for an environment; refuses action spaces it cannot serve with a `UsageError`."""

    def behavior(self, spec: EnvSpec, state: State, elapsed: Elapsed) -> Policy:
        """Policy that gathers data, with the learner's own exploration at this point of its run."""

    def greedy(self, spec: EnvSpec, state: State) -> Policy:
        """Policy without exploration, for evaluation."""

    def variants(self, spec: EnvSpec, state: State) -> Policy | None:
        """Every form that the policy without exploration may take in an episode, stacked `[forms, ...]`; mostly None.

        They are evaluated one by one next to it: how good is the best of them, and how good is any.
        """

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """What an episode that somebody else plays is labeled with: a draw of the learner's prior, empty for most."""

    def observe(self, spec: EnvSpec, state: State, fresh: Episode) -> State:
        """Take note of the episodes `[envs, ...]` just played, once, before any update: memories, running moments."""

    def update(self, spec: EnvSpec, state: State, batch: Episode, elapsed: Elapsed, key: Key) -> tuple[State, Metrics]:
        """One gradient update from replayed episodes, or all there is to learn from the latest ones."""


@runtime_checkable
class ActsByNet(Protocol):
    """A learner whose actors can be given another net."""

    def acting_by(self, net: NetConfig) -> Learner:
        """The same learner with actors of this net."""


class _Defaults:
    """What most learners leave alone."""

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Any round will do; all that is paid must be one reward."""
        del num_envs
        if spec.bonus_discount is not None:
            raise UsageError(
                f"{type(self).__name__} has one value for all that is paid: set the reward model's apart to false"
            )

    def variants(self, spec: EnvSpec, state: PyTree) -> Policy | None:
        """One form only."""
        del spec, state
        return None

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """No latent."""
        del spec, key
        return jnp.zeros(0)

    def observe(self, spec: EnvSpec, state: PyTree, fresh: Episode) -> PyTree:
        """Nothing to note."""
        del spec, fresh
        return state


class OffPolicy(_Defaults):
    """A learner from replay."""

    needs_replay: ClassVar[bool] = True
    """Batches come from replay."""


class OnPolicy(_Defaults):
    """A learner from its own latest episodes."""

    needs_replay: ClassVar[bool] = False
    """Batches are the episodes just played."""
