"""Records of a learned nearness: explorers are paid where the reward model says that an entity looks as if it pays.

    kappa_j = exp(-max(reference - g(s; j) - distance-threshold, 0) / width)      in logits of the model
    reference = what nine of ten high steps of stage 1 reach

All else is `RecordReward`, with entities in place of clusters: dwell, records, wishes, and what is told. A step is told
as one number for each entity, its nearness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.mesa.coverage import Match
from mesax.ours.entities import Block, DeclaredEntities
from mesax.ours.learned_reward import PayModel
from mesax.ours.records import RecordReward
from mesax.ranges import at_least
from mesax.rewards.features import ObsActionFeatures
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.types import AnyArray, EnvSpec, Episode, FeatureMap, Transition


class LearnedState(CoverageState):
    """Entities as clusters, and the model that says how near each of them is."""

    model: PayModel
    reference: Float[Array, ""]
    """Logits from which on an entity is as near as can be."""


@dataclass(frozen=True)
class LearnedRecords(RecordReward):
    """Pay for records of a nearness that was learned."""

    features: ObsActionFeatures | FeatureMap = ObsActionFeatures(1.0, 0.0, after_step=True)
    """What stage 1 keeps of what paid; the model itself sees entities as they are declared."""
    distance_threshold: float = 0.5
    """How near is near, in logits below the reference."""
    tell_demand: bool = True
    """Whether the explorer sees what is left to visit, and how near it was in its last step."""
    width: float = 4.0
    """Logits over which nearness falls off beyond the threshold."""
    kernel: Literal["smooth", "peaked"] = "peaked"
    """How nearness falls off beyond the threshold: as exp(-x^2 / 2), or as exp(-x)."""
    entities: DeclaredEntities | None = None
    """Which numbers of an observation are about which entity; None: all of them are about a single one."""
    hidden: int = 32
    """Units per layer of the model."""

    def __post_init__(self) -> None:
        """Refuse what records refuse, and a model without units."""
        super().__post_init__()
        at_least(self, 2, "hidden")

    def declared(self, spec: EnvSpec) -> DeclaredEntities:
        """The entities of an environment of these sizes."""
        return self.entities or DeclaredEntities(Block(0, 1, spec.obs_size))

    def feature_size(self, spec: EnvSpec) -> int:
        """One number for each entity."""
        return self.declared(spec).number

    def empty_state(self, spec: EnvSpec) -> LearnedState:
        """A state of the right shapes, with nothing in it."""
        empty, entities = super().empty_state(spec), self.declared(spec)
        model = PayModel.create(entities.places.size, self.hidden, jax.random.key(0))
        return LearnedState(empty.subspace, empty.visits, jax.tree.map(jnp.zeros_like, model), jnp.zeros(()))

    def subspace(self, spec: EnvSpec, features: np.ndarray, values: np.ndarray, seed: int) -> CoverageState:
        """There is none without a model."""
        raise UsageError("learned records need the model that method 'learned' fits to stage 1")

    def state_of(self, spec: EnvSpec, model: PayModel, reference: float, counting: AnyArray) -> LearnedState:
        """Entities as clusters; only those that are `counting` in some training task are wanted."""
        number = self.declared(spec).number
        each, counts = jnp.eye(number), jnp.asarray(counting)
        subspace = HighRewardSet(each, jnp.ones(number), counts, jnp.arange(number), each, counts)
        return LearnedState(subspace, jnp.zeros(number), model, jnp.asarray(reference, jnp.float32))

    def sense(self, spec: EnvSpec, state: CoverageState, transition: Transition) -> Float[Array, " features"]:
        """Nearness kappa of every entity."""
        assert isinstance(state, LearnedState), "the reward comes with its model"
        below = state.reference - state.model.logits(self.declared(spec).seen(transition.next_obs))
        return self.nearness(below)

    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Float[Array, " clusters"]:
        """Nearness is what was sensed."""
        del subspace
        return features

    def matches(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> Match:
        """The nearest entity of every step, and how many logits it is below the reference."""
        assert isinstance(state, LearnedState), "the reward comes with its model"
        seen = self.declared(spec).seen(episodes.obs[:, 1:])
        below = state.reference - jax.vmap(state.model.logits)(seen)
        below = jnp.where(state.subspace.cluster_valid, below, jnp.inf)
        entity, distance = jnp.argmin(below, axis=-1), jnp.maximum(jnp.min(below, axis=-1), 0.0)
        near = (distance < self.distance_threshold) & episodes.mask
        return Match(near, jnp.ones_like(distance), entity, distance)

    def for_world(self, entities: DeclaredEntities) -> LearnedRecords:
        """The same with the entities of a world; wishes need several of them."""
        number = entities.number
        wish_decay = self.wish_decay if number > 1 else 1.0
        return replace(self, entities=entities, num_clusters=number, capacity=number, wish_decay=wish_decay)
