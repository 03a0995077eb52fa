"""What one world knows of itself: its environments, presets, figures and pictures. No JAX here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, runtime_checkable

from mesax.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mesax.envs.base import Task, TaskFamily
    from mesax.methods.preset import Preset
    from mesax.rendering.scene import Scene
    from mesax.store.reading import RunResults
    from mesax.types import Episode

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class RunFigure:
    """A figure of one run: what its files are called, what is said of it, whether there is one, and how it is drawn."""

    name: str
    title: str
    """Its heading in a report; figures of one title stand below the same."""
    caption: str
    applies: Callable[[RunResults], bool]
    draw: Callable[[RunResults], Figure]
    absent: str = ""
    """What a report says of a method whose run has nothing under this title; nothing at all if empty."""


@runtime_checkable
class Suite(Protocol):
    """One world: a value that imports what is heavy only when it is asked for it."""

    @property
    def name(self) -> str:
        """What run.json calls it."""

    @property
    def environments(self) -> Mapping[str, str]:
        """Names that a person can type, with a line about each."""

    def family(self, environment: str) -> TaskFamily:
        """The tasks of one of its environments."""

    def preset(self, environment: str, preset: str) -> Preset:
        """MESA's experiment and every learner there, in one of the presets."""

    def figures(self) -> Sequence[RunFigure]:
        """Figures of its runs, besides those of all runs; needs no JAX."""

    def scene(self, family: TaskFamily, task: Task, episodes: Episode) -> Scene:
        """Stacked episodes of one task, for pictures and for the player of a report."""


@runtime_checkable
class OpenEnded(Protocol):
    """A suite with more environments than it lists: of any size, say."""

    @property
    def pattern(self) -> str:
        """How their names are made, for people."""

    def knows(self, environment: str) -> bool:
        """Whether a name is one of these."""


def part(module: str) -> ModuleType:
    """A module of `mesax.suites` by its name there, for example `climb.presets`: imported when it is asked for."""
    return import_module(f"{__package__}.{module}")


@dataclass(frozen=True)
class Folder:
    """A suite in a folder of this package: `presets.py`, `figures.py` and `render.py` have what it is asked for."""

    name: str
    folder: ClassVar[str]
    environments: ClassVar[Mapping[str, str]]

    def family(self, environment: str) -> TaskFamily:
        """As the table of presets has it."""
        return part(f"{self.folder}.presets").family_of(environment)

    def preset(self, environment: str, preset: str) -> Preset:
        """From the table of presets."""
        return part(f"{self.folder}.presets").preset(environment, preset)

    def figures(self) -> Sequence[RunFigure]:
        """Those that say where explorers go."""
        return part(f"{self.folder}.figures").FIGURES

    def scene(self, family: TaskFamily, task: Task, episodes: Episode) -> Scene:
        """As the world is drawn."""
        return part(f"{self.folder}.render").scene(family, task, episodes)


def expect(kind: type[Kind], value: object) -> Kind:
    """`value`, which must be of the kind that a world is made of."""
    if not isinstance(value, kind):
        raise UsageError(f"this world is made of {kind.__name__}, not {type(value).__name__}")
    return value
