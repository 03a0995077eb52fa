"""Every figure and table of the paper as a value: which runs it needs, what these cost, how it is drawn.

`mesax reproduce NAME` looks for the runs among those stored, says which are missing and what to type for them, and
draws from what there is. To add a figure or a table: one function, one entry of `PIECES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mesax.errors import StoreError, UsageError
from mesax.formatting import NOTHING, format_duration
from mesax.results.comparison import pool
from mesax.results.tables import Table
from mesax.store.reading import RunResults, load_run
from mesax.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = (0, 1, 2)
"""Of every result that is reported."""
DEEPEST = 3
"""Levels below a directory of runs at which runs are looked for."""


@dataclass(frozen=True)
class Cell:
    """A run that a figure needs, for each of several seeds."""

    method: str
    env: str
    minutes: float
    """Of one seed on two cores, about: from the runs behind docs/results.md where there is one."""
    label: str = ""
    """What it is called in the figure; the method's name if empty."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Settings that make it what it is."""
    preset: str = "quick"

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.label or self.method} on {self.env}"

    def command(self, seed: int) -> str:
        """What to type for it."""
        preset = "" if self.preset == "quick" else f" --preset {self.preset}"
        settings = "".join(f" --{path} {value}" for path, value in self.overrides)
        return f"mesax run {self.method} {self.env}{preset}{settings} --seed {seed}"

    def is_met_by(self, run: Mapping[str, object]) -> bool:
        """Whether run.json is of such a run."""
        if (run.get("method"), run.get("env"), run.get("preset")) != (self.method, self.env, self.preset):
            return False
        given = run.get("overrides")
        known = {str(path): str(value).lower() for path, value in given.items()} if isinstance(given, dict) else {}
        wanted = dict(self.overrides)
        # Where explorers lie differs from machine to machine: that they are borrowed is what matters.
        return all(path in known and value in (known[path], "RUN_DIR") for path, value in wanted.items()) and (
            "method.explorers-from" in wanted or "method.explorers-from" not in known
        )


@dataclass(frozen=True)
class Found:
    """The stored runs of a cell, by seed."""

    cell: Cell
    runs: Mapping[int, RunResults]

    @property
    def missing(self) -> list[int]:
        """Seeds that nobody has run."""
        return [seed for seed in SEEDS if seed not in self.runs]

    @property
    def label(self) -> str:
        """What the figure calls it."""
        return self.cell.label or self.cell.method

    @property
    def pooled(self) -> list[RunResults]:
        """All its seeds as one run under the label of the figure; nothing if there are none."""
        runs = [replace(run, run={**run.run, "method": self.label, "overrides": {}}) for run in self.runs.values()]
        return [pool(runs)] if len(runs) > 1 else runs


Render: TypeAlias = Callable[[RunResults, str, Path], list[Path]]
"""Draws an episode of a policy (`final`, `explorer-1`, ...) of a run into a directory; it needs JAX, so it is given."""
Draw: TypeAlias = Callable[[Sequence[Found], Path, Render], list[Path]]


@dataclass(frozen=True)
class Piece:
    """A figure or table of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    draw: Draw
    """From what was found, into a directory; it is called only if something was."""


def status_table(piece: Piece, found: Sequence[Found]) -> Table:
    """What is stored, what is missing, what that costs."""
    rows = tuple(
        (
            one.cell.name,
            ", ".join(str(seed) for seed in sorted(one.runs)) or NOTHING,
            ", ".join(str(seed) for seed in one.missing) or NOTHING,
            format_duration(60 * one.cell.minutes * len(one.missing)) if one.missing else NOTHING,
        )
        for one in found
    )
    note = "Costs are estimates for two cores; the commands for what is missing follow."
    return Table(piece.title, ("run", "stored seeds", "missing seeds", "costs"), rows, note if _missing(found) else "")


def missing_commands(found: Iterable[Found]) -> list[str]:
    """What to type for all that is missing."""
    return [one.cell.command(seed) for one in found for seed in one.missing]


def _missing(found: Iterable[Found]) -> bool:
    return any(one.missing for one in found)


def find_runs(piece: Piece, directory: Path) -> list[Found]:
    """The finished runs below a directory that a piece needs; of several of one seed, the last by name."""
    stored = list(_stored(directory)) if piece.cells else []
    found = []
    for cell in piece.cells:
        fitting = {int(str(run["seed"])): path for path, run in stored if cell.is_met_by(run)}
        found.append(Found(cell, {seed: load_run(path) for seed, path in sorted(fitting.items()) if seed in SEEDS}))
    return found


def _stored(directory: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Every finished run with its run.json, in the order of their names."""
    for level in range(DEEPEST + 1):
        for path in sorted(directory.glob("/".join(["*"] * level + ["run.json"]))):
            try:
                run = RunDirectory.open(path.parent)
                if run.status == "done":
                    yield path.parent, run.run
            except (StoreError, UsageError):  # half a run, or none: nobody asked for this one
                continue


def piece_named(name: str) -> Piece:
    """The figure or table of that name."""
    for piece in PIECES:
        if piece.name == name:
            return piece
    raise UsageError(f"unknown figure or table '{name}'; choose one of {', '.join(piece.name for piece in PIECES)}")


def _saved(figure: Figure, directory: Path, name: str) -> list[Path]:
    from mesax.rendering.canvas import save  # noqa: PLC0415 (drawing is heavy)

    return list(save(figure, directory / name))


