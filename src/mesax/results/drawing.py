"""Which figures belong to a run and to a comparison, and where they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from mesax.rendering.canvas import save
from mesax.results.comparison import FamilyComparison
from mesax.results.figures import COMPARISON_FIGURES, RUN_FIGURES, learning_curves
from mesax.results.safe_drawing import attempt
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.registry import suite_of_run

Draw = Callable[[], Figure]


def world_figures(run: RunResults) -> Sequence[RunFigure]:
    """The figures of the run's own world; none if its suite is not known here."""
    suite = suite_of_run(run.run)
    return () if suite is None else suite.figures()


def draw_run(run: RunResults) -> list[Path]:
    """Every figure that the run has data for, into its `figures/`."""
    listed = [figure for figure in (*world_figures(run), *RUN_FIGURES) if figure.applies(run)]
    drawings = [("learning-curves", lambda: learning_curves([run], by_group=True))]
    drawings += [(figure.name, partial(figure.draw, run)) for figure in listed]
    return _drawn(drawings, run.directory / "figures")


def draw_comparison(families: Sequence[FamilyComparison], directory: Path) -> list[Path]:
    """The figures of the runs on each family; several families have their names in the files'."""
    drawings: list[tuple[str, Draw]] = []
    for number, family in enumerate(families):
        name = re.sub(r"[^\w.=-]+", "-", family.title).strip("-") or str(number)
        ending = f"-{name}" if len(families) > 1 else ""
        drawings += [
            (f"compare-{figure.name}{ending}", partial(figure.draw, family.runs)) for figure in COMPARISON_FIGURES
        ]
    return _drawn(drawings, directory)


def _drawn(drawings: Iterable[tuple[str, Draw]], directory: Path) -> list[Path]:
    """Files of all pictures that can be drawn."""
    drawn = (attempt(name, partial(_saved, draw, directory / name)) for name, draw in drawings)
    return [path for path in drawn if path is not None]


def _saved(draw: Draw, path: Path) -> Path:
    return save(draw(), path)[0]
