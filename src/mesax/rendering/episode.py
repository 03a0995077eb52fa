"""Played episodes as pictures: a still, perhaps more of them, and a GIF; what is in them only the episodes know."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mesax.rendering.canvas import save
from mesax.rendering.scene import Scene
from mesax.store.files import write_file
from mesax.store.json_values import Json


class Play(Protocol):
    """Episodes of one policy on one task, which know how they are drawn."""

    def picture(self) -> Figure:
        """The still."""

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """Pictures of one size, each with the seconds for which it is shown."""

    def scene(self) -> Scene:
        """The same episodes for a player on a page."""

    def more(self, coverage: Json) -> dict[str, Figure]:
        """Other stills by name, in addition to what meta-training found (empty if there was none)."""


def draw_play(play: Play, base: Path, gif: Path, coverage: Json) -> list[Path]:
    """Write stills (PNG and SVG) at `base`, a path without suffix, and the GIF; all files, in order."""
    drawn = [*save(play.picture(), base)]
    for name, figure in play.more(coverage).items():
        drawn += save(figure, base.with_name(f"{base.name}-{name}"))
    write_gif(play.frames(), gif)
    return [*drawn, gif]


def write_gif(frames: Iterable[tuple[Figure, float]], path: Path) -> None:
    """Draw all frames into one GIF, which appears whole or not at all."""
    pictures: list[np.ndarray] = []
    milliseconds: list[int] = []
    for figure, seconds in frames:
        canvas = figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        canvas.draw()
        pictures.append(np.array(canvas.buffer_rgba())[..., :3])
        milliseconds.append(round(1000 * seconds))
    join_pictures(pictures, milliseconds, path)


def join_pictures(pictures: Sequence[np.ndarray], milliseconds: Sequence[int] | int, path: Path) -> None:
    """Pictures of one size, `[height, width, 3]` of bytes, as one GIF, which appears whole or not at all."""
    # All frames as one tall picture: with a palette of its own for each, unchanged parts would flicker.
    tall = Image.fromarray(np.concatenate(pictures)).quantize(256, dither=Image.Dither.NONE)
    height = len(pictures[0])
    indexed = [tall.crop((0, top, tall.width, top + height)) for top in range(0, tall.height, height)]
    joined = io.BytesIO()
    indexed[0].save(joined, "GIF", save_all=True, append_images=indexed[1:], duration=milliseconds, loop=0)
    write_file(path, joined.getvalue())
