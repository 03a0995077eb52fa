"""What is said of a run, and of two runs against each other, by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_store import SMALL, FakeRun, eval_row, run_json, write_run
from mesax.errors import UsageError
from mesax.results.intervals import Levels
from mesax.results.summary import compare_runs, paired_interval, solved_runs, summarize
from mesax.store.reading import load_run


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
    # No difference between tasks; but four of four small ones do not exclude a task that either solves alone.
    assert -0.5 < comparison.difference.low < 0.0
    assert 0.1 < comparison.difference.high < 0.5
    assert comparison.probability == 1.0


def test_no_difference_is_larger_than_returns_can_differ(small):
    """Two seeds that differ by 1 and by 0: Student's interval alone would be from -6 to 7."""
    run = load_run(small)
    run = replace(run, run={**run.run, "family": {**run.family, "lowest_return": 0.0}})
    seeds = [replace(own, seed=seed) for own, seed in zip(run.curves, (0, 0, 1, 1), strict=True)]
    ours, theirs = (with_returns(replace(run, curves=tuple(seeds)), own) for own in ([1.0] * 4, [0.0, 0.0, 1.0, 1.0]))
    found = compare_runs(ours, theirs).difference
    assert (found.value, found.low, found.high) == (pytest.approx(0.5), -1.0, 1.0), "returns are from 0 to 1"


def test_two_that_do_not_differ_may_do_so_either_way(small):
    run = load_run(small)
    for last in (
        1.0 - 1e-7,
        0.98,
        0.9,
    ):  # all solve the same tasks: which of them is better there says nothing of others
        ours, theirs = with_returns(run, [0.5, 0.5, 1.0, 1.0]), with_returns(run, [0.5, 0.5, 1.0, last])
        one, other = compare_runs(ours, theirs).difference, compare_runs(theirs, ours).difference
        assert one.low == pytest.approx(-other.high) and one.high == pytest.approx(-other.low)
        assert -0.5 < one.low < -0.05 and 0.05 < one.high < 0.5


def test_an_interval_turned_round_is_that_of_the_difference_turned_round():
    """Also where every difference is exactly half of the step between the levels."""
    for differences in (np.full(5, 0.25), np.array([0.0, 0.25, -0.25, 0.5, 0.0]), np.array([-0.5, 0.1, 0.0, 0.0, 0.0])):
        one, other = (paired_interval(sign * differences, np.zeros(5), Levels(0.5, 1.0)) for sign in (1, -1))
        assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))


def test_a_task_that_only_one_solves_says_which_way_others_may_go(small):
    run = load_run(small)
    ours, theirs = with_returns(run, [1.0, 1.0, 1.0, 1.0]), with_returns(run, [0.5, 0.5, 0.5, 0.5])
    one, other = compare_runs(ours, theirs).difference, compare_runs(theirs, ours).difference
    assert 0.0 < one.low < 0.5 and one.high == pytest.approx(0.5)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))


