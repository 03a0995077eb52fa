"""Families of a single game: tasks are numbered copies of it, so that every method and verb can run on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mesax.envs.base import Environment, PlainFamily, Task, TaskInfo, TaskSplit
from mesax.types import on_device


@dataclass(frozen=True)
class Copies(PlainFamily):
    """One game whose returns are sums; copies differ in their number only, which the game does not see."""

    env: Environment
    optimal_return: float
    suboptimal_return: float
    optimal_threshold: float
    """A return from which a copy counts as solved."""
    high_reward: float | None = None

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Copies by number."""
        del seed
        numbers = np.arange(num_train + num_test, dtype=np.int32)
        return TaskSplit(*on_device((numbers[:num_train], numbers[num_train:])))

    def describe(self, task: Task) -> TaskInfo:
        """Its number."""
        return TaskInfo(f"copy {int(task)}", None, [])

    def facts(self) -> dict[str, object]:
        """What run.json says of its tasks."""
        return {"tasks": "copies of one game"} | super().facts()
