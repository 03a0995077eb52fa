"""A family of tasks whose environments come from elsewhere: a task is a seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from mesax.envs.base import AnyEnvironment, PlainFamily, TaskInfo, TaskSplit
from mesax.errors import UsageError
from mesax.store.settings import added
from mesax.types import Transition

SEEDS = 2**31
"""Seeds that tasks are drawn from, for training and for testing each."""
MOST_TASKS_PER_LAYOUT = 1_000


@runtime_checkable
class PaysAgents(Protocol):
    """An environment that makes one reward for the team out of those of its agents."""

    @property
    def team_reward(self) -> str:
        """How."""


@dataclass(frozen=True)
class ForeignFamily(PlainFamily):
    """Seeds as tasks of a `ForeignEnvironment` or a `JaxMarlEnvironment`, disjoint between training and testing."""

    env: AnyEnvironment
    """The environment all tasks live in."""
    optimal_return: float
    """Best possible sum of rewards of an episode; results are reported relative to it."""
    suboptimal_return: float = 0.0
    """Return of what learners get stuck in."""
    high_reward: float | None = None
    """The highest reward of a step; None: what stage 1 finds to be high. For logs and tables only."""
    num_tasks: int | None = None
    """If given, tasks are the seeds 0 to num-tasks - 1; None: any seed."""
    configuration_of: Callable[[Transition], Array] | None = None
    """Number of the configuration that a step visits, -1 for none, as a JAX function; for pictures and logs only."""
    rewarding: Callable[[np.ndarray], np.ndarray] | None = None
    """From task seeds to the numbers of the configurations that pay in at least one of them."""
    tasks_per_layout: int = added(1)
    """Tasks on each layout: those whose seeds, divided by this and rounded down, are the same. Learned rewards need
    several: `layout, target = divmod(seed, 6)`, say."""

    def __post_init__(self) -> None:
        """Refuse scores that results cannot be read by."""
        for name in ("optimal_return", "suboptimal_return", "high_reward"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{name.replace('_', '-')} must be a finite number, not {value}")
        if self.optimal_return == 0:
            raise UsageError("optimal-return must not be 0, for results are divided by it; shift the rewards")
        if self.suboptimal_return >= self.optimal_return:
            raise UsageError(
                f"suboptimal-return {self.suboptimal_return} must be below optimal-return {self.optimal_return}"
            )
        if self.num_tasks is not None and self.num_tasks < 1:
            raise UsageError(f"num-tasks must be at least 1, not {self.num_tasks}")
        each = self.tasks_per_layout
        if not 1 <= each <= MOST_TASKS_PER_LAYOUT:
            raise UsageError(f"tasks-per-layout must lie between 1 and {MOST_TASKS_PER_LAYOUT}, not {each}")
        if self.num_tasks is not None and self.num_tasks % each:
            raise UsageError(f"num-tasks {self.num_tasks} is no multiple of tasks-per-layout {each}")

    @property
    def optimal_threshold(self) -> float:
        """95% of the way from the suboptimal to the optimal return."""
        return self.suboptimal_return + 0.95 * (self.optimal_return - self.suboptimal_return)

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        spec = self.env.spec
        known = {"num_agents": spec.num_agents, "horizon": spec.horizon} | super().facts()
        return known | ({"team_reward": self.env.team_reward} if isinstance(self.env, PaysAgents) else {})

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Disjoint seeds to train and to test on."""
        train, test = self.seeds(seed, num_train, num_test)
        return TaskSplit(jnp.asarray(train.astype(np.uint32)), jnp.asarray(test.astype(np.uint32)))

    def seeds(self, seed: int, num_train: int, num_test: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of the lower half to train and of the upper to test on, or the two ends of a shuffled list.

        Not even and odd ones: a factory that takes `seed % n` would then train on half of its tasks, test on the other.
        """
        if self.num_tasks is None:
            train = self.draw_seeds(seed, 0, num_train)
            test = self.draw_seeds(seed, 1, num_test) + SEEDS // self.tasks_per_layout * self.tasks_per_layout
        else:
            if num_train + num_test > self.num_tasks:
                raise UsageError(
                    f"this family has {self.num_tasks} tasks, fewer than {num_train} for training"
                    f" + {num_test} for testing"
                )
            layouts = np.random.default_rng((seed, 0xF0E1)).permutation(self.num_tasks // self.tasks_per_layout)
            shuffled = self._on_layouts(layouts)
            train, test = shuffled[:num_train], shuffled[::-1][:num_test]
        return train, test

    def draw_seeds(self, seed: int, which: int, number: int) -> np.ndarray:
        """Different numbers, all tasks of a layout after another; asking for more keeps those that came before."""
        random, each = np.random.default_rng((seed, 0xF0E1, which)), self.tasks_per_layout
        drawn: dict[int, None] = {}
        while each * len(drawn) < number:
            drawn.setdefault(int(random.integers(SEEDS // each)))
        return self._on_layouts(np.array(list(drawn), np.int64))[:number]

    def _on_layouts(self, layouts: np.ndarray) -> np.ndarray:
        """The seeds of all tasks on these layouts."""
        return (self.tasks_per_layout * layouts[:, None] + np.arange(self.tasks_per_layout)).reshape(-1)

    def describe(self, task: UInt32[Array, ""]) -> TaskInfo:
        """The seed."""
        return TaskInfo(f"seed {int(task)}", None, [[int(task)]])

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """What the user's function says; -1 without one."""
        if self.configuration_of is None:
            return jnp.full((), -1, jnp.int32)
        return jnp.asarray(self.configuration_of(transition), jnp.int32)

    def rewarding_configurations(self, tasks: UInt32[Array, " tasks"]) -> np.ndarray | None:
        """What the user's function says; None without one."""
        if self.rewarding is None or self.configuration_of is None:
            return None
        return np.unique(np.asarray(self.rewarding(np.asarray(tasks)), np.int64))
