"""The tasks of mesax as PettingZoo `ParallelEnv`s, for learners of other libraries.

env = parallel_env(ClimbFamily(), 7)  # the first training task of experiment seed 7
observations, infos = env.reset(seed=0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mesax.compiling import compiled
from mesax.envs.base import Environment, HostBatch, HostEnvironment, Step, Task, TaskFamily
from mesax.errors import MissingLibrary, UsageError
from mesax.types import Discrete, EnvSpec, Key, tree_index

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingLibrary(f"exporting needs PettingZoo ({error}): pip install 'mesax[envs]'") from None

LARGEST_SEED = 2**32 - 1


def parallel_env(family: TaskFamily, task: Task = 0) -> ExportedEnv:
    """One task of a family as a `ParallelEnv`; an int as `task` means the first training task of that experiment seed.

    `reset(options={"task": ...})` turns to another task, given in the same way.
    """
    return ExportedEnv(family, task)


def episode_keys(seed: int, time: int) -> Key:
    """The key of an exported episode's reset (time 0) and of its steps (1, 2, ...)."""
    return jax.random.fold_in(jax.random.key(seed), time)


class ExportedEnv(ParallelEnv):
    """A task of mesax. Every agent gets the team's reward; all of them end together.

    `reset(seed=s)` determines the episode, and those after it that are reset without a seed. An episode that reaches
    the horizon is truncated; one whose task is over is terminated. Agents are agent_0, agent_1, ...
    """

    render_mode = None

    def __init__(self, family: TaskFamily, task: Task = 0):
        env = family.env
        name = f"mesax_{type(family).__name__}_v0"
        self.metadata = {"name": name, "render_modes": [], "is_parallelizable": True}
        self._family = family
        self._spec: EnvSpec = env.spec
        self._play: _JaxPlay | _HostPlay = _HostPlay(env) if isinstance(env, HostEnvironment) else _JaxPlay(env)
        self._task = self._chosen(task)
        self._seeds = np.random.default_rng()
        self._time = 0
        self.possible_agents = [f"agent_{index}" for index in range(self._spec.num_agents)]
        self.agents: list[str] = []
        self.observation_spaces = {agent: self._observation_space() for agent in self.possible_agents}
        self.action_spaces = {agent: self._action_space() for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space:
        """What an agent sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """What an agent may do."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Start an episode; `options={"task": ...}` chooses the task of this one and those after it."""
        if seed is not None:
            if not 0 <= seed <= LARGEST_SEED:
                raise UsageError(f"seed must lie between 0 and {LARGEST_SEED}, not {seed}")
            self._seeds = np.random.default_rng(seed)
        if options is not None and "task" in options:
            self._task = self._chosen(options["task"])
        episode_seed = int(seed if seed is not None else self._seeds.integers(LARGEST_SEED, endpoint=True))
        obs = self._play.reset(self._task, episode_seed)
        self._time = 0
        self.agents = list(self.possible_agents)
        return self._rows(obs), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, np.ndarray], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One joint step; nothing happens once the episode is over."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        obs, reward, terminated, truncated = self._play.step(self._joint(actions))
        self._time += 1
        truncated = not terminated and (truncated or self._time >= self._spec.horizon)
        acted = self.agents
        if terminated or truncated:
            self.agents = []
        return (
            self._rows(obs),
            dict.fromkeys(acted, reward),
            dict.fromkeys(acted, terminated),
            dict.fromkeys(acted, truncated),
            {agent: {} for agent in acted},
        )

    def render(self) -> None:
        """Not here: pictures are drawn of saved runs."""
        raise UsageError("exported environments draw nothing; 'mesax render RUN_DIR' draws episodes of a run")

    def close(self) -> None:
        """End whatever runs."""
        self._play.close()

    def _chosen(self, task: Task) -> Task:
        """A task, or the first training task of an experiment's seed."""
        if isinstance(task, int):
            if task < 0:
                raise UsageError(f"the seed that a task is drawn from must not be negative, not {task}")
            return tree_index(self._family.split(task, 1, 0).train, 0)
        return task

    def _observation_space(self) -> spaces.Space:
        return spaces.Box(-np.inf, np.inf, (self._spec.obs_size,), np.float32)

    def _action_space(self) -> spaces.Space:
        space = self._spec.action_space
        if isinstance(space, Discrete):
            return spaces.Discrete(space.num_actions)
        return spaces.Box(-1.0, 1.0, (space.size,), np.float32)

    def _joint(self, actions: Mapping[str, Any]) -> np.ndarray:
        """Actions as one array, each held to its space."""
        rows = []
        for agent in self.agents:
            if agent not in actions:
                raise UsageError(f"agent {agent!r}: an action expected, found none; there are those of {list(actions)}")
            space = self.action_spaces[agent]
            discrete = isinstance(space, spaces.Discrete)
            row = np.asarray(actions[agent])
            if discrete and not np.issubdtype(row.dtype, np.integer):
                raise UsageError(f"agent {agent!r}: an integer expected as action, found {actions[agent]!r}")
            row = row.astype(space.dtype)
            if not space.contains(row):
                raise UsageError(f"agent {agent!r}: an action of {space} expected, found {actions[agent]!r}")
            rows.append(row)
        return np.stack(rows).astype(np.int32 if discrete else np.float32)

    def _rows(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        return {agent: obs[index].copy() for index, agent in enumerate(self.possible_agents)}


@dataclass(frozen=True)
class _Reset:
    env: Environment

    def __call__(self, task: Task, seed: jax.Array) -> tuple[Any, jax.Array]:
        return self.env.reset(task, jax.random.fold_in(jax.random.key(seed), 0))


@dataclass(frozen=True)
class _Step:
    env: Environment

    def __call__(self, task: Task, state: Any, action: jax.Array, seed: jax.Array, time: jax.Array) -> tuple[Any, Step]:
        return self.env.step(task, state, action, jax.random.fold_in(jax.random.key(seed), time))


class _JaxPlay:
    """An episode of a JAX environment, by compiled functions that equal environments share."""

    def __init__(self, env: Environment):
        self._reset, self._step = compiled(_Reset(env)), compiled(_Step(env))
        self._task: Task = None
        self._state: Any = None
        self._seed, self._time = np.uint32(0), 0

    def reset(self, task: Task, seed: int) -> np.ndarray:
        self._task, self._seed, self._time = task, np.uint32(seed), 0
        self._state, obs = self._reset(task, self._seed)
        return np.asarray(obs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        self._time += 1
        self._state, outcome = self._step(self._task, self._state, action, self._seed, np.uint32(self._time))
        return np.asarray(outcome.obs), float(outcome.reward), bool(outcome.terminated), False

    def close(self) -> None:
        self._state = None


class _HostPlay:
    """An episode of a host environment: a batch of one copy, opened when it is first needed."""

    def __init__(self, env: HostEnvironment):
        self._env = env
        self._batch: HostBatch | None = None

    def reset(self, task: Task, seed: int) -> np.ndarray:
        if self._batch is None:
            self._batch = self._env.batch(1, 1)
        stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], task)
        return np.asarray(self._batch.reset(stacked, np.array([seed], np.uint32))[0])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        assert self._batch is not None  # there is no agent to step before a reset
        obs, reward, terminated, truncated = self._batch.step(action[None], np.ones(1, bool))
        return np.asarray(obs[0]), float(reward[0]), bool(terminated[0]), bool(truncated[0])

    def close(self) -> None:
        if self._batch is not None:
            self._batch.close()
            self._batch = None
