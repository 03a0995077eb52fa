"""What a learner learns from: a reward model stands between the episodes that are played and the learner.

It may replace the reward, and it may tell the learner more than the environment shows (what is still to be visited,
say). Then three things change together, and the model says how: the sizes the learner is built for, the policy that
plays, the episodes that are learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import PyTree

from mesax.policy import Policy
from mesax.types import EnvSpec, Episode, Key

State = TypeVar("State")


@runtime_checkable
class RewardModel(Protocol[State]):
    """A frozen dataclass; its state (counts, datasets, networks) travels as an argument."""

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """Sizes as the learner sees them."""

    def begin(self, spec: EnvSpec, given: State, key: Key) -> State:
        """State at the start of a run: what the run was given, or something of the model's own."""

    def equip(self, spec: EnvSpec, state: State, policy: Policy) -> Policy:
        """A learner's policy as one that plays in the environment itself: in training, evaluation and when saved."""

    def observe(self, spec: EnvSpec, state: State, episodes: Episode, key: Key) -> tuple[State, Episode]:
        """Episodes `[envs, ...]` as the learner sees them, and the advanced state."""


@runtime_checkable
class Restarts(Protocol):
    """A reward model that may go on at a fresh start where the task ends; most have no such member."""

    @property
    def restarts(self) -> bool:
        """Whether it does: `Episode.restarted` then says where, and a memory must be cleared there."""


@dataclass(frozen=True)
class TaskReward:
    """The environment's own reward."""

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """The learner sees what there is."""
        return spec

    def begin(self, spec: EnvSpec, given: State, key: Key) -> State:
        """Nothing of its own."""
        del spec, key
        return given

    def equip(self, spec: EnvSpec, state: PyTree, policy: Policy) -> Policy:
        """Nothing to add."""
        del spec, state
        return policy

    def observe(self, spec: EnvSpec, state: State, episodes: Episode, key: Key) -> tuple[State, Episode]:
        """Leave everything as it is."""
        del spec, key
        return state, episodes
