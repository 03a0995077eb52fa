"""Telling sinks what jobs write, while they write it: every row once, however often a run is stopped and resumed.

Jobs know nothing of sinks: they append rows to files of their own, and this reads on where it stopped reading. A run
that is resumed tells everything again from the beginning, to sinks that begin anew; a job that was interrupted is read
only once it is at work again, for then the rows that its last checkpoint does not know have been cut off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mesax.bridges.tracking.rows import KINDS, Entry, entry_of
from mesax.bridges.tracking.sinks import FOLDER, TRACKERS, Sink, check_trackers, open_sink
from mesax.errors import UsageError
from mesax.store.files import is_there, open_regular_file
from mesax.store.json_values import parse_object
from mesax.store.run_directory import RunDirectory

Warn = Callable[[str], None]


@dataclass
class Follower:
    """The sinks of one attempt at a run. A sink that fails is told of and left alone: it must not cost a result."""

    run: RunDirectory
    sinks: dict[str, Sink]
    warn: Warn
    _read: dict[Path, int] = field(default_factory=dict)
    """Bytes of each file of rows that have been told."""

    def follow(self, stage: str, job: int) -> None:
        """Tell the rows that a job has added since."""
        if not self.sinks:
            return
        for kind in KINDS:
            path = self.run.job_directory(stage, job) / f"{kind}.jsonl"
            for line in self._new_lines(path):
                self._log(entry_of(kind, parse_object(line)))

    def _log(self, entry: Entry) -> None:
        self._each(lambda sink: sink.log(entry))

    def close(self) -> None:
        """Nothing more will come."""
        self._each(lambda sink: sink.close())
        self.sinks.clear()

    def _each(self, tell: Callable[[Sink], None]) -> None:
        for name, sink in list(self.sinks.items()):
            try:
                tell(sink)
            except Exception as error:
                del self.sinks[name]
                self.warn(f"the tracker '{name}' is told nothing more: {_in_one_line(error)}")

    def _new_lines(self, path: Path) -> list[bytes]:
        """Lines that are complete and have not been read."""
        if not is_there(path):
            return []
        begin = self._read.get(path, 0)
        descriptor = open_regular_file(path, os.O_RDONLY)
        with open(descriptor, "rb") as file:
            file.seek(begin)
            whole = file.read().rpartition(b"\n")[0]
        self._read[path] = begin + (len(whole) + 1 if whole else 0)
        return [line for line in whole.split(b"\n") if line.strip()]


def tracked_before(run: RunDirectory) -> list[str]:
    """The tools that an earlier attempt has left files of: a resumed run goes on telling them."""
    return [name for name in TRACKERS if is_there(run.path / FOLDER / name)]


def follower(run: RunDirectory, names: Sequence[str], warn: Warn) -> Follower:
    """Sinks for these tools and for those that an earlier attempt has told.

    A tool that is not installed is refused at once. Any other that cannot be opened is left out with a
    warning: one that was asked for in an earlier attempt, perhaps on another machine, or one whose server is away.
    """
    check_trackers(names)
    sinks: dict[str, Sink] = {}
    for name in dict.fromkeys([*names, *tracked_before(run)]):
        try:
            sinks[name] = open_sink(name, run.path / FOLDER / name, run.run)
        except Exception as error:
            warn(f"the tracker '{name}' is told nothing: {_in_one_line(error)}")
    return Follower(run, sinks, warn)


def _in_one_line(error: Exception) -> str:
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())


def export_rows(run: RunDirectory, name: str, directory: Path | None = None) -> Path:
    """Tell a sink all rows that a run has merged; returns where it writes, if it writes files."""
    if directory is not None and directory.exists():
        raise UsageError(f"{directory} exists already; choose another directory with --out")
    target = directory or run.path / FOLDER / name
    with ExitStack() as stack:
        if directory is None:
            try:
                stack.enter_context(run.lock())
            except UsageError as error:
                raise UsageError(f"{error}, which may be writing there; choose another directory with --out") from error
        sink = open_sink(name, target, run.run)
        stack.callback(sink.close)
        for kind in KINDS:
            for row in run.read_rows(f"{kind}.jsonl"):
                sink.log(entry_of(kind, row))
    return target
