"""Files that are written durably and read with care; shared by saved trees and run directories. Needs no JAX."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from mesax.errors import DamageError, StoreError


class Checksum(TypedDict):
    """What a file must be to be the one that was written."""

    bytes: int
    sha256: str


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


def is_there(path: Path) -> bool:
    """Whether there is anything under this name, be it a link that leads nowhere."""
    with store_errors(path, "read"):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def read_regular_file(path: Path, largest: int) -> bytes:
    """Contents of a regular file of at most `largest` bytes; links, pipes, devices and folders are a `DamageError`."""
    with store_errors(path, "read"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise DamageError(f"{path} is missing") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket, or a device that is not there
                raise DamageError(f"{path} is not a regular file") from None
            raise
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise DamageError(f"{path} is not a regular file")
            if facts.st_size > largest:
                raise DamageError(f"{path} has {facts.st_size} bytes, but at most {largest} are expected")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(facts.st_size + 1)
        finally:
            os.close(descriptor)


def checksum(data: bytes) -> Checksum:
    """Size and SHA-256 of the contents of a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def file_checksum(path: Path) -> Checksum:
    """Size and SHA-256 of a file, whatever its size."""
    with store_errors(path, "read"), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
