"""What one world knows of itself: its environments, presets, figures and pictures. No JAX here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from mesax.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mesax.envs.base import Task, TaskFamily
    from mesax.methods.preset import Preset
    from mesax.rendering.episode import Play
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
        """What is drawn of its runs, beside what is drawn of all; needs no JAX."""

    def play(self, title: str, family: TaskFamily, task: Task, episodes: Episode) -> Play:
        """Stacked episodes of one task, ready to be drawn."""


@runtime_checkable
class OpenEnded(Protocol):
    """A suite with more environments than it lists: of any size, say."""

    @property
    def pattern(self) -> str:
        """How their names are made, for people."""

    def knows(self, environment: str) -> bool:
        """Whether a name is one of these."""


def expect(kind: type[Kind], value: object) -> Kind:
    """`value`, which must be of the kind that a world is made of."""
    if not isinstance(value, kind):
        raise UsageError(f"this world is made of {kind.__name__}, not {type(value).__name__}")
    return value