def _curves(name: str) -> Draw:
    """Learning curves of all runs, a panel per environment, seeds pooled."""

    def draw(found: Sequence[Found], directory: Path, render: Render) -> list[Path]:
        from mesax.results.figures import learning_curves  # noqa: PLC0415

        del render
        return _saved(learning_curves([run for one in found for run in one.pooled]), directory, name)

    return draw


def _visits(found: Sequence[Found], directory: Path, render: Render) -> list[Path]:
    """Where uniform play and the explorers of each run go."""
    from mesax.results.drawing import world_figures  # noqa: PLC0415

    del render
    paths = []
    for one in found:
        for seed, run in one.runs.items():
            for figure in world_figures(run):
                if figure.name == "explorer-coverage" and figure.applies(run):
                    paths += _saved(figure.draw(run), directory, f"figure-1-{one.cell.env}-seed{seed}")
    return paths


def _episodes(*policies: str) -> Draw:
    """Episodes of policies of each run, as a still and a GIF."""

    def draw(found: Sequence[Found], directory: Path, render: Render) -> list[Path]:
        runs = [run for one in found for run in one.runs.values()]
        return [path for run in runs[:1] for policy in policies for path in render(run, policy, directory)]

    return draw


def _generalization(found: Sequence[Found], directory: Path, render: Render) -> list[Path]:
    """Left: what explorers of simpler worlds reach before anything is learned; right: learning curves."""
    from mesax.results.paper.generalization import generalization_figure  # noqa: PLC0415

    del render
    before = [(one.label, run) for one in found for run in one.runs.values()]
    return _saved(generalization_figure(before, [run for one in found for run in one.pooled]), directory, "figure-7")


def _theory(found: Sequence[Found], directory: Path, render: Render) -> list[Path]:
    from mesax.results.paper.theory import write_theory  # noqa: PLC0415
    from mesax.theory.study import study  # noqa: PLC0415

    del found, render
    return write_theory(study(), directory)


def _grid(methods: Mapping[str, float], envs: Mapping[str, float]) -> tuple[Cell, ...]:
    """Methods x environments; minutes are those of an environment's plain learner times a method's factor."""
    return tuple(
        Cell(method, env, factor * minutes) for env, minutes in envs.items() for method, factor in methods.items()
    )


COMPARED = {
    **{"mesa": 3.0, "maddpg": 1.0, "mappo": 1.5, "mappo-rnd": 2.0, "qmix": 3.0, "maven": 4.0, "emc": 6.0},
    **{"pretrain": 2.0, "goal": 2.0, "cbet": 3.0, "uniform": 1.0, "plain": 1.0},
}
"""The methods of the paper's curves and our controls, and about what they cost beside the plain learner."""
PARTICLES = {"mpe-2a5l": 2.3, "mpe-2a6l": 3.0, "mpe-3a5l": 3.5, "mpe-3a6l": 4.5}
BORROWED = (("method.explorers-from", "RUN_DIR"), ("method.turn", "true"))
HARD = "mpe-3a5l-hard"
ABLATION_ENV = "mpe-2a5l"

PIECES: tuple[Piece, ...] = (
    Piece("figure-1", "Figure 1: structured and unstructured exploration", (Cell("mesa", "climb-one", 1.3),), _visits),
    Piece(
        "figure-3",
        "Figure 3: learning curves on the climb games",
        _grid({**COMPARED, "maesn": 3.0}, {"climb-one": 0.8, "climb-multi": 1.7}),
        _curves("figure-3"),
    ),
    Piece(
        "figure-4",
        "Figure 4: learning curves on particle worlds and the swimmer",
        _grid(COMPARED, {**PARTICLES, "swimmer": 11.0}),
        _curves("figure-4"),
    ),
    Piece(
        "figure-6",
        "Figure 6: an explorer visits all landmarks",
        (Cell("mesa", "mpe-2a3l", 6.0),),
        _episodes("explorer-1"),
    ),
    Piece(
        "figure-7",
        "Figure 7: explorers of simpler worlds in a harder one",
        (
            Cell("mesa", HARD, 8.0, "2 to 3 agents", (*BORROWED, ("method.transfer", "subteams"))),
            Cell("mesa", HARD, 8.0, "easy to hard", (*BORROWED, ("method.transfer", "same"))),
            Cell("uniform", HARD, 5.0),
            Cell("plain", HARD, 4.0),
        ),
        _generalization,
    ),
    Piece(
        "figure-8",
        "Figure 8: two explorers in a particle world",
        (Cell("mesa", "mpe-2a3l", 9.0, overrides=(("method.num-explorers", "2"),)),),
        _episodes("explorer-1", "explorer-2"),
    ),
    Piece(
        "figure-9",
        "Figure 9: explorers against a replay filled from M_*",
        (
            Cell("mesa", ABLATION_ENV, 6.7),
            Cell("filled", ABLATION_ENV, 3.5, "filled, own labels", (("method.labels", "own"),)),
            Cell("filled", ABLATION_ENV, 3.5, "filled, relabeled", (("method.labels", "test"),)),
            Cell("plain", ABLATION_ENV, 2.3),
        ),
        _curves("figure-9"),
    ),
    Piece("theory", "Theorems 4.2 to 4.4 and 5.1", (), _theory),
)
"""Of the paper; `figure-2` is a drawing, `figure-5` is `mesax render RUN_DIR`."""
