"""Figures 3 and 4 of the paper: learning curves of every method in every world, too many to name at their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mesax.rendering.canvas import INK, PALETTE, SOFT, literal, new_figure, styled
from mesax.results.curves import mean_curve
from mesax.results.figures import reference_lines, returns_axis, steps_axis
from mesax.store.reading import RunResults
from paper.cells import Found, Kind

COLUMNS = 3
OURS, *OTHERS = PALETTE
BASELINES = tuple((color, line) for line, color in product(("-", "--"), OTHERS))
AS_OURS = tuple((color, "-", 2.4) for color in (OURS, "#001F3F"))
AS_PUBLISHED = tuple((OURS, line) for line in ("--", ":", "-."))
ASIDE = tuple((color, line) for line, color in product((":", "-.", "--"), (INK, SOFT)))
"""Styles of what is not compared: controls, and methods that are told more."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every panel."""

    color: str
    line: str
    width: float = 1.3


def looks(labels: Sequence[tuple[str, Kind]]) -> dict[str, Look]:
    """Ours stands out, as published it has the same color, baselines have others, all others are gray."""
    others = {"ours": _in_turn(AS_OURS), "published": _in_turn(AS_PUBLISHED), "baseline": _in_turn(BASELINES)}
    aside = _in_turn(ASIDE)
    return {label: next(others.get(kind, aside)) for label, kind in dict(labels).items()}


def _in_turn(styles: Sequence[tuple[str, str] | tuple[str, str, float]]) -> Iterator[Look]:
    return (Look(*style) for style in cycle(styles))


@styled
def curves_of_all(found: Sequence[Found]) -> Figure:
    """A panel for each world, one legend for all; only ours has its interval drawn, the others' would hide it."""
    shown = [one for one in found if one.pooled]
    envs = list(dict.fromkeys(one.cell.env for one in shown))
    look = looks([(one.label, one.cell.kind) for one in shown])
    columns = min(COLUMNS, len(envs))
    rows = -(-len(envs) // columns)
    figure = new_figure(3.7 * columns, 2.7 * rows + 0.2 * -(-len(look) // COLUMNS) + 0.4)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, env in zip(grid, envs, strict=False):
        own = [one for one in shown if one.cell.env == env]
        _draw(axes, [(one, run) for one in own for run in one.pooled], look)
        axes.set_title(literal(f"{env}{_fewer_seeds(own)}"))
    for axes in grid[len(envs) :]:
        axes.set_axis_off()
    _legend(figure, look)
    figure.supylabel("mean return on unseen tasks; band: 95% interval of ours", fontsize=9)
    return figure


def _fewer_seeds(found: Sequence[Found]) -> str:
    """Which methods of a panel lack seeds; their names stand in a legend for all panels."""
    told = list(dict.fromkeys(one.fewer_seeds for one in found))
    if len(told) == 1:
        return told[0]
    return f" ({', '.join(f'{one.label}{one.fewer_seeds}' for one in found if one.fewer_seeds)})"


def _draw(axes: Axes, members: Sequence[tuple[Found, RunResults]], look: dict[str, Look]) -> None:
    for one, run in members:
        steps, mean, low, high = mean_curve(run)
        own, is_ours = look[one.label], one.cell.kind == "ours"
        axes.plot(steps, mean, own.line, color=own.color, linewidth=own.width, zorder=4 if is_ours else 3)
        if is_ours and len(one.runs) > 1:  # one seed says nothing of others
            axes.fill_between(steps, low, high, color=own.color, alpha=0.15, linewidth=0)
    reference_lines(axes, members[0][1])
    returns_axis(axes)
    steps_axis(axes)


def _legend(figure: Figure, look: dict[str, Look]) -> None:
    lines = [Line2D([], [], color=own.color, linestyle=own.line, linewidth=own.width) for own in look.values()]
    names = [literal(label) for label in look]
    figure.legend(lines, names, loc="outside lower center", ncols=COLUMNS, frameon=False, fontsize=8)
