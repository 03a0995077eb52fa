"""What the files of a finished run must be: checksums.json is written last, and looked at before a result is read.

It also has a sum of itself, so that a flipped bit in it is not taken for damage of another file. Needs no JAX.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias, cast

from mesax.errors import DamageError
from mesax.store.files import Checksum, check_contents, checksum, file_checksum, is_checksum, is_there, write_file
from mesax.store.json_files import CHECKSUMS, read_json, read_status

Sums: TypeAlias = Mapping[str, Checksum]
"""By the name of a file within the run directory."""


def write_sums(directory: Path, names: Iterable[str]) -> None:
    """Write down what these files are."""
    sums = {name: file_checksum(directory / name) for name in names}
    write_file(directory / CHECKSUMS, _as_text({**sums, CHECKSUMS: _own(sums)}))


def read_sums(directory: Path) -> Sums | None:
    """The sums of a finished run; None if the run is not finished, for then there are none."""
    path = directory / CHECKSUMS
    if not is_there(path):
        if read_status(directory) == "done":
            raise DamageError(f"{path} is missing, although the run is done")
        return None
    content = read_json(path)
    if CHECKSUMS not in content:
        raise DamageError(
            f"{path} lacks its checksum of itself, as older versions wrote it: mesax resume writes it again"
        )
    own = content.pop(CHECKSUMS)
    if not all(is_checksum(value) and _is_inside(name) for name, value in content.items()):
        raise DamageError(f"{path} does not hold checksums")
    sums = cast("dict[str, Checksum]", content)
    if own != _own(sums):
        raise DamageError(f"{path} is damaged: its checksum of itself does not match")
    return sums


def check_sum(path: Path, expected: Checksum) -> None:
    """A `DamageError` unless a file is what is expected."""
    check_contents(path, file_checksum(path), expected)


def rows_of_job(job: Path, expected: Checksum | None = None) -> Mapping[str, Checksum]:
    """What the files of rows of a finished job must be, by its done.json, which must itself be what is `expected`."""
    path = job / "done.json"
    rows = read_json(path, expected).get("rows", {})
    if not isinstance(rows, dict) or not all(is_checksum(value) and "/" not in name for name, value in rows.items()):
        raise DamageError(f"{path} does not hold checksums of rows")
    return rows


def check_job(job: Path, expected: Checksum | None = None) -> None:
    """A `DamageError` unless the rows of a finished job are what its done.json says."""
    for name, own in rows_of_job(job, expected).items():
        check_sum(job / name, own)


def _own(sums: Sums) -> Checksum:
    return checksum(_as_text(sums))


def _as_text(sums: Sums) -> bytes:
    return (json.dumps(sums, indent=2) + "\n").encode()


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name
