"""Teams by script: tours of all places that may pay, and teams that are told the task.

A tour or a script is a setting, a function from what is known of an environment to a policy. A tour is told what
explorers of MESA have to find out on training tasks, but not which place pays: the ceiling of what exploring is worth.
A team that is told the task plays what pays most, or the equilibrium that no agent alone wants to leave: ceiling and
floor of what a learner can earn. What it is told comes first in every agent's observation.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.envs.base import AnyEnvironment
from mesax.envs.climb import SpecialAction
from mesax.envs.goals import Goal, UnknownGoal
from mesax.envs.particle_climb import TargetLandmark
from mesax.envs.particles import Integration, ParticlePhysics, steer
from mesax.envs.swimmer_climb import TargetAngle
from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import EXPLORER, LEARNER, Policy, SameActionPolicy
from mesax.ranges import above, at_least
from mesax.store.settings import added
from mesax.types import Action, Discrete, EnvSpec, Key, Label

Aim: TypeAlias = Literal["optimum", "safe"]
"""What a team plays."""
FAR = 1e6
"""Farther than any landmark."""


class ScriptedTeam(eqx.Module):
    """Remembers nothing, unless it says otherwise."""

    actor: ClassVar[int]
    """In whose place it plays (see `Label.actor`)."""

    def start(self, key: Key) -> Memory:
        """Nothing to remember."""
        del key
        return ()

    @abstractmethod
    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Play by the script."""

    def label(self, memory: Memory) -> Label:
        """An explorer, or the learner itself."""
        del memory
        return Label.of(self.actor)


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


class LandmarkTour(ScriptedTeam):
    """Memory: the order of landmarks, who is among those that meet, and what was seen."""

    actor = EXPLORER

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


class AngleTour(ScriptedTeam):
    """Memory: the angles of this episode, and the time."""

    actor = EXPLORER

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


@runtime_checkable
class Script(Protocol):
    """A frozen dataclass that says how a team plays a task that it is told."""

    @property
    def goal(self) -> Goal:
        """What it is told."""

    def __call__(self, spec: EnvSpec, aim: Aim) -> Policy:
        """The team in an environment that tells it the goal."""


@dataclass(frozen=True)
class UnknownScript(UnknownGoal):
    """Placeholder of a world without a script."""

    def size(self, env: AnyEnvironment) -> int:
        """Refused."""
        raise UsageError(
            "methods 'optimum' and 'safe' play what a task asks for, and the suite of"
            f" {type(env).__name__} does not say how: use a suite of your own whose Preset has a script"
        )


@dataclass(frozen=True)
class ToldActions:
    """In climb games: as many agents as must play the special action, or none; each other one plays the next."""

    goal: ClassVar[Goal] = SpecialAction(tell_count=True)

    def __call__(self, spec: EnvSpec, aim: Aim) -> Policy:
        """The first agents are those that play it."""
        return ActionTeam(spec.action_space.feature_size, aim)


class ActionTeam(ScriptedTeam):
    """Is told the special action, one-hot, and how many must play it."""

    actor = LEARNER

    num_actions: int = eqx.field(static=True)
    aim: Aim = eqx.field(static=True)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """What the present stage asks for."""
        del key
        special, count = jnp.argmax(obs[:, : self.num_actions], axis=-1), obs[:, self.num_actions]
        play = (jnp.arange(obs.shape[0]) < count) & (self.aim == "optimum")
        return jnp.where(play, special, (special + 1) % self.num_actions), memory


@dataclass(frozen=True)
class ToldLandmarks:
    """In particle worlds: as many agents as must go to the target, or none; each other one to its nearest landmark."""

    sight: Landmarks
    """Where they see landmarks, and how they drive."""
    goal: ClassVar[Goal] = TargetLandmark(tell_count=True)

    def __call__(self, spec: EnvSpec, aim: Aim) -> Policy:
        """Who goes where is decided at the start of an episode."""
        number, others = self.sight.num_landmarks, spec.num_agents - 1
        if spec.obs_size != number + 1 + self.sight.num_own + 2 * number + 2 * others:
            raise UsageError(f"a script among {number} landmarks does not fit observations of {spec.obs_size} numbers")
        return LandmarkTeam(self.sight, spec.num_agents, aim)


class LandmarkTeam(ScriptedTeam):
    """Is told the target, one-hot, and how many belong there; memory: the landmark of each agent, and what was seen."""

    actor = LEARNER

    sight: Landmarks = eqx.field(static=True)
    num_agents: int = eqx.field(static=True)
    aim: Aim = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Before the first observation there is nowhere to go."""
        del key
        return jnp.zeros(self.num_agents, jnp.int32), Seen.nothing(self.num_agents)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Drive to one's landmark, and stay."""
        del key
        place, seen = memory
        target, count, obs = jnp.split(obs, [self.sight.num_landmarks, self.sight.num_landmarks + 1], axis=1)
        place = jnp.where(seen.time > 0, place, self.places(target, count[:, 0], self.sight.offsets(obs)))
        action, seen = self.sight.drive(obs, place, seen)
        return action, (place, seen)

    def places(
        self,
        target: Float[Array, "agents landmarks"],
        count: Float[Array, " agents"],
        offsets: Float[Array, "agents landmarks 2"],
    ) -> Int[Array, " agents"]:
        """The landmark of each agent: those go to the target whom it takes the least out of their way."""
        distance = jnp.sum(jnp.abs(offsets), axis=-1)  # a push is along one axis
        elsewhere = jnp.where(target > 0, FAR, distance)
        detour = jnp.sum(target * distance, axis=1) - jnp.min(elsewhere, axis=1)
        chosen = (jnp.argsort(jnp.argsort(detour)) < count) & (self.aim == "optimum")
        return jnp.where(chosen, jnp.argmax(target, axis=1), jnp.argmin(elsewhere, axis=1))


@dataclass(frozen=True)
class ToldAngles:
    """On the swimmer: both joints at the target, or both well beside it, on the side of a straight body."""

    joints: Angles
    """Where they see their angles, and how they hold one."""
    beside: float = 0.35
    """From the target to the safe angle, in radians."""
    goal: ClassVar[Goal] = TargetAngle()

    def __post_init__(self) -> None:
        """Refuse what would not be beside it."""
        above(self, 0, "beside")

    def __call__(self, spec: EnvSpec, aim: Aim) -> Policy:
        """Every action is one torque."""
        self.joints(spec)  # refuses others
        return AngleTeam(self, aim)


class AngleTeam(ScriptedTeam):
    """Is told the target."""

    actor = LEARNER

    script: ToldAngles = eqx.field(static=True)
    aim: Aim = eqx.field(static=True)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """A spring to the angle, damped."""
        del key
        target = obs[:, 0]
        if self.aim == "safe":
            target = target - jnp.where(target < 0, -self.script.beside, self.script.beside)
        return self.script.joints.push(obs[:, 1:], target), memory
