"""Figures of runs and comparisons: functions from results to a matplotlib Figure, and the lists of them."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mesax.formatting import format_count, format_number, shorten
from mesax.rendering.canvas import INK, PALETTE, SOFT, label_ends, literal, new_figure, styled
from mesax.results.curves import groups_of, mean_curve, only_group
from mesax.results.intervals import Interval
from mesax.results.labels import colors_of
from mesax.results.profiles import profile_figure
from mesax.results.returns import named_levels
from mesax.results.summary import final_interval
from mesax.results.tables import run_labels
from mesax.store.json_values import Json
from mesax.store.reading import UNIFORM_PLAY, RunResults
from mesax.suites.base import RunFigure

MOST_THIN_LINES = 60
"""Task runs of a panel, at most, whose single curves are drawn behind the means."""
LONGEST_NAME = 24
"""Letters of a line of a name next to a chart."""


def run_colors(runs: Sequence[RunResults]) -> list[str]:
    """A color for each run."""
    return colors_of([str(run.run["method"]) for run in runs])


def short_labels(runs: Sequence[RunResults]) -> list[str]:
    """Names of runs in lines; what they say of settings is whole in tables."""
    return ["\n".join(textwrap.wrap(literal(shorten(label)), LONGEST_NAME)) for label in run_labels(runs)]


@styled
def learning_curves(runs: Sequence[RunResults], by_group: bool = False) -> Figure:
    """Return against environment steps: a panel per environment, and per group.

    A thin line for each task run, a thick one for their mean, and its 95% interval at the end, where runs are named.
    """
    panels = list(_panels(runs, by_group))
    one_env = len({str(run.run["env"]) for run in runs}) == 1
    figure = new_figure(7.2 if len(panels) == 1 else min(2.6 * len(panels) + 1.8, 12), 3.2)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=one_env)[0]
    ends = [draw_means(axes, members) for axes, (_, members) in zip(grid, panels, strict=True)]
    for axes, own, (title, members) in zip(grid, ends, panels, strict=True):
        finish_panel(axes, own, members[0], named=axes is grid[-1] or not one_env)
        axes.set_title(literal(title))
    grid[0].set_ylabel("return")
    return figure


def draw_curves(axes: Axes, members: Sequence[RunResults]) -> None:
    """The curves of runs in one environment, with the levels that matter there."""
    finish_panel(axes, draw_means(axes, members), members[0])


class End(NamedTuple):
    """Where the curve of a run ends."""

    interval: Interval
    name: str
    color: str


def draw_means(axes: Axes, members: Sequence[RunResults]) -> list[End]:
    """Curves of every task run and of their means; returns their ends."""
    ends = []
    thin = sum(len(run.curves) for run in members) <= MOST_THIN_LINES
    listed = zip(members, short_labels(members), run_colors(members), strict=True)
    for order, (run, name, color) in enumerate(listed):
        steps, mean, _, _ = mean_curve(run)
        if not steps.size:
            continue
        if steps[-1]:
            (line,) = axes.plot(steps, mean)
            for curve in run.curves if thin else ():
                axes.plot(curve.steps, curve.returns, color=color, alpha=0.22, linewidth=0.7, zorder=2)
        else:  # it took no step, and is a level for those that did
            line = axes.axhline(mean[-1], linestyle="--")
        line.set(color=color, linewidth=2.0, label=name, zorder=4 - 0.01 * order)
        ends.append(End(final_interval(run), name, color))
    return ends


def finish_panel(axes: Axes, ends: Sequence[End], run: RunResults, named: bool = True) -> None:
    """Levels, axes, intervals and names, once all curves are drawn."""
    reference_lines(axes, run)
    returns_axis(axes)
    steps_axis(axes)
    last = axes.get_xlim()[1]
    for place, (interval, _, color) in enumerate(ends):
        x = last * (1.02 + 0.025 * place)
        within = np.clip([interval.low, interval.high], *axes.get_ylim())  # few tasks: it may reach beyond the chart
        (line,) = axes.plot([x, x], within, color=color, linewidth=1.6, label="_interval")
        line.set(solid_capstyle="butt", clip_on=False)
        axes.plot([x], [interval.value], "o", color=color, markersize=4, clip_on=False, label="_end")
    axes.set_xlim(0, last * (1.03 + 0.025 * len(ends)))
    values = [format_number(end.interval.value) for end in ends]
    names = [f"{end.name} {value}" if named else value for end, value in zip(ends, values, strict=True)]
    label_ends(axes, [(end.interval.value, name, end.color) for end, name in zip(ends, names, strict=True)])


def returns_axis(axes: Axes) -> None:
    """As far as curves and levels go, in all panels that share it; intervals of few seeds reach far beyond."""
    lines = [line for panel in axes.get_shared_y_axes().get_siblings(axes) for line in panel.get_lines()]
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in lines])
    values = values[np.isfinite(values)]
    if values.size and np.ptp(values) > 0:
        margin = 0.1 * np.ptp(values)
        axes.set_ylim(values.min() - margin, values.max() + margin)


def _panels(runs: Sequence[RunResults], by_group: bool) -> Iterator[tuple[str, list[RunResults]]]:
    for env in dict.fromkeys(str(run.run["env"]) for run in runs):
        members = [run for run in runs if run.run["env"] == env]
        yield env, members
        for group in groups_of(members) if by_group else ():
            yield f"{env}, {group}", [only_group(run, group) for run in members]


def steps_axis(axes: Axes) -> None:
    """From the first step to the last, in thousands and millions."""
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))
    last = axes.dataLim.x1
    axes.set_xlim(0, last if np.isfinite(last) and last > 0 else 1)


def reference_lines(axes: Axes, run: RunResults) -> None:
    """Thin lines at the best return and at the safe equilibrium, named at the left."""
    for name, level in named_levels(run.family):
        axes.axhline(level, color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
        halo = [withStroke(linewidth=2, foreground="white")]
        place = ("axes fraction", "data")
        text = axes.annotate(name, (0, level), (3, 2), xycoords=place, textcoords="offset points", va="bottom")
        text.set(color=SOFT, fontsize=7, path_effects=halo, zorder=5)
    best = float(run.family["optimal_return"])
    axes.set_ylim(min(0, axes.get_ylim()[0]), max(1.08 * best, axes.get_ylim()[1]))


@styled
def final_returns(runs: Sequence[RunResults]) -> Figure:
    """The final return of every task run as a dot, with mean and 95% interval, for all and for each group."""
    groups: list[str | None] = [None, *groups_of(runs)]
    figure = new_figure(min(1.6 + 1.9 * len(groups), 9), 1.2 + 0.42 * len(runs))
    grid = figure.subplots(1, len(groups), squeeze=False, sharex=True, sharey=True)[0]
    for axes, group in zip(grid, groups, strict=True):
        for row, (run, color) in enumerate(zip(runs, run_colors(runs), strict=True)):
            draw_scores(axes, row, only_group(run, group), color)
        for _, level in named_levels(runs[0].family):
            axes.axvline(level, color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
        axes.set_title("all task runs" if group is None else literal(group))
        axes.set_xlabel("final return")
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    grid[0].set_yticks(range(len(runs)), short_labels(runs))
    grid[0].set_ylim(len(runs) - 0.5, -0.5)
    grid[0].set_xlim(left=min(-0.04, grid[0].get_xlim()[0]))
    return figure


def draw_scores(axes: Axes, row: int, run: RunResults, color: str) -> None:
    """Final returns in a row: every one as a dot, and their mean with its interval; nothing if there are none."""
    if not run.curves:
        return
    scores = run.final_returns
    spread = row + (0.3 * np.linspace(-1, 1, scores.size) if scores.size > 1 else np.zeros(1))
    axes.plot(scores, spread, "o", color=color, alpha=0.4, markersize=4, markeredgewidth=0)
    interval = final_interval(run)
    axes.plot([interval.low, interval.high], [row, row], color=INK, linewidth=1.8, solid_capstyle="butt")
    axes.plot([interval.value], [row], "D", color=color, markeredgecolor=INK, markersize=5)


EXPLORER_METRICS = {
    "intrinsic_return": "intrinsic return",
    "distinct_visits": "true distinct visits",
    "worst_steps": "steps on what is left out most",
}


def _explorer_rows(run: RunResults) -> list[Json]:
    return [row for row in run.metrics if row.get("phase") == "explore" and "policy" in row]


def _drawn_metrics(run: RunResults) -> list[str]:
    """What the training of explorers has logged."""
    return [metric for metric in EXPLORER_METRICS if any(row.get(metric) is not None for row in _explorer_rows(run))]


@styled
def meta_training(run: RunResults) -> Figure:
    """Explorers over their training: the intrinsic return, and the distinct rewarding visits really made."""
    rows, drawn = _explorer_rows(run), _drawn_metrics(run)
    uniform = [one for one in (run.coverage or {}).get("visitors", ()) if one["name"] == UNIFORM_PLAY]
    figure = new_figure(3.0 * len(drawn) + 0.8, 2.6)
    for axes, metric in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        ends = []
        for index, policy in enumerate(sorted({row["policy"] for row in rows})):
            logged = [row for row in rows if row["policy"] == policy and row.get(metric) is not None]
            own = np.array([(row["step"], row[metric]) for row in logged]).reshape(-1, 2)
            label, color = f"explorer {policy + 1}", PALETTE[index % len(PALETTE)]
            axes.plot(*own.T, color=color, linewidth=1.5, label=label)
            ends += [(float(own[-1, 1]), label, color)] if len(own) else []
        if uniform and metric == "distinct_visits" and uniform[0]["distinct_visits"] is not None:
            level = float(uniform[0]["distinct_visits"])
            axes.axhline(level, color=INK, linewidth=1, linestyle="--", label="uniform play")
            ends.append((level, "uniform play", INK))
        axes.set_title(EXPLORER_METRICS[metric])
        steps_axis(axes)
        low, high = min(0.0, axes.dataLim.y0), max(0.0, axes.dataLim.y1)
        axes.set_ylim(low, high + (0.06 * (high - low) or 1.0))
        label_ends(axes, ends)
    return figure


def _beliefs(run: RunResults) -> list[Json]:
    """Rows about which entity a learned reward model holds to count in each training task."""
    return [row for row in run.metrics if row.get("phase") == "assignment"]


@styled
def entity_beliefs(run: RunResults) -> Figure:
    """A cell for each training task and entity: which one counts, the darker the more high steps say so."""
    rows = _beliefs(run)
    (entities,) = {row["entities"] for row in run.metrics if row.get("phase") == "verdict"}
    steps = np.zeros((entities, len(rows)))
    for row in rows:
        steps[row["entity"], row["task"]] = 1 + row["high_steps"]
    figure = new_figure(min(1.6 + 0.22 * len(rows), 10), 1.1 + 0.22 * entities)
    axes = figure.subplots()
    axes.imshow(np.log1p(steps), cmap="Blues", aspect="auto", origin="lower")
    layouts = np.array([row["layout"] for row in rows])
    for border in np.flatnonzero(np.diff(layouts)):
        axes.axvline(border + 0.5, color=SOFT, linewidth=0.7)
    axes.set_xlabel("training task (lines between layouts)")
    axes.set_ylabel("entity")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


RUN_FIGURES: tuple[RunFigure, ...] = (
    RunFigure(
        name="what-pays",
        title="What pays, as learned",
        caption=(
            "Which entity the reward model holds to count in each training task; darker where more high steps say so. "
            "Tasks on one layout should each have an entity of their own."
        ),
        applies=lambda run: bool(_beliefs(run)),
        draw=entity_beliefs,
    ),
    RunFigure(
        name="meta-training",
        title="Coverage during stage 2",
        caption=(
            "Training of the explorers: intrinsic return, the distinct rewarding visits that it is meant to bring "
            "about, and the steps per episode near what they visit least (worst tenth of all pairs of training task "
            "and cluster). Dashed: the visits of uniform play, on the unseen test tasks."
        ),
        applies=lambda run: bool(_drawn_metrics(run)),
        draw=meta_training,
        absent="logged no training of explorers",
    ),
)
"""Figures of every world; a world's own are in its suite."""


