"""Figures of runs: functions from results to a matplotlib Figure, drawn off screen."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mesax.errors import UsageError
from mesax.formatting import format_count, format_number
from mesax.results.curves import groups_of, mean_curve
from mesax.results.intervals import bootstrap_interval
from mesax.results.tables import run_labels
from mesax.store.reading import Curve, RunResults, final_return

P = ParamSpec("P")

# Okabe and Ito's colors, apart for color-blind readers too; a known method has the same one in every figure.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
METHOD_COLORS = {"mesa": "#0072B2", "plain": "#D55E00", "uniform": "#009E73", "maddpg": "#CC79A7"}
INK = "#333333"
PAYOFF_COLORS = ("#F4F4F4", "#C9C9C9", "#0072B2")  # nothing, safe, optimal
OUTLINE, DATASET_FILL = "#D55E00", "#F6D9C4"
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "svg.hashsalt": "mesax",
}


def _styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    @functools.wraps(draw)
    def drawn(*arguments: P.args, **options: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write the figure as PNG and SVG at a path without suffix; equal figures give equal files."""
    base = Path(path)
    base.parent.mkdir(parents=True, exist_ok=True)
    png, svg = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    with matplotlib.rc_context(STYLE):
        figure.savefig(png, dpi=200, metadata={"Software": None})
        figure.set_layout_engine("none")  # the first file has settled it, and it is what takes the time
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def _new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _literal(text: str) -> str:
    """Text from outside, whose dollar signs do not mean mathematics."""
    return text.replace("$", r"\$")


def _listed(runs: Sequence[RunResults]) -> list[tuple[int, RunResults, str, str]]:
    """Each run with its place, label and color."""
    colors: list[str] = []
    for run in runs:
        own = METHOD_COLORS.get(str(run.run["method"]))
        reserved = [*colors, *METHOD_COLORS.values()]
        spare = [color for color in PALETTE if color not in reserved]
        spare += [color for color in PALETTE if color not in colors] or list(PALETTE)
        colors.append(own if own and own not in colors else spare[0])
    labels = [_literal(label) for label in run_labels(runs)]
    return list(zip(range(len(runs)), runs, labels, colors, strict=True))


@_styled
def learning_curves(runs: Sequence[RunResults], by_group: bool = False) -> Figure:
    """Mean return against environment steps with 95% intervals: a panel per environment, and per group."""
    panels = list(_panels(runs, by_group))
    figure = _new_figure(7.2 if len(panels) == 1 else min(3.2 * len(panels) + 0.8, 12), 3.2)
    one_env = len({str(run.run["env"]) for run in runs}) == 1
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=one_env)[0]
    for axes, (title, members, group) in zip(grid, panels, strict=True):
        ends = []
        for order, run, name, color in _listed(members):
            steps, mean, low, high = mean_curve(run.curves, group)
            if steps.size:
                axes.plot(steps, mean, color=color, linewidth=1.8, label=name, zorder=3 - 0.01 * order)
                axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
                ends.append((final_return(mean), name, color))
        _reference_lines(axes, members[0])
        _end_labels(axes, ends)
        axes.set_title(_literal(title))
        _steps_axis(axes)
    grid[0].set_ylabel("return (mean, 95% interval)")
    return figure


def _panels(runs: Sequence[RunResults], by_group: bool) -> Iterator[tuple[str, list[RunResults], str | None]]:
    for env in dict.fromkeys(str(run.run["env"]) for run in runs):
        members = [run for run in runs if run.run["env"] == env]
        yield env, members, None
        for group in groups_of(members) if by_group else ():
            yield f"{env}, {group}", members, group


def _steps_axis(axes: Axes) -> None:
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))
    last = axes.dataLim.x1
    axes.set_xlim(0, last if np.isfinite(last) else 1)


def _reference_lines(axes: Axes, run: RunResults) -> None:
    """Dotted lines at the optimal and the suboptimal return, named at the right inside the panel."""
    optimal, suboptimal = run.family["optimal_return"], run.family["suboptimal_return"]
    for level, name, above in ((optimal, "optimal", True), (suboptimal, "suboptimal", False)):
        axes.axhline(level, color="#777777", linewidth=0.9, linestyle=":", zorder=1)
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
            f"{name} {format_number(value)}",
            (1, height + shift),
            (5, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=color,
            va="center",
            annotation_clip=False,
        )


@_styled
def final_returns(runs: Sequence[RunResults]) -> Figure:
    """The final return of every task run as a dot, with mean and 95% interval, for all and for each group."""
    groups: list[str | None] = [None, *groups_of(runs)]
    figure = _new_figure(min(1.6 + 1.9 * len(groups), 9), 1.2 + 0.42 * len(runs))
    grid = figure.subplots(1, len(groups), squeeze=False, sharex=True, sharey=True)[0]
    for axes, group in zip(grid, groups, strict=True):
        for row, run, _, color in _listed(runs):
            chosen = [curve for curve in run.curves if group is None or group in curve.groups]
            if chosen:
                _draw_scores(axes, row, chosen, group, color)
        axes.set_title("all task runs" if group is None else _literal(group))
        axes.set_xlabel("final return")
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    grid[0].set_yticks(range(len(runs)), [label for _, _, label, _ in _listed(runs)])
    grid[0].set_ylim(len(runs) - 0.5, -0.5)
    grid[0].set_xlim(left=min(-0.04, grid[0].get_xlim()[0]))
    return figure


