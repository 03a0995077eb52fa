"""What only a clone of the repository has: the package `paper` next to `src/`; the wheel is without it.

One rule: if `paper/` stands where this package lies in a clone, its verbs (`paper.cli`), its games
(`paper.games.suite`) and the settings of these (`paper.envs`) are there as if they were part of mesax.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from mesax.errors import UsageError

PAPER = "paper"
"""The package, and its directory."""
PLACE = Path(__file__).parents[2] / PAPER / "__init__.py"
VERBS = ("theory", "reproduce")
"""What the command line has in a clone only."""


def is_here() -> bool:
    """Whether this is a clone."""
    return PLACE.is_file()


def homes() -> frozenset[str]:
    """The packages whose classes files call by their names alone."""
    return frozenset((__name__.partition(".")[0], PAPER) if is_here() else (__name__.partition(".")[0],))


def part(name: str, what: str) -> ModuleType:
    """A module of `paper`; elsewhere a line that says what is no part of the wheel."""
    if not is_here():
        raise UsageError(f"{what} is part of the repository, not of this installation: pip install -e . in a clone")
    _load()
    return import_module(f"{PAPER}.{name}")


def _load() -> None:
    """Import the package itself from its place: a clone is not on the search path, and another `paper` may be."""
    loaded = sys.modules.get(PAPER)
    if loaded is not None:
        if getattr(loaded, "__file__", None) != str(PLACE):
            raise UsageError(f"another module is called {PAPER}, which a clone of mesax has, too: rename it")
        return
    spec = spec_from_file_location(PAPER, PLACE)
    assert spec is not None and spec.loader is not None
    sys.modules[PAPER] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PAPER])
