"""Statistics against hand-computed numbers, SciPy and brute force; run directories whole, cut and broken."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fake_store import FakeRun, write_run
from mesax.errors import UsageError
from mesax.results import statistics
from mesax.results.statistics import (
    Curve,
    RunResults,
    align,
    bootstrap,
    bootstrap_interval,
    common_grid,
    compare_runs,
    final_return,
    group_means,
    groups_of,
    interquartile_mean,
    load_run,
    mean_curve,
    mean_steps_to_optimal,
    optimal_fraction,
    probability_of_improvement,
    steps_to_optimal,
    summarize,
)

SMALL = FakeRun(num_tasks=4, evaluations=12, num_actions=4, num_explorers=2)
SCORES = st.lists(st.floats(-5, 5).map(lambda value: round(value, 3)), min_size=2, max_size=12).map(np.array)


def curve(task: int, steps: list[int], returns: list[float], **groups: list[float]) -> Curve:
    arrays = {name.replace("_", "="): np.array(values) for name, values in groups.items()}
    return Curve(task, f"task {task}", 0, np.array(steps), np.array(returns), arrays)


def run_json(num_tasks: int = 2) -> dict:
    family = {"optimal_return": 2.0, "suboptimal_return": 1.0, "optimal_threshold": 1.9}
    tasks = [{"label": f"task {index}", "group": None} for index in range(num_tasks)]
    identity = {"method": "mesa", "env": "climb-one", "preset": "quick", "seed": 3}
    return {**identity, "family": family, "test_tasks": tasks}


def eval_row(task: int, step: int, value: float, **more: object) -> dict:
    return {"phase": "adapt", "task": task, "repeat": 0, "step": step, "return": value, **more}


# Curves on a common grid


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


def test_mean_curve_reaches_as_far_as_all_curves():
    curves = [curve(0, [10, 20, 30], [0, 1, 2]), curve(1, [10, 30, 50], [2, 4, 8])]
    steps, mean, low, high = mean_curve(curves)
    assert steps.tolist() == [10, 20, 30]
    assert mean.tolist() == [1, 1.5, 3]
    assert low.tolist() == [0, 1, 2] and high.tolist() == [2, 2, 4]


def test_mean_curve_of_a_group_ignores_tasks_without_it():
    curves = [curve(0, [10, 20], [0, 0], k_1=[0.5, 1.0]), curve(1, [10, 20], [9, 9], k_2=[7, 7])]
    steps, mean, low, high = mean_curve(curves, "k=1")
    assert (steps.tolist(), mean.tolist(), low.tolist(), high.tolist()) == ([10, 20], *([[0.5, 1.0]] * 3))
    assert all(part.size == 0 for part in mean_curve(curves, "k=3"))


# Means and intervals


def test_interquartile_mean():
    assert interquartile_mean(np.array([0, 1, 2, 100])) == 1.5
    assert interquartile_mean(np.array([4.0])) == 4.0
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(interquartile_mean(values), np.sort(values, axis=0)[10:30].mean(axis=0))


@pytest.mark.parametrize("statistic", [statistics.mean, interquartile_mean])
def test_bootstrap_of_single_repeats_is_scipys_over_tasks(statistic):
    scores = np.random.default_rng(1).normal(size=9)
    expected = stats.bootstrap(
        (scores,),
        lambda sample, axis: statistic(sample, axis=axis),
        n_resamples=statistics.RESAMPLES,
        batch=500,
        method="percentile",
        rng=np.random.default_rng(statistics.BOOTSTRAP_SEED),
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
        n_resamples=statistics.RESAMPLES,
        batch=500,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(statistics.BOOTSTRAP_SEED),
    ).confidence_interval
    shuffled = np.random.default_rng(0).permutation(8)
    interval = bootstrap_interval(scores, tasks)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.high - interval.low < 1, "the spread between tasks must not enter"
    mixed = bootstrap_interval(scores[shuffled], tasks[shuffled])
    assert (mixed.low, mixed.high) == pytest.approx((interval.low, interval.high), abs=0.05)


def test_strata_without_spread_give_no_width_but_one_lone_repeat_does():
    scores, tasks = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1])
    assert bootstrap_interval(scores, tasks) == statistics.Interval(0.5, 0.5, 0.5)
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


# Numbers of a run


def test_final_return_is_the_mean_of_the_last_five():
    assert final_return(np.array([9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0])) == 3.0
    assert final_return(np.array([1.0, 2.0])) == 1.5


def test_steps_to_optimal_is_the_first_step_at_the_threshold():
    steps = np.array([10, 20, 30, 40])
    assert steps_to_optimal(steps, np.array([0.5, 0.99, 0.5, 1.0]), 0.99) == 20
    assert steps_to_optimal(steps, np.array([0.5, 0.98, 0.5, 0.9]), 0.99) is None


def test_the_mean_may_reach_the_optimum_later_than_any_task_or_never():
    first, second = curve(0, [10, 20, 30, 40], [1.0, 0.4, 1.0, 1.0]), curve(1, [10, 20, 30], [0.0, 1.0, 1.0])
    assert mean_steps_to_optimal([first, second], 0.9) == 30
    assert mean_steps_to_optimal([first], 0.9) == 10
    assert mean_steps_to_optimal([first, curve(1, [10, 20], [0.0, 1.0])], 0.9) is None, "40 is beyond the shorter one"


def test_optimal_fraction():
    assert optimal_fraction(np.array([1.0, 0.99, 0.98, 0.0]), 0.99) == 0.5


def test_group_means_average_over_the_tasks_that_have_the_group():
    curves = [
        curve(0, [1, 2], [0, 0], k_1=[1.0, 1.0], k_2=[0.0, 1.0]),
        curve(1, [1, 2], [0, 0], k_1=[0.5, 0.5]),
    ]
    assert group_means(curves) == {"k=1": 0.75, "k=2": 0.5}


@given(SCORES, SCORES)
def test_probability_of_improvement_is_the_u_statistic(scores, others):
    expected = stats.mannwhitneyu(scores, others, method="asymptotic").statistic / (scores.size * others.size)
    probability = probability_of_improvement(scores, others)
    assert probability == pytest.approx(expected)
    assert probability + probability_of_improvement(others, scores) == pytest.approx(1)


def test_probability_of_improvement_counts_ties_half():
    assert probability_of_improvement(np.array([1.0, 0.5]), np.array([0.5, 0.0])) == pytest.approx(0.875)
    assert probability_of_improvement(np.float32([1.0]), np.array([1.0 - 1e-8])) == 0.5


# Comparing two runs


def with_returns(run, returns):
    curves = [replace(own, returns=np.full(5, value)) for own, value in zip(run.curves, returns, strict=True)]
    return replace(run, curves=tuple(curves))


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "small", SMALL)


def test_the_same_test_tasks_are_compared_pair_by_pair(small):
    run = load_run(small)
    ours, theirs = with_returns(run, [0.2, 0.5, 0.8, 1.0]), with_returns(run, [0.1, 0.4, 0.7, 0.9])
    comparison = compare_runs(ours, theirs)
    assert (comparison.shared, comparison.complete) == (4, True)
    assert comparison.difference.value == pytest.approx(0.1)
    assert comparison.difference.high - comparison.difference.low == pytest.approx(0, abs=1e-9)
    assert comparison.probability == 1.0


def test_other_test_tasks_are_compared_as_samples(small):
    run = load_run(small)
    ours, theirs = with_returns(run, [0.2, 0.5, 0.8, 1.0]), with_returns(run, [0.1, 0.4, 0.7, 0.9])
    other_seed = replace(theirs, run={**run.run, "seed": 9})
    comparison = compare_runs(ours, other_seed)
    assert (comparison.shared, comparison.complete) == (0, False)
    assert comparison.difference.value == pytest.approx(0.1)
    assert comparison.difference.low < 0 < comparison.difference.high
    assert comparison.probability == pytest.approx(10 / 16)


def test_runs_that_share_some_test_tasks_are_compared_over_those(small):
    run = load_run(small)
    ours = with_returns(run, [0.2, 0.5, 0.8, 1.0])
    fewer = replace(run, curves=with_returns(run, [0.1, 0.4, 0.0, 0.0]).curves[:2])
    comparison = compare_runs(ours, fewer)
    assert (comparison.shared, comparison.complete) == (2, False)
    assert comparison.difference.value == pytest.approx(0.1), "not the difference of the rows' means"
    one = replace(fewer, curves=fewer.curves[:1])
    assert compare_runs(ours, one).shared == 1, "all that the other has"
    moved = [*one.run["test_tasks"][:1], *({**task, "target": [[9, 9]]} for task in one.run["test_tasks"][1:])]
    apart = replace(fewer, run={**fewer.run, "test_tasks": moved})
    assert compare_runs(ours, apart).shared == 0, "one pair among several tasks has no interval"


# Reading a run directory


def rewrite(run_dir: Path, path: Path, name: str, change) -> Path:
    """A copy of a run directory in which one file was changed."""
    path.mkdir()
    for file in run_dir.iterdir():
        path.joinpath(file.name).write_text(file.read_text())
    changed = change((run_dir / name).read_text())
    if changed is None:
        (path / name).unlink()
    else:
        (path / name).write_text(changed)
    return path


def test_load_run_reads_everything(small):
    run = load_run(small)
    assert (run.status, run.run["method"], len(run.curves)) == ("done", "mesa", 4)
    assert run.curves[1].label == "k=2 u=0" and run.curves[1].steps.tolist()[:2] == [1000, 2000]
    assert run.coverage is not None and run.coverage["dataset_size"] > 0
    assert {row["phase"] for row in run.metrics} == {"collect", "explore"}
    np.testing.assert_allclose(run.final_returns.mean(), run.summary["mean_return"])


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "coverage.json", "STATUS"])
def test_optional_files_may_be_missing(small, tmp_path, name):
    run = load_run(rewrite(small, tmp_path / "run", name, lambda text: None))
    empty = {"metrics.jsonl": run.metrics == (), "summary.json": run.summary == {}}
    empty |= {"coverage.json": run.coverage is None, "STATUS": run.status == "unknown"}
    assert empty[name] and len(run.curves) == 4


def test_a_last_line_cut_in_two_is_left_out(small, tmp_path):
    whole = load_run(small)
    cut = load_run(rewrite(small, tmp_path / "run", "eval.jsonl", lambda text: text[:-20]))
    assert cut.curves[-1].steps.tolist() == whole.curves[-1].steps.tolist()[:-1]
    assert cut.curves[0].steps.tolist() == whole.curves[0].steps.tolist()


def test_only_line_breaks_separate_rows(small, tmp_path):
    row = '{"phase": "explore", "policy": 0, "note": "a\u2028b"}\n'
    run = load_run(rewrite(small, tmp_path / "run", "metrics.jsonl", lambda text: row))
    assert [one["note"] for one in run.metrics] == ["a\u2028b"]


BROKEN = [
    ("run.json", lambda text: None, "is not a run directory: it has no run.json"),
    ("run.json", lambda text: text[:-30], "run.json is not JSON"),
    ("run.json", lambda text: "[1]", "run.json is not a JSON object"),
    ("run.json", lambda text: text.replace('"method"', '"meth"'), "run.json lacks method"),
    ("run.json", lambda text: text.replace('"optimal_threshold"', '"x"'), "lacks optimal_threshold"),
    ("eval.jsonl", lambda text: None, "is not a run directory: it has no eval.jsonl"),
    ("eval.jsonl", lambda text: "", "no evaluations of test tasks yet (status: done)"),
    ("eval.jsonl", lambda text: "{oops\n" + text, "line 1 of"),
    ("eval.jsonl", lambda text: text + "3\n", "is not a JSON object"),
    ("eval.jsonl", lambda text: text.replace('"return"', '"value"'), "KeyError: 'return'"),
    ("eval.jsonl", lambda text: text.replace('"task": 0', '"task": 99'), "does not hold evaluations"),
    ("eval.jsonl", lambda text: text.replace('"task": 0', '"task": -1'), "does not hold evaluations"),
    ("eval.jsonl", lambda text: text.replace('"return": 1.0', '"return": NaN'), "is not finite"),
    ("coverage.json", lambda text: text[:40], "coverage.json is not JSON"),
]


@pytest.mark.parametrize(("name", "change", "message"), BROKEN)
def test_a_broken_run_directory_is_one_clear_line(small, tmp_path, name, change, message):
    with pytest.raises(UsageError) as error:
        load_run(rewrite(small, tmp_path / "run", name, change))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_missing_run_directory_is_named():
    with pytest.raises(UsageError, match="'no/such/run' does not exist"):
        load_run("no/such/run")


def test_of_two_rows_for_one_step_the_last_counts():
    rows = [eval_row(0, 20, 0.1), eval_row(0, 10, 0.3), eval_row(0, 20, 0.9)]
    (only,) = statistics.curves_from_rows(run_json(), rows)
    assert (only.steps.tolist(), only.returns.tolist()) == ([10, 20], [0.3, 0.9])


def test_a_task_with_a_group_counts_for_it_without_group_rows():
    run = run_json()
    run["test_tasks"][0]["group"] = "k=2"
    (only,) = statistics.curves_from_rows(run, [eval_row(0, 10, 0.3)])
    assert {name: values.tolist() for name, values in only.groups.items()} == {"k=2": [0.3]}


# The summary


def test_summary_by_hand():
    rows = [eval_row(0, 100 * n, value) for n, value in enumerate([0, 2, 2, 2, 2, 2], start=1)]
    rows += [eval_row(1, 100 * n, value, groups={"k=2": 2 * value}) for n, value in enumerate([1.0, 1.5], start=1)]
    summary = summarize(run_json(), rows, env_steps=800, meta_env_steps=200, wall_seconds=4.0, run_dir="runs/x")
    groups = [{}, {"k=2": 2.5}]
    assert summary.pop("ci_low") == 1.25 and summary.pop("ci_high") == 2.0
    assert summary == {
        "method": "mesa",
        "env": "climb-one",
        "preset": "quick",
        "seed": 3,
        "env_steps": 800,
        "meta_env_steps": 200,
        "mean_return": 1.625,
        "std_return": 0.375,
        "iqm": 1.625,
        "normalized_return": 0.8125,
        "optimal_fraction": 0.5,
        "by_group": {"k=2": 2.5},
        "per_task": [
            {
                "task": 0,
                "label": "task 0",
                "repeat": 0,
                "final_return": 2.0,
                "steps_to_optimal": 200,
                "groups": groups[0],
            },
            {
                "task": 1,
                "label": "task 1",
                "repeat": 0,
                "final_return": 1.25,
                "steps_to_optimal": None,
                "groups": groups[1],
            },
        ],
        "wall_seconds": 4.0,
        "env_steps_per_second": 200.0,
        "run_dir": "runs/x",
    }


def test_summary_is_plain_json_and_independent_of_row_order(small):
    rows = [json.loads(line) for line in (small / "eval.jsonl").read_text().splitlines()]
    run = json.loads((small / "run.json").read_text())
    costs = {"env_steps": 1, "meta_env_steps": 0, "wall_seconds": 0.0, "run_dir": "x"}
    summary = summarize(run, rows, **costs)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summarize(run, rows[::-1], **costs) == summary
    assert summary["by_group"]["k=1"] == 1.0


def test_nothing_to_summarize_is_an_error():
    with pytest.raises(UsageError, match="nothing to summarize"):
        summarize(run_json(), [], env_steps=0, meta_env_steps=0, wall_seconds=1.0, run_dir="x")


def test_a_group_that_is_the_whole_says_nothing_more():
    def run(*curves: Curve, groups=()) -> RunResults:
        return RunResults(Path("nowhere"), {"family": {"groups": list(groups)}}, curves, {}, (), None, "done")

    alike, apart = curve(0, [1], [1.0], k_2=[1.0]), curve(1, [1], [1.0], k_2=[0.5])
    assert groups_of([run(alike), run(alike)]) == []
    assert groups_of([run(alike, apart)]) == ["k=2"]
    assert groups_of([run(alike, curve(1, [1], [1.0]))]) == ["k=2"], "some tasks have no such part"
    both = curve(0, [1], [0.5], k_1=[1.0], k_2=[0.0])
    assert groups_of([run(both, groups=("k=2", "k=1", "k=3"))]) == ["k=2", "k=1"]
