"""Figure 7 of the paper: explorers of simpler worlds in a harder one, before and while a learner learns there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.rendering.canvas import INK, PALETTE, SOFT, literal, new_figure, styled
from mesax.results.figures import draw_curves, run_colors
from mesax.store.reading import RunResults


@dataclass(frozen=True)
class Reached:
    """What explorers reach on unseen tasks before anything is learned there."""

    label: str
    number: int
    """Number of explorers; 0: uniform play."""
    tasks: Sequence[float]
    """Steps with the highest reward per episode, on each."""


@styled
def generalization_figure(reached: Sequence[Reached], curves: Sequence[RunResults]) -> Figure:
    """Left: steps with the highest reward as explorers are added; right: learning curves."""
    figure = new_figure(9.6, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    _zero_shot(left, reached, {str(run.run["method"]): color for run, color in _colored(curves)})
    left.set_xlabel("explorers (0: uniform play)")
    left.set_ylabel("steps with the highest reward, per episode")
    left.set_title("before learning, on unseen hard tasks")
    if curves:
        draw_curves(right, curves)
    else:
        right.set_axis_off()
    right.set_title("while a learner learns hard tasks")
    right.set_ylabel("return")
    return figure


def _colored(curves: Sequence[RunResults]) -> list[tuple[RunResults, str]]:
    return list(zip(curves, run_colors(curves), strict=True))


def _zero_shot(axes: Axes, reached: Sequence[Reached], colors: dict[str, str]) -> None:
    """A line for each kind of explorers, from uniform play on: every task a dot, their mean, the worst of them."""
    random = [value for one in reached if one.number == 0 for value in one.tasks]
    labels = list(dict.fromkeys(one.label for one in reached if one.number > 0))
    spare = iter(color for color in PALETTE if color not in colors.values())
    for place, label in enumerate(labels):
        color = colors.get(label) or next(spare, SOFT)
        own: dict[int, list[float]] = {0: random} if random else {}
        for one in sorted((one for one in reached if one.label == label and one.number), key=lambda one: one.number):
            own.setdefault(one.number, []).extend(one.tasks)
        numbers = list(own)
        for number in (number for number in numbers if number > 0):
            shift = number + 0.12 * (place - (len(labels) - 1) / 2)
            spread = shift + 0.04 * np.linspace(-1, 1, len(own[number]))
            axes.plot(spread, own[number], "o", color=color, alpha=0.25, markersize=3, markeredgewidth=0)
        means, worst = [float(np.mean(own[number])) for number in numbers], [min(own[number]) for number in numbers]
        axes.plot(numbers, means, "-D", color=color, markeredgecolor=INK, markersize=5, label=literal(label))
        axes.plot(numbers, worst, ":v", color=color, markersize=4, linewidth=1)
        axes.annotate(
            f"{means[-1]:.2f}, worst {worst[-1]:.2f}",
            (numbers[-1], means[-1]),
            (14, 0),
            textcoords="offset points",
            fontsize=8,
            color=color,
            va="center",
        )
    numbers = sorted({one.number for one in reached}) or [0, 1]
    axes.set_xticks(numbers)
    axes.set_xlim(-0.15, numbers[-1] + 1.0)
    axes.set_ylim(bottom=-0.15)
    axes.plot([], [], ":v", color=INK, markersize=4, linewidth=1, label="worst task")
    axes.legend(loc="upper right", frameon=False, fontsize=8)
