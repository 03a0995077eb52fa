"""`mesax verify RESULTS`: a store of results, and the pages that quote it."""

from __future__ import annotations

import argparse
from pathlib import Path

from mesax.cli import checking
from mesax.cli.telling import fail
from mesax.errors import IO_ERROR, UsageError
from mesax.results.evidence.kept import is_store
from paper.quoting.checking import verify_store, write_pages


def verify(options: argparse.Namespace) -> int:
    """Check a store of results, or leave a run to those who check runs."""
    if is_store(options.run):
        return _verify_results(options.run, options.write)
    if options.write:
        raise UsageError(f"--write is for a store of results: {options.run} is none")
    return checking.verify(options)


def _verify_results(store: Path, write: bool) -> int:

    for page in write_pages(store) if write else ():
        print(f"written  {page}")
    found = verify_store(store)
    for problem in found.damaged:
        print(f"damaged  {problem}")
    for finding in found.findings:
        print(f"differs  {finding.page}:{finding.line}: {finding.reason}")
    states = ", ".join(f"{number} {state}" for state, number in found.states.items())
    print(f"checked  {sum(found.states.values())} results ({states}) of {store}")
    print(f"checked  {found.blocks} blocks and {found.numbers} numbers of {found.pages} pages")
    number = len(found.damaged) + len(found.findings)
    if not number:
        return 0
    return fail(
        f"{number} {'problem' if number == 1 else 'problems'} with {store} and the pages that quote it", IO_ERROR
    )
