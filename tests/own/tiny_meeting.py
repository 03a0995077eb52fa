"""An environment of a user's own, as small as can be: two agents on a ring of four cells.

The team is paid in a step after which both stand on the task's secret cell; `make` is the factory.
"""

import functools
import os
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from mesax import ForeignEnvironment, ForeignFamily

CELLS, LENGTH = 4, 6


class Ring(ParallelEnv):
    metadata: ClassVar = {"name": "ring_v0", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    max_cycles = LENGTH

    def __init__(self, task: int):
        self.possible_agents = ["left", "right"]
        self.agents: list[str] = []
        self.goal = task % CELLS

    def observation_space(self, agent):
        return spaces.Box(0, 1, (CELLS,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def see(self):
        rows = np.eye(CELLS, dtype=np.float32)[self.places]
        return dict(zip(self.possible_agents, rows, strict=True))

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        self.places = np.random.default_rng(seed).integers(0, CELLS, 2)
        return self.see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        self.places = (self.places + [int(actions[agent]) - 1 for agent in self.possible_agents]) % CELLS
        acted, over = self.agents, self.time >= LENGTH
        self.agents = [] if over else acted
        paid = float(np.all(self.places == self.goal))
        return (
            self.see(),
            dict.fromkeys(acted, paid),
            dict.fromkeys(acted, False),
            dict.fromkeys(acted, over),
            {agent: {} for agent in acted},
        )

    def render(self):
        picture = np.zeros((16, 4 * CELLS, 3), np.uint8)
        for index, place in enumerate(self.places):
            picture[8 * index : 8 * index + 8, 4 * place : 4 * place + 4] = 255
        return picture


def make(seed: int) -> Ring:
    """One task."""
    if os.environ.get("RING_FAILS"):
        raise RuntimeError("the ring\nis broken")
    return Ring(seed)


def leaves(seed: int) -> Ring:
    raise SystemExit(3)


def seedless() -> Ring:
    return Ring(0)


FAMILY = ForeignFamily(ForeignEnvironment(make, LENGTH, "shared"), optimal_return=5.0)
ENVIRONMENT = ForeignEnvironment(make, LENGTH)
number = 7
nameless = functools.partial(make)


@dataclass(frozen=True)
class Places:
    """A feature map of one's own: where both are."""

    def __call__(self, spec, transition):
        return jnp.reshape(transition.next_obs, -1)
