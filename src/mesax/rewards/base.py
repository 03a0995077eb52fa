"""What a learner learns from: a reward model turns collected episodes into the episodes that are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from jaxtyping import PyTree

from mesax.types import EnvSpec, Episode

RewardState: TypeAlias = PyTree


class RewardModel(Protocol):
    """A frozen dataclass; its state (counts, datasets, networks) travels as an argument."""

    def observe(self, spec: EnvSpec, state: Any, episodes: Episode) -> tuple[Any, Episode]:
        """Episodes `[envs, ...]` with the reward to learn from, and the advanced state."""


@dataclass(frozen=True)
class TaskReward:
    """The environment's own reward."""

    def observe(self, spec: EnvSpec, state: Any, episodes: Episode) -> tuple[Any, Episode]:
        """Leave everything as it is."""
        del spec
        return state, episodes
