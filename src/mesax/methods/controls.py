"""The two controls that show what learned explorers add.

Plain     the learner alone
Uniform   the learner with a uniformly random explorer, mixed in exactly as MESA mixes its own   (Algorithm 2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Stage
from mesax.methods.preset import Preset
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training.behavior import Mixing
from mesax.training.loop import Start


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

    def check(self, experiment: Experiment) -> None:
        """The learner must fit, and learn from others' episodes."""
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        start = Start(explorer=UniformPolicy(experiment.family.env.spec.action_space, EXPLORER))
        return (adapt_stage(experiment, self.mixing, lambda services: start),)


def plain(preset: Preset) -> Experiment:
    """The learner of a preset, alone."""
    return replace(preset.mesa, method=Plain())


def uniform(preset: Preset) -> Experiment:
    """The learner of a preset with random episodes, as many as MESA plays with its explorers."""
    return replace(preset.mesa, method=Uniform(preset.mixing))
