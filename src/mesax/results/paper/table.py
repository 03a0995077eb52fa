"""Table 2 of the paper with intervals: methods x environments, and what the first row gains over the best baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mesax.formatting import NOTHING, format_count, format_interval, format_number
from mesax.results.curves import area_under_curves, mean_steps_to_optimal
from mesax.results.evidence.kept import Kept
from mesax.results.labels import PRIVILEGED
from mesax.results.paper.cells import SEEDS, Found
from mesax.results.summary import compare_runs, final_interval
from mesax.results.tables import Table
from mesax.store.reading import RunResults

STALE = "†"
MISSING = "missing"
Paper = Mapping[str, Mapping[str, tuple[float, float]]]
"""The paper's own table: mean and ±, by row and environment."""


def by_place(found: Sequence[Found]) -> dict[tuple[str, str], Found]:
    """Cells by row and column."""
    return {(one.label, one.cell.env): one for one in found}


def result_table(found: Sequence[Found], paper: Paper, intervals: bool = True) -> Table:
    """A row for each method, a column for each environment; the paper's own rows follow."""
    envs, places = _envs(found), by_place(found)
    rows = [
        (_row_name(label, found), *(_cell(places.get((label, env)), intervals) for env in envs))
        for label in dict.fromkeys(one.label for one in found)
    ]
    rows += [
        (f"{name}, in the paper", *(_published(values.get(env), intervals) for env in envs))
        for name, values in paper.items()
    ]
    return Table("Final return on unseen tasks", ("method", *envs), tuple(rows), _note(found, intervals))


def _envs(found: Iterable[Found]) -> list[str]:
    return list(dict.fromkeys(one.cell.env for one in found))


def _row_name(label: str, found: Sequence[Found]) -> str:
    privileged = any(one.cell.kind == "privileged" for one in found if one.label == label)
    return f"{label} {PRIVILEGED}" if privileged else label


def _cell(one: Found | None, intervals: bool) -> str:
    if one is None:
        return NOTHING
    if not one.shown:
        return MISSING
    run, number = one.shown[0], len(one.runs or one.stale)
    interval = final_interval(run)
    text = format_interval(interval.value, interval.low, interval.high) if intervals else format_number(interval.value)
    seeds = "" if number == len(SEEDS) else f" ({number} seed{'s' * (number != 1)})"
    return f"{text}{'' if one.runs else STALE}{seeds if intervals else ''}"


def _published(value: tuple[float, float] | None, intervals: bool) -> str:
    if value is None:
        return NOTHING
    return f"{value[0]:g} ± {value[1]:g}" if intervals else f"{value[0]:g}"


def _note(found: Sequence[Found], intervals: bool) -> str:
    note = "Mean final return" + (" with its 95% interval over seeds and tasks" if intervals else "")
    note += f"; seeds {', '.join(map(str, SEEDS))} unless a number of seeds is given. "
    if any(not one.runs and one.stale for one in found):
        note += f"{STALE}: stale, made with other settings than today's or nobody knows with which. "
    if any(not one.shown for one in found):
        note += f"{MISSING}: not run yet. "
    note += f"{NOTHING}: no such cell."
    if intervals and any(one.cell.kind == "privileged" for one in found):
        note += f" {PRIVILEGED}: told what every task asks for."
    return note


def gain_table(found: Sequence[Found]) -> Table:
    """What the first row gains over the best baseline of each environment, and how soon it is there."""
    rows = tuple(_gain(env, [one for one in found if one.cell.env == env]) for env in _envs(found))
    columns = ("environment", "best baseline", "gain [95% interval]", "probability of improvement", "steps to optimum")
    note = (
        "Best baseline: the highest mean of all methods that are neither controls nor privileged. Probability that ours"
        " has the higher return on a task, ties count half. Steps until the mean over all task runs is at the optimum,"
        " and in brackets the mean return over all of learning (area under the curve)."
    )
    if any(STALE in row[1] for row in rows):
        note += f" {STALE}: stale."
    return Table("What MESA gains", (*columns, "area under the curve"), rows, note)


def _gain(env: str, found: Sequence[Found]) -> tuple[str, ...]:
    ours = next((one.shown[0] for one in found if one.cell.kind == "ours" and one.shown), None)
    if ours is None:
        return (env, *[NOTHING] * 5)
    soon = format_count(_steps(ours)), format_number(area_under_curves(ours.curves))
    baselines = [one for one in found if one.cell.kind == "baseline" and one.shown]
    if not baselines:
        return (env, NOTHING, NOTHING, NOTHING, *soon)
    best = max(baselines, key=lambda one: float(one.shown[0].final_returns.mean()))
    compared = compare_runs(ours, best.shown[0])
    gain = format_interval(compared.difference.value, compared.difference.low, compared.difference.high, signed=True)
    return (env, f"{best.label}{'' if best.runs else STALE}", gain, f"{compared.probability:.0%}", *soon)


def _steps(run: RunResults) -> int | None:
    return mean_steps_to_optimal(run.curves, run.family["optimal_threshold"])


def task_list(kept: Sequence[Kept]) -> Table:
    """Final returns of every task, one row for each result."""
    rows = tuple(
        (
            one.method,
            one.env,
            str(one.seed),
            ", ".join(format_number(float(task["final_return"])) for task in one.facts["per_task"]),
        )
        for one in kept
    )
    return Table("Task by task", ("method", "environment", "seed", "final returns"), rows)
