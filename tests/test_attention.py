"""Nets that attend to other agents: by NumPy, in any order and number, as actors and critics of MADDPG."""

import equinox as eqx
import jax
import numpy as np
import pytest

from mesax.algorithms.actor_updates import ExpectedGradient
from mesax.algorithms.maddpg import Maddpg
from mesax.envs.particle_climb import ParticleClimb
from mesax.errors import UsageError
from mesax.nets import AttentionNet, AttentionOverAgents, AttentionOverOthers
from mesax.types import Elapsed, Episode, Label
from probes import put

POINTS, OTHERS, HIDDEN, OUTPUTS = 3, 2, 4, 5
ACTOR = AttentionOverOthers(POINTS, OTHERS, hidden=HIDDEN)
CRITIC = AttentionOverAgents(3, hidden=HIDDEN)
RNG = np.random.default_rng(0)


forward = eqx.filter_jit(lambda net, x: net.step((), x)[1])


def step(net: AttentionNet, x) -> np.ndarray:
    return np.asarray(forward(net, jax.device_put(x)))


def built(config, inputs: int, outputs: int) -> AttentionNet:
    """Weights from NumPy, for which nothing is compiled; the head has no bias yet, as in a fresh net."""
    random = np.random.default_rng(inputs)
    shapes = jax.eval_shape(lambda key: config.build(inputs, outputs, key), jax.random.key(0))
    net = jax.tree.map(lambda leaf: put(0.5 * random.normal(size=leaf.shape), np.float32), shapes)
    return eqx.tree_at(lambda net: net.head.bias, net, put(np.zeros(outputs), np.float32))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def by_numpy(net: AttentionNet, own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """What one view says, before the head."""

    def layer(dense, x):
        return x @ np.asarray(dense.weight) + np.asarray(dense.bias)

    hidden = relu(layer(net.own, own))
    scores = np.array([layer(net.query, hidden) @ layer(net.key, other) for other in others]) / np.sqrt(hidden.size)
    weights = np.exp(scores) / np.exp(scores).sum()
    context = sum(weight * relu(layer(net.value, other)) for weight, other in zip(weights, others, strict=True))
    return relu(layer(net.mixed, np.concatenate([hidden, context])))


def test_an_actor_by_numpy():
    net = built(ACTOR, ACTOR.inputs + 3, OUTPUTS)
    x = RNG.normal(size=ACTOR.inputs + 3).astype(np.float32)  # with an identity at the end
    points, others = x[2:8].reshape(3, 2), x[8:12].reshape(2, 2)
    tokens = [np.concatenate([other, (points - other).reshape(-1)]) for other in others]
    expected = by_numpy(net, np.concatenate([x[:8], x[12:]]), tokens) @ np.asarray(net.head.weight)
    np.testing.assert_allclose(step(net, put(x)), expected, rtol=1e-4, atol=1e-5)


def test_a_critic_by_numpy():
    net = built(CRITIC, 3 * 5, 1)
    obs, action = RNG.normal(size=(3, 3)).astype(np.float32), RNG.normal(size=(3, 2)).astype(np.float32)
    rows = np.concatenate([obs, action], axis=1)
    views = [by_numpy(net, rows[i], [rows[j] for j in range(3) if j != i]) for i in range(3)]
    expected = np.mean(views, axis=0) @ np.asarray(net.head.weight)
    np.testing.assert_allclose(step(net, (obs.reshape(-1), action.reshape(-1))), expected, rtol=1e-4, atol=1e-5)


def test_the_order_of_agents_does_not_matter_and_that_of_points_does():
    actor, critic = built(ACTOR, ACTOR.inputs, OUTPUTS), built(CRITIC, 3 * 5, 1)
    x = RNG.normal(size=ACTOR.inputs).astype(np.float32)
    swapped = np.concatenate([x[:8], x[10:12], x[8:10]])
    np.testing.assert_allclose(step(actor, x), step(actor, swapped), rtol=1e-5)
    assert not np.allclose(step(actor, x), step(actor, np.concatenate([x[:2], x[4:6], x[2:4], x[6:]])))
    obs, action = RNG.normal(size=(3, 3)).astype(np.float32), RNG.normal(size=(3, 2)).astype(np.float32)
    values = [step(critic, (obs[order].reshape(-1), action[order].reshape(-1))) for order in ([0, 1, 2], [2, 0, 1])]
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_the_same_weights_serve_any_number_of_others():
    """Others that are alike are as one: weights add up to 1."""
    net = built(ACTOR, ACTOR.inputs, OUTPUTS)
    x = RNG.normal(size=ACTOR.inputs - 2).astype(np.float32)
    alone = AttentionOverOthers(POINTS, 1, hidden=HIDDEN)
    crowd = AttentionOverOthers(POINTS, 3, hidden=HIDDEN)
    said = [
        step(AttentionNet(net.own, net.query, net.key, net.value, net.mixed, net.head, views), seen)
        for views, seen in ((alone, x), (crowd, np.concatenate([x, x[-2:], x[-2:]])))
    ]
    np.testing.assert_allclose(*said, rtol=1e-5)


def test_maddpg_learns_with_attention():
    """One update moves what attends, in actors and critics; an observation of the particle world fits."""
    world = ParticleClimb(3, POINTS)
    spec = world.spec
    algorithm = Maddpg(
        actor_net=AttentionOverOthers(POINTS, 2, world.num_own, hidden=4),
        critic_net=AttentionOverAgents(3, hidden=4),
        actor_update=ExpectedGradient("policy"),
    )
    horizon = 3
    batch = Episode(
        obs=RNG.normal(size=(2, horizon + 1, 3, spec.obs_size)).astype(np.float32),
        action=RNG.integers(0, 5, (2, horizon, 3), np.int32),
        reward=np.ones((2, horizon), np.float32),
        terminated=np.zeros((2, horizon), bool),
        mask=np.ones((2, horizon), bool),
        label=Label(np.zeros(2, np.int32), np.zeros((2, 0), np.float32)),
    )

    @jax.jit
    def updated(key, batch):
        state = algorithm.init(spec, key)
        return state, algorithm.update(spec, state, batch, Elapsed.end(), key)[0]

    before, after = updated(jax.random.key(0), batch)
    for trained in ("actors", "critics"):
        moved = [
            not np.array_equal(
                *(np.asarray(getattr(getattr(state, trained).net.nets, layer).weight) for state in (before, after))
            )
            for layer in ("query", "key", "value", "head")
        ]
        assert all(moved), trained


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: AttentionOverOthers(3, 0), "num-others"),
        (lambda: AttentionOverAgents(1), "at least 2"),
        (lambda: ACTOR.build(5, 2, jax.random.key(0)), "needs 12 inputs"),
        (lambda: CRITIC.build(7, 1, jax.random.key(0)), "3 agents alike"),
        (lambda: CRITIC.build(6, 4, jax.random.key(0)), "additive-critic must be false"),
        (lambda: CRITIC.of((put(np.zeros(4)), put(np.zeros(2)))), "3 agents cannot share 4 and 2 numbers"),
    ],
)
def test_what_cannot_be_attended_to_is_refused(build, message):
    with pytest.raises(UsageError, match=message):
        build()
