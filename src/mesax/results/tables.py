"""Tables of runs: built once as plain text cells, rendered for the terminal, markdown and HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mesax.errors import plain
from mesax.formatting import (
    NOT_MEASURED,
    NOTHING,
    format_count,
    format_duration,
    format_interval,
    format_measured,
    format_number,
    format_range,
)
from mesax.results.curves import groups_of, steps_to_solve
from mesax.results.labels import PRIVILEGED, display_name
from mesax.results.summary import Comparison, run_figures
from mesax.store.json_values import Json
from mesax.store.reading import Curve, RunResults, final_return, final_window

WILSON = "Wilson's 95% interval as of one trial for each seed: tasks of a seed may fail together"
COMPARISON_NOTE = (
    "Interval: of the mean over seeds, from their spread and from how many tasks end at which level; of one seed, over"
    " its tasks alone. "
    "IQM: mean of the middle half. "
    f"Solved: share of task runs whose final return is at the optimum, with {WILSON}; "
    "steps to optimum: until the mean over all task runs first reaches it, if their mean final return does too. "
    "Env steps: of all task runs together; time: of all stages of their runs."
)

NARROWEST, USUAL_WIDTH = 20, 80
"""Columns of a terminal: with fewer than the first, tables are as wide as the second."""


@dataclass(frozen=True)
class Table:
    """A table as text: the first column names the row, the others hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def run_labels(runs: Sequence[RunResults]) -> list[str]:
    """The method, with preset and settings where these differ, then whatever else it takes to tell the runs apart."""
    labels = [display_name(run.run) for run in runs]
    for extras in ([_preset(run) for run in runs], _own_settings(runs)):
        labels = _extended(labels, extras)
    for describe in (_env, _seed, _identity):
        if len(set(labels)) < len(labels):
            labels = _extended(labels, [describe(run) for run in runs])
    return labels


def _extended(labels: Sequence[str], extras: Sequence[str]) -> list[str]:
    """Labels with something behind them, unless that is the same everywhere."""
    if len(set(extras)) < 2:
        return list(labels)
    return [" ".join(filter(None, pair)) for pair in zip(labels, extras, strict=True)]


def _env(run: RunResults) -> str:
    return str(run.run["env"])


def _preset(run: RunResults) -> str:
    return str(run.run["preset"])


def _seed(run: RunResults) -> str:
    return f"seed {run.run['seed']}"


def _own_settings(runs: Sequence[RunResults]) -> list[str]:
    """What each was given in addition to its preset, without what all were given."""
    given = [{f"{path}={value}" for path, value in (run.run.get("overrides") or {}).items()} for run in runs]
    shared = {setting for own in given for setting in own if all(setting in other for other in given)}
    return [" ".join(sorted(own - shared)) for own in given]


def _identity(run: RunResults) -> str:
    return run.directory.name


def comparison_table(runs: Sequence[RunResults], known: Sequence[Json] | None = None) -> Table:
    """One row for each run: final return over its task runs, by group, at the optimum, and what it cost.

    `known` are the `run_figures` of the runs, if somebody has them already.
    """
    figures = known or [run_figures(run) for run in runs]
    groups = groups_of(runs)
    before = ("zero-shot",) if any("zero_shot_return" in own for own in figures) else ()
    columns = (
        "run",
        "mean",
        "95% interval",
        "IQM",
        *before,
        *groups,
        "solved",
        "steps to optimum",
        "time",
        "env steps",
    )
    rows = [_comparison_row(label, own, groups, before) for label, own in zip(run_labels(runs), figures, strict=True)]
    counts = [len(run.curves) for run in runs]
    if len(set(counts)) > 1:
        columns += ("task runs",)
        rows = [(*row, str(count)) for row, count in zip(rows, counts, strict=True)]
    title = [", ".join(dict.fromkeys(_env(run) for run in runs))]
    title += ["preset " + ", ".join(dict.fromkeys(_preset(run) for run in runs))]
    title += [f"{counts[0]} task runs each"] if len(set(counts)) == 1 else []
    note = _training_steps(run_labels(runs), figures)
    note += " Zero-shot: before the first update on a test task." if before else ""
    note += f" {PRIVILEGED}: told what every task asks for." if any(run.run.get("privileged") for run in runs) else ""
    returns = f"Return after learning each unseen test task: {final_words(runs)}. "
    return Table(", ".join(title), columns, tuple(rows), returns + COMPARISON_NOTE + note)


def _training_steps(labels: Sequence[str], figures: Sequence[Json]) -> str:
    """Steps that runs took on training tasks, and by how much these differ from those of the first that took any."""
    told, first = [], None
    for label, own in zip(labels, figures, strict=True):
        steps = own["meta_env_steps"]
        if steps:
            told.append(f"{label} {format_count(steps)}" + ("" if first is None else f" ({steps / first - 1.0:+.1%})"))
            first = first or steps
    return f" On training tasks before, in the time but not in the env steps: {', '.join(told)} steps." if told else ""


