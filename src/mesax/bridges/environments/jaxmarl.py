"""JaxMARL's environments as pure JAX environments of mesax; nothing of JaxMARL is imported, only its interface used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal as OneOf
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Float, Int, PyTree, UInt32

from mesax.bridges.environments.limits import LIMITS, own_limit
from mesax.envs.base import Step
from mesax.errors import UsageError
from mesax.runtime import staying
from mesax.types import Action, ActionSpace, Box, Discrete, EnvSpec, Key

NEEDED = ("agents", "reset", "step_env", "action_space")
OTHER_SEEDS = (1, 2**31 + 1)
FOR_ALL = (
    "one environment serves all tasks, which are seeds of its reset: draw what differs between tasks from the key of"
    " reset, or give start"
)
ADDRESS = re.compile(r"0x[0-9a-f]+")
"""Of functions within a program."""


class MultiAgentEnvironment(Protocol):
    """What is used of JaxMARL's `MultiAgentEnv`."""

    agents: list[str]

    def reset(self, key: Key) -> tuple[Mapping[str, PyTree], PyTree]:
        """First observations by agent, and the state."""

    def step_env(
        self, key: Key, state: PyTree, actions: Mapping[str, Array]
    ) -> tuple[Mapping[str, PyTree], PyTree, Mapping[str, Array], Mapping[str, Array], PyTree]:
        """(observations, state, rewards, done, info), without a reset at the end."""

    def action_space(self, agent: str) -> Space:
        """What one agent may do."""


class Space(Protocol):
    """A space of JaxMARL: it has `n` choices, or else numbers of a shape between `low` and `high`."""

    n: int
    shape: tuple[int, ...]
    low: float | np.ndarray
    high: float | np.ndarray


@lru_cache(maxsize=64)
def _made(make: Callable[[int], MultiAgentEnvironment]) -> MultiAgentEnvironment:
    return _called(make, 0)


def _called(make: Callable[[int], MultiAgentEnvironment], seed: int) -> MultiAgentEnvironment:
    try:
        with staying():
            return make(seed)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        which, why = (f" of seed {seed}", f"; {FOR_ALL}") if seed else ("", "")
        raise UsageError(f"making the environment{which}: {text}{why}") from error


@lru_cache(maxsize=64)
def _check_same_for_all(make: Callable[[int], MultiAgentEnvironment]) -> None:
    """Refuse a factory whose environments are not all the same: the tasks that it means would all be the first one."""
    first = _made(make)
    for seed in OTHER_SEEDS:
        other = _called(make, seed)
        # What is traced otherwise every time says nothing of the seed.
        if other is not first and not _alike(first, other) and _alike(first, _called(make, 0)):
            raise UsageError(f"the environment of seed {seed} is not that of seed 0; {FOR_ALL}")


def _alike(one: MultiAgentEnvironment, other: MultiAgentEnvironment) -> bool:
    """Whether two environments are the same program with the same numbers in it."""
    (text, numbers), (other_text, other_numbers) = _program(one), _program(other)
    return text == other_text and all(map(np.array_equal, numbers, other_numbers))


def _program(env: MultiAgentEnvironment) -> tuple[str, list[np.ndarray]]:
    """How an environment starts and goes on, as JAX traces it, and the arrays that it holds."""
    key = jax.eval_shape(_any_key)
    _, state = jax.eval_shape(env.reset, key)
    actions = {}
    for name in env.agents:
        space = env.action_space(name)
        is_choice = hasattr(space, "n")
        actions[name] = jax.ShapeDtypeStruct(() if is_choice else space.shape, jnp.int32 if is_choice else jnp.float32)
    programs = [jax.make_jaxpr(env.reset)(key), jax.make_jaxpr(env.step_env)(key, state, actions)]
    text = ADDRESS.sub("", "\n".join(map(str, programs)))
    return text, [np.asarray(number) for program in programs for number in _numbers_in(program)]


def _numbers_in(part: object) -> Iterator[object]:
    """All arrays that a traced program, and those within it, hold."""
    if isinstance(part, ClosedJaxpr):
        yield from part.consts
        yield from _numbers_in(part.jaxpr)
    elif isinstance(part, Jaxpr):
        for equation in part.eqns:
            yield from (value.val for value in equation.invars if isinstance(value, Literal))
            yield from _numbers_in(list(equation.params.values()))
    elif isinstance(part, list | tuple):
        for entry in part:
            yield from _numbers_in(entry)


class JaxMarlState(eqx.Module):
    """The environment's own state, and the steps so far."""

    inner: PyTree
    count: Int[Array, ""]


