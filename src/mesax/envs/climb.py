"""Climb games: one-step G(n, k, u, U) and multi-stage (paper, Sec. 4 and 6.2, App. B.1.1).

At stage t the team earns 1 if exactly k_t agents play the special action u_t, 1 - delta if none does, else 0. For
k = n every joint action without u is an equilibrium that no agent alone wants to leave. One stage is the one-step game.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.envs.base import AnyEnvironment, Step, TaskInfo, TaskSplit
from mesax.envs.goals import choice_and_count
from mesax.errors import UsageError
from mesax.ranges import at_least
from mesax.store.settings import added
from mesax.types import AnyArray, Discrete, EnvSpec, Key, Transition, leading_size, on_device

MOST_CHOICES, MOST_AGENTS = 2**31 - 1, 30
"""More would not fit into the integers that count what is visited."""
MOST_OPTIMA = 256
"""Optimal joint actions of one stage that are listed at most."""
Stages: TypeAlias = tuple[tuple[int, int], ...]
"""A task on the host: (k, u) of every stage."""


class ClimbTask(eqx.Module):
    """Which action is special at each stage, and how many agents must play it."""

    count: Int[Array, "*tasks stages"]
    special: Int[Array, "*tasks stages"]


class ClimbState(eqx.Module):
    """Current stage and the joint actions so far (one-hot, zero for the future)."""

    stage: Int[Array, ""]
    history: Float[Array, "stages agents actions"]


@dataclass(frozen=True)
class ClimbGame:
    """A climb game with any number of agents, actions and stages."""

    num_agents: int = 2
    num_actions: int = 10
    """U, actions per agent."""
    num_stages: int = 1
    """S; 1 is the one-step game."""
    delta: float = 0.5
    """The safe reward is 1 - delta."""
    see_history: bool = added(True)
    """Whether agents see the joint actions of earlier stages, in addition to the stage itself."""

    def __post_init__(self) -> None:
        """Refuse games that do not exist."""
        at_least(self, 1, "num_agents", "num_stages")
        at_least(self, 2, "num_actions")
        if self.num_agents > MOST_AGENTS or self.num_stages * self.num_actions**self.num_agents > MOST_CHOICES:
            raise UsageError(
                f"there must be at most {MOST_CHOICES} joint choices: num-stages {self.num_stages}"
                f" * num-actions {self.num_actions} ** num-agents {self.num_agents} are more"
            )
        if not 0.0 < self.delta < 1.0:
            raise UsageError(f"delta must lie strictly between 0 and 1, not {self.delta}")

    @property
    def spec(self) -> EnvSpec:
        """Observation = one-hot stage and, if seen, the joint actions of earlier stages, the same for all agents."""
        history = (self.num_stages - 1) * self.num_agents * self.num_actions * self.see_history
        return EnvSpec(self.num_agents, self.num_stages + history, Discrete(self.num_actions), self.num_stages)

    def reset(self, task: ClimbTask, key: Key) -> tuple[ClimbState, Float[Array, "agents obs"]]:
        """Stage 0, empty history."""
        del task, key
        history = jnp.zeros((self.num_stages, self.num_agents, self.num_actions))
        state = ClimbState(jnp.zeros((), jnp.int32), history)
        return state, self._observe(state)

    def step(
        self, task: ClimbTask, state: ClimbState, action: Int[Array, " agents"], key: Key
    ) -> tuple[ClimbState, Step]:
        """Pay for the stage's joint action and go to the next stage."""
        del key
        reward = self.reward(task.count[state.stage], task.special[state.stage], action)
        history = state.history.at[state.stage].set(jax.nn.one_hot(action, self.num_actions))
        state = ClimbState(state.stage + 1, history)
        return state, Step(self._observe(state), reward, state.stage >= self.num_stages)

    def reward(self, count: Int[Array, ""], special: Int[Array, ""], action: Int[Array, " agents"]) -> Float[Array, ""]:
        """R(a) of G(n, k, u, U), App. B.1.1."""
        players = jnp.sum(action == special)
        return jnp.where(players == count, 1.0, jnp.where(players == 0, 1.0 - self.delta, 0.0))

    def would_pay(self, task: ClimbTask, transition: Transition) -> Float[Array, ""]:
        """For a step of any task: the stage is observed."""
        stage = jnp.argmax(transition.obs[0, : self.num_stages])
        return self.reward(task.count[stage], task.special[stage], transition.action)

    def _observe(self, state: ClimbState) -> Float[Array, "agents obs"]:
        stage = jax.nn.one_hot(state.stage, self.num_stages)
        seen = state.history[: self.num_stages - 1].reshape(-1)
        obs = jnp.concatenate([stage, seen]) if self.see_history else stage
        return jnp.broadcast_to(obs, (self.num_agents, obs.size))


