"""Environments that tell their agents what the task asks for: for baselines that may know it.

What is told comes first in every agent's observation, so it has the same place whatever else is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.envs.base import AnyEnvironment, Environment, HostBatch, HostEnvironment, HostStep, State, Step, Task
from mesax.errors import UsageError
from mesax.types import Action, AnyArray, EnvSpec, Episode, Key


@runtime_checkable
class Goal(Protocol):
    """A frozen dataclass that says what a task asks for, as numbers."""

    def size(self, env: AnyEnvironment) -> int:
        """How many numbers an agent is told."""

    def __call__(
        self, env: AnyEnvironment, task: Task, obs: Float[AnyArray, "*batch agents obs"]
    ) -> Float[AnyArray, "*batch agents goal"]:
        """What each agent is told at an observation, in JAX or in NumPy; what all share may have one entry for all."""


@dataclass(frozen=True)
class UnknownGoal:
    """Placeholder of a world that does not say what tasks ask for: its use is refused with what to do instead."""

    def size(self, env: AnyEnvironment) -> int:
        """Refused."""
        raise UsageError(
            f"method 'goal' tells agents what a task asks for, and the suite of {type(env).__name__} does not say what"
            " that is: use 'pretrain', which is told nothing, or a suite of your own whose Preset has a goal"
        )

    def __call__(
        self, env: AnyEnvironment, task: Task, obs: Float[AnyArray, "*batch agents obs"]
    ) -> Float[AnyArray, "*batch agents goal"]:
        """Never asked for."""
        raise NotImplementedError(f"{type(self).__name__} has no size, so no environment can tell it")


def choice_and_count(
    choice: Int[AnyArray, "*batch"], count: Int[AnyArray, "*batch"], number: int, size: int
) -> Float[AnyArray, "*batch {size}"]:
    """Which one of `number`, one-hot; behind it, if `size` leaves room, how many must choose it."""
    columns = np.arange(size).reshape((1,) * choice.ndim + (-1,))
    many = count[..., None].astype(np.float32) * (columns == number).astype(np.float32)
    return (choice[..., None] == columns).astype(np.float32) + many


def _told_spec(env: AnyEnvironment, goal: Goal) -> EnvSpec:
    return replace(env.spec, obs_size=goal.size(env) + env.spec.obs_size)


@dataclass(frozen=True)
class ToldGoal:
    """An environment whose agents are told the goal."""

    env: Environment
    goal: Goal

    @property
    def spec(self) -> EnvSpec:
        """Longer observations."""
        return _told_spec(self.env, self.goal)

    def reset(self, task: Task, key: Key) -> tuple[State, Float[Array, "agents obs"]]:
        """As before, with the goal."""
        state, obs = self.env.reset(task, key)
        return state, self._with_goal(task, obs)

    def step(self, task: Task, state: State, action: Action, key: Key) -> tuple[State, Step]:
        """As before, with the goal."""
        state, outcome = self.env.step(task, state, action, key)
        return state, Step(self._with_goal(task, outcome.obs), outcome.reward, outcome.terminated)

    def _with_goal(self, task: Task, obs: Float[Array, "agents obs"]) -> Float[Array, "agents more"]:
        told = jnp.broadcast_to(self.goal(self.env, task, obs), (obs.shape[0], self.goal.size(self.env)))
        return jnp.concatenate([told.astype(obs.dtype), obs], axis=-1)


@dataclass(frozen=True)
class HostToldGoal:
    """A host environment whose agents are told the goal (see `ToldGoal`)."""

    env: HostEnvironment
    goal: Goal

    @property
    def spec(self) -> EnvSpec:
        """Longer observations."""
        return _told_spec(self.env, self.goal)

    def batch(self, copies: int, threads: int) -> HostBatch:
        """Copies that tell."""
        return _Telling(self.env.batch(copies, threads), self.env, self.goal)


@dataclass
class _Telling:
    inner: HostBatch
    env: HostEnvironment
    goal: Goal
    tasks: Task = None

    def reset(self, tasks: Task, seeds: np.ndarray) -> np.ndarray:
        self.tasks = tasks
        return self._with_goal(self.inner.reset(tasks, seeds))

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        outcome = self.inner.step(actions, alive)
        return outcome._replace(obs=self._with_goal(outcome.obs))

    def _with_goal(self, obs: np.ndarray) -> np.ndarray:
        told = np.asarray(self.goal(self.env, self.tasks, obs), obs.dtype)  # type: ignore[arg-type]
        told = np.broadcast_to(told, (*obs.shape[:-1], self.goal.size(self.env)))
        return np.concatenate([told, obs], axis=-1)

    def close(self) -> None:
        self.inner.close()


def telling(env: AnyEnvironment, goal: Goal | None) -> AnyEnvironment:
    """Either kind of environment whose agents are told the goal; None leaves it as it is."""
    if goal is None:
        return env
    goal.size(env)  # refuses an environment that it is not made for
    return HostToldGoal(env, goal) if isinstance(env, HostEnvironment) else ToldGoal(env, goal)


def without_goal(env: AnyEnvironment, episodes: Episode) -> Episode:
    """Episodes as `env` itself shows them: whatever their agents were told first is left out."""
    return replace(episodes, obs=episodes.obs[..., episodes.obs.shape[-1] - env.spec.obs_size :])
