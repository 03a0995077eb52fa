"""Climb games: all that they know of themselves."""

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
class ClimbSuite:
    """One-step and multi-stage climb games (paper, Sec. 6.2)."""

    name: str = "climb"

    @property
    def environments(self) -> Mapping[str, str]:
        """Those of the paper, one as its text has it, and three larger ones in which all agents must agree."""
        return {
            "climb-one": "one-step climb game: 2 agents, 10 actions, k in {1, 2}",
            "climb-multi": "five-stage climb game: both must play the stage's u, and see the stage alone",
            "climb-multi-mixed": "five-stage climb game: own (k, u) at every stage, and the history is seen",
            "climb-wide": "one-step climb game: 2 agents, 100 actions, both must play u",
            "climb-trio": "one-step climb game: 3 agents, 30 actions, all must play u",
            "climb-stages": "five-stage climb game: 2 agents, 30 actions, both must play the stage's u",
        }

    def family(self, environment: str) -> TaskFamily:
        """All games of one size."""
        from mesax.suites.climb.presets import GAMES

        return GAMES[environment].family

    def preset(self, environment: str, preset: str) -> Preset:
        """From the table of climb games."""
        from mesax.suites.climb import presets

        return presets.preset(environment, preset)

    def figures(self) -> Sequence[RunFigure]:
        """Which joint actions explorers try."""
        from mesax.suites.climb.figures import FIGURES

        return FIGURES

    def play(self, title: str, family: TaskFamily, task: Task, episodes: Episode) -> Play:
        """Payoffs of every stage, with what was played."""
        from mesax.envs.climb import ClimbFamily
        from mesax.suites.climb.render import ClimbPlay

        return ClimbPlay.of(title, expect(ClimbFamily, family), task, episodes)
