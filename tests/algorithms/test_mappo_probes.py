"""MAPPO solves the probes, in the loop that it learns in; only what needs a joint move is beyond it."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from mesax.algorithms.mappo import Mappo
from mesax.envs.base import Environment
from mesax.nets import Adam, Gru, Mlp, unroll
from mesax.training.loop import LearningLoop, Start
from mesax.training.rollout import play
from mesax.training.schedule import Budget
from mesax.types import Elapsed
from probes import (
    DISCOUNT,
    PROBES,
    ContinuousGame,
    ContinuousTask,
    TabularGame,
    poisoned,
    put,
    side_by_side,
    stacked,
    worst,
)

NUM_ENVS = 32
ROUNDS = 40
MLP = Mappo(Mlp((16,)), Mlp((32,)), optimizer=Adam(1e-2), final_rate=0.1, epochs=5, discount=DISCOUNT, norm_decay=0.99)
DISCRETE = {
    "MLP, joint values, shared actor": MLP,
    "GRU, own values, an actor each, minibatches of pieces": replace(
        MLP,
        actor_net=Gru(8, num_layers=1),
        critic_net=Gru(8, num_layers=1),
        share_actors=False,
        values_of="own",
        minibatches=2,
        chunk=2,
    ),
}


def train_all(env: Environment, algorithm: Mappo, tasks: list):
    """Per task: new episodes of the trained behavior, their values in the reward's units, the actors' outputs."""
    budget = Budget(ROUNDS * NUM_ENVS * env.spec.horizon, NUM_ENVS, num_evaluations=1)
    loop = LearningLoop(env, algorithm, budget)

    def run(task, key):
        alone = jax.tree.map(lambda leaf: leaf[None], task)
        state = loop.init(Start(), (), key)
        state, _ = loop.advance(alone, None, state, key, budget.rounds(env.spec.horizon))
        learner = state.learner
        episodes = poisoned(play(env, alone, algorithm.behavior(env.spec, learner, Elapsed.end()), key, NUM_ENVS))
        _, (values, *_) = algorithm.heads(learner.values.net, episodes.obs)
        outputs = jax.vmap(lambda obs: unroll(learner.actors.net.team, obs))(episodes.obs[:, :-1])
        return episodes, learner.norm.denormalize(values), outputs

    return side_by_side(run, stacked(tasks))


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str):
    algorithm = DISCRETE[name]
    remembers = isinstance(algorithm.actor_net, Gru)
    probes = {title: probe for title, probe in PROBES.items() if remembers or not probe.needs_memory}
    results = train_all(TabularGame(), algorithm, [probe.task for probe in probes.values()])
    pairs = zip(probes.items(), results, strict=True)
    report = {title: worst(probe.task, *result, rated="state") for (title, probe), result in pairs}
    assert {title for title, (_, regret) in report.items() if regret < 0.01} == {
        title for title, probe in probes.items() if not probe.trap
    }
    wrong = {title: error for title, (error, _) in report.items() if error > 0.05 + probes[title].trap}
    assert wrong == {}


def test_continuous():
    targets = np.array([[[[0.6], [-0.3]], [[-0.5], [0.2]]], [[[0.0], [0.8]], [[0.3], [0.3]]]], np.float32)
    tasks = [ContinuousTask(target) for target in put(targets)]
    results = train_all(ContinuousGame(), replace(MLP, share_actors=False), tasks)
    for target, (_, values, outputs) in zip(targets, results, strict=True):
        regret = np.square(np.tanh(outputs) - target).sum(axis=(2, 3))
        assert regret.max() < 0.02
        # Less than the best return: the actors still sample.
        np.testing.assert_allclose(values[:, :2, 0].mean(axis=0), [1.0 + DISCOUNT, 1.0], atol=0.15)
