"""Scenes as files: a still, the plane of two numbers if there are two, and a GIF."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mesax.rendering.canvas import save
from mesax.rendering.painter import draw_still, frames
from mesax.rendering.plane import draw_plane
from mesax.rendering.scene import Scene
from mesax.store.files import write_file


def draw_scene(scene: Scene, title: str, base: Path, gif: Path) -> list[Path]:
    """Write stills (PNG and SVG) at `base`, a path without suffix, and the GIF; all files, in order."""
    drawn = [*save(draw_still(scene, title), base)]
    if scene.has_plane:
        drawn += save(draw_plane(scene), base.with_name(f"{base.name}-plane"))
    write_gif(frames(scene, title), gif)
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
