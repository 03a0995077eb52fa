"""Figures of particle worlds: at which landmarks uniform play and the explorers meet."""

from __future__ import annotations

from matplotlib.figure import Figure

from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.visits import PLACES_CAPTION, VISITS_TITLE, are_in_a_row, place_visits


def landmark_visits(run: RunResults) -> Figure:
    """A bar for each landmark."""
    together = f"{run.family['count']} of {run.family['num_agents']} agents"
    return place_visits(run, f"landmark at which {together} are together")


FIGURES = (
    RunFigure(
        name="explorer-coverage",
        title=VISITS_TITLE,
        caption=PLACES_CAPTION,
        applies=are_in_a_row,
        draw=landmark_visits,
        absent="recorded no visits of landmarks",
    ),
)
