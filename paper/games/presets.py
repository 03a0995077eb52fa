"""What the presets of proof games share: any world's settings, with learners of values and a budget of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mesax.algorithms.base import Learner
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.methods.preset import NamedLearner, Preset
from mesax.suites.foreign import presets as any_world
from mesax.suites.tables import MIXERS
from mesax.training.schedule import Schedule, on_policy
from paper.envs.copies import Copies

COPIES = 8
"""Copies of a game, side by side: each has nets and draws of its own, as with a seed of its own."""
LANES = 4
"""Copies that share a program; the other half is for another core."""
ON_POLICY_ENVS = 32


def with_every_mixer(values: ValueDecomposition) -> Mapping[str, Learner]:
    """Every learner of values that is known by its mixer, QMIX as it is given."""
    return {name: replace(values, mixer=mixer) for name, mixer in MIXERS.items()} | {"qmix": values}


def proof(family: Copies, name: str, schedule: Schedule, own: Mapping[str, Learner]) -> Preset:
    """A game in one preset, under a budget that all learners share; `smoke` keeps the smallest budget there is."""
    general = any_world.preset(family, name)
    mesa = general.mesa
    if name != "smoke":
        mesa = replace(mesa, schedule=schedule, num_test_tasks=COPIES, lanes=LANES)
    budget = on_policy(mesa.schedule, ON_POLICY_ENVS)
    learners = {
        label: NamedLearner(entry.algorithm, None if entry.algorithm.needs_replay else budget, entry.reward_model)
        for label, entry in general.learners.items()
    }
    return Preset(mesa, learners | {label: NamedLearner(algorithm) for label, algorithm in own.items()})
