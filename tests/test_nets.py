"""Networks: layers by hand, GRU against NumPy, episodes against steps, entities, teams, optimizers."""

import re
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.nets import (
    Adam,
    Additive,
    Dense,
    Ensemble,
    Entities,
    FeedForward,
    Gru,
    LayerNorm,
    Mlp,
    PerAction,
    RmsProp,
    Team,
    Trainable,
    for_another_task,
    polyak,
    step_at,
    unroll,
    unroll_batch,
    unroll_with_memories,
    waves,
)
from mesax.nets.dense import rounded_product, standardized
from mesax.nets.recurrent import gru
from mesax.types import tree_index, tree_stack
from probes import put, stacked

ENTITIES = Entities(num_points=3, num_others=2, own=2, told=2, hidden=6)
CONFIGS = [Mlp((5,)), Gru(4, num_layers=1)]
KINDS = ["single", "ensemble", "team", "shared team"]
TIME, AGENTS, INPUTS = 3, 2, 3
XS = np.random.default_rng(5).normal(size=(TIME, AGENTS, INPUTS)).astype(np.float32)


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
    return jax.tree.map(lambda leaf: put(random.normal(size=leaf.shape), np.float32), shapes)


def inputs_for(kind: str):
    return XS if "team" in kind else XS[:, 0]


