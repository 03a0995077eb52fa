"""Files that are written durably and read with care; shared by saved trees and run directories. Needs no JAX."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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


_ours: set[int] = set()
"""Descriptors that stand for this process: a lock is held for as long as any process has its file open."""


def _close_ours() -> None:
    while _ours:
        with suppress(OSError):
            os.close(_ours.pop())


os.register_at_fork(after_in_child=_close_ours)  # what an environment forks may outlive the run


@contextmanager
def held_alone(descriptor: int) -> Iterator[int]:
    """An open file that processes forked from this one do not keep; closed at the end."""
    _ours.add(descriptor)
    try:
        yield descriptor
    finally:
        _ours.discard(descriptor)
        os.close(descriptor)


def open_regular_file(path: Path, flags: int) -> int:
    """A descriptor of a regular file; links, pipes, sockets, devices and folders are a `DamageError`.

    Nothing is ever written through a link, and nothing waits at a pipe: a run directory may come from a stranger.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link; a pipe, socket or device; a folder
            raise DamageError(f"{path} is not a regular file") from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise DamageError(f"{path} is not a regular file")


def read_regular_file(path: Path, largest: int) -> bytes:
    """Contents of a regular file of at most `largest` bytes; anything else there is a `DamageError`."""
    with store_errors(path, "read"), _opened_to_read(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > largest:
            raise DamageError(f"{path} has {size} bytes, but at most {largest} are expected")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(size + 1)


@contextmanager
def _opened_to_read(path: Path) -> Iterator[int]:
    try:
        descriptor = open_regular_file(path, os.O_RDONLY)
    except FileNotFoundError:
        raise DamageError(f"{path} is missing") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Write a file under a fresh name, make it durable, rename it into place: all of it or nothing, through no link.

    Only a file is ever replaced: a link, pipe or device under that name is a `StoreError`.
    """
    temporary = path.parent / f".tmp-{path.name[:100]}-{os.getpid()}-{secrets.token_hex(4)}"
    with store_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_special(path)
        try:
            descriptor = open_regular_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            sync_directory(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def refuse_special(path: Path) -> None:
    """Only regular files are ever replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path} cannot be written: it is there already, and is not a regular file")


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, durably."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def neither_files_nor_folders(directory: Path) -> list[Path]:
    """All links, pipes, sockets and devices in a directory and below; links are not followed."""
    found, waiting = [], [directory]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(folder / entry.name)
                    elif not entry.is_file(follow_symlinks=False):
                        found.append(folder / entry.name)
        except FileNotFoundError:  # a running process has removed it meanwhile
            continue
    return sorted(found)


@dataclass
class RunningSum:
    """Size and SHA-256 of a file that grows."""

    size: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, data: bytes) -> None:
        """These are at its end now."""
        self.size += len(data)
        self._hash.update(data)

    @property
    def checksum(self) -> Checksum:
        """So far."""
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}


def checksum(data: bytes) -> Checksum:
    """Size and SHA-256 of the contents of a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def file_checksum(path: Path) -> Checksum:
    """Size and SHA-256 of a regular file, whatever its size."""
    with store_errors(path, "read"), _opened_to_read(path) as descriptor:
        size = os.fstat(descriptor).st_size
        with open(descriptor, "rb", closefd=False) as file:
            return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_contents(path: Path, found: Checksum, expected: Checksum) -> None:
    """A `DamageError` that says how the contents of a file differ from those that are expected, if they do."""
    if found["bytes"] != expected["bytes"]:
        raise DamageError(f"{path} is damaged: it has {found['bytes']} bytes, but {expected['bytes']} are expected")
    if found["sha256"] != expected["sha256"]:
        short, wanted = found["sha256"][:12], expected["sha256"][:12]
        raise DamageError(f"{path} is damaged: SHA-256 {short}..., but {wanted}... is expected")


def is_checksum(value: object) -> bool:
    """Whether a part of a JSON file is a size and a SHA-256."""
    if not isinstance(value, dict) or value.keys() != {"bytes", "sha256"}:
        return False
    return type(value["bytes"]) is int and value["bytes"] >= 0 and isinstance(value["sha256"], str)
