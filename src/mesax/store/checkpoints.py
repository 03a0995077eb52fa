"""Checkpoints of one job: numbered directories, of which the last two are kept, and the rows that belong to them.

A checkpoint is saved whenever some time has passed, and when the run is asked to stop. Its content does not depend on
the clock: a run that goes on from any of them ends in the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import PyTree

from mesax.errors import DamageError
from mesax.runtime import checkpoint_seconds
from mesax.store.files import (
    Checksum,
    checksum,
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
from mesax.store.trees import SavedTree, open_tree, save_tree

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
        save_tree(self.directory / name, tree, facts | {"rows": row_checksums(self.job), "pieces": self._pieces()})
        for number in numbers[: max(0, len(numbers) - KEPT + 1)]:
            remove_tree(self.directory / f"{number:06d}")
        self.on_saved()
        ended = time.monotonic()
        self.seconds += ended - started
        # Tracing and compiling aside, so large a state on so slow a disk must not eat up the run.
        self._due = ended + max(checkpoint_seconds(), (ended - started) / LARGEST_SHARE)

    def put_aside(self, name: str, tree: PyTree, facts: Json) -> None:
        """Keep a piece that will not change again, beside the checkpoints that count on it."""
        started = time.monotonic()
        save_tree(self.scratch / name, tree, facts)
        self.seconds += time.monotonic() - started

    def newest(self, expected: Json) -> SavedTree | None:
        """The last checkpoint that is sound and whose facts are as `expected`; damaged ones are named and left behind.

        Rows that were written after it are cut off. A file that cannot be read just now is an error and costs nothing.
        """
        for number in reversed(self._numbers()):
            path = self.directory / f"{number:06d}"
            try:
                saved = open_tree(path)
                for name, value in expected.items():
                    if saved.facts.get(name) != value:
                        raise DamageError(f"{path} was saved under other settings ({name.replace('_', ' ')})")
                self._check_pieces(saved.facts.get("pieces"))
                restore_rows(self.job, saved.facts.get("rows"))
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

    def _pieces(self) -> dict[str, Checksum]:
        """What was put aside so far; a manifest's sum stands for all that it describes."""
        return {path.parent.name: file_checksum(path) for path in sorted(self.scratch.glob("[!.]*/manifest.json"))}

    def _check_pieces(self, pieces: object) -> None:
        """A `DamageError` unless all that was put aside is still there and whole."""
        if not isinstance(pieces, dict):
            raise DamageError(f"{self.job}: the checkpoint does not say what had been put aside")
        for name, expected in pieces.items():
            open_tree(self.scratch / name)
            if file_checksum(self.scratch / name / "manifest.json") != expected:
                raise DamageError(f"{self.scratch / name} is not what was put aside")

    def _numbers(self) -> list[int]:
        names = [path.name for path in self.directory.iterdir()] if self.directory.is_dir() else []
        # A crash while one was replaced leaves names that begin with a dot; numbers are never replaced.
        return sorted(int(name) for name in names if name.isdigit())


def row_checksums(job: Path) -> dict[str, Checksum]:
    """Size and SHA-256 of every file of rows."""
    return {path.name: file_checksum(path) for path in sorted(job.glob("*.jsonl"))}


def restore_rows(job: Path, checksums: object) -> None:
    """Make the files of rows what they were when `checksums` were taken; a `DamageError` if that is not possible."""
    if not isinstance(checksums, dict):
        raise DamageError(f"{job}: the checkpoint does not say which rows belong to it")
    for name, expected in checksums.items():
        path = job / name
        if not is_checksum(expected) or path.parent != job:
            raise DamageError(f"{job}: the checkpoint does not say which rows belong to it")
        data = read_regular_file(path, LARGEST_ROWS)[: expected["bytes"]] if is_there(path) else b""
        if checksum(data)["sha256"] != expected["sha256"]:
            raise DamageError(f"{path} is damaged: the rows of the checkpoint are no longer in it")
    for path in job.glob("*.jsonl"):
        with store_errors(path, "written"):
            if path.name in checksums:
                _cut(path, checksums[path.name]["bytes"])
            else:
                path.unlink()


def _cut(path: Path, size: int) -> None:
    descriptor = open_regular_file(path, os.O_WRONLY)
    try:
        os.truncate(descriptor, size)
    finally:
        os.close(descriptor)
