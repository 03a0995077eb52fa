"""Verbs that check: `verify`, `doctor`, `env check`."""

from __future__ import annotations

import argparse

from mesax.cli.telling import fail, prepare_jax
from mesax.errors import IO_ERROR


def verify(options: argparse.Namespace) -> int:
    """Check every file of a run against its checksum."""
    prepare_jax()
    from mesax.store.json_files import existing_run
    from mesax.store.run_directory import RunDirectory
    from mesax.store.verify import verify_run

    found = verify_run(RunDirectory(existing_run(options.run)))
    for problem in found.problems:
        print(f"damaged  {problem}")
    for path in found.unknown:
        print(f"unknown  {path} was not written by this run")
    print(f"checked  {found.checked} files of {options.run}, status '{found.status}'")
    if not found.problems:
        return 0
    noun = "problem" if len(found.problems) == 1 else "problems"
    return fail(f"{len(found.problems)} {noun} in {options.run}", IO_ERROR)


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
