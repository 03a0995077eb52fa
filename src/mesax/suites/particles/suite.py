"""Particle worlds: all that they know of themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mesax.suites.base import Folder


@dataclass(frozen=True)
class ParticlesSuite(Folder):
    """The climb game among landmarks (paper, Sec. 6.3)."""

    name: str = "particles"
    folder: ClassVar[str] = "particles"
    environments: ClassVar[Mapping[str, str]] = {
        "mpe-2a3l": "particle world: 2 agents among 3 landmarks (the paper's visualization)",
        "mpe-2a5l": "particle world: 2 agents meet at one of 5 landmarks",
        "mpe-2a6l": "particle world: 2 agents meet at one of 6 landmarks",
        "mpe-3a5l": "particle world: 2 of 3 agents meet at one of 5 landmarks",
        "mpe-3a6l": "particle world: 2 of 3 agents meet at one of 6 landmarks",
        "mpe-2a5l-hard": "mpe-2a5l at difficulty .3 instead of .1: agents start twice as far from the landmarks",
        "mpe-3a5l-hard": "mpe-3a5l at difficulty .3",
        "mpe-3a5l-hard-k3": "the same, but all 3 agents must meet",
        "wide-2a3l": "wide world: 2 agents among 3 large landmarks, spread over an arena with walls",
        "wide-2a5l": "wide world: 2 agents meet at one of 5 landmarks",
        "wide-2a6l": "wide world: 2 agents meet at one of 6 landmarks",
        "wide-3a5l": "wide world: 2 of 3 agents meet at one of 5 landmarks",
        "wide-3a6l": "wide world: 2 of 3 agents meet at one of 6 landmarks",
        "wide-2a5l-hard": "wide-2a5l in an arena half as large again",
        "wide-3a5l-hard": "wide-3a5l in an arena half as large again",
        "wide-3a5l-hard-k3": "the same, but all 3 agents must meet",
    }

    @property
    def pattern(self) -> str:
        """Any numbers of agents and landmarks."""
        return "mpe-<agents>a<landmarks>l, wide-<agents>a<landmarks>l"

    def knows(self, environment: str) -> bool:
        """For example `wide-16a40l`; its settings are those of the nearest world above, and were not tuned there."""
        return re.fullmatch(r"(mpe|wide)-[1-9]\d{0,2}a[1-9]\d{0,2}l", environment) is not None
