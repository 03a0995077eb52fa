"""Drawing that never costs a result: a picture that fails is a line on standard error.

Drawing is heavy, and even its import may fail (matplotlib wants a directory to write to); so it is imported here, late.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from mesax.errors import OneLineError

if TYPE_CHECKING:
    from mesax.results.comparison import FamilyComparison
    from mesax.store.reading import RunResults

Drawn = TypeVar("Drawn")


def attempt(name: str, draw: Callable[[], Drawn]) -> Drawn | None:
    """What `draw` gives; if it fails, a line says why, and there is nothing."""
    try:
        return draw()
    except Exception as error:
        kind = "" if isinstance(error, OneLineError) else f"{type(error).__name__}: "
        line = " ".join(f"the picture {name} cannot be drawn: {kind}{error}".split())
        print(f"mesax: {line}", file=sys.stderr, flush=True)
        return None


def draw_run_safely(run: RunResults) -> list[Path]:
    """Draw every figure that a run has data for."""
    return attempt("of the run", lambda: _drawing().draw_run(run)) or []


def draw_comparison_safely(families: Sequence[FamilyComparison], directory: Path) -> list[Path]:
    """Draw the figures of the runs on each family."""
    return attempt("of the comparison", lambda: _drawing().draw_comparison(families, directory)) or []


def _drawing() -> ModuleType:
    return import_module("mesax.results.drawing")
