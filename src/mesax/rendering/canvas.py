"""What all pictures share: style, colors, new figures, places in inches, headings, files. Drawn off screen."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from mesax.store.files import write_file

P = ParamSpec("P")

# Okabe and Ito's colors, apart for color-blind readers too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
INK, SOFT, EDGE = "#333333", "#777777", "#BBBBBB"
PAYOFF_COLORS = ("#F4F4F4", "#C9C9C9", "#0072B2")  # nothing, safe, optimal
OPTIMAL, OPTIMAL_AREA = PAYOFF_COLORS[2], "#DCEBF5"
MARK = "#D55E00"
"""What is pointed out: now, what was played, the border of M_*."""
AGENTS = PALETTE[1:]
"""Agents' colors; the first of the palette is the optimum's."""
FONT = "DejaVu Sans"
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": [FONT],
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
MARGIN, TITLE_LINE, TEXT_LINE = 0.15, 0.18, 0.16
"""Inches left of a heading, and for each line of its title and of its text."""


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """`draw` in the style of this package, whatever the user has set."""

    @functools.wraps(draw)
    def drawn(*arguments: P.args, **options: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


def new_figure(width: float, height: float) -> Figure:
    """An empty figure whose panels find their places themselves; inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def new_frame(width: float, height: float) -> Figure:
    """An empty figure whose panels are placed in inches, so that the frames of a GIF do not jump."""
    figure = Figure(figsize=(width, height), facecolor="white", dpi=100)
    FigureCanvasAgg(figure)
    return figure


def place_axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the lower left corner."""
    across, up = figure.get_size_inches()
    axes: Axes = figure.add_axes((x / across, y / up, width / across, height / up))
    return axes


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write the figure as PNG and SVG at a path without suffix; equal figures give equal files."""
    base = Path(path)
    png, svg = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    pixels, lines = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(pixels, format="png", dpi=200, metadata={"Software": None})
        figure.set_layout_engine("none")  # the first file has settled it, and it is what takes the time
        figure.savefig(lines, format="svg", metadata={"Date": None})
    write_file(png, pixels.getvalue())
    write_file(svg, lines.getvalue())
    return png, svg


def literal(text: str) -> str:
    """Text from outside, whose dollar signs do not mean mathematics; what the font cannot show is a question mark."""
    font = get_font(findfont(FONT))
    shown = (letter if letter.isspace() or font.get_char_index(ord(letter)) else "?" for letter in text)
    return "".join(shown).replace("$", r"\$")


def heading_room(title: str, text: str, width: float) -> float:
    """Inches that a title and an explanation need in a picture of this width."""
    return 0.25 + TITLE_LINE * len(_title_lines(title, width)) + TEXT_LINE * len(_text_lines(text, width))


def write_heading(figure: Figure, title: str, text: str) -> None:
    """Title and an explanation below it, in as many lines as they need."""
    width, height = figure.get_size_inches()
    titles = _title_lines(title, width)
    figure.text(MARGIN / width, 1 - 0.1 / height, literal("\n".join(titles)), fontsize=10, weight="bold", va="top")
    below, lines = 0.15 + TITLE_LINE * len(titles), literal("\n".join(_text_lines(text, width)))
    figure.text(MARGIN / width, 1 - below / height, lines, fontsize=8, va="top", linespacing=1.3)


def _title_lines(title: str, width: float) -> list[str]:
    return textwrap.wrap(title, round(11.5 * width)) or [""]


def _text_lines(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, round(15.5 * width)) or [""]


def inches_of(axes: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    across, up = figure.get_size_inches() * axes.get_position().size
    return float(across), float(up)


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], fontsize: float = 8.5) -> None:
    """Names of lines (height, name, color) at the right of a chart, pushed apart where they would overlap."""
    low, high = axes.get_ylim()
    apart = (high - low) * 1.45 * fontsize / 72 / inches_of(axes)[1]
    ordered = sorted(ends, key=lambda end: -round(end[0], 3))  # stable: equal ones keep their order
    heights = [end[0] for end in ordered]
    for index in range(1, len(heights)):  # names may have several lines
        lines = [ordered[one][1].count("\n") + 1 for one in (index - 1, index)]
        heights[index] = min(heights[index], heights[index - 1] - apart * sum(lines) / 2)
    shift = max(0.0, low - heights[-1]) if heights else 0.0
    for (_, name, color), height in zip(ordered, heights, strict=True):
        axes.annotate(
            name,
            (1, height + shift),
            (5, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=color,
            fontsize=fontsize,
            va="center",
            annotation_clip=False,
        )