def _draw_scores(axes: Axes, row: int, curves: Sequence[Curve], group: str | None, color: str) -> None:
    scores = np.array([final_return(c.returns if group is None else c.groups[group]) for c in curves])
    spread = row + (0.3 * np.linspace(-1, 1, scores.size) if scores.size > 1 else np.zeros(1))
    axes.plot(scores, spread, "o", color=color, alpha=0.4, markersize=4, markeredgewidth=0)
    interval = bootstrap_interval(scores, np.array([curve.task for curve in curves]))
    axes.plot([interval.low, interval.high], [row, row], color=INK, linewidth=1.8, solid_capstyle="butt")
    axes.plot([interval.value], [row], "D", color=color, markeredgecolor=INK, markersize=5)


@_styled
def meta_training(run: RunResults) -> Figure:
    """Explorers over their training: the intrinsic return, and the distinct rewarding visits really made."""
    rows = [row for row in run.metrics if row.get("phase") == "explore" and "policy" in row]
    titles = {"intrinsic_return": "intrinsic return", "distinct_visits": "true distinct visits"}
    drawn = [metric for metric in titles if any(metric in row for row in rows)]
    if not drawn:
        reason = f"{run.run['method']} logged no training of explorers"
        raise UsageError(f"no explorer training for {run.directory}: {reason}")
    uniform = [one for one in (run.coverage or {}).get("visitors", ()) if one["name"] == "uniform"]
    figure = _new_figure(3.2 * len(drawn) + 1.4, 2.6)
    grid = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, metric in zip(grid, drawn, strict=True):
        for index, policy in enumerate(sorted({row["policy"] for row in rows})):
            own = [(row["step"], row[metric]) for row in rows if row["policy"] == policy and metric in row]
            label, color = f"explorer {policy + 1}", PALETTE[index % len(PALETTE)]
            axes.plot(*np.array(own).reshape(-1, 2).T, color=color, linewidth=1.5, label=label)
        if uniform and metric == "distinct_visits":
            level = uniform[0]["distinct_visits"]
            axes.axhline(level, color=INK, linewidth=1, linestyle="--", label="uniform play")
        axes.set_title(titles[metric])
        _steps_axis(axes)
        low, high = min(0.0, axes.dataLim.y0), max(0.0, axes.dataLim.y1)
        axes.set_ylim(low, high + (0.06 * (high - low) or 1.0))
    figure.legend(*grid[-1].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@_styled
def explorer_coverage(run: RunResults, task: int | None = None) -> Figure:
    """A test task's payoff, and how often uniform play, each explorer and all of them play joint actions."""
    if run.coverage is None or not run.coverage.get("shape"):
        reason = f"{run.run['method']} recorded no visits of joint actions"
        raise UsageError(f"no explorer pictures for {run.directory}: {reason}")
    if len(run.coverage["shape"]) < 2 or any(one["frequency"] is None for one in run.coverage["visitors"]):
        reason = (
            f"{' x '.join(map(str, run.coverage['shape']))} configurations cannot be shown as maps of joint actions"
        )
        raise UsageError(f"no explorer pictures for {run.directory}: {reason}")
    targets = run.run["test_tasks"][_hardest_task(run) if task is None else task]["target"]
    payoffs = np.stack([_payoff(run, k, u) for k, u in targets])
    visitors = {one["name"]: _first_two_agents(one["frequency"], run, np.sum) for one in run.coverage["visitors"]}
    known = run.coverage.get("dataset")
    dataset = (np.zeros(payoffs.shape) if known is None else _first_two_agents(known, run, np.max)) > 0
    uniform = 1 / payoffs[0].size
    norm = LogNorm(0.1 * uniform, max(2 * uniform, *(frequency.max() for frequency in visitors.values())))
    figure, grid = _coverage_grid(len(targets), len(visitors) + 2)
    for stage, (target, row) in enumerate(zip(targets, grid, strict=True)):
        _draw_payoff(row[0], payoffs[stage], target)
        row[1].imshow(dataset[stage], cmap=ListedColormap(["white", DATASET_FILL]), vmin=0, vmax=1)
        row[1].set_xlabel(f"{dataset[stage].sum()} of {dataset[stage].size}")
        for axes, frequency in zip(row[2:], visitors.values(), strict=True):
            axes.imshow(frequency[stage], cmap=_visits_colormap(), norm=norm)
            inside, hits = (frequency[stage][where].sum() for where in (dataset[stage], payoffs[stage] >= 1))
            axes.set_xlabel(f"{inside:.0%} / {hits:.1%}")
        for axes in row[1:]:
            _outline(axes, dataset[stage])
        if len(targets) > 1:
            row[0].set_ylabel(f"stage {stage + 1}")
    for axes, title in zip(grid[0], ("payoff", "$M_*$", *map(_literal, visitors)), strict=True):
        axes.set_title(title, loc="center")
    _finish_coverage(figure, [axes for row in grid for axes in row], norm, run)
    return figure


def _hardest_task(run: RunResults) -> int:
    """The first test task that asks most agents to meet: there exploration matters most."""
    targets = [task["target"] for task in run.run["test_tasks"]]
    return 0 if len(targets[0]) > 1 else int(np.argmax([target[0][0] for target in targets]))


def _payoff(run: RunResults, k: int, u: int) -> np.ndarray:
    """The stage reward of each action pair of the first two agents, any others playing their best."""
    others, special = run.family["num_agents"] - 2, np.arange(run.family["num_actions"]) == u
    count = np.add.outer(special.astype(int), special.astype(int))
    return np.select([(count <= k) & (k <= count + others), count == 0], [1.0, _safe_payoff(run)], 0.0)


def _safe_payoff(run: RunResults) -> float:
    return float(run.family["suboptimal_return"] / run.family["optimal_return"])


def _first_two_agents(values: object, run: RunResults, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Stage by action by action: agents after the second are summed (visits) or merged (membership) away."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 2 or array.shape[0] != run.family["num_stages"]:
        array = array[None]
    return reduce(array, axis=tuple(range(3, array.ndim)))


def _visits_colormap() -> Colormap:
    colors = matplotlib.colormaps["Blues"](np.linspace(0.12, 1.0, 256))
    return ListedColormap(colors).with_extremes(under="white")


def _coverage_grid(stages: int, panels: int) -> tuple[Figure, list[list[Axes]]]:
    """A row of panels for each stage; a single stage breaks into two rows to keep its panels large."""
    broken = stages == 1 and panels > 5
    rows, columns = (2, -(-panels // 2)) if broken else (stages, panels)
    side = 1.55 if stages == 1 else 1.15
    figure = _new_figure(side * columns + 1.5, (side + (0.35 if broken else 0.2)) * rows + 0.9)
    grid = figure.subplots(rows, columns, squeeze=False)
    if not broken:
        return figure, [list(row) for row in grid]
    for spare in grid.flat[panels:]:
        spare.set_axis_off()
    return figure, [list(grid.flat[:panels])]


def _draw_payoff(axes: Axes, payoff: np.ndarray, target: Sequence[int]) -> None:
    levels = np.select([payoff >= 1, payoff > 0], [2, 1], 0)
    axes.imshow(levels, cmap=ListedColormap(PAYOFF_COLORS), vmin=0, vmax=2)
    rows, columns = np.nonzero(levels == 2)
    size = min(7.0, 60 / len(payoff))
    axes.plot(columns, rows, "*", color="white", markersize=size, markeredgewidth=0)
    axes.set_xlabel("k={}, u={}".format(*target))


def _outline(axes: Axes, member: np.ndarray) -> None:
    """The border between cells inside and outside, which stays readable when most cells are inside."""
    padded = np.pad(member, 1)
    across = np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1]) - 0.5
    down = np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1]) - 0.5
    segments = [[(x, y), (x + 1, y)] for y, x in across] + [[(x, y), (x, y + 1)] for y, x in down]
    lines = LineCollection(segments, colors=OUTLINE, linewidths=1, capstyle="round", zorder=3, clip_on=False)
    axes.add_collection(lines, autolim=False)


