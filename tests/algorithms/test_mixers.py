"""Mixers: sums and nets by NumPy, monotone and consistent whatever their weights, and what each can represent."""

import itertools
from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.mixers import Duplex, Independent, MixerStep, Monotonic, StateDuplex, Sum, hypernets
from mesax.errors import UsageError
from mesax.nets import Adam, Trainable
from mesax.types import Discrete, EnvSpec
from probes import put

SPEC = EnvSpec(num_agents=3, obs_size=2, action_space=Discrete(3), horizon=1)
JOINT = np.array(list(itertools.product(range(3), repeat=3)))
SMALL = Monotonic(hidden=4, hyper_hidden=3)
DUPLEX = Duplex(heads=2, attention_size=3, query_hidden=4, value_hidden=4, kernels=2, importance_hidden=(3,))
STATE_DUPLEX = StateDuplex(hidden=4, kernels=2, importance_hidden=(3, 2))
TEAM = {
    "VDN": Sum(),
    "QMIX": SMALL,
    "QMIX, linear hypernets": Monotonic(4, hyper_hidden=0),
    "QPLEX": DUPLEX,
    "QPLEX, linear importances": Duplex(heads=1, attention_size=2, query_hidden=2, value_hidden=2, kernels=3),
    "QPLEX, weights from the state": STATE_DUPLEX,
}


@cache
def shapes(config):
    return jax.eval_shape(lambda key: config.build(SPEC, key), jax.random.key(0))


def random_mixer(config, seed: int, scale: float = 1.0):
    """Weights from NumPy."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: (scale * random.normal(size=leaf.shape)).astype(np.float32), shapes(config))


def step_of(q, obs, joint) -> MixerStep:
    """A joint action, from all values `[agents, actions]`."""
    q, obs, action = (jnp.asarray(part, jnp.float32) for part in (q, obs, jax.nn.one_hot(joint, 3)))
    return MixerStep(jnp.sum(q * action, axis=-1), jnp.max(q, axis=-1), obs, action, jnp.zeros(0), q)


@jax.jit
def mixed(mixer, q, obs, joint):
    """(value, penalty) of a joint action."""
    step = step_of(q, obs, joint)
    return mixer(step), mixer.with_penalty(step)[1]


@jax.jit
def mixed_at_once(mixer, q, obs, joint):
    """The same in one go, and both as one number's slopes."""
    step = step_of(q, obs, joint)

    def apart(mixer):
        return jnp.sum(mixer(step)) + mixer.with_penalty(step)[1]

    def together(mixer):
        values, penalty = mixer.with_penalty(step)
        return jnp.sum(values) + penalty

    return mixer.with_penalty(step), jax.grad(apart)(mixer), jax.grad(together)(mixer)


@jax.jit
def slopes(mixer, q, obs, joint):
    """How the value moves with each agent's own, and with the mixer's weights."""
    step = step_of(q, obs, joint)
    change = jax.grad(lambda mixer, q: mixer(eqx.tree_at(lambda step: step.q, step, q))[0], argnums=(1, 0))
    return change(mixer, step.q)


def random_state(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(3, 3)), random.normal(size=(3, 2))


@jax.jit
def all_values(mixer, q, obs) -> jax.Array:
    """Qtot of every joint action."""
    return jax.vmap(lambda joint: mixer(step_of(q, obs, joint)))(put(JOINT))[:, 0]


def test_the_sum_is_the_sum_and_own_values_are_own():
    q, obs = random_state(0)
    chosen = q[np.arange(3), JOINT[5]]
    team, own = (mixed(config.build(SPEC, jax.random.key(0)), q, obs, JOINT[5])[0] for config in (Sum(), Independent()))
    np.testing.assert_allclose(team, [chosen.sum()], rtol=1e-6)
    np.testing.assert_allclose(own, chosen, rtol=1e-6)


def dense(x, layer):
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def forward(net, x):
    for layer in net.layers:
        x = np.maximum(dense(x, layer), 0.0)
    return dense(x, net.head)


