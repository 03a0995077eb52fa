"""`mesax verify results`: the files of a store against themselves, and every page next to it against the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mesax.errors import StoreError
from mesax.results.evidence.kept import is_meant_as_result, read_kept
from mesax.store.json_files import read_json
from paper.quoting.blocks import Evidence
from paper.quoting.contradictions import contradictions
from paper.quoting.tracing import Finding, check_page, pages_beside, rewrite_page


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
        tuple(problem for path in sorted(store.glob("*.json")) for problem in damage(path)),
        tuple(finding for one in checked.values() for finding in one.findings),
    )


def write_pages(store: Path) -> list[Path]:
    """Write what pages quote anew; returns those that changed."""
    evidence = Evidence(store)
    return [page for page in pages_beside(store) if rewrite_page(page, store, evidence.write)]


def damage(path: Path) -> Iterator[str]:
    """What is wrong with a file: it cannot be read, or contradicts itself; one of another kind is only read."""
    try:
        if is_meant_as_result(read_json(path)):
            yield from (f"{path}: {problem}" for problem in contradictions(read_kept(path)))
    except StoreError as error:
        yield str(error)
