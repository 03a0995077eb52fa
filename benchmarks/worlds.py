"""Draws docs/images/worlds.png: maps of the paper's authors beside a layout of the wide worlds, with starts of agents.

    python benchmarks/worlds.py

It takes a few seconds. The maps are those of seeds 0, 1 and 2, on which the authors ran their baselines.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import withStroke

from mesax.envs.particle_climb import ParticleTask
from mesax.rendering.canvas import AGENTS, EDGE, INK, OPTIMAL, OPTIMAL_AREA, STYLE, new_figure
from mesax.suites.particles.presets import WORLDS

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "worlds.png"
PANELS = (("mpe-2a5l", 0), ("mpe-2a5l", 1), ("mpe-2a5l", 2), ("wide-2a5l", 0))
EPISODES = 50
START = {"marker": "o", "color": AGENTS[0], "linestyle": "", "markersize": 1.5}
DISC, TARGET = {"facecolor": "#F1F1F1", "edgecolor": EDGE}, {"facecolor": OPTIMAL_AREA, "edgecolor": OPTIMAL}
HALO = [withStroke(linewidth=2, foreground="white")]


def draw_world(axes: Axes, name: str, seed: int) -> None:
    """The first test task of a seed, and where agents start in many episodes."""
    family = WORLDS[name].family
    world, tasks = family.world, family.split(seed, 0, 1).test
    task: ParticleTask = jax.tree.map(lambda leaf: leaf[0], tasks)
    starts, _ = jax.vmap(world.reset, in_axes=(None, 0))(task, jax.random.split(jax.random.key(0), EPISODES))
    axes.plot(*np.asarray(starts.position).reshape(-1, 2).T, **START, zorder=2)
    for number, (x, y) in enumerate(np.asarray(task.landmarks).tolist()):
        style = TARGET if number == int(task.target) else DISC
        axes.add_patch(Circle((x, y), world.radius, **style, zorder=1))
        axes.text(x, y, str(number), fontsize=7, ha="center", va="center_baseline", path_effects=HALO, zorder=3)
    if world.wall is not None:
        side = 2 * world.wall
        axes.add_patch(Rectangle((-world.wall, -world.wall), side, side, fill=False, edgecolor=INK, linewidth=1.4))
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{name}, seed {seed}")
    axes.spines[:].set(visible=world.wall is None, color=EDGE, linestyle=":")


def draw() -> Figure:
    """All panels at one scale."""
    figure = new_figure(7.6, 2.4)
    for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        draw_world(axes, *panel)
    disc = {"marker": "o", "linestyle": "", "markersize": 9}
    handles = [
        Line2D([], [], **disc, markerfacecolor=one["facecolor"], markeredgecolor=one["edgecolor"], label=label)
        for one, label in ((DISC, "landmark"), (TARGET, "target"))
    ]
    handles.append(Line2D([], [], **START | {"markersize": 4}, label=f"starts of both agents in {EPISODES} episodes"))
    handles.append(Line2D([], [], color=INK, linewidth=1.4, label="wall"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Draw and save."""
    with rc_context(STYLE):
        draw().savefig(FIGURE, dpi=200, metadata={"Software": None})


if __name__ == "__main__":
    main()
