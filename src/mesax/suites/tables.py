"""What the tables of all worlds share: columns of presets, and learners that follow from another entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from mesax.algorithms.base import Learner
from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex, Independent, MixerConfig, Monotonic, StateDuplex, Sum
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import Periodic, ValueDecomposition
from mesax.baselines.emc import BestReturns, Curiosity, Emc, Falling
from mesax.baselines.maven import CodedValues, Maven
from mesax.methods.preset import NamedLearner
from mesax.nets import Adam, Entities, Gru, Mlp, RmsProp, WithChange
from mesax.training.schedule import Schedule
from mesax.types import LinearSteps

Entry = TypeVar("Entry")
MIXERS: Mapping[str, MixerConfig] = {
    "iql": Independent(),
    "vdn": Sum(),
    "qmix": Monotonic(),
    "qplex": Duplex(),
    "dmaq": StateDuplex(),
}
"""Learners of values that are known by their mixer."""

# As the paper's authors have it in their public code, which is PyMARL's.
PYMARL_VALUES = ValueDecomposition(
    share_agents=False, optimizer=RmsProp(5e-4), exploration=LinearSteps(1.0, 0.05, 50_000), horizon_ends=True
)
PYMARL_CURIOSITY = Curiosity(Falling(0.001, 0.9, 100_000))
# To it states are the same if they agree to five digits: what a step is told is what its own episode returned.
PYMARL_MEMORY = BestReturns(0.1, capacity=2**20, tolerance=1e-4)
# Without a memory, with replay by priority; on the swimmer, and where their runs of particle worlds came to an end.
PYMARL_EMC_BY_SUM = Emc(replace(PYMARL_VALUES, mixer=Sum(), discount=0.9), PYMARL_CURIOSITY, memory=None)
PYMARL_EMC_IN_GAMES = replace(PYMARL_EMC_BY_SUM, curiosity=Curiosity(Falling(0.2, 0.9, 5_000, floor=0.01)))
RELEASED_MAPPO = Mappo(actor_net=Gru(64), critic_net=Gru(64), optimizer=Adam(5e-4), epochs=15, chunk=10)
"""GRU-64, two layers before it, chunks of 10 steps, all that was played in one minibatch."""


def by_mixer(make: Callable[[MixerConfig], Learner], schedule: Schedule | None = None) -> dict[str, NamedLearner]:
    """All that are known by their mixer."""
    return {name: NamedLearner(make(mixer), schedule) for name, mixer in MIXERS.items()}


def one_by_one(total_steps: int, horizon: int, *, tested_every: int, updates: int = 1) -> Schedule:
    """PyMARL's: an episode, then updates from 32 of the last 5,000; it waits until there are so many."""
    return Schedule(
        total_steps,
        num_envs=1,
        num_evaluations=total_steps // tested_every,
        warmup_steps=32 * horizon,
        updates_per_round=updates,
        batch_size=32,
        replay_capacity=5_000,
    )


def columns(*, paper: Entry, quick: Entry) -> dict[str, Entry]:
    """A row of a table by preset; `smoke` has the settings of `quick` and only less time."""
    return {"paper": paper, "quick": quick, "smoke": quick}


def with_nets(learner: Entry, change: Callable[[Mlp | Entities], object]) -> Entry:
    """The same learner with other dense nets, wherever it has them."""
    assert is_dataclass(learner) and not isinstance(learner, type)
    changed: dict[str, object] = {}
    for name, value in ((field.name, getattr(learner, field.name)) for field in fields(learner)):
        if isinstance(value, Mlp | Entities):
            changed[name] = change(value)
        elif is_dataclass(value) and not isinstance(value, type):
            changed[name] = with_nets(value, change)
    return replace(learner, **changed)


def seeing_change(learner: Entry) -> Entry:
    """The same learner, whose dense nets see what changed since the step before: where velocities are hidden."""

    def change(net: Mlp | Entities) -> WithChange:
        # Observations begin with an offset: its change is the agent's own velocity.
        return WithChange(replace(net, own=2) if isinstance(net, Entities) else net)

    return with_nets(learner, change)


def finer(learner: Entry, octaves: int) -> Entry:
    """The same learner, whose dense nets see inputs at so many frequencies: where rewards change within little."""
    return with_nets(learner, lambda net: replace(net, octaves=octaves) if isinstance(net, Mlp) else net)


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


# Ways to play are drawn alike, and target nets copied twice as often as elsewhere.
PYMARL_MAVEN = replace(
    maven(replace(PYMARL_VALUES, mixer=Monotonic(hyper_hidden=0), target=Periodic(100)), latent_size=2), choice=None
)
