"""Checkpoints of one job: numbered directories, of which the last two are kept, and the rows that belong to them.

A checkpoint is saved whenever some time has passed, and when the run is asked to stop. Its content does not depend on
the clock: a run that goes on from any of them ends in the same bytes. What a job has written so far is known here too:
whenever it is saved, and at its end, its files must be just that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import PyTree

from mesax.errors import DamageError
from mesax.runtime import checkpoint_seconds
from mesax.store.files import (
    Checksum,
    RunningSum,
    file_checksum,
    is_checksum,
    is_there,
    open_regular_file,
    read_regular_file,
    remove_tree,
    store_errors,
)
from mesax.store.json_files import LARGEST_ROWS
from mesax.store.json_values import Json
from mesax.store.trees import MANIFEST, SavedTree, open_tree, save_tree

KEPT = 2
"""Should the last one be damaged, the one before is used."""
LARGEST_SHARE = 0.05
"""Of the time that a run takes, at most so much goes into saving it."""


@dataclass
class Checkpoints:
    """The checkpoints of the job that writes into `job`."""

    job: Path
    warn: Callable[[str], None]
    """Told of checkpoints that cannot be used."""
    seconds: float = 0.0
    """Spent on saving."""
    on_saved: Callable[[], None] = lambda: None
    """Called after each: its time counts as saving, so what it does cannot eat up the run either."""
    _due: float = field(default_factory=lambda: time.monotonic() + checkpoint_seconds())
    _rows: dict[str, RunningSum] = field(default_factory=dict)
    """Of each file of rows, what was written so far."""
    _pieces: dict[str, Checksum] = field(default_factory=dict)
    """Of each piece that was put aside, its manifest, which stands for all that it describes."""

    @property
    def directory(self) -> Path:
        """Where they are."""
        return self.job / "checkpoints"

    def due(self) -> bool:
        """Whether the last one is old enough."""
        return time.monotonic() >= self._due

    def save(self, tree: PyTree, facts: Json) -> None:
        """Add a checkpoint of `tree` and of the rows written so far, and remove all but the last two."""
        started = time.monotonic()
        numbers = self._numbers()
        name = f"{max(numbers, default=0) + 1:06d}"
        save_tree(self.directory / name, tree, facts | {"rows": self.rows(), "pieces": self._pieces})
        for number in numbers[: max(0, len(numbers) - KEPT + 1)]:
            remove_tree(self.directory / f"{number:06d}")
        self.on_saved()
        ended = time.monotonic()
        self.seconds += ended - started
        # Tracing and compiling aside, so large a state on so slow a disk must not eat up the run.
        self._due = ended + max(checkpoint_seconds(), (ended - started) / LARGEST_SHARE)

    def put_aside(self, name: str, tree: PyTree, facts: Json) -> None:
        """Keep a piece that will not change again, next to the checkpoints that count on it."""
        started = time.monotonic()
        save_tree(self.scratch / name, tree, facts)
        self._pieces[name] = file_checksum(self.scratch / name / MANIFEST)
        self.seconds += time.monotonic() - started

    def wrote(self, name: str, data: bytes) -> None:
        """These bytes were added to a file of rows."""
        so_far = self._rows.setdefault(name, RunningSum())
        so_far.add(data)
        with store_errors(self.job / name, "read"):
            if os.stat(self.job / name).st_size != so_far.size:
                raise _not_as_written(self.job / name)

    def rows(self) -> dict[str, Checksum]:
        """What each file of rows is; a `DamageError` if it, or a piece, is not what was written."""
        rows = {name: so_far.checksum for name, so_far in sorted(self._rows.items())}
        _check_same(self.job, rows, row_checksums(self.job))
        _check_same(self.scratch, self._pieces, tree_checksums(self.scratch))
        return rows

    def newest(self, expected: Json) -> SavedTree | None:
        """The last checkpoint that is sound and whose facts are as `expected`; damaged ones are named and left behind.

        Rows that were written after it are cut off. A file that cannot be read just now is an error and costs nothing.
        """
        for number in reversed(self._numbers()):
            path = self.directory / f"{number:06d}"
            try:
                saved = open_tree(path)
                for name, value in expected.items():
                    if saved.facts.get(name, value) != value:  # those of earlier versions say less
                        raise DamageError(f"{path} was saved under other settings ({name.replace('_', ' ')})")
                pieces = self._checked_pieces(saved.facts.get("pieces"))
                self._rows, self._pieces = restore_rows(self.job, saved.facts.get("rows")), pieces
                return saved
            except DamageError as error:
                self.warn(f"{error}; going back to the checkpoint before it")
                with store_errors(path, "renamed"):
                    os.replace(path, path.with_name(f".damaged-{path.name}-{time.time_ns()}"))
        return None

    def clear(self) -> None:
        """Remove all that was kept for going on: the job is done."""
        remove_tree(self.directory)
        remove_tree(self.scratch)

    @property
    def scratch(self) -> Path:
        """Where pieces are put aside."""
        return self.job / "scratch"

    def _checked_pieces(self, pieces: object) -> dict[str, Checksum]:
        """What had been put aside; a `DamageError` unless all of it is still there and whole. Nothing else is left."""
        if not isinstance(pieces, dict):
            raise DamageError(f"{self.job}: the checkpoint does not say what had been put aside")
        for name, expected in pieces.items():
            open_tree(self.scratch / name)
            if file_checksum(self.scratch / name / MANIFEST) != expected:
                raise DamageError(f"{self.scratch / name} is not what was put aside")
        for path in self.scratch.glob("[!.]*"):
            if path.name not in pieces:
                remove_tree(path)
        return pieces

    def _numbers(self) -> list[int]:
        names = [path.name for path in self.directory.iterdir()] if self.directory.is_dir() else []
        # A crash while one was replaced leaves names that begin with a dot; numbers are never replaced.
        return sorted(int(name) for name in names if name.isdigit())


def row_checksums(job: Path) -> dict[str, Checksum]:
    """Size and SHA-256 of every file of rows."""
    return {path.name: file_checksum(path) for path in sorted(job.glob("*.jsonl"))}


def tree_checksums(directory: Path) -> dict[str, Checksum]:
    """Size and SHA-256 of the manifest of every saved tree, which stands for all that it describes."""
    return {path.parent.name: file_checksum(path) for path in sorted(directory.glob(f"[!.]*/{MANIFEST}"))}


def _check_same(place: Path, written: Mapping[str, Checksum], found: Mapping[str, Checksum]) -> None:
    for name in sorted(written.keys() | found.keys()):
        if written.get(name) != found.get(name):
            raise _not_as_written(place / name)


def _not_as_written(path: Path) -> DamageError:
    return DamageError(f"{path} is damaged: it is not what this job has written")


def restore_rows(job: Path, checksums: object) -> dict[str, RunningSum]:
    """Make the files of rows what they were when `checksums` were taken; a `DamageError` if that is not possible."""
    sums: dict[str, RunningSum] = {}
    if not isinstance(checksums, dict):
        raise DamageError(f"{job}: the checkpoint does not say which rows belong to it")
    for name, expected in checksums.items():
        path = job / name
        if not is_checksum(expected) or path.parent != job:
            raise DamageError(f"{job}: the checkpoint does not say which rows belong to it")
        data = read_regular_file(path, LARGEST_ROWS)[: expected["bytes"]] if is_there(path) else b""
        sums[name] = RunningSum()
        sums[name].add(data)
        if sums[name].checksum["sha256"] != expected["sha256"]:
            raise DamageError(f"{path} is damaged: the rows of the checkpoint are no longer in it")
    for path in job.glob("*.jsonl"):
        with store_errors(path, "written"):
            if path.name in checksums:
                _cut(path, checksums[path.name]["bytes"])
            else:
                path.unlink()
    return sums


def _cut(path: Path, size: int) -> None:
    descriptor = open_regular_file(path, os.O_WRONLY)
    try:
        os.truncate(descriptor, size)
    finally:
        os.close(descriptor)
