"""What explorers visit where configurations form a row, not a plane: bars for landmarks, angles or actions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mesax.formatting import format_measured
from mesax.rendering.canvas import INK, PALETTE, literal, new_figure, styled
from mesax.store.json_values import Json
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY, RunResults
from mesax.suites.base import RunFigure

PER_LINE = 4
MOST_NUMBERS = 12
"""Up to this many bars each has its number below it."""
UNIFORM = "#999999"
VISITS_TITLE = "What the explorers visit"


def visits_in_a_row(places: str, absent: str = "") -> RunFigure:
    """The figure of a world whose places form a row.

    `places` says what the bars stand for, with facts of the family by name; `absent`, what a run without it lacks.
    """
    return RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=(
            "Steps per episode that uniform play, each explorer and all explorers together spend at each place on "
            "unseen test tasks, and how many distinct places that pay in a training task each of them visits."
        ),
        applies=are_in_a_row,
        draw=lambda run: place_visits(run, places.format_map(run.family)),
        absent=f"recorded no visits of {absent}" if absent else "",
    )


def are_in_a_row(run: RunResults) -> bool:
    """Whether the run's visits are counted for each place."""
    return _counted_axes(run) == 1


def are_in_a_plane(run: RunResults) -> bool:
    """Whether the run's visits are counted for each joint action of two agents or more."""
    return _counted_axes(run) > 1


def _counted_axes(run: RunResults) -> int:
    """How many axes the configurations have that visits are counted for; 0 if they are not counted one by one."""
    coverage = run.coverage or {}
    visitors = coverage.get("visitors") or ()
    counted = bool(visitors) and all(one.get("frequency") is not None for one in visitors)
    return len(coverage.get("shape") or ()) if counted else 0


@styled
def place_visits(run: RunResults, places: str) -> Figure:
    """Steps per episode that each visitor spends at each place; above, how many distinct places that pay it visits.

    `places` says what the bars stand for.
    """
    visitors: Sequence[Json] = (run.coverage or {})["visitors"]
    visits = [np.asarray(one["frequency"], dtype=float).reshape(-1) for one in visitors]
    rows = -(-len(visitors) // PER_LINE)
    columns = -(-len(visitors) // rows)
    figure = new_figure(1.9 * columns + 0.5, 1.75 * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for spare in grid.flat[len(visitors) :]:
        spare.set_axis_off()
    colors = visitor_colors(visitors)
    for axes, visitor, heights, color in zip(grid.flat, visitors, visits, colors, strict=False):
        _draw_places(axes, heights, color)
        distinct = format_measured(visitor["distinct_visits"])
        axes.set_title(f"{literal(visitor['name'])}\n{distinct} distinct an episode", color=color)
    grid[0, 0].set_ylim(0, 1.05 * max(float(np.max(heights)) for heights in visits) or 1.0)  # shared by all
    for row in grid:
        row[0].set_ylabel("steps per episode")
    figure.supxlabel(places, fontsize=9)
    return figure


def visitor_colors(visitors: Sequence[Json]) -> list[str]:
    """Explorers as in the figure of their training; those who are no single explorer in gray and in ink."""
    explorers = [one["name"] for one in visitors if one["name"] not in (UNIFORM_PLAY, ALL_EXPLORERS)]
    known = {UNIFORM_PLAY: UNIFORM, ALL_EXPLORERS: INK}
    known |= {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(explorers)}
    return [known[one["name"]] for one in visitors]


def _draw_places(axes: Axes, heights: np.ndarray, color: str) -> None:
    axes.bar(np.arange(heights.size), heights, color=color, width=0.75)
    if heights.size <= MOST_NUMBERS:
        axes.set_xticks(np.arange(heights.size), [str(number) for number in range(heights.size)])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
