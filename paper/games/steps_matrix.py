"""MAVEN's own game in every preset, in its authors' budget."""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.mixers import Monotonic
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.baselines.maven import Reinforce
from mesax.methods.preset import Preset
from mesax.nets import Adam, Mlp
from mesax.suites.tables import columns, maven
from mesax.training.schedule import Schedule
from mesax.types import LinearSteps
from paper.envs.copies import Copies
from paper.envs.steps_matrix import StepsMatrixGame
from paper.games.presets import proof, with_every_mixer

GAME = StepsMatrixGame()
FAMILY = Copies(GAME, GAME.best_return, float(GAME.num_steps), optimal_threshold=12.5, high_reward=GAME.turn_reward)

# PyMARL's settings, with the long random phase that MAVEN's authors gave QMIX here. The step and the branch are seen:
# quick nets need not remember.
RELEASED = ValueDecomposition(Monotonic(hyper_hidden=0), exploration=LinearSteps(1.0, 0.01, 50_000))
QMIX = columns(paper=RELEASED, quick=replace(RELEASED, agent_net=Mlp((64,)), last_action=False))
# Sixteen ways to play, as MAVEN's authors had. Random actions fall over 10,000 steps, not over their 100: while both
# branches are worth the same to all, some z take one and some the other; else all take the first that is found. The
# choice among z is slow, and so indifferent to small gains that none is given up before all have been learned.
EXPLORATION = LinearSteps(1.0, 0.05, 10_000)
CHOICE = Reinforce(optimizer=Adam(1e-4), updates=1, entropy_bonus=0.3, baseline=True)
MAVEN = {
    name: replace(maven(replace(values, exploration=EXPLORATION), 16), choice=CHOICE) for name, values in QMIX.items()
}
SCHEDULE = columns(
    paper=Schedule(105_000, 1, 21, warmup_steps=1, updates_per_round=1, batch_size=32, replay_capacity=1_000),
    quick=Schedule(105_000, 4, 21, warmup_steps=1, updates_per_round=4, batch_size=32, replay_capacity=1_000),
)


def preset(name: str) -> Preset:
    """The game in one preset."""
    return proof(FAMILY, name, SCHEDULE[name], {**with_every_mixer(QMIX[name]), "maven": MAVEN[name]})
