"""Small durable-file helpers shared by checkpoints and run directories; no JAX."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mesax.errors import StoreError


def sync_directory(directory: Path) -> None:
    """Make the names in a directory as durable as the files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove a directory; should that be interrupted, what is left of it has no name that anybody reads."""
    hidden = directory.parent / f".gone-{directory.name}"
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        os.rename(directory, hidden)
    except OSError:
        hidden = directory
    shutil.rmtree(hidden, ignore_errors=True)


@contextmanager
def store_errors(path: Path, done: str, *more: type[Exception]) -> Iterator[None]:
    """Turn errors of the file system (and `more`) into a `StoreError` of one line: `<path> cannot be <done>: why`."""
    failures: tuple[type[Exception], ...] = (OSError, *more)
    try:
        yield
    except failures as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"{path} cannot be {done}: {reason}") from error
