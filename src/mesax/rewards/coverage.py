"""MESA's stage 2 reward: be near the high-reward subspace M_*, in clusters not yet visited.

    d*, rhat   = distance to the nearest member of M_* and its stored value
    near       = d* < distance_threshold
    c          = nearest KMeans centroid                                   hash phi, Sec. 5.1.2 and 5.3
    r_t        = rhat * f_d(N(c) + 1) * near,   f_d(x) = x^-power          Eq. (6)
    N(c)      += near                                                      N starts each episode at the global count

Deviation(visit-index): f_d is taken at N + 1, the visit's own number, because N starts at 0 and f_d(0) is infinite.
Deviation(near-only): steps far from M_* do not count as visits; their "nearest" cluster means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mesax.errors import UsageError
from mesax.types import EnvSpec, Episode, FeatureMap, Transition


class HighRewardSet(eqx.Module):
    """M_* with its clusters, padded to a fixed capacity so that one compiled program serves every seed."""

    members: Float[Array, "capacity features"]
    values: Float[Array, " capacity"]
    valid: Bool[Array, " capacity"]
    centroids: Float[Array, "clusters features"]
    cluster_valid: Bool[Array, " clusters"]


class CoverageState(eqx.Module):
    """The subspace and how often earlier policies visit each cluster."""

    subspace: HighRewardSet
    visits: Float[Array, " clusters"]
    """Global pseudo-count N-hat."""


class Match(eqx.Module):
    """How a state-action pair relates to M_*."""

    near: Bool[Array, ""]
    value: Float[Array, ""]
    cluster: Int[Array, ""]
    member: Int[Array, ""]


@dataclass(frozen=True)
class ObsActionFeatures:
    """Weighted joint observation and joint action: the pair (s, a) as a vector under the L2 norm."""

    obs_weight: float = 0.0
    action_weight: float = 1.0
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


def squared_distances(point: Float[Array, " features"], others: Float[Array, "others features"]) -> Array:
    """Squared L2 distances of one point to many; under `vmap` the products become one matrix product."""
    origin = others[0]  # far from zero, |a|^2 - 2ab + |b|^2 would drown small distances in rounding
    point, others = point - origin, others - origin[None]
    squares = jnp.sum(jnp.square(point)) + jnp.sum(jnp.square(others), axis=1)
    return jnp.maximum(squares - 2.0 * (others @ point), 0.0)


def match(subspace: HighRewardSet, features: Float[Array, " features"], threshold: float) -> Match:
    """Nearest member and nearest cluster of one feature vector."""
    to_members = jnp.where(subspace.valid, squared_distances(features, subspace.members), jnp.inf)
    to_clusters = jnp.where(subspace.cluster_valid, squared_distances(features, subspace.centroids), jnp.inf)
    member = jnp.argmin(to_members)
    near = to_members[member] < threshold**2
    return Match(near, subspace.values[member], jnp.argmin(to_clusters), member)


@dataclass(frozen=True)
class CoverageReward:
    """Eq. (6) as a reward model; the state holds M_* and the global counts."""

    features: FeatureMap = ObsActionFeatures()
    """What distance and clusters see of a state-action pair."""
    distance_threshold: float = 0.5
    """epsilon of Eq. (6): how near is near."""
    decay_power: float = 5.0
    """f_d(x) = x^-power."""
    normalize: bool = False
    """Divide by the largest bonus still to be had, so that later policies see rewards of the same size."""

    def __post_init__(self) -> None:
        """Refuse a ball without inside and rewards that grow with visits."""
        if self.distance_threshold <= 0:
            raise UsageError(f"distance-threshold must be above 0, not {self.distance_threshold}")
        if self.decay_power < 0:
            raise UsageError(f"decay-power must not be negative, not {self.decay_power}")

    def matches(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> Match:
        """Matches of all steps of stacked episodes `[envs, time]`; padding is never near."""

        def of_step(step: Transition) -> Match:
            return match(state.subspace, self.features(spec, step), self.distance_threshold)

        found = jax.vmap(lambda episode: jax.vmap(of_step)(episode.transitions))(episodes)
        return Match(found.near & episodes.mask, found.value, found.cluster, found.member)

    def observe(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> tuple[CoverageState, Episode]:
        """Replace the task reward by the coverage reward."""
        found = self.matches(spec, state, episodes)
        rewards = jax.vmap(lambda one: self.episode_rewards(one, state.visits))(found)
        if self.normalize:
            least = jnp.min(jnp.where(state.subspace.cluster_valid, state.visits, jnp.inf))
            rewards = rewards * (least + 1.0) ** self.decay_power
        return state, eqx.tree_at(lambda e: e.reward, episodes, rewards)

    def episode_rewards(self, found: Match, visits: Float[Array, " clusters"]) -> Float[Array, " time"]:
        """Rewards along one episode, counting from the global count."""

        def step(counts: Array, one: Match) -> tuple[Array, Array]:
            reward = one.value * (counts[one.cluster] + 1.0) ** -self.decay_power * one.near
            return counts.at[one.cluster].add(one.near.astype(counts.dtype)), reward

        return jax.lax.scan(step, visits, found)[1]


def visit_counts(found: Match, num_clusters: int) -> Float[Array, "episodes clusters"]:
    """Near visits to each cluster in each episode."""
    one_hot = jax.nn.one_hot(found.cluster, num_clusters) * found.near[..., None]
    return jnp.sum(one_hot, axis=1)
