"""The reversed gridworld in every preset: EMC as its authors ran it on small games, all others under its budget.

EMC's configuration for small games has VDN as its control learner, a discount of .9, no memory, and a replay by
priority. Learners of values have feed-forward nets here: where an agent is, it sees.
"""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.mixers import Sum
from mesax.algorithms.value_decomposition import Periodic, ValueDecomposition
from mesax.baselines.emc import Curiosity, Emc, Falling
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Mlp
from mesax.suites.tables import columns
from mesax.training.schedule import Prioritized, Schedule
from paper.envs.copies import Copies
from paper.envs.reversed_grid import ReversedGrid
from paper.games.presets import proof, with_every_mixer

GAME = ReversedGrid()
FAMILY = Copies(
    GAME, optimal_return=GAME.prize, suboptimal_return=0.0, optimal_threshold=GAME.prize / 2, high_reward=GAME.prize
)
RELEASED = ValueDecomposition(discount=0.9)
VALUES = columns(
    paper=RELEASED,
    # 100 updates are 200 episodes here, as in the release.
    quick=replace(RELEASED, agent_net=Mlp((64, 64)), optimizer=Adam(1e-3), target=Periodic(100)),
)
CURIOSITY = Curiosity(Falling(0.2, 0.9, 5_000, floor=0.01))
SCHEDULE = columns(
    paper=Schedule(505_000, 1, 50, warmup_steps=960, updates_per_round=1, batch_size=32, replay_capacity=5_000),
    quick=Schedule(505_000, 32, 50, warmup_steps=960, updates_per_round=16, batch_size=8, replay_capacity=5_000),
)


def preset(name: str) -> Preset:
    """The game in one preset."""
    values = VALUES[name]
    game = proof(FAMILY, name, SCHEDULE[name], with_every_mixer(values))
    emc = Emc(replace(values, mixer=Sum()), CURIOSITY, memory=None)
    assert isinstance(game.mesa.schedule, Schedule)
    by_priority = Prioritized(**vars(game.mesa.schedule))
    # Nothing is random but the learners: one episode says all of a greedy policy.
    mesa = replace(game.mesa, eval_episodes=1)
    return Preset(mesa, {**game.learners, "emc": NamedLearner(emc, by_priority)})
