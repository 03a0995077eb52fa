"""Climb games: all that they know of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mesax.suites.base import Folder


@dataclass(frozen=True)
class ClimbSuite(Folder):
    """One-step and multi-stage climb games (paper, Sec. 6.2)."""

    name: str = "climb"
    folder: ClassVar[str] = "climb"
    environments: ClassVar[Mapping[str, str]] = {
        "climb-one": "one-step climb game: 2 agents, 10 actions, k in {1, 2}",
        "climb-multi": "five-stage climb game: both must play the stage's u, and see the stage alone",
        "climb-multi-mixed": "five-stage climb game: own (k, u) at every stage, and the history is seen",
        "climb-wide": "one-step climb game: 2 agents, 100 actions, both must play u",
        "climb-trio": "one-step climb game: 3 agents, 30 actions, all must play u",
        "climb-stages": "five-stage climb game: 2 agents, 30 actions, both must play the stage's u",
    }
