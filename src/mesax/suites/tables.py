"""What the tables of all worlds share: columns of presets, and learners that follow from another entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from mesax.algorithms.actor_updates import JointImprovement
from mesax.algorithms.base import Learner
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.maven import CodedValues, Maven
from mesax.algorithms.mixers import Duplex, Independent, MixerConfig, Monotonic, StateDuplex, Sum
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.methods.preset import NamedLearner
from mesax.nets import Adam, Entities, Gru, Mlp, WithChange
from mesax.types import LinearOwnSteps

Entry = TypeVar("Entry")
MIXERS: Mapping[str, MixerConfig] = {
    "iql": Independent(),
    "vdn": Sum(),
    "qmix": Monotonic(),
    "qplex": Duplex(),
    "dmaq": StateDuplex(),
}
"""Learners of values that are known by their mixer."""

# As released. The steps over which the chance of a random action falls are counted from the end of the warm-up, which
# PyMARL has not: at 50K random steps they would be over before it.
PYMARL_QMIX = ValueDecomposition(optimizer=Adam(5e-4), exploration=LinearOwnSteps(1.0, 0.05, 20_000))
RELEASED_MAPPO = Mappo(actor_net=Gru(64), critic_net=Gru(64), optimizer=Adam(5e-4), epochs=15, chunk=10)
"""GRU-64, two layers before it, chunks of 10 steps, all that was played in one minibatch."""


def released_maven(latent_size: int) -> Maven:
    """Single-layer hypernetworks, and a random action with a chance that falls over 50K steps."""
    exploration = LinearOwnSteps(1.0, 0.05, 50_000)
    return maven(replace(PYMARL_QMIX, mixer=Monotonic(hyper_hidden=0), exploration=exploration), latent_size)


def by_mixer(make: Callable[[MixerConfig], Learner]) -> dict[str, NamedLearner]:
    """All that are known by their mixer."""
    return {name: NamedLearner(make(mixer)) for name, mixer in MIXERS.items()}


def columns(*, paper: Entry, quick: Entry) -> dict[str, Entry]:
    """A row of a table by preset; `smoke` has the settings of `quick` and only less time."""
    return {"paper": paper, "quick": quick, "smoke": quick}


def seeing_change(learner: Entry) -> Entry:
    """The same learner, whose dense nets see what changed since the step before: where velocities are hidden."""
    assert is_dataclass(learner) and not isinstance(learner, type)
    changed: dict[str, object] = {}
    for name, value in ((field.name, getattr(learner, field.name)) for field in fields(learner)):
        if isinstance(value, Entities):  # observations begin with an offset: its change is the agent's own velocity
            changed[name] = WithChange(replace(value, own=2))
        elif isinstance(value, Mlp):
            changed[name] = WithChange(value)
        elif is_dataclass(value) and not isinstance(value, type):
            changed[name] = seeing_change(value)
    return replace(learner, **changed)


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