def test_dense_is_affine():
    layer = Dense(put([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), put([0.5, -0.5]))
    np.testing.assert_allclose(jax.jit(layer.__call__)(np.array([1.0, 0.0, 2.0])), [11.5, 13.5])


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_parts_stand_for_their_concatenation(config):
    net, x = build("single", config), XS[0, 0]
    step = jax.jit(lambda x: net.step(net.start(), x)[1])
    np.testing.assert_allclose(step((x[:1], x[1:])), step(x), rtol=1e-5, atol=1e-6)


def test_products_of_rounded_factors_by_hand():
    """bfloat16 has 8 digits: 1 + 1/256 is 1 in it, while sums keep 24; only gradients of weights multiply exactly."""
    fine = 1.0 + 2.0**-8
    x, weight = put([[256.0, fine], [fine, 3.0]]), put([[1.0, 2.0], [fine, 4.0]])
    layer = Dense(weight, put([0.0, fine]), "bfloat16")
    whole, parts = jax.jit(lambda x: (layer(x), layer((x[:, :1], x[:, 1:]))))(x)
    np.testing.assert_array_equal(whole, [[257.0, 516.0 + fine], [4.0, 14.0 + fine]])
    np.testing.assert_array_equal(parts, whole)
    pull = jax.jit(lambda layer, given: jax.vjp(lambda x, layer: layer(x), x, layer)[1](given))
    of_x, of_layer = pull(layer, np.array([[fine, 0.0], [0.0, 10.0]]))
    np.testing.assert_array_equal(of_x, [[1.0, 1.0], [20.0, 40.0]])
    exact = [[256.0 * fine, 10.0 * fine], [fine**2, 30.0]]
    np.testing.assert_array_equal(of_layer.weight, exact)
    np.testing.assert_array_equal(of_layer.bias, [fine, 10.0])
    # Several nets on one input: the input's gradient is the sum over nets, each weight's is its own.
    nets = Dense(put([weight, 2.0 * np.asarray(weight)]), put([[0.0, 0.0]] * 2), "bfloat16")
    pull = jax.jit(lambda nets, given: jax.vjp(lambda x, nets: jax.vmap(lambda net: net(x))(nets), x, nets)[1](given))
    of_x, of_nets = pull(nets, np.array([[[fine, 0.0], [0.0, 10.0]]] * 2))
    np.testing.assert_array_equal(of_x, [[3.0, 3.0], [60.0, 120.0]])
    np.testing.assert_array_equal(of_nets.weight, [exact] * 2)


def test_gradients_of_a_wide_product_of_rounded_factors():
    """As NumPy computes them; only the gradient of the weights is of exact factors."""
    random = np.random.default_rng(7)
    x, weight, given = (random.normal(size=size).astype(np.float32) for size in ((12, 16), (16, 24), (12, 24)))
    low_x, low_weight, low_given = (
        np.asarray(jnp.asarray(part).astype(jnp.bfloat16), np.float32) for part in (x, weight, given)
    )

    @jax.jit
    def both(x, weight, given):
        y, pull = jax.vjp(rounded_product, x, weight)
        return y, *pull(given)

    y, of_x, of_weight = both(x, weight, given)
    np.testing.assert_allclose(y, low_x @ low_weight, atol=1e-5)
    np.testing.assert_allclose(of_x, low_given @ low_weight.T, atol=1e-5)
    np.testing.assert_allclose(of_weight, x.T @ given, atol=1e-5)
    assert np.max(np.abs(low_x @ low_weight - x @ weight)) > 1e-3, "nothing was rounded"


def test_products_of_a_recurrent_net_are_rounded_if_asked():
    """Forward, and backward to what comes before, in the program that is compiled; outputs are near those of float32.

    Not those over all rows, by which gradients of weights are made. Nor is XLA told that weights are transposed: it
    would multiply them in float32.
    """
    config, batch = Gru(16, num_layers=1, products="bfloat16"), put(np.ones((5, TIME, AGENTS, INPUTS)))
    rounded, exact = (build("shared team", c) for c in (config, replace(config, products="float32")))

    def gradient(net):
        return jax.grad(lambda net: jnp.sum(jnp.square(unroll_batch(net, batch))))(net)

    def products(net) -> set[str]:
        text = jax.jit(gradient).lower(net).as_text()
        assert not re.search(r"stablehlo.transpose.*-> tensor<48x16xbf16>", text)
        found = re.findall(r"dot_general.*: \(tensor<(\d+x\d+)xbf16>, tensor<(\d+x\d+)xbf16>\) -> tensor<.*f32>", text)
        return {" ".join(shapes) for shapes in found}

    # 30 rows (10 at each of 3 steps): 5 inputs, 16 units, 48 gates, 2 outputs, and back.
    wide = {"30x16 16x48", "30x48 48x16", "10x16 16x48", "10x48 48x16"}
    assert products(rounded) == wide | {"30x5 5x16", "30x16 16x2", "30x2 2x16"}
    assert not products(exact)
    steps = jax.jit(lambda net: (unroll_batch(net, batch), unroll(net, batch[0])))
    (rows, one), (near, _) = jax.device_get((steps(rounded), steps(exact)))
    np.testing.assert_allclose(rows[0], one, atol=1e-5)
    np.testing.assert_allclose(rows, near, rtol=0.1, atol=0.1)
    assert np.max(np.abs(rows - near)) > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("gain", [np.sqrt(2.0), 0.01])
def test_weights_have_the_variance_of_the_gain(getkey, gain: float):
    layer = jax.jit(lambda key: Dense.create(100, 200, key, gain))(getkey())
    np.testing.assert_allclose(np.std(layer.weight), gain / 10, rtol=0.02)
    np.testing.assert_array_equal(layer.bias, np.zeros(200))


def test_layer_norm():
    x = np.random.default_rng(2).normal(3.0, 2.0, 50)
    compute = jax.jit(lambda x: (LayerNorm.create(50)(x), LayerNorm(jnp.full(50, 2.0), jnp.full(50, 1.0))(x)))
    y, moved = jax.device_get(compute(x))
    np.testing.assert_allclose([np.mean(y), np.std(y)], [0.0, 1.0], atol=1e-4)
    np.testing.assert_allclose(moved, 2.0 * y + 1.0, rtol=1e-5)


def test_gru_step_by_numpy():
    net, x = build("single", Gru(4, num_layers=1)), XS[0, 0]
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
    new_memory, output = jax.jit(lambda net, memory, x: net.step(memory, x))(net, memory, x)
    np.testing.assert_allclose(new_memory, after, atol=1e-5)
    np.testing.assert_allclose(output, dense(norm(after, net.norm_out), net.head), rtol=1e-4, atol=1e-4)


def test_gradients_by_hand_are_those_of_the_formulas():
    """Of the norm and of the GRU, which keep less than JAX's own gradients would; twice, as learners of learners do."""
    random = np.random.default_rng(7)
    rows, gates, hidden, memory = (put(random.normal(size=(3, size)), np.float32) for size in (5, 6, 6, 2))

    def plain_norm(x):
        centered = x - jnp.mean(x, axis=-1, keepdims=True)
        return centered / jnp.sqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-5)

    def plain_gru(gates, hidden, memory):
        reset, update = (jax.nn.sigmoid(gates[:, part] + hidden[:, part]) for part in (slice(2), slice(2, 4)))
        return (1.0 - update) * jnp.tanh(gates[:, 4:] + reset * hidden[:, 4:]) + update * memory

    def gradients(norm, cell):
        def first(given):
            return jax.grad(lambda given: jnp.sum(jnp.sin(norm(given[0]))) + jnp.sum(jnp.sin(cell(*given[1:]))))(given)

        def second(given):
            return jax.grad(lambda given: sum(jnp.sum(jnp.cos(part)) for part in first(given)))(given)

        given = (rows, gates, hidden, memory)
        return jax.jit(lambda given: (first(given), second(given)))(given)

    assert_close(gradients(standardized, gru), gradients(plain_norm, plain_gru))