def _finish_coverage(figure: Figure, panels: list[Axes], norm: LogNorm, run: RunResults) -> None:
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.xaxis.label.set_fontsize(7.5)
        axes.spines[:].set(visible=True, color="#BBBBBB")
    visits = ScalarMappable(norm, _visits_colormap())
    bar = figure.colorbar(visits, ax=panels, extend="min", shrink=0.85, aspect=30, pad=0.02)
    bar.set_label("plays of a joint action per episode\n(log scale; white: under a tenth of uniform)", fontsize=8)
    handles = [
        Patch(color=PAYOFF_COLORS[2], label="payoff 1"),
        Patch(color=PAYOFF_COLORS[1], label=f"payoff {format_number(_safe_payoff(run))}"),
        Patch(facecolor=PAYOFF_COLORS[0], edgecolor="#BBBBBB", linewidth=0.5, label="payoff 0"),
        Patch(facecolor=DATASET_FILL, edgecolor=OUTLINE, label="$M_*$: high reward in training"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    agents = run.family["num_agents"]
    text = "row: action of agent 1, column: of agent 2; below: share of plays in $M_*$ / at the optimum"
    if agents != 2:
        text += f"\nfirst two of {agents} agents: visits are summed over the others, payoffs take their best"
    figure.suptitle(text, fontsize=8, x=0.01, ha="left")
