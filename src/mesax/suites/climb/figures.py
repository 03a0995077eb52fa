"""Figures of climb games: which joint actions uniform play and the explorers try, and which of them pay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mesax.rendering.canvas import EDGE, MARK, OPTIMAL, literal, new_figure, styled
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.visits import VISITS_TITLE, are_in_a_plane, visits_in_a_row

PER_LINE = 4


@styled
def explorer_coverage(run: RunResults, task: int | None = None) -> Figure:
    """A panel for each visitor and stage: the darker the more often a joint action is played, over what pays."""
    coverage = run.coverage or {}
    targets = run.run["test_tasks"][_hardest_task(run) if task is None else task]["target"]
    visitors = [(one["name"], _first_two_agents(one["frequency"], run, np.sum)) for one in coverage["visitors"]]
    known = coverage.get("dataset")
    dataset = np.zeros(visitors[0][1].shape) if known is None else _first_two_agents(known, run, np.max)
    columns = len(visitors) if len(targets) > 1 else min(PER_LINE, len(visitors))
    rows = len(targets) * -(-len(visitors) // columns)
    figure = new_figure(max(5.2, 1.6 * columns), 1.95 * rows + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False)
    norm = PowerNorm(0.4, 0.0, max(float(frequency.max()) for _, frequency in visitors))
    for axes, (stage, (name, frequency)) in zip(
        grid.flat, ((stage, visitor) for stage in range(len(targets)) for visitor in visitors), strict=False
    ):
        axes.imshow(frequency[stage], cmap="Greys", norm=norm)
        optimal = _optimal(run, *targets[stage])
        _outline(axes, dataset[stage] > 0, MARK, 1.0)
        _outline(axes, optimal, OPTIMAL, 1.8)
        inside, hits = (frequency[stage][where].sum() for where in (dataset[stage] > 0, optimal))
        axes.set_xlabel(f"{inside:.0%} in $M_*$\n{hits:.1%} optimal", fontsize=8)
        if stage == 0:
            axes.set_title(literal(name), loc="center")
        if name == visitors[0][0] and len(targets) > 1:
            axes.set_ylabel(f"stage {stage + 1}")
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=EDGE)
        axes.set_axis_on() if axes.images else axes.set_axis_off()
    names = ((OPTIMAL, "optimal in this task"), (MARK, "$M_*$: high reward in training"))
    lines = [Line2D([], [], color=color, label=label) for color, label in names]
    figure.legend(handles=lines, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    text = "row: action of agent 1, column: of agent 2"
    if run.family["num_agents"] != 2:
        text += f"; first two of {run.family['num_agents']} agents"
    figure.suptitle(text, fontsize=8, x=0.01, ha="left")
    return figure


def _hardest_task(run: RunResults) -> int:
    """The first test task that asks most agents to meet: there exploration matters most."""
    targets = [task["target"] for task in run.run["test_tasks"]]
    return 0 if len(targets[0]) > 1 else int(np.argmax([target[0][0] for target in targets]))


def _optimal(run: RunResults, k: int, u: int) -> np.ndarray:
    """Which action pairs of the first two agents earn 1, any others playing their best."""
    others, special = run.family["num_agents"] - 2, np.arange(run.family["num_actions"]) == u
    count = np.add.outer(special.astype(int), special.astype(int))
    return np.asarray((count <= k) & (k <= count + others))


def _first_two_agents(values: object, run: RunResults, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Stage by action by action: agents after the second are summed (visits) or merged (membership) away."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 2 or array.shape[0] != run.family["num_stages"]:
        array = array[None]
    return reduce(array, axis=tuple(range(3, array.ndim)))


def _outline(axes: Axes, member: np.ndarray, color: str, width: float) -> None:
    """The border between cells inside and outside, which stays readable when most cells are inside."""
    padded = np.pad(member, 1)
    across = np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1]) - 0.5
    down = np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1]) - 0.5
    segments = [[(x, y), (x + 1, y)] for y, x in across] + [[(x, y), (x, y + 1)] for y, x in down]
    lines = LineCollection(segments, colors=color, linewidths=width, capstyle="round", zorder=3, clip_on=False)
    axes.add_collection(lines, autolim=False)


FIGURES = (
    RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=(
            "What uniform play, each explorer and all explorers together play, next to the payoff of one test task: "
            "the darker the more often; shares of all plays below."
        ),
        applies=are_in_a_plane,
        draw=explorer_coverage,
        absent="recorded no visits of joint actions, or too many to be shown as maps",
    ),
    visits_in_a_row("action, stage after stage"),
)
