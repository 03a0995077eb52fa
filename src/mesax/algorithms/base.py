"""The contract of an off-policy learner: all that the loop, and MESA around it, may know of one."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from jaxtyping import PyTree

from mesax.policy import Policy
from mesax.types import Elapsed, EnvSpec, Episode, Key, Metrics

LearnerState: TypeAlias = PyTree


class OffPolicyAlgorithm(Protocol):
    """A frozen dataclass of hyper-parameters with pure functions over a learner state."""

    def init(self, spec: EnvSpec, key: Key) -> LearnerState:
        """Fresh learner for an environment; refuses action spaces it cannot serve with a `UsageError`."""

    def behavior(self, spec: EnvSpec, state: Any, elapsed: Elapsed) -> Policy:
        """Policy that gathers data, with the learner's own exploration at this point of its run."""

    def greedy(self, spec: EnvSpec, state: Any) -> Policy:
        """Policy without exploration, for evaluation."""

    def update(self, spec: EnvSpec, state: Any, batch: Episode, key: Key) -> tuple[Any, Metrics]:
        """One gradient update from a batch of whole episodes."""


class OnPolicyAlgorithm(Protocol):
    """The same for learners that learn from their own latest episodes only; `update` also takes `elapsed`.

    It may have `check(spec, num_envs)`, which refuses rounds that it cannot learn from with a `UsageError`.
    """

    def init(self, spec: EnvSpec, key: Key) -> LearnerState:
        """Fresh learner for an environment; refuses action spaces it cannot serve with a `UsageError`."""

    def behavior(self, spec: EnvSpec, state: Any, elapsed: Elapsed) -> Policy:
        """Policy that gathers data."""

    def greedy(self, spec: EnvSpec, state: Any) -> Policy:
        """Policy without exploration, for evaluation."""

    def update(self, spec: EnvSpec, state: Any, batch: Episode, elapsed: Elapsed, key: Key) -> tuple[Any, Metrics]:
        """Learn from the episodes that `behavior` has just played."""
