"""Files as plain values (names and bytes), and how those that arrive become files again. Needs no JAX.

A parcel brings a job's directory up to date: it names every file of it, and has the contents of those that changed. It
is applied in an order that leaves a job which can go on, wherever the process is killed: rows, then what checkpoints
count on, then checkpoints, then the mark that the job is done; what is gone is removed last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias, TypedDict

from mesax.errors import DamageError
from mesax.store.files import read_regular_file, remove_tree, store_errors, write_file
from mesax.store.replacing import replace_directory
from mesax.store.trees import MANIFEST

Files: TypeAlias = dict[str, bytes]
"""Contents by name, relative to some directory, with `/`."""
Stamps: TypeAlias = dict[str, tuple[int, int, int]]
"""What tells without reading whether a file has changed."""
Read: TypeAlias = Callable[[str], bytes]
PASSING = ("checkpoints", "scratch")
"""Folders of a job that only the job reads."""
LARGEST = 2**40
DOCUMENT = re.compile(r"[a-z][a-z0-9_-]*\.json")


class Parcel(TypedDict):
    """What an attempt has to show, relative to its directory."""

    names: list[str]
    """All files of the job, and documents for the run."""
    changed: list[str]
    """Those that the driver does not have as they are now."""
    files: Files
    """Contents of the changed ones; none if the driver can read them itself."""


def names_in(directory: Path, without: Iterable[str] = ()) -> list[str]:
    """All files below, but none that is being written or was put away: these begin with a dot."""
    left_out = set(without)
    found = []
    for path in sorted(directory.rglob("*")) if directory.is_dir() else ():
        parts = path.relative_to(directory).parts
        if path.is_file() and not any(part.startswith(".") or part in left_out for part in parts):
            found.append("/".join(parts))
    return found


def pack(directory: Path, names: Iterable[str]) -> Files:
    """Contents of these files."""
    return {name: read_regular_file(directory / name, LARGEST) for name in names}


def unpack(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files where no other process writes: no care is taken that they appear at once."""
    for name, data in files.items():
        path = directory / _inside(name)
        with store_errors(path, "written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def stamps(directory: Path, names: Iterable[str]) -> Stamps:
    """A stamp for each of these files."""
    found = {name: (directory / name).stat() for name in names}
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found.items()}


def accept(run: Path, job: Path, parcel: Parcel, read: Read) -> None:
    """Bring `job`, a directory below `run`, up to date; `read` gives the contents of what has changed."""
    own = job.relative_to(run).as_posix() + "/"
    for name in (*parcel["names"], *parcel["changed"]):
        if not (_inside(name).as_posix().startswith(own) or DOCUMENT.fullmatch(name)) or name == "run.json":
            raise DamageError(f"a worker sent a file that is not of its job: {name[:200]}")
    mark = f"{own}done.json"
    changed = [name for name in parcel["changed"] if name != mark]
    folders = {str(PurePosixPath(name).parent) for name in parcel["names"] if name.endswith(f"/{MANIFEST}")}
    for name in changed:
        if str(PurePosixPath(name).parent) not in folders:
            write_file(run / name, read(name))
    for folder in sorted({str(PurePosixPath(name).parent) for name in changed} & folders, key=_later_checkpoints):
        members = [name for name in parcel["names"] if str(PurePosixPath(name).parent) == folder]
        _replace(run, folder, members, set(changed), read)
    if mark in parcel["changed"]:
        write_file(run / mark, read(mark))
    _remove_others(job, {name.removeprefix(own) for name in parcel["names"]})


def _later_checkpoints(folder: str) -> tuple[bool, str]:
    return "/checkpoints/" in folder, folder


def _replace(run: Path, folder: str, members: list[str], changed: set[str], read: Read) -> None:
    """A saved tree appears as a whole, whatever part of it has changed."""

    def write(directory: Path) -> None:
        for name in members:
            data = read(name) if name in changed else read_regular_file(run / name, LARGEST)
            write_file(directory / PurePosixPath(name).name, data)

    replace_directory(run / folder, write, MANIFEST)


def _remove_others(job: Path, names: set[str]) -> None:
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    for name in names_in(job):
        if name not in names:
            parents = [str(parent) for parent in reversed(PurePosixPath(name).parents)]
            gone = next((parent for parent in parents if parent not in folders), None)
            if gone is not None:
                remove_tree(job / gone)
            else:
                (job / name).unlink(missing_ok=True)


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name or "\\" in name:
        raise DamageError(f"a file of a job has a name that leads elsewhere: {name[:200]!r}")
    return path
