"""What the tables of all worlds share: columns of presets, and learners that follow from another entry."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

from mesax.algorithms.actor_updates import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.maven import CodedValues, Maven
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.training.schedule import Budget, Schedule

Entry = TypeVar("Entry")


def columns(*, paper: Entry, quick: Entry) -> dict[str, Entry]:
    """A row of a table by preset; `smoke` has the settings of `quick` and only less time."""
    return {"paper": paper, "quick": quick, "smoke": quick}


def coordinated(own: object) -> Maddpg | Normalized:
    """`own` with the coordinated update, and a joint critic: an additive one says that there is nothing to agree on."""
    if isinstance(own, Normalized):
        return replace(own, algorithm=coordinated(own.algorithm))
    assert isinstance(own, Maddpg)
    return replace(own, actor_update=JointImprovement(), actor_batch_size=8, additive_critic=False)


def maven(values: ValueDecomposition, latent_size: int, information_weight: float = 1.0) -> Maven:
    """MAVEN with all settings of a learner of values (QMIX, as a rule), under a latent of this size."""
    shared = {field.name: getattr(values, field.name) for field in fields(values)}
    return Maven(CodedValues(**shared, latent_size=latent_size, information_weight=information_weight))


def on_policy(schedule: Schedule | Budget, num_envs: int) -> Budget:
    """As many environment steps and evaluations as `schedule` has, for a learner without replay."""
    return Budget(schedule.total_steps, num_envs, schedule.num_evaluations)