def test_monotonic_by_numpy():
    mixer, (q, obs) = random_mixer(SMALL, 1), random_state(1)
    state, chosen = obs.reshape(-1), q[np.arange(3), JOINT[7]]
    hidden = chosen @ np.abs(forward(mixer.first, state)).reshape(3, 4) + forward(mixer.bias, state)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0.0)))
    expected = hidden @ np.abs(forward(mixer.second, state)) + forward(mixer.value, state)
    np.testing.assert_allclose(mixed(mixer, q, obs, JOINT[7])[0], expected, rtol=1e-4)


def importances(mixer, obs, joint) -> np.ndarray:
    state = obs.reshape(-1)
    both = np.concatenate([state, np.eye(3)[joint].reshape(-1)])

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    total = np.zeros(3)
    for kernel in range(2):
        nets = jax.tree.map(lambda leaf, kernel=kernel: leaf[kernel], mixer.importances)
        shares = sigmoid(forward(nets.agent, state)) * sigmoid(forward(nets.action, both))
        total += np.abs(forward(nets.scale, state)) * shares
    return total


def attention(mixer, obs) -> np.ndarray:
    """Logits, not yet divided by sqrt(size); the queries' last layer has no bias."""
    rows = []
    for head in range(mixer.weighing.key.shape[0]):
        own = jax.tree.map(lambda leaf, head=head: leaf[head], mixer.weighing)
        query = np.maximum(dense(obs.reshape(-1), own.embed), 0.0) @ np.asarray(own.query)
        rows.append((obs @ np.asarray(own.key)) @ query)
    return np.array(rows)


def attention_weights(mixer, obs) -> np.ndarray:
    """What every agent counts, summed over heads."""
    powers = np.exp(attention(mixer, obs) / np.sqrt(mixer.weighing.key.shape[-1]))
    return (powers / powers.sum(axis=1, keepdims=True)).sum(axis=0)


def test_duplex_by_numpy():
    mixer, (q, obs), joint = random_mixer(DUPLEX, 2), random_state(2), JOINT[16]
    weights = attention_weights(mixer, obs)
    gaps = weights * (q[np.arange(3), joint] - q.max(axis=1))
    expected = (weights * q.max(axis=1)).sum() + (importances(mixer, obs, joint) * gaps).sum()
    expected = expected + forward(mixer.value, obs.reshape(-1))
    value, penalty = mixed(mixer, q, obs, joint)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    squares = np.square(attention(mixer, obs))
    np.testing.assert_allclose(penalty, DUPLEX.attention_penalty * squares.mean(axis=1).sum(), rtol=1e-4)


def test_state_duplex_by_numpy():
    """Weights are absolute values; the state's own value is the sum of one number per agent."""
    mixer, (q, obs), joint = random_mixer(STATE_DUPLEX, 5), random_state(5), JOINT[11]
    state = obs.reshape(-1)
    weights = np.abs(forward(mixer.weighing.net, state))
    gaps = weights * (q[np.arange(3), joint] - q.max(axis=1))
    expected = (weights * q.max(axis=1)).sum() + (importances(mixer, obs, joint) * gaps).sum()
    value, penalty = mixed(mixer, q, obs, joint)
    np.testing.assert_allclose(value, [expected + forward(mixer.value, state).sum()], rtol=1e-4)
    assert float(penalty) == 0.0


def test_the_penalty_of_duplex_by_hand():
    """Keys (o, o, o, o) of observations 1 and 3, queries of ones: logits 4 and 12, mean square 80, size 4 or not.

    Queries are of ones because the one unit before them is 1 at every state, by its bias.
    """
    spec = EnvSpec(num_agents=2, obs_size=1, action_space=Discrete(3), horizon=1)
    config = Duplex(heads=1, attention_size=4, query_hidden=1, value_hidden=1, kernels=1, attention_penalty=0.5)
    blank = jax.eval_shape(lambda key: config.build(spec, key), jax.random.key(0))
    mixer = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), blank)
    ones = [np.ones(shape, np.float32) for shape in ((1, 1, 4), (1, 1, 4), (1, 1))]
    mixer = eqx.tree_at(lambda m: (m.weighing.key, m.weighing.query, m.weighing.embed.bias), mixer, ones)
    obs, joint = np.array([[1.0], [3.0]]), np.array([0, 0])
    values, penalty = mixed(mixer, np.array([[1.0, 0, 0], [2.0, 0, 0]]), obs, joint)
    assert float(penalty) == pytest.approx(0.5 * (4**2 + 12**2) / 2)
    # The softmax sees 2 and 6.
    share = 1.0 / (1.0 + np.exp(-4.0))
    np.testing.assert_allclose(values, [1.0 - share + 2.0 * share], rtol=1e-5)