def test_a_layer_behind_a_norm_and_a_turned_one_are_the_same_layer():
    random = np.random.default_rng(8)
    x, weight, bias, scale, shift = (put(random.normal(size=size), np.float32) for size in ((7, 5), (5, 3), 3, 5, 5))
    layer, norm = Dense(weight, bias), LayerNorm(scale, shift)

    def both(run):
        return jax.jit(jax.value_and_grad(lambda nets: jnp.sum(jnp.sin(run(*nets)))))((layer, norm))

    expected = both(lambda layer, norm: layer(norm(x)))
    assert_close(both(lambda layer, norm: layer.after(norm)(standardized(x))), expected)
    assert_close(both(lambda layer, norm: layer.turned(norm(x))), expected)


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_unroll_equals_step_by_step(config):
    @jax.jit
    def compute(net, xs):
        memory, outputs, seen = net.start(), [], [net.start()]
        for x in xs:
            memory, output = net.step(memory, x)
            outputs.append(output)
            seen.append(memory)
        before = memories(net, xs)
        at_each = step_at(net, tree_index(before, slice(-1)), xs)
        return jnp.stack(outputs), tree_stack(seen), unroll(net, xs), before, at_each

    for kind in ("ensemble", "shared team", "team"):
        outputs, seen, unrolled, before, at_each = compute(build(kind, config), inputs_for(kind))
        np.testing.assert_allclose(unrolled, outputs, atol=1e-5)
        np.testing.assert_allclose(at_each, outputs, atol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), before, seen)
        assert [leaf.shape[0] for leaf in jax.tree.leaves(before)] == [TIME + 1] * isinstance(config, Gru)


@pytest.mark.parametrize("kind", ["shared team", "team"])
@pytest.mark.parametrize("config", [Gru(4, num_layers=1), Mlp((4,), octaves=1)], ids=["gru", "mlp"])
def test_a_batch_of_episodes_equals_one_by_one(config, kind):
    """Outputs and gradients, also under a `vmap` over nets: rows of all episodes become one matrix."""
    nets = stacked([build(kind, config, seed) for seed in (0, 1)])
    batch = put(np.random.default_rng(6).normal(size=(4, TIME, AGENTS, INPUTS)), jnp.float32)

    def both(run):
        def loss(net):
            outputs = run(net, batch)
            return jnp.sum(jnp.sin(outputs)), outputs

        return jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(nets)

    assert_close(both(unroll_batch), both(jax.vmap(by_steps, in_axes=(None, 0))))


def memories(net, xs):
    """Before each step and after the last, of one episode."""
    return tree_index(unroll_with_memories(net, jax.tree.map(lambda part: part[None], xs))[0], 0)


