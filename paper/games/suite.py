"""Proof games: small games of other papers, on which a baseline shows that it does what its authors say.

A game is a module of this folder with a constant `FAMILY` and a function `preset(name) -> Preset`; it usually starts
from `mesax.suites.foreign.presets.preset(FAMILY, name)`, which fits any environment, and replaces the learners it is
about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from mesax.suites.base import RunFigure
from mesax.suites.foreign.suite import plain_scene

if TYPE_CHECKING:
    from mesax.envs.base import Task, TaskFamily
    from mesax.methods.preset import Preset
    from mesax.rendering.scene import Scene
    from mesax.types import Episode


@dataclass(frozen=True)
class ProofSuite:
    """One game under its name."""

    name: str
    """Name of the suite and of its only environment; its module has underscores in place of hyphens."""
    text: str

    @property
    def environments(self) -> Mapping[str, str]:
        """The one game."""
        return {self.name: self.text}

    @property
    def _game(self) -> ModuleType:
        return import_module(f"paper.games.{self.name.replace('-', '_')}")

    def family(self, environment: str) -> TaskFamily:
        """As its module has it."""
        return self._game.FAMILY

    def preset(self, environment: str, preset: str) -> Preset:
        """As its module has it."""
        return self._game.preset(preset)

    def figures(self) -> Sequence[RunFigure]:
        """None but those of all runs."""
        return ()

    def scene(self, family: TaskFamily, task: Task, episodes: Episode) -> Scene:
        """Rewards and actions over time."""
        return plain_scene(family, task, episodes)


GAMES: tuple[ProofSuite, ...] = (
    ProofSuite("steps-matrix", "MAVEN's 10-step matrix game: a turn at the end of one of two branches earns more"),
    ProofSuite("qplex-matrix", "QPLEX's matrix game: 8 if both play the first action, -12 if one of them does"),
    ProofSuite("reversed-grid", "EMC's reversed gridworld: 2 agents must arrive at the same time, or pay"),
    ProofSuite("key-doors", "key and door: a goal behind a door whose key lies elsewhere, in rooms of any layout"),
    ProofSuite("half-circle", "a point in a plane, goals on a half-circle that pay only nearby: for maesn"),
)
"""A line for each game."""