def final_words(runs: Sequence[RunResults]) -> str:
    """What the final return of a task run is the mean of, for the evaluations that these runs have."""
    evaluations = {len(curve.returns) for run in runs for curve in run.curves}
    numbers = sorted({final_window(number) for number in evaluations})
    if numbers == [1]:
        return "its only evaluation" if evaluations == {1} else "its last evaluation"
    return f"mean of the last {' or '.join(map(str, numbers))} evaluations"


def _comparison_row(label: str, figures: Json, groups: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    return (
        label,
        format_number(figures["mean_return"]),
        format_range(figures["ci_low"], figures["ci_high"]),
        format_number(figures["iqm"]),
        *(format_number(figures.get("zero_shot_return")) for _ in before),
        *(format_number(figures["by_group"].get(group)) for group in groups),
        _format_share(figures),
        format_count(figures["steps_to_optimum"]),
        format_duration(figures["wall_seconds"]),
        format_count(figures["env_steps"]),
    )


def _format_share(figures: Json) -> str:
    low, high = (100 * figures[f"optimal_fraction_{end}"] for end in ("low", "high"))
    return f"{figures['optimal_fraction']:.0%} [{low:.0f}, {high:.0f}]"


def difference_table(runs: Sequence[RunResults], differences: Sequence[Comparison]) -> Table:
    """The first run against each of the others in the same environment; `differences` says what it gains over each."""
    labels, rows = run_labels(runs), []
    for label, other, comparison in zip(labels[1:], runs[1:], differences, strict=True):
        if _env(other) != _env(runs[0]):
            continue
        found = comparison.difference
        interval = format_interval(found.value, found.low, found.high, signed=True)
        kind = "different test tasks"
        if comparison.shared:
            kind = "same test tasks" if comparison.complete else f"the {comparison.shared} test tasks of both"
        rows.append((f"{labels[0]} against {label}", interval, f"{comparison.probability:.0%}", kind))
    columns = ("comparison", "difference [95% interval]", "probability of improvement", "pairing")
    note = (
        "Difference of mean final returns. Probability that the first has the higher return, on the same task if there"
        " are any in common; ties count half."
    )
    return Table("Differences", columns, tuple(rows), note)


def task_table(run: RunResults) -> Table:
    """One row for each task run of a run."""
    groups, threshold = groups_of([run]), run.family["optimal_threshold"]
    repeated = any(curve.repeat for curve in run.curves)
    before = ("zero-shot",) if any(curve.zero_shot is not None for curve in run.curves) else ()
    columns = ("test task", *(("repeat",) if repeated else ()), *before, "final return", *groups, "steps to solve")
    rows = [
        (
            curve.label,
            *((str(curve.repeat),) if repeated else ()),
            *(format_number(curve.zero_shot) for _ in before),
            format_number(final_return(curve.returns)),
            *(format_number(_final_of_group(curve, group)) for group in groups),
            format_count(steps_to_solve(curve, threshold)),
        )
        for curve in run.curves
    ]
    note = "Steps to solve: until an evaluation first reaches the optimum, for task runs whose final return does too."
    return Table(f"{display_name(run.run)} on {run.run['env']}: test tasks", columns, tuple(rows), note)


def _final_of_group(curve: Curve, group: str) -> float | None:
    return final_return(curve.groups[group]) if group in curve.groups else None


def dataset_table(run: RunResults) -> Table:
    """What each training task gave to the high-reward dataset, from the last row of its collection."""
    last = {row["task"]: row for row in run.metrics if row.get("phase") == "collect" and "task" in row}
    labels = [str(task.get("label")) for task in run.run.get("train_tasks") or []]
    names = [name for row in last.values() for name in row if name not in ("phase", "task", "repeat", "step")]
    metrics = list(dict.fromkeys(names))
    rows = [
        (
            labels[task] if task < len(labels) else f"task {task}",
            format_count(row.get("step")),
            *(format_number(row.get(name)) for name in metrics),
        )
        for task, row in sorted(last.items())
    ]
    columns = ("training task", "steps", *(name.replace("_", " ") for name in metrics))
    return Table("High-reward dataset", columns, tuple(rows))


def explorer_table(run: RunResults) -> Table:
    """What each visitor reaches on unseen test tasks, before anything is learned there."""
    rows = []
    for visitor in (run.coverage or {}).get("visitors", []):
        orders = [" → ".join(map(str, order[:8])) or "none" for order in visitor.get("orders", [])]
        reached = (format_measured(visitor["distinct_visits"]), format_number(visitor["high_reward_steps"]))
        rows.append((str(visitor["name"]), *reached, *_worst_target(visitor), "; ".join(orders) or NOTHING))
    worst = ("steps on the target left out most", "episodes with any", "longest stay", "which")
    return Table(
        "What visitors reach on unseen tasks",
        ("visitor", "distinct rewarding visits", "high-reward steps", *worst, "order of visits in a few episodes"),
        tuple(rows),
        "Per episode. Rewarding: configurations that pay the highest reward in some training task. High-reward steps:"
        " steps that pay it on the unseen task itself, zero-shot. Left out most: of all pairs of an unseen task and a"
        " target, the one with the fewest steps; if it decides a task, that task stays unsolved. Orders list"
        " configurations by number.",
    )


def _worst_target(visitor: Json) -> tuple[str, str, str, str]:
    """The target that a visitor leaves out most, and how much it sees of it."""
    worst = (visitor.get("targets") or {}).get("worst")
    if not worst:
        return (NOT_MEASURED, NOTHING, NOTHING, NOTHING)
    chance = f"{100 * worst['chance']:.0f}%"
    which = f"task {worst['task']}, target {worst['target']}"
    return (format_number(worst["steps"]), chance, format_number(worst["stay"]), which)


def leak_table(run: RunResults) -> Table:
    """Whether "near M_*" means what it should, under the feature map of this run."""
    leaks = (run.coverage or {}).get("leaks") or {}
    names = {
        "precision": "precision at the threshold",
        "recall": "recall at the threshold",
        "threshold": "distance threshold",
        "precision_at_recall_90": "precision where recall is 90%",
        "distance_at_recall_90": "distance where recall is 90%",
        "rewarding_steps": "truly rewarding steps",
        "steps": "steps checked",
    }
    # Without the truth nothing is measured; with it, a share of no steps at all is merely undefined.
    shown = format_measured if leaks.get("rewarding_steps") is None else format_number
    rows = [(text, shown(leaks[name])) for name, text in names.items() if name in leaks]
    note = "Uniformly random play on unseen test tasks; near M_* against what the rules say is rewarding."
    return Table("Leak check", ("figure", "value"), tuple(rows), note)


def fit_table(run: RunResults) -> Table:
    """What a learned reward model is worth on layouts that it has not seen; empty if none was fitted."""
    found = [row for row in run.metrics if row.get("phase") == "verdict"]
    names = {
        "held_out_precision_at_recall_90": "precision where recall is 90%, on training layouts left out",
        "held_out_log_likelihood": "log-likelihood of a step there",
        "held_out_log_likelihood_by_chance": "log-likelihood of a step by chance",
        "held_out_high_steps": "high steps that this was judged by",
        "high_steps": "high steps of stage 1",
        "less_steps": "steps of stage 1 that were paid less",
        "entities": "declared entities",
    }
    rows = [(text, format_measured(row.get(name))) for row in found[-1:] for name, text in names.items()]
    return Table("What pays, as learned", ("figure", "value"), tuple(rows), str(found[-1]["verdict"]) if found else "")


def to_rich(table: Table) -> RichTable:
    """The table for a terminal; cells are literal text, so that no label is read as markup."""
    rich = RichTable(
        title=Text(table.title),
        caption=Text(table.note),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
        show_edge=False,
    )
    for index, column in enumerate(table.columns):
        # Cells of one word or one interval keep their line, so that a narrow terminal breaks labels instead.
        atomic = all(" " not in row[index] or row[index].startswith("[") for row in table.rows)
        header = Text(column.replace(" ", "\n") if atomic and index else column)
        rich.add_column(header, justify="right" if index else "left", no_wrap=atomic, vertical="top")
    for row in table.rows:
        rich.add_row(*(Text(plain(cell)) for cell in row))
    return rich


def print_table(table: Table) -> None:
    """The table on standard output."""
    console = Console()
    if console.width < NARROWEST:  # too few columns to read: the terminal, or $COLUMNS, does not know
        console = Console(width=USUAL_WIDTH)
    console.print(to_rich(table))


def to_markdown(table: Table) -> str:
    """The table in GitHub's markdown, with its note below."""
    lines = [_markdown_row(table.columns), "|---|" + "---:|" * (len(table.columns) - 1)]
    lines += [_markdown_row(row) for row in table.rows]
    return "\n".join(lines) + (f"\n\n{table.note}" if table.note else "") + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    clean = (cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;") for cell in cells)
    return "| " + " | ".join(clean) + " |"


def to_html(table: Table) -> str:
    """The table as an HTML fragment; every cell is escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    table_html = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"
    return f'<div class="scroll">{table_html}</div>\n{note}'
