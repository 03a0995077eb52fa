"""Families of a single game: tasks are numbered copies of it, so that every method and verb can run on it."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.envs.base import Environment, Task, TaskInfo, TaskSplit
from mesax.types import Transition, on_device


@dataclass(frozen=True)
class Copies:
    """One game whose returns are sums; copies differ in their number only, which the game does not see."""

    env: Environment
    optimal_return: float
    suboptimal_return: float
    optimal_threshold: float
    """A return from which a copy counts as solved."""
    high_reward: float | None = None

    @property
    def num_tasks(self) -> None:
        """As many copies as are asked for."""
        return

    @property
    def configuration_shape(self) -> None:
        """Nothing to lay out."""
        return

    @property
    def groups(self) -> tuple[str, ...]:
        """None."""
        return ()

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
        return {"tasks": "copies of one game"}

    def score(self, rewards: Float[Array, " time"]) -> Float[Array, ""]:
        """Sum over the episode."""
        return jnp.sum(rewards)

    def breakdown(self, task: Task, rewards: np.ndarray) -> dict[str, float]:
        """One group: nothing to break down."""
        del task, rewards
        return {}

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """None is told from another."""
        del transition
        return jnp.array(-1)

    def rewarding_configurations(self, tasks: Task) -> None:
        """Not measured."""
        del tasks
