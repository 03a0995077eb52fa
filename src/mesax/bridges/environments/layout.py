"""Between the spaces of Gymnasium and the arrays of mesax: who the agents are, what they see, what they may do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from mesax.errors import UsageError
from mesax.types import ActionSpace, Box, Discrete

TeamReward: TypeAlias = Literal["mean", "sum", "shared"]


class Broken(Exception):
    """What an environment did wrong, in words; its caller adds the task and the step."""


def gymnasium_spaces() -> Any:
    """The spaces of Gymnasium, which only this part of mesax needs."""
    try:
        return import_module("gymnasium.spaces")
    except ImportError as error:
        raise UsageError(
            f"environments of other libraries need Gymnasium ({error}): pip install 'mesax[envs]'"
        ) from None


@dataclass(frozen=True, eq=False)
class AgentLayout:
    """One agent's spaces."""

    name: Hashable
    observation: Any
    action: Any
    obs_size: int
    """Numbers in its flat observation."""
    action_size: int
    """Actions to choose from, or numbers in an action."""

    @cached_property
    def plain(self) -> bool:
        """Whether observations are arrays."""
        return isinstance(self.observation, gymnasium_spaces().Box)

    def flat(self, observation: object) -> np.ndarray:
        """An observation as numbers in a row, refused if it is not of its space."""
        if self.plain:  # by far the most common: no need to ask Gymnasium at every step
            return _checked_array(self.observation, observation, f"agent {self.name!r}").reshape(-1)
        _check_kind(self.observation, observation, f"agent {self.name!r}")
        flat: np.ndarray = gymnasium_spaces().flatten(self.observation, observation)
        return flat

    def foreign(self, action: np.ndarray | np.integer) -> object:
        """The agent's row of a joint action, as its own space has it.

        Discrete: surplus actions of an agent that has fewer than others are taken modulo. Box: [-1, 1] becomes [low,
        high], surplus numbers are dropped.
        """
        if hasattr(self.action, "n"):
            return self.action.dtype.type(int(action) % self.action_size + int(self.action.start))
        low, high = self.action.low.reshape(-1).astype(np.float64), self.action.high.reshape(-1).astype(np.float64)
        # Middle and half width, so that [-1, 1] to [-1, 1] changes no bit; halved first, so that nothing overflows.
        scaled = (low / 2 + high / 2) + (high / 2 - low / 2) * np.asarray(action, np.float64)[: self.action_size]
        space = self.action
        return np.clip(scaled.astype(space.dtype).reshape(space.shape), space.low, space.high)


@dataclass(frozen=True, eq=False)
class Layout:
    """All agents' spaces, and the sizes that hold every one of them."""

    agents: tuple[AgentLayout, ...]
    obs_size: int
    action_space: ActionSpace

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The agents in order."""
        return tuple(agent.name for agent in self.agents)

    def random_action(self, random: np.random.Generator) -> np.ndarray:
        """A uniformly random joint action."""
        number = len(self.agents)
        if isinstance(self.action_space, Discrete):
            return random.integers(0, self.action_space.num_actions, number)
        return random.uniform(-1.0, 1.0, (number, self.action_space.size)).astype(np.float32)

    def difference(self, other: Layout) -> Difference | None:
        """The first thing in which another environment's layout is not the same; None if it is."""
        if self.names != other.names:
            what = f"expected agents {list(self.names)}, found {list(other.names)}"
            return Difference(what, _same_agents(self.names, other.names))
        for mine, theirs in zip(self.agents, other.agents, strict=True):
            for what in ("observation", "action"):
                expected, found = getattr(mine, what), getattr(theirs, what)
                if expected != found:
                    difference = f"agent {mine.name!r}: expected {what} space {expected}, found {found}"
                    return Difference(difference, _same_space(what, expected, found))
        return None


class Difference(NamedTuple):
    """How one environment is not like another that shares a run with it."""

    what: str
    advice: str
    """What to do about it."""


def _same_agents(expected: Sequence[Hashable], found: Sequence[Hashable]) -> str:
    if set(expected) == set(found):
        return "list the agents of every task in the same order"
    if len(expected) == len(found):
        return "give the agents of every task the same names"
    return "give every task the agents of the largest; those that a smaller one lacks may see zeros and do nothing"