@dataclass(frozen=True)
class SpecialAction:
    """A goal: the special action of the current stage, one-hot."""

    tell_count: bool = added(False)
    """Whether agents are also told how many must play it, as a number behind."""

    def size(self, env: AnyEnvironment) -> int:
        """One number for each action."""
        return _game(env).num_actions + self.tell_count

    def __call__(
        self, env: AnyEnvironment, task: ClimbTask, obs: Float[AnyArray, "*batch agents obs"]
    ) -> Float[AnyArray, "*batch agents goal"]:
        """All zeros once the last stage is over."""
        game = _game(env)
        stage = obs[..., : game.num_stages]
        told = choice_and_count(task.special, task.count, game.num_actions, self.size(env))
        return stage @ told.astype(obs.dtype)


def _game(env: AnyEnvironment) -> ClimbGame:
    if not isinstance(env, ClimbGame):
        raise UsageError(f"a special action belongs to a climb game, not to {type(env).__name__}")
    return env


@dataclass(frozen=True)
class ClimbFamily:
    """All climb games of one size; a task is (k_t, u_t) for every stage."""

    num_agents: int = 2
    """Agents of the team."""
    num_actions: int = 10
    """U, actions per agent."""
    num_stages: int = 1
    """S; 1 is the one-step game."""
    delta: float = 0.5
    """The safe reward is 1 - delta."""
    counts: tuple[int, ...] | None = None
    """Values of k that tasks may have; None means 1 to n."""
    see_history: bool = added(True)
    """Whether agents see the joint actions of earlier stages, in addition to the stage itself."""
    published: bool = added(False)
    """Whether the first test task of a seed is the paper's own, as its authors draw it; there k is the same always."""

    def __post_init__(self) -> None:
        """Refuse families without a possible game."""
        _ = self.env  # refuses an impossible game, before its counts are listed
        counts = self.possible_counts
        if not counts or len(set(counts)) < len(counts):
            raise UsageError(f"counts must be different numbers from 1 to {self.num_agents}, not {counts}")
        for count in counts:
            if not 1 <= count <= self.num_agents:
                raise UsageError(f"k must lie between 1 and the number of agents {self.num_agents}, not {count}")
        if self.published and len(counts) > 1:
            raise UsageError(f"published tasks have one k: say which with counts, not {counts}")

    @property
    def env(self) -> ClimbGame:
        """The game all tasks share."""
        return ClimbGame(self.num_agents, self.num_actions, self.num_stages, self.delta, self.see_history)

    @property
    def possible_counts(self) -> tuple[int, ...]:
        """Values of k in this family."""
        return tuple(range(1, self.num_agents + 1)) if self.counts is None else self.counts

    @property
    def num_tasks(self) -> int:
        """Size of the task space, (|k| U)^S."""
        return int((len(self.possible_counts) * self.num_actions) ** self.num_stages)

    @property
    def optimal_return(self) -> float:
        """Reward 1 at every stage."""
        return 1.0

    @property
    def suboptimal_return(self) -> float:
        """No agent ever plays u."""
        return 1.0 - self.delta

    @property
    def optimal_threshold(self) -> float:
        """95% of the optimum."""
        return 0.95

    @property
    def high_reward(self) -> float:
        """The optimum's reward."""
        return 1.0

    @property
    def configuration_shape(self) -> tuple[int, ...]:
        """Stages, then one axis of actions per agent."""
        return (self.num_stages, *(self.num_actions,) * self.num_agents)

    @property
    def groups(self) -> tuple[str, ...]:
        """Results by k."""
        return tuple(f"k={count}" for count in self.possible_counts)

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        return {
            "num_agents": self.num_agents,
            "num_actions": self.num_actions,
            "num_stages": self.num_stages,
            "delta": self.delta,
            "return_is": "mean",
            "lowest_return": 0.0,
        }

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Disjoint tasks without replacement.

        Deviation(stratified-tasks): k cycles through its values along the draw of one-step tasks, so that a handful of
        test tasks never consists of easy ones alone; stages of longer games draw k independently, as in the paper.
        """
        first = self._published(seed)
        apart = max(num_test, len(first))
        if num_train + apart > self.num_tasks:
            raise UsageError(
                f"this family has {self.num_tasks} tasks, fewer than {num_train} for training + {apart} for testing"
            )
        tasks = dict.fromkeys(first)
        draws = self._draws(np.random.default_rng((seed, 0xC11B)))
        while len(tasks) < num_train + apart:
            tasks.setdefault(next(draws))
        others = list(tasks)[len(first) :]
        return TaskSplit(self._stacked(others[:num_train]), self._stacked([*first, *others[num_train:]][:num_test]))

    def _published(self, seed: int) -> list[Stages]:
        """The task that the paper's authors draw with this seed."""
        if not self.published:
            return []
        random = np.random.RandomState(seed)
        return [tuple((self.possible_counts[0], random.randint(self.num_actions)) for _ in range(self.num_stages))]

    def _draws(self, random: np.random.Generator) -> Iterator[Stages]:
        return self._draw_one_step(random) if self.num_stages == 1 else self._draw_multi_stage(random)

    def _draw_one_step(self, random: np.random.Generator) -> Iterator[Stages]:
        """Every task once, k in turn."""
        counts = random.permutation(self.possible_counts)
        columns = np.stack([random.permutation(self.num_actions) for _ in counts])
        for specials in columns.T:
            for count, special in zip(counts, specials, strict=True):
                yield ((int(count), int(special)),)

    def _draw_multi_stage(self, random: np.random.Generator) -> Iterator[Stages]:
        """Without end."""
        options = [(count, special) for count in self.possible_counts for special in range(self.num_actions)]
        while True:
            yield tuple(options[code] for code in random.integers(0, len(options), self.num_stages))

    def _stacked(self, tasks: list[Stages]) -> ClimbTask:
        pairs = np.array(tasks, np.int32).reshape(-1, self.num_stages, 2)
        return ClimbTask(*on_device((pairs[..., 0], pairs[..., 1])))

    def describe(self, task: ClimbTask) -> TaskInfo:
        """For example `k=2 u=7`, or one such pair per stage."""
        pairs = [(int(k), int(u)) for k, u in zip(np.asarray(task.count), np.asarray(task.special), strict=True)]
        label = " | ".join(f"k={k} u={u}" for k, u in pairs)
        group = f"k={pairs[0][0]}" if len({k for k, _ in pairs}) == 1 else None
        return TaskInfo(label, group, [[k, u] for k, u in pairs])

    def score(self, rewards: Float[AnyArray, " time"]) -> Float[Array, ""]:
        """Mean reward per stage (paper, Fig. 3: averaged over timesteps)."""
        return jnp.mean(rewards)

    def breakdown(self, task: ClimbTask, rewards: np.ndarray) -> dict[str, float]:
        """Mean reward of the stages with each k."""
        counts = np.asarray(task.count)
        return {f"k={k}": float(np.mean(rewards[counts == k])) for k in self.possible_counts if np.any(counts == k)}

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """Stage and joint action as one number."""
        stage = jnp.argmax(transition.obs[0, : self.num_stages])
        powers = self.num_actions ** jnp.arange(self.num_agents - 1, -1, -1)
        return stage * self.num_actions**self.num_agents + jnp.sum(transition.action * powers)

    def rewarding_configurations(self, tasks: ClimbTask) -> np.ndarray | None:
        """Optimal (stage, joint action) pairs of the tasks; None where a stage has too many to list them."""
        if any(self._num_optima(int(count)) > MOST_OPTIMA for count in np.unique(np.asarray(tasks.count))):
            return None
        found: set[int] = set()
        for index in range(leading_size(tasks)):
            counts, specials = np.asarray(tasks.count[index]), np.asarray(tasks.special[index])
            for stage, (count, special) in enumerate(zip(counts, specials, strict=True)):
                found.update(self._optima(stage, int(count), int(special)))
        return np.array(sorted(found), np.int64)

    def _num_optima(self, count: int) -> int:
        return math.comb(self.num_agents, count) * (self.num_actions - 1) ** (self.num_agents - count)

    def _optima(self, stage: int, count: int, special: int) -> set[int]:
        others = [action for action in range(self.num_actions) if action != special]
        codes = set()
        for players in itertools.combinations(range(self.num_agents), count):
            for rest in itertools.product(others, repeat=self.num_agents - count):
                remaining = iter(rest)
                action = [special if agent in players else next(remaining) for agent in range(self.num_agents)]
                code = int(np.polyval(action, self.num_actions))
                codes.add(stage * self.num_actions**self.num_agents + code)
        return codes
