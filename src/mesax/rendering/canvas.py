"""What all pictures share: style, colors, new figures, places in inches, headings, files. Drawn off screen."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from mesax.formatting import format_tenths
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
MARGIN, TITLE_LINE = 0.15, 0.18
"""Inches left of a heading, and for each line of its title."""


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


def mean_return(returns: np.ndarray) -> str:
    """For example `mean return of 20 episodes 12.5`."""
    number = len(returns)
    return f"mean return of {number} episode{'' if number == 1 else 's'} {format_tenths(float(returns.mean()))}"


def title_room(title: str, width: float) -> float:
    """Inches that a title needs beyond its first line."""
    return TITLE_LINE * (len(_title_lines(title, width)) - 1)


def write_heading(figure: Figure, title: str, text: str) -> None:
    """Title, in as many lines as it needs, and an explanation below it."""
    width, height = figure.get_size_inches()
    lines = literal("\n".join(_title_lines(title, width)))
    figure.text(MARGIN / width, 1 - 0.1 / height, lines, fontsize=10, weight="bold", va="top")
    below = 0.33 + title_room(title, width)
    figure.text(MARGIN / width, 1 - below / height, text, fontsize=8, va="top", linespacing=1.3)


def _title_lines(title: str, width: float) -> list[str]:
    return textwrap.wrap(title, round(11.5 * width)) or [""]


def visits_colormap(palest: float) -> Colormap:
    """From a pale blue for few visits to a dark one; white for none."""
    colors = matplotlib.colormaps["Blues"](np.linspace(palest, 1.0, 256))
    return ListedColormap(colors).with_extremes(under="white", bad="white")


def draw_rewards(axes: Axes, rewards: np.ndarray, past: int, horizon: int, safe_reward: float) -> None:
    """The reward of every step; after `past` steps it is pale, as still to come."""
    edges = np.arange(len(rewards) + 1)
    axes.stairs(rewards, edges, color=EDGE, linewidth=1.0)
    if past:
        axes.stairs(rewards[:past], edges[: past + 1], color=INK, linewidth=1.3)
        axes.stairs(rewards[:past], edges[: past + 1], fill=True, color=OPTIMAL, alpha=0.18, linewidth=0)
    axes.set(xlim=(0, horizon), ylim=(-0.08, 1.12))
    axes.set_yticks([0, safe_reward, 1], ["0", f"{safe_reward:.3g}", "1"])
    axes.set_ylabel("reward", fontsize=7.5, labelpad=2)
    soften(axes)


def soften(axes: Axes) -> None:
    """Small ticks and pale edges, for charts next to a picture."""
    axes.tick_params(length=2, pad=1.5, labelsize=7, color=EDGE)
    axes.spines[["left", "bottom"]].set_color(EDGE)


def mark_now(axes: Axes, time: int) -> None:
    """A line at the step that is shown."""
    axes.axvline(time, color=MARK, linewidth=1.4)
