"""What a learner learns from: a reward model stands between the episodes that are played and the learner.

It may replace the reward, and it may tell the learner more than the environment shows (what is still to be visited,
say). Then three things change together, and the model says how: the sizes the learner is built for, the policy that
plays, the episodes that are learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from jaxtyping import PyTree

from mesax.types import EnvSpec, Episode, Key

RewardState: TypeAlias = PyTree


class RewardModel(Protocol):
    """A frozen dataclass; its state (counts, datasets, networks) travels as an argument."""

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """Sizes as the learner sees them."""

    def begin(self, spec: EnvSpec, given: Any, key: Key) -> Any:
        """State at the start of a run: what the run was given, or something of the model's own."""

    def equip(self, spec: EnvSpec, state: Any, policy: Any) -> Any:
        """A learner's policy as one that plays in the environment itself."""

    def observe(self, spec: EnvSpec, state: Any, episodes: Episode) -> tuple[Any, Episode]:
        """Episodes `[envs, ...]` as the learner sees them, and the advanced state."""


@dataclass(frozen=True)
class TaskReward:
    """The environment's own reward."""

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """The learner sees what there is."""
        return spec

    def begin(self, spec: EnvSpec, given: Any, key: Key) -> Any:
        """Nothing of its own."""
        del spec, key
        return given

    def equip(self, spec: EnvSpec, state: Any, policy: Any) -> Any:
        """Nothing to add."""
        del spec, state
        return policy

    def observe(self, spec: EnvSpec, state: Any, episodes: Episode) -> tuple[Any, Episode]:
        """Leave everything as it is."""
        del spec
        return state, episodes
