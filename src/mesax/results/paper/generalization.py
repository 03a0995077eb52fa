"""Figure 7 of the paper: explorers of simpler worlds in a harder one, before and while a learner learns there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.rendering.canvas import INK, PALETTE, literal, new_figure, styled
from mesax.results.figures import draw_curves
from mesax.store.reading import RunResults


def reached(run: RunResults) -> dict[str, list[float]]:
    """High-reward steps per episode on each unseen task before anything is learned: of uniform play, of explorers."""
    visitors = (run.coverage or {}).get("visitors", ())
    steps = {
        str(one["name"]): [value for value in one.get("task_steps") or () if value is not None] for one in visitors
    }
    return {name: values for name, values in steps.items() if values}


@styled
def generalization_figure(runs: Sequence[tuple[str, RunResults]], curves: Sequence[RunResults]) -> Figure:
    """Left: every unseen task of labeled runs as a dot, with the mean and the worst; right: learning curves."""
    figure = new_figure(9.0, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    labels = list(dict.fromkeys(label for label, _ in runs))
    shown = _zero_shot(left, runs, labels)
    left.set_yticks(range(len(shown)), [literal(name) for name in shown])
    left.set_ylim(len(shown) - 0.5, -0.5)
    left.set_xlabel("steps with the highest reward, per episode")
    left.set_title("before learning, on unseen hard tasks")
    draw_curves(right, curves)
    right.set_title("while a learner learns hard tasks")
    right.set_ylabel("return (mean, 95% interval)")
    return figure


def _zero_shot(axes: Axes, runs: Sequence[tuple[str, RunResults]], labels: Sequence[str]) -> list[str]:
    """A row for each kind of explorers, and one for uniform play; the names of the rows."""
    rows: dict[str, list[float]] = {}
    for label in labels:
        for name, run in runs:
            for visitor, steps in reached(run).items() if name == label else ():
                rows.setdefault("uniform play" if visitor == "uniform" else label, []).extend(steps)
    for row, (name, values) in enumerate(rows.items()):
        color = PALETTE[-1] if name == "uniform play" else PALETTE[labels.index(name) % (len(PALETTE) - 1)]
        spread = row + 0.25 * np.linspace(-1, 1, len(values))
        axes.plot(values, spread, "o", color=color, alpha=0.4, markersize=4, markeredgewidth=0)
        axes.plot([np.mean(values)], [row], "D", color=color, markeredgecolor=INK, markersize=6)
        axes.annotate(
            f"mean {np.mean(values):.2f}, worst {np.min(values):.2f}",
            (max(values), row),
            (8, 0),
            textcoords="offset points",
            fontsize=8,
            va="center",
        )
    axes.set_xlim(-0.1, 1.6 * max((max(values) for values in rows.values()), default=1.0))
    return list(rows)
