"""Verbs that check: `verify`, `doctor`, `env check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mesax.cli.telling import fail, prepare_jax
from mesax.errors import IO_ERROR, UsageError, plain


def verify(options: argparse.Namespace) -> int:
    """Check every file of a run against its checksum; or a store of results, and the pages that quote it."""
    prepare_jax()
    from mesax.results.evidence.checking import is_store

    if is_store(options.run):
        return _verify_results(options.run, options.write)
    if options.write:
        raise UsageError(f"--write is for a store of results: {options.run} is none")
    from mesax.store.json_files import existing_run
    from mesax.store.run_directory import RunDirectory
    from mesax.store.verify import verify_run

    found = verify_run(RunDirectory(existing_run(options.run)))
    for problem in found.problems:
        print(f"damaged  {plain(problem)}")
    for path in found.unknown:
        print(f"unknown  {plain(path)} was not written by this run")
    print(f"checked  {found.checked} files of {options.run}, state '{found.state}'")
    if not found.problems:
        return 0
    noun = "problem" if len(found.problems) == 1 else "problems"
    return fail(f"{len(found.problems)} {noun} in {options.run}", IO_ERROR)


def _verify_results(store: Path, write: bool) -> int:
    from mesax.results.evidence.checking import verify_store, write_pages

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


def doctor(options: argparse.Namespace) -> int:
    """Versions, devices, caches and a short self-test."""
    prepare_jax()
    from mesax.cli.doctor import examine

    return examine(as_json=options.json)


def check_environment(options: argparse.Namespace) -> int:
    """Say whether an environment of the user's fits."""
    prepare_jax()
    from mesax.cli.env_check import check

    return check(options.factory, options.seeds, options.steps, options.json)
