"""Figures of runs and comparisons: functions from results to a matplotlib Figure, and the lists of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mesax.formatting import format_count, format_number, shorten
from mesax.rendering.canvas import INK, PALETTE, SOFT, literal, new_figure, styled
from mesax.results.curves import groups_of, mean_curve, places
from mesax.results.profiles import profile_figure
from mesax.results.returns import level_names, returns_interval
from mesax.results.tables import run_labels
from mesax.store.json_values import Json
from mesax.store.reading import UNIFORM_PLAY, RunResults, final_return
from mesax.suites.base import RunFigure

# A known method has the same color in every figure.
METHOD_COLORS = {"mesa": "#0072B2", "plain": "#D55E00", "uniform": "#009E73", "maddpg": "#CC79A7"}


def run_colors(runs: Sequence[RunResults]) -> list[str]:
    """A color for each run."""
    colors: list[str] = []
    for run in runs:
        own = METHOD_COLORS.get(str(run.run["method"]))
        reserved = [*colors, *METHOD_COLORS.values()]
        spare = [color for color in PALETTE if color not in reserved]
        spare += [color for color in PALETTE if color not in colors] or list(PALETTE)
        colors.append(own if own and own not in colors else spare[0])
    return colors


def _listed(runs: Sequence[RunResults]) -> list[tuple[int, RunResults, str, str]]:
    """Each run with its place, label and color; what a label says of settings is whole in tables."""
    labels = [literal(shorten(label)) for label in run_labels(runs)]
    return list(zip(range(len(runs)), runs, labels, run_colors(runs), strict=True))


@styled
def learning_curves(runs: Sequence[RunResults], by_group: bool = False) -> Figure:
    """Mean return against environment steps with 95% intervals: a panel per environment, and per group.

    Runs are named at the ends of their curves, or once for all panels if these are of the same runs.
    """
    panels = list(_panels(runs, by_group))
    one_env = len({str(run.run["env"]) for run in runs}) == 1
    named_once = one_env and len(panels) > 1
    width = 7.2 if len(panels) == 1 else min(3.2 * len(panels) + 0.8, 12)
    figure = new_figure(width, 3.2 + (0.2 * -(-len(runs) // 2) if named_once else 0.0))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=one_env)[0]
    ends = [_draw_means(axes, members, group) for axes, (_, members, group) in zip(grid, panels, strict=True)]
    for axes, own, (title, _, _) in zip(grid, ends, panels, strict=True):  # panels may share what all of them reach
        _finish_panel(axes, [(value, "", color) for value, _, color in own] if named_once else own)
        axes.set_title(literal(title))
    if named_once:
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    grid[0].set_ylabel("return (mean, 95% interval)")
    return figure


def draw_curves(axes: Axes, members: Sequence[RunResults], group: str | None = None) -> None:
    """The curves of runs in one environment, with the levels that matter there."""
    _finish_panel(axes, _draw_means(axes, members, group))


def _draw_means(axes: Axes, members: Sequence[RunResults], group: str | None) -> list[tuple[float, str, str]]:
    """Curves and levels; returns the end, name and color of each curve."""
    ends = []
    for order, run, name, color in _listed(members):
        steps, mean, low, high = mean_curve(run, group)
        if not steps.size:
            continue
        if steps[-1]:
            (line,) = axes.plot(steps, mean)
            axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
        else:  # it took no step, and is a level for those that did
            line = axes.axhline(mean[-1], linestyle="--")
        line.set(color=color, linewidth=1.8, label=name, zorder=3 - 0.01 * order)
        ends.append((final_return(mean), name, color))
    reference_lines(axes, members[0])
    return ends


def _finish_panel(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Axes and labels, once all is drawn."""
    returns_axis(axes)
    _end_labels(axes, ends)
    steps_axis(axes)


def returns_axis(axes: Axes) -> None:
    """As far as curves and levels go, in all panels that share it; intervals of few seeds reach far beyond."""
    lines = [line for panel in axes.get_shared_y_axes().get_siblings(axes) for line in panel.get_lines()]
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in lines])
    values = values[np.isfinite(values)]
    if values.size and np.ptp(values) > 0:
        margin = 0.1 * np.ptp(values)
        axes.set_ylim(values.min() - margin, values.max() + margin)


def _panels(runs: Sequence[RunResults], by_group: bool) -> Iterator[tuple[str, list[RunResults], str | None]]:
    for env in dict.fromkeys(str(run.run["env"]) for run in runs):
        members = [run for run in runs if run.run["env"] == env]
        yield env, members, None
        for group in groups_of(members) if by_group else ():
            yield f"{env}, {group}", members, group


def steps_axis(axes: Axes) -> None:
    """From the first step to the last, in thousands and millions."""
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))
    last = axes.dataLim.x1
    axes.set_xlim(0, last if np.isfinite(last) and last > 0 else 1)


