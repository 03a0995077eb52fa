"""What all verbs share: one-line failures, JAX that is set up before it is imported, runs that are opened."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mesax.errors import plain

if TYPE_CHECKING:
    from mesax.store.run_directory import RunDirectory


def fail(message: str, code: int) -> int:
    """One line on stderr, and the exit code."""
    print(f"mesax: {plain(' '.join(message.split()))}", file=sys.stderr)
    return code


def imported(module: str) -> ModuleType:
    """A module that a verb needs, for example `mesax.cli.looking`: imported when the verb is chosen."""
    return import_module(module)


def with_jax(module: str) -> ModuleType:
    """The same for a module that computes: JAX is set up first."""
    imported("mesax.runtime").own_process()
    return imported(module)


def stored_run(path: Path) -> RunDirectory:
    """A run directory that was named; a line says so if its world has another name now."""
    directory: RunDirectory = imported("mesax.suites.renamed").open_run(path)
    tell_names([directory])
    return directory


def tell_names(directories: Iterable[RunDirectory]) -> None:
    """Say which runs were made when their worlds had other names."""
    for line in imported("mesax.suites.renamed").names_of_before(
        (directory.path, directory.run) for directory in directories
    ):
        print(f"note     {line}")
