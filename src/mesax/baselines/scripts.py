"""Scripted teams that are told the task: they play its optimum or its safe equilibrium, and learn nothing.

A script is a setting, a function from what is known of an environment to a policy. What a team is told comes first in
every agent's observation; the tour of the same world knows where the rest is.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.baselines.tours import Angles, Landmarks, Seen
from mesax.envs.base import AnyEnvironment
from mesax.envs.climb import SpecialAction
from mesax.envs.goals import Goal, UnknownGoal
from mesax.envs.particle_climb import TargetLandmark
from mesax.envs.swimmer_climb import TargetAngle
from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import LEARNER, Policy
from mesax.ranges import above
from mesax.types import Action, EnvSpec, Key, Label

Aim: TypeAlias = Literal["optimum", "safe"]
"""What a team plays."""
FAR = 1e6
"""Farther than any landmark."""


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


class _Team(eqx.Module):
    """Remembers nothing, unless it says otherwise; its episodes are the learner's own."""

    def start(self, key: Key) -> Memory:
        """Nothing to remember."""
        del key
        return ()

    @abstractmethod
    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Play by the script."""

    def label(self, memory: Memory) -> Label:
        """In the place of a learner."""
        del memory
        return Label.of(LEARNER)


@dataclass(frozen=True)
class ToldActions:
    """In climb games: as many agents as must play the special action, or none; each other one plays the next."""

    goal: ClassVar[Goal] = SpecialAction(tell_count=True)

    def __call__(self, spec: EnvSpec, aim: Aim) -> Policy:
        """The first agents are those that play it."""
        return ActionTeam(spec.action_space.feature_size, aim)


class ActionTeam(_Team):
    """Is told the special action, one-hot, and how many must play it."""

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


class LandmarkTeam(_Team):
    """Is told the target, one-hot, and how many belong there; memory: the landmark of each agent, and what was seen."""

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


class AngleTeam(_Team):
    """Is told the target."""

    script: ToldAngles = eqx.field(static=True)
    aim: Aim = eqx.field(static=True)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """A spring to the angle, damped."""
        del key
        target = obs[:, 0]
        if self.aim == "safe":
            target = target - jnp.where(target < 0, -self.script.beside, self.script.beside)
        return self.script.joints.push(obs[:, 1:], target), memory
