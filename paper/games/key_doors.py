"""Key and door in every preset: the game in which C-BET shows what exploration by counts is worth."""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.mappo import Mappo
from mesax.baselines.counts import BinnedEntries
from mesax.mesa.method import Mesa
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Mlp
from mesax.suites.foreign import presets as any_world
from mesax.training.schedule import Budget, on_policy
from paper.envs.key_doors import HAS_KEY, OPEN, KeyDoorFamily

FAMILY = KeyDoorFamily()
KEYS = BinnedEntries((0, 1, HAS_KEY, OPEN), width=1.0 / FAMILY.world.scale, where=True)
"""Own cell, key and door; a change is a move, a taken key or an opened door at a place. Were a change of rooms counted
too, exploration would go in and out of the doorway."""
# Who remembers nothing must wander, or leaves corners out. With nothing paid for thousands of episodes, values are
# noise, and must not move the actors.
MAPPO = Mappo(
    Mlp((64, 64)),
    Mlp((64, 64)),
    optimizer=Adam(7e-4),
    epochs=4,
    minibatches=4,
    discount=0.97,
    least_deviation=0.1,
    entropy_bonus=0.05,
)


def preset(name: str) -> Preset:
    """One preset: as for any environment, with a learner for this one."""
    given = any_world.preset(FAMILY, name)
    mesa = _longer(given.mesa) if name == "quick" else given.mesa
    budget = on_policy(mesa.schedule, mesa.schedule.num_envs)
    learner = MAPPO if name != "paper" else given.learners["mappo"].algorithm
    return replace(given, mesa=mesa, learners={**given.learners, "mappo": NamedLearner(learner, budget)}, keys=KEYS)


def _longer(mesa: Experiment) -> Experiment:
    """Twenty layouts to learn from."""
    assert isinstance(mesa.method, Mesa)
    method = replace(mesa.method, explore=Budget(600_000, num_envs=32, num_evaluations=10))
    schedule = replace(mesa.schedule, total_steps=416_000)
    return replace(
        mesa, method=method, schedule=schedule, num_train_tasks=20, num_test_tasks=5, eval_episodes=16, lanes=5
    )
