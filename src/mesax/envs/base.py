"""What an environment and a family of tasks must offer.

An environment is a frozen dataclass; a *task* is a pytree (which action is special, where the landmarks are), so a
batch of tasks is a stacked pytree. Agents are an array axis. Early termination is a flag in the step; the rollout
masks what follows. Partial observability is simply what `obs` leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from mesax.compiling import compiled
from mesax.errors import UsageError
from mesax.types import Action, AnyArray, EnvSpec, Episode, Key, Transition, tree_where

Task: TypeAlias = PyTree
State: TypeAlias = PyTree


class Step(eqx.Module):
    """What one joint step gives back."""

    obs: Float[Array, "agents obs"]
    """Observations after the step."""
    reward: Float[Array, ""]
    """Reward of the team."""
    terminated: Bool[Array, ""]
    """The task is over: nothing is to be had after this step (a horizon cut is not a termination)."""


@runtime_checkable
class Environment(Protocol):
    """Pure reset and step of one cooperative game."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes and action space."""

    def reset(self, task: Task, key: Key) -> tuple[State, Float[Array, "agents obs"]]:
        """First state and joint observation of an episode."""

    def step(self, task: Task, state: State, action: Action, key: Key) -> tuple[State, Step]:
        """Advance by one joint action."""


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


@runtime_checkable
class HostBatch(Protocol):
    """Running copies of an environment, each on a task of its own."""

    def reset(self, tasks: Task, seeds: np.ndarray) -> np.ndarray:
        """First observations `[copies, agents, obs]` of new episodes; tasks are stacked, seeds are uint32."""

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        """Advance the copies that are `alive`; the rows of the others mean nothing."""

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


@runtime_checkable
class ShowsItself(Protocol):
    """A host environment that can draw what happens in it."""

    def film(self, task: Task, seed: int, actions: np.ndarray) -> list[np.ndarray]:
        """Pictures `[height, width, 3]` of the episode that begins with this seed, one more than there are actions."""


AnyEnvironment: TypeAlias = Environment | HostEnvironment


@dataclass(frozen=True)
class TaskInfo:
    """A task in words, for tables and files."""

    label: str
    """Name of the task in tables."""
    group: str | None
    """Results are also reported per group; None if the task spans several (see `TaskFamily.breakdown`)."""
    target: list[list[float]]
    """What the task asks for, in numbers."""


class TaskSplit(eqx.Module):
    """Disjoint training and test tasks, stacked."""

    train: Task
    """Tasks of meta-training, stacked."""
    test: Task
    """Unseen tasks, stacked."""


