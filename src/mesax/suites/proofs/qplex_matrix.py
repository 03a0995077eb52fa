"""QPLEX's own game in every preset: eight copies, each learned from its own random numbers, from random actions alone."""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.mixers import Duplex, Independent, Monotonic, StateDuplex, Sum
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.envs.copies import Copies
from mesax.envs.matrix import MatrixGame
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Mlp
from mesax.suites.foreign import presets as any_world
from mesax.suites.tables import columns, maven, on_policy
from mesax.training.schedule import Schedule
from mesax.types import LinearSteps

FAMILY = Copies(MatrixGame(), optimal_return=8.0, suboptimal_return=0.0, optimal_threshold=7.5, high_reward=8.0)
COPIES = 8

# PyMARL's settings; actions are random to the end, as its authors had them, so all payoffs are seen equally often.
RELEASED = ValueDecomposition(exploration=LinearSteps(1.0, 1.0, 1))
QMIX = columns(
    paper=RELEASED,
    quick=replace(RELEASED, agent_net=Mlp((64,)), last_action=False, optimizer=Adam(2e-3)),
)
SCHEDULE = columns(
    paper=Schedule(210_000, 1, 50, warmup_steps=32, updates_per_round=1, batch_size=32, replay_capacity=5_000),
    quick=Schedule(20_000, 8, 20, warmup_steps=200, updates_per_round=8, batch_size=32, replay_capacity=5_000),
)


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
    mixers = {"iql": Independent(), "vdn": Sum(), "qmix": Monotonic(), "qplex": Duplex(), "dmaq": StateDuplex()}
    own = {label: NamedLearner(replace(qmix, mixer=mixer)) for label, mixer in mixers.items()}
    return Preset(mesa, learners | own | {"maven": NamedLearner(maven(qmix, 16))})
