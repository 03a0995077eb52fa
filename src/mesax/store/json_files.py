"""The one reader of files in run directories: JSON objects, rows, and the status. Needs neither NumPy nor JAX.

Three things can go wrong, and each has its own kind of error:

    a path that is no run directory                                    `UsageError`
    a file that cannot be read                                         `StoreError`
    a file that is not what was written, or lacks what it must hold    `DamageError`, which is a `StoreError`
"""

from __future__ import annotations

from pathlib import Path

from mesax.errors import DamageError, StoreError, UsageError
from mesax.store.files import is_there, read_regular_file
from mesax.store.json_values import Json, parse_object

LARGEST_JSON = 64 * 2**20
LARGEST_ROWS = 2**30
LARGEST_STATUS = 64


def existing_run(path: Path) -> Path:
    """`path`, if it is a run directory."""
    if not path.is_dir():
        raise UsageError(f"no run directory at {path}")
    if not is_there(path / "run.json"):
        raise UsageError(f"no run directory at {path}: it has no run.json")
    return path


def read_status(directory: Path) -> str:
    """The one word in STATUS; `unknown` if there is none."""
    try:
        return _contents(directory / "STATUS", LARGEST_STATUS).decode().strip() or "unknown"
    except (StoreError, UnicodeDecodeError):
        return "unknown"


def read_json(path: Path) -> Json:
    """The object in a JSON file."""
    try:
        return parse_object(_contents(path, LARGEST_JSON))
    except ValueError as error:
        raise DamageError(f"{path} {error}") from None


def read_rows(path: Path) -> list[Json]:
    """The rows of a JSONL file, without a last line that was cut short; none if there is no file."""
    if not is_there(path):
        return []
    *lines, unfinished = _contents(path, LARGEST_ROWS).split(b"\n")
    rows = [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    try:
        return [*rows, parse_object(unfinished)]  # only its line break is missing
    except ValueError:
        return rows


def _contents(path: Path, largest: int) -> bytes:
    """The bytes of a file of a run directory: whatever is to be checked against checksums.json is checked here."""
    return read_regular_file(path, largest)


def _row(path: Path, number: int, line: bytes) -> Json:
    try:
        return parse_object(line)
    except ValueError as error:
        raise DamageError(f"{path}: line {number} {error}") from None
