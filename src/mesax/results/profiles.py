"""Performance profiles: how many task runs reach at least a share of the best return, for every share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mesax.formatting import shorten
from mesax.rendering.canvas import PALETTE, literal, new_figure, styled
from mesax.results.intervals import share_interval
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
def profile_figure(rows: Mapping[str, Sequence[RunResults]], colors: Sequence[str] = PALETTE) -> Figure:
    """A line for each method, with its interval."""
    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    for number, (label, runs) in enumerate(rows.items()):
        color, style = colors[number % len(colors)], ("-", "--", ":")[number // len(colors) % 3]
        value, low, high = profile(runs)
        axes.step(
            SHARES, value, where="post", color=color, linestyle=style, linewidth=1.6, label=literal(shorten(label))
        )
        axes.fill_between(SHARES, low, high, step="post", color=color, alpha=0.08, linewidth=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of the best return")
    axes.set_ylabel("task runs that reach it")
    figure.legend(loc="outside right center", frameon=False)
    return figure
