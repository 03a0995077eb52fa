"""MESA whose explorers hold their actions, and of whose training the fairest explorer is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mesax.envs.base import AnyEnvironment
from mesax.envs.host import repeating
from mesax.explorers.recipe import ExplorerRecipe
from mesax.mesa.method import Mesa
from mesax.methods.trained import Trained
from mesax.ranges import at_least
from mesax.training.loop import LearningLoop
from mesax.types import EnvSpec

CLEARLY_LESS = 0.9
"""An explorer with less than this share of the steps of another is less fair, and not just unlucky."""


@dataclass(frozen=True)
class SteadyMesa(Mesa):
    """Meta-learned exploration by explorers that take their time."""

    action_repeat: int = 1
    """Steps for which explorers hold each action."""
    snapshot: Literal["last", "fairest"] = "last"
    """Which explorer of a training is kept: the last, or the last one that leaves hardly more out than those before,
    judged by near steps on the worst tenth of all pairs of training task and cluster."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot explore."""
        super().__post_init__()
        at_least(self, 1, "action_repeat")

    def explore_loop(self, env: AnyEnvironment) -> LearningLoop:
        """Every action of an explorer in training is played several times."""
        return super().explore_loop(repeating(env, self.action_repeat))

    def recipe(self, spec: EnvSpec) -> ExplorerRecipe:
        """Explorers play at the pace at which they were trained."""
        return replace(super().recipe(spec), action_repeat=self.action_repeat)

    def chosen(self, best: Trained | None, new: Trained) -> Trained:
        """The last, or the fairest: each is compared with the fairest of all so far, not with the one that is kept."""
        if self.snapshot == "last" or best is None:
            return new._replace(peak=new.report.worst_steps)
        peak = max(best.peak, new.report.worst_steps)
        winner = new if new.report.worst_steps >= CLEARLY_LESS * peak else best
        return winner._replace(peak=peak)
