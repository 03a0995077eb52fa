"""The one reader of files in run directories: JSON objects, rows, and the status. Needs neither NumPy nor JAX.

Three things can go wrong, and each has its own kind of error:

    a path that is no run directory                                    `UsageError`
    a file that cannot be read                                         `StoreError`
    a file that is not what was written, or lacks what it must hold    `DamageError`, which is a `StoreError`
"""

from __future__ import annotations

from pathlib import Path

from mesax.errors import DamageError, StoreError, UsageError
from mesax.store.files import Checksum, check_contents, checksum, is_there, neither_files_nor_folders, read_regular_file
from mesax.store.json_values import OWN_SUM, Json, parse_object, signed

CHECKSUMS = "checksums.json"
"""What the files of a finished run are (`mesax.store.sums`)."""
LARGEST_JSON = 64 * 2**20
LARGEST_ROWS = 2**30
LARGEST_STATUS = 64


def existing_run(path: Path) -> Path:
    """`path`, if it is a run directory."""
    if not path.is_dir():
        raise UsageError(f"no run directory at {path}")
    if not is_there(path / "run.json"):
        if is_there(path / CHECKSUMS):
            raise DamageError(f"{path / 'run.json'} is missing")
        raise UsageError(f"no run directory at {path}: it has no run.json")
    return path


def refuse_foreign_things(directory: Path) -> None:
    """A `DamageError` if a run directory holds links, pipes or devices: reading or writing these may do harm."""
    for path in neither_files_nor_folders(directory):
        raise DamageError(f"{path} is a link, pipe or device: a run directory holds only files and folders")


def read_status(directory: Path) -> str:
    """The one word in STATUS; `unknown` if there is none."""
    try:
        return _contents(directory / "STATUS", LARGEST_STATUS).decode().strip() or "unknown"
    except (StoreError, UnicodeDecodeError):
        return "unknown"


def read_json(path: Path, expected: Checksum | None = None) -> Json:
    """The object in a JSON file, which must be what is `expected`, and what its own sum says if it has one."""
    try:
        content = parse_object(_contents(path, LARGEST_JSON, expected))
    except ValueError as error:
        raise DamageError(f"{path} {error}") from None
    if OWN_SUM in content and content != signed(content):
        raise DamageError(f"{path} is damaged: its checksum of itself does not match")
    return content


def read_rows(path: Path, expected: Checksum | None = None) -> list[Json]:
    """The rows of a JSONL file, which must be what is `expected`.

    With no expectation, there are none if there is no file, and a last line that was cut short is left out.
    """
    if expected is None and not is_there(path):
        return []
    *lines, unfinished = _contents(path, LARGEST_ROWS, expected).split(b"\n")
    rows = [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    try:
        return [*rows, parse_object(unfinished)]  # only its line break is missing
    except ValueError:
        return rows


def _contents(path: Path, largest: int, expected: Checksum | None = None) -> bytes:
    """The bytes of a file of a run directory; a finished run knows what they must be."""
    data = read_regular_file(path, largest)
    if expected is not None:
        check_contents(path, checksum(data), expected)
    return data


def _row(path: Path, number: int, line: bytes) -> Json:
    try:
        return parse_object(line)
    except ValueError as error:
        raise DamageError(f"{path}: line {number} {error}") from None