def test_only_duplex_adds_to_the_loss():
    for config in (Independent(), Sum(), SMALL):
        assert float(mixed(random_mixer(config, 0), *random_state(0), JOINT[0])[1]) == 0.0


def test_gradients_of_duplex_pass_the_advantages_by():
    """An agent's value is moved as if importances were 1: by its attention weight; they themselves learn too."""
    mixer, (q, obs) = random_mixer(DUPLEX, 3), random_state(3)
    moved, gradient = slopes(mixer, q, obs, JOINT[4])
    weights = attention_weights(mixer, obs)
    np.testing.assert_allclose(moved, weights, rtol=1e-4)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient.importances.action))


@pytest.mark.parametrize("config", [SMALL, DUPLEX], ids=["QMIX", "QPLEX"])
@hypothesis.settings(max_examples=50)
@hypothesis.given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 5.0))
def test_values_rise_with_every_agents_value(config, seed: int, scale: float):
    """QMIX's weights are absolute values; QPLEX's are a softmax, and strictly positive."""
    q, obs = random_state(seed)
    moved = np.asarray(slopes(random_mixer(config, seed, scale), 3.0 * q, obs, JOINT[seed % 27])[0])
    assert np.all(moved > 0.0 if config is DUPLEX else moved >= 0.0)


@pytest.mark.parametrize("name", TEAM)
@hypothesis.settings(max_examples=30)
@hypothesis.given(seed=st.integers(0, 10_000))
def test_the_best_joint_action_is_every_agents_own_best(name: str, seed: int):
    """IGM, whatever the weights: nothing is worth more than the tuple of argmaxes (they may tie with it)."""
    mixer, (q, obs) = random_mixer(TEAM[name], seed), random_state(seed)
    values = np.asarray(all_values(mixer, q, obs))
    own = int(np.flatnonzero((q.argmax(axis=1) == JOINT).all(axis=1))[0])
    assert float(values[own]) >= float(values.max()) - 1e-4


@jax.jit
def all_importances(mixer, q, obs) -> jax.Array:
    return jax.vmap(lambda joint: mixer.importances(step_of(q, obs, joint)))(put(JOINT))


@hypothesis.settings(max_examples=30)
@hypothesis.given(seed=st.integers(0, 10_000))
def test_importances_are_positive(seed: int):
    assert np.all(np.asarray(all_importances(random_mixer(DUPLEX, seed), *random_state(seed))) > 0.0)


CLIMB = np.array([[0.8, 0.0, 0.8], [0.0, 1.0, 0.0], [0.8, 0.0, 0.8]], np.float32)
"""Both must play action 1: with a random partner it is worth the least."""
BOTH = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], np.float32)


@cache
def fitting(config, mixer_alone: bool):
    """What becomes of a payoff; with the agents' values, or with the mixer alone where they prefer action 1."""
    spec, optimizer = EnvSpec(2, 1, Discrete(3), 1), Adam(1e-2)
    joint = put(list(itertools.product(range(3), repeat=2)))

    def table(nets):
        q, mixer = nets
        return jax.vmap(lambda action: mixer(step_of(q, jnp.ones((2, 1)), action)))(joint)[:, 0]

    @jax.jit
    def run(payoff, key):
        def descend(trainable, _):
            q, mixer = jax.grad(lambda nets: jnp.mean(jnp.square(table(nets) - payoff)))(trainable.net)
            return trainable.descend((0.0 * q if mixer_alone else q, mixer), optimizer), None

        q = jnp.tile(put([0.0, float(mixer_alone), 0.0]), (2, 1))
        start = Trainable.create((q, config.build(spec, key)), optimizer)
        return table(jax.lax.scan(descend, start, None, 1500)[0].net)

    return run


def fit(config, payoff: np.ndarray, *, mixer_alone: bool = False) -> np.ndarray:
    """A payoff as it is represented after fitting."""
    return np.asarray(fitting(config, mixer_alone)(payoff.reshape(-1), jax.random.key(0))).reshape(3, 3)


