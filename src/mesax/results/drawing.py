"""Which figures belong to a run and to a comparison, and where they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mesax.rendering.canvas import save
from mesax.results.comparison import FamilyComparison
from mesax.results.figures import COMPARISON_FIGURES, RUN_FIGURES, learning_curves
from mesax.store.reading import RunResults, load_run
from mesax.suites.base import RunFigure
from mesax.suites.registry import suite_of_run


def world_figures(run: RunResults) -> Sequence[RunFigure]:
    """The figures of the run's own world; none if its suite is not known here."""
    suite = suite_of_run(run.run)
    return () if suite is None else suite.figures()


def draw_run(directory: Path) -> list[Path]:
    """Every figure that the run has data for, into its `figures/`."""
    run, target = load_run(directory), directory / "figures"
    drawings = {"learning-curves": learning_curves([run], by_group=True)}
    drawings |= {figure.name: figure.draw(run) for figure in (*world_figures(run), *RUN_FIGURES) if figure.applies(run)}
    return [save(figure, target / name)[0] for name, figure in drawings.items()]


def draw_comparison(families: Sequence[FamilyComparison], directory: Path) -> list[Path]:
    """The figures of the runs on each family; several families have their names in the files'."""
    drawn = []
    for number, family in enumerate(families):
        name = re.sub(r"[^\w.=-]+", "-", family.title).strip("-") or str(number)
        ending = f"-{name}" if len(families) > 1 else ""
        for figure in COMPARISON_FIGURES:
            drawn.append(save(figure.draw(family.runs), directory / f"compare-{figure.name}{ending}")[0])
    return drawn
