"""Floors and ceilings: scripted teams that are told the task, evaluated on the test tasks as a learner would be.

Optimum   plays what pays most
Safe      plays the equilibrium that no agent alone wants to leave

Nothing is learned and no step is taken for it: a run is one evaluation of each test task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import PyTree

from mesax.algorithms.base import OnPolicy
from mesax.baselines.scripts import Aim, Script, UnknownScript
from mesax.envs.base import AnyEnvironment
from mesax.envs.goals import Goal, telling
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Stage
from mesax.methods.preset import Preset
from mesax.policy import Policy
from mesax.training.schedule import Budget
from mesax.types import Elapsed, EnvSpec, Episode, Key, Metrics


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