def _same_space(what: str, expected: Any, found: Any) -> str:
    if type(expected) is not type(found):
        return f"give every task the same kind of {what} space, if need be in a wrapper"
    size = gymnasium_spaces().flatdim
    if size(expected) == size(found):
        return f"give every task the very same {what} space, bounds and dtype included"
    if what == "action":
        return "give every task the action spaces of the largest, and let what a smaller one lacks do nothing"
    return "give every task the spaces of the largest, and fill up with zeros what a smaller one lacks"


def layout_of(env: Any) -> Layout:
    """The layout of a `ParallelEnv`; refuses spaces that cannot be learned on."""
    names = list(env.possible_agents)
    if not names or len(set(names)) < len(names):
        raise UsageError(f"possible_agents must be different names, at least one, not {names}")
    agents = tuple(_agent(name, env.observation_space(name), env.action_space(name)) for name in names)
    kinds = {hasattr(agent.action, "n"): agent for agent in agents}
    if len(kinds) > 1:
        raise UsageError(
            f"agent {kinds[True].name!r} has Discrete actions and agent {kinds[False].name!r} Box actions:"
            " all agents need the same kind; turn the Box into a few Discrete choices in a wrapper"
        )
    most = max(agent.action_size for agent in agents)
    if most < 1:
        raise UsageError("no agent has an action to choose: every Box of actions has no number in it")
    obs_size = max(agent.obs_size for agent in agents)
    if obs_size < 1:
        raise UsageError("no agent observes anything: give a constant observation, such as Box(0, 1, (1,))")
    return Layout(agents, obs_size, Discrete(most) if True in kinds else Box(most))


def _agent(name: Hashable, observation: Any, action: Any) -> AgentLayout:
    spaces = gymnasium_spaces()
    for what, space in (("observation", observation), ("action", action)):
        if not isinstance(space, spaces.Space):
            raise UsageError(
                f"agent {name!r}: its {what} space is a {type(space).__module__}.{type(space).__name__},"
                " not a space of Gymnasium; environments of the old gym need a wrapper, such as shimmy's"
            )
    if not observation.is_np_flattenable:
        raise UsageError(
            f"agent {name!r}: observations of {observation} have no fixed length;"
            " pad them to a Box of fixed shape in a wrapper"
        )
    if isinstance(action, spaces.Discrete):
        return AgentLayout(name, observation, action, spaces.flatdim(observation), int(action.n))
    if not isinstance(action, spaces.Box) or not np.issubdtype(action.dtype, np.floating):
        raise UsageError(
            f"agent {name!r}: actions must be Discrete, or a Box of floats, not {action};"
            " number the combinations and offer them as one Discrete in a wrapper"
        )
    if not (np.all(np.isfinite(action.low)) and np.all(np.isfinite(action.high))):
        raise UsageError(
            f"agent {name!r}: actions of {action} have no bounds; give the Box finite low and high in a wrapper"
            " (gymnasium.wrappers.RescaleAction shows how)"
        )
    return AgentLayout(name, observation, action, spaces.flatdim(observation), int(np.prod(action.shape)))


def _check_kind(space: Any, value: Any, where: str) -> None:
    """Refuse a value that is not of the space; bounds are not looked at (many environments overstep them a little)."""
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Box):
        _checked_array(space, value, where)
    elif isinstance(space, spaces.Dict):
        if not hasattr(value, "keys") or set(value) != set(space.keys()):
            found = sorted(map(str, value)) if hasattr(value, "keys") else shown(value)
            raise Broken(f"{where}: observation expected keys {sorted(map(str, space.keys()))}, found {found}")
        for key, part in space.items():
            _check_kind(part, value[key], f"{where}, part {key!r}")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise Broken(f"{where}: observation expected {len(space.spaces)} parts, found {shown(value)}")
        for index, part in enumerate(space.spaces):
            _check_kind(part, value[index], f"{where}, part {index}")
    elif not space.contains(value):
        raise Broken(f"{where}: observation expected a value of {space}, found {shown(value)}")


def _checked_array(space: Any, value: object, where: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different length
        raise Broken(f"{where}: observation expected shape {space.shape}, found {shown(value)}") from None
    if array.shape != space.shape:
        raise Broken(f"{where}: observation expected shape {space.shape}, found shape {array.shape}")
    if array.dtype != space.dtype and not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise Broken(f"{where}: observation expected dtype {space.dtype}, found dtype {array.dtype}")
    return array


def shown(value: object) -> str:
    """A value with its type, short enough for one line."""
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"