def by_steps(net, xs) -> jax.Array:
    memory, outputs = net.start(), []
    for x in xs:
        memory, output = net.step(memory, x)
        outputs.append(output)
    return jnp.stack(outputs)


def assert_close(left, right) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), left, right)


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
def test_a_critic_along_an_episode_equals_step_by_step(parts: bool):
    """An additive one too, whose input comes in parts."""
    config, key = Gru(4, num_layers=1), jax.random.key(0)
    shapes = jax.eval_shape(lambda key: Ensemble.create(config, 3, (INPUTS, 2), key, additive=parts), key)
    random = np.random.default_rng(3)
    net = jax.tree.map(lambda leaf: put(random.normal(size=leaf.shape), np.float32), shapes)
    action = random.normal(size=(TIME, 2)).astype(np.float32)

    @jax.jit
    def along(net, xs):
        memory, outputs = net.start(), []
        for x in zip(*xs, strict=True):
            memory, output = net.step(memory, x)
            outputs.append(output)
        after, values = unroll_with_memories(net, tuple(jnp.stack([jnp.zeros_like(part), part]) for part in xs))
        alone = unroll(net, xs), tree_index(memories(net, xs), -1)
        return alone, (values[1], tree_index(after, (1, -1))), (jnp.stack(outputs), memory)

    alone, second_of_two, by_hand = along(net, (XS[:, 0], action))
    assert_close(alone, by_hand)
    assert_close(second_of_two, by_hand)


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
    same = np.tile(XS[0, :1], (AGENTS, 1))
    outputs = np.asarray(jax.jit(lambda team, xs: team.step(team.start(), xs)[1])(team, same))
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    told = np.concatenate([same[1], [0.0, 1.0]])
    by_hand = jax.jit(lambda net, told: net.step(net.start(), told)[1])(team.nets, told)
    np.testing.assert_allclose(outputs[1], by_hand, atol=1e-5)


def test_separate_agents_share_nothing():
    team = build("team", Mlp((5,)))
    first_agent = jax.jit(jax.value_and_grad(lambda team, xs: jnp.sum(unroll(team, xs)[:, 0])))
    value, gradient = jax.device_get(first_agent(team, XS))
    for leaf in jax.tree.leaves(gradient.nets):
        assert np.any(leaf[0]) and not np.any(leaf[1])
    assert float(first_agent(team, XS + np.array([[[0.0], [1.0]]], np.float32))[0]) == value


def test_members_and_agents_start_different(getkey):
    key = getkey()
    for kind in ("ensemble", "team"):
        weight = jax.jit(lambda key, kind=kind: create(kind, Mlp(()), key).nets.head.weight)(key)
        assert len(np.unique(np.asarray(weight).reshape(len(weight), -1), axis=0)) == len(weight)


def entity_net(sizes: Entities = ENTITIES):
    """Weights from NumPy; those of other numbers of points and agents are the same."""
    random = np.random.default_rng(4)
    shapes = jax.eval_shape(lambda key: sizes.build(sizes.inputs, 4, key), jax.random.key(0))
    return jax.tree.map(lambda leaf: put(0.5 * random.normal(size=leaf.shape), jnp.float32), shapes)


@eqx.filter_jit
def _entity_output(net, x):
    return net.step(net.start(), x)[1]


def entity_output(net, x) -> np.ndarray:
    return np.asarray(_entity_output(net, x))


class Scene:
    """What an agent observes, taken apart: itself, offsets to points, offsets to others, what it is told."""

    def __init__(self, sizes: Entities, seed: int = 0):
        random = np.random.default_rng(seed)
        self.own = random.normal(size=sizes.own)
        self.points = random.normal(size=(sizes.num_points, 2))
        self.others = random.normal(size=(sizes.num_others, 2))
        # Told of each point: one number per agent, the largest first.
        ranks = random.uniform(size=(sizes.told, sizes.num_points, sizes.num_others + 1))
        self.told = -np.sort(-ranks, axis=-1)

    def vector(self) -> jax.Array:
        parts = (self.own, self.points, self.others, self.told)
        return put(np.concatenate([part.reshape(-1) for part in parts]), jnp.float32)


