"""What is said of a run in numbers, and of two runs against each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from mesax.errors import UsageError
from mesax.formatting import format_number
from mesax.results.curves import (
    area_under_curves,
    group_means,
    mean_steps_to_optimal,
    places,
    steps_to_optimal,
    steps_to_solve,
)
from mesax.results.intervals import (
    Interval,
    Levels,
    difference_interval,
    interquartile_mean,
    mean_interval,
    probability_of_improvement,
    share_interval,
)
from mesax.results.returns import levels_of, lowest_return, returns_interval
from mesax.store.json_values import Json
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY, Curve, RunResults, curves_from_rows, final_return

WHERE_TO_LOOK = "docs/methods/mesa.md, When it fails"
CLEARLY_LESS = 0.9
"""Both are means of a few hundred episodes: a smaller share than this of what random play meets is no accident."""


def summarize(
    run: Json,
    eval_rows: Iterable[Json],
    *,
    env_steps: int,
    meta_env_steps: int,
    wall_seconds: float,
    run_dir: str,
    metrics: Iterable[Json] = (),
    coverage: Json | None = None,
) -> Json:
    """The object of summary.json, which is also what `--json` prints; with all that a run has left, more of it."""
    curves = curves_from_rows(run, eval_rows)
    if not curves:
        raise UsageError("there is nothing to summarize: no test task has been evaluated")
    family, figures = run["family"], _returns(run["family"], curves)
    cut_short = max((row.get("cut_short", 0.0) for row in metrics), default=0.0)
    return {
        **{key: run[key] for key in ("method", "env", "preset", "seed")},
        "env_steps": int(env_steps),
        "meta_env_steps": int(meta_env_steps),
        **figures,
        "normalized_return": figures["mean_return"] / float(family["optimal_return"]),
        "per_task": [_task_summary(curve, family["optimal_threshold"]) for curve in curves],
        "wall_seconds": float(wall_seconds),
        # The clock is that of all stages, so the steps must be.
        "env_steps_per_second": float((env_steps + meta_env_steps) / wall_seconds) if wall_seconds > 0 else 0.0,
        "run_dir": str(run_dir),
        # Counted, not hidden: an engine that diverges, or a time limit of the environment's own.
        **({"largest_cut_short": cut_short} if cut_short > 0 else {}),
        **({} if coverage is None else {"explorers": explorer_figures(coverage)}),
    }


def _returns(family: Json, curves: Sequence[Curve]) -> Json:
    """What final returns come to: the numbers that a summary and a comparison have in common, under their one name."""
    finals = np.array([final_return(curve.returns) for curve in curves])
    interval = returns_interval(family, finals, *places(curves))
    solved = share_interval(finals >= family["optimal_threshold"], *places(curves))
    return {
        "mean_return": interval.value,
        "std_return": float(finals.std()),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "iqm": float(interquartile_mean(finals)),
        "optimal_fraction": solved.value,
        "optimal_fraction_low": solved.low,
        "optimal_fraction_high": solved.high,
        "area_under_curve": area_under_curves(curves),
        "by_group": group_means(curves),
        **_zero_shot(curves),
    }


def final_interval(run: RunResults) -> Interval:
    """The mean final return with its interval over seeds, tasks and repeats."""
    return returns_interval(run.family, run.final_returns, run.tasks, run.seeds)


def solved_interval(run: RunResults) -> Interval:
    """The share of task runs whose final return is at the optimum."""
    return share_interval(run.final_returns >= run.family["optimal_threshold"], run.tasks, run.seeds)


def solved_runs(run: RunResults) -> int:
    """How many task runs end at the optimum."""
    return int(np.sum(run.final_returns >= run.family["optimal_threshold"]))


def run_figures(run: RunResults) -> Json:
    """What a comparison says of a run, or of several pooled ones: a row of its table as plain numbers."""
    threshold = run.family["optimal_threshold"]
    solved = [steps for curve in run.curves if (steps := steps_to_solve(curve, threshold)) is not None]
    return _returns(run.family, run.curves) | {
        "steps_to_solve": float(np.median(solved)) if solved else None,
        "steps_to_optimum": mean_steps_to_optimal(run.curves, threshold),
        "wall_seconds": run.summary.get("wall_seconds"),
        "env_steps": run.summary.get("env_steps"),
        "meta_env_steps": run.summary.get("meta_env_steps"),
        "task_runs": len(run.curves),
    }


def explorer_figures(coverage: Json) -> Json:
    """What the explorers reach on unseen tasks, compared with uniform play, from coverage.json."""
    names = ("distinct_visits", "high_reward_steps")
    figures = {
        visitor["name"]: {name: visitor[name] for name in names} | _worst_target(visitor)
        for visitor in coverage["visitors"]
    }
    return {"visitors": figures, "leaks": coverage.get("leaks")}


def signs(run: RunResults) -> list[str]:
    """Signs of why tasks were left unsolved, a sentence each; none if there is nothing to explain, or to know."""
    if solved_runs(run) == len(run.curves):
        return []
    return [sign for sign in (_collected(run), _reached(run)) if sign is not None]


def _collected(run: RunResults) -> str | None:
    """Training tasks on which stage 1 found nothing."""
    pairs = {row["task"]: row["high_reward_pairs"] for row in run.metrics if "high_reward_pairs" in row}
    without = sum(not number for number in pairs.values())
    if not without:
        return None
    return (
        f"stage 1 found no high reward on {without} of {len(pairs)} training tasks: nothing is learned of where these"
        " pay (collect longer: --method.collect.total-steps)"
    )


def _reached(run: RunResults) -> str | None:
    """Whether explorers meet the high reward of unseen tasks clearly less often than random play does, or never."""
    steps = {one["name"]: one["high_reward_steps"] for one in (run.coverage or {}).get("visitors", ())}
    uniform = steps.pop(UNIFORM_PLAY, None)
    together = steps.get(ALL_EXPLORERS, max(steps.values(), default=None))
    if uniform is None or together is None or together > CLEARLY_LESS * uniform:
        return None
    if not uniform:
        return f"neither explorers nor random play meet the high reward of unseen tasks; see {WHERE_TO_LOOK}"
    return (
        f"explorers meet the high reward of unseen tasks in {format_number(together)} steps an episode, fewer than"
        f" random play ({format_number(uniform)}); see {WHERE_TO_LOOK}"
    )


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
    by = identity_of_tasks([run, other])
    ours, theirs = finals_by_task(run, by), finals_by_task(other, by)
    shared = [task for task in ours if task in theirs]
    if len(shared) < min(2, len(ours), len(theirs)) or not shared:  # a single pair of many would have no interval
        found = difference_interval(*(_unbounded_interval(one) for one in (run, other)))
        return Comparison(found, probability_of_improvement(run.final_returns, other.final_returns), shared=0)
    pairs = [(ours[task], theirs[task]) for task in shared]
    differences = np.array([one.returns.mean() - another.returns.mean() for one, another in pairs])
    probability = float(np.mean([probability_of_improvement(one.returns, another.returns) for one, another in pairs]))
    complete = len(shared) == len(ours) == len(theirs)
    seeds = np.array([one.seed for one, _ in pairs])
    found = _possible(paired_interval(differences, seeds, levels_of(run.family)), run.family)
    return Comparison(found, probability, len(shared), complete)


def _possible(difference: Interval, family: Json) -> Interval:
    """No difference is expected to be larger than that of the best return and the lowest one, where these are known."""
    lowest = lowest_return(family)
    if lowest is None or levels_of(family) is None:
        return difference
    most = float(family["optimal_return"]) - lowest
    low, high = max(difference.low, -most), min(difference.high, most)
    return replace(difference, low=min(difference.value, low), high=max(difference.value, high))


def _unbounded_interval(run: RunResults) -> Interval:
    """Interval of the mean final return, not cut at the best one: a difference would lack what is cut off there."""
    return mean_interval(run.final_returns, run.tasks, run.seeds, levels_of(run.family))


def paired_interval(differences: np.ndarray, seeds: np.ndarray, levels: Levels | None) -> Interval:
    """The mean of the differences, task by task; with levels, tasks that only one solves may be rarer or commoner.

    It is whichever has more of them, or either if both have as many, or none: a small difference between two that solve
    the same tasks does not say which of them will leave another one unsolved.
    """
    if levels is None:
        return mean_interval(differences, seeds=seeds)
    gap = levels.best - levels.safe
    # Seen from the other side, so that the interval of -differences is this one turned round.
    better, worse = (mean_interval(sign * differences, seeds=seeds, levels=Levels(0, gap)) for sign in (1, -1))
    more, fewer = np.sum(differences >= gap / 2), np.sum(-differences >= gap / 2)
    low = better.low if more > fewer else -worse.high
    return replace(better, low=low, high=-worse.low if fewer > more else better.high)


Identity: TypeAlias = Literal["target", "label"]
"""What a task is known by."""
OWN_LABEL = "own_label"
"""Entry of a task whose label names its seed too, because it stands among tasks of others."""


class TaskFinals(NamedTuple):
    """Final returns of the repeats of one test task."""

    seed: int
    returns: np.ndarray


def identity_of_tasks(runs: Sequence[RunResults]) -> Identity:
    """What tasks of all these say of themselves: exactly what they ask for; older results have labels only."""
    return "target" if all("target" in task for run in runs for task in run.run["test_tasks"]) else "label"


def finals_by_task(run: RunResults, by: Identity | None = None) -> dict[str, TaskFinals]:
    """Final returns of each test task, by what makes it the same task in another run: family, seed, target or label."""
    by = by or identity_of_tasks([run])
    found: dict[str, TaskFinals] = {}
    for curve, value in zip(run.curves, run.final_returns, strict=True):
        task = run.run["test_tasks"][curve.task]
        known_by = task["target"] if by == "target" else task.get(OWN_LABEL, task["label"])
        identity = json.dumps([run.run["env"], curve.seed, known_by])
        before = found.get(identity, TaskFinals(curve.seed, np.empty(0)))
        found[identity] = TaskFinals(curve.seed, np.append(before.returns, value))
    return found
