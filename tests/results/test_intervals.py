"""Intervals against SciPy, brute force and numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mesax.results.intervals import (
    BOOTSTRAP_SEED,
    RESAMPLES,
    Interval,
    bootstrap,
    bootstrap_interval,
    interquartile_mean,
    mean,
    probability_of_improvement,
)

SCORES = st.lists(st.floats(-5, 5).map(lambda value: round(value, 3)), min_size=2, max_size=12).map(np.array)


def test_interquartile_mean():
    assert interquartile_mean(np.array([0, 1, 2, 100])) == 1.5
    assert interquartile_mean(np.array([4.0])) == 4.0
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(interquartile_mean(values), np.sort(values, axis=0)[10:30].mean(axis=0))


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_bootstrap_of_single_repeats_is_scipys_over_tasks(statistic):
    scores = np.random.default_rng(1).normal(size=9)
    expected = stats.bootstrap(
        (scores,),
        lambda sample, axis: statistic(sample, axis=axis),
        n_resamples=RESAMPLES,
        batch=500,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    interval = bootstrap_interval(scores, np.arange(9), statistic)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.value == pytest.approx(float(statistic(scores)))


def test_bootstrap_of_repeats_is_scipys_within_tasks():
    samples = [np.array([0.0, 1.0, 0.5]), np.array([10.0, 12.0]), np.array([3.0, 3.0, 4.0])]
    scores, tasks = np.concatenate(samples), np.array([0, 0, 0, 1, 1, 2, 2, 2])
    expected = stats.bootstrap(
        samples,
        lambda *parts, axis: np.concatenate(parts, axis=axis).mean(axis=axis),
        n_resamples=RESAMPLES,
        batch=500,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    shuffled = np.random.default_rng(0).permutation(8)
    interval = bootstrap_interval(scores, tasks)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.high - interval.low < 1, "the spread between tasks must not enter"
    mixed = bootstrap_interval(scores[shuffled], tasks[shuffled])
    assert (mixed.low, mixed.high) == pytest.approx((interval.low, interval.high), abs=0.05)


def test_strata_without_spread_give_no_width_but_one_lone_repeat_does():
    scores, tasks = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1])
    assert bootstrap_interval(scores, tasks) == Interval(0.5, 0.5, 0.5)
    lone = bootstrap_interval(scores, np.array([0, 0, 1, 2]))
    assert lone.low < 0.5 < lone.high


@pytest.mark.parametrize("scores", [[0.7], [0.7, 0.7, 0.7], [1.0] * 10])
def test_degenerate_scores_give_no_width_and_no_warning(scores):
    interval = bootstrap_interval(np.array(scores))
    assert interval.low == interval.value == interval.high == pytest.approx(scores[0])


def test_bootstrap_agrees_with_the_normal_interval_of_a_large_sample():
    scores = np.random.default_rng(2).normal(3.0, 2.0, size=400)
    interval = bootstrap_interval(scores)
    half = 1.96 * scores.std(ddof=1) / 20
    assert interval.low == pytest.approx(scores.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(scores.mean() + half, abs=0.1 * half)


@settings(max_examples=25)
@given(SCORES, st.integers(-3, 3))
def test_bootstrap_stays_among_the_scores_and_moves_with_them(scores, shift):
    interval = bootstrap_interval(scores, resamples=400)
    tolerance = 1e-9
    assert scores.min() - tolerance <= interval.low <= interval.value + tolerance
    assert interval.value - tolerance <= interval.high <= scores.max() + tolerance
    moved = bootstrap_interval(scores + shift, resamples=400)
    expected = (interval.value + shift, interval.low + shift, interval.high + shift)
    assert (moved.value, moved.low, moved.high) == pytest.approx(expected, abs=1e-9)
    assert bootstrap_interval(scores, resamples=400) == interval


def test_bootstrap_of_columns_is_the_bootstrap_of_each():
    scores = np.random.default_rng(3).random((6, 4))
    scores[:, 2] = 0.5
    _, low, high = bootstrap(scores)
    for column in range(4):
        alone = bootstrap_interval(scores[:, column])
        assert (low[column], high[column]) == pytest.approx((alone.low, alone.high))


@given(SCORES, SCORES)
def test_probability_of_improvement_is_the_u_statistic(scores, others):
    expected = stats.mannwhitneyu(scores, others, method="asymptotic").statistic / (scores.size * others.size)
    probability = probability_of_improvement(scores, others)
    assert probability == pytest.approx(expected)
    assert probability + probability_of_improvement(others, scores) == pytest.approx(1)


def test_probability_of_improvement_counts_ties_half():
    assert probability_of_improvement(np.array([1.0, 0.5]), np.array([0.5, 0.0])) == pytest.approx(0.875)
    assert probability_of_improvement(np.float32([1.0]), np.array([1.0 - 1e-8])) == 0.5
