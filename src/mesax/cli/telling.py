"""What all verbs share: one-line failures, and setting JAX up."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mesax.errors import UsageError, plain

if TYPE_CHECKING:
    from mesax.store.run_directory import RunDirectory


def fail(message: str, code: int) -> int:
    """One line on stderr, and the exit code."""
    print(f"mesax: {plain(' '.join(message.split()))}", file=sys.stderr)
    return code


def prepare_jax() -> None:
    """Set JAX up before anything imports it for computing."""
    from mesax.runtime import own_process

    own_process()


def stored_run(path: Path) -> RunDirectory:
    """A run directory that was named; a line says so if its world has another name now."""
    from mesax.suites.renamed import open_run

    directory = open_run(path)
    tell_names([directory])
    return directory


def tell_names(directories: Iterable[RunDirectory]) -> None:
    """Say which runs were made when their worlds had other names."""
    from mesax.suites.renamed import names_of_before

    for line in names_of_before((directory.path, directory.run) for directory in directories):
        print(f"note     {line}")


def check_workers(workers: int | None) -> None:
    """Refuse a number of processes that cannot be."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")


def check_directory(directory: Path) -> None:
    """Refuse a place to write to that is something else."""
    from mesax.store.files import is_there

    if is_there(directory) and not directory.is_dir():
        raise UsageError(f"--out {directory} is not a directory")


def check_at_once(runs: int | None) -> None:
    """Refuse a number of runs at a time that cannot be."""
    if runs is not None and runs < 1:
        raise UsageError(f"--at-once must be at least 1, not {runs}")
