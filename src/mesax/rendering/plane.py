"""Two numbers of an episode against each other: where policies go in the plane of what two agents do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle

from mesax.rendering.canvas import AGENTS, INK, OPTIMAL, literal, new_figure, styled
from mesax.rendering.scene import Scene

PER_LINE, SHOWN_PATHS = 3, 4
SOMEWHERE, MEMBER = "#EFEFEF", "#9A9A9A"


@dataclass(frozen=True)
class Plane:
    """What the panels of all policies share."""

    names: Sequence[str]
    """Of both numbers."""
    target: tuple[float, float] | None = None
    """Ends of the square that pays."""
    somewhere: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    """Corners of the area in which some task pays."""
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Named points `[number, 2]`: dots, then crosses."""
    most: float = np.inf
    """How far panels reach at most."""


def draw_plane(scene: Scene) -> Figure:
    """The first episodes of a scene with two curves and a band."""
    curves = [take.curves for take in scene.takes[:SHOWN_PATHS] if take.curves is not None]
    return draw_planes({"this policy": curves}, Plane(scene.curves, scene.band))


@styled
def draw_planes(paths: Mapping[str, Sequence[np.ndarray]], plane: Plane, colors: Sequence[str] = AGENTS) -> Figure:
    """A panel for each policy; every episode is a thin line `[time, 2]` from a ring to a dot, cut where it is NaN."""
    columns = min(PER_LINE, len(paths))
    rows = -(-len(paths) // columns)
    figure = new_figure(2.5 * columns + 0.5, 2.6 * rows + 0.7)
    figure.set_layout_engine("compressed")  # panels are squares
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    everything = [path for own in paths.values() for path in own] + [np.array(one) for one in plane.points.values()]
    farthest = max((float(np.nanmax(np.abs(one), initial=0.0)) for one in everything), default=0.0)
    reach = min(plane.most, 1.04 * max(farthest, *map(abs, plane.target or (1.0,))))
    apart = next(step for step in (10, 20, 50, 100, 200) if reach < 3.5 * step or step == 200)
    ticks = apart * np.arange(-(reach // apart), reach // apart + 1)
    grid[0, 0].set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=ticks, yticks=ticks)  # shared by all
    for place, axes in enumerate(grid.flat):
        if place >= len(paths):
            axes.set_axis_off()
        if place + columns >= len(paths) > place:
            axes.set_xlabel(plane.names[0])
            axes.tick_params(labelbottom=True)
        if place % columns == 0:
            axes.set_ylabel(plane.names[1])
    for axes, number, (name, own) in zip(grid.flat, range(len(paths)), paths.items(), strict=False):
        color = colors[number % len(colors)]
        _draw_background(axes, plane)
        _draw_paths(axes, own, color)
        axes.set_title(literal(name), color=color)
        axes.set_aspect("equal")
    _write_legend(figure, plane)
    return figure


def _draw_background(axes: Axes, plane: Plane) -> None:
    if len(plane.somewhere):
        axes.add_patch(Polygon(plane.somewhere, facecolor=SOMEWHERE, linewidth=0, zorder=0))
    if plane.target is not None:
        low, high = plane.target
        square = Rectangle((low, low), high - low, high - low, facecolor="none", edgecolor=OPTIMAL, linewidth=1.6)
        axes.add_patch(square)
    for (marker, color), points in zip(((".", MEMBER), ("x", INK)), plane.points.values(), strict=False):
        axes.plot(*np.reshape(points, (-1, 2)).T, marker, color=color, markersize=4, zorder=2)


def _draw_paths(axes: Axes, paths: Sequence[np.ndarray], color: str) -> None:
    for path in paths:
        happened = path[np.isfinite(path).all(axis=1)]
        if len(happened):
            axes.add_collection(LineCollection([happened], colors=color, linewidths=0.8, alpha=0.7), autolim=False)
            axes.plot(*happened[0], "o", color=color, markerfacecolor="white", markersize=3.5, zorder=5)
            axes.plot(*happened[-1], "o", color=color, markeredgecolor="white", markersize=5, zorder=5)


def _write_legend(figure: Figure, plane: Plane) -> None:
    handles: list[Patch | Line2D] = [Patch(color=SOMEWHERE, label="some task pays")] if len(plane.somewhere) else []
    if plane.target is not None:
        handles.append(Patch(facecolor="none", edgecolor=OPTIMAL, label="this task pays"))
    for (marker, color), name in zip(((".", MEMBER), ("x", INK)), plane.points, strict=False):
        handles.append(Line2D([], [], marker=marker, linestyle="", color=color, label=name))
    start = Line2D([], [], marker="o", linestyle="", markersize=3.5, color=INK, markerfacecolor="white", label="start")
    handles += [start, Line2D([], [], marker="o", linestyle="", markersize=5, color=INK, label="end")]
    columns = len(handles) if figure.get_size_inches()[0] > 5 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
