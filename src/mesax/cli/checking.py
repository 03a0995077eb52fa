"""`mesax verify RUN_DIR`: the files of a run against their checksums."""

from __future__ import annotations

import argparse

from mesax import clone
from mesax.cli.telling import fail
from mesax.errors import IO_ERROR, plain
from mesax.results.evidence.kept import is_store
from mesax.store.json_files import existing_run
from mesax.store.run_directory import RunDirectory
from mesax.store.verify import verify_run


def verify(options: argparse.Namespace) -> int:
    """Check every file of a run against its checksum."""
    if is_store(options.run):
        clone.part("cli", "verify of a store of results")  # refused where it is not; in a clone another verb does it
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
