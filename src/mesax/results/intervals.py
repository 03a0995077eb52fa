"""Intervals over tasks and seeds: bootstrapped means and interquartile means, and how often one score beats another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 5_000
BOOTSTRAP_SEED = 20_240_501  # fixed, so that the same run always reports the same interval
TIE = 1e-6  # single-precision returns closer than this count as equal


@dataclass(frozen=True)
class Interval:
    """A statistic with its confidence interval."""

    value: float
    low: float
    high: float


def mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The arithmetic mean along an axis."""
    return np.mean(scores, axis=axis)


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half of the scores: outliers sway it less than the mean."""
    return np.asarray(stats.trim_mean(scores, 0.25, axis=axis))


def bootstrap(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    statistic: Callable[..., np.ndarray] = mean,
    resamples: int = RESAMPLES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The statistic over the first axis with its percentile bootstrap interval, for each remaining position.

    When every task has at least two repeats they are the strata, resampled within each task; otherwise the
    task runs are resampled as one sample. One score, or scores without spread, give an interval of no width.
    """
    scores = np.asarray(scores, dtype=float)
    value = np.asarray(statistic(scores, axis=0))
    samples = _strata(scores, tasks)
    if len(samples[0]) < 2 or all(np.ptp(sample, axis=0).max(initial=0.0) == 0 for sample in samples):
        return value, value, value

    def pooled(*parts: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.concatenate(parts, axis=axis), axis=axis)

    return value, *percentile_interval(samples, pooled, resamples)


def percentile_interval(
    samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], resamples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Low and high end of the percentile bootstrap interval of a statistic of several samples."""
    interval = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        batch=500,  # bounds the memory of whole curves
        vectorized=True,
        axis=0,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return np.asarray(interval.low), np.asarray(interval.high)


def _strata(scores: np.ndarray, tasks: np.ndarray | None) -> list[np.ndarray]:
    if tasks is None:
        return [scores]
    samples = [scores[tasks == task] for task in np.unique(tasks)]
    return samples if min(len(sample) for sample in samples) >= 2 else [scores]


def bootstrap_interval(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    statistic: Callable[..., np.ndarray] = mean,
    resamples: int = RESAMPLES,
) -> Interval:
    """The statistic of one score per task run with its 95% bootstrap interval."""
    return Interval(*(float(number) for number in bootstrap(scores, tasks, statistic, resamples)))


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> float:
    """The chance that a score drawn from the first beats one drawn from the second; ties count one half."""
    differences = np.subtract.outer(np.asarray(scores, dtype=float), np.asarray(others, dtype=float))
    return float(np.mean((differences > TIE) + 0.5 * (np.abs(differences) <= TIE)))
