"""What a figure or table of the paper needs: cells, which results of them there are, what the others cost.

Results come from run directories and from a store (`results/`). One counts if it was made with the settings that its
cell has today. Others are stale, or unverified: they are shown, marked, only where there is nothing better.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

from mesax.errors import StoreError, UsageError
from mesax.experiments.names import method_and_learner
from mesax.experiments.request import Request
from mesax.formatting import NOTHING, format_duration
from mesax.results.comparison import pool
from mesax.results.evidence.kept import ELSEWHERE, Kept, all_kept, facts_of
from mesax.results.evidence.same_settings import is_of
from mesax.results.labels import NAMES, OUTDATED, OUTDATED_NOTE
from mesax.results.tables import Table
from mesax.store.reading import RunResults
from mesax.suites.renamed import load_run, open_run
from paper.freshness import borrows_from, requested, with_family

SEEDS = (0, 1, 2)
"""Seeds of every result that is reported."""
DEEPEST = 3
"""Levels below a directory of runs at which runs are looked for."""
CORES = 2
"""Cores of the machine that costs are told for."""

SCRIPTED = ("safe", "optimum")
"""Teams that learn nothing: they have no curves, but are the lines of figures, and another seed changes little."""

Kind: TypeAlias = Literal["ours", "published", "baseline", "privileged", "control"]


@dataclass(frozen=True)
class Cell:
    """A run that a figure needs, for each of several seeds."""

    method: str
    env: str
    minutes: float
    """Minutes of one seed on two cores, about; the clocks of stored results are better."""
    label: str = ""
    """What it is called in the figure; the method's name if empty."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Settings that make it what it is."""
    preset: str = "quick"
    num_test_tasks: int | None = None
    """None: as many as the preset has."""
    kind: Kind = "baseline"
    """What a table compares it with."""
    lender: str = ""
    """Whose explorers it borrows, as `zero_shot.name_of` calls them."""

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.label or self.method} on {self.env}"

    def arguments(self, seed: int) -> list[str]:
        """Arguments of `mesax run`."""
        name, learner = method_and_learner(self.method)
        words = [name, self.env, *(("--learner", learner) if learner else ())]
        words += [] if self.preset == "quick" else ["--preset", self.preset]
        words += [word for path, value in self.overrides for word in (f"--{path}", value)]
        words += [] if self.num_test_tasks is None else ["--num-test-tasks", str(self.num_test_tasks)]
        return [*words, "--seed", str(seed)]

    def command(self, seed: int) -> str:
        """What to type for it."""
        return f"mesax run {' '.join(self.arguments(seed))}"

    def request(self, seed: int) -> Request:
        """The same as a value."""
        name, learner = method_and_learner(self.method)
        return Request(name, self.env, self.preset, seed, self.num_test_tasks, self.overrides, learner)

    @property
    def stands_alone(self) -> bool:
        """Whether it can be run without a run of another world."""
        return all(value != ELSEWHERE for _, value in self.overrides)

    def is_met_by(self, run: Mapping[str, object]) -> bool:
        """Whether run.json, or a result, is of such a run."""
        if (run.get("method"), run.get("env"), run.get("preset")) != (self.method, self.env, self.preset):
            return False
        given = run.get("overrides")
        known = {str(path): str(value).lower() for path, value in given.items()} if isinstance(given, dict) else {}
        wanted = {path: value.lower() if value != ELSEWHERE else value for path, value in self.overrides}
        # Where explorers lie differs from machine to machine: that they are borrowed is what matters.
        return known.keys() == wanted.keys() and all(
            value in (known[path], ELSEWHERE) for path, value in wanted.items()
        )


