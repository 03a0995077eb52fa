"""Cooperative navigation, mpe2's `simple_spread`: n agents cover n landmarks without touching each other.

A dense reward and a start that is all there is to a task: nothing is hidden, so there is nothing to explore. It is here
as a check of learners against a game that was not made for this package, with a scripted controller to measure by.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from mesax.bridges.environments.family import ForeignFamily
from mesax.envs.base import Step
from mesax.envs.particles import (
    ACTIONS,
    DIRECTIONS,
    UNIT_FORCE,
    Bodies,
    ParticlePhysics,
    length,
    offsets_to,
    offsets_to_others,
    steer,
)
from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import LEARNER
from mesax.ranges import at_least, between
from mesax.types import Action, EnvSpec, Key, Label

AGENT_SIZE = 0.15
SILENCE = 2
"""Numbers that each other agent says, always zero: mpe2 observes them all the same."""
LARGEST_TEAM = 5
"""Of those that are assigned by trying: 120 orders."""
MEASURED = {2: (-21.2, -5.8), 3: (-26.4, -7.6)}
"""Mean return of uniform play and of the controller by number of agents, in mpe2's default world."""


class SpreadState(eqx.Module):
    """Where agents and landmarks are, and how the agents move."""

    position: Float[Array, "agents 2"]
    velocity: Float[Array, "agents 2"]
    landmarks: Float[Array, "agents 2"]


@dataclass(frozen=True)
class SimpleSpread:
    """mpe2's simple_spread_v3 with discrete actions; the team's reward is the mean over its agents.

        r_i = -(1 - local_ratio) sum_l min_j |x_j - l| - local_ratio * (number of agents that touch agent i)

    A task is a number that is mixed into the key of every start: all tasks are the same game.
    """

    num_agents: int = 3
    """Agents, and as many landmarks."""
    local_ratio: float = 0.5
    """Weight of an agent's own contacts; the rest is the weight of the distances, which are the team's."""
    horizon: int = 25

    def __post_init__(self) -> None:
        """Refuse worlds that do not exist."""
        at_least(self, 1, "num_agents", "horizon")
        between(self, 0, 1, "local_ratio")

    @property
    def spec(self) -> EnvSpec:
        """Own velocity and position, offsets to all landmarks and to the other agents, what those say."""
        others = self.num_agents - 1
        return EnvSpec(self.num_agents, 4 + 2 * self.num_agents + (2 + SILENCE) * others, ACTIONS, self.horizon)

    @property
    def team_reward(self) -> Literal["mean"]:
        """How the agents' rewards become one."""
        return "mean"

    def reset(self, task: UInt32[Array, ""], key: Key) -> tuple[SpreadState, Float[Array, "agents obs"]]:
        """Agents at rest and landmarks, anywhere in [-1, 1]^2."""
        places = jax.random.uniform(jax.random.fold_in(key, task), (2, self.num_agents, 2), minval=-1.0, maxval=1.0)
        state = SpreadState(places[0], jnp.zeros((self.num_agents, 2)), places[1])
        return state, self.observe(state)

    def step(self, task: UInt32[Array, ""], state: SpreadState, action: Action, key: Key) -> tuple[SpreadState, Step]:
        """Push every agent in its direction; the reward belongs to the place reached."""
        del task, key
        bodies = Bodies.alike(self.num_agents, AGENT_SIZE)
        force = UNIT_FORCE * jnp.asarray(DIRECTIONS)[action]
        moved = ParticlePhysics().step(bodies, state.position, state.velocity, force)
        state = SpreadState(*moved, state.landmarks)
        return state, Step(self.observe(state), self.reward(state), jnp.asarray(False))

    def reward(self, state: SpreadState) -> Float[Array, ""]:
        """Mean over the agents of mpe2's rewards."""
        uncovered = jnp.sum(jnp.min(length(offsets_to(state.landmarks, state.position)), axis=0))
        touching = length(offsets_to_others(state.position)) < 2 * AGENT_SIZE
        contacts = jnp.sum(touching.astype(uncovered.dtype)) / self.num_agents
        return -(1.0 - self.local_ratio) * uncovered - self.local_ratio * contacts

    def observe(self, state: SpreadState) -> Float[Array, "agents obs"]:
        """What each agent sees, in mpe2's order."""
        number = self.num_agents
        parts = [
            state.velocity,
            state.position,
            offsets_to(state.landmarks, state.position).reshape(number, -1),
            offsets_to_others(state.position).reshape(number, 2 * (number - 1)),
            jnp.zeros((number, SILENCE * (number - 1)), state.position.dtype),
        ]
        return jnp.concatenate(parts, axis=1)


class SpreadFamily(ForeignFamily):
    """Starts as tasks."""

    def seeds(self, seed: int, num_train: int, num_test: int) -> tuple[np.ndarray, np.ndarray]:
        """Even ones to train and odd ones to test on, as when the stored results were made."""
        return 2 * self.draw_seeds(seed, 0, num_train), 2 * self.draw_seeds(seed, 1, num_test) + 1


def spread_family(num_agents: int = 3) -> SpreadFamily:
    """Starts as tasks, with the returns of uniform play and of the controller as the ends of the scale."""
    if num_agents not in MEASURED:
        sizes = ", ".join(map(str, MEASURED))
        raise UsageError(
            f"returns are known for {sizes} agents, not {num_agents}; give ForeignFamily those of your world"
        )
    uniform, scripted = MEASURED[num_agents]
    return SpreadFamily(SimpleSpread(num_agents), optimal_return=scripted, suboptimal_return=uniform, high_reward=0.0)


class AssignmentPolicy(eqx.Module):
    """A scripted team: agents take the landmarks whose total distance is least, and each drives to its own.

    They are assigned once, at the first step, by trying every permutation, so teams must be small. Contacts are not
    foreseen.
    """

    num_agents: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Refuse teams with too many orders to try."""
        if self.num_agents > LARGEST_TEAM:
            raise UsageError(
                f"a team that tries every assignment must have at most {LARGEST_TEAM} agents, not {self.num_agents}"
            )

    def start(self, key: Key) -> Memory:
        """Nobody has a landmark yet."""
        del key
        return jnp.full(self.num_agents, -1, jnp.int32)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Assign if that is still to be done, then drive."""
        del key
        offsets = obs[:, 4 : 4 + 2 * self.num_agents].reshape(self.num_agents, self.num_agents, 2)
        assigned = jnp.where(memory < 0, assign(length(offsets)), memory)
        return jax.vmap(steer)(offsets[np.arange(self.num_agents), assigned], obs[:, :2]), assigned

    def label(self, memory: Memory) -> Label:
        """Nobody else plays."""
        del memory
        return Label.of(LEARNER)


def assign(distances: Float[Array, "agents agents"]) -> Int[Array, " agents"]:
    """The landmark of each agent, so that the sum of their distances is least."""
    orders = np.array(list(itertools.permutations(range(distances.shape[0]))), np.int32)
    totals = jnp.sum(distances[np.arange(distances.shape[0]), orders], axis=1)
    return jnp.asarray(orders)[jnp.argmin(totals)]
