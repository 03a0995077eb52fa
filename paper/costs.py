"""What rows of a table cost, and after how many test tasks meta-training has paid for itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mesax.formatting import NOTHING, format_count, format_duration
from mesax.results.curves import steps_to_solve
from mesax.results.tables import Table
from mesax.store.reading import RunResults
from paper.cells import CORES, Found
from paper.table import by_place

ALONE = "learner alone"


def cost_table(found: Sequence[Found]) -> Table:
    """Processor time of a seed by method and world; steps on training tasks stand behind it."""
    envs, places = list(dict.fromkeys(one.cell.env for one in found)), by_place(found)
    labels = [label for label in dict.fromkeys(one.label for one in found) if _has_run(found, label)]
    rows = tuple((label, *(_cost(places.get((label, env))) for env in envs)) for label in labels)
    note = (
        "Processor time of a seed, all of its tasks together, on one core of the machine that ran it; in parentheses,"
        f" environment steps on training tasks. {NOTHING}: not run."
    )
    return Table("What a seed costs", ("method", *envs), rows, note)


def _has_run(found: Sequence[Found], label: str) -> bool:
    return any(one.seconds is not None for one in found if one.label == label)


def _cost(one: Found | None) -> str:
    if one is None or one.seconds is None:
        return NOTHING
    steps = _training_steps(one)
    return format_duration(CORES * one.seconds) + (f" ({format_count(round(steps))})" if steps else "")


def _training_steps(one: Found) -> float:
    """Environment steps on training tasks, the mean over seeds."""
    return float(np.mean([run.summary["meta_env_steps"] for run in one.runs.values()]))


def break_even_table(found: Sequence[Found]) -> Table:
    """After how many test tasks steps on training tasks are fewer than those that the learner alone takes longer."""
    places, rows = by_place(found), []
    for one in (one for one in found if one.cell.kind == "ours" and one.runs):
        alone = places.get((ALONE, one.cell.env))
        if alone is not None and alone.runs:
            rows.append((one.cell.env, one.label, *_break_even(one, alone)))
    columns = (
        "environment",
        "method",
        "steps on training tasks",
        "steps to solve a task",
        "learner alone",
        "break-even",
    )
    note = (
        "Steps to solve a task: until its evaluation is first at the optimum, the mean over the tasks of the seeds that"
        " both have; a task that ends unsolved counts with all the steps that it had. So where the learner alone leaves"
        " tasks unsolved (in parentheses, how many it solves), its number is too low and the break-even, steps on"
        " training tasks divided by steps saved on each test task, is at most what is printed. never: no step is saved."
    )
    return Table("When meta-training has paid for itself", columns, tuple(rows), note)


def _break_even(ours: Found, alone: Found) -> tuple[str, ...]:
    seeds = sorted(set(ours.runs) & set(alone.runs))
    if not seeds:
        return (format_count(round(_training_steps(ours))), NOTHING, NOTHING, NOTHING)
    (own, own_solved, number), (other, other_solved, others) = (
        _steps([one.runs[seed] for seed in seeds]) for one in (ours, alone)
    )
    training = _training_steps(ours)
    tasks = f"{math.ceil(training / (other - own))} tasks" if other > own else "never"
    told = f"{format_count(round(other))} ({other_solved} of {others})"
    return format_count(round(training)), f"{format_count(round(own))} ({own_solved} of {number})", told, tasks


def _steps(runs: Sequence[RunResults]) -> tuple[float, int, int]:
    """Mean steps until a task is solved, or until its end, and how many of how many are solved."""
    curves = [(curve, run.family["optimal_threshold"]) for run in runs for curve in run.curves]
    found = [steps_to_solve(curve, threshold) for curve, threshold in curves]
    steps = [int(curve.steps[-1]) if own is None else own for own, (curve, _) in zip(found, curves, strict=True)]
    return float(np.mean(steps)), sum(own is not None for own in found), len(curves)
