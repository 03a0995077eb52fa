"""Table 2 of the paper with intervals: methods x environments, and what MESA gains over baselines and controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mesax.formatting import NOTHING, format_count, format_interval, format_number
from mesax.results.curves import area_under_curves, mean_steps_to_optimal
from mesax.results.intervals import Interval
from mesax.results.labels import OUTDATED, OUTDATED_NOTE, PRIVILEGED
from mesax.results.summary import Comparison, compare_runs, final_interval, solved_interval, solved_runs
from mesax.results.tables import WILSON, Table
from mesax.store.reading import RunResults
from paper.cells import SCRIPTED, SEEDS, Found

MISSING = ""
NOT_RUN = "Empty: not run yet; `mesax reproduce NAME --plan` has the command and the cost of each."
NOT_PLANNED = "no run of it is planned"
THRESHOLDS = (
    "0.95 or more in climb games, 54.05 or more in particle worlds, 60 or more in wide ones, 748 or more on the"
    " swimmer, 750 or more on the wide one"
)
"""What counts as solved."""
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
    note += (
        " interval over seeds. Seeds are the unit, since tasks of a seed share a layout and explorers, and intervals"
    )
    note += (
        " allow for outcomes that a few seeds have not shown: 15 of 15 tasks is not 100%. In simulations of three and"
    )
    note += " five seeds of five tasks they cover 92% or more. One seed has no interval, nor have"
    note += " scripted teams."
    note += _marks(rows, NOT_PLANNED)
    note += " ±: as the paper prints it, which does not say of what." if paper else ""
    note += f" {NOT_RUN}" if any(not one.shown for one in found) else ""
    note += f" {PRIVILEGED}: told the task's secret, or all places that may pay (the tour)."
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
    if _is_one_seed(one) or one.cell.method in SCRIPTED:
        return _mean(one)
    return f"{format_interval(interval.value, interval.low, interval.high)}{_mark(one)}{one.fewer_seeds}"


def _is_one_seed(one: Found) -> bool:
    """Whether there is nothing to say of other seeds."""
    return len(one.runs or one.stale) == 1


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
    """What ours gain over the best baseline of each environment, how often and how soon they are there."""
    ours = [one for one in found if one.cell.kind == "ours"]
    rows = tuple(_gain(one, [other for other in found if other.cell.env == one.cell.env]) for one in _by_env(ours))
    columns = ("environment", "method", "solved", "steps to optimum", "area under the curve", "best baseline")
    note = (
        f"Solved: task runs of ours that end at the optimum ({THRESHOLDS}), with {WILSON}. Steps until the mean over"
        " all task runs is first there, if it ends there; area under the curve: the mean return over all of learning."
        " Best baseline: the highest mean of all methods that are neither MESA, controls nor privileged, nor unverified"
        " or stale unless all are, over as many tasks as it has been run on. Probability that ours has the higher"
        " return on the same task, by however little, even if both solve it; ties count half."
        + _marks(rows, "never, or not run")
    )
    return Table("What MESA gains", (*columns, "gain [95% interval]", "probability of improvement"), rows, note)


def _by_env(ours: Sequence[Found]) -> list[Found]:
    """Those that have been run, world by world."""
    envs = list(dict.fromkeys(one.cell.env for one in ours))
    return sorted((one for one in ours if one.shown), key=lambda one: envs.index(one.cell.env))


def _gain(ours: Found, found: Sequence[Found]) -> tuple[str, ...]:
    where, run = (ours.cell.env, ours.label), ours.shown[0]
    share, number = solved_interval(run), len(run.curves)
    solved = f"{solved_runs(run)} of {number}{'' if _is_one_seed(ours) else f' [{share.low:.0%}, {share.high:.0%}]'}"
    solved += _mark(ours)
    whole = all(len(curve.steps) > 1 for curve in run.curves)  # results of before have no curves
    soon = (format_count(_steps(run)), format_number(area_under_curves(run.curves))) if whole else (NOTHING, NOTHING)
    baselines = [one for one in found if one.cell.kind == "baseline" and one.shown]
    baselines = [one for one in baselines if one.runs] or baselines  # what was made with other settings does not count
    if not baselines:
        return (*where, solved, *soon, NOTHING, NOTHING, NOTHING)
    best = max(baselines, key=lambda one: float(one.shown[0].final_returns.mean()))
    name = f"{best.label}{_mark(best)}{best.fewer_seeds}"
    probability = compare_runs(run, best.shown[0]).probability
    return (*where, solved, *soon, name, f"{_difference(ours, best)}{ours.fewer_seeds}", f"{probability:.0%}")


def controls_table(found: Sequence[Found]) -> Table:
    """What ours gain over each control: the learner that MESA wraps, without and with other episodes."""
    controls = list(dict.fromkeys(one.label for one in found if one.cell.kind == "control"))
    places, rows = by_place(found), []
    for one in _by_env([one for one in found if one.cell.kind == "ours"]):
        others = (places.get((label, one.cell.env)) for label in controls)
        rows.append((one.cell.env, one.label, *(gain_over(one, other) for other in others)))
    note = (
        "Mean final return of ours minus that of the control on the same tasks, with its 95% interval, which allows for"
    )
    note += f" tasks that either may leave unsolved.{_marks(rows, 'not run')}"
    return Table("What MESA gains over its controls", ("environment", "method", *controls), tuple(rows), note)


def gain_over(ours: Found | None, other: Found | None) -> str:
    """What one gains over another on the same tasks, with its interval."""
    if ours is None or other is None or not (ours.shown and other.shown):
        return NOTHING
    return f"{_difference(ours, other)}{_mark(other)}{other.fewer_seeds or ours.fewer_seeds}"


def _difference(ours: Found, other: Found) -> str:
    """With its interval, if both have tasks of more than one seed."""
    compared = compare_runs(ours.shown[0], other.shown[0])
    found, seeds = compared.difference, [set(one.runs or one.stale) for one in (ours, other)]
    if len(seeds[0] & seeds[1]) < 2:
        found = Interval(found.value, found.value, found.value)
    return f"{format_interval(found.value, found.low, found.high, signed=True)}{_over(compared)}"


def _over(compared: Comparison) -> str:
    """How many tasks a difference is over, where that is not all."""
    if compared.complete:
        return ""
    return f" ({compared.shared} tasks)" if compared.shared else " (no tasks in common)"


def _steps(run: RunResults) -> int | None:
    return mean_steps_to_optimal(run.curves, run.family["optimal_threshold"])
