"""Table 2 of the paper with intervals: methods x environments, and what the first row gains over the best baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mesax.formatting import NOTHING, format_count, format_interval, format_number
from mesax.results.curves import area_under_curves, mean_steps_to_optimal
from mesax.results.labels import OUTDATED, OUTDATED_NOTE, PRIVILEGED
from mesax.results.summary import Comparison, compare_runs, final_interval, solved_interval, solved_runs
from mesax.results.tables import WILSON, Table
from mesax.store.reading import RunResults
from paper.cells import SEEDS, Found

MISSING = "missing"
NOT_RUN = f"{MISSING}: not run yet."
NOT_PLANNED = "no run of it is planned"
Paper = Mapping[str, Mapping[str, tuple[float, float]]]
"""The paper's own table: mean and ±, by row and environment."""


def by_place(found: Sequence[Found]) -> dict[tuple[str, str], Found]:
    """Cells by row and column."""
    return {(one.label, one.cell.env): one for one in found}


def result_table(found: Sequence[Found], paper: Paper) -> Table:
    """A row for each method, a column for each environment, with intervals; the paper's own rows follow."""
    envs, places = _envs(found), by_place(found)
    rows = [
        (label, *(_cell(places.get((label, env))) for env in envs))
        for label in dict.fromkeys(one.label for one in found)
    ]
    for name, values in paper.items():
        rows.append(
            (f"{name}, in the paper", *(f"{mean:g} ± {spread:g}" for mean, spread in (values[env] for env in envs)))
        )
    note = f"Mean final return over seeds {', '.join(map(str, SEEDS))} unless a number of seeds is given, with its 95%"
    note += " interval over seeds and tasks. Intervals allow for outcomes that a few tasks have not shown, so 30 of 30"
    note += " solved is not 100%; in simulations of three seeds of five to ten tasks they cover about 90% or more."
    note += " That of one seed is over its tasks alone, and says nothing of other seeds."
    note += _marks(rows, NOT_PLANNED)
    note += " ±: as the paper prints it, which does not say of what." if paper else ""
    note += f" {NOT_RUN}" if any(not one.shown for one in found) else ""
    note += f" {PRIVILEGED}: told the task's secret (Goal), or all places that may pay (the tour)."
    return Table("Final return on unseen tasks", ("method", *envs), tuple(rows), note)


def mean_table(found: Sequence[Found], paper: Paper) -> Table:
    """The same in short: means, of methods that have been run somewhere."""
    envs, places = _envs(found), by_place(found)
    labels = list(dict.fromkeys(one.label for one in found))
    there = [label for label in labels if any(one.shown for one in found if one.label == label)]
    rows = [(label, *(_mean(places.get((label, env))) for env in envs)) for label in there]
    rows += [(f"{name}, in the paper", *(f"{values[env][0]:g}" for env in envs)) for name, values in paper.items()]
    note = (
        f"Means over seeds {', '.join(map(str, SEEDS))} unless a number of seeds is given.{_marks(rows, NOT_PLANNED)}"
    )
    note += f" {NOT_RUN}" if any(MISSING in row for row in rows) else ""
    left_out = [label for label in labels if label not in there]
    note += f" Not run yet: {', '.join(left_out)}." if left_out else ""
    return Table("Final return on unseen tasks", ("method", *envs), tuple(rows), note)


def _envs(found: Iterable[Found]) -> list[str]:
    return list(dict.fromkeys(one.cell.env for one in found))


def _cell(one: Found | None) -> str:
    if one is None:
        return NOTHING
    if not one.shown:
        return MISSING
    interval = final_interval(one.shown[0])
    return f"{format_interval(interval.value, interval.low, interval.high)}{_mark(one)}{one.fewer_seeds}"


def _mean(one: Found | None) -> str:
    if one is None:
        return NOTHING
    if not one.shown:
        return MISSING
    return f"{format_number(float(one.shown[0].final_returns.mean()))}{_mark(one)}{one.fewer_seeds}"


def _mark(one: Found) -> str:
    return "" if one.runs else OUTDATED


