"""MESA's stage 1: which collected state-action pairs are worth visiting again (host side, NumPy).

r_t >= R*                                       valuable, kept with its reward               Algorithm 1, line 5
r_t = 0, next positive reward r_t' >= R*        kept with rhat_t = gamma^(t'-t) r_t'         Eq. (5)

The paper's worlds pay 0 where nothing happens. Others charge every step, or always pay less than 0: there a percentile
says what is high, and rewards count by their height above what a step usually pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from mesax.errors import UsageError
from mesax.rewards.coverage import HighRewardSet
from mesax.types import on_device

Placement: TypeAlias = Literal["density", "spread"]
"""Where clusters of M_* lie: KMeans puts more of them where stage 1 saw more; or spread evenly over all that it saw."""


class Levels(NamedTuple):
    """What rewards mean on one task."""

    high: float
    """R*: rewards from here on are high; infinite if none stands out."""
    usual: float = 0.0
    """What a step pays if nothing happens."""
    unit: float = 1.0
    """Heights above the usual reward are counted in this unit."""

    def height(self, rewards: np.ndarray | np.floating) -> np.ndarray | np.floating:
        """How far rewards lie above the usual one."""
        return (rewards - self.usual) / self.unit


MOST_LEVELS = 10
"""Different rewards of a task up to which each counts as a level of its own."""


@dataclass(frozen=True)
class Threshold:
    """R*: an absolute reward, or a percentile of all rewards collected on the task."""

    reward: float = 1.0
    """Rewards from here on are high (used if percentile is None)."""
    percentile: float | None = None
    """For example 99: the top hundredth of the collected rewards is high, whatever their sign and size. Where rewards
    have levels (at most 10 different ones), the highest is."""

    def __post_init__(self) -> None:
        """Refuse percentiles that are none."""
        if self.percentile is not None and not 0.0 <= self.percentile <= 100.0:
            raise UsageError(f"percentile must lie between 0 and 100, not {self.percentile}")

    def levels(self, rewards: np.ndarray) -> Levels:
        """What is high on a task whose collected rewards are given; never what a step usually pays."""
        if self.percentile is None and self.reward > 0:  # the paper's case
            return Levels(self.reward)
        lower = rewards[rewards < (rewards.max() if self.percentile is not None else self.reward)]
        if not lower.size:
            return Levels(np.inf)
        usual = usual_reward(lower)
        if self.percentile is None:
            return Levels(self.reward, usual)
        if len(np.unique(rewards)) <= MOST_LEVELS:  # the safe level may pay in fewer steps than a percentile leaves
            high = float(rewards.max())
        else:
            high = max(float(np.percentile(rewards, self.percentile)), float(np.min(rewards[rewards > usual])))
        return Levels(high, usual, high - usual)

    def nothing_found(self, collected: Collected) -> str:
        """Why nothing was worth visiting again, and what to change, in one line."""
        told = f"reward is {self.reward:g}" if self.percentile is None else f"percentile is {self.percentile:g}"
        what = f"stage 1 found no reward worth going for: method.threshold.{told}, and the best reward"
        seen = f"of {collected.steps:,} steps on {collected.tasks} training tasks was {collected.best:g}"
        if collected.best == collected.lowest:
            advice = "all of them paid the same; make rewards easier to come by on training tasks, or start a new run"
            return f"{what} {seen}: {advice} that collects more (--method.collect.total-steps, another --out)"
        lower = f", or --method.threshold.reward {collected.best:g}" if collected.best > 0 else ""
        return f"{what} {seen}: start a new run (another --out) with --method.threshold.percentile 99{lower}"


class Collected(NamedTuple):
    """The rewards that stage 1 has seen, on all tasks."""

    tasks: int
    steps: int
    lowest: float
    best: float


def usual_reward(lower: np.ndarray) -> float:
    """What a step pays if nothing happens, from all rewards below the high ones: 0 if that is among them.

    Else what at least half of them are (a cost of every step, say); else the lowest, for then every step pays apart.
    """
    if np.any(lower == 0):
        return 0.0
    values, counts = np.unique(lower, return_counts=True)
    most = int(np.argmax(counts))
    return float(values[most] if 2 * counts[most] >= len(lower) else values[0])


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


def valuable(rewards: np.ndarray, mask: np.ndarray, levels: Levels, discount: float, least: float) -> np.ndarray:
    """Value of each step for M_*: the height of its own or relabeled reward, 0 for steps that stay out."""
    dense, leads_to = relabel(np.where(mask, levels.height(rewards), 0.0), discount)
    own = rewards >= levels.high
    # The same rounding on both sides, so that a reward of exactly R* counts.
    leads_high = leads_to >= levels.height(np.asarray(levels.high, rewards.dtype))
    relabeled = (rewards == levels.usual) & leads_high & (dense >= least)
    kept = mask & (own | relabeled)
    return np.where(kept, dense, 0.0)


def deduplicate(features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct feature vectors (to 1e-5), each with its highest value, in a canonical order."""
    _, first, inverse = np.unique(np.round(features, 5), axis=0, return_index=True, return_inverse=True)
    best = np.zeros(len(first), np.float32)
    np.maximum.at(best, inverse.reshape(-1), values.astype(np.float32))
    return features[first].astype(np.float32), best


def build_subspace(
    features: np.ndarray,
    values: np.ndarray,
    capacity: int,
    num_clusters: int,
    seed: int,
    placement: Placement = "density",
) -> HighRewardSet:
    """Cluster M_*, which must not be empty, thin it to `capacity` evenly over clusters, and pad."""
    features, values = deduplicate(features, values)
    clusters = min(num_clusters, capacity, len(features))
    if placement == "density":
        centers, cluster_of = _means(features, clusters, seed)
        keep = balanced_subset(cluster_of, capacity, np.random.default_rng(seed))
    else:
        order = spread_out(features, capacity)
        centers, keep = features[order[:clusters]], np.sort(order)
        cluster_of = nearest(features, centers)
    size = features.shape[1]
    members, stored, labels = np.zeros((capacity, size)), np.zeros(capacity), np.zeros(capacity, int)
    members[: len(keep)], stored[: len(keep)] = features[keep], values[keep]
    labels[: len(keep)] = cluster_of[keep]
    centroids = np.zeros((num_clusters, size))
    centroids[:clusters] = centers
    return HighRewardSet(
        *on_device(
            (
                members.astype(np.float32),
                stored.astype(np.float32),
                np.arange(capacity) < len(keep),
                labels.astype(np.int32),
                centroids.astype(np.float32),
                np.arange(num_clusters) < clusters,
            )
        )
    )


def _means(features: np.ndarray, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """KMeans: centers, and the cluster of each point."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  (slow to import, needed once a run)

    with threadpool_limits(1):  # more threads add in another order
        kmeans = KMeans(clusters, n_init=10, max_iter=100, random_state=seed).fit(features.astype(np.float64))
    return kmeans.cluster_centers_, kmeans.labels_


def spread_out(points: np.ndarray, number: int) -> np.ndarray:
    """Indices of at most `number` points: the one farthest from the mean, then always the one farthest from all chosen.

    Every point is then at most twice as far from a chosen one as the best choice could make it (Gonzalez 1985), however
    often each place was seen.
    """
    points = points.astype(np.float64)
    distance = np.linalg.norm(points - points.mean(axis=0), axis=1)
    chosen = [int(np.argmax(distance))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < min(number, len(points)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return np.array(chosen)


def nearest(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number of the center nearest to each point."""
    apart = np.linalg.norm(points.astype(np.float64)[:, None] - centers.astype(np.float64)[None], axis=-1)
    return np.argmin(apart, axis=1)


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
