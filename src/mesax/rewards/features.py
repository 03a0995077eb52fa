"""What distances and clusters see of a joint step: feature maps as values (the paper leaves them open, Sec. 5.3).

A good map keeps what makes a configuration pay and forgets what differs between tasks. `leaks` in
`methods/visits.py` measures, before anything is trained, how well "near M_*" agrees with the truth under a map.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.ranges import above, at_least
from mesax.types import EnvSpec, FeatureMap, Transition


@dataclass(frozen=True)
class ObsActionFeatures:
    """Weighted joint observation and joint action: the pair (s, a) as a vector under the L2 norm."""

    obs_weight: float = 0.0
    """Factor of observations."""
    action_weight: float = 1.0
    """Factor of actions."""
    obs_from: int = 0
    """First entry of each agent's observation that counts."""
    obs_to: int | None = None
    """Entry before which to stop; None takes all."""
    after_step: bool = False
    """Use the observation after the step: right where the reward belongs to the state reached."""

    def __post_init__(self) -> None:
        """Refuse an empty vector."""
        if not (self.obs_weight or self.action_weight):
            raise UsageError("obs-weight and action-weight must not both be 0: nothing would be left to compare")

    def __call__(self, spec: EnvSpec, transition: Transition) -> Float[Array, " features"]:
        """Features of one transition."""
        parts = []
        if self.obs_weight:
            obs = transition.next_obs if self.after_step else transition.obs
            parts.append(self.obs_weight * obs[:, self.obs_from : self.obs_to].reshape(-1))
        if self.action_weight:
            parts.append(self.action_weight * spec.action_space.encode(transition.action).reshape(-1))
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class SortedOccupancy:
    """How firmly agents occupy each of several points, sorted over agents: who stands there does not matter.

    x_p1 >= x_p2 >= ... for every point p, x = sigmoid((radius - distance) / softness). The map depends on no layout, so
    what was learned among some landmarks holds among others; sorting keeps two agents at a point apart from one.
    """

    num_points: int
    """Points that agents may occupy."""
    obs_from: int = 2
    """Where each agent's observation holds the offsets to the points, two numbers each."""
    radius: float = 0.2
    """Distance at which a point counts as half occupied."""
    softness: float = 0.05
    """How gently occupancy falls off around the radius."""
    extremes: bool = False
    """Keep the largest and the smallest only: with two agents that is all, with more it says whether all are there."""

    def __post_init__(self) -> None:
        """Refuse a map of nothing."""
        at_least(self, 1, "num_points")
        above(self, 0, "softness")

    def __call__(self, spec: EnvSpec, transition: Transition) -> Float[Array, " features"]:
        """Occupancies after the step, point by point."""
        del spec
        obs = transition.next_obs[:, self.obs_from : self.obs_from + 2 * self.num_points]
        distance = jnp.linalg.norm(obs.reshape(-1, self.num_points, 2), axis=-1)
        occupancy = jax.nn.sigmoid((self.radius - distance) / self.softness)
        if self.extremes:
            return jnp.stack([jnp.max(occupancy, axis=0), jnp.min(occupancy, axis=0)], axis=1).reshape(-1)
        return jnp.stack(descending(list(occupancy)), axis=1).reshape(-1)

    def for_team(self, num_agents: int) -> SortedOccupancy:
        """For explorers of two agents that drive any number: all of them are to be where both were."""
        del num_agents
        return replace(self, extremes=True)


def descending(rows: list[Float[Array, "*shape"]]) -> list[Float[Array, "*shape"]]:
    """Rows sorted entry by entry, largest first: a network of comparisons, many times faster on a CPU than a sort."""
    rows = list(rows)
    for turn in range(len(rows)):
        for low in range(turn % 2, len(rows) - 1, 2):
            rows[low], rows[low + 1] = jnp.maximum(*rows[low : low + 2]), jnp.minimum(*rows[low : low + 2])
    return rows


@dataclass(frozen=True)
class JointAngles:
    """The angle of each agent's joint after the step, in radians.

    Angles as they are, so that a distance threshold is an angle: two poses in the same band of half-width b are at most
    2 * sqrt(2) * b apart, and one at its edge is sqrt(2) * b from its center.
    """

    entry: int = 0
    """Where each agent's observation holds the angle of its own joint."""

    def __post_init__(self) -> None:
        """Refuse a place that no observation has."""
        at_least(self, 0, "entry")

    def __call__(self, spec: EnvSpec, transition: Transition) -> Float[Array, " features"]:
        """One angle for each agent."""
        del spec
        return transition.next_obs[:, self.entry]


def feature_size(features: FeatureMap, spec: EnvSpec) -> int:
    """Length of a feature vector in an environment of these sizes."""
    return _feature_size(cast(Hashable, features), spec)  # a frozen dataclass, whatever else it is


@lru_cache(maxsize=64)
def _feature_size(features: FeatureMap, spec: EnvSpec) -> int:
    """Traced once: every use of a spec asks for it."""

    def vector() -> Float[Array, " features"]:
        obs, action = jnp.zeros((spec.num_agents, spec.obs_size)), spec.action_space.zeros((spec.num_agents,))
        return features(spec, Transition(obs, action, obs))

    return int(jax.eval_shape(vector).shape[0])