def test_parts_of_an_observation():
    """Two points, one other, one told vector: its ranks come as largest, second and sum."""
    sizes = Entities(num_points=2, num_others=1, own=3, told=1)
    assert sizes.inputs == 3 + 4 + 2 + 4
    own, points, others, told = jax.jit(sizes.parts)(np.arange(15.0, dtype=np.float32))
    assert own.tolist() == [0, 1, 2]
    assert points.tolist() == [[3, 4], [5, 6]]
    assert others.tolist() == [[7, 8]]
    assert told.tolist() == [[9, 10, 19], [11, 12, 23]]


def test_several_told_vectors_stand_side_by_side():
    sizes = Entities(num_points=2, num_others=2, own=0, told=2)
    told = jax.jit(sizes.parts)(np.concatenate([np.zeros(8), np.arange(12.0)]))[3]
    assert told.tolist() == [[0, 1, 3, 6, 7, 21], [3, 4, 12, 9, 10, 30]]


def test_entity_net_by_numpy():
    net, scene = entity_net(), Scene(ENTITIES)

    def dense(v, layer):
        return v @ np.asarray(layer.weight) + np.asarray(layer.bias)

    def relu(v):
        return np.maximum(v, 0.0)

    def pooled(rows):
        return np.concatenate([rows.mean(axis=0), rows.max(axis=0)])

    rows = []
    for number, point in enumerate(scene.points):
        pairs = [relu(dense([*(point - other), np.linalg.norm(point - other)], net.pair)) for other in scene.others]
        told = [[ranks[number, 0], ranks[number, 1], ranks[number].sum()] for ranks in scene.told]
        token = [*scene.own, *point, np.linalg.norm(point), *np.ravel(told), *pooled(np.array(pairs))]
        rows.append(relu(dense(np.array(token), net.first)))
    rows = [relu(dense(np.concatenate([row, pooled(np.array(rows))]), net.second)) for row in rows]
    scores = np.array([dense(row, net.attention)[0] for row in rows])
    weights = np.exp(scores) / np.exp(scores).sum()
    expected = dense(np.concatenate([weights @ np.array(rows), pooled(np.array(rows))]), net.head)
    np.testing.assert_allclose(entity_output(net, scene.vector()), expected, rtol=1e-4, atol=1e-4)


def test_the_order_of_points_does_not_matter():
    """If what is told of them moves along; if it does not, the scene is another one."""
    net, scene, order = entity_net(), Scene(ENTITIES), [2, 0, 1]
    output = entity_output(net, scene.vector())
    scene.points = scene.points[order]
    assert np.abs(entity_output(net, scene.vector()) - output).max() > 1e-2
    scene.told = scene.told[:, order]
    np.testing.assert_allclose(entity_output(net, scene.vector()), output, rtol=1e-4, atol=1e-5)


def test_the_order_of_other_agents_does_not_matter():
    net, scene = entity_net(), Scene(ENTITIES)
    output = entity_output(net, scene.vector())
    scene.others = scene.others[::-1]
    np.testing.assert_allclose(entity_output(net, scene.vector()), output, rtol=1e-4, atol=1e-5)
    scene.others = scene.others + 0.5
    assert np.abs(entity_output(net, scene.vector()) - output).max() > 1e-3


def test_the_same_weights_serve_any_number_of_points_and_agents():
    """A scene in which every point and every other agent is there twice looks the same."""
    net, scene = entity_net(replace(ENTITIES, told=0)), Scene(replace(ENTITIES, told=0))
    larger = replace(net, sizes=replace(net.sizes, num_points=6, num_others=4))
    assert [leaf.shape for leaf in jax.tree.leaves(entity_net(larger.sizes))] == [
        leaf.shape for leaf in jax.tree.leaves(net)
    ]
    output = entity_output(net, scene.vector())
    scene.points, scene.others = np.repeat(scene.points, 2, axis=0), np.tile(scene.others, (2, 1))
    np.testing.assert_allclose(entity_output(larger, scene.vector()), output, rtol=1e-4, atol=1e-5)


