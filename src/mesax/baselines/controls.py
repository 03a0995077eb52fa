"""The controls that show what learned explorers add.

Plain     the learner alone
Uniform   the learner with a uniformly random explorer, mixed in exactly as MESA mixes its own   (Algorithm 2)
Diagonal  the same with an explorer that is told the structure of games in which all must agree: the ceiling there
Tour      the same with a scripted explorer that goes through all places which may pay
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mesax.baselines.tours import TourPlan, UnknownTour
from mesax.errors import UsageError
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Stage
from mesax.methods.preset import Preset
from mesax.policy import EXPLORER, SameActionPolicy, UniformPolicy
from mesax.training.loop import Start
from mesax.types import Discrete


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
class Uniform:
    """MESA's mixing with a uniformly random explorer: what exploring *anyhow* is worth."""

    mixing: Mixing = Mixing()
    """How often others play an episode in place of the learner."""

    def check(self, experiment: Experiment) -> None:
        """The learner must fit, and learn from others' episodes."""
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        start = Start(explorer=UniformPolicy(experiment.family.env.spec.action_space, EXPLORER))
        return (adapt_stage(experiment, self.mixing, lambda services, tasks: start),)


@dataclass(frozen=True)
class Diagonal:
    """MESA's mixing with a hand-written explorer: all agents play the same random action."""

    mixing: Mixing = Mixing()
    """How often others play an episode in place of the learner."""

    def check(self, experiment: Experiment) -> None:
        """Actions must be discrete, and the learner must fit and learn from others' episodes."""
        self.explorer(experiment)
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        start = Start(explorer=self.explorer(experiment))
        return (adapt_stage(experiment, self.mixing, lambda services, tasks: start),)

    def explorer(self, experiment: Experiment) -> SameActionPolicy:
        """Who plays."""
        space = experiment.family.env.spec.action_space
        if not isinstance(space, Discrete):
            raise UsageError(
                f"the diagonal control needs discrete actions; here an action is a point in a box (size {space.size})"
            )
        return SameActionPolicy(space)


@dataclass(frozen=True)
class Tour:
    """MESA's mixing with a hand-written explorer that knows the places, but not which one pays."""

    plan: TourPlan
    """Where it goes."""
    mixing: Mixing = Mixing()
    """How often others play an episode in place of the learner."""

    def check(self, experiment: Experiment) -> None:
        """Somebody must have written a tour of this world, and the learner must fit and learn from others' episodes."""
        self.plan(experiment.training_env.spec)
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        start = Start(explorer=self.plan(experiment.training_env.spec))
        return (adapt_stage(experiment, self.mixing, lambda services, tasks: start),)


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
    return replace(preset.mesa, method=Tour(preset.tour or UnknownTour(), preset.method.mixing))
