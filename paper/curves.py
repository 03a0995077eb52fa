"""Figures 3 and 4 of the paper: learning curves of every method, a panel for each world."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mesax.rendering.canvas import INK, SOFT, label_ends, literal, new_figure, styled
from mesax.results.curves import mean_curve
from mesax.results.figures import reference_lines, returns_axis, steps_axis
from mesax.results.labels import COLORS, colors_of
from mesax.results.summary import final_interval
from paper.cells import Found, Kind

COLUMNS, LETTERS = 3, 46
"""Panels side by side, and letters of a line above each."""
PALE = "#C4C4C4"


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every panel."""

    color: str
    line: str
    width: float
    name: str
    """What the legend calls it, perhaps together with others."""


def look_of(label: str, method: str, kind: Kind) -> Look:
    """Ours stands out and controls have their colors; baselines are gray, and only the best is named."""
    aside = {
        "ours": Look(COLORS.get(method, INK), "-", 2.4, label),
        "published": Look(COLORS["mesa"], ":", 1.3, "MESA as published, and without its explorers"),
        "baseline": Look(PALE, "-", 1.0, "baselines; the best is named"),
        "privileged": Look(SOFT, ":", 1.0, "told the task's secret"),
    }
    own = "#9CC7E4" if label.startswith("MESA") else colors_of([label])[0]
    return aside.get(kind) or Look(own, "-", 1.5, label)


@styled
def curves_of_all(found: Sequence[Found]) -> Figure:
    """Means over all task runs; ours with its interval at the end."""
    shown = [one for one in found if one.pooled]
    envs = list(dict.fromkeys(one.cell.env for one in shown))
    columns = min(COLUMNS, len(envs))
    rows = -(-len(envs) // columns)
    figure = new_figure(max(7.4, 3.3 * columns), 2.5 * rows + 0.7)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, env in zip(grid, envs, strict=False):
        _draw(axes, own := [one for one in shown if one.cell.env == env])
        axes.set_title("\n".join(textwrap.wrap(literal(f"{env}{_fewer_seeds(own)}"), LETTERS)))
    for axes in grid[len(envs) :]:
        axes.set_axis_off()
    looks = {look.name: look for look in (look_of(one.label, one.cell.method, one.cell.kind) for one in shown)}
    lines = [Line2D([], [], color=look.color, linestyle=look.line, linewidth=look.width) for look in looks.values()]
    names = [literal(name) for name in looks]
    figure.legend(lines, names, loc="outside lower center", ncols=max(2, columns), frameon=False, fontsize=8)
    figure.supylabel("mean return on unseen tasks", fontsize=9)
    return figure


def _fewer_seeds(found: Sequence[Found]) -> str:
    """Which methods of a panel lack seeds; their names stand in a legend for all panels."""
    told = list(dict.fromkeys(one.fewer_seeds for one in found))
    if len(told) == 1:
        return told[0]
    return f" ({', '.join(f'{one.label}{one.fewer_seeds}' for one in found if one.fewer_seeds)})"


def _draw(axes: Axes, found: Sequence[Found]) -> None:
    baselines = [one for one in found if one.cell.kind == "baseline"]
    best = max(baselines, key=lambda one: final_interval(one.pooled[0]).value, default=None)
    ends = []
    for one in found:
        run, look = one.pooled[0], look_of(one.label, one.cell.method, one.cell.kind)
        steps, mean, _, _ = mean_curve(run)
        color = INK if one is best else look.color
        front = {"ours": 5, "control": 4}.get(one.cell.kind, 2) + (one is best)
        axes.plot(steps, mean, look.line, color=color, linewidth=look.width, zorder=front)
        if one.cell.kind == "ours" and len(one.runs) > 1:  # one seed says nothing of others
            interval = final_interval(run)
            axes.plot([steps[-1]] * 2, [interval.low, interval.high], color=color, linewidth=1.6, clip_on=False)
        if one is best:
            ends.append((final_interval(run).value, literal(one.label), color))
    reference_lines(axes, found[0].pooled[0])
    returns_axis(axes)
    steps_axis(axes)
    label_ends(axes, ends, fontsize=7.5)
