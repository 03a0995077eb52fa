"""Directories that are replaced as a whole: whatever happens, their name means a complete one. Needs no JAX.

A new directory is written under another name and renamed into place. A replacement takes two renames (what was there is
put aside first), so a crash between them leaves the old directory put aside: `settled` finds it there.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mesax.errors import StoreError
from mesax.store.files import store_errors, sync_directory

_under_way: set[Path] = set()
"""What threads of this process are filling at this moment."""


def replace_directory(directory: Path, write: Callable[[Path], None], marker: str, *failures: type[Exception]) -> None:
    """Let `write` fill a new directory, then put it in the place of `directory`.

    What stands there is replaced only if it is empty or holds a file `marker`. Errors of the file system, and
    `failures`, become a `StoreError`.
    """
    with store_errors(directory, "written", *failures):
        directory.parent.mkdir(parents=True, exist_ok=True)
        _recover(directory)
        _refuse_others(directory, marker)
        with new_directory_beside(directory) as temporary:
            write(temporary)
            sync_directory(temporary)
            _swap(temporary, directory)


@contextmanager
def new_directory_beside(directory: Path) -> Iterator[Path]:
    """An empty directory to be renamed into place; it is gone if it was not. What others left half written goes too."""
    _remove_leftovers(directory)
    temporary = directory.parent / f".tmp-{directory.name}-{os.getpid()}-{secrets.token_hex(4)}"
    _under_way.add(temporary)
    try:
        temporary.mkdir(parents=True)
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _under_way.discard(temporary)


def settled(directory: Path) -> Path:
    """Where the content of `directory` is: a crash between the two renames of a replacement leaves it put aside."""
    aside = _aside(directory)
    return aside if not os.path.lexists(directory) and aside.is_dir() else directory


def _aside(directory: Path) -> Path:
    return directory.parent / f".old-{directory.name}"


def _swap(new: Path, directory: Path) -> None:
    """Rename `new` into place; what was there is put aside first and deleted last."""
    aside = _aside(directory)
    replaces = os.path.lexists(directory)
    if replaces:
        os.replace(directory, aside)
    try:
        os.replace(new, directory)
    except BaseException:
        if replaces:
            os.replace(aside, directory)
        raise
    sync_directory(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _recover(directory: Path) -> None:
    """Undo or finish a replacement that a crash interrupted."""
    aside = _aside(directory)
    if os.path.lexists(directory):
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.is_dir():
        os.replace(aside, directory)


def _refuse_others(directory: Path, marker: str) -> None:
    """Replace nothing but one's own: a mistaken path must not cost anybody their files."""
    if not os.path.lexists(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        raise StoreError(f"{directory} cannot be written: it is not a directory")
    if any(directory.iterdir()) and not (directory / marker).exists():
        raise StoreError(f"{directory} cannot be written: it holds something else, and no {marker}")


def _remove_leftovers(directory: Path) -> None:
    """Remove what processes that have ended left half written, one of this number among them."""
    pattern = re.compile(re.escape(f".tmp-{directory.name}-") + r"(\d+)(-[0-9a-f]+)?")
    for path in directory.parent.iterdir() if directory.parent.is_dir() else ():
        match = pattern.fullmatch(path.name)
        if match and path not in _under_way and not _alive(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    """Whether another process has this number."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
