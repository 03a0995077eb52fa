"""Figures of the swimmer: the angles at which explorers bring both joints, and their ways in the plane of both."""

import numpy as np
from matplotlib.figure import Figure

from mesax.rendering.plane import Plane, draw_planes
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.visits import visitor_colors, visits_in_a_row

MOST_DEGREES = 50.0
"""Panels reach at most this far: beyond it nothing pays, and what pays is to be seen."""


def have_paths(run: RunResults) -> bool:
    """Whether joint angles of explorers were recorded, with M_*."""
    coverage = run.coverage or {}
    return bool(coverage.get("plane")) and any(one.get("path") for one in coverage.get("visitors") or ())


def explorer_paths(run: RunResults) -> Figure:
    """Where uniform play and the explorers go in the plane of joint angles, over M_* and its clusters."""
    coverage = run.coverage or {}
    visitors = [one for one in coverage["visitors"] if one.get("path")]
    paths = {one["name"]: list(np.rad2deg(np.array(one["path"], dtype=float))) for one in visitors}
    names = {"$M_*$": "members", "clusters": "centroids"}
    points = {name: np.rad2deg(np.array(coverage["plane"][key], dtype=float)) for name, key in names.items()}
    somewhere = paying_area(run.family["band_degrees"], run.family["most_degrees"])
    joints = ("front joint (degrees)", "rear joint (degrees)")
    plane = Plane(joints, somewhere=somewhere, points=points, most=MOST_DEGREES)
    return draw_planes(paths, plane, visitor_colors(visitors))


def paying_area(band: float, most: float) -> np.ndarray:
    """Corners of the area in which some target pays; all in degrees."""
    low, high = -most - band, most + band
    corners = [(low, low), (low + 2 * band, low), (high, high - 2 * band), (high, high), (high - 2 * band, high)]
    return np.array([*corners, (low, low + 2 * band)])


FIGURES = (
    visits_in_a_row("angle at which both joints meet, in steps of the band from the most negative", "angles"),
    RunFigure(
        name="explorer-paths",
        title="Where the explorers go",
        caption=(
            "Joint angles during four episodes of uniform play and of each explorer on unseen test tasks, over the "
            "members of M_* and the centers of its clusters."
        ),
        applies=have_paths,
        draw=explorer_paths,
    ),
)
