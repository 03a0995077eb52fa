"""Performance profiles: how many task runs reach at least a share of the best return, for every share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mesax.formatting import shorten
from mesax.rendering.canvas import label_ends, literal, new_figure, styled
from mesax.results.intervals import share_interval
from mesax.results.labels import colors_of
from mesax.store.reading import RunResults

SHARES = np.linspace(0.0, 1.0, 101)


def profile(runs: Sequence[RunResults], shares: np.ndarray = SHARES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The share of task runs at or above each share of the best return, with its interval.

    Runs of several families count the same, however many tasks and seeds each has; so do the ends of their intervals,
    which makes the interval of the mean wider than it need be.
    """
    found = [[share_interval(_scores(run) >= share, run.tasks, run.seeds) for share in shares] for run in runs]
    ends = np.array([[(one.value, one.low, one.high) for one in row] for row in found])
    value, low, high = ends.mean(axis=0).T
    return value, low, high


def _scores(run: RunResults) -> np.ndarray:
    return run.final_returns / float(run.family["optimal_return"])


@styled
def profile_figure(rows: Mapping[str, Sequence[RunResults]], colors: Sequence[str] = ()) -> Figure:
    """A line for each method, named at its end."""
    figure = new_figure(6.4, max(3.0, 0.6 + 0.19 * len(rows)))
    axes = figure.subplots()
    ends = []
    for (label, runs), color in zip(rows.items(), colors or colors_of(list(rows)), strict=True):
        value, _, _ = profile(runs)
        axes.step(SHARES, value, where="post", color=color, linewidth=1.8, label=literal(label))
        ends.append((float(value[-1]), literal(shorten(label)), color))
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of the best return", ylabel="task runs that reach it")
    label_ends(axes, ends)
    return figure
