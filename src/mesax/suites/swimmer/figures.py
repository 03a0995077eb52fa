"""Figures of the swimmer: the plane of its two joint angles, with what pays there and where policies go."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle

from mesax.errors import UsageError
from mesax.rendering.canvas import INK, OPTIMAL, PALETTE, literal, new_figure, styled
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.visits import PLACES_CAPTION, VISITS_TITLE, are_in_a_row, place_visits

PER_LINE = 3
LEAST_DEGREES = 34.0
"""Each panel reaches at least this far."""
MOST_DEGREES = 50.0
"""Each panel reaches at most this far: beyond it nothing pays, and what pays is to be seen."""
SOME_TARGET = "#EFEFEF"
MEMBER, CENTROID = "#9A9A9A", INK


@styled
def joint_angle_plane(
    trajectories: Mapping[str, np.ndarray],
    *,
    target_degrees: float | None = None,
    band_degrees: float = 3.0,
    most_degrees: float = 30.0,
    members: np.ndarray | None = None,
    centroids: np.ndarray | None = None,
) -> Figure:
    """A panel for each policy: its paths over M_*, the clusters, and the square that pays for one target.

    `trajectories` names policies and holds joint angles in radians, `[episodes, time, 2]` or `[time, 2]`; rows that are
    NaN are left out. `members` `[n, 2]` and `centroids` `[clusters, 2]` are features of M_*, in radians too.
    """
    paths = {name: _degrees(path, f"trajectories of {name}", 3) for name, path in trajectories.items()}
    if not paths:
        raise UsageError("no trajectories of the swimmer to draw")
    points = {
        what: np.zeros((0, 2)) if given is None else _degrees(given, what, 2)
        for what, given in (("members", members), ("centroids", centroids))
    }
    columns = min(PER_LINE, len(paths))
    rows = -(-len(paths) // columns)
    figure = new_figure(2.5 * columns + 0.5, 2.6 * rows + 0.7)
    figure.set_layout_engine("compressed")  # panels are squares
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for spare in grid.flat[len(paths) :]:
        spare.set_axis_off()
    reach = _reach([*paths.values(), *points.values()])
    apart = 20 if reach < 60 else 50
    ticks = apart * np.arange(-(reach // apart), reach // apart + 1)
    for axes, (index, (name, path)) in zip(grid.flat, enumerate(paths.items()), strict=False):
        color = PALETTE[(index + 1) % len(PALETTE)]
        _draw_pay(axes, target_degrees, band_degrees, most_degrees)
        axes.plot(*points["members"].T, ".", color=MEMBER, markersize=2.5, markeredgewidth=0, zorder=2)
        axes.plot(*points["centroids"].T, "x", color=CENTROID, markersize=5, markeredgewidth=1.1, zorder=4)
        _draw_paths(axes, path, color)
        axes.set_title(literal(name), color=color)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=ticks, yticks=ticks, aspect="equal")
    for row in grid:
        row[0].set_ylabel("rear joint (degrees)")
    for column in range(columns):
        last = max(row for row in range(rows) if row * columns + column < len(paths))
        grid[last, column].set_xlabel("front joint (degrees)")
        grid[last, column].tick_params(labelbottom=True)
    _write_legend(figure, target_degrees, points)
    return figure


def _degrees(given: np.ndarray, what: str, dimensions: int) -> np.ndarray:
    """Checked angles, in degrees; a single trajectory becomes one of many."""
    array = np.asarray(given, dtype=float)
    if dimensions == 3 and array.ndim == 2:
        array = array[None]
    if array.ndim != dimensions or array.shape[-1] != 2:
        raise UsageError(f"{what}: pairs of joint angles are needed, not an array of shape {np.shape(given)}")
    return np.rad2deg(array)


def _reach(arrays: list[np.ndarray]) -> float:
    flat = np.concatenate([np.abs(array).reshape(-1) for array in arrays])
    return float(min(MOST_DEGREES, max(LEAST_DEGREES, 1.04 * np.nanmax(flat, initial=0.0))))


def _draw_pay(axes: Axes, target: float | None, band: float, most: float) -> None:
    """Where some target would pay, and where this one does, with the strips in which one joint alone is wrong."""
    low, high = -most - band, most + band
    corners = [(low, low), (low + 2 * band, low), (high, high - 2 * band), (high, high), (high - 2 * band, high)]
    axes.add_patch(Polygon([*corners, (low, low + 2 * band)], facecolor=SOME_TARGET, linewidth=0, zorder=0))
    if target is not None:
        for draw in (axes.axvspan, axes.axhspan):
            draw(target - band, target + band, color=OPTIMAL, alpha=0.07, linewidth=0, zorder=0.5)
        square = Rectangle((target - band, target - band), 2 * band, 2 * band, zorder=3)
        square.set(facecolor="none", edgecolor=OPTIMAL, linewidth=1.6)
        axes.add_patch(square)


def _draw_paths(axes: Axes, paths: np.ndarray, color: str) -> None:
    """Every episode as a thin line from an open circle, its start, to a dot, its end."""
    segments = np.stack([paths[:, :-1], paths[:, 1:]], axis=2).reshape(-1, 2, 2)
    segments = segments[np.isfinite(segments).all(axis=(1, 2))]
    faint = min(0.8, max(0.15, 4.0 / max(len(paths), 1)))
    axes.add_collection(
        LineCollection(list(segments), colors=color, linewidths=0.8, alpha=faint, zorder=3.5), autolim=False
    )
    for path in paths:
        happened = path[np.isfinite(path).all(axis=1)]
        if len(happened):
            axes.plot(*happened[0], "o", color=color, markerfacecolor="white", markersize=3.5, zorder=5)
            axes.plot(*happened[-1], "o", color=color, markeredgecolor="white", markersize=5, zorder=5)


def _write_legend(figure: Figure, target: float | None, points: Mapping[str, np.ndarray]) -> None:
    handles: list[Line2D | Patch] = [Patch(color=SOME_TARGET, label="some target pays")]
    if target is not None:
        handles.append(Patch(facecolor="none", edgecolor=OPTIMAL, label=f"target {target:+.1f}° pays"))
    if len(points["members"]):
        handles.append(Line2D([], [], marker=".", linestyle="", color=MEMBER, label="$M_*$"))
    if len(points["centroids"]):
        handles.append(Line2D([], [], marker="x", linestyle="", color=CENTROID, label="clusters"))
    start = Line2D([], [], marker="o", linestyle="", markersize=3.5, color=CENTROID, label="start")
    start.set_markerfacecolor("white")
    handles += [start, Line2D([], [], marker="o", linestyle="", markersize=5, color=CENTROID, label="end")]
    columns = len(handles) if figure.get_size_inches()[0] > 5 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def angle_visits(run: RunResults) -> Figure:
    """A bar for each angle."""
    return place_visits(run, "angle at which both joints meet, in steps of the band from the most negative")


def have_paths(run: RunResults) -> bool:
    """Whether joint angles of explorers were recorded, with M_*."""
    coverage = run.coverage or {}
    return bool(coverage.get("plane")) and any(one.get("path") for one in coverage.get("visitors") or ())


def explorer_paths(run: RunResults) -> Figure:
    """Where uniform play and the explorers go in the plane of joint angles, over M_* and its clusters."""
    coverage = run.coverage or {}
    plane = coverage["plane"]
    return joint_angle_plane(
        {one["name"]: np.array(one["path"], dtype=float) for one in coverage["visitors"] if one.get("path")},
        band_degrees=run.family["band_degrees"],
        most_degrees=run.family["most_degrees"],
        members=np.array(plane["members"], dtype=float).reshape(-1, 2),
        centroids=np.array(plane["centroids"], dtype=float).reshape(-1, 2),
    )


FIGURES = (
    RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=PLACES_CAPTION,
        applies=are_in_a_row,
        draw=angle_visits,
        absent="recorded no visits of angles",
    ),
    RunFigure(
        name="explorer-paths",
        title="Where the explorers go",
        caption=(
            "Joint angles during four episodes of uniform play and of each explorer on unseen test tasks, over the "
            "members of M_* and the centers of its clusters."
        ),
        applies=have_paths,
        draw=explorer_paths,
    ),
)
