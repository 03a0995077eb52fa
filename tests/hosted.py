"""JAX environments as host environments, copy by copy: what the host path must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from mesax.compiling import compiled
from mesax.envs.base import Environment, HostStep
from mesax.envs.host import EnvironmentFault
from mesax.types import EnvSpec, tree_index


@dataclass(frozen=True)
class Hosted:
    """Any JAX environment, stepped on the host.

    Whatever may happen in it, it is equal to itself: learners of all kinds of mishaps share their programs.
    """

    env: Environment
    truncate_at: int | None = field(default=None, compare=False)
    """Steps after which every episode is cut."""
    break_at: int | None = field(default=None, compare=False)
    """Step of a copy's life at which it raises."""

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def batch(self, copies: int, threads: int) -> HostedBatch:
        del threads
        return HostedBatch(self, copies)


@dataclass(frozen=True)
class _Reset:
    env: Environment

    def __call__(self, tasks: Any, seeds: jax.Array) -> Any:
        return jax.vmap(lambda task, seed: self.env.reset(task, jax.random.key(seed)))(tasks, seeds)


@dataclass(frozen=True)
class _Step:
    env: Environment

    def __call__(self, *args: Any) -> Any:
        return jax.vmap(lambda *args: self.env.step(*args, jax.random.key(0)))(*args)


@dataclass
class HostedBatch:
    hosted: Hosted
    copies: int
    resets: list[np.ndarray] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self._reset, self._step = compiled(_Reset(self.hosted.env)), compiled(_Step(self.hosted.env))

    def reset(self, tasks: Any, seeds: np.ndarray) -> np.ndarray:
        assert seeds.shape == (self.copies,) and seeds.dtype == np.uint32
        self.resets.append(seeds)
        self.tasks, self.time = tasks, 0
        self.state, obs = self._reset(tasks, seeds)
        return np.asarray(obs)

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        self.steps += 1
        if self.steps == self.hosted.break_at:
            raise EnvironmentFault(f"broken on purpose at step {self.steps}")
        self.time += 1
        self.state, outcome = self._step(self.tasks, self.state, actions)
        obs = np.array(outcome.obs)
        obs[~alive] = 77.0  # must never be seen
        cut = np.full(self.copies, self.time == self.hosted.truncate_at)
        return HostStep(obs, np.asarray(outcome.reward), np.asarray(outcome.terminated), cut)

    def close(self) -> None:
        """Nothing runs."""


def first(tree: Any) -> Any:
    return tree_index(tree, 0)
