"""Environments outside JAX: stateful, on the host, stepped many at a time (MuJoCo's engine, any PettingZoo game).

The environment itself is a frozen dataclass like any other; `batch` opens a number of running copies. The rollout
(`training/host_rollout.py`) steps them with a compiled policy and returns the same `Episode` as the JAX path, so that
nothing after it knows where an episode came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mesax.envs.base import (
    ActionRepeat,
    AnyEnvironment,
    HostBatch,
    HostEnvironment,
    HostStep,
    Shortened,
    Task,
    repeated_spec,
)
from mesax.errors import EnvironmentFault as EnvironmentFault  # noqa: PLC0414  (for callers that play environments)
from mesax.types import EnvSpec


@dataclass(frozen=True)
class HostActionRepeat:
    """A host environment in which every action is played `times` times (see `ActionRepeat`)."""

    env: HostEnvironment
    times: int

    @property
    def spec(self) -> EnvSpec:
        """A horizon of fewer decisions."""
        return repeated_spec(self.env.spec, self.times)

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


@dataclass(frozen=True)
class HostShortened:
    """A host environment whose episodes are cut after fewer steps (see `Shortened`)."""

    env: HostEnvironment
    horizon: int

    @property
    def spec(self) -> EnvSpec:
        """The shorter horizon."""
        return replace(self.env.spec, horizon=self.horizon)

    def batch(self, copies: int, threads: int) -> HostBatch:
        """As before: the rollout makes the cut."""
        return self.env.batch(copies, threads)


def repeating(env: AnyEnvironment, times: int) -> AnyEnvironment:
    """Either kind of environment with every action played `times` times."""
    if times == 1:
        return env
    return HostActionRepeat(env, times) if isinstance(env, HostEnvironment) else ActionRepeat(env, times)


def shortened(env: AnyEnvironment, horizon: int | None) -> AnyEnvironment:
    """Either kind of environment with episodes of `horizon` steps; None leaves it as it is."""
    if horizon is None:
        return env
    return HostShortened(env, horizon) if isinstance(env, HostEnvironment) else Shortened(env, horizon)


def decisions_to_steps(env: AnyEnvironment, decisions: int) -> int:
    """Steps of the world itself that so many steps of an environment take, which may play each action repeatedly."""
    return decisions * env.times if isinstance(env, ActionRepeat | HostActionRepeat) else decisions