def test_more_agents_are_told_of_by_the_same_weights():
    """An agent more whose number is 0 changes neither the largest, nor the second, nor the sum."""
    net, scene = entity_net(), Scene(ENTITIES)
    larger = replace(net, sizes=replace(net.sizes, num_others=4))
    output = entity_output(net, scene.vector())
    scene.others = np.tile(scene.others, (2, 1))
    scene.told = np.concatenate([scene.told, np.zeros((2, 3, 2))], axis=-1)
    np.testing.assert_allclose(entity_output(larger, scene.vector()), output, rtol=1e-4, atol=1e-5)


def test_an_identity_behind_the_observation_is_ignored():
    net, x = entity_net(), Scene(ENTITIES).vector()
    told = entity_output(net, (x, put([0.0, 1.0, 7.0])))
    np.testing.assert_array_equal(told, entity_output(net, x))


def test_entities_without_other_agents():
    sizes = Entities(num_points=2, num_others=0, hidden=6, told=1)
    output = entity_output(entity_net(sizes), Scene(sizes).vector())
    assert output.shape == (4,) and np.isfinite(output).all()


def test_the_gradient_is_finite_on_top_of_a_point():
    scene = Scene(ENTITIES)
    scene.points[0], scene.others[0] = 0.0, 0.0
    gradients = jax.jit(jax.grad(lambda net, x: jnp.sum(net.step((), x)[1]), argnums=(0, 1)))(
        entity_net(), scene.vector()
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradients))


def test_observations_too_short_for_their_entities_are_refused():
    assert ENTITIES.inputs == 2 + 2 * 3 + 2 * 2 + 2 * 3 * 3
    with pytest.raises(UsageError, match="3 points and 2 others needs 30 inputs, but observations have 29"):
        ENTITIES.build(29, 4, jax.random.key(0))
    jax.eval_shape(lambda key: ENTITIES.build(33, 4, key), jax.random.key(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_points": 0}, "num-points must be at least 1, not 0"),
        ({"num_others": -1}, "num-others must be at least 0, not -1"),
        ({"hidden": 1}, "hidden must be at least 2, not 1"),
        ({"ranks": 0}, "ranks must be at least 1, not 0"),
    ],
)
def test_impossible_entities(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        replace(ENTITIES, **settings)


def test_additive_value_by_hand():
    """V = 3, advantages of the first agent (1, 2) and of the second (10, 20), at the observation 1."""
    critic = Additive(FeedForward((), Dense(put([[3.0, 1.0, 2.0, 10.0, 20.0]]), put([0.0] * 5))))
    step = jax.jit(lambda action: critic.step(critic.start(), (jnp.ones(1), action))[1])
    for first, second, expected in [(0, 0, 14.0), (0, 1, 24.0), (1, 0, 15.0), (1, 1, 25.0)]:
        assert step(np.concatenate([np.eye(2)[first], np.eye(2)[second]])).tolist() == [expected]


@pytest.mark.parametrize("config", CONFIGS, ids=["mlp", "gru"])
def test_additive_value_at_probabilities_is_the_expectation(config):
    """Over two agents that draw independently; a recurrent one remembers observations, not actions."""
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: Ensemble.create(config, 2, (3, 4), key, additive=True), jax.random.key(0))
    critics = jax.tree.map(lambda leaf: put(random.normal(size=leaf.shape), np.float32), shapes)
    chances, obs = np.array([[0.3, 0.7], [0.9, 0.1]]), put(XS[0, 0])
    step = jax.jit(lambda action: critics.step(critics.start(), (obs, action)))
    expected = np.zeros(2)
    memories_seen = []
    for first, second in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        memory, values = step(put(np.concatenate([np.eye(2)[first], np.eye(2)[second]]), jnp.float32))
        expected += chances[0, first] * chances[1, second] * np.asarray(values)
        memories_seen.append(memory)
    memory, values = step(put(chances.reshape(-1), jnp.float32))
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    for other in memories_seen:
        jax.tree.map(np.testing.assert_array_equal, other, memory)


