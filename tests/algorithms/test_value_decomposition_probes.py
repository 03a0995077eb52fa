"""Every mixer solves the probes that it can represent, with values to about .1; else it ends in the known trap."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from mesax.algorithms.binned import Binned
from mesax.algorithms.mixers import Duplex, Independent, Monotonic, Sum
from mesax.algorithms.value_decomposition import Periodic, Soft, ValueDecomposition, each, steps_of
from mesax.nets import Adam, Gru, Mlp
from probes import (
    DISCOUNT,
    PROBES,
    ContinuousGame,
    ContinuousTask,
    TabularGame,
    is_additive,
    learn_offline,
    random_episodes,
    side_by_side,
    worst,
)

NUM_EPISODES, NUM_UPDATES = 128, 500
IQL = ValueDecomposition(
    Independent(),
    Mlp((16,)),
    last_action=False,
    optimizer=Adam(1e-2),
    discount=DISCOUNT,
    target=Soft(0.1),
)
VARIANTS = {
    "IQL": IQL,
    "VDN, own nets, copied targets": replace(IQL, mixer=Sum(), share_agents=False, target=Periodic(10), double_q=False),
    "QPLEX": replace(IQL, mixer=Duplex(heads=2, attention_size=4, query_hidden=8, value_hidden=8)),
    "QMIX, GRU, last action": replace(
        IQL, mixer=Monotonic(8, hyper_hidden=0), agent_net=Gru(16, num_layers=1), last_action=True
    ),
}


def train_all(env, tasks, judge, algorithm):
    """`judge(learner, episodes)` after learning from uniformly random episodes; all tasks side by side."""

    def run(task, key):
        episodes = random_episodes(env, task, key, NUM_EPISODES)
        return episodes, *judge(learn_offline(algorithm, env.spec, episodes, key, NUM_UPDATES), episodes)

    return side_by_side(run, tasks)


@pytest.mark.parametrize("name", VARIANTS)
def test_discrete(name: str):
    algorithm, env = VARIANTS[name], TabularGame()
    remembers = isinstance(algorithm.agent_net, Gru)
    probes = {title: probe for title, probe in PROBES.items() if remembers or not probe.needs_memory}
    space = env.spec.action_space

    def judge(learner, episodes):
        values = learner.values.net
        q = algorithm.agent_values(space, values.agents, episodes)[:, :-1]
        return each(values.mixer, steps_of(space, q, episodes.obs[:, :-1], episodes.action)), q

    results = train_all(env, [probe.task for probe in probes.values()], judge, algorithm)
    report = {t: worst(p.task, *r) for (t, p), r in zip(probes.items(), results, strict=True)}
    # QPLEX can represent the climb, but its update may end anywhere: docs/methods/value-decomposition.md.
    trapped = {title for title, probe in probes.items() if probe.trap}
    judged = {title: found for title, found in report.items() if title not in trapped}
    assert {title: regret for title, (_, regret) in judged.items() if regret > 0.01} == {}
    if not isinstance(algorithm.mixer, Duplex):
        np.testing.assert_allclose(
            [report[title][1] for title in trapped], [probes[t].trap for t in trapped], atol=1e-4
        )
    within = {Independent: set(), Sum: {t for t in judged if is_additive(probes[t].task)}}.get(type(algorithm.mixer))
    wrong = {title for title, (error, _) in judged.items() if error > 0.1}
    assert not wrong & (set(judged) if within is None else within)


def test_binned():
    """Five points each, -1 to 1 by halves: the best one is the nearest to the target."""
    targets = np.array([[[[0.5], [-0.9]], [[-0.5], [0.1]]], [[[0.0], [0.9]], [[0.4], [0.5]]]], np.float32)
    nearest = np.array([[[[0.5], [-1.0]], [[-0.5], [0.0]]], [[[0.0], [1.0]], [[0.5], [0.5]]]], np.float32)
    env, algorithm = ContinuousGame(), Binned(replace(IQL, mixer=Sum()), bins=5)

    def judge(learner, episodes):
        policy = algorithm.greedy(env.spec, learner)
        key = jax.random.key(0)
        first, memory = policy.act(policy.start(key), episodes.obs[0, 0], key)
        return first, policy.act(memory, episodes.obs[0, 1], key)[0]

    tasks = [ContinuousTask(target) for target in targets]
    for expected, (_, *chosen) in zip(nearest, train_all(env, tasks, judge, algorithm), strict=True):
        np.testing.assert_array_equal(np.stack(chosen), expected)