def reference_lines(axes: Axes, run: RunResults) -> None:
    """Dotted lines at the optimal and the suboptimal return, named at the right inside the panel."""
    optimal, suboptimal = run.family["optimal_return"], run.family["suboptimal_return"]
    for level, name, above in zip((optimal, suboptimal), level_names(run.family), (True, False), strict=True):
        axes.axhline(level, color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
        axes.annotate(
            name,
            (1, level),
            (-2, 2 if above else -3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=7,
            ha="right",
            va="bottom" if above else "top",
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
    axes.set_ylim(min(0, axes.get_ylim()[0]), max(1.08 * optimal, axes.get_ylim()[1]))


def _end_labels(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Name and final mean of each curve at its right end, pushed apart where they would overlap."""
    low, high = axes.get_ylim()
    ordered = sorted(ends, key=lambda end: -round(end[0], 3))  # stable: equal runs keep their order
    heights = [end[0] for end in ordered]
    for index in range(1, len(heights)):
        heights[index] = min(heights[index], heights[index - 1] - 0.075 * (high - low))
    shift = max(0.0, low - heights[-1]) if heights else 0.0
    for (value, name, color), height in zip(ordered, heights, strict=True):
        axes.annotate(
            f"{name} {format_number(value)}".strip(),
            (1, height + shift),
            (5, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=color,
            va="center",
            annotation_clip=False,
        )


@styled
def final_returns(runs: Sequence[RunResults]) -> Figure:
    """The final return of every task run as a dot, with mean and 95% interval, for all and for each group."""
    groups: list[str | None] = [None, *groups_of(runs)]
    figure = new_figure(min(1.6 + 1.9 * len(groups), 9), 1.2 + 0.42 * len(runs))
    grid = figure.subplots(1, len(groups), squeeze=False, sharex=True, sharey=True)[0]
    for axes, group in zip(grid, groups, strict=True):
        for row, run, _, color in _listed(runs):
            draw_scores(axes, row, run, group, color)
        axes.set_title("all task runs" if group is None else literal(group))
        axes.set_xlabel("final return")
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    grid[0].set_yticks(range(len(runs)), [label for _, _, label, _ in _listed(runs)])
    grid[0].set_ylim(len(runs) - 0.5, -0.5)
    grid[0].set_xlim(left=min(-0.04, grid[0].get_xlim()[0]))
    return figure


def draw_scores(axes: Axes, row: int, run: RunResults, group: str | None, color: str) -> None:
    """Final returns in a row: every one as a dot, and their mean with its interval; nothing if none is of the group."""
    curves = [curve for curve in run.curves if group is None or group in curve.groups]
    if not curves:
        return
    scores = np.array([final_return(c.returns if group is None else c.groups[group]) for c in curves])
    spread = row + (0.3 * np.linspace(-1, 1, scores.size) if scores.size > 1 else np.zeros(1))
    axes.plot(scores, spread, "o", color=color, alpha=0.4, markersize=4, markeredgewidth=0)
    interval = returns_interval(run.family, scores, *places(curves))
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
    figure = new_figure(3.2 * len(drawn) + 1.4, 2.6)
    grid = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, metric in zip(grid, drawn, strict=True):
        for index, policy in enumerate(sorted({row["policy"] for row in rows})):
            logged = [row for row in rows if row["policy"] == policy and row.get(metric) is not None]
            own = [(row["step"], row[metric]) for row in logged]
            label, color = f"explorer {policy + 1}", PALETTE[index % len(PALETTE)]
            axes.plot(*np.array(own).reshape(-1, 2).T, color=color, linewidth=1.5, label=label)
        if uniform and metric == "distinct_visits" and uniform[0]["distinct_visits"] is not None:
            level = uniform[0]["distinct_visits"]
            axes.axhline(level, color=INK, linewidth=1, linestyle="--", label="uniform play")
        axes.set_title(EXPLORER_METRICS[metric])
        steps_axis(axes)
        low, high = min(0.0, axes.dataLim.y0), max(0.0, axes.dataLim.y1)
        axes.set_ylim(low, high + (0.06 * (high - low) or 1.0))
    named = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside right center", frameon=False)
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
            "Mean return of the learner on unseen test tasks, with pointwise 95% intervals over seeds and tasks, as "
            "far as all task runs reach. Labels give the final return: the mean of the last evaluations, five at most."
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
            "How many task runs end at or above each share of the best return, with Wilson's 95% interval. A step at "
            "the safe return is the share of tasks that stay there."
        ),
        draw=lambda runs: profile_figure(
            {label: [run] for label, run in zip(run_labels(runs), runs, strict=True)}, run_colors(runs)
        ),
    ),
)