def _marks(rows: Iterable[Sequence[str]], nothing: str = "") -> str:
    """What the signs in a table's cells mean, a dash among them; nothing of signs that it does not have."""
    cells = [cell for row in rows for cell in row]
    marks = f" {OUTDATED_NOTE}" * any(OUTDATED in cell for cell in cells)
    return marks + f" {NOTHING}: {nothing}." * (NOTHING in cells)


def gain_table(found: Sequence[Found]) -> Table:
    """What the first row gains over the best baseline of each environment, how often and how soon it is there."""
    rows = tuple(_gain(env, [one for one in found if one.cell.env == env]) for env in _envs(found))
    columns = ("environment", "solved", "steps to optimum", "area under the curve", "best baseline")
    note = (
        "Solved: task runs of ours whose final return is 0.95 or more in climb games, 60 or more (of 80) in particle"
        f" worlds, 750 or more (of 1000) on the swimmer, with {WILSON}. Steps until the mean over all task"
        " runs is first there, if it ends there; area under the curve: the mean return over all of learning. Best"
        " baseline: the highest mean of all methods that are neither MESA, controls nor privileged, nor unverified or"
        " stale unless all are, over as many tasks as it has been run on. Probability that ours has the"
        " higher return on the same task, by however little, even if both solve it; ties count half."
        + _marks(rows, "never, or not run")
    )
    return Table("What MESA gains", (*columns, "gain [95% interval]", "probability of improvement"), rows, note)


def _gain(env: str, found: Sequence[Found]) -> tuple[str, ...]:
    ours = next((one for one in found if one.cell.kind == "ours" and one.shown), None)
    if ours is None:
        return (env, *[NOTHING] * 6)
    run = ours.shown[0]
    share, number = solved_interval(run), len(run.curves)
    solved = f"{solved_runs(run)} of {number} [{share.low:.0%}, {share.high:.0%}]{_mark(ours)}"
    whole = all(len(curve.steps) > 1 for curve in run.curves)  # results of before have no curves
    soon = (format_count(_steps(run)), format_number(area_under_curves(run.curves))) if whole else (NOTHING, NOTHING)
    baselines = [one for one in found if one.cell.kind == "baseline" and one.shown]
    baselines = [one for one in baselines if one.runs] or baselines  # what was made with other settings does not count
    if not baselines:
        return (env, solved, *soon, NOTHING, NOTHING, NOTHING)
    best = max(baselines, key=lambda one: float(one.shown[0].final_returns.mean()))
    compared = compare_runs(run, best.shown[0])
    name = f"{best.label}{_mark(best)}{best.fewer_seeds}"
    return (env, solved, *soon, name, f"{_difference(compared)}{ours.fewer_seeds}", f"{compared.probability:.0%}")


def controls_table(found: Sequence[Found]) -> Table:
    """What the first row gains over each control: the learner that MESA wraps, without and with other episodes."""
    controls = list(dict.fromkeys(one.label for one in found if one.cell.kind == "control"))
    rows = []
    for env in _envs(found):
        own = {one.label: one for one in found if one.cell.env == env and one.shown}
        ours = next((one for one in own.values() if one.cell.kind == "ours"), None)
        rows.append((env, *(gain_over(ours, own.get(label)) for label in controls)))
    note = (
        "Mean final return of ours minus that of the control on the same tasks, with its 95% interval, which allows for"
    )
    note += f" tasks that either may leave unsolved.{_marks(rows, 'not run')}"
    return Table("What MESA gains over its controls", ("environment", *controls), tuple(rows), note)


def gain_over(ours: Found | None, other: Found | None) -> str:
    """What one gains over another on the same tasks, with its interval."""
    if ours is None or other is None:
        return NOTHING
    compared = compare_runs(ours.shown[0], other.shown[0])
    return f"{_difference(compared)}{_mark(other)}{other.fewer_seeds or ours.fewer_seeds}"


def _difference(compared: Comparison) -> str:
    found = compared.difference
    return f"{format_interval(found.value, found.low, found.high, signed=True)}{_over(compared)}"


def _over(compared: Comparison) -> str:
    """How many tasks a difference is over, where that is not all."""
    if compared.complete:
        return ""
    return f" ({compared.shared} tasks)" if compared.shared else " (no tasks in common)"


def _steps(run: RunResults) -> int | None:
    return mean_steps_to_optimal(run.curves, run.family["optimal_threshold"])
