"""Ours beside the paper's, cell by cell: whether the two agree within both spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.formatting import NOTHING, format_number
from mesax.rendering.canvas import PALETTE, SOFT, literal, new_figure, styled
from mesax.results.tables import Table
from paper.cells import Found
from paper.table import NOT_RUN, Paper

ROUNDING = 0.01
"""Share of the best return by which two that agree may differ besides: what is printed is rounded, and evaluated."""
COLUMNS = 4
"""Panels of a row of the figure."""


@dataclass(frozen=True)
class Pair:
    """A cell of ours and what the paper prints there."""

    row: str
    env: str
    mean: float
    spread: float
    """Standard deviation over seeds of their means; 0 of one seed."""
    printed: float
    printed_spread: float
    best: float

    @property
    def agree(self) -> bool:
        """Whether the means differ by no more than both spreads together."""
        return abs(self.mean - self.printed) <= self.spread + self.printed_spread + ROUNDING * self.best

    @property
    def text(self) -> str:
        """Both numbers, ours first, and which way they differ."""
        sign = "=" if self.agree else ">" if self.mean > self.printed else "<"
        return f"{format_number(self.mean)} {sign} {format_number(self.printed)}"


def pairs(found: Sequence[Found], paper: Paper, rows: Mapping[str, str]) -> list[Pair]:
    """All cells that have been run here and are printed there."""
    return [_pair(one, *paper[rows[one.label]][one.cell.env]) for one in found if one.label in rows and one.shown]


def _pair(one: Found, printed: float, printed_spread: float) -> Pair:
    run = one.shown[0]
    means = [run.final_returns[run.seeds == seed].mean() for seed in np.unique(run.seeds)]
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    best = float(run.family["optimal_return"])
    return Pair(one.label, one.cell.env, float(np.mean(means)), spread, printed, printed_spread, best)


def side_by_side_table(found: Sequence[Found], paper: Paper, rows: Mapping[str, str]) -> Table:
    """A row for each method of ours that the paper has, a column for each world, and how many cells agree."""
    there = {(pair.row, pair.env): pair for pair in pairs(found, paper, rows)}
    planned = {(one.label, one.cell.env) for one in found}
    envs = list(dict.fromkeys(one.cell.env for one in found))
    labels = [label for label in dict.fromkeys(one.label for one in found) if label in rows]
    cells = tuple((label, *(_text(there, planned, label, env) for env in envs)) for label in labels)
    others = [pair for pair in there.values() if rows[pair.row] != "MESA"]
    number = sum(rows[label] != "MESA" for label, _ in planned if label in rows)
    agree, higher = (
        sum(pair.agree for pair in others),
        sum(pair.mean > pair.printed for pair in others if not pair.agree),
    )
    note = (
        "Ours, then the paper's. =: they differ by no more than the standard deviation of ours over seeds and the"
        f" paper's ± together, and {ROUNDING:.0%} of the best return; >: ours is higher; <: ours is lower. Of the"
        f" baselines' {number} cells {len(others)} have been run: {agree} agree, {higher} are higher here,"
        f" {len(others) - agree - higher} lower."
    )
    note += f" {NOTHING}: no run of it is planned." * any(NOTHING in row for row in cells)
    note += f" {NOT_RUN}" * any("" in row for row in cells)
    return Table("Ours beside the paper's", ("method", *envs), cells, note)


def _text(there: Mapping[tuple[str, str], Pair], planned: set[tuple[str, str]], label: str, env: str) -> str:
    if (label, env) not in planned:
        return NOTHING
    return there[label, env].text if (label, env) in there else ""


@styled
def side_by_side_figure(found: Sequence[Found], paper: Paper, rows: Mapping[str, str]) -> Figure:
    """A panel for each world, a line for each method: ours, the paper's, and the spread of each."""
    shown = pairs(found, paper, rows)
    envs = list(dict.fromkeys(pair.env for pair in shown))
    labels = [label for label in dict.fromkeys(one.label for one in found) if label in {pair.row for pair in shown}]
    columns = min(COLUMNS, max(1, len(envs)))
    height = -(-len(envs) // columns)
    figure = new_figure(2.6 * columns + 1.6, (0.24 * len(labels) + 1.0) * max(1, height) + 0.4)
    grid = figure.subplots(max(1, height), columns, squeeze=False, sharey=True)
    for axes, env in zip(grid.flat, envs, strict=False):
        _panel(axes, [pair for pair in shown if pair.env == env], labels)
        axes.set_title(literal(env))
    for axes in list(grid.flat)[len(envs) :]:
        axes.set_axis_off()
    if envs:
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _panel(axes: Axes, own: Sequence[Pair], labels: Sequence[str]) -> None:
    place = [labels.index(pair.row) for pair in own]
    ours, theirs = [pair.mean for pair in own], [pair.printed for pair in own]
    spreads = [pair.spread for pair in own], [pair.printed_spread for pair in own]
    dots = partial(axes.errorbar, markersize=4, linewidth=0, elinewidth=1.2)
    dots(ours, np.array(place) - 0.14, xerr=spreads[0], fmt="o", color=PALETTE[0], label="here")
    dots(theirs, np.array(place) + 0.14, xerr=spreads[1], fmt="s", color=SOFT, label="in the paper")
    axes.set_yticks(range(len(labels)), [literal(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, 1.04 * own[0].best)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
