"""How runs are doing, seen from outside: a small file that a run keeps up to date; a table of many runs.

Needs no JAX. A run at work holds the lock of its directory, so that one that was killed is told from one that is slow.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from mesax.errors import StoreError, UsageError
from mesax.execution.progress import Phase
from mesax.formatting import NOTHING, format_count, format_duration, format_number
from mesax.results.tables import NARROWEST, USUAL_WIDTH, Table, to_rich
from mesax.store.files import open_regular_file
from mesax.store.json_files import read_json
from mesax.store.json_values import Json
from mesax.store.reading import evaluations_in
from mesax.store.run_directory import RunDirectory, find_runs

PROGRESS = "progress.json"
SECONDS_BETWEEN_WRITINGS = 1.0
STALE = 300.0
"""Seconds after which a speed says nothing any more."""
COLUMNS = ("run", "state", "phase", "done", "steps/s", "ETA", "return")
HASH = re.compile(r"-[0-9a-f]{10,}$")
LEFT_OUT = "..."
SHORTEST_NAME = 12
UNLIMITED = 10_000
"""Columns of a terminal in which everything fits."""


class StatusFile:
    """Writes how far a run is, seldom enough to cost nothing; that it cannot be written costs nothing either."""

    def __init__(
        self,
        directory: Path,
        stages: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = directory / PROGRESS
        self._stages = list(stages)
        self._clock, self._now = clock, now
        self._phase: Phase | None = None
        self._written = 0.0

    def phase(self, name: str, total: int, done: int) -> None:
        """A stage begins, some of it perhaps done before."""
        self._phase = Phase(name, total, done, self._clock())
        self._write()

    def update(self, done: int, note: str) -> None:
        """So many steps of the stage are done in all."""
        if self._phase is None:
            return
        self._phase.see(done, note, self._clock())
        if self._clock() - self._written >= SECONDS_BETWEEN_WRITINGS:
            self._write()

    def remove(self) -> None:
        """The run is done: its summary says all there is to say."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        assert self._phase
        phase, self._written = self._phase, self._clock()
        content = {
            "phase": phase.name,
            "number": self._stages.index(phase.name) + 1,
            "phases": len(self._stages),
            "done": phase.done,
            "total": phase.total,
            "speed": phase.speed,
            "note": phase.note,
            "updated": self._now(),
        }
        hidden = self._path.with_name(f".{PROGRESS}")
        with suppress(OSError, StoreError):  # not durable: it is of interest only while the run is alive
            descriptor = open_regular_file(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(hidden, self._path)


@contextmanager
def kept_status(directory: Path, stages: Sequence[str]) -> Iterator[StatusFile]:
    """A status file that is gone when all stages are done, and stays if something went wrong."""
    status = StatusFile(directory, stages)
    yield status
    status.remove()


@dataclass(frozen=True)
class RunStatus:
    """One run, seen from outside; None is what is not known."""

    name: str
    state: str
    """running, done, failed, preempted; killed: it says that it runs, but no process is at work."""
    phase: str | None = None
    share: float | None = None
    """Share of the phase that is done."""
    speed: float | None = None
    left: float | None = None
    """Seconds to the end of the phase."""
    last_return: float | None = None
    """Mean over the test tasks of their last evaluations; of a finished run, its result."""

    def cells(self) -> tuple[str, ...]:
        """As a table shows it."""
        return (
            self.name,
            self.state,
            self.phase or NOTHING,
            NOTHING if self.share is None else f"{100 * self.share:.0f}%",
            NOTHING if self.speed is None else format_count(self.speed),
            NOTHING if self.left is None else format_duration(self.left),
            format_number(self.last_return),
        )


def status_table(found: Sequence[RunStatus], title: str) -> Table:
    """A row for each run."""
    counts = {state: sum(one.state == state for one in found) for state in dict.fromkeys(one.state for one in found)}
    told = ", ".join(f"{number} {state}" for state, number in counts.items())
    return Table(title, COLUMNS, tuple(one.cells() for one in found), f"{told}. ETA: of the phase.")


def fitted(found: Sequence[RunStatus], width: int) -> list[RunStatus]:
    """The same runs under names so short that a table of them is no wider: all else in it is short, and worth more.

    What goes first is the hash at the end of names, if all differ without it, then what is in the middle.
    """
    nameless = to_rich(status_table([replace(one, name="") for one in found], ""))
    others = Console(width=UNLIMITED).measure(nameless).maximum - len(COLUMNS[0])
    room = max(SHORTEST_NAME, width - others)
    names = [one.name for one in found]
    if max(map(len, names), default=0) > room:
        bare = [HASH.sub("", name) for name in names]
        names = bare if len({*bare}) == len(names) else names
    return [replace(one, name=_elided(name, room)) for one, name in zip(found, names, strict=True)]


def _elided(name: str, room: int) -> str:
    """Without its middle, if it is too long: how it begins and ends says more."""
    if len(name) <= room:
        return name
    kept = room - len(LEFT_OUT)
    return name[: kept - kept // 2] + LEFT_OUT + name[len(name) - kept // 2 :]


def terminal_width() -> int:
    """Columns that `print_table` has."""
    width = Console().width
    return width if width >= NARROWEST else USUAL_WIDTH


def runs_below(root: Path) -> list[RunStatus]:
    """Every run at or below a directory."""
    if not root.is_dir():
        raise UsageError(f"no directory at {root}")
    runs = find_runs(root)
    if not runs:
        raise UsageError(f"there are no runs in {root}")
    return [status_of(run, _name(run.path, root)) for run in runs]


def _name(path: Path, root: Path) -> str:
    return path.name if path == root else str(path.relative_to(root))


def status_of(run: RunDirectory, name: str, now: Callable[[], float] = time.time) -> RunStatus:
    """How a run is doing; what cannot be read is not known."""
    state = run.state
    if state == "done":
        summary = _read(run.path / "summary.json")
        return RunStatus(name, state, last_return=summary.get("mean_return"))
    known = _read(run.path / PROGRESS)
    phase = share = speed = left = None
    with suppress(KeyError, TypeError, ValueError, ZeroDivisionError):
        phase = f"{known['phase']} ({known['number']}/{known['phases']})"
        share = min(1.0, known["done"] / known["total"])
        age = max(0.0, now() - known["updated"])  # unknown where a clock was set back
        if state == "running" and known["speed"] > 0 and age < STALE:
            speed = float(known["speed"])
            left = max(0.0, (known["total"] - known["done"]) / speed - age)
    return RunStatus(name, state, phase, share, speed, left, last_return(run))


def last_return(run: RunDirectory) -> float | None:
    """The mean of the last evaluations of all test tasks that have any, from what the jobs have written."""
    last: dict[tuple[object, object], float] = {}
    for path in sorted((run.path / "jobs" / "adapt").glob("*/eval.jsonl")):
        with suppress(StoreError, KeyError, TypeError, ValueError):
            for one in evaluations_in(RunDirectory(path.parent).read_rows(path.name)):
                last[one.task, one.repeat] = one.value
    return sum(last.values()) / len(last) if last else None


def _read(path: Path) -> Json:
    try:
        return read_json(path)
    except StoreError:
        return {}


def shortened(found: Sequence[RunStatus], most: int) -> list[RunStatus]:
    """At most so many of them, in order: of too many, those that are done are left out first, then those that wait."""
    for state in ("done", "waiting"):
        over = len(found) - most
        dropped = [one for one in found if one.state == state][: max(0, over)]
        found = [one for one in found if one not in dropped]
    return list(found)[:most]


def watch(look: Callable[[], Sequence[RunStatus]], title: str, seconds: float = 2.0) -> None:
    """Show the table and keep it up to date until no run is at work, or Ctrl-C."""
    with suppress(KeyboardInterrupt), Live(auto_refresh=False) as live:
        while True:
            found = look()
            table = status_table(found, title)
            shown = fitted(shortened(found, max(5, live.console.height - 8)), live.console.width)
            live.update(to_rich(replace(table, rows=tuple(one.cells() for one in shown))), refresh=True)
            if not any(one.state == "running" for one in found):
                return
            time.sleep(seconds)
