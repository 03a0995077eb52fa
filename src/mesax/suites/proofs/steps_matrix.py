"""MAVEN's own game in every preset: eight copies, each learned from its own random numbers, in its authors' budget."""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.maven import Maven
from mesax.algorithms.mixers import Duplex, Independent, Monotonic, StateDuplex, Sum
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.envs.copies import Copies
from mesax.envs.steps_matrix import StepsMatrixGame
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Mlp
from mesax.suites.foreign import presets as any_world
from mesax.suites.tables import columns, maven, on_policy
from mesax.training.schedule import Schedule
from mesax.types import LinearSteps

GAME = StepsMatrixGame()
FAMILY = Copies(GAME, GAME.best_return, float(GAME.num_steps), optimal_threshold=12.5, high_reward=GAME.turn_reward)
COPIES = 8

# PyMARL's settings, with the long random phase that its authors gave QMIX here. The step and the branch are seen, so quick
# nets need not remember.
RELEASED = ValueDecomposition(Monotonic(hyper_hidden=0), exploration=LinearSteps(1.0, 0.01, 50_000))
QMIX = columns(paper=RELEASED, quick=replace(RELEASED, agent_net=Mlp((64,)), last_action=False))
SCHEDULE = columns(
    paper=Schedule(105_000, 1, 50, warmup_steps=1, updates_per_round=1, batch_size=32, replay_capacity=1_000),
    quick=Schedule(105_000, 4, 50, warmup_steps=1, updates_per_round=4, batch_size=32, replay_capacity=1_000),
)


def search(values: ValueDecomposition) -> Maven:
    """MAVEN explores by its z: hardly an action is random. Sixteen ways to play, as its authors had."""
    return maven(replace(values, exploration=LinearSteps(1.0, 0.01, 100)), 16)


def preset(name: str) -> Preset:
    """The game in one preset."""
    whole, qmix = any_world.preset(FAMILY, name), QMIX[name]
    mesa = whole.mesa
    if name != "smoke":
        mesa = replace(mesa, schedule=SCHEDULE[name], num_test_tasks=COPIES, lanes=COPIES)
    budget = on_policy(mesa.schedule, 32)
    learners = {
        label: NamedLearner(entry.algorithm, None if entry.algorithm.needs_replay else budget, entry.reward_model)
        for label, entry in whole.learners.items()
    }
    mixers = {"iql": Independent(), "vdn": Sum(), "qplex": Duplex(), "dmaq": StateDuplex()}
    own = {label: NamedLearner(replace(qmix, mixer=mixer)) for label, mixer in mixers.items()}
    return Preset(mesa, learners | own | {"qmix": NamedLearner(qmix), "maven": NamedLearner(search(qmix))})
