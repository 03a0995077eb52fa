"""Curves of learners: on one grid of steps, their mean, when they reach the optimum, and their groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mesax.results.intervals import mean
from mesax.results.returns import returns_band
from mesax.store.reading import Curve, RunResults, final_return


def common_grid(steps: Sequence[np.ndarray]) -> np.ndarray:
    """All evaluation steps between the latest start and the earliest end: where every curve has a value."""
    union = np.unique(np.concatenate(steps))
    return union[(union >= max(one[0] for one in steps)) & (union <= min(one[-1] for one in steps))]


def align(
    steps: Sequence[np.ndarray], values: Sequence[np.ndarray], grid: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Curves on one step grid (default: the union of theirs), holding the last value; NaN outside a curve."""
    points = np.unique(np.concatenate(steps)) if grid is None else np.asarray(grid)
    rows = np.full((len(steps), len(points)), np.nan)
    for row, own_steps, own_values in zip(rows, steps, values, strict=True):
        inside = (points >= own_steps[0]) & (points <= own_steps[-1])
        row[inside] = own_values[np.searchsorted(own_steps, points[inside], side="right") - 1]
    return points, rows


def only_group(run: RunResults, group: str | None) -> RunResults:
    """The task runs in which a group of returns occurs, with these as their returns; without a name, the run itself."""
    if group is None:
        return run
    curves = [curve for curve in run.curves if group in curve.groups]
    return replace(run, curves=tuple(replace(curve, returns=curve.groups[group]) for curve in curves))


def mean_curve(run: RunResults) -> tuple[np.ndarray, ...]:
    """Steps, mean, low and high of a run's curves, as far as all of them reach."""
    if not run.curves:
        return tuple(np.empty(0) for _ in range(4))
    steps = [curve.steps for curve in run.curves]
    grid, rows = align(steps, [curve.returns for curve in run.curves], common_grid(steps))
    return grid, *returns_band(run.family, rows, *places(run.curves))


def places(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """The test task and the seed of every curve."""
    return np.array([curve.task for curve in curves]), np.array([curve.seed for curve in curves])


def steps_to_optimal(steps: np.ndarray, returns: np.ndarray, threshold: float) -> int | None:
    """The first evaluation step whose return reaches the threshold, or None; later ones may be below it again."""
    reached = np.flatnonzero(np.asarray(returns) >= threshold)
    return int(steps[reached[0]]) if reached.size else None


def steps_to_solve(curve: Curve, threshold: float) -> int | None:
    """The same of a task run whose final return is there; None of any other, which has not solved its task."""
    return steps_to_optimal(curve.steps, curve.returns, threshold) if final_return(curve.returns) >= threshold else None


def mean_steps_to_optimal(curves: Sequence[Curve], threshold: float) -> int | None:
    """The first step at which the mean over all task runs reaches the threshold, as far as all of them go, or None.

    None as well if the mean of their final returns is below it: such runs have not stayed there.
    """
    if np.mean([final_return(curve.returns) for curve in curves]) < threshold:
        return None
    steps = [curve.steps for curve in curves]
    grid, rows = align(steps, [curve.returns for curve in curves], common_grid(steps))
    return steps_to_optimal(grid, mean(rows), threshold)


def area_under_curves(curves: Sequence[Curve]) -> float:
    """The mean return over all of learning, from the first evaluation to the last: how soon as well as how far."""
    areas = [
        np.trapezoid(curve.returns, curve.steps) / np.ptp(curve.steps) if len(curve.steps) > 1 else curve.returns[0]
        for curve in curves
    ]
    return float(np.mean(areas))


def groups_of(runs: Sequence[RunResults]) -> list[str]:
    """Names of the groups that say more than the whole, in the family's order."""
    curves = [curve for run in runs for curve in run.curves]
    present = {name for curve in curves for name in curve.groups}
    if len(present) == 1 and all(np.array_equal([*c.groups.values()], [c.returns]) for c in curves):
        return []
    declared = [name for run in runs for name in run.family.get("groups") or []]
    return [name for name in dict.fromkeys([*declared, *sorted(present)]) if name in present]


def group_means(curves: Sequence[Curve]) -> dict[str, float]:
    """The mean final return of each group, over the task runs in which the group occurs."""
    names = sorted({name for curve in curves for name in curve.groups})
    return {
        name: float(np.mean([final_return(curve.groups[name]) for curve in curves if name in curve.groups]))
        for name in names
    }
