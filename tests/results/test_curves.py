"""Curves on one grid, means over them, steps to the optimum and groups, by hand."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_store import curve
from mesax.results.curves import (
    align,
    area_under_curves,
    common_grid,
    group_means,
    groups_of,
    mean_curve,
    mean_steps_to_optimal,
    only_group,
    steps_to_optimal,
    steps_to_solve,
)
from mesax.results.summary import final_interval
from mesax.store.reading import Curve, RunResults


def test_align_holds_the_last_value_and_stops_at_both_ends():
    grid, rows = align([np.array([10, 20, 40]), np.array([20, 30])], [np.array([1, 2, 3]), np.array([5, 6])])
    assert grid.tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(rows, [[1, 2, 2, 3], [np.nan, 5, 6, np.nan]])


def test_align_on_a_given_grid():
    _, rows = align([np.array([10, 20])], [np.array([1.0, 2.0])], grid=np.array([5, 10, 19, 20, 21]))
    np.testing.assert_array_equal(rows, [[np.nan, 1, 1, 2, np.nan]])


def test_common_grid_is_where_every_curve_has_a_value():
    grid = common_grid([np.array([0, 10, 20, 30]), np.array([5, 15, 25]), np.array([4, 40])])
    assert grid.tolist() == [5, 10, 15, 20, 25]
    assert common_grid([np.array([0, 1]), np.array([5, 6])]).size == 0


STEP_LISTS = st.lists(
    st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True).map(sorted), min_size=1, max_size=4
)


@given(STEP_LISTS)
def test_align_equals_looking_up_each_point(step_lists):
    steps = [np.array(one) for one in step_lists]
    values = [one * 10.0 + index for index, one in enumerate(steps)]
    grid, rows = align(steps, values)
    for own_steps, own_values, row in zip(steps, values, rows, strict=True):
        for point, found in zip(grid, row, strict=True):
            earlier = [value for step, value in zip(own_steps, own_values, strict=True) if step <= point]
            expected = earlier[-1] if earlier and point <= own_steps[-1] else np.nan
            np.testing.assert_equal(found, expected)
    inside = np.isin(grid, common_grid(steps))
    assert not np.isnan(rows[:, inside]).any()


def run_of(*curves: Curve, safe: float = 0.0, **facts: object) -> RunResults:
    """Of a family whose best return is 10; a safe return of 0 says that nobody knows of any."""
    family = {"suboptimal_return": safe, "optimal_return": 10.0, **facts}
    return RunResults(Path("nowhere"), {"family": family}, curves, {}, (), None, "done")


def test_mean_curve_reaches_as_far_as_all_curves():
    run = run_of(curve(0, [10, 20, 30], [0, 1, 2]), curve(1, [10, 30, 50], [2, 4, 8]))
    steps, mean, low, high = mean_curve(run)
    assert steps.tolist() == [10, 20, 30]
    assert mean.tolist() == [1, 1.5, 3]
    # Two tasks: Student's quantile of one degree of freedom times half of their distance.
    np.testing.assert_allclose(high - mean, 12.7062 * np.array([1, 0.5, 1]), rtol=1e-4)
    np.testing.assert_allclose(mean - low, high - mean)


def test_mean_curve_of_a_group_ignores_tasks_without_it():
    run = run_of(curve(0, [10, 20], [0, 0], k_1=[0.5, 1.0]), curve(1, [10, 20], [9, 9], k_2=[7, 7]))
    steps, mean, low, high = mean_curve(only_group(run, "k=1"))
    assert (steps.tolist(), mean.tolist(), low.tolist(), high.tolist()) == ([10, 20], *([[0.5, 1.0]] * 3))
    assert all(part.size == 0 for part in mean_curve(only_group(run, "k=3")))


def test_the_band_of_a_curve_is_the_interval_that_tables_have():
    run = run_of(*(curve(task, [10, 20], [5.0, 9.9]) for task in range(5)), safe=5.0, lowest_return=0.0)
    interval = final_interval(run_of(*(curve(task, [20], [9.9]) for task in range(5)), safe=5.0, lowest_return=0.0))
    _, mean, low, high = mean_curve(run)
    assert (low[-1], mean[-1], high[-1]) == pytest.approx((interval.low, interval.value, interval.high))
    assert low[-1] < 8.5, "five of five at the best level are not all there are"
    assert high[-1] < 10.0 and high[0] > 7.0, "nor are five of five at the safe one"
    apart = run_of(curve(0, [10], [0.0]), curve(1, [10], [10.0]), safe=5.0, lowest_return=0.0)
    assert [float(end[0]) for end in mean_curve(apart)[2:]] == [0.0, 10.0], "no mean is beyond what can be had"


def test_steps_to_optimal_is_the_first_step_at_the_threshold():
    steps = np.array([10, 20, 30, 40])
    assert steps_to_optimal(steps, np.array([0.5, 0.99, 0.5, 1.0]), 0.99) == 20
    assert steps_to_optimal(steps, np.array([0.5, 0.98, 0.5, 0.9]), 0.99) is None


def test_the_mean_may_reach_the_optimum_later_than_any_task_or_never():
    steps = list(range(10, 90, 10))
    first, second = curve(0, steps, [1.0, 0.4] + [1.0] * 6), curve(1, steps[:7], [0.0] + [1.0] * 6)
    assert mean_steps_to_optimal([first, second], 0.9) == 30
    assert mean_steps_to_optimal([first], 0.9) == 10
    short = curve(1, [10, 20], [0.3, 0.9])
    assert mean_steps_to_optimal([first, short], 0.7) is None, "30 is beyond the shorter one"


def test_what_was_reached_and_lost_has_no_steps():
    steps = list(range(10, 90, 10))
    lost, late = curve(0, steps, [0.5, 1.0, *[0.5] * 6]), curve(1, steps, [0.5] * 7 + [1.0])
    for one in (lost, late):
        assert steps_to_solve(one, 0.95) is None and mean_steps_to_optimal([one], 0.95) is None
    kept = curve(2, steps, [0.5, 1.0, 0.5, *[1.0] * 5])
    assert steps_to_solve(kept, 0.95) == mean_steps_to_optimal([kept], 0.95) == 20


def test_the_area_under_a_curve_is_the_mean_return_of_learning():
    late, soon = (curve(0, [100, 200, 400], returns) for returns in ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0]))
    assert area_under_curves([late]) == pytest.approx(1 / 3)
    assert area_under_curves([late, soon]) == pytest.approx((1 / 3 + 5 / 6) / 2)
    assert area_under_curves([curve(0, [100], [0.5])]) == 0.5


def test_group_means_average_over_the_tasks_that_have_the_group():
    curves = [
        curve(0, [1, 2], [0, 0], k_1=[1.0, 1.0], k_2=[0.0, 1.0]),
        curve(1, [1, 2], [0, 0], k_1=[0.5, 0.5]),
    ]
    assert group_means(curves) == {"k=1": 0.75, "k=2": 1.0}


def test_a_group_that_is_the_whole_says_nothing_more():
    def run(*curves: Curve, groups=()) -> RunResults:
        return RunResults(Path("nowhere"), {"family": {"groups": list(groups)}}, curves, {}, (), None, "done")

    alike, apart = curve(0, [1], [1.0], k_2=[1.0]), curve(1, [1], [1.0], k_2=[0.5])
    assert groups_of([run(alike), run(alike)]) == []
    assert groups_of([run(alike, apart)]) == ["k=2"]
    assert groups_of([run(alike, curve(1, [1], [1.0]))]) == ["k=2"], "some tasks have no such part"
    both = curve(0, [1], [0.5], k_1=[1.0], k_2=[0.0])
    assert groups_of([run(both, groups=("k=2", "k=1", "k=3"))]) == ["k=2", "k=1"]
