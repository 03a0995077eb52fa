"""The swimmer: all that it knows of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mesax.suites.base import Folder


@dataclass(frozen=True)
class SwimmerSuite(Folder):
    """Two joints that must meet at an angle, in MuJoCo (paper, Sec. 6.4)."""

    name: str = "swimmer"
    folder: ClassVar[str] = "swimmer"
    environments: ClassVar[Mapping[str, str]] = {
        "swimmer": "MuJoCo swimmer: two joints meet at a hidden angle, to 1.15 degrees (needs the extra 'mujoco')",
        "swimmer-wide": "the same to 3 degrees, and agents see the head",
    }
