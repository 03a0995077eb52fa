"""Which of the rewards that stage 1 has collected are high: a contract, and what rewards then mean."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class Levels(NamedTuple):
    """What rewards mean on one task: in the paper's worlds nothing pays 0, and rewards count as they are."""

    high: float
    """R*: rewards from here on are high; infinite if none stands out."""
    usual: float = 0.0
    """What a step pays if nothing happens."""
    unit: float = 1.0
    """Heights above the usual reward are counted in this unit."""

    def height(self, rewards: np.ndarray | np.floating) -> np.ndarray | np.floating:
        """How far rewards lie above the usual one."""
        return (rewards - self.usual) / self.unit


class Collected(NamedTuple):
    """The rewards that stage 1 has seen, on all tasks."""

    tasks: int
    steps: int
    lowest: float
    best: float

    def nothing_found(self, setting: str, cure: str) -> str:
        """Why nothing was worth visiting again by a setting's R*, and what to change, in one line."""
        what = f"stage 1 found no reward worth going for: method.threshold.{setting}, and the best reward"
        seen = f"of {self.steps:,} steps on {self.tasks} training tasks was {self.best:g}"
        if self.best == self.lowest:
            advice = "all of them paid the same; make rewards easier to come by on training tasks, or start a new run"
            return f"{what} {seen}: {advice} that collects more (--method.collect.total-steps, another --out)"
        lower = f", or --method.threshold.reward {self.best:g}" if self.best > 0 else ""
        return f"{what} {seen}: start a new run (another --out) with {cure}{lower}"


@runtime_checkable
class HighReward(Protocol):
    """A frozen dataclass that says which rewards are high."""

    def levels(self, rewards: np.ndarray) -> Levels:
        """R* on a task whose collected rewards are given."""

    def nothing_found(self, collected: Collected) -> str:
        """Why no reward was high, and what to change, in one line."""
