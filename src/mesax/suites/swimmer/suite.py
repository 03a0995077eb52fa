"""The swimmer: all that it knows of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesax.suites.base import RunFigure, expect

if TYPE_CHECKING:
    from mesax.envs.base import Task, TaskFamily
    from mesax.methods.preset import Preset
    from mesax.rendering.episode import Play
    from mesax.types import Episode


@dataclass(frozen=True)
class SwimmerSuite:
    """Two joints that must meet at an angle, in MuJoCo (paper, Sec. 6.4)."""

    name: str = "swimmer"

    @property
    def environments(self) -> Mapping[str, str]:
        """That of the paper, and one whose band is wider, with targets away from where episodes start."""
        return {
            "swimmer": "MuJoCo swimmer: two joints meet at a hidden angle, to 1.15 degrees (needs the extra 'mujoco')",
            "swimmer-wide": "the same to 3 degrees, and agents see the head",
        }

    def family(self, environment: str) -> TaskFamily:
        """Targets on both sides of a straight body."""
        from mesax.suites.swimmer.presets import WORLDS

        return WORLDS[environment].family

    def preset(self, environment: str, preset: str) -> Preset:
        """From the swimmer's table."""
        from mesax.suites.swimmer import presets

        return presets.preset(environment, preset)

    def figures(self) -> Sequence[RunFigure]:
        """At which angles explorers are, and how they get there."""
        from mesax.suites.swimmer.figures import FIGURES

        return FIGURES

    def play(self, title: str, family: TaskFamily, task: Task, episodes: Episode) -> Play:
        """Angles against the band that pays, rewards and poses."""
        from mesax.envs.swimmer_climb import SwimmerFamily
        from mesax.suites.swimmer.render import SwimmerPlay

        return SwimmerPlay.of(title, expect(SwimmerFamily, family), task, episodes)
