"""What is said of a run in numbers, and of two runs against each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mesax.errors import UsageError
from mesax.results.curves import group_means, mean_steps_to_optimal, optimal_fraction, steps_to_optimal
from mesax.results.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_interval,
    interquartile_mean,
    percentile_interval,
    probability_of_improvement,
)
from mesax.store.json_values import Json
from mesax.store.reading import Curve, RunResults, curves_from_rows, final_return


def summarize(
    run: Json,
    eval_rows: Iterable[Json],
    *,
    env_steps: int,
    meta_env_steps: int,
    wall_seconds: float,
    run_dir: str,
) -> Json:
    """The object of summary.json, which is also what `--json` prints."""
    curves = curves_from_rows(run, eval_rows)
    if not curves:
        raise UsageError("there is nothing to summarize: no test task has been evaluated")
    family, finals = run["family"], np.array([final_return(curve.returns) for curve in curves])
    interval = bootstrap_interval(finals, np.array([curve.task for curve in curves]))
    return {
        **{key: run[key] for key in ("method", "env", "preset", "seed")},
        "env_steps": int(env_steps),
        "meta_env_steps": int(meta_env_steps),
        "mean_return": interval.value,
        "std_return": float(finals.std()),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "iqm": float(interquartile_mean(finals)),
        "normalized_return": interval.value / float(family["optimal_return"]),
        "optimal_fraction": optimal_fraction(finals, family["optimal_threshold"]),
        "by_group": group_means(curves),
        **_zero_shot(curves),
        "per_task": [_task_summary(curve, family["optimal_threshold"]) for curve in curves],
        "wall_seconds": float(wall_seconds),
        "env_steps_per_second": float(env_steps / wall_seconds) if wall_seconds > 0 else 0.0,
        "run_dir": str(run_dir),
    }


def run_figures(run: RunResults) -> Json:
    """What a comparison says of a run, or of several pooled ones: a row of its table as plain numbers."""
    finals, threshold = run.final_returns, run.family["optimal_threshold"]
    interval = bootstrap_interval(finals, run.tasks)
    reached = [steps_to_optimal(curve.steps, curve.returns, threshold) for curve in run.curves]
    solved = [steps for steps in reached if steps is not None]
    return {
        "mean": interval.value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "iqm": float(interquartile_mean(finals)),
        "std": float(finals.std()),
        "by_group": group_means(run.curves),
        **_zero_shot(run.curves),
        "optimal_fraction": optimal_fraction(finals, threshold),
        "steps_to_solve": float(np.median(solved)) if solved else None,
        "steps_to_optimum": mean_steps_to_optimal(run.curves, threshold),
        "wall_seconds": run.summary.get("wall_seconds"),
        "env_steps": run.summary.get("env_steps"),
        "meta_env_steps": run.summary.get("meta_env_steps"),
        "task_runs": len(run.curves),
    }


def explorer_figures(coverage: Json) -> Json:
    """What the explorers reach on unseen tasks, beside uniform play, from coverage.json."""
    names = ("distinct_visits", "high_reward_steps")
    figures = {
        visitor["name"]: {name: visitor[name] for name in names} | _worst_target(visitor)
        for visitor in coverage["visitors"]
    }
    return {"visitors": figures, "leaks": coverage.get("leaks")}


def _worst_target(visitor: Json) -> Json:
    """The unseen task and target that a visitor leaves out most."""
    worst = (visitor.get("targets") or {}).get("worst")
    return {} if worst is None else {"worst_target": worst}


def _zero_shot(curves: Sequence[Curve]) -> Json:
    """The mean return before the first update, of learners that had learned on training tasks; else nothing."""
    found = [curve.zero_shot for curve in curves if curve.zero_shot is not None]
    return {"zero_shot_return": float(np.mean(found))} if found else {}


def _task_summary(curve: Curve, threshold: float) -> Json:
    return {
        "task": curve.task,
        "label": curve.label,
        "repeat": curve.repeat,
        "final_return": final_return(curve.returns),
        **({} if curve.zero_shot is None else {"zero_shot_return": curve.zero_shot}),
        "steps_to_optimal": steps_to_optimal(curve.steps, curve.returns, threshold),
        "groups": {name: final_return(values) for name, values in curve.groups.items()},
    }


@dataclass(frozen=True)
class Comparison:
    """How much better one run is than another."""

    difference: Interval
    probability: float
    shared: int
    """Test tasks that both have learned: the comparison is over these, pair by pair; 0: over all, as two samples."""
    complete: bool = False
    """Whether neither run has any other test task."""


def compare_runs(run: RunResults, other: RunResults) -> Comparison:
    """The difference of mean final returns: task by task over the test tasks of both, if there are any."""
    ours, theirs = finals_by_task(run), finals_by_task(other)
    pairs = [(ours[task], theirs[task]) for task in ours if task in theirs]
    if len(pairs) < min(2, len(ours), len(theirs)) or not pairs:  # a single pair of many would have no interval
        return _compare_unpaired(run.final_returns, other.final_returns)
    differences = np.array([one.mean() - another.mean() for one, another in pairs])
    probability = float(np.mean([probability_of_improvement(*pair) for pair in pairs]))
    complete = len(pairs) == len(ours) == len(theirs)
    return Comparison(bootstrap_interval(differences), probability, len(pairs), complete)


def finals_by_task(run: RunResults) -> dict[str, np.ndarray]:
    """Final returns of each test task, by what makes it the same task in another run: family, seed, target."""
    found: dict[str, list[float]] = {}
    for curve, value in zip(run.curves, run.final_returns, strict=True):
        task = run.run["test_tasks"][curve.task]
        what = task["target"] if "target" in task else task["label"]
        identity = json.dumps([run.run["env"], task.get("seed", run.run["seed"]), what])
        found.setdefault(identity, []).append(value)
    return {identity: np.array(values) for identity, values in found.items()}


def _compare_unpaired(scores: np.ndarray, others: np.ndarray) -> Comparison:
    def difference(ours: np.ndarray, theirs: np.ndarray, axis: int = 0) -> np.ndarray:
        return ours.mean(axis=axis) - theirs.mean(axis=axis)

    value = low = high = difference(scores, others)
    if min(scores.size, others.size) >= 2 and max(np.ptp(scores), np.ptp(others)) > 0:
        low, high = percentile_interval((scores, others), difference, RESAMPLES)
    interval = Interval(float(value), float(low), float(high))
    return Comparison(interval, probability_of_improvement(scores, others), shared=0)