def test_every_leaf_is_an_array():
    for config in CONFIGS:
        for kind in KINDS:
            assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(build(kind, config)))


def test_descend_goes_down():
    optimizer = Adam(learning_rate=0.1)
    trainable = Trainable.create(put([3.0, -2.0]), optimizer)
    descend = jax.jit(lambda trainable: trainable.descend(2 * trainable.net, optimizer))
    np.testing.assert_allclose(descend(trainable).net, [2.9, -1.9], atol=1e-4)  # Adam's first step: the rate
    for _ in range(100):
        trainable = descend(trainable)
    np.testing.assert_allclose(trainable.net, [0.0, 0.0], atol=0.2)


def test_steps_of_rmsprop_by_hand():
    """Mean squares begin at 0: with a decay of .99 they are .01 and .0199 of a gradient's square that stays."""
    optimizer, gradient = RmsProp(learning_rate=0.1), put([3.0, -2.0])
    descend = jax.jit(lambda trainable: trainable.descend(gradient, optimizer))
    first = descend(Trainable.create(jnp.zeros(2), optimizer))
    np.testing.assert_allclose(first.net, [-1.0, 1.0], rtol=1e-4)
    np.testing.assert_allclose(descend(first).net, [-1.0 - 0.1 / 0.0199**0.5, 1.0 + 0.1 / 0.0199**0.5], rtol=1e-4)


@pytest.mark.parametrize("scale", [0.25, put(0.25), np.float32(0.25)], ids=["float", "array", "NumPy"])
def test_a_step_can_be_scaled(scale):
    """A quarter of the step, whatever kind of number says so; Adam's memory does not change."""
    optimizer = Adam(learning_rate=0.1)

    @jax.jit
    def compute(net):
        start = Trainable.create(net, optimizer)
        return start, start.descend(start.net, optimizer), start.descend(start.net, optimizer, scale)

    start, whole, part = jax.device_get(compute(np.array([3.0, -2.0])))
    np.testing.assert_allclose(part.net - start.net, 0.25 * (whole.net - start.net), rtol=1e-5)
    np.testing.assert_allclose(part.net, [2.975, -1.975], atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, part.optimizer_state, whole.optimizer_state)


@pytest.mark.parametrize("optimizer", [Adam(learning_rate=0.1, clip_norm=1.0), RmsProp(clip_norm=1.0)])
def test_gradients_are_clipped_by_their_global_norm(optimizer):
    descend = jax.jit(lambda gradient: Trainable.create(jnp.zeros(2), optimizer).descend(gradient, optimizer))
    clipped, huge = descend(np.array([0.6, 0.8])), descend(np.array([600.0, 800.0]))
    for left, right in zip(jax.tree.leaves(clipped), jax.tree.leaves(huge), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)


def test_polyak():
    target, online = {"w": put([0.0, 4.0])}, {"w": put([8.0, 0.0])}
    quarter, stays, goes = jax.jit(lambda: [polyak(target, online, rate)["w"] for rate in (0.25, 0.0, 1.0)])()
    np.testing.assert_allclose(quarter, [2.0, 3.0])
    np.testing.assert_array_equal(stays, target["w"])
    np.testing.assert_array_equal(goes, online["w"])


def test_waves_are_sines_and_cosines_of_doubled_inputs():
    x = np.linspace(-10.0, 10.0, 7).astype(np.float32)
    expected = np.concatenate([x, *(np.sin(2.0**k * x) for k in range(4)), *(np.cos(2.0**k * x) for k in range(4))])
    np.testing.assert_allclose(jax.jit(lambda x: waves(x, 4))(x), expected, atol=1e-4)


def test_a_net_with_octaves_sees_its_inputs_in_parts_or_whole():
    @jax.jit
    def compute(x):
        net = Mlp((8,), octaves=3).build(5, 2, jax.random.key(0))
        assert net.layers[0].weight.shape == (5 * 7, 8)
        expected = FeedForward(net.layers, net.head).step((), waves(x, 3))[1]
        return expected, [net.step((), given)[1] for given in (x, (x[:3], x[3:]))]

    expected, found = compute(np.linspace(-1.0, 1.0, 5))
    for output in found:
        np.testing.assert_allclose(output, expected, rtol=1e-6)


