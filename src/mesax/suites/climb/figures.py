"""Figures of climb games: which joint actions uniform play and the explorers try, next to what pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mesax.formatting import format_number
from mesax.rendering.canvas import EDGE, MARK, PAYOFF_COLORS, literal, new_figure, styled, visits_colormap
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.visits import PLACES_CAPTION, VISITS_TITLE, are_in_a_plane, are_in_a_row, place_visits

DATASET_FILL = "#F6D9C4"
PALEST = 0.12
"""The color of the fewest visits that are shown."""


@styled
def explorer_coverage(run: RunResults, task: int | None = None) -> Figure:
    """A test task's payoff, and how often uniform play, each explorer and all of them play joint actions."""
    coverage = run.coverage or {}
    targets = run.run["test_tasks"][_hardest_task(run) if task is None else task]["target"]
    payoffs = np.stack([_payoff(run, k, u) for k, u in targets])
    visitors = {one["name"]: _first_two_agents(one["frequency"], run, np.sum) for one in coverage["visitors"]}
    known = coverage.get("dataset")
    dataset = (np.zeros(payoffs.shape) if known is None else _first_two_agents(known, run, np.max)) > 0
    uniform = 1 / payoffs[0].size
    norm = LogNorm(0.1 * uniform, max(2 * uniform, *(frequency.max() for frequency in visitors.values())))
    figure, grid = _coverage_grid(len(targets), len(visitors) + 2)
    for stage, (target, row) in enumerate(zip(targets, grid, strict=True)):
        _draw_payoff(row[0], payoffs[stage], target)
        row[1].imshow(dataset[stage], cmap=ListedColormap(["white", DATASET_FILL]), vmin=0, vmax=1)
        row[1].set_xlabel(f"{dataset[stage].sum()} of {dataset[stage].size}")
        for axes, frequency in zip(row[2:], visitors.values(), strict=True):
            axes.imshow(frequency[stage], cmap=visits_colormap(PALEST), norm=norm)
            inside, hits = (frequency[stage][where].sum() for where in (dataset[stage], payoffs[stage] >= 1))
            axes.set_xlabel(f"{inside:.0%} / {hits:.1%}")
        for axes in row[1:]:
            _outline(axes, dataset[stage])
        if len(targets) > 1:
            row[0].set_ylabel(f"stage {stage + 1}")
    for axes, title in zip(grid[0], ("payoff", "$M_*$", *map(literal, visitors)), strict=True):
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


def _coverage_grid(stages: int, panels: int) -> tuple[Figure, list[list[Axes]]]:
    """A row of panels for each stage; a single stage breaks into two rows to keep its panels large."""
    broken = stages == 1 and panels > 5
    rows, columns = (2, -(-panels // 2)) if broken else (stages, panels)
    side = 1.55 if stages == 1 else 1.15
    figure = new_figure(side * columns + 1.5, (side + (0.35 if broken else 0.2)) * rows + 0.9)
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
    lines = LineCollection(segments, colors=MARK, linewidths=1, capstyle="round", zorder=3, clip_on=False)
    axes.add_collection(lines, autolim=False)


def _finish_coverage(figure: Figure, panels: list[Axes], norm: LogNorm, run: RunResults) -> None:
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.xaxis.label.set_fontsize(7.5)
        axes.spines[:].set(visible=True, color=EDGE)
    visits = ScalarMappable(norm, visits_colormap(PALEST))
    bar = figure.colorbar(visits, ax=panels, extend="min", shrink=0.85, aspect=30, pad=0.02)
    bar.set_label("plays of a joint action per episode\n(log scale; white: under a tenth of uniform)", fontsize=8)
    handles = [
        Patch(color=PAYOFF_COLORS[2], label="payoff 1"),
        Patch(color=PAYOFF_COLORS[1], label=f"payoff {format_number(_safe_payoff(run))}"),
        Patch(facecolor=PAYOFF_COLORS[0], edgecolor=EDGE, linewidth=0.5, label="payoff 0"),
        Patch(facecolor=DATASET_FILL, edgecolor=MARK, label="$M_*$: high reward in training"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    agents = run.family["num_agents"]
    text = "row: action of agent 1, column: of agent 2; below: share of plays in $M_*$ / at the optimum"
    if agents != 2:
        text += f"\nfirst two of {agents} agents: visits are summed over the others, payoffs take their best"
    figure.suptitle(text, fontsize=8, x=0.01, ha="left")


def _action_visits(run: RunResults) -> Figure:
    """Bars for the actions of a single agent."""
    stages = (run.coverage or {}).get("num_stages", 1)
    return place_visits(run, "action" if stages == 1 else "action, stage after stage")


FIGURES = (
    RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=(
            "What uniform play, each explorer and all explorers together visit, next to the payoff of one test task."
        ),
        applies=are_in_a_plane,
        draw=explorer_coverage,
        absent="recorded no visits of joint actions, or too many to be shown as maps",
    ),
    RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=PLACES_CAPTION,
        applies=are_in_a_row,
        draw=_action_visits,
    ),
)
