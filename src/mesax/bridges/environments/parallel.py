"""Any multi-agent environment as a PettingZoo `ParallelEnv`; which kind it is shows in what it offers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from mesax.bridges.environments.layout import Broken, gymnasium_spaces, shown
from mesax.errors import UsageError


class Parallel(Protocol):
    """What is used of PettingZoo's `ParallelEnv`; what its methods give back is checked wherever it is used."""

    possible_agents: list[Hashable]
    agents: list[Hashable]

    def observation_space(self, agent: Hashable) -> object:
        """What one agent sees."""

    def action_space(self, agent: Hashable) -> object:
        """What one agent may do."""

    def reset(self, seed: int | None = None) -> object:
        """Begin an episode."""

    def step(self, actions: dict[Hashable, object]) -> object:
        """One joint step."""

    def close(self) -> None:
        """End it."""


def as_parallel(env: Any) -> Parallel:
    """The environment with the interface of a `ParallelEnv`; refuses what is none, and says what to do."""
    name = type(env).__name__
    if is_jaxmarl(env):
        raise UsageError(f"{name} is a JaxMARL environment: use JaxMarlEnvironment in place of ForeignEnvironment")
    if hasattr(env, "agent_iter") or hasattr(env, "agent_selection"):
        return _all_at_once(env)
    missing = [method for method in ("reset", "step") if not callable(getattr(env, method, None))]
    if missing:
        raise UsageError(f"{name} is no environment: it has no {' and no '.join(missing)}")
    if hasattr(env, "possible_agents") and callable(getattr(env, "observation_space", None)):
        if not callable(getattr(env, "action_space", None)):
            raise UsageError(f"{name} has no action_space(agent), which a ParallelEnv must have")
        return env
    if hasattr(env, "num_envs"):
        raise UsageError(f"{name} is a batch of environments already; give one, mesax opens as many as it needs")
    if hasattr(env, "observation_space") and hasattr(env, "action_space"):
        return GymnasiumTeam(env)
    raise UsageError(
        f"{name} is neither a PettingZoo ParallelEnv (possible_agents, observation_space(agent), action_space(agent))"
        " nor a Gymnasium environment (observation_space and action_space, Tuple or Dict)"
    )


def is_jaxmarl(env: object) -> bool:
    """Whether an environment has the interface of JaxMARL: pure functions, stepped without its automatic reset."""
    return hasattr(env, "step_env") and hasattr(env, "action_spaces")


def _all_at_once(env: object) -> Parallel:
    """A turn-based environment (PettingZoo's AEC) in which agents in truth act at the same time."""
    name = type(env).__name__
    try:
        return import_module("pettingzoo.utils.conversions").aec_to_parallel(env)
    except ImportError as error:
        raise UsageError(
            f"{name} is of PettingZoo, which is not installed ({error}): pip install 'mesax[envs]'"
        ) from None
    except (AssertionError, KeyError) as error:
        raise UsageError(
            f"{name} is turn-based (PettingZoo's AEC) and says that it has no parallel form ({error}):"
            " agents must act at the same time"
        ) from error


def picture_of(env: Any) -> np.ndarray | None:
    """What an environment made with render_mode='rgb_array' shows; None of any other."""
    inner = env.env if isinstance(env, GymnasiumTeam) else env
    if getattr(inner, "render_mode", None) != "rgb_array":
        return None
    picture = np.asarray(inner.render())
    return picture if picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8 else None