@dataclass(frozen=True)
class ComparisonFigure:
    """A figure of runs on one family, which may be a single one."""

    name: str
    title: str
    caption: str
    draw: Callable[[Sequence[RunResults]], Figure]
    chart: str = ""
    """The chart of a report that shows it; if empty, it is a file among the others only."""


COMPARISON_FIGURES = (
    ComparisonFigure(
        name="curves",
        title="Learning curves",
        caption=(
            "Return of the learner on unseen test tasks: a thin line for each task run, a thick one for their mean, as "
            "far as all of them reach. At the end: the final return (the mean of the last evaluations, five at most) "
            "with its 95% interval over seeds and tasks."
        ),
        draw=lambda runs: learning_curves(runs, by_group=True),
        chart="curves",
    ),
    ComparisonFigure(
        name="returns",
        title="Every task run",
        caption="Dots: the final return of each task run. Diamonds: their mean with its 95% interval.",
        draw=final_returns,
        chart="finals",
    ),
    ComparisonFigure(
        name="profiles",
        title="Performance profiles",
        caption=(
            "How many task runs end at or above each share of the best return. A step at the safe return is the share "
            "of tasks that stay there."
        ),
        draw=lambda runs: profile_figure(
            {label: [run] for label, run in zip(run_labels(runs), runs, strict=True)}, run_colors(runs)
        ),
    ),
)
