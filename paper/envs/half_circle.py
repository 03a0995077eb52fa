"""Point navigation to goals on a half-circle: a team that knows the half-circle need not search the plane.

A point starts at the center and moves by at most `stride` at every step, in any direction. At a distance d from its
goal it is paid 1 - d / reach. On training tasks this holds everywhere; test tasks pay only within `reach`, and nothing
beyond: the setting in which MAESN was shown (Gupta et al. 2018, with other bodies).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from mesax.envs.base import PlainFamily, Step, TaskInfo, TaskSplit
from mesax.errors import UsageError
from mesax.types import Box, EnvSpec, Key, on_device


class HalfCircleTask(eqx.Module):
    """Where to go, and whether the way there is paid."""

    goal: Float[Array, "*tasks 2"]
    dense: Bool[Array, "*tasks"]


@dataclass(frozen=True)
class HalfCircle:
    """One agent, a plane without walls."""

    horizon: int = 20
    radius: float = 2.0
    """Radius of the half-circle that goals are on."""
    reach: float = 0.8
    """Distance from the goal within which every task pays."""
    stride: float = 0.4

    def __post_init__(self) -> None:
        """Refuse planes in which no goal can be reached, or all are reached from the start."""
        if not 0.0 < self.reach < self.radius:
            raise UsageError(f"reach must lie strictly between 0 and the radius {self.radius}, not {self.reach}")
        if not self.stride * self.horizon >= self.radius:
            raise UsageError(f"{self.horizon} steps of {self.stride} do not lead to the radius {self.radius}")

    @property
    def spec(self) -> EnvSpec:
        """The agent sees where it is, and says where it moves."""
        return EnvSpec(1, 2, Box(2), self.horizon)

    def reset(self, task: HalfCircleTask, key: Key) -> tuple[Float[Array, "2"], Float[Array, "1 2"]]:
        """At the center."""
        del task, key
        return jnp.zeros(2), jnp.zeros((1, 2))

    def step(
        self, task: HalfCircleTask, state: Float[Array, "2"], action: Float[Array, "1 2"], key: Key
    ) -> tuple[Float[Array, "2"], Step]:
        """Move, and be paid for the place reached."""
        del key
        wanted = jnp.clip(action[0], -1.0, 1.0)
        state = state + self.stride * wanted / jnp.maximum(jnp.linalg.norm(wanted), 1.0)
        near = 1.0 - jnp.linalg.norm(state - task.goal) / self.reach
        reward = jnp.where(task.dense, near, jnp.maximum(near, 0.0))
        return state, Step(state[None], reward, jnp.asarray(False))


@dataclass(frozen=True)
class HalfCircleFamily(PlainFamily):
    """All goals on the half-circle."""

    world: HalfCircle = HalfCircle()
    dense_training: bool = True
    """Whether training tasks pay for the way to their goals."""

    @property
    def env(self) -> HalfCircle:
        """The plane."""
        return self.world

    @property
    def optimal_return(self) -> float:
        """Straight to the goal, and there it stays."""
        world = self.world
        distances = np.maximum(world.radius - world.stride * np.arange(1, world.horizon + 1), 0.0)
        return float(np.sum(np.maximum(1.0 - distances / world.reach, 0.0)))

    @property
    def suboptimal_return(self) -> float:
        """Never within reach."""
        return 0.0

    @property
    def optimal_threshold(self) -> float:
        """Half of the best."""
        return self.optimal_return / 2

    @property
    def high_reward(self) -> float:
        """Half of the way from the edge of reach to the goal."""
        return 0.5

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        return {"num_agents": 1} | super().facts()

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Angles at random; no two are the same."""
        train, test = (np.random.default_rng((seed, 0x4A1F, part)) for part in range(2))
        dense = np.full(num_train, self.dense_training)
        return TaskSplit(self._tasks(train, dense), self._tasks(test, np.zeros(num_test, bool)))

    def _tasks(self, random: np.random.Generator, dense: np.ndarray) -> HalfCircleTask:
        angles = math.pi * random.random(len(dense))
        goal = self.world.radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        return HalfCircleTask(*on_device((goal.astype(np.float32), dense)))

    def describe(self, task: HalfCircleTask) -> TaskInfo:
        """The direction of the goal in degrees."""
        x, y = (float(number) for number in np.asarray(task.goal))
        return TaskInfo(f"{math.degrees(math.atan2(y, x)):.0f} degrees", None, [[x, y]])