@dataclass(frozen=True)
class Found:
    """The results of a cell, by seed."""

    cell: Cell
    runs: Mapping[int, RunResults]
    stale: Mapping[int, RunResults] = field(default_factory=dict)
    """Made with settings that have since changed, or before settings were recorded (unverified)."""
    seconds: float | None = None
    """Seconds of a seed on two cores that are both kept busy, on average over the clocks of its results."""

    @property
    def missing(self) -> list[int]:
        """Seeds that were not run."""
        return [seed for seed in SEEDS if seed not in self.runs]

    @property
    def label(self) -> str:
        """What the figure calls it."""
        return self.cell.label or NAMES.get(self.cell.method, self.cell.method)

    @property
    def cost(self) -> float:
        """Seconds of a seed on two cores."""
        return 60.0 * self.cell.minutes if self.seconds is None else self.seconds

    @property
    def fewer_seeds(self) -> str:
        """How many seeds are shown, if not all that are asked for: what stands behind a number or a name then."""
        number = len(self.runs or self.stale)
        return "" if number in (0, len(SEEDS)) else f" ({number} seed{'s' * (number != 1)})"

    @property
    def pooled(self) -> list[RunResults]:
        """All its seeds as one run under the label of the figure; nothing if there are none."""
        return self._pooled(self.runs)

    @property
    def shown(self) -> list[RunResults]:
        """The same, with stale results where there are no others."""
        return self._pooled(self.runs or self.stale)

    def _pooled(self, runs: Mapping[int, RunResults]) -> list[RunResults]:
        named = {"method": self.label, "label": f"{self.label}{self.fewer_seeds}", "overrides": {}}
        own = [replace(run, run={**run.run, **named}) for run in runs.values()]
        return [pool(own)] if len(own) > 1 else own


Render: TypeAlias = Callable[[RunResults, str, Path], list[Path]]
"""Draws an episode of a policy (`final`, `explorer-1`, ...) of a run into a directory; it needs JAX, so it is given."""


@dataclass(frozen=True)
class Sources:
    """What a figure may be drawn from in addition to the results of its cells."""

    render: Render
    store: Path
    """The store of results, which has other documents too."""


Draw: TypeAlias = Callable[[Sequence[Found], Path, Sources], list[Path]]


@dataclass(frozen=True)
class Piece:
    """A figure or table of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    draw: Draw
    """From what was found, into a directory; it is called only if something was."""
    tables: Callable[[Sequence[Found]], Sequence[Table]] = lambda found: ()
    """What is printed of it."""
    takes_stale: bool = False
    """Whether it can mark results of other settings, and so may show them."""
    shows_play: bool = False
    """Whether it needs what explorers do, which run directories hold and the store does not."""

    def only(self, methods: Sequence[str] | None, envs: Sequence[str] | None) -> Piece:
        """The same of some methods and environments alone; None: of all."""
        cells = (cell for cell in self.cells if methods is None or cell.method in methods)
        return replace(self, cells=tuple(cell for cell in cells if envs is None or cell.env in envs))

    def can_be_drawn(self, found: Sequence[Found]) -> bool:
        """Whether there is anything to show."""
        return not self.cells or any(one.runs or (self.takes_stale and one.stale) for one in found)


def results_for(
    piece: Piece, directory: Path, store: Path | None = None, tell: Callable[[str], None] = lambda problem: None
) -> list[Found]:
    """The results that a piece needs: of a store, and of finished runs below a directory (of several, the last).

    What is damaged is left out, and `tell` is told of it.
    """
    if not piece.cells:
        return []
    finished = list(_finished(directory))
    kept: dict[tuple[str, str, str], list[Kept]] = {}
    for one in all_kept(store, tell) if store is not None and not piece.shows_play else ():
        kept.setdefault((one.method, one.env, one.preset), []).append(one)
    return [
        _found(
            cell,
            kept.get((cell.method, cell.env, cell.preset), []),
            [
                one
                for path, run in finished
                if run.get("seed") in SEEDS and cell.is_met_by(run)
                for one in _read(path, tell)
            ],
        )
        for cell in piece.cells
    ]


def _read(path: Path, tell: Callable[[str], None]) -> list[Kept]:
    """A finished run as a result; nothing if it is damaged: others, or the store, may have the same."""
    try:
        return [Kept(path, facts_of(path))]
    except (StoreError, UsageError) as error:
        tell(str(error))
        return []


def _found(cell: Cell, kept: Sequence[Kept], finished: Sequence[Kept]) -> Found:
    """Directories come last, and so before files: there is more in them."""
    runs: dict[int, RunResults] = {}
    stale: dict[int, RunResults] = {}
    clocks = []
    for one in (*(one for one in kept if one.seed in SEEDS and cell.is_met_by(one.facts)), *finished):
        if not _is_fresh(cell, one):
            stale[one.seed] = _with_family(one)
            continue
        runs[one.seed] = load_run(one.path) if one.path.is_dir() else one.results
        clocks += [] if one.core_seconds is None else [one.core_seconds / CORES]
    return Found(
        cell,
        dict(sorted(runs.items())),
        {seed: run for seed, run in sorted(stale.items()) if seed not in runs},
        fmean(clocks) if clocks else None,
    )


def _is_fresh(cell: Cell, kept: Kept) -> bool:
    if kept.config_hash is None or (cell.lender and not borrows_from(kept, cell.lender)):
        return False
    return is_of(kept, requested(cell.request(kept.seed)))


def _with_family(kept: Kept) -> RunResults:
    return with_family(kept).results


def _finished(directory: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Every finished run with its run.json, in the order of their names."""
    for level in range(DEEPEST + 1):
        for path in sorted(directory.glob("/".join(["*"] * level + ["run.json"]))):
            try:
                run = open_run(path.parent)
                if run.status == "done":
                    yield path.parent, run.run
            except (StoreError, UsageError):  # half a run, or none, that was not asked for
                continue


