"""Is every file of a run what was written? Saved trees are checked by their manifests, rows by their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mesax.errors import StoreError
from mesax.rendering.recorded import EPISODES_FILE, read_episodes
from mesax.store.files import neither_files_nor_folders
from mesax.store.json_files import CHECKSUMS, read_json, read_rows
from mesax.store.run_directory import MERGED, STATUSES, RunDirectory
from mesax.store.sums import DONE, check_sum
from mesax.store.trees import MANIFEST, verify

OWN_FILES = (*MERGED, CHECKSUMS, "STATUS", "report.html", EPISODES_FILE, "progress.json")
OWN_FOLDERS = ("jobs", "policies", "figures", "bundle", "tracking")


@dataclass(frozen=True)
class Findings:
    """What was looked at, what is wrong with it, and what else there is."""

    state: str
    checked: int
    problems: list[str]
    unknown: list[str] = field(default_factory=list)
    """Names that no run writes: perhaps harmless, but there is nothing to check them against."""


def verify_run(run: RunDirectory) -> Findings:
    """Check all that has a checksum, and that the rest can be read."""
    manifests, documents, rows = (_files(run.path, name) for name in (MANIFEST, "*.json", "*.jsonl"))
    problems = [f"{path} is a link, pipe or device" for path in neither_files_nor_folders(run.path)]
    problems += [problem for manifest in manifests for problem in verify(manifest.parent)]
    problems += _told(partial(read_json, path) for path in documents)
    problems += _told(partial(read_rows, path) for path in rows)
    problems += _told(partial(run.check_job, done.parent) for done in _files(run.path, DONE))
    problems += _told(iter([partial(read_episodes, run.path)]))
    problems += _differing(run)
    if not (run.path / "STATUS").is_file():
        problems.append(f"{run.path / 'STATUS'} is missing")
    elif run.status not in STATUSES:
        problems.append(f"{run.path / 'STATUS'} says {run.status!r}, which is none of {', '.join(STATUSES)}")
    checked = len(manifests) + len(documents) + len(rows)
    return Findings(run.state, checked, sorted(set(problems)), sorted(_unknown(run)))


def _files(root: Path, name: str) -> list[Path]:
    """Files of that name, but not those that were being written when a process died."""
    found = (path for path in root.rglob(name) if path.is_file() and not path.is_symlink())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _told(checks: Iterator[Callable[[], object]]) -> list[str]:
    """What the checks that fail say."""
    problems = []
    for check in checks:
        try:
            check()
        except StoreError as error:
            problems.append(str(error))
    return problems


def _differing(run: RunDirectory) -> list[str]:
    """Files of a finished run that are not what its checksums say, and results that these do not name."""
    try:
        sums = run.sums or {}
    except StoreError as error:
        return [str(error)]
    differing = _told(partial(check_sum, run.path / name, expected) for name, expected in sums.items())
    return differing + _told(iter([run.check_results] if run.status == "done" else []))


def _unknown(run: RunDirectory) -> Iterator[str]:
    for path in run.path.iterdir():
        is_log = path.name.startswith("worker-") and path.suffix == ".log"
        if not (path.name.startswith(".") or is_log or path.name in (*OWN_FILES, *OWN_FOLDERS)):
            yield str(path)
    try:
        named = {Path(name).parent.name for name in run.sums or () if name.startswith("policies/")}
    except StoreError:
        return
    for path in sorted((run.path / "policies").glob("*")) if named else ():
        if path.name not in named and not path.name.startswith("."):
            yield str(path)
