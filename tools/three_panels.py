"""Draws the animation of the README: one unseen task, played at random, by an explorer, and by a team that has learned.

    python tools/three_panels.py          writes docs/images/three-panels.gif from the nets in docs/play.html
    python tools/three_panels.py --check  1 if the episodes are not those of the picture

The GIF carries a sum of what it shows, so the check plays the episodes and draws nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image

from mesax.envs.particle_climb import ParticleTask, TasksAmongLandmarks
from mesax.policy import Policy, UniformPolicy
from mesax.rendering import canvas
from mesax.rendering.episode import write_gif
from mesax.suites.particles.render import ParticlePlay, View, frame_times
from mesax.training.driver import play_episodes
from mesax.types import on_device

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.play_page import ROOT, Json, data_in, experiment_of, explorer_of, teams_of

PICTURE = ROOT / "docs" / "images" / "three-panels.gif"
TARGET, SEED = 1, 15
TRAIL, HALF = 15, 0.55
WIDE, SIDE, STRIP = 9.5, 2.75, 0.55
FRAME, FIRST, LAST = 0.1, 0.8, 2.5
"""Seconds that a frame is shown, the first and the last longer."""
NAMES = (
    "random moves",
    "an explorer, which is not told the target",
    "what a team learns from such visits",
)


def plays(data: Json) -> list[ParticlePlay]:
    """An episode of each."""
    family = experiment_of(data).family
    assert isinstance(family, TasksAmongLandmarks)
    layout = np.asarray(data["layout"], np.float32)[None]
    tasks = ParticleTask(*on_device((layout, np.array([TARGET], np.int32), np.array([family.count], np.int32))))
    task = jax.tree.map(lambda leaf: leaf[0], tasks)
    players: list[Policy] = [
        UniformPolicy(family.env.spec.action_space),
        explorer_of(data),
        teams_of(data)[TARGET],
    ]
    return [
        ParticlePlay.of(name, family, task, play_episodes(family.env, tasks, player, jax.random.key(SEED), 1))
        for name, player in zip(NAMES, players, strict=True)
    ]


def sum_of(shown: list[ParticlePlay]) -> str:
    """What the picture shows, in a word: positions to a thousandth."""
    places = np.concatenate([play.positions.round(3).ravel() for play in shown]) + 0.0
    return hashlib.sha256(np.round(1000 * places).astype("<i4").tobytes()).hexdigest()[:16]


@canvas.styled
def frame(shown: list[ParticlePlay], time: int) -> Figure:
    """All three at one time."""
    high = SIDE + STRIP + 0.75
    figure = canvas.new_frame(WIDE, high)
    for number, play in enumerate(shown):
        left = 0.35 + number * (WIDE / len(shown))
        arena = canvas.place_axes(figure, left, high - 0.3 - SIDE, SIDE, SIDE)
        arena.set_title(play.title, fontsize=8.5, loc="center", pad=4)
        draw_arena(arena, play, time)
        strip = canvas.place_axes(figure, left, 0.3, SIDE, STRIP)
        canvas.draw_rewards(strip, play.rewards[0], time, play.horizon, play.safe_reward)
        strip.set_xticks([0, play.horizon])
        strip.set_ylabel("")
        strip.set_xlabel(f"step {time}, paid {play.rewards[0, :time].sum():.1f}", fontsize=8, labelpad=-4)
    return figure


def draw_arena(axes: Axes, play: ParticlePlay, time: int) -> None:
    """Landmarks, the target, and agents with the way they came."""
    view = View(0.0, 0.0, HALF)
    axes.set(xlim=view.edges[:2], ylim=view.edges[2:], xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color(canvas.EDGE)
    axes.spines[:].set_visible(True)
    met = play.order(0, time)
    for number, (x, y) in enumerate(play.landmarks):
        target = number == play.target
        fill, rim = (canvas.OPTIMAL_AREA, canvas.OPTIMAL) if target else ("#F1F1F1", canvas.EDGE)
        width = 2.2 if number in met else 1.0
        rim = canvas.INK if number in met and not target else rim
        axes.add_patch(Circle((x, y), play.radius, facecolor=fill, edgecolor=rim, linewidth=width))
        if target:
            axes.plot(x, y, "*", color=canvas.OPTIMAL, markersize=9)
    for agent in range(play.num_agents):
        way = play.positions[0, max(0, time - TRAIL) : time + 1, agent]
        color = canvas.AGENTS[agent]
        axes.plot(way[:, 0], way[:, 1], color=color, linewidth=1.6, alpha=0.6)
        axes.add_patch(Circle((way[-1, 0], way[-1, 1]), play.agent_size, facecolor=color, edgecolor="white", zorder=4))


def draw(shown: list[ParticlePlay], path: Path) -> None:
    """The GIF, with what it shows as its comment."""
    horizon = shown[0].horizon
    seconds = {0: FIRST, horizon: LAST}
    write_gif(((frame(shown, time), seconds.get(time, FRAME)) for time in frame_times(horizon)), path)
    with Image.open(path) as picture:
        picture.save(path.with_suffix(".new"), "GIF", save_all=True, comment=sum_of(shown).encode(), loop=0)
    path.with_suffix(".new").replace(path)


def main() -> int:
    """Draw, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--check", action="store_true", help="draw nothing; 1 if the picture is stale")
    options = parser.parse_args()
    shown = plays(data_in())
    if options.check:
        with Image.open(options.out) as picture:
            stale = picture.info.get("comment") != sum_of(shown).encode()
        print(f"{options.out} is {'stale: python tools/three_panels.py' if stale else 'up to date'}")
        return int(stale)
    draw(shown, options.out)
    earned = ", ".join(f"{play.title}: {play.rewards[0].sum():.1f}" for play in shown)
    print(f"drawn    {options.out}, {options.out.stat().st_size / 1000:.0f} kB ({earned})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
