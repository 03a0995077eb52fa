"""Networks: layers by hand, GRU against NumPy, episodes against steps, teams, optimizers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.nets import (
    Adam,
    Dense,
    Ensemble,
    Gru,
    LayerNorm,
    Mlp,
    Team,
    Trainable,
    memories,
    polyak,
    step_at,
    unroll,
)
from mesax.types import tree_index, tree_stack

CONFIGS = [Mlp((5,)), Gru(4, num_layers=1)]
KINDS = ["single", "ensemble", "team", "shared team"]
TIME, AGENTS, INPUTS = 3, 2, 3
XS = jnp.asarray(np.random.default_rng(5).normal(size=(TIME, AGENTS, INPUTS)), jnp.float32)


def create(kind: str, config, key):
    """A net of each kind."""
    if kind == "single":
        return config.build(INPUTS, 2, key)
    if kind == "ensemble":
        return Ensemble.create(config, 3, (INPUTS - 1, 1), key)
    return Team.create(config, AGENTS, (INPUTS, 2), key, shared=kind == "shared team", head_gain=1.0)


def build(kind: str, config, seed: int = 0):
    """The same with weights from NumPy, for which nothing is compiled."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: create(kind, config, key), jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), jnp.float32), shapes)


def inputs_for(kind: str):
    return XS if "team" in kind else XS[:, 0]


