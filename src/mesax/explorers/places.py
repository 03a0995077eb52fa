"""Where saved explorers are. Needs no JAX."""

from __future__ import annotations

from pathlib import Path

from mesax.store.run_directory import product_in

EXPLORERS = "explorers"
"""What a set of them is called."""


def explorers_in(run: Path) -> Path:
    """Where a finished run has its explorers."""
    return product_in(run, EXPLORERS)


def run_or_explorers(path: Path) -> Path:
    """Where explorers are, given a finished run that has some, or their directory itself."""
    nested = explorers_in(path)
    return nested if nested.is_dir() else path
