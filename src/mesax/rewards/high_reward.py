"""MESA's stage 1: which collected state-action pairs are worth visiting again (host side, NumPy).

r_t >= R*                                       valuable, kept with its reward               Algorithm 1, line 5
r_t = 0, next positive reward r_t' >= R*        kept with rhat_t = gamma^(t'-t) r_t'         Eq. (5)
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from mesax.errors import TrainingError, UsageError
from mesax.rewards.coverage import HighRewardSet


@dataclass(frozen=True)
class Threshold:
    """R*: an absolute reward, or a percentile of all rewards collected on the task."""

    reward: float = 1.0
    """Rewards from here on are high (used if percentile is None)."""
    percentile: float | None = None
    """For example 99: the top hundredth of the collected rewards is high."""

    def __post_init__(self) -> None:
        """Refuse percentiles that are none."""
        if self.percentile is not None and not 0.0 <= self.percentile <= 100.0:
            raise UsageError(f"percentile must lie between 0 and 100, not {self.percentile}")

    def of(self, rewards: np.ndarray) -> float:
        """R* for a task whose collected rewards are given; never zero or less, which would keep everything."""
        if self.percentile is None:
            return self.reward
        positive = rewards[rewards > 0]
        least = float(positive.min()) if positive.size else np.inf
        return max(float(np.percentile(rewards, self.percentile)), least)


def relabel(rewards: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Eq. (5) along the last axis: (densified reward, the reward it leads to); both 0 where no reward follows."""
    dense = np.zeros(rewards.shape, np.float32)
    leads_to = np.zeros(rewards.shape, np.float32)
    later_dense, later_reward = np.zeros(rewards.shape[:-1]), np.zeros(rewards.shape[:-1])
    for step in reversed(range(rewards.shape[-1])):
        now = rewards[..., step]
        later_dense = np.where(now > 0, now, discount * later_dense)
        later_reward = np.where(now > 0, now, later_reward)
        dense[..., step], leads_to[..., step] = later_dense, later_reward
    return dense, leads_to


def valuable(rewards: np.ndarray, mask: np.ndarray, threshold: float, discount: float, least: float) -> np.ndarray:
    """Value of each step for M_*: its own or relabeled reward, 0 for steps that stay out."""
    dense, leads_to = relabel(np.where(mask, rewards, 0.0), discount)
    own = rewards >= threshold
    relabeled = (rewards == 0) & (leads_to >= threshold) & (dense >= least)
    kept = mask & (own | relabeled)
    return np.where(kept, dense, 0.0)


def deduplicate(features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct feature vectors (to 1e-5), each with its highest value, in a canonical order."""
    _, first, inverse = np.unique(np.round(features, 5), axis=0, return_index=True, return_inverse=True)
    best = np.zeros(len(first), np.float32)
    np.maximum.at(best, inverse.reshape(-1), values.astype(np.float32))
    return features[first].astype(np.float32), best


def build_subspace(
    features: np.ndarray, values: np.ndarray, capacity: int, num_clusters: int, seed: int
) -> HighRewardSet:
    """Cluster M_*, thin it to `capacity` evenly over clusters, and pad."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  (slow to import, needed once a run)
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    if not len(features):
        raise TrainingError(
            "no state-action pair reached the reward threshold on any training task: lower it or collect more steps"
        )
    features, values = deduplicate(features, values)
    clusters = min(num_clusters, capacity, len(features))
    with threadpool_limits(1):  # more threads add in another order
        kmeans = KMeans(clusters, n_init=10, max_iter=100, random_state=seed).fit(features.astype(np.float64))
    keep = balanced_subset(kmeans.labels_, capacity, np.random.default_rng(seed))
    size = features.shape[1]
    members, stored, labels = np.zeros((capacity, size)), np.zeros(capacity), np.zeros(capacity, int)
    members[: len(keep)], stored[: len(keep)] = features[keep], values[keep]
    labels[: len(keep)] = kmeans.labels_[keep]
    centroids = np.zeros((num_clusters, size))
    centroids[:clusters] = kmeans.cluster_centers_
    return HighRewardSet(
        jnp.asarray(members, jnp.float32),
        jnp.asarray(stored, jnp.float32),
        jnp.arange(capacity) < len(keep),
        jnp.asarray(labels, jnp.int32),
        jnp.asarray(centroids, jnp.float32),
        jnp.arange(num_clusters) < clusters,
    )


def balanced_subset(labels: np.ndarray, capacity: int, random: np.random.Generator) -> np.ndarray:
    """Indices of at most `capacity` items, taking from every cluster in turn so that small ones keep all they have."""
    if len(labels) <= capacity:
        return np.arange(len(labels))
    order = random.permutation(len(labels))
    rank = np.empty(len(labels), int)
    for label in np.unique(labels):
        of_label = order[labels[order] == label]
        rank[of_label] = np.arange(len(of_label))
    chosen = order[np.lexsort((labels[order], rank[order]))][:capacity]
    return np.sort(chosen)
