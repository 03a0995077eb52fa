"""Intervals over seeds, tasks and repeats; interquartile means; how often one score beats another.

A seed brings its own training tasks and its own test tasks, which share a layout and explorers and so may fail
together. Seeds are therefore the unit: what its tasks come to is one number of a seed, however many tasks it has. With
S seeds, and repeats of a task averaged first:

    half width        t_95%(S - 1) * standard deviation of the seeds' means / sqrt(S)
    unseen outcomes   where tasks end at one of two levels: Wilson's interval of the share at the upper one, as of S
                      independent trials; 15 of 15 tasks of three seeds is not 100%

A single seed says nothing of others. Its interval is over its tasks: Student's of them, and Wilson's as if tasks were
correlated by a third. tests/results/test_intervals.py simulates how often intervals of three and of five seeds hold the
truth, from tasks that are independent to tasks that all end alike; test_summary.py does so for differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
ASSUMED_CORRELATION = 1 / 3
"""Between outcomes of a single seed: it cannot tell."""
TIE = 1e-6  # single-precision returns closer than this count as equal


@dataclass(frozen=True)
class Interval:
    """A statistic with its confidence interval."""

    value: float
    low: float
    high: float


class Levels(NamedTuple):
    """The two scores that a task usually ends with."""

    safe: float
    best: float


class _Nested(NamedTuple):
    """Task means, and the seed that each belongs to, numbered from 0."""

    scores: np.ndarray
    seeds: np.ndarray

    @property
    def num_seeds(self) -> int:
        return int(self.seeds.max()) + 1


def mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The arithmetic mean along an axis."""
    return np.mean(scores, axis=axis)


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half of the scores: outliers sway it less than the mean."""
    cut = scores.shape[axis] // 4
    middle = np.sort(np.moveaxis(scores, axis, 0), axis=0)[cut : scores.shape[axis] - cut]
    return middle.mean(axis=0)


def mean_band(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    seeds: np.ndarray | None = None,
    levels: Levels | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis with the ends of its interval, for each remaining position.

    `tasks` and `seeds` number the task and the seed of each score (default: all of one seed, each its own task);
    `levels` are for tasks that end at one of two.
    """
    scores = np.asarray(scores, dtype=float)
    nested = _nested(scores, tasks, seeds)
    value, half = mean(scores), _half_width(nested)
    low, high = value - half, value + half
    if levels is not None:
        down, up = _unseen(nested, levels)
        low, high = np.minimum(low, value - down), np.maximum(high, value + up)
    return value, low, high


def mean_interval(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    seeds: np.ndarray | None = None,
    levels: Levels | None = None,
) -> Interval:
    """The same for one score per task run."""
    return Interval(*(float(number) for number in mean_band(scores, tasks, seeds, levels)))


