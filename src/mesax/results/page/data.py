"""What the report's script draws: curves, final returns, coverage and episodes as plain numbers. Needs no JAX."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from mesax.results.comparison import FamilyComparison
from mesax.results.curves import align, common_grid, groups_of, only_group, places
from mesax.results.figures import run_colors
from mesax.results.intervals import Interval, interquartile_band, interquartile_interval
from mesax.results.returns import named_levels, returns_band
from mesax.results.summary import final_interval
from mesax.results.tables import run_labels
from mesax.store.json_values import Json, json_ready
from mesax.store.reading import RunResults, final_return

MOST_POINTS = 120
"""Evaluations of a curve that are drawn; longer ones lose some in between."""
DIGITS = 4
EVERYTHING = ""
"""Stands for all tasks, where a group of them could be chosen."""


def embedded(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or begin another."""
    text = json.dumps(json_ready(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def family_data(family: FamilyComparison, links: Sequence[str]) -> Json:
    """The curves of a family: each method's with its intervals, and every task run's; `links` are those to cells."""
    members = family.runs
    groups = [EVERYTHING, *groups_of(members)]
    listed = zip(members, run_labels(members), run_colors(members), links, strict=True)
    return {
        "optimal": float(members[0].family["optimal_return"]),
        "levels": named_levels(members[0].family),
        "groups": groups,
        "methods": [
            {"label": label, "color": color, "href": link, **_method(run, groups)} for run, label, color, link in listed
        ],
    }


def _method(run: RunResults, groups: Sequence[str]) -> Json:
    grids: dict[bytes, int] = {}
    steps: list[list[int]] = []
    task_runs: list[Json] = []
    for curve in run.curves:
        kept = thinned(len(curve.steps))
        own = curve.steps[kept]
        if own.tobytes() not in grids:
            grids[own.tobytes()] = len(steps)
            steps.append([int(step) for step in own])
        name = curve.label if curve.repeat == 0 else f"{curve.label}, repeat {curve.repeat}"
        parts = {EVERYTHING: curve.returns} | {group: curve.groups[group] for group in groups if group in curve.groups}
        returns: dict[str, list[float] | bool] = {
            # True: those of all tasks, as the task is of this group alone.
            group: (bool(group) and np.array_equal(values, curve.returns)) or rounded(values[kept])
            for group, values in parts.items()
        }
        finals = {group: final_return(values) for group, values in parts.items()}
        task_runs.append({"label": name, "steps": grids[own.tobytes()], "returns": returns, "finals": finals})
    bands = {group: _bands(only_group(run, group or None)) for group in groups}
    return {"steps": steps, "runs": task_runs, "bands": {group: band for group, band in bands.items() if band}}


def _bands(run: RunResults) -> Json | None:
    """Mean and interquartile mean over the task runs with their intervals: along the curves, and at their ends."""
    if not run.curves:
        return None
    steps = [curve.steps for curve in run.curves]
    grid = common_grid(steps)
    grid = grid[thinned(len(grid))]
    _, rows = align(steps, [curve.returns for curve in run.curves], grid)
    of = places(run.curves)
    lines = {"mean": returns_band(run.family, rows, *of), "iqm": interquartile_band(rows, *of)}
    band: Json = {"steps": [int(step) for step in grid]}
    band |= {name: [rounded(part) for part in line] for name, line in lines.items()}
    return band | {f"{name}End": [end.value, end.low, end.high] for name, end in end_intervals(run).items()}


def end_intervals(run: RunResults) -> dict[str, Interval]:
    """Mean and interquartile mean of the final returns."""
    return {
        "mean": final_interval(run),
        "iqm": interquartile_interval(run.final_returns, *places(run.curves)),
    }


def thinned(number: int) -> np.ndarray:
    """Places of the points that are kept of so many: evenly, the first and the last among them."""
    if number <= MOST_POINTS:
        return np.arange(number)
    return np.unique(np.linspace(0, number - 1, MOST_POINTS).round().astype(int))


def rounded(values: np.ndarray) -> list[float]:
    """Four digits: more cannot be seen."""
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, float)]


def coverage_data(run: RunResults) -> Json | None:
    """What each visitor sees of each target on each unseen task; None if that was not counted pair by pair."""
    visitors = []
    for visitor in (run.coverage or {}).get("visitors", []):
        targets = visitor.get("targets") or {}
        if "steps" in targets:
            shown = {name: targets[name] for name in ("numbers", "steps", "chance", "stay", "worst")}
            visitors.append({"name": str(visitor["name"]), **shown})
    if not visitors:
        return None
    return {"visitors": visitors, "tasks": [str(task["label"]) for task in run.run["test_tasks"]]}


def player_data(run: RunResults, episodes: Json) -> Json:
    """Recorded episodes, with the tasks' names."""
    labels = [str(task["label"]) for task in run.run["test_tasks"]]
    kept = [play for play in episodes["plays"] if 0 <= play["task"] < len(labels)]
    return {"stages": episodes["stages"], "plays": kept, "tasks": labels}
