"""Figure 9 of the paper, and what each part that was added to MESA is worth."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.formatting import format_number
from mesax.rendering.canvas import SOFT, literal, new_figure, styled
from mesax.results.figures import draw_curves, draw_scores, run_colors
from mesax.results.summary import final_interval
from mesax.store.reading import RunResults


@styled
def ablation_figure(arms: Sequence[tuple[str, RunResults]], in_the_paper: Sequence[str]) -> Figure:
    """A row for each environment in which there is something to compare, or for all if there is none.

    Left: learning curves of the arms that the paper has; right: final returns of all.
    """
    named = list(dict.fromkeys(str(run.run["env"]) for _, run in arms))
    own = {env: [(label, run) for label, run in arms if run.run["env"] == env] for env in named}
    envs = [env for env in named if len(own[env]) > 1] or named
    heights = [max(2.6, 0.9 + 0.3 * len(own[env])) for env in envs]
    figure = new_figure(10.5, sum(heights))
    grid = figure.subplots(len(envs), 2, squeeze=False, width_ratios=(1, 1.1), height_ratios=heights)
    for (left, right), env in zip(grid, envs, strict=True):
        curves = [run for label, run in own[env] if label in in_the_paper]
        if curves:
            draw_curves(left, curves)
        else:
            left.set_axis_off()
        left.set_title(literal(env))
        left.set_ylabel("return")
        _finals(right, own[env])
    return figure


def _finals(axes: Axes, arms: Sequence[tuple[str, RunResults]]) -> None:
    """A row for each arm: every task run a dot, the mean with its interval in words at the right."""
    runs = [run for _, run in arms]
    for row, (run, color) in enumerate(zip(runs, run_colors(runs), strict=True)):
        draw_scores(axes, row, run, color)
        interval = final_interval(run)
        text = f"{format_number(interval.value)} [{format_number(interval.low)}, {format_number(interval.high)}]"
        axes.annotate(
            text, (1, row), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=8
        )
    family = runs[0].family
    for level in (family["optimal_return"], family["suboptimal_return"]):
        axes.axvline(level, color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
    axes.set_yticks(range(len(arms)), [literal(label) for label, _ in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), 1.04 * float(family["optimal_return"]))
    axes.set_title("final return of every task run, mean and 95% interval")
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
