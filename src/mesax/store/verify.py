"""Is every file of a run what was written? Saved trees are checked by their manifests, rows by their sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mesax.errors import StoreError
from mesax.store.files import file_checksum
from mesax.store.json_files import read_json, read_rows
from mesax.store.run_directory import CHECKSUMS, STATUSES, RunDirectory
from mesax.store.trees import verify


@dataclass(frozen=True)
class Findings:
    """What was looked at and what is wrong with it."""

    status: str
    checked: int
    problems: list[str]


def verify_run(run: RunDirectory) -> Findings:
    """Check all that has a checksum, and that the rest can be read."""
    checked, problems = 0, []
    for manifest in _files(run.path, "manifest.json"):
        checked += 1
        problems += verify(manifest.parent)
    for name in ("*.json", "*.jsonl"):
        for path in _files(run.path, name):
            checked += 1
            problems += _unreadable(path)
    for record, key in ((run.path / CHECKSUMS, None), *((path, "rows") for path in _files(run.path, "done.json"))):
        problems += _differing(record, key)
    if run.status not in STATUSES:
        problems.append(f"{run.path / 'STATUS'} says {run.status!r}, which is none of {', '.join(STATUSES)}")
    if run.status == "done":
        problems += [f"{run.path / name} is missing" for name in _missing(run.path)]
    return Findings(run.status, checked, sorted(set(problems)))


def _files(root: Path, name: str) -> list[Path]:
    """Files of that name, but not those that were being written when a process died."""
    found = (path for path in root.rglob(name) if path.is_file() or path.is_symlink())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _unreadable(path: Path) -> list[str]:
    try:
        _ = read_rows(path) if path.suffix == ".jsonl" else read_json(path)
    except StoreError as error:
        return [str(error)]
    return []


def _differing(record: Path, key: str | None) -> list[str]:
    """Files beside `record` that are not what it says of them."""
    try:
        content = read_json(record)
    except StoreError as error:
        return [str(error)] if record.exists() else []
    checksums = content if key is None else content.get(key, {})
    if not isinstance(checksums, dict):
        return [f"{record} holds no checksums"]
    return [problem for name, expected in checksums.items() for problem in _other_than(record.parent / name, expected)]


def _other_than(path: Path, expected: object) -> list[str]:
    if not path.is_file():
        return [f"{path} is missing"]
    try:
        return [] if file_checksum(path) == expected else [f"{path} is damaged: its SHA-256 does not match"]
    except StoreError as error:
        return [str(error)]


def _missing(root: Path) -> list[str]:
    return [name for name in (CHECKSUMS, "eval.jsonl", "metrics.jsonl", "summary.json") if not (root / name).is_file()]
