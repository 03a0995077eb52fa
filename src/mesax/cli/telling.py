"""What all verbs share: one-line failures, and setting JAX up."""

from __future__ import annotations

import sys
from pathlib import Path

from mesax.errors import UsageError


def fail(message: str, code: int) -> int:
    """One line on stderr, and the exit code."""
    print(f"mesax: {' '.join(message.split())}", file=sys.stderr)
    return code


def prepare_jax() -> None:
    """Set JAX up before anything imports it for computing."""
    from mesax.runtime import own_process

    own_process()


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