def test_octaves_fit_a_narrow_band():
    """1 within .1 of 0.5, else 0, on [-2, 2]: after the same training the error is a fraction of a plain net's."""
    xs = np.linspace(-2.0, 2.0, 400, dtype=np.float32)[:, None]
    x, y = put(xs), put((np.abs(xs - 0.5) < 0.1).astype(np.float32))
    optimizer = Adam(3e-3)

    def error(config: Mlp) -> float:
        def loss(net):
            return jnp.mean(jnp.square(jax.vmap(lambda row: net.step((), row)[1])(x) - y))

        def step(trainable, _):
            return trainable.descend(jax.grad(loss)(trainable.net), optimizer), None

        def learned(key):
            start = Trainable.create(config.build(1, 1, key), optimizer)
            return loss(jax.lax.scan(step, start, None, 300)[0].net)

        return float(jax.jit(learned)(jax.random.key(1)))

    plain, fine = error(Mlp((32, 32))), error(Mlp((32, 32), octaves=5))
    assert fine < 0.4 * plain


def test_octaves_out_of_range_are_refused():
    with pytest.raises(UsageError, match="octaves must lie between 0 and 16"):
        Mlp((8,), octaves=17)


def test_a_falling_rate_ends_at_a_twentieth():
    """Adam's step is its learning rate while the gradient keeps its sign."""
    optimizer = Adam(0.1, clip_norm=1e9, falling=10)

    def step(state, _):
        after = state.descend(jnp.ones(()), optimizer)
        return after, state.net - after.net

    sizes = jax.jit(lambda: jax.lax.scan(step, Trainable.create(jnp.zeros(()), optimizer), None, 13)[1])()
    sizes = np.asarray(sizes)
    np.testing.assert_allclose(sizes[:11], np.linspace(0.1, 0.005, 11), rtol=1e-3)
    np.testing.assert_allclose(sizes[11:], 0.005, rtol=1e-3)
    with pytest.raises(UsageError, match="falling must be at least 1, not 0"):
        Adam(falling=0)


def test_fresh_optimizers_have_seen_nothing_and_nets_stay():
    optimizer = Adam(0.1, falling=10)

    @jax.jit
    def compute(gradients):
        used = Trainable.create({"w": jnp.ones(2)}, optimizer).descend(gradients, optimizer)
        fresh = for_another_task({"actor": used, "scale": put(3.0)})
        return used, fresh, Trainable.create(used.net, optimizer)

    used, fresh, expected = compute({"w": np.array([1.0, -2.0])})
    np.testing.assert_array_equal(fresh["actor"].net["w"], used.net["w"])
    assert float(fresh["scale"]) == 3.0
    assert jax.tree.structure(fresh["actor"]) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(fresh["actor"]), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_a_net_over_actions_treats_them_alike():
    """Actions that change places change outputs likewise; everything else is seen by all."""
    step = jax.jit(lambda x: PerAction((8,)).build(4 + 3, 4, jax.random.key(0)).step((), x)[1])
    rest, told, order = np.array([0.3, -1.0, 0.5]), np.array([0.0, 1.0, 0.0, 0.7]), np.array([2, 0, 3, 1])
    out = np.asarray(step(np.concatenate([told, rest])))
    assert out.shape == (4,) and out[0] == out[2] and out[0] != out[1]
    np.testing.assert_allclose(step(np.concatenate([told[order], rest])), out[order], rtol=1e-6)
    assert not np.allclose(step(np.concatenate([told, -rest])), out)
    with pytest.raises(UsageError, match="must be told one number of each and more, but has 4 inputs"):
        PerAction().build(4, 4, jax.random.key(0))
    with pytest.raises(UsageError, match="hidden must have at least one width"):
        PerAction(())
