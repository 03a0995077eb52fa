"""Who gathers data: the learner alone, or explorers mixed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mesax.policy import Policy
from mesax.types import Elapsed


@runtime_checkable
class Behavior(Protocol):
    """A frozen dataclass; explorers travel as an argument."""

    def __call__(self, learner: Policy, explorer: Policy | None, elapsed: Elapsed) -> Policy:
        """Policy for the next round's episodes."""


@dataclass(frozen=True)
class LearnerAlone:
    """The learner's own behavior policy."""

    def __call__(self, learner: Policy, explorer: Policy | None, elapsed: Elapsed) -> Policy:
        """No other policy plays."""
        del explorer, elapsed
        return learner
