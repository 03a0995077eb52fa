"""Small environments of other libraries' kinds, and ways in which one can be broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("tall", "small")


class Line(ParallelEnv):
    """Two unlike agents on a line: tall sees two numbers and has four actions, small sees one and has two.

    `leave` says after how many steps an agent leaves and how; everything ends by truncation after six steps.
    """

    metadata: ClassVar = {"name": "line_v0"}

    def __init__(self, task: int, leave: dict[str, tuple[int, str]] | None = None, length: int = 6):
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.task, self.leave, self.length = task, leave or {}, length
        self.observation_spaces = {"tall": spaces.Box(-9, 9, (2,)), "small": spaces.Discrete(5)}
        self.action_spaces = {"tall": spaces.Discrete(4), "small": spaces.Discrete(2, start=1)}
        self.received: list[dict[str, Any]] = []
        self.closed = False

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.received = list(self.possible_agents), 0, []
        self.random = np.random.default_rng(seed)
        self.place = float(self.random.uniform(-1, 1))
        return {agent: self.see(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def see(self, agent):
        return np.array([self.place, self.time], np.float32) if agent == "tall" else np.int64(self.time % 5)

    def step(self, actions):
        self.received.append(dict(actions))
        self.time += 1
        self.place += float(self.random.normal()) * 0.1 + 0.1 * float(actions.get("tall", 0))
        acted = self.agents
        how = {agent: self.ends(agent) for agent in acted}
        self.agents = [agent for agent in acted if how[agent] is None]
        return (
            {agent: self.see(agent) for agent in acted},
            {agent: float(self.task + index) for index, agent in enumerate(AGENTS) if agent in acted},
            {agent: how[agent] == "terminated" for agent in acted},
            {agent: how[agent] == "truncated" for agent in acted},
            {agent: {} for agent in acted},
        )

    def ends(self, agent):
        step, how = self.leave.get(agent, (self.length, "truncated"))
        return how if self.time >= step else None

    def close(self):
        self.closed = True


def line(seed: int) -> Line:
    """A line for a task's seed."""
    return Line(seed)


class Pair(gymnasium.Env):
    """Two agents in one Gymnasium environment; spaces are a Tuple, or a Dict with names."""

    def __init__(self, names: tuple[str, ...] | None = None, reward: str = "team", flags: str = "team"):
        parts = [spaces.Dict(here=spaces.Box(-5, 5, (2,)), seen=spaces.MultiBinary(2)), spaces.Discrete(3)]
        moves = [spaces.Box(-2, 6, (1,)), spaces.Box(np.array([0, 0, 0], np.float32), np.array([1, 2, 4], np.float32))]
        self.names, self.reward, self.flags = names, reward, flags
        self.observation_space = self.joined(parts, spaces.Tuple, spaces.Dict)
        self.action_space = self.joined(moves, spaces.Tuple, spaces.Dict)
        self.received: list[Any] = []

    def joined(self, values, tuple_of=tuple, dict_of=dict):
        return tuple_of(values) if self.names is None else dict_of(dict(zip(self.names, values, strict=True)))

    def see(self):
        return self.joined([{"here": self.here, "seen": np.array([1, 0], np.int8)}, self.time % 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.received = 0, []
        self.here = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.see(), {}

    def step(self, action):
        self.received.append(action)
        self.time += 1
        reward = 3.0 if self.reward == "team" else self.joined([1.0, 4.0])
        over = self.time >= 3
        terminated = over if self.flags == "team" else self.joined([self.time >= 2, over])
        truncated = False if self.flags == "team" else self.joined([False, False])
        return self.see(), reward, terminated, truncated, {}


@dataclass
class Spoiled:
    """A line that does one thing wrong from its step `when` on; `how` changes what it returns."""

    how: Any
    when: int = 2
    inner: Line = field(default_factory=lambda: Line(0))

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def reset(self, seed=None, options=None):
        return self.inner.reset(seed) if self.when else self.how(self.inner, self.inner.reset(seed))

    def step(self, actions):
        answer = self.inner.step(actions)
        return answer if self.inner.time < self.when else self.how(self.inner, answer)
