"""The reversed gridworld in every preset: EMC as its authors ran it on small games, all others under its budget.

EMC's configuration for small games has VDN as its control learner, a discount of .9, no memory, and a replay by
priority. Learners of values have feed-forward nets here: where an agent is, it sees.
"""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.emc import Curiosity, Emc, Falling
from mesax.algorithms.mixers import Duplex, Independent, MixerConfig, Monotonic, Sum
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.envs.copies import Copies
from mesax.envs.reversed_grid import ReversedGrid
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Gru, Mlp
from mesax.suites.foreign import presets as foreign
from mesax.suites.tables import columns
from mesax.training.schedule import Prioritized, Schedule
from mesax.types import LinearSteps

GAME = ReversedGrid()
FAMILY = Copies(
    GAME, optimal_return=GAME.prize, suboptimal_return=0.0, optimal_threshold=GAME.prize / 2, high_reward=GAME.prize
)
SCHEDULE = Schedule(
    505_000,
    num_envs=32,
    num_evaluations=50,
    warmup_steps=960,
    updates_per_round=8,
    batch_size=32,
    replay_capacity=5_000,
)
PUBLISHED = ValueDecomposition(
    agent_net=Gru(64, num_layers=1), optimizer=Adam(5e-4), discount=0.9, exploration=LinearSteps(1.0, 0.05, 50_000)
)
VALUES = columns(paper=PUBLISHED, quick=replace(PUBLISHED, agent_net=Mlp((64, 64)), optimizer=Adam(1e-3)))
CURIOSITY = Curiosity(Falling(0.2, 0.9, 5_000, floor=0.01))


def preset(name: str) -> Preset:
    """The game in one preset."""
    general = foreign.preset(FAMILY, name)
    budget = {"paper": replace(SCHEDULE, num_envs=1, updates_per_round=1), "quick": SCHEDULE}
    schedule = budget.get(name, general.mesa.schedule)
    assert isinstance(schedule, Schedule)
    by_priority = Prioritized(**vars(schedule))

    def values(mixer: MixerConfig) -> NamedLearner:
        return NamedLearner(replace(VALUES[name], mixer=mixer), schedule)

    emc = NamedLearner(Emc(replace(VALUES[name], mixer=Sum()), CURIOSITY, memory=None), by_priority)
    learners = {
        "iql": values(Independent()),
        "vdn": values(Sum()),
        "qmix": values(Monotonic()),
        "qplex": values(Duplex()),
        "emc": emc,
    }
    return replace(general, learners={**general.learners, **learners})