@dataclass(frozen=True)
class JaxMarlEnvironment:
    """A `MultiAgentEnv` of JaxMARL; a task is the seed of its reset.

    An end at the environment's own limit of steps is a cut and not a termination. Observations of agents are
    flattened and padded with zeros to the longest; surplus actions of agents that have fewer are taken modulo, and
    numbers in [-1, 1] are rescaled to each agent's Box.
    """

    make: Callable[[int], MultiAgentEnvironment]
    """From a seed to an environment as `jaxmarl.make` gives it; one serves all tasks, for a task is how it starts.

    Name a function of a module, so that equal settings are equal values.
    """
    horizon: int | None = None
    """Steps after which an episode is cut; None: the environment's own limit."""
    team_reward: OneOf["mean", "sum"] = "mean"
    """The team's reward: mean or sum of the agents' rewards."""
    start: Callable[[MultiAgentEnvironment, Array, Key], tuple[Mapping[str, PyTree], PyTree]] | None = None
    """(env, task seed, key) to (observations, state). None: the task's seed alone determines how episodes start, and
    the key only what happens after. Give one if a task shall fix a part of the start and leave the rest to chance."""

    def __post_init__(self) -> None:
        """Refuse what is no JaxMARL environment, or has no end."""
        if not callable(self.make):
            raise UsageError(
                f"make must be a function from a seed to a JaxMARL environment, not a {type(self.make).__name__}"
            )
        missing = [name for name in NEEDED if not hasattr(self.env, name)]
        if missing:
            raise UsageError(
                f"{type(self.env).__name__} is no JaxMARL environment: it has no {', '.join(missing)};"
                " make one with jaxmarl.make(name) (pip install 'mesax[jaxmarl]')"
            )
        if self.team_reward not in ("mean", "sum"):
            raise UsageError(f"team-reward must be mean or sum, not {self.team_reward!r}")
        limit = self.own_limit
        if self.horizon is None and limit is None:
            raise UsageError(f"{type(self.env).__name__} names no limit of steps ({', '.join(LIMITS)}): give horizon")
        if self.horizon is not None and limit is not None and self.horizon > limit:
            raise UsageError(f"horizon {self.horizon} is beyond the environment's own limit of {limit} steps")
        _ = self.spec  # refuses what cannot be acted in
        _check_same_for_all(self.make)

    @property
    def env(self) -> MultiAgentEnvironment:
        """The environment that all tasks share."""
        return _made(self.make)

    @property
    def entities(self) -> object:
        """What the environment declares under this name: which numbers are about what. None: nothing."""
        return getattr(self.env, "entities", None)

    @property
    def own_limit(self) -> int | None:
        """Steps after which the environment ends an episode itself."""
        return own_limit(self.env)

    @property
    def spec(self) -> EnvSpec:
        """Sizes that hold every agent."""
        limit = self.own_limit if self.horizon is None else self.horizon
        assert limit is not None
        return EnvSpec(len(self.env.agents), max(self._obs_sizes()), self._action_space(), limit)

    def reset(self, task: UInt32[Array, ""], key: Key) -> tuple[JaxMarlState, Float[Array, "agents obs"]]:
        """The start that the task's seed stands for."""
        obs, inner = self._start(task, key)
        return JaxMarlState(inner, jnp.zeros((), jnp.int32)), self._stacked(obs)

    def step(self, task: UInt32[Array, ""], state: JaxMarlState, action: Action, key: Key) -> tuple[JaxMarlState, Step]:
        """One joint step, without JaxMARL's automatic reset."""
        del task
        actions = {name: self._foreign(name, action[index]) for index, name in enumerate(self.env.agents)}
        obs, inner, rewards, done, _ = self.env.step_env(key, state.inner, actions)
        count = state.count + 1
        over = jnp.asarray(done["__all__"], bool)
        if self.own_limit is not None:
            over = over & (count < self.own_limit)
        earned = jnp.stack([jnp.asarray(rewards[name], jnp.float32).reshape(()) for name in self.env.agents])
        reward = jnp.mean(earned) if self.team_reward == "mean" else jnp.sum(earned)
        return JaxMarlState(inner, count), Step(self._stacked(obs), reward, over)

    def _start(self, task: Array, key: Key) -> tuple[Mapping[str, PyTree], PyTree]:
        if self.start is not None:
            return self.start(self.env, task, key)
        obs, state = self.env.reset(jax.random.key(task))
        return obs, state

    def _stacked(self, obs: Mapping[str, PyTree]) -> Float[Array, "agents obs"]:
        longest = max(self._obs_sizes())
        rows = [_flat(obs[name]) for name in self.env.agents]
        return jnp.stack([jnp.pad(row, (0, longest - row.size)) for row in rows])

    def _obs_sizes(self) -> list[int]:
        """Numbers in each agent's observation, found by tracing: spaces in JaxMARL do not always say."""
        shapes, _ = jax.eval_shape(self._start, jax.ShapeDtypeStruct((), jnp.uint32), jax.eval_shape(_any_key))
        return [sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes[name])) for name in self.env.agents]

    def _action_space(self) -> ActionSpace:
        sizes = [self._action_size(name) for name in self.env.agents]
        kinds = {hasattr(self.env.action_space(name), "n") for name in self.env.agents}
        if len(kinds) > 1:
            raise UsageError("some agents have Discrete actions and others a Box: all need the same kind")
        return Discrete(max(sizes)) if True in kinds else Box(max(sizes))

    def _action_size(self, name: str) -> int:
        space = self.env.action_space(name)
        if hasattr(space, "n"):
            return int(space.n)
        bounds = [np.asarray(getattr(space, bound, np.nan), np.float64) for bound in ("low", "high")]
        if not all(np.all(np.isfinite(bound)) for bound in bounds):
            raise UsageError(
                f"agent {name!r}: actions must be Discrete, or a Box with bounds, not {type(space).__name__}"
            )
        return int(np.prod(space.shape))

    def _foreign(self, name: str, action: Array) -> Array:
        """The agent's row of a joint action, as its own space has it."""
        space = self.env.action_space(name)
        if hasattr(space, "n"):
            return action % int(space.n)
        low, high = (jnp.broadcast_to(jnp.asarray(bound), space.shape) for bound in (space.low, space.high))
        own = action[: int(np.prod(space.shape))].reshape(space.shape)
        return jnp.clip((low / 2 + high / 2) + (high / 2 - low / 2) * own, low, high)


def _any_key() -> Key:
    return jax.random.key(0)


def _flat(obs: PyTree) -> Float[Array, " numbers"]:
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(obs)])
