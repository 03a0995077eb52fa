"""What a learner learns from: a reward model stands between the episodes that are played and the learner.

It may replace the reward, and it may tell the learner more than the environment shows (what is still to be visited,
say). Then three things change together, and the model says how: the sizes the learner is built for, the policy that
plays, the episodes that are learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

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


class Visits(eqx.Module):
    """How the steps of stacked episodes lie to what explorers are to visit."""

    near: Bool[Array, "episodes time clusters"]
    """Whether a step visits a cluster; padding visits none."""
    distance: Float[Array, "episodes time"]
    """How far a step is from all that is to be visited."""


@runtime_checkable
class ExplorersReward(RewardModel[State], Protocol[State]):
    """A reward model that explorers are trained by: its state says what they are to visit, cut into clusters."""

    @property
    def distance_threshold(self) -> float:
        """How near a visit is, in the unit of `Visits.distance`."""

    def features_of(self, spec: EnvSpec, episodes: Episode) -> Float[Array, "episodes time features"]:
        """What stage 1 keeps of the steps of stacked episodes."""

    def subspace(self, spec: EnvSpec, features: np.ndarray, values: np.ndarray, seed: int) -> State:
        """The state before any visit, of the features and values of the steps that stage 1 found valuable."""

    def empty_state(self, spec: EnvSpec) -> State:
        """A state of the same shapes, with nothing in it."""

    def clusters(self, state: State) -> Bool[Array, " clusters"]:
        """Which clusters there are."""

    def counted(self, state: State, visits: np.ndarray) -> State:
        """The state after a policy that makes so many visits to each cluster in an episode."""

    def visits(self, spec: EnvSpec, state: State, episodes: Episode) -> Visits:
        """What stacked episodes visit."""


class GivenState:
    """What most reward models leave alone: their state is given, and the learner sees what there is."""

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """Sizes of the environment."""
        return spec

    def begin(self, spec: EnvSpec, given: State, key: Key) -> State:
        """Nothing of its own."""
        del spec, key
        return given

    def equip(self, spec: EnvSpec, state: PyTree, policy: Policy) -> Policy:
        """Nothing to add."""
        del spec, state
        return policy


@dataclass(frozen=True)
class TaskReward(GivenState):
    """The environment's own reward."""

    def observe(self, spec: EnvSpec, state: State, episodes: Episode, key: Key) -> tuple[State, Episode]:
        """Leave everything as it is."""
        del spec, key
        return state, episodes
