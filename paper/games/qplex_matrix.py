"""QPLEX's own game in every preset, learned from random actions, as its authors did."""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.methods.preset import Preset
from mesax.nets import Adam, Mlp
from mesax.suites.tables import columns, maven
from mesax.training.schedule import Schedule
from mesax.types import LinearSteps
from paper.envs.copies import Copies
from paper.envs.matrix import MatrixGame
from paper.games.presets import proof, with_every_mixer

FAMILY = Copies(MatrixGame(), optimal_return=8.0, suboptimal_return=0.0, optimal_threshold=7.5, high_reward=8.0)

# PyMARL's settings; actions are random to the end, so all payoffs are seen equally often.
RELEASED = ValueDecomposition(exploration=LinearSteps(1.0, 1.0, 1))
QMIX = columns(
    paper=RELEASED,
    quick=replace(RELEASED, agent_net=Mlp((64,)), last_action=False, optimizer=Adam(5e-3)),
)
SCHEDULE = columns(
    paper=Schedule(210_000, 1, 50, warmup_steps=32, updates_per_round=1, batch_size=32, replay_capacity=5_000),
    quick=Schedule(8_000, 8, 20, warmup_steps=200, updates_per_round=8, batch_size=32, replay_capacity=5_000),
)


def preset(name: str) -> Preset:
    """The game in one preset."""
    return proof(FAMILY, name, SCHEDULE[name], {**with_every_mixer(QMIX[name]), "maven": maven(QMIX[name], 16)})
