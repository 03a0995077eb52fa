"""Intervals: numbers computed by hand, SciPy's, and how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mesax.results.intervals import (
    Interval,
    Levels,
    difference_interval,
    interquartile_band,
    interquartile_interval,
    interquartile_mean,
    mean_band,
    mean_interval,
    probability_of_improvement,
    share_interval,
)

SCORES = st.lists(st.floats(-5, 5).map(lambda value: round(value, 3)), min_size=2, max_size=12).map(np.array)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def test_interquartile_mean():
    assert interquartile_mean(np.array([0, 1, 2, 100])) == 1.5
    assert interquartile_mean(np.array([4.0])) == 4.0
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(interquartile_mean(values), np.sort(values, axis=0)[10:30].mean(axis=0))


def test_tasks_of_one_seed_give_students_interval():
    scores = np.random.default_rng(1).normal(size=9)
    expected = stats.ttest_1samp(scores, 0.0).confidence_interval(0.95)
    assert ends(mean_interval(scores)) == pytest.approx((expected.low, expected.high))


def test_seeds_are_the_unit():
    scores, seeds = np.array([0.0, 0.0, 1.0, 2.0, 1.0, 5.0]), np.array([0, 0, 7, 7, 3, 3])
    # Their means are 0, 1.5 and 3: Student's quantile of two degrees of freedom, over the square root of three.
    half = 4.30265 * 1.5 / np.sqrt(3)
    assert ends(mean_interval(scores, seeds=seeds)) == pytest.approx((1.5 - half, 1.5 + half), abs=1e-4)
    assert mean_interval(np.repeat(scores, 4), seeds=np.repeat(seeds, 4)) == mean_interval(scores, seeds=seeds), (
        "more tasks of the same seeds make none surer of other seeds"
    )


def test_repeats_of_a_task_are_averaged_first():
    scores, tasks = np.array([0.0, 2.0, 3.0, 3.0, 5.0, 5.0]), np.array([4, 4, 5, 5, 6, 6])
    assert mean_interval(scores, tasks) == mean_interval(np.array([1.0, 3.0, 5.0]))
    shuffled = [5, 0, 3, 1, 4, 2]
    assert ends(mean_interval(scores[shuffled], tasks[shuffled])) == pytest.approx(ends(mean_interval(scores, tasks)))
    assert mean_interval(scores, np.zeros(6)) == mean_interval(scores), "of a single task, repeats are all there is"


@pytest.mark.parametrize("scores", [[0.7], [0.7, 0.7, 0.7], [1.0] * 10])
def test_scores_without_spread_give_no_width_unless_there_are_levels(scores):
    interval = mean_interval(np.array(scores))
    assert (interval.value, *ends(interval)) == pytest.approx([scores[0]] * 3)


def test_ten_of_ten_is_not_certain():
    solved = share_interval(np.ones(10), seeds=np.arange(10))
    # Ten seeds of one task each: Wilson's own interval, 10 / (10 + 1.96^2).
    assert ends(solved) == pytest.approx((10 / (10 + 1.959964**2), 1.0))
    fewer = share_interval(np.ones(10), seeds=np.repeat([0, 1], 5))
    assert ends(fewer) == pytest.approx((2 / (2 + 1.959964**2), 1.0)), "two seeds are worth two trials"
    alone = share_interval(np.ones(10))
    # Ten tasks of a single seed are worth 10 / (1 + 9/3) independent ones.
    assert alone.low == pytest.approx(2.5 / (2.5 + 1.959964**2))
    interval = mean_interval(np.ones(10), seeds=np.repeat([0, 1], 5), levels=Levels(0.5, 1.0))
    assert interval.low == pytest.approx(0.5 + fewer.low / 2) and interval.high == 1.0
    none = mean_interval(np.full(10, 0.5), seeds=np.repeat([0, 1], 5), levels=Levels(0.5, 1.0))
    assert none.low == 0.5 and none.high == pytest.approx(1.0 - fewer.low / 2)


def test_wilson_of_a_mixed_share_is_scipys():
    expected = stats.binomtest(3, 8).proportion_ci(method="wilson")
    assert ends(share_interval(np.array([1, 0, 0, 1, 0, 0, 1, 0]), seeds=np.arange(8))) == pytest.approx(
        tuple(expected)
    )


def test_columns_are_independent_of_each_other():
    random = np.random.default_rng(3)
    scores, seeds = random.random((6, 4)), np.array([0, 0, 1, 1, 2, 2])
    scores[:, 2] = 0.5
    for levels in (None, Levels(0.2, 0.8)):
        value, low, high = mean_band(scores, seeds=seeds, levels=levels)
        for column in range(4):
            alone = mean_interval(scores[:, column], seeds=seeds, levels=levels)
            assert (value[column], low[column], high[column]) == pytest.approx((alone.value, *ends(alone)))


def test_a_difference_of_samples_adds_their_variances():
    ours, theirs = np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 3.0])
    both = mean_interval(ours), mean_interval(theirs)
    half = np.hypot(*((one.high - one.low) / 2 for one in both))
    assert ends(difference_interval(*both)) == pytest.approx((1.0 - half, 1.0 + half))


def test_a_difference_is_no_surer_than_what_it_is_of():
    """Six tasks at the safe level may be followed by solved ones: the difference may then be as small."""
    sure, safe = Interval(1000.0, 990.0, 1000.0), mean_interval(np.full(6, 500.0), levels=Levels(500.0, 1000.0))
    found = difference_interval(sure, safe)
    assert found.value == 500.0
    assert found.low == pytest.approx(500.0 - np.hypot(10.0, safe.high - 500.0))
    assert found.high == pytest.approx(500.0), "neither can be beyond its level"


def test_repeats_of_a_task_are_no_more_tasks():
    once, thrice = np.array([1.0, 0.0, 1.0, 1.0]), np.repeat([1.0, 0.0, 1.0, 1.0], 3)
    assert share_interval(thrice, np.repeat(np.arange(4), 3)) == share_interval(once)


SIMULATED = 4000


def normal_outcomes(random, correlation, seeds, tasks):
    common = random.normal(size=(seeds, 1, SIMULATED)) * np.sqrt(correlation)
    return common + random.normal(size=(seeds, tasks, SIMULATED)) * np.sqrt(1 - correlation)


def two_level_outcomes(random, share, correlation, seeds, tasks):
    if correlation in (0, 1):  # each task for itself; all targets of a layout end alike
        alike = random.random((seeds, tasks if correlation == 0 else 1, SIMULATED)) < share
        return np.broadcast_to(alike, (seeds, tasks, SIMULATED)).astype(float)
    strength = 1 / correlation - 1
    chance = random.beta(share * strength, (1 - share) * strength, size=(seeds, 1, SIMULATED))
    return (random.random((seeds, tasks, SIMULATED)) < chance).astype(float)


@pytest.mark.parametrize("correlation", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("share", [None, 0.5, 0.7, 0.8, 0.9, 0.95])
@pytest.mark.parametrize(("seeds", "tasks"), [(3, 5), (5, 5), (3, 6), (3, 10)])  # 5 or 6 targets of a layout, 10 games
def test_intervals_of_a_few_seeds_hold_the_truth(share, correlation, seeds, tasks):
    random = np.random.default_rng(0)
    if share is None:
        truth, outcomes, levels = 0.0, normal_outcomes(random, correlation, seeds, tasks), None
    else:
        truth, levels = share, Levels(0.0, 1.0)
        outcomes = two_level_outcomes(random, share, correlation, seeds, tasks)
    _, low, high = mean_band(
        outcomes.reshape(seeds * tasks, -1), seeds=np.repeat(np.arange(seeds), tasks), levels=levels
    )
    covered = np.mean((low <= truth) & (truth <= high))
    assert covered >= 0.92, f"{covered:.1%} of nominal 95%"


@given(SCORES, SCORES)
def test_probability_of_improvement_is_the_u_statistic(scores, others):
    expected = stats.mannwhitneyu(scores, others, method="asymptotic").statistic / (scores.size * others.size)
    probability = probability_of_improvement(scores, others)
    assert probability == pytest.approx(expected)
    assert probability + probability_of_improvement(others, scores) == pytest.approx(1)


def test_probability_of_improvement_counts_ties_half():
    assert probability_of_improvement(np.array([1.0, 0.5]), np.array([0.5, 0.0])) == pytest.approx(0.875)
    assert probability_of_improvement(np.float32([1.0]), np.array([1.0 - 1e-8])) == 0.5


@pytest.mark.parametrize("number", [3, 4, 5, 8, 12, 15])
def test_the_interval_of_an_interquartile_mean_covers_few_scores(number: int):
    """The distribution is symmetric, so its interquartile mean is 0."""
    _, low, high = interquartile_band(np.random.default_rng(0).normal(size=(number, 4_000)))
    assert 0.92 < np.mean((low <= 0) & (high >= 0)) < 0.97


def test_interval_of_the_interquartile_mean_is_yuens():
    scores = np.random.default_rng(3).normal(size=12)
    ordered = np.sort(scores)
    inside = np.clip(scores, ordered[3], ordered[8])
    half = stats.t.ppf(0.975, 5) * np.sqrt(11 * inside.var(ddof=1) / (6 * 5))  # six scores make the mean
    found = interquartile_interval(scores)
    assert (found.value, *ends(found)) == pytest.approx(
        (ordered[3:9].mean(), ordered[3:9].mean() - half, ordered[3:9].mean() + half)
    )
    outlier = np.where(scores == ordered[-1], 1e6, scores)
    assert interquartile_interval(outlier) == found, "an outlier does not count"
    band = interquartile_band(np.stack([scores, np.ones(12)], axis=1))
    assert np.allclose(np.array(band)[:, 0], [found.value, *ends(found)]) and np.allclose(np.array(band)[:, 1], 1.0)
    seeds = np.repeat([0, 1, 2], 4)
    shifted = np.sort(scores)  # seeds that differ
    assert np.ptp(ends(interquartile_interval(shifted, seeds=seeds))) > np.ptp(ends(interquartile_interval(shifted)))