class GymnasiumTeam:
    """A Gymnasium environment whose spaces are a Tuple or a Dict with one entry per agent, as a `ParallelEnv`.

    Rewards and flags may be single values for the whole team, or one per agent in the form of the spaces.
    """

    def __init__(self, env: Any):
        spaces = gymnasium_spaces()
        observation, action = env.observation_space, env.action_space
        name = type(env).__name__
        if isinstance(observation, spaces.Dict) and isinstance(action, spaces.Dict):
            self.possible_agents = list(observation.keys())
            if set(action.keys()) != set(self.possible_agents):
                raise UsageError(
                    f"{name}: observation_space is for agents {self.possible_agents}, action_space for"
                    f" {list(action.keys())}; they must be the same"
                )
            self._index = dict(zip(self.possible_agents, self.possible_agents, strict=True))
        elif isinstance(observation, spaces.Tuple) and isinstance(action, spaces.Tuple):
            number = len(observation.spaces)
            if len(action.spaces) != number:
                raise UsageError(
                    f"{name}: observation_space is for {number} agents, action_space for {len(action.spaces)};"
                    " they must be the same"
                )
            self.possible_agents = [f"agent_{index}" for index in range(number)]
            self._index = {agent: index for index, agent in enumerate(self.possible_agents)}
        else:
            raise UsageError(
                f"{name}: observation_space {observation} and action_space {action} must both be Tuple, or both Dict,"
                " with one entry per agent; for a single agent, make them Tuple((space,))"
            )
        self.env = env
        self.agents: list[Hashable] = []
        self.reward_is_shared = False
        """Whether the last reward was one number for the team."""

    def observation_space(self, agent: Hashable) -> object:
        """What one agent sees."""
        return self.env.observation_space[self._index[agent]]

    def action_space(self, agent: Hashable) -> Any:
        """What one agent may do."""
        return self.env.action_space[self._index[agent]]

    def reset(self, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[dict, dict]:
        """First observations by agent."""
        del options
        answer = self.env.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Broken(f"reset expected (observations, info), found {shown(answer)}")
        self.agents = list(self.possible_agents)
        return self._by_agent(answer[0], "observation"), {}

    def step(self, actions: Mapping[Hashable, object]) -> tuple[dict, dict, dict, dict, dict]:
        """One joint step; for agents that have left something neutral is passed, since these spaces have no gaps."""
        joint = {agent: actions.get(agent, self._idle(agent)) for agent in self.possible_agents}
        foreign = joint if isinstance(self.env.observation_space, Mapping) else tuple(joint.values())
        answer = self.env.step(foreign)
        if not isinstance(answer, tuple) or len(answer) != 5:
            number = f"{len(answer)} values" if isinstance(answer, tuple) else shown(answer)
            raise Broken(f"step expected 5 values (observations, reward, terminated, truncated, info), found {number}")
        observations, reward, terminated, truncated, _ = answer
        self.reward_is_shared = np.ndim(reward) == 0 and not isinstance(reward, Mapping)
        kept = [
            self._by_agent(observations, "observation"),
            self._by_agent(reward, "reward", single=True),
            self._by_agent(terminated, "terminated", single=True),
            self._by_agent(truncated, "truncated", single=True),
        ]
        acted = [{agent: values[agent] for agent in self.agents if agent in values} for values in kept]
        over = {agent for agent in self.agents if _true(acted[2].get(agent)) or _true(acted[3].get(agent))}
        self.agents = [agent for agent in self.agents if agent not in over]
        return acted[0], acted[1], acted[2], acted[3], {}

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _idle(self, agent: Hashable) -> object:
        space = self.action_space(agent)
        return space.dtype.type(space.start) if hasattr(space, "n") else np.clip(0.0, space.low, space.high)

    def _by_agent(self, values: Any, what: str, single: bool = False) -> dict[Hashable, object]:
        """Values in the form of the spaces, or one for all, by agent."""
        if isinstance(values, Mapping):
            return {agent: values[agent] for agent in self.possible_agents if agent in values}
        if single and (np.isscalar(values) or np.ndim(values) == 0):
            return dict.fromkeys(self.possible_agents, values)
        try:
            number = len(values)
        except TypeError:
            number = None
        if number != len(self.possible_agents):
            raise Broken(f"{what} expected one for each of {self.possible_agents}, found {shown(values)}")
        return dict(zip(self.possible_agents, values, strict=True))


def _true(flag: object) -> bool:
    """Whether a flag says yes; what is no flag is found where flags are checked."""
    return np.ndim(flag) == 0 and np.asarray(flag).dtype == bool and bool(flag)  # type: ignore[arg-type]
