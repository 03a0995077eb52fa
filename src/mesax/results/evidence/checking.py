"""`mesax verify results`: the files of a store against themselves, and every page beside it against the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mesax.errors import StoreError
from mesax.results.evidence.blocks import Evidence
from mesax.results.evidence.form import NEEDED, malformed
from mesax.results.evidence.kept import Kept, all_kept
from mesax.results.evidence.tracing import Finding, check_page, pages_beside, rewrite_page
from mesax.store.json_files import read_json
from mesax.store.reading import final_return

CLOSE = 1e-3
"""Curves are kept to four decimals."""

OF_A_RUN = ("run.json", "STATUS", "checksums.json", "jobs")
"""A directory with any of these is a run."""


@dataclass(frozen=True)
class Verified:
    """What was looked at, and what is wrong."""

    states: dict[str, int]
    """Results by their state: fresh, stale, unverified."""
    blocks: int
    numbers: int
    pages: int
    damaged: tuple[str, ...]
    findings: tuple[Finding, ...]


def is_store(path: Path) -> bool:
    """Whether a directory holds results, and is no run itself, not even a damaged one."""
    return path.is_dir() and not any((path / name).exists() for name in OF_A_RUN) and bool(all_kept(path))


def verify_store(store: Path) -> Verified:
    """Check every file, and every page that quotes them."""
    evidence = Evidence(store)
    checked = {page: check_page(page, store, evidence.write) for page in pages_beside(store)}
    quoting = [one for one in checked.values() if one.blocks or one.numbers]
    states = list(evidence.states.values())
    return Verified(
        {state: states.count(state) for state in ("fresh", "stale", "unverified")},
        sum(one.blocks for one in quoting),
        sum(one.numbers for one in quoting),
        len(quoting),
        tuple(problem for path in sorted(store.glob("*.json")) for problem in _damage(path)),
        tuple(finding for one in checked.values() for finding in one.findings),
    )


def write_pages(store: Path) -> list[Path]:
    """Write what pages quote anew; returns those that changed."""
    evidence = Evidence(store)
    return [page for page in pages_beside(store) if rewrite_page(page, store, evidence.write)]


def _damage(path: Path) -> Iterator[str]:
    """What in a file contradicts itself; files that are no results of runs are only read."""
    try:
        facts = read_json(path)
    except StoreError as error:
        yield str(error)
        return
    if all(name in facts for name in NEEDED):
        if (problem := malformed(facts)) is not None:
            yield f"{path}: {problem}"
            return
        yield from (f"{path}: {problem}" for problem in contradictions(Kept(path, facts)))


def contradictions(kept: Kept) -> Iterator[str]:
    """Figures that do not follow from what they were computed from."""
    finals = np.array([float(task["final_return"]) for task in kept.facts["per_task"]])
    if abs(float(finals.mean()) - float(kept.facts["mean_return"])) > CLOSE:
        yield f"mean_return is {kept.facts['mean_return']}, but its tasks have {finals.mean()}"
    if "curves" in kept.facts:
        for task, curve in zip(kept.facts["per_task"], kept.results.curves, strict=True):
            end = final_return(curve.returns)
            if abs(end - float(task["final_return"])) > CLOSE:
                yield f"task {task['task']} ends at {task['final_return']}, but its curve at {end}"
    if "config" in kept.facts:
        from mesax.experiments.overrides import digest_of_plain  # noqa: PLC0415 (needs JAX)

        if digest_of_plain(kept.facts["config"]) != kept.config_hash:
            yield f"its settings do not have the hash {kept.config_hash}"
