"""Environments outside JAX: stateful, on the host, stepped many at a time (MuJoCo's engine, any PettingZoo game).

The environment itself is a frozen dataclass like any other; `batch` opens a number of running copies. The rollout
(`training/host_rollout.py`) steps them with a compiled policy and returns the same `Episode` as the JAX path, so that
nothing after it knows where an episode came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from mesax.envs.base import ActionRepeat, Task
from mesax.errors import TrainingError, UsageError
from mesax.types import EnvSpec


class EnvironmentFault(TrainingError):
    """An environment broke its contract: raised in a step, returned NaN or the wrong shape."""


class HostStep(NamedTuple):
    """What one joint step of all copies gives back."""

    obs: np.ndarray
    """float32 `[copies, agents, obs]`."""
    reward: np.ndarray
    """float32 `[copies]`."""
    terminated: np.ndarray
    """bool `[copies]`: the task is over, nothing is to be had afterwards."""
    truncated: np.ndarray
    """bool `[copies]`: cut short by the environment itself; learners bootstrap from this step's observation."""


class HostBatch(Protocol):
    """Running copies of an environment, each on a task of its own."""

    def reset(self, tasks: Task, seeds: np.ndarray) -> np.ndarray:
        """First observations `[copies, agents, obs]` of new episodes; tasks are stacked, seeds are uint32."""

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        """Advance the copies that are `alive`; the rows of the others mean nothing, but are finite."""

    def close(self) -> None:
        """End whatever runs."""


@runtime_checkable
class HostEnvironment(Protocol):
    """A frozen dataclass that opens running copies of itself."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes and action space."""

    def batch(self, copies: int, threads: int) -> HostBatch:
        """Open `copies`, stepped by `threads` threads; the number of threads must not change any result."""


@dataclass(frozen=True)
class HostActionRepeat:
    """A host environment in which every action is played `times` times (see `ActionRepeat`)."""

    env: Any
    times: int

    @property
    def spec(self) -> EnvSpec:
        """A horizon of fewer decisions."""
        spec: EnvSpec = self.env.spec
        if spec.horizon % self.times:
            raise UsageError(f"a horizon of {spec.horizon} steps cannot be cut into decisions of {self.times}")
        return replace(spec, horizon=spec.horizon // self.times)

    def batch(self, copies: int, threads: int) -> HostBatch:
        """Copies that repeat."""
        return _Repeating(self.env.batch(copies, threads), self.times)


@dataclass
class _Repeating:
    inner: HostBatch
    times: int

    def reset(self, tasks: Task, seeds: np.ndarray) -> np.ndarray:
        return self.inner.reset(tasks, seeds)

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        """The same action several times; rewards add up until the episode is over."""
        obs, reward, terminated, truncated = self.inner.step(actions, alive)
        obs = obs.copy()
        for _ in range(1, self.times):
            going = alive & ~terminated & ~truncated
            if not going.any():
                break
            after = self.inner.step(actions, going)
            obs[going] = after.obs[going]
            reward = reward + np.where(going, after.reward, 0.0).astype(np.float32)
            terminated = np.where(going, after.terminated, terminated)
            truncated = np.where(going, after.truncated, truncated)
        return HostStep(obs, reward, terminated, truncated)

    def close(self) -> None:
        self.inner.close()


def repeating(env: Any, times: int) -> Any:
    """Either kind of environment with every action played `times` times."""
    if times == 1:
        return env
    return HostActionRepeat(env, times) if isinstance(env, HostEnvironment) else ActionRepeat(env, times)
