"""Is every file of a run what was written? Saved trees are checked by their manifests, rows by their sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesax.errors import StoreError
from mesax.store.checkpoints import sum_of
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
    directory = RunDirectory(path.parent)
    try:
        _ = directory.read_rows(path.name) if path.suffix == ".jsonl" else directory.read_json(path.name)
    except StoreError as error:
        return [str(error)]
    return []


def _differing(record: Path, key: str | None) -> list[str]:
    """Files beside `record` that are not what it says of them."""
    try:
        sums: Any = RunDirectory(record.parent).read_json(record.name)
        sums = sums if key is None else sums.get(key, {})
        pairs = [(record.parent / str(name), expected) for name, expected in sums.items()]
    except StoreError as error:
        return [str(error)] if record.exists() else []
    except AttributeError:
        return [f"{record} holds no checksums"]
    return [problem for path, expected in pairs for problem in _other_than(path, expected)]


def _other_than(path: Path, expected: Any) -> list[str]:
    if not path.is_file():
        return [f"{path} is missing"]
    try:
        return [] if sum_of(path) == expected else [f"{path} is damaged: its SHA-256 is another"]
    except StoreError as error:
        return [str(error)]


def _missing(root: Path) -> list[str]:
    return [name for name in (CHECKSUMS, "eval.jsonl", "metrics.jsonl", "summary.json") if not (root / name).is_file()]
