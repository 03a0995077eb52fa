"""Which figures belong to a run and to a comparison, and where they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from mesax.errors import UsageError
from mesax.results import figures
from mesax.results.comparison import FamilyComparison
from mesax.store.reading import load_run
from mesax.suites.particles import figures as figures_particles
from mesax.suites.swimmer import figures as figures_swimmer


def draw_run(directory: Path) -> list[Path]:
    """Every figure that the run has data for, into its `figures/`."""
    run = load_run(directory)
    drawings: dict[str, Callable[[], Figure]] = {
        "learning-curves": lambda: figures.learning_curves([run], by_group=True),
        "explorer-coverage": lambda: figures_particles.explorer_visits(run),
        "explorer-paths": lambda: figures_swimmer.explorer_paths(run),
        "meta-training": lambda: figures.meta_training(run),
    }
    return _draw(drawings, directory / "figures")


def draw_comparison(families: Sequence[FamilyComparison], directory: Path) -> list[Path]:
    """Learning curves and final returns of the runs on each family; several families have their names in the files'."""
    drawn = []
    for number, family in enumerate(families):
        name = re.sub(r"[^\w.=-]+", "-", family.title).strip("-") or str(number)
        ending = f"-{name}" if len(families) > 1 else ""
        drawings: dict[str, Callable[[], Figure]] = {
            f"compare-curves{ending}": partial(figures.learning_curves, family.runs, by_group=True),
            f"compare-returns{ending}": partial(figures.final_returns, family.runs),
        }
        drawn += _draw(drawings, directory)
    return drawn


def _draw(drawings: dict[str, Callable[[], Figure]], directory: Path) -> list[Path]:
    drawn = []
    for name, draw in drawings.items():
        try:
            figure = draw()
        except UsageError:  # the run has no such data, for example no explorers
            continue
        directory.mkdir(parents=True, exist_ok=True)
        drawn.append(figures.save(figure, directory / name)[0])
    return drawn
