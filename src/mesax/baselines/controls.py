"""The controls that show what learned explorers add.

Plain     the learner alone
Uniform   the learner with a uniformly random explorer, mixed in exactly as MESA mixes its own   (Algorithm 2)
Diagonal  the same with an explorer that is told the structure of games in which all must agree: the ceiling there
Tour      the same with a scripted explorer that goes through all places which may pay
Optimum   no learner: a team that is told the task plays what pays most
Safe      the same, at the equilibrium that no agent alone wants to leave

Of the last two a run is one evaluation of each test task: nothing is learned, and no step is taken for it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import PyTree

from mesax.algorithms.base import OnPolicy
from mesax.baselines.scripts import Aim, Script, TourPlan, UnknownScript, UnknownTour
from mesax.envs.base import AnyEnvironment
from mesax.envs.goals import Goal, telling
from mesax.errors import UsageError
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Stage
from mesax.methods.preset import Preset
from mesax.policy import EXPLORER, Policy, SameActionPolicy, UniformPolicy
from mesax.training.loop import Start
from mesax.training.schedule import Budget
from mesax.types import Discrete, Elapsed, EnvSpec, Episode, Key, Metrics


@dataclass(frozen=True)
class Plain:
    """The learner alone."""

    def check(self, experiment: Experiment) -> None:
        """The learner must fit."""
        check_adapt(experiment)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        return (adapt_stage(experiment),)


@dataclass(frozen=True)
class _Mixed:
    """The learner, and an explorer that is mixed in exactly as MESA mixes its own (Algorithm 2)."""

    mixing: Mixing = Mixing()
    """How often others play an episode in place of the learner."""

    def check(self, experiment: Experiment) -> None:
        """There must be such an explorer, and the learner must fit and learn from others' episodes."""
        self.explorer(experiment)
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        start = Start(explorer=self.explorer(experiment))
        return (adapt_stage(experiment, self.mixing, lambda services, tasks: start),)

    @abstractmethod
    def explorer(self, experiment: Experiment) -> Policy:
        """Who plays."""


@dataclass(frozen=True)
class Uniform(_Mixed):
    """A uniformly random explorer: what exploring *anyhow* is worth."""

    def explorer(self, experiment: Experiment) -> UniformPolicy:
        """Random actions."""
        return UniformPolicy(experiment.family.env.spec.action_space, EXPLORER)


@dataclass(frozen=True)
class Diagonal(_Mixed):
    """A hand-written explorer: all agents play the same random action."""

    def explorer(self, experiment: Experiment) -> SameActionPolicy:
        """Discrete actions only."""
        space = experiment.family.env.spec.action_space
        if not isinstance(space, Discrete):
            raise UsageError(
                f"the diagonal control needs discrete actions; here an action is a point in a box (size {space.size})"
            )
        return SameActionPolicy(space)


@dataclass(frozen=True)
class Tour(_Mixed):
    """A hand-written explorer that knows the places, but not which one pays."""

    plan: TourPlan = UnknownTour()
    """Where it goes."""

    def explorer(self, experiment: Experiment) -> Policy:
        """A tour of this world, if somebody has written one."""
        return self.plan(experiment.training_env.spec)


@dataclass(frozen=True)
class Scripted(OnPolicy):
    """A team that plays by a script, in the place of a learner."""

    script: Script | None
    """None: there is no script, which the goal says."""
    aim: Aim

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Refuse a script of another world."""
        del num_envs
        self.greedy(spec, ())

    def init(self, spec: EnvSpec, key: Key) -> PyTree:
        """Nothing is learned."""
        del spec, key
        return ()

    def behavior(self, spec: EnvSpec, state: PyTree, elapsed: Elapsed) -> Policy:
        """As it is evaluated."""
        del elapsed
        return self.greedy(spec, state)

    def greedy(self, spec: EnvSpec, state: PyTree) -> Policy:
        """The team itself."""
        del state
        assert self.script is not None, "refused before anybody plays"
        return self.script(spec, self.aim)

    def update(
        self, spec: EnvSpec, state: PyTree, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[PyTree, Metrics]:
        """Nothing changes."""
        del spec, batch, elapsed, key
        return state, {}


@dataclass(frozen=True)
class _Told:
    """What both have in common."""

    goal: Goal
    """What agents are told of every task."""
    tells: ClassVar[bool] = True

    def told(self, env: AnyEnvironment) -> AnyEnvironment:
        """The goal comes first in every observation."""
        return telling(env, self.goal)

    def check(self, experiment: Experiment) -> None:
        """Somebody must have written a script of this world."""
        check_adapt(experiment)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        return (adapt_stage(experiment),)


@dataclass(frozen=True)
class Optimum(_Told):
    """The ceiling: what a team earns that knows what pays most."""


@dataclass(frozen=True)
class Safe(_Told):
    """The floor: what a team earns at the equilibrium that learners get stuck in."""


def plain(preset: Preset) -> Experiment:
    """The learner of a preset, alone."""
    return replace(_unaided(preset), method=Plain())


def uniform(preset: Preset) -> Experiment:
    """The learner of a preset with random episodes, as many as MESA plays with its explorers."""
    return replace(_unaided(preset), method=Uniform(preset.method.mixing))


def _unaided(preset: Preset) -> Experiment:
    """MESA's experiment with settings of the learner that are as good without explorers: a control must not be weak."""
    return replace(preset.mesa, algorithm=preset.alone or preset.mesa.algorithm)


def diagonal(preset: Preset) -> Experiment:
    """The learner of a preset with episodes of agents that agree, as many as MESA plays with its explorers."""
    return replace(preset.mesa, method=Diagonal(preset.method.mixing))


def tour(preset: Preset) -> Experiment:
    """The learner of a preset with episodes of a scripted tour, as many as MESA plays with its explorers."""
    return replace(preset.mesa, method=Tour(preset.method.mixing, preset.tour or UnknownTour()))


def optimum(preset: Preset) -> Experiment:
    """The scripted optimum of a preset's world."""
    return replace(_scripted(preset, "optimum"), method=Optimum(_goal(preset)))


def safe(preset: Preset) -> Experiment:
    """The scripted safe equilibrium of a preset's world."""
    return replace(_scripted(preset, "safe"), method=Safe(_goal(preset)))


def _scripted(preset: Preset, aim: Aim) -> Experiment:
    return replace(preset.mesa, algorithm=Scripted(preset.script, aim), schedule=Budget(0, 1, 1))


def _goal(preset: Preset) -> Goal:
    return UnknownScript() if preset.script is None else preset.script.goal
