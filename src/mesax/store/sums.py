"""What the files of a finished run must be: checksums.json is written last, and looked at before a result is read.

It also has a sum of itself, so that a flipped bit in it is not taken for damage of another file. Needs no JAX.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias, cast

from mesax.errors import DamageError
from mesax.store.files import Checksum, check_contents, checksum, file_checksum, is_checksum, is_there, write_file
from mesax.store.json_files import CHECKSUMS, read_json, read_status
from mesax.store.json_values import Json

Sums: TypeAlias = Mapping[str, Checksum]
"""By the name of a file within the run directory."""
DONE = "done.json"
"""What a finished job says of itself, and of what it has written."""


def write_sums(directory: Path, sums: Sums) -> None:
    """Write down what the files of a directory are."""
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


def identity_of(job: Path, config_hash: object) -> Json:
    """Whose the files of a job are, by its place in the run of this configuration."""
    number = int(job.name) if job.name.isdecimal() else None
    return {"config_hash": config_hash, "phase": job.parent.name, "job": number}


def check_job(run: Path, job: Path, config_hash: object) -> Json:
    """What the done.json of a finished job says.

    A `DamageError` if it is another job's, or if what it names is not what the job has written: rows, saved trees, and
    documents in the run directory.
    """
    path = job / DONE
    facts = read_json(path)
    for name, value in identity_of(job, config_hash).items():
        if facts.get(name) != value:
            found = repr(facts.get(name))
            raise DamageError(f"{path} is of another job: its {name.replace('_', ' ')} is {found}, not {value!r}")
    for kind, place, suffix in (("rows", job, ""), ("trees", job, "/manifest.json"), ("documents", run, "")):
        for name, own in _sums_in(path, facts, kind).items():
            check_sum(place / f"{name}{suffix}", own)
    return facts


def _sums_in(path: Path, facts: Json, kind: str) -> Sums:
    sums = facts.get(kind)  # those of earlier versions say less
    if not isinstance(sums, dict) or not all(is_checksum(value) and "/" not in name for name, value in sums.items()):
        raise DamageError(f"{path} does not hold checksums of {kind}")
    return sums


def _own(sums: Sums) -> Checksum:
    return checksum(_as_text(sums))


def _as_text(sums: Sums) -> bytes:
    return (json.dumps(sums, indent=2) + "\n").encode()


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name
