"""What explorers of ours are paid for, in place of Eq. (6) as it is.

    RecordReward: pays for records, so what it pays in an episode telescopes
        kappa_c    = exp(-x^2 / 2), or exp(-x) with a peak, x = max(d_c - distance_threshold, 0) / width,
                     d_c to the nearest member of cluster c
        e_c       <- stay e_c + (1 - stay) kappa_c                         dwell: passing through is not enough
        B_c       <- max(B_c, e_c)                                         the episode's record
        r_t        = sum_c w_c G_c (B_c' - B_c),   G_c = ((min N + 1) / (N(c) + 1))^power

    ToldCoverage: Eq. (6), of which explorers are told, with wishes

All wishes at once, each by its worth w; or in turn: then one wish is told and paid at a time, w = 1 for the first in
the order whose record B is not yet `fulfilled`, and 0 for the others.

Deviation(record-reward): the particle worlds' quick preset trains explorers on records instead of Eq. (6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.mesa.coverage import Match, match
from mesax.ours.told import EpisodeReward
from mesax.ranges import above
from mesax.rewards.points import nearest, spread_out, squared_distances
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.store.settings import added


class Record(eqx.Module):
    """How long the team has dwelt near each cluster, and the best of it in this episode."""

    dwell: Float[Array, " clusters"]
    best: Float[Array, " clusters"]


@dataclass(frozen=True)
class RecordReward(EpisodeReward[Record, Array]):
    """Pay for records of nearness, cluster by cluster: dense near M_*, and worth nothing twice."""

    width: float = 0.3
    """Distance over which nearness falls off beyond the threshold."""
    stay: float = 0.5
    """Weight of the past in the dwell average; 0 pays for a touch."""
    kernel: Literal["smooth", "peaked"] = added("smooth")
    """How nearness falls off beyond the threshold: as exp(-x^2 / 2), or as exp(-x), where the last bit of the way pays
    most per step."""
    fulfilled: float | None = added(None)
    """Record from which a wish is fulfilled: then wishes are told and paid in turn, one at a time, and hard ones get
    the time that they take. None: all at once, each by its worth."""
    placement: Literal["density", "spread"] = added("density")
    """Where the clusters lie: KMeans has more of them where stage 1 saw more, spread has them evenly over all that it
    saw; then what uniform play hardly reaches gets its share of wishes."""

    def __post_init__(self) -> None:
        """Refuse kernels without width, averages that never move, and records out of reach."""
        super().__post_init__()
        above(self, 0, "width")
        if not 0.0 <= self.stay < 1.0:
            raise UsageError(f"stay must be at least 0 and below 1, not {self.stay}")
        if self.fulfilled is None:
            return
        if not 0.0 < self.fulfilled < 1.0:
            raise UsageError(f"fulfilled must lie between 0 and 1, not {self.fulfilled}: no record is ever whole")
        if not self.has_wishes or self.told != "most wanted":
            raise UsageError(
                "wishes in turn (fulfilled) need wishes (wish-decay below 1), each told on its own (told most wanted)"
            )

    def placed(self, features: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centers of clusters, the cluster of every point, and indices of those that stay members."""
        if self.placement == "density":
            return super().placed(features, seed)
        order = spread_out(features, self.capacity)
        centers = features[order[: self.num_clusters]]
        return centers, nearest(features, centers), np.sort(order)

    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Float[Array, " clusters"]:
        """Nearness kappa to every cluster."""
        return self.nearness(cluster_distances(subspace, features))

    def nearness(self, distance: Float[Array, " clusters"]) -> Float[Array, " clusters"]:
        """kappa of distances."""
        beyond = jnp.maximum(distance - self.distance_threshold, 0.0)
        if self.kernel == "peaked":
            return jnp.exp(-beyond / self.width)
        return jnp.exp(-0.5 * jnp.square(beyond / self.width))

    def start(self, state: CoverageState) -> Record:
        """Nothing reached yet."""
        return Record(jnp.zeros_like(state.visits), jnp.zeros_like(state.visits))

    def step(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record, percept: Float[Array, " clusters"]
    ) -> tuple[Record, Float[Array, ""]]:
        """Pay what the records grow by."""
        dwell = self.stay * memory.dwell + (1.0 - self.stay) * percept
        best = jnp.maximum(memory.best, dwell)
        return Record(dwell, best), jnp.sum(self.worth(state, wish, memory) * (best - memory.best))

    def worth(self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record) -> Float[Array, " clusters"]:
        """What the whole record of each cluster is worth now; in turns, nothing once all wishes are fulfilled."""
        gains = self.gains(state)
        if self.fulfilled is None:
            return wish * gains
        waiting = jnp.where(memory.best < self.fulfilled, wish * gains, 0.0)
        turn = (jnp.arange(wish.size) == jnp.argmax(waiting)) & (waiting > 0.0)
        return jnp.where(turn, gains, 0.0)

    def gains(self, state: CoverageState) -> Float[Array, " clusters"]:
        """G_c: clusters that earlier policies visit pay less."""
        gain = ((state.least_visits() + 1.0) / (state.visits + 1.0)) ** self.decay_power
        return jnp.where(state.subspace.cluster_valid, gain, 0.0)

    def demand(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record
    ) -> Float[Array, " clusters"]:
        """What is left to gain."""
        return self.worth(state, wish, memory) * (1.0 - memory.best)


def cluster_distances(subspace: HighRewardSet, features: Float[Array, " features"]) -> Float[Array, " clusters"]:
    """Distance to the nearest member of each cluster; infinite for clusters without members."""
    to_members = jnp.where(subspace.valid, squared_distances(features, subspace.members), jnp.inf)
    clusters = jnp.arange(subspace.centroids.shape[0])
    of_cluster = subspace.member_cluster[None] == clusters[:, None]
    return jnp.sqrt(jnp.min(jnp.where(of_cluster, to_members[None], jnp.inf), axis=1))


@dataclass(frozen=True)
class ToldCoverage(EpisodeReward[Array, Match]):
    """Eq. (6) with wishes, divided by the largest bonus still to be had."""

    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Match:
        """Nearest member and cluster."""
        return match(subspace, features, self.distance_threshold)

    def start(self, state: CoverageState) -> Float[Array, " clusters"]:
        """Counts start at the global count."""
        return state.visits

    def step(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Float[Array, " clusters"], percept: Match
    ) -> tuple[Float[Array, " clusters"], Float[Array, ""]]:
        """Pay for the visit, then count it."""
        pay = percept.value * (memory[percept.cluster] + 1.0) ** -self.decay_power * percept.near
        pay = pay * wish[percept.cluster] * (state.least_visits() + 1.0) ** self.decay_power
        return memory.at[percept.cluster].add(percept.near.astype(memory.dtype)), pay

    def demand(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Float[Array, " clusters"]
    ) -> Float[Array, " clusters"]:
        """What the next visit would pay."""
        bonus = wish * ((state.least_visits() + 1.0) / (memory + 1.0)) ** self.decay_power
        return jnp.where(state.subspace.cluster_valid, bonus, 0.0)
