"""The chart of the front page: how many unseen tasks MESA, its controls and the best baselines solve in each world."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.rendering.canvas import SOFT, literal, new_figure, styled
from mesax.results.labels import OUTDATED, PRIVILEGED, colors_of
from mesax.results.summary import solved_runs
from paper.cells import Found

COLUMNS, BASELINES = 2, 2
"""Panels side by side, so that letters can be read on a phone; baselines of a panel, the best ones."""
GRAY, LETTERS = "#9A9A9A", 9.5
SHORT = {"learner and random episodes": "random episodes", "MESA (ours), learned": "MESA, learned"}
"""Names that would leave no room for bars."""


@styled
def tasks_solved(found: Sequence[Found]) -> Figure:
    """A panel for each world of which there is a result of MESA's or of a control: a bar for each method."""
    shown = {env: _bars([one for one in found if one.cell.env == env]) for env in _envs(found)}
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    most = max(len(bars) for bars in shown.values())
    figure = new_figure(3.0 * columns, rows * (0.45 + 0.21 * most) + 0.35)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (env, bars) in zip(grid, shown.items(), strict=False):
        _draw(axes, bars, most)
        axes.set_title(literal(env), weight="bold", fontsize=LETTERS)
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    text = "unseen tasks solved, of all that were learned"
    marked = any(not one.runs for bars in shown.values() for one in bars)
    figure.supxlabel(f"{text}; {OUTDATED}: to be rerun" if marked else text, fontsize=8.5)
    return figure


def _envs(found: Sequence[Found]) -> list[str]:
    """Worlds with anything to compare, in the order of the table."""
    there = [one.cell.env for one in found if one.shown and one.cell.kind in ("ours", "control")]
    return list(dict.fromkeys(there)) or list(dict.fromkeys(one.cell.env for one in found if one.shown))


def _share(one: Found) -> float:
    return solved_runs(one.shown[0]) / len(one.shown[0].curves)


def _bars(found: Sequence[Found]) -> list[Found]:
    """MESA, its controls that are told nothing, and the baselines that solve most tasks; by mean return if equal."""
    there = [one for one in found if one.shown]
    baselines = [one for one in there if one.cell.kind == "baseline" and not one.cell.overrides]
    best = sorted(baselines, key=lambda one: (-_share(one), -float(one.shown[0].final_returns.mean())))
    controls = [one for one in there if one.cell.kind == "control" and not one.cell.overrides]
    untold = [one for one in controls if PRIVILEGED not in one.label]
    return [one for one in there if one.cell.kind == "ours"] + untold + best[:BASELINES]


def _draw(axes: Axes, bars: Sequence[Found], most: int) -> None:
    """Bars of one world, each with its number; baselines are gray."""
    for row, one in enumerate(bars):
        color = GRAY if one.cell.kind == "baseline" else colors_of([one.cell.method])[0]
        run, share = one.shown[0], _share(one)
        axes.barh(row, 1.0, height=0.62, color="#F0F0F0", linewidth=0)
        axes.barh(row, share, height=0.62, color=color, linewidth=0)
        text = f"{solved_runs(run)} of {len(run.curves)}{'' if one.runs else OUTDATED}"
        weight = "bold" if one.cell.kind == "ours" else "normal"
        said = axes.annotate(text, (1, row), (4, 0), textcoords="offset points", va="center", fontsize=LETTERS)
        said.set(color=color if color != GRAY else SOFT, weight=weight)
    axes.set_yticks(range(len(bars)), [literal(SHORT.get(one.label, one.label)) for one in bars])
    axes.set(xlim=(0, 1.62), ylim=(most - 0.5, -0.5), xticks=[])
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=LETTERS)
