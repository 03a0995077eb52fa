"""Who gathers data: the learner alone, or explorers mixed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mesax.errors import UsageError
from mesax.policy import ExploreOrExploit, Policy
from mesax.ranges import between
from mesax.types import Elapsed, Line, Linear


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


@dataclass(frozen=True)
class Mixing:
    """Algorithm 2: an explorer plays an episode with annealed probability p_e, else the learner."""

    probability: Line = Linear(0.8, 0.0, 0.6)
    """p_e over the run."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        between(self, 0, 1, "probability.start", "probability.end")

    def __call__(self, learner: Policy, explorer: Policy | None, elapsed: Elapsed) -> Policy:
        """Mix at this point of the run."""
        if explorer is None:
            raise UsageError("there are no explorers to mix in")
        return ExploreOrExploit(learner, explorer, self.probability(elapsed))
