"""Draws the animation of the README: one unseen task, played at random, by an explorer, and by a team that has learned.

    python tools/three_panels.py          writes docs/images/three-panels.gif from the nets in docs/play.html
    python tools/three_panels.py --check  1 if the episodes are not those of the picture

The GIF carries a sum of what it shows, so the check plays the episodes and draws nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from mesax.envs.particle_climb import ParticleTask, TasksAmongLandmarks
from mesax.policy import Policy, UniformPolicy
from mesax.rendering import canvas
from mesax.rendering.episode import write_gif
from mesax.rendering.painter import Moment, draw_arena, draw_rewards
from mesax.rendering.scene import Scene
from mesax.suites.particles.render import scene
from mesax.training.driver import play_episodes
from mesax.types import on_device

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.play_page import ROOT, Json, data_in, experiment_of, explorer_of, teams_of

PICTURE = ROOT / "docs" / "images" / "three-panels.gif"
TARGET, SEED = 1, 15
HALF, FRAMES = 0.572, 40
"""Half a side of the view, and moments of the GIF."""
WIDE, SIDE, STRIP = 9.5, 2.75, 0.55
FRAME, FIRST, LAST = 0.1, 0.8, 2.5
"""Seconds that a frame is shown, the first and the last longer."""
NAMES = (
    "random moves",
    "an explorer, which is not told the target",
    "what a team learns from such visits",
)


def scenes(data: Json) -> list[Scene]:
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
    view = (-HALF, HALF, -HALF, HALF)
    return [
        replace(scene(family, task, play_episodes(family.env, tasks, player, jax.random.key(SEED), 1)), view=view)
        for player in players
    ]


def sum_of(shown: list[Scene]) -> str:
    """What the picture shows, in a word: positions to a thousandth."""
    places = np.concatenate([one.takes[0].points.round(3).ravel() for one in shown]) + 0.0
    return hashlib.sha256(np.round(1000 * places).astype("<i4").tobytes()).hexdigest()[:16]


@canvas.styled
def frame(shown: list[Scene], at: int) -> Figure:
    """All three at one moment."""
    high = SIDE + STRIP + 0.75
    figure = canvas.new_frame(WIDE, high)
    for number, (name, one) in enumerate(zip(NAMES, shown, strict=True)):
        left = 0.35 + number * (WIDE / len(shown))
        arena = canvas.place_axes(figure, left, high - 0.3 - SIDE, SIDE, SIDE)
        arena.set_title(name, fontsize=8.5, loc="center", pad=4)
        draw_arena(arena, one, Moment(0, at))
        arena.spines[:].set(visible=True, color=canvas.EDGE)
        strip = canvas.place_axes(figure, left, 0.3, SIDE, STRIP)
        draw_rewards(strip, one, Moment(0, at))
        strip.set_ylabel("")
        take = one.takes[0]
        strip.set_xlabel(f"step {take.steps[at]}, paid {one.return_of(take, at):.1f}", fontsize=8, labelpad=-4)
    return figure


def draw(shown: list[Scene], path: Path) -> None:
    """The GIF, with what it shows as its comment."""
    last = len(shown[0].takes[0].steps) - 1
    seconds = {0: FIRST, last: LAST}
    times = np.unique(np.linspace(0, last, FRAMES + 1).round().astype(int)).tolist()
    write_gif(((frame(shown, at), seconds.get(at, FRAME)) for at in times), path)
    with Image.open(path) as picture:
        picture.save(path.with_suffix(".new"), "GIF", save_all=True, comment=sum_of(shown).encode(), loop=0)
    path.with_suffix(".new").replace(path)


def main() -> int:
    """Draw, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--check", action="store_true", help="draw nothing; 1 if the picture is stale")
    options = parser.parse_args()
    shown = scenes(data_in())
    if options.check:
        with Image.open(options.out) as picture:
            stale = picture.info.get("comment") != sum_of(shown).encode()
        print(f"{options.out} is {'stale: python tools/three_panels.py' if stale else 'up to date'}")
        return int(stale)
    draw(shown, options.out)
    earned = ", ".join(f"{name}: {one.return_of(one.takes[0]):.1f}" for name, one in zip(NAMES, shown, strict=True))
    print(f"drawn    {options.out}, {options.out.stat().st_size / 1000:.0f} kB ({earned})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
