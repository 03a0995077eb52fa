"""Scripted explorers that know the places which may pay, and go through them: the ceiling of what exploring is worth.

A tour is a setting, a function from what is known of an environment to a policy. It is told what explorers of MESA have
to find out on training tasks, but not which place pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.envs.particles import Integration, ParticlePhysics, steer
from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import EXPLORER, Policy, SameActionPolicy
from mesax.ranges import above, at_least
from mesax.store.settings import added
from mesax.types import Action, Discrete, EnvSpec, Key, Label


@runtime_checkable
class TourPlan(Protocol):
    """A frozen dataclass that says how a team goes through all places."""

    def __call__(self, spec: EnvSpec) -> Policy:
        """The team in an environment; refuses one that it does not fit."""


@dataclass(frozen=True)
class UnknownTour:
    """Placeholder of a world without a tour."""

    def __call__(self, spec: EnvSpec) -> Policy:
        """Refused."""
        raise UsageError(
            "method 'tour' goes through all places that may pay, and the suite of this environment does not say what"
            " these are: use 'uniform', which knows nothing, or a suite of your own whose Preset has a tour"
        )


@dataclass(frozen=True)
class SameActions:
    """Where all must agree on an action: everybody plays the same one, drawn at every step."""

    def __call__(self, spec: EnvSpec) -> Policy:
        """Discrete actions only."""
        if not isinstance(spec.action_space, Discrete):
            raise UsageError("a tour of joint actions needs discrete actions")
        return SameActionPolicy(spec.action_space)


class Seen(eqx.Module):
    """What agents remember who must tell from two observations how fast they are."""

    offset: Float[Array, "agents 2"]
    """From each agent to the first landmark, one step ago."""
    time: Int[Array, ""]
    """Steps of the episode so far."""

    @staticmethod
    def nothing(num_agents: int) -> Seen:
        """At the start of an episode."""
        return Seen(jnp.zeros((num_agents, 2)), jnp.zeros((), jnp.int32))

    def velocity(self, offsets: Float[Array, "agents landmarks 2"], time_step: float) -> Float[Array, "agents 2"]:
        """That of the last step; agents start at rest."""
        return jnp.where(self.time > 0, (self.offset - offsets[:, 0]) / time_step, 0.0)


@dataclass(frozen=True)
class Landmarks:
    """Where agents must meet at a point: from landmark to landmark in a random order, `together` of them on the same.

    Agents that are not among those go one landmark ahead: in the climb game everybody must be somewhere.
    """

    num_landmarks: int
    together: int
    """k: how many belong on the target."""
    num_own: int = 2
    """Where each agent's observation holds the offsets to the landmarks; its velocity comes first, unless this is 0."""
    integration: Integration = added("position-first")
    """Integration of the world's physics."""

    @property
    def physics(self) -> ParticlePhysics:
        """What agents reckon with."""
        return ParticlePhysics(integration=self.integration)

    def offsets(self, obs: Float[Array, "agents obs"]) -> Float[Array, "agents landmarks 2"]:
        """Where each agent sees the landmarks."""
        number = self.num_landmarks
        return obs[:, self.num_own : self.num_own + 2 * number].reshape(obs.shape[0], number, 2)

    def drive(self, obs: Float[Array, "agents obs"], goal: Int[Array, " agents"], seen: Seen) -> tuple[Action, Seen]:
        """Each agent's push to the landmark that is its goal."""
        offsets = self.offsets(obs)
        here = jnp.take_along_axis(offsets, goal[:, None, None], axis=1)[:, 0]
        velocity = obs[:, :2] if self.num_own else seen.velocity(offsets, self.physics.time_step)
        return jax.vmap(partial(steer, physics=self.physics))(here, velocity), Seen(offsets[:, 0], seen.time + 1)

    def __call__(self, spec: EnvSpec) -> Policy:
        """As many steps at every landmark."""
        if spec.obs_size < self.num_own + 2 * self.num_landmarks:
            raise UsageError(f"a tour of {self.num_landmarks} landmarks needs to see them: {spec.obs_size} are too few")
        return LandmarkTour(self, spec.num_agents, max(1, spec.horizon // self.num_landmarks))


class LandmarkTour(eqx.Module):
    """Memory: the order of landmarks, who is among those that meet, and what was seen."""

    plan: Landmarks = eqx.field(static=True)
    num_agents: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    """At each landmark."""

    def start(self, key: Key) -> Memory:
        """Draw an order, and a team."""
        number = self.plan.num_landmarks
        drawn = jax.random.uniform(key, (number + self.num_agents,))  # one draw compiles faster than two
        order, team = drawn[:number], drawn[number:]
        return jnp.argsort(order), jnp.argsort(jnp.argsort(team)), Seen.nothing(self.num_agents)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Drive to the present landmark."""
        del key
        order, rank, seen = memory
        ahead = jnp.where(rank < self.plan.together, 0, 1)
        goal = order[(seen.time // self.steps + ahead) % self.plan.num_landmarks]
        action, seen = self.plan.drive(obs, goal, seen)
        return action, (order, rank, seen)

    def label(self, memory: Memory) -> Label:
        """An explorer."""
        del memory
        return Label.of(EXPLORER)


@dataclass(frozen=True)
class Angles:
    """Where joints must meet at an angle: all go to a random one, hold it for a while, and go to the next."""

    most: float
    """Angles lie within +- this, in radians."""
    steps: int = 40
    """At each angle."""
    stiffness: float = 3.0
    damping: float = 0.5
    angle_at: int = 0
    speed_at: int = 2
    """Where each agent's observation holds its own angle and its speed."""

    def __post_init__(self) -> None:
        """Refuse tours that stand still."""
        above(self, 0, "most")
        at_least(self, 1, "steps")

    def push(self, obs: Float[Array, "agents obs"], target: Float[Array, "*agents"]) -> Float[Array, "agents 1"]:
        """A spring to an angle, damped."""
        push = self.stiffness * (target - obs[:, self.angle_at]) - self.damping * obs[:, self.speed_at]
        return jnp.clip(push, -1.0, 1.0)[:, None]

    def __call__(self, spec: EnvSpec) -> Policy:
        """Every action is one torque."""
        if isinstance(spec.action_space, Discrete) or spec.action_space.size != 1:
            raise UsageError("a tour of angles needs one torque as an action")
        return AngleTour(self, -(-spec.horizon // self.steps))


class AngleTour(eqx.Module):
    """Memory: the angles of this episode, and the time."""

    plan: Angles = eqx.field(static=True)
    number: int = eqx.field(static=True)
    """Angles of an episode."""

    def start(self, key: Key) -> Memory:
        """Draw all angles."""
        angles = jax.random.uniform(key, (self.number,), minval=-self.plan.most, maxval=self.plan.most)
        return angles, jnp.zeros((), jnp.int32)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Go to the present angle, or hold it."""
        del key
        angles, time = memory
        target = angles[jnp.minimum(time // self.plan.steps, self.number - 1)]
        return self.plan.push(obs, target), (angles, time + 1)

    def label(self, memory: Memory) -> Label:
        """An explorer."""
        del memory
        return Label.of(EXPLORER)