def status_table(piece: Piece, found: Sequence[Found]) -> Table:
    """What is stored, what is to be rerun, what is missing, what that costs."""
    rows = tuple(
        (
            one.cell.name,
            _seeds(one.runs),
            _seeds(one.missing, one.stale),
            format_duration(one.cost * len(one.missing)) if one.missing else NOTHING,
        )
        for one in found
    )
    marked = any(OUTDATED in cell for row in rows for cell in row)
    return Table(piece.title, ("run", "stored seeds", "missing", "costs"), rows, OUTDATED_NOTE * marked)


def _seeds(seeds: Iterable[int], outdated: Container[int] = ()) -> str:
    return ", ".join(f"{seed}{OUTDATED * (seed in outdated)}" for seed in sorted(seeds)) or NOTHING


def cost_lines(found: Sequence[Found]) -> list[str]:
    """What all of it costs, and what is missing of it, by preset."""
    presets = dict.fromkeys(one.cell.preset for one in found)
    return [_cost_line(preset, [one for one in found if one.cell.preset == preset]) for preset in presets]


def _cost_line(preset: str, found: Sequence[Found]) -> str:
    whole = format_duration(sum(len(SEEDS) * one.cost for one in found))
    rest = format_duration(sum(len(one.missing) * one.cost for one in found))
    stored = sum(len(one.runs) for one in found)
    lacking = f"missing runs {rest}" if missing(found) else "nothing missing"
    return (
        f"preset {preset}: {stored} of {len(SEEDS) * len(found)} runs stored. Total cost {whole} on {CORES} cores;"
        f" {lacking}. (CPU time divided evenly over the cores; {_how_known(found)}.)"
    )


def _how_known(found: Sequence[Found]) -> str:
    """How many rows have clocks, and how many only the estimate of their cell."""
    clocked, rows = sum(one.seconds is not None for one in found), len(found)
    if clocked in (0, rows):
        return f"{'measured' if clocked else 'estimated'} for {'all ' * (rows > 1)}{rows} row{'s' * (rows != 1)}"
    return f"measured for {clocked} of {rows} rows, estimated for the others"


def missing_commands(found: Iterable[Found]) -> list[str]:
    """What to type for all that is missing."""
    return [one.cell.command(seed) for one in found for seed in one.missing]


def missing(found: Iterable[Found]) -> bool:
    """Whether anything is."""
    return any(one.missing for one in found)