def test_dense_is_affine():
    layer = Dense(jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), jnp.array([0.5, -0.5]))
    np.testing.assert_allclose(layer(jnp.array([1.0, 0.0, 2.0])), [11.5, 13.5])


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_parts_stand_for_their_concatenation(config):
    net, x = build("single", config), XS[0, 0]
    step = jax.jit(lambda x: net.step(net.start(), x)[1])
    np.testing.assert_allclose(step((x[:1], x[1:])), step(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gain", [np.sqrt(2.0), 0.01])
def test_weights_have_the_variance_of_the_gain(getkey, gain: float):
    layer = Dense.create(100, 200, getkey(), gain)
    np.testing.assert_allclose(np.std(layer.weight), gain / 10, rtol=0.02)
    np.testing.assert_array_equal(layer.bias, np.zeros(200))


def test_layer_norm():
    x = jnp.asarray(np.random.default_rng(2).normal(3.0, 2.0, 50), jnp.float32)
    y = LayerNorm.create(50)(x)
    np.testing.assert_allclose([np.mean(y), np.std(y)], [0.0, 1.0], atol=1e-4)
    moved = LayerNorm(jnp.full(50, 2.0), jnp.full(50, 1.0))(x)
    np.testing.assert_allclose(moved, 2.0 * y + 1.0, rtol=1e-5)


def test_gru_step_by_numpy():
    net, x = build("single", Gru(4, num_layers=1)), np.asarray(XS[0, 0])
    memory = np.random.default_rng(1).normal(size=4).astype(np.float32)

    def norm(v, layer):
        return (v - v.mean()) / np.sqrt(v.var() + 1e-5) * np.asarray(layer.scale) + np.asarray(layer.shift)

    def dense(v, layer):
        return v @ np.asarray(layer.weight) + np.asarray(layer.bias)

    def sigmoid(v):
        return 1.0 / (1.0 + np.exp(-v))

    first, first_norm = net.layers[0]
    embedded = norm(np.maximum(dense(norm(x, net.norm_in), first), 0.0), first_norm)
    inputs, hidden = np.split(dense(embedded, net.gates_in), 3), np.split(dense(memory, net.gates_hidden), 3)
    reset, update = sigmoid(inputs[0] + hidden[0]), sigmoid(inputs[1] + hidden[1])
    after = (1.0 - update) * np.tanh(inputs[2] + reset * hidden[2]) + update * memory
    new_memory, output = jax.jit(lambda net, memory: net.step(memory, x))(net, memory)
    np.testing.assert_allclose(new_memory, after, atol=1e-5)
    np.testing.assert_allclose(output, dense(norm(after, net.norm_out), net.head), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_unroll_equals_step_by_step(config):
    def along(net, xs):
        before = memories(net, xs)
        return unroll(net, xs), before, step_at(net, tree_index(before, slice(-1)), xs)

    def step(net, memory, x):
        return net.step(memory, x)

    for kind in ("ensemble", "shared team", "team"):
        net, xs, jitted = build(kind, config), inputs_for(kind), jax.jit(step)
        memory, outputs, seen = net.start(), [], [net.start()]
        for x in xs:
            memory, output = jitted(net, memory, x)
            outputs.append(output)
            seen.append(memory)
        unrolled, before, at_each = jax.jit(along)(net, xs)
        np.testing.assert_allclose(unrolled, jnp.stack(outputs), atol=1e-5)
        np.testing.assert_allclose(at_each, jnp.stack(outputs), atol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), before, tree_stack(seen))
        assert [leaf.shape[0] for leaf in jax.tree.leaves(before)] == [TIME + 1] * isinstance(config, Gru)


def test_other_inputs_do_not_change_the_memories_of_an_episode():
    net, xs = build("single", Gru(4, num_layers=1)), XS[:, 0]

    @jax.jit
    def both_ways(xs):
        before = memories(net, xs)
        by_hand = jnp.stack([net.step(before[time], -xs[time])[1] for time in range(TIME)])
        return step_at(net, before[:-1], -xs), by_hand

    np.testing.assert_allclose(*both_ways(xs), atol=1e-5)


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_shared_team_tells_agents_apart(config):
    team = build("shared team", config)
    same = jnp.tile(XS[0, :1], (AGENTS, 1))
    outputs = jax.jit(lambda team: team.step(team.start(), same)[1])(team)
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    told = jnp.concatenate([same[1], jnp.array([0.0, 1.0])])
    by_hand = jax.jit(lambda net: net.step(net.start(), told)[1])(team.nets)
    np.testing.assert_allclose(outputs[1], by_hand, atol=1e-5)


def test_separate_agents_share_nothing():
    team = build("team", Mlp((5,)))
    first_agent = jax.jit(jax.value_and_grad(lambda team, xs: jnp.sum(unroll(team, xs)[:, 0])))
    value, gradient = first_agent(team, XS)
    for leaf in jax.tree.leaves(gradient.nets):
        assert np.any(leaf[0]) and not np.any(leaf[1])
    assert first_agent(team, XS.at[:, 1].add(1.0))[0] == value


def test_members_and_agents_start_different(getkey):
    key = getkey()
    for kind in ("ensemble", "team"):
        weight = jax.jit(lambda key, kind=kind: create(kind, Mlp(()), key).nets.head.weight)(key)
        assert len(np.unique(np.asarray(weight).reshape(len(weight), -1), axis=0)) == len(weight)


def test_every_leaf_is_an_array():
    for config in CONFIGS:
        for kind in KINDS:
            assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(build(kind, config)))


def test_descend_goes_down():
    optimizer = Adam(learning_rate=0.1)
    trainable = Trainable.create(jnp.array([3.0, -2.0]), optimizer)
    descend = jax.jit(lambda trainable: trainable.descend(2 * trainable.net, optimizer))
    np.testing.assert_allclose(descend(trainable).net, [2.9, -1.9], atol=1e-4)  # Adam's first step: the rate
    for _ in range(100):
        trainable = descend(trainable)
    np.testing.assert_allclose(trainable.net, [0.0, 0.0], atol=0.2)


def test_gradients_are_clipped_by_their_global_norm():
    optimizer = Adam(learning_rate=0.1, clip_norm=1.0)
    start = Trainable.create(jnp.zeros(2), optimizer)
    descend = jax.jit(lambda gradient: start.descend(gradient, optimizer))
    clipped, huge = descend(jnp.array([0.6, 0.8])), descend(jnp.array([600.0, 800.0]))
    for left, right in zip(jax.tree.leaves(clipped), jax.tree.leaves(huge), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)


def test_polyak():
    target, online = {"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([8.0, 0.0])}
    np.testing.assert_allclose(polyak(target, online, 0.25)["w"], [2.0, 3.0])
    np.testing.assert_array_equal(polyak(target, online, 0.0)["w"], target["w"])
    np.testing.assert_array_equal(polyak(target, online, 1.0)["w"], online["w"])