def interquartile_band(
    scores: np.ndarray, tasks: np.ndarray | None = None, seeds: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean over the first axis with the ends of its interval, for each remaining position.

    The interval is that of the mean of what each score contributes (Yuen's of a trimmed mean): outer quarters count as
    the quartile next to them, deviations for more, because fewer scores make the mean, and so do degrees of freedom.
    """
    scores = np.asarray(scores, dtype=float)
    ordered, number, cut = np.sort(scores, axis=0), len(scores), len(scores) // 4
    inside = np.clip(scores, ordered[cut], ordered[number - 1 - cut])
    value, middle = interquartile_mean(scores), number - 2 * cut
    weight = np.sqrt(number * (number - 1) / (middle * (middle - 1))) if number > 1 else 1.0
    nested = _nested(value + weight * (inside - inside.mean(axis=0)), tasks, seeds)
    tasks_inside = len(nested.scores) - 2 * (len(nested.scores) // 4)
    half = _half_width(nested, freedom=tasks_inside - 1)
    return value, value - half, value + half


def interquartile_interval(
    scores: np.ndarray, tasks: np.ndarray | None = None, seeds: np.ndarray | None = None
) -> Interval:
    """The same for one score per task run."""
    return Interval(*(float(number) for number in interquartile_band(scores, tasks, seeds)))


def share_interval(successes: np.ndarray, tasks: np.ndarray | None = None, seeds: np.ndarray | None = None) -> Interval:
    """The share of successes with Wilson's 95% interval, as of one trial for each seed."""
    nested = _nested(np.asarray(successes, dtype=float), tasks, seeds)
    return Interval(*(float(number) for number in _wilson(nested.scores.mean(axis=0), nested)))


def difference_interval(one: Interval, other: Interval) -> Interval:
    """The difference of two independent statistics: it is low if the first is, or the other high."""
    value = one.value - other.value
    low = np.hypot(one.value - one.low, other.high - other.value)
    high = np.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - float(low), value + float(high))


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> float:
    """The chance that a score drawn from the first beats one drawn from the second; ties count one half."""
    differences = np.subtract.outer(np.asarray(scores, dtype=float), np.asarray(others, dtype=float))
    return float(np.mean((differences > TIE) + 0.5 * (np.abs(differences) <= TIE)))


def _nested(scores: np.ndarray, tasks: np.ndarray | None, seeds: np.ndarray | None) -> _Nested:
    """Repeats averaged; of a single task, repeats are all there is."""
    seeds = np.zeros(len(scores), int) if seeds is None else np.unique(seeds, return_inverse=True)[1]
    if tasks is None or len(np.unique(tasks)) == 1:
        return _Nested(np.asarray(scores, dtype=float), seeds)
    order, first, inverse = np.unique(tasks, return_index=True, return_inverse=True)
    means = np.stack([scores[inverse == task].mean(axis=0) for task in range(len(order))])
    return _Nested(means, seeds[first])


def _special() -> ModuleType:
    """Takes every process .2 s to import, and few draw intervals."""
    from scipy import special  # noqa: PLC0415

    return special


def _t_quantile(confidence: float, freedom: int) -> float:
    return float(_special().stdtrit(freedom, (1 + confidence) / 2))


def _half_width(nested: _Nested, freedom: int | None = None) -> np.ndarray:
    """Half the width of the mean's interval; `freedom`: of a single seed's tasks, if not one less than there are."""
    units, freedom = nested.scores, len(nested.scores) - 1 if freedom is None else freedom
    if nested.num_seeds > 1:
        units = np.stack([nested.scores[nested.seeds == seed].mean(axis=0) for seed in range(nested.num_seeds)])
        freedom = nested.num_seeds - 1
    if len(units) < 2:
        return np.zeros(units.shape[1:])
    return _t_quantile(CONFIDENCE, freedom) * units.std(axis=0, ddof=1) / np.sqrt(len(units))


def _unseen(nested: _Nested, levels: Levels) -> tuple[np.ndarray, np.ndarray]:
    """How far below and above its mean a score may be because of outcomes that are rarer or commoner than they look."""
    upper = nested.scores >= (levels.safe + levels.best) / 2
    count = upper.sum(axis=0)
    top = np.where(count, np.sum(nested.scores * upper, axis=0) / np.maximum(count, 1), levels.best)
    rest = len(upper) - count
    bottom = np.where(rest, np.sum(nested.scores * ~upper, axis=0) / np.maximum(rest, 1), levels.safe)
    share, low, high = _wilson(upper.mean(axis=0), nested)
    return (share - low) * (top - bottom), (high - share) * (top - bottom)


def _wilson(share: np.ndarray, nested: _Nested) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    number, num_seeds = len(nested.scores), nested.num_seeds
    worth = num_seeds if num_seeds > 1 else number / (1 + (number - 1) * ASSUMED_CORRELATION)
    squared = float(_special().ndtri((1 + CONFIDENCE) / 2)) ** 2 / worth
    center = (share + squared / 2) / (1 + squared)
    half = np.sqrt(squared * (share * (1 - share) + squared / 4)) / (1 + squared)
    return share, np.maximum(center - half, 0.0), np.minimum(center + half, 1.0)