def repeated_spec(spec: EnvSpec, times: int) -> EnvSpec:
    """Sizes where every action is played `times` times: a horizon of fewer decisions."""
    if spec.horizon % times:
        raise UsageError(f"a horizon of {spec.horizon} steps cannot be cut into decisions of {times}")
    return replace(spec, horizon=spec.horizon // times)


@dataclass(frozen=True)
class Shortened:
    """An environment whose episodes are cut after fewer steps; the cut is bootstrapped, as the horizon is."""

    env: Environment
    horizon: int

    @property
    def spec(self) -> EnvSpec:
        """The shorter horizon."""
        return replace(self.env.spec, horizon=self.horizon)

    def reset(self, task: Task, key: Key) -> tuple[State, Float[Array, "agents obs"]]:
        """As before."""
        return self.env.reset(task, key)

    def step(self, task: Task, state: State, action: Action, key: Key) -> tuple[State, Step]:
        """As before."""
        return self.env.step(task, state, action, key)


@dataclass(frozen=True)
class Guarded:
    """An environment whose policies earn nothing by playing what is none of its actions.

    It pays NaN for these. Numbers beyond a box are held to it, for environments need not do so.
    """

    env: Environment

    @property
    def spec(self) -> EnvSpec:
        """As before."""
        return self.env.spec

    def reset(self, task: Task, key: Key) -> tuple[State, Float[Array, "agents obs"]]:
        """As before."""
        return self.env.reset(task, key)

    def step(self, task: Task, state: State, action: Action, key: Key) -> tuple[State, Step]:
        """As before with the nearest action, but for the reward of what is none."""
        space = self.spec.action_space
        state, outcome = self.env.step(task, state, space.held(action), key)
        reward = jnp.where(space.contains(action), outcome.reward, jnp.nan)
        return state, Step(outcome.obs, reward, outcome.terminated)

    @property
    def reason(self) -> str:
        """Why a number may not be finite here."""
        return f"the environment pays such a reward, or the policy plays what is none of {self.spec.action_space}"


@dataclass(frozen=True)
class ActionRepeat:
    """An environment in which every action is played `times` times: fewer, longer decisions (see `Repeated`)."""

    env: Environment
    times: int

    @property
    def spec(self) -> EnvSpec:
        """A horizon of fewer decisions."""
        return repeated_spec(self.env.spec, self.times)

    def reset(self, task: Task, key: Key) -> tuple[State, Float[Array, "agents obs"]]:
        """As before."""
        return self.env.reset(task, key)

    def step(self, task: Task, state: State, action: Action, key: Key) -> tuple[State, Step]:
        """The same action several times; rewards add up until the task is over."""
        state, outcome = self.env.step(task, state, action, key)
        for index in range(1, self.times):
            after, later = self.env.step(task, state, action, jax.random.fold_in(key, index))
            over = outcome.terminated
            state = tree_where(over, state, after)
            outcome = tree_where(over, outcome, Step(later.obs, outcome.reward + later.reward, later.terminated))
        return state, outcome


class PlainFamily:
    """What holds of most families: returns are sums, and neither groups nor configurations are told apart.

    A family that inherits from it says what differs; `env`, its returns, `split` and `describe` remain.
    """

    @property
    def num_tasks(self) -> int | None:
        """Tasks are without end."""
        return None

    @property
    def high_reward(self) -> float | None:
        """Unknown."""
        return None

    @property
    def configuration_shape(self) -> tuple[int, ...] | None:
        """Nothing to lay out."""
        return None

    @property
    def groups(self) -> tuple[str, ...]:
        """None."""
        return ()

    def facts(self) -> dict[str, object]:
        """How returns are made of rewards."""
        return {"return_is": "sum"}

    def score(self, rewards: Float[AnyArray, " time"]) -> Float[Array, ""]:
        """Sum over the episode."""
        return jnp.sum(rewards)

    def breakdown(self, task: Task, rewards: np.ndarray) -> dict[str, float]:
        """No groups to break down by."""
        del task, rewards
        return {}

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """None is told from another."""
        del transition
        return jnp.full((), -1, jnp.int32)

    def rewarding_configurations(self, tasks: Task) -> np.ndarray | None:
        """Unknown, so that coverage is not measured."""
        del tasks
        return None


@runtime_checkable
class ClimbWorld(Protocol):
    """A world that pays 1, 1 - delta or 0 at every step."""

    @property
    def horizon(self) -> int:
        """Steps of an episode."""

    @property
    def delta(self) -> float:
        """The safe reward is 1 - delta."""


class ClimbReturns(PlainFamily):
    """How results are read where a world pays 1, 1 - delta or 0 at every step of its horizon, and returns are sums."""

    world: ClimbWorld
    lost: tuple[float, float] = (0.0, 0.0)
    """Steps of an episode that scripted teams lose on the way to the optimum and to the safe equilibrium."""

    @property
    def steps_lost(self) -> tuple[float, float]:
        """`lost` as it holds for this world."""
        return self.lost

    def check_lost(self) -> None:
        """Refuse levels that are no returns."""
        if not all(0 <= steps < self.world.horizon for steps in self.steps_lost):
            raise UsageError(f"lost must be two numbers from 0 to the horizon {self.world.horizon}, not {self.lost}")
        if not self.suboptimal_return < self.optimal_return:
            raise UsageError(f"lost {self.lost} leaves the optimum no more than the safe equilibrium: lose fewer steps")

    @property
    def optimal_return(self) -> float:
        """Reward 1 at every step but those that are lost; not quite within reach if it is not said how many."""
        return self.world.horizon - self.steps_lost[0]

    @property
    def suboptimal_return(self) -> float:
        """The safe reward at every step but those that are lost."""
        return (1.0 - self.world.delta) * (self.world.horizon - self.steps_lost[1])

    @property
    def optimal_threshold(self) -> float:
        """Halfway between the two: out of reach for the safe equilibrium, and allows for getting there."""
        return (self.optimal_return + self.suboptimal_return) / 2

    @property
    def high_reward(self) -> float:
        """The optimum's reward."""
        return 1.0

    def facts(self) -> dict[str, object]:
        """What run.json says of any such world; figures call its levels those of scripted teams if these lose steps."""
        told = {"lost": list(self.steps_lost)} if any(self.steps_lost) else {}
        return super().facts() | {"lowest_return": 0.0, **told}


@runtime_checkable
class TaskFamily(Protocol):
    """A distribution over tasks of one environment, and how its results are read."""

    @property
    def env(self) -> AnyEnvironment:
        """The environment all tasks live in."""

    @property
    def num_tasks(self) -> int | None:
        """How many different tasks exist; None if without end."""

    @property
    def optimal_return(self) -> float:
        """Best possible score of an episode."""

    @property
    def suboptimal_return(self) -> float:
        """Score of the safe equilibrium that learners get stuck in."""

    @property
    def optimal_threshold(self) -> float:
        """A score from which a task counts as solved."""

    @property
    def high_reward(self) -> float | None:
        """The highest reward of a step, for logs; None if it is unknown: then what stage 1 has found to be high."""

    @property
    def configuration_shape(self) -> tuple[int, ...] | None:
        """How configurations are laid out for pictures, stages first; None if they have no such layout."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Names under which results are also reported apart."""

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Disjoint tasks, determined by the seed; training tasks do not depend on `num_test`."""

    def describe(self, task: Task) -> TaskInfo:
        """One task in words."""

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json; `lowest_return`, where there is one, is what no mean's interval goes below."""

    def score(self, rewards: Float[Array, " time"]) -> Float[Array, ""]:
        """Score of an episode from its rewards (a mean or a sum)."""

    def breakdown(self, task: Task, rewards: np.ndarray) -> dict[str, float]:
        """Score of one episode's rewards by group."""

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """Ground truth for coverage: number of the configuration this step visits, -1 for none."""

    def rewarding_configurations(self, tasks: Task) -> np.ndarray | None:
        """Numbers of the configurations that pay the highest reward in at least one of the stacked tasks.

        None if they are unknown: then coverage is not measured.
        """


def configurations_of(family: TaskFamily, episodes: Episode) -> np.ndarray:
    """`step_configurations`, compiled."""
    return np.asarray(compiled(_Configurations(family))(episodes))


def step_configurations(family: TaskFamily, episodes: Episode) -> Int[Array, "episodes time"]:
    """What each step of stacked episodes visits, as the family counts it; -1 for none and for padding."""
    transitions = jax.vmap(lambda episode: episode.transitions)(episodes)
    return jnp.where(episodes.mask, jax.vmap(jax.vmap(family.configuration))(transitions), -1)


@dataclass(frozen=True)
class _Configurations:
    family: TaskFamily

    def __call__(self, episodes: Episode) -> Int[Array, "episodes time"]:
        return step_configurations(self.family, episodes)