@pytest.mark.parametrize("correlation", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shares", [(0.97, 0.97), (0.97, 0.9), (0.99, 0.95), (0.99, 0.8), (0.9, 0.5), (0.97, 0.3)])
def test_intervals_of_differences_hold_the_truth(shares, correlation):
    """Of two that solve some shares of three seeds' five tasks, at levels that are noisy."""
    random, size, strength = np.random.default_rng(0), 400, 1 / correlation - 1
    chances = [random.beta(share * strength, (1 - share) * strength, size=(size, 3, 1)) for share in shares]
    ours, theirs = ((random.random((size, 3, 5)) < chance) + random.normal(0, 0.03, (size, 3, 5)) for chance in chances)
    seeds, truth = np.repeat(np.arange(3), 5), shares[0] - shares[1]
    found = [paired_interval(one.ravel(), seeds, Levels(0.0, 1.0)) for one in ours - theirs]
    covered = np.mean([one.low <= truth <= one.high for one in found])
    assert covered >= 0.88, f"{covered:.1%} of nominal 95%"


def test_other_test_tasks_are_compared_as_samples(small):
    run = load_run(small)
    ours, theirs = with_returns(run, [0.2, 0.5, 0.8, 1.0]), with_returns(run, [0.1, 0.4, 0.7, 0.9])
    other_seed = replace(theirs, curves=tuple(replace(curve, seed=9) for curve in theirs.curves))
    comparison = compare_runs(ours, other_seed)
    assert (comparison.shared, comparison.complete) == (0, False)
    assert comparison.difference.value == pytest.approx(0.1)
    assert comparison.difference.low < 0 < comparison.difference.high
    assert comparison.probability == pytest.approx(10 / 16)


def test_tasks_of_older_results_are_known_by_their_labels(small):
    run = load_run(small)
    exact = [{**task, "target": [[number]]} for number, task in enumerate(run.run["test_tasks"])]
    ours = replace(with_returns(run, [0.2, 0.5, 0.8, 1.0]), run={**run.run, "test_tasks": exact})
    old = [{name: value for name, value in task.items() if name != "target"} for task in exact]
    theirs = replace(with_returns(run, [0.1, 0.4, 0.7, 0.9]), run={**run.run, "test_tasks": old})
    for comparison in (compare_runs(ours, theirs), compare_runs(theirs, ours)):
        assert (comparison.shared, comparison.complete) == (4, True)


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


def test_summary_by_hand():
    rows = [eval_row(0, 100 * n, value) for n, value in enumerate([0, 2, 2, 2, 2, 2], start=1)]
    rows += [eval_row(1, 100 * n, value, groups={"k=2": 2 * value}) for n, value in enumerate([1.0, 1.25], start=1)]
    summary = summarize(run_json(), rows, env_steps=800, meta_env_steps=200, wall_seconds=4.0, run_dir="runs/x")
    groups = [{}, {"k=2": 2.5}]
    # Two tasks of one seed: Student's quantile of one degree of freedom; no mean is above the optimum.
    assert summary.pop("ci_low") == pytest.approx(1.625 - 12.7062 * 0.375, abs=1e-4)
    assert summary.pop("ci_high") == 2.0
    share = (summary.pop("optimal_fraction_low"), summary.pop("optimal_fraction_high"))
    assert share == pytest.approx((0.0760, 0.9240), abs=1e-3)  # Wilson of a half, among 1.5 independent tasks
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
        "area_under_curve": pytest.approx((1.8 + 1.125) / 2),
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
        "env_steps_per_second": 250.0,  # the clock is of all stages: (800 + 200) / 4
        "run_dir": "runs/x",
    }


@pytest.mark.parametrize(
    ("facts", "low"),
    [({}, -3.14), ({"lowest_return": 0.0}, 0.0), ({"delta": 0.5}, 0.0), ({"lowest_return": -1.0}, -1.0)],
)
def test_no_mean_is_below_the_lowest_return_where_that_is_known(facts, low):
    run = run_json()
    run["family"] |= facts
    rows = [eval_row(0, 100, 2.0), eval_row(1, 100, 1.25)]
    summary = summarize(run, rows, env_steps=1, meta_env_steps=0, wall_seconds=1.0, run_dir="")
    assert (summary["ci_low"], summary["ci_high"]) == (pytest.approx(low, abs=0.01), 2.0)


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


def test_runs_are_counted_as_runs_though_shares_are_of_tasks(tmp_path: Path):
    """Three repeats of one task that are solved and one of another that is not are three of four runs."""
    run = load_run(write_run(tmp_path / "run", FakeRun(num_tasks=2, repeats=2)))
    uneven = replace(run, curves=(*run.curves[:3], replace(run.curves[3], task=run.curves[0].task)))
    returns = [1.0, 1.0, 0.0, 1.0]
    assert solved_runs(with_returns(uneven, returns)) == 3