SMALLER = Monotonic(8, hyper_hidden=0)


def test_qplex_represents_a_payoff_that_is_not_monotonic():
    small = Duplex(heads=1, attention_size=2, query_hidden=2, value_hidden=2, kernels=2)
    np.testing.assert_allclose(fit(small, CLIMB, mixer_alone=True), CLIMB, atol=0.02)


@pytest.mark.parametrize("config", [Sum(), SMALLER], ids=["VDN", "QMIX"])
def test_the_rest_settle_for_the_safe_equilibrium(config):
    fitted = fit(config, CLIMB)
    assert np.abs(fitted - CLIMB).max() > 0.3
    assert 1 not in np.unravel_index(fitted.argmax(), (3, 3))


def test_qmix_represents_more_than_a_sum():
    np.testing.assert_allclose(fit(SMALLER, BOTH), BOTH, atol=0.05)
    assert np.abs(fit(Sum(), BOTH) - BOTH).max() > 0.3


def test_hypernets_start_as_the_reference_code_does():
    first, second = jax.jit(lambda key: hypernets(key, (400, 300, 50), (200, 60)))(jax.random.key(0))
    assert (len(first.layers), len(second.layers)) == (1, 0)
    for layer, shape in ((first.layers[0], (400, 300)), (first.head, (300, 50)), (second.head, (200, 60))):
        limit = shape[0] ** -0.5
        assert layer.weight.shape == shape
        assert all(0.9 * limit < np.abs(leaf).max() <= limit for leaf in (layer.weight, layer.bias))
        np.testing.assert_allclose(np.std(layer.weight), limit / 3**0.5, rtol=0.02)


def test_a_state_of_zeros_can_be_learnt():
    mixer = jax.jit(lambda key: SMALL.build(SPEC, key))(jax.random.key(0))
    gradient = slopes(mixer, random_state(0)[0], np.zeros((3, 2)), JOINT[0])[1]
    assert np.any(gradient.first.head.bias) and np.any(gradient.second.head.bias)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Monotonic(hidden=0),
        lambda: Monotonic(hyper_hidden=-1),
        lambda: Duplex(heads=0),
        lambda: Duplex(kernels=0),
        lambda: StateDuplex(hidden=0),
        lambda: StateDuplex(kernels=0),
    ],
)
def test_nets_without_units_are_refused(build):
    with pytest.raises(UsageError, match=r"must be at least (1, not 0|0, not -1)$"):
        build()


def test_importances_without_units_are_refused():
    for config in (Duplex, StateDuplex):
        with pytest.raises(UsageError, match="every one of importance-hidden must be at least 1"):
            config(importance_hidden=(0,))


@pytest.mark.parametrize("mixer", [SMALL, DUPLEX, STATE_DUPLEX], ids=["QMIX", "QPLEX", "QPLEX by state"])
def test_a_latent_enters_as_context(mixer):
    """Equal observations and values, another latent: another value of the team; a latent of no numbers is none."""
    spec = EnvSpec(3, 2, Discrete(3), 1)

    @jax.jit
    def values(latents, key):
        plain = step_of(jnp.arange(9.0).reshape(3, 3), jnp.ones((3, 2)), put([0, 1, 2]))
        told = eqx.tree_at(lambda step: step.latent, plain, latents[0])
        assert plain.context.shape == (6,) and told.context.shape == (8,)
        built = mixer.build(spec, key, latent_size=2)
        under = jax.vmap(lambda latent: built(replace(plain, latent=latent))[0])(latents)
        return under, [built(plain)[0] for built in (mixer.build(spec, key), mixer.build(spec, key, 0))]

    (one, other), (left_out, empty) = jax.device_get(values(np.array([[0.0, 0.0], [1.0, -1.0]]), jax.random.key(0)))
    assert one != other
    assert left_out == empty


@pytest.mark.parametrize("name", ["QMIX", "QPLEX", "QPLEX, weights from the state"])
def test_value_and_penalty_at_once_are_the_same(name: str):
    mixer, joint = random_mixer(TEAM[name], 3), JOINT[4]
    both, apart, together = mixed_at_once(mixer, *random_state(3), joint)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), both, mixed(mixer, *random_state(3), joint))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), apart, together)
