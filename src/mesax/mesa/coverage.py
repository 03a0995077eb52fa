"""What explorers are paid for: visits to M_*, the state-action pairs that stage 1 found valuable (Sec. 5.1.2, 5.3).

    d*, rhat = distance to the nearest member of M_*, and its stored value
    near     = d* < epsilon
    c        = nearest of C KMeans centroids                         the hash phi
    r_t      = rhat * f_d(N(c) + 1) * near,   f_d(x) = x^-power      Eq. (6)
    N(c)    += near                                                  N starts each episode at the global count N-hat

Deviation(visit-index): f_d is taken at N + 1, the visit's own number, because N starts at 0 and f_d(0) is infinite.
Deviation(near-only): steps far from M_* do not count as visits; their "nearest" cluster means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, ScalarLike
from threadpoolctl import threadpool_limits

from mesax.ranges import above, at_least
from mesax.rewards.base import GivenState, Visits
from mesax.rewards.features import ObsActionFeatures, feature_size
from mesax.rewards.points import balanced_subset, deduplicate, padded, squared_distances
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.types import EnvSpec, Episode, FeatureMap, Key, on_device


class Match(eqx.Module):
    """How a state-action pair relates to M_*."""

    near: Bool[Array, "*steps"]
    value: Float[Array, "*steps"]
    cluster: Int[Array, "*steps"]
    distance: Float[Array, "*steps"]


@dataclass(frozen=True)
class SubspaceReward(GivenState):
    """A reward for visits to clusters of M_*: all but what it pays."""

    features: ObsActionFeatures | FeatureMap = ObsActionFeatures()
    """What distance and clusters see of a state-action pair."""
    distance_threshold: float = 0.5
    """epsilon of Eq. (6): how near is near."""
    decay_power: float = 5.0
    """f_d(x) = x^-power."""
    num_clusters: int = 64
    """C of the KMeans hash."""
    capacity: int = 256
    """Members of M_* at most; thinned evenly over clusters."""

    def __post_init__(self) -> None:
        """Refuse a ball without inside, rewards that grow with visits, and sets that hold nothing."""
        above(self, 0, "distance_threshold")
        at_least(self, 0, "decay_power")
        at_least(self, 1, "num_clusters", "capacity")

    def feature_size(self, spec: EnvSpec) -> int:
        """Length of the feature vector in an environment of these sizes."""
        return feature_size(self.features, spec)

    def features_of(self, spec: EnvSpec, episodes: Episode) -> Float[Array, "envs time features"]:
        """Features of all steps of stacked episodes."""
        return jax.vmap(lambda episode: jax.vmap(lambda step: self.features(spec, step))(episode.transitions))(episodes)

    def subspace(self, spec: EnvSpec, features: np.ndarray, values: np.ndarray, seed: int) -> CoverageState:
        """Cluster M_*, which must not be empty, thin it to the capacity, and pad; N-hat = 0 (Algorithm 1, line 1)."""
        del spec
        features, values = deduplicate(features, values)
        centers, cluster, kept = self.placed(features, seed)
        of_members = (features[kept], values[kept], cluster[kept].astype(np.int32))
        members, stored, cluster = (padded(part, self.capacity) for part in of_members)
        valid, cluster_valid = np.arange(self.capacity) < len(kept), np.arange(self.num_clusters) < len(centers)
        centroids = padded(centers.astype(np.float32), self.num_clusters)
        parts = (members, stored, valid, cluster, centroids, cluster_valid)
        return CoverageState(HighRewardSet(*on_device(parts)), *on_device([np.zeros(self.num_clusters, np.float32)]))

    def placed(self, features: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centers of clusters (KMeans), the cluster of every point, and indices of those that stay members."""
        from sklearn.cluster import KMeans  # noqa: PLC0415  (slow to import, needed once a run)

        number = min(self.num_clusters, self.capacity, len(features))
        with threadpool_limits(1):  # more threads add in another order
            kmeans = KMeans(number, n_init=10, max_iter=100, random_state=seed).fit(features.astype(np.float64))
        kept = balanced_subset(kmeans.labels_, self.capacity, np.random.default_rng(seed))
        return kmeans.cluster_centers_, kmeans.labels_, kept

    def empty_state(self, spec: EnvSpec) -> CoverageState:
        """A state of the same shapes, with nothing in it."""
        size, capacity, clusters = self.feature_size(spec), self.capacity, self.num_clusters
        members, centroids = jnp.zeros((capacity, size)), jnp.zeros((clusters, size))
        of_members = (jnp.zeros(capacity), jnp.zeros(capacity, bool), jnp.zeros(capacity, jnp.int32))
        subspace = HighRewardSet(members, *of_members, centroids, jnp.zeros(clusters, bool))
        return CoverageState(subspace, jnp.zeros(clusters))

    def clusters(self, state: CoverageState) -> Bool[Array, " clusters"]:
        """Which clusters there are: fewer than C if M_* has fewer points."""
        return state.subspace.cluster_valid

    def counted(self, state: CoverageState, visits: np.ndarray) -> CoverageState:
        """N-hat with the visits of another policy (Algorithm 1, line 19)."""
        return replace(state, visits=state.visits + jnp.asarray(visits))

    def matches(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> Match:
        """Matches of all steps of stacked episodes `[envs, time]`; padding is never near."""
        features = self.features_of(spec, episodes)
        found = jax.vmap(jax.vmap(lambda x: match(state.subspace, x, self.distance_threshold)))(features)
        return replace(found, near=found.near & episodes.mask)

    def visits(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> Visits:
        """A step visits the nearest cluster, if it is near."""
        found = self.matches(spec, state, episodes)
        cluster = jax.nn.one_hot(found.cluster, state.visits.size) > 0
        return Visits(cluster & found.near[..., None], found.distance)


@dataclass(frozen=True)
class CoverageReward(SubspaceReward):
    """Eq. (6)."""

    normalize: bool = False
    """Divide by the largest bonus still to be had, so that later policies see rewards of the same size."""

    def observe(
        self, spec: EnvSpec, state: CoverageState, episodes: Episode, key: Key
    ) -> tuple[CoverageState, Episode]:
        """Pay for each visit by how often its cluster was visited, then count it (Algorithm 1, lines 10, 13, 15)."""
        del key
        scale = (state.least_visits() + 1.0) ** self.decay_power if self.normalize else 1.0

        def step(count: Float[Array, " clusters"], found: Match) -> tuple[Array, Float[Array, ""]]:
            pay = found.value * (count[found.cluster] + 1.0) ** -self.decay_power * found.near
            return count.at[found.cluster].add(found.near.astype(count.dtype)), pay * scale

        found = self.matches(spec, state, episodes)
        pay = jax.vmap(lambda found: jax.lax.scan(step, state.visits, found)[1])(found)
        return state, replace(episodes, reward=pay)


def match(subspace: HighRewardSet, features: Float[Array, " features"], threshold: ScalarLike) -> Match:
    """Nearest member and nearest cluster of one feature vector."""
    to_members = jnp.where(subspace.valid, squared_distances(features, subspace.members), jnp.inf)
    to_clusters = jnp.where(subspace.cluster_valid, squared_distances(features, subspace.centroids), jnp.inf)
    member = jnp.argmin(to_members)
    near = to_members[member] < threshold**2
    return Match(near, subspace.values[member], jnp.argmin(to_clusters), jnp.sqrt(to_members[member]))
