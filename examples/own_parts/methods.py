"""A method: some episodes are played by a team in which all agents play one and the same random action.

No product of independent policies can do that. It is a ceiling for climb games in which all must agree.
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp

from mesax import Discrete, Experiment, Label, Mixing, Stage, Start
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.policy import EXPLORER


class SameAction(eqx.Module):
    """The team."""

    action_space: Discrete = eqx.field(static=True)

    def start(self, key):
        """Nothing to remember."""
        return ()

    def act(self, memory, obs, key):
        """One action for all."""
        return jnp.repeat(self.action_space.sample(key, (1,)), obs.shape[0]), memory

    def label(self, memory):
        """Somebody else than the learner."""
        return Label.of(EXPLORER)


@dataclass(frozen=True)
class Together:
    """The learner of the test tasks, and that team."""

    mixing: Mixing = Mixing()

    def check(self, experiment: Experiment) -> None:
        """Refuse learners that cannot learn from others' episodes."""
        check_adapt(experiment, self.mixing)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """One job for each group of test tasks."""
        start = Start(explorer=SameAction(experiment.family.env.spec.action_space))
        return (adapt_stage(experiment, self.mixing, lambda services, tasks: start),)
