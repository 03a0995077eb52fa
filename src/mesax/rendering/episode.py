"""An episode of a saved policy as pictures: a still and a GIF, drawn by whichever module knows the family."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mesax.envs.base import HostEnvironment, TaskFamily
from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimbFamily
from mesax.envs.swimmer_climb import SwimmerFamily
from mesax.errors import StoreError, UsageError
from mesax.execution.saved_policies import named_policy
from mesax.experiments.request import Request
from mesax.methods.base import Experiment
from mesax.results import figures
from mesax.store.run_directory import RunDirectory
from mesax.suites.climb.render import ClimbPlay
from mesax.suites.particles.render import ParticlePlay
from mesax.suites.swimmer.render import SwimmerPlay
from mesax.training.driver import play_episodes
from mesax.types import Episode, tree_index

RENDER_STREAM = 7
EPISODES, EPISODES_ON_HOST = 200, 20


class Play(Protocol):
    """Episodes of one policy on one task, which know how they are drawn."""

    def picture(self) -> Figure:
        """The still."""

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """Pictures of one size, each with the seconds for which it is shown."""

    def more(self, coverage: dict[str, Any]) -> dict[str, Figure]:
        """Other stills by name, beside what meta-training found (empty if there was none)."""


PLAYS: dict[type, Callable[[str, Any, Any, Episode], Play]] = {
    ClimbFamily: ClimbPlay.of,
    ParticleClimbFamily: ParticlePlay.of,
    SwimmerFamily: SwimmerPlay.of,
}
"""How `(title, family, task, stacked episodes)` become a play, by family."""


def render_run(run: RunDirectory, task: int, policy: str, gif: Path | None) -> list[Path]:
    """Play a saved policy on a test task; draw a still (PNG and SVG) and a GIF."""
    experiment = Request.of_run(run.run).experiment()
    if not 0 <= task < experiment.num_test_tasks:
        raise UsageError(f"no test task {task}; this run has tasks 0 to {experiment.num_test_tasks - 1}")
    base = run.path / "figures" / f"episode-task-{task:02d}-{policy}"
    target = gif or base.with_name(base.name + ".gif")
    if target.suffix.lower() != ".gif" or target.is_dir():
        raise UsageError(f"--gif {target} is not the name of a file that ends in .gif")
    play = play_policy(run, experiment, task, policy)
    drawn = [*figures.save(play.picture(), base)]
    coverage = run.read_json("coverage.json") if (run.path / "coverage.json").is_file() else {}
    for name, figure in play.more(coverage).items():
        drawn += figures.save(figure, base.with_name(f"{base.name}-{name}"))
    write_gif(play.frames(), target)
    return [*drawn, target]


def play_policy(run: RunDirectory, experiment: Experiment, task: int, name: str) -> Play:
    """Episodes of the named policy on one test task."""
    family = experiment.family
    play_of = _play_of(family, str(run.run["env"]))
    policy = named_policy(run, experiment, name, task)
    split = family.split(experiment.seed, experiment.num_train_tasks, experiment.num_test_tasks)
    one = jax.tree.map(lambda leaf: leaf[task : task + 1], split.test)
    number = EPISODES_ON_HOST if isinstance(family.env, HostEnvironment) else EPISODES
    episodes = play_episodes(family.env, one, policy, experiment.key(RENDER_STREAM, task), number)
    title = f"{run.run['method']} on {run.run['env']}, test task {task}: policy {name}"
    return play_of(title, family, tree_index(one, 0), episodes)


def _play_of(family: TaskFamily, env: str) -> Callable[[str, Any, Any, Episode], Play]:
    for kind, play_of in PLAYS.items():
        if isinstance(family, kind):
            return play_of
    known = ", ".join(kind.__name__ for kind in PLAYS)
    raise UsageError(f"{env} cannot be drawn: its tasks are of {type(family).__name__}, and render knows {known}")


def write_gif(frames: Iterable[tuple[Figure, float]], path: Path) -> None:
    """Draw all frames into one GIF, which appears whole or not at all."""
    pictures, milliseconds = [], []
    for figure, seconds in frames:
        canvas = figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        canvas.draw()
        pictures.append(np.array(canvas.buffer_rgba())[..., :3])
        milliseconds.append(round(1000 * seconds))
    # All frames as one tall picture: with a palette of its own for each, unchanged parts would flicker.
    tall = Image.fromarray(np.concatenate(pictures)).quantize(256, dither=Image.Dither.NONE)
    height = len(pictures[0])
    indexed = [tall.crop((0, top, tall.width, top + height)) for top in range(0, tall.height, height)]
    unfinished = path.with_name(f".tmp-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        indexed[0].save(unfinished, "GIF", save_all=True, append_images=indexed[1:], duration=milliseconds, loop=0)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
