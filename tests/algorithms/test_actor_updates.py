"""Actor updates on small tables of Q, against brute force and by hand."""

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.actor_updates import (
    ActorProblem,
    ExpectedGradient,
    GumbelGradient,
    greedy_action,
    greedy_features,
    replace_own,
)
from mesax.algorithms.coordinated import JointImprovement
from mesax.errors import UsageError
from mesax.types import Box, Discrete

BATCH, TIME, AGENTS, ACTIONS = 2, 3, 2, 4
SPACE = Discrete(ACTIONS)
# No source of candidates at all; each test turns on the one that it is about.
BARE = JointImprovement(
    enumerate_up_to=0, num_replay=1, num_explorer=0, num_elite=0, num_policy=0, num_uniform=0, margin=0.0
)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def actions(*shape: int, seed: int = 0, number: int = ACTIONS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, number, shape)


def problem(table: jax.Array, outputs: jax.Array, played: np.ndarray, pool: np.ndarray | None = None) -> ActorProblem:
    """Two agents whose Q at each step is a table `[batch, time, actions, actions]`."""
    number = table.shape[-1]
    pool = np.zeros((1, AGENTS), int) if pool is None else pool
    return ActorProblem(
        outputs=outputs,
        played=jax.nn.one_hot(played, number),
        found=jax.nn.one_hot(pool, number),
        q=lambda joint: jnp.einsum("btuv,btu,btv->bt", table, joint[..., 0, :], joint[..., 1, :]),
        q_of_one=lambda joint: jnp.einsum("btuv,u,v->bt", table, joint[0], joint[1]),
        action_space=Discrete(number),
    )


def random_table(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, outputs of actors, and joint actions that were played."""
    table = random(BATCH, TIME, ACTIONS, ACTIONS, seed=seed)
    played = actions(BATCH, TIME, AGENTS, seed=seed + 1)
    return table, random(BATCH, TIME, AGENTS, ACTIONS, seed=seed + 2), played


def evaluated(update, given: ActorProblem, key) -> tuple[jax.Array, jax.Array]:
    """Loss at every step, and the gradient of their sum by the actors' outputs."""

    def loss_of(outputs):
        loss = update.loss(replace(given, outputs=outputs), key)
        return jnp.sum(loss), loss

    (_, loss), gradient = jax.value_and_grad(loss_of, has_aux=True)(given.outputs)
    return loss, gradient


@partial(jax.jit, static_argnums=0)
def _loss_and_gradient(update, table, outputs, played, key):
    return evaluated(update, problem(table, outputs, played), key)


def loss_and_gradient(update, table, outputs, played, key) -> tuple[np.ndarray, np.ndarray]:
    return jax.device_get(_loss_and_gradient(update, table, outputs, played, key))


@partial(jax.jit, static_argnums=0)
def _improved(update: JointImprovement, table, outputs, played, pool):
    return update.improved(problem(table, outputs, played, pool), jax.random.key(0))


def improve(update: JointImprovement, table, outputs, played, pool=None) -> np.ndarray:
    """The improved joint actions as integers."""
    target = np.asarray(_improved(update, table, outputs, played, pool))
    np.testing.assert_allclose(target.sum(axis=-1), 1.0, atol=1e-5)
    return target.argmax(axis=-1)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def own_slopes(table: np.ndarray, partners: np.ndarray) -> np.ndarray:
    """Q of each agent's every own action with its partner's given one, `[batch, time, agents, actions]`."""
    slopes = np.zeros((*partners.shape, table.shape[-1]))
    for b, t in np.ndindex(*partners.shape[:2]):
        slopes[b, t, 0] = table[b, t, :, partners[b, t, 1]]
        slopes[b, t, 1] = table[b, t, partners[b, t, 0], :]
    return slopes


def test_greedy():
    outputs = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]], np.float32)
    compute = jax.jit(
        lambda outputs: [
            read(outputs, space) for space in (Discrete(3), Box(3)) for read in (greedy_action, greedy_features)
        ]
    )
    action, features, *continuous = compute(outputs)
    np.testing.assert_array_equal(action, [1, 0])
    np.testing.assert_array_equal(features, [[0, 1, 0], [1, 0, 0]])
    for found in continuous:
        np.testing.assert_allclose(found, np.tanh(outputs), rtol=1e-6)


def test_replace_own():
    own, partners = random(BATCH, TIME, 3, 2, seed=1), random(BATCH, TIME, 3, 2, seed=2)
    joint = np.asarray(jax.jit(replace_own)(own, partners))
    for agent, other in itertools.product(range(3), repeat=2):
        source = own if agent == other else partners
        np.testing.assert_array_equal(joint[agent, :, :, other], source[:, :, other])


@pytest.mark.parametrize("partners", ["policy", "buffer"])
def test_gumbel_gradient_by_hand(getkey, partners: str):
    table, outputs, played = random_table()
    key = getkey()
    loss, gradient = loss_and_gradient(GumbelGradient(partners), table, outputs, played, key)
    noisy = outputs + np.asarray(jax.random.gumbel(key, outputs.shape))
    own, relaxed = noisy.argmax(axis=-1), softmax(noisy)
    slopes = own_slopes(table, own if partners == "policy" else played)
    chosen = np.take_along_axis(slopes, own[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(loss, -chosen.sum(axis=-1), atol=1e-5)
    expected = -relaxed * (slopes - (relaxed * slopes).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("update", [GumbelGradient("buffer"), ExpectedGradient("buffer")])
def test_with_partners_from_the_buffer_agents_do_not_see_each_others_parameters(getkey, update):
    table, outputs, played = random_table()
    changed = outputs.copy()
    changed[:, :, 1] += random(BATCH, TIME, ACTIONS, seed=9)
    key = getkey()
    _, before = loss_and_gradient(update, table, outputs, played, key)
    _, after = loss_and_gradient(update, table, changed, played, key)
    np.testing.assert_array_equal(before[:, :, 0], after[:, :, 0])
    assert np.any(before[:, :, 1] != after[:, :, 1])


def test_expected_gradient_is_the_exact_expectation(getkey):
    table, outputs, played = random_table()
    loss, gradient = loss_and_gradient(ExpectedGradient("buffer"), table, outputs, played, getkey())
    policy, slopes = softmax(outputs), own_slopes(table, played)
    np.testing.assert_allclose(loss, -(policy * slopes).sum(axis=(-2, -1)), atol=1e-5)
    expected = -policy * (slopes - (policy * slopes).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_expected_gradient_over_sampled_partners_is_the_joint_expectation(getkey):
    table, outputs, played = random_table()

    @jax.jit
    def gradients(table, outputs, keys):
        given = problem(table, outputs, played)
        return jax.vmap(lambda key: evaluated(ExpectedGradient("policy"), given, key)[1])(keys)

    mean = np.mean(gradients(table, outputs, jax.random.split(getkey(), 4_000)), axis=0)
    first, second = np.moveaxis(softmax(outputs), 2, 0)
    slopes = np.stack([np.einsum("btuv,btv->btu", table, second), np.einsum("btuv,btu->btv", table, first)], axis=2)
    policy = np.stack([first, second], axis=2)
    expected = -policy * (slopes - (policy * slopes).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(mean, expected, atol=0.03)


def test_continuous_gradient_by_hand(getkey):
    """Q = -(a_0 - a_1 - .5)^2 has the slopes -+2 (a_0 - a_1 - .5), through tanh."""
    outputs, played = random(BATCH, TIME, AGENTS, 1, seed=1), np.tanh(random(BATCH, TIME, AGENTS, 1, seed=2))

    def q(joint):
        return -jnp.square(joint[..., 0, 0] - joint[..., 1, 0] - 0.5)

    @jax.jit
    def compute(outputs, played, key):
        given = ActorProblem(outputs, played, jnp.zeros((0, AGENTS, 1)), q=q, q_of_one=q, action_space=Box(1))
        return evaluated(GumbelGradient("buffer"), given, key)[1]

    gradient = np.asarray(compute(outputs, played, getkey()))
    own, other = np.tanh(outputs)[..., 0], played[..., 0]
    slope = np.stack([-2 * (own[..., 0] - other[..., 1] - 0.5), 2 * (other[..., 0] - own[..., 1] - 0.5)], axis=-1)
    np.testing.assert_allclose(gradient[..., 0], -slope * (1 - own**2), atol=1e-5)


def test_expected_gradient_refuses_continuous_actions():
    with pytest.raises(UsageError, match="ExpectedGradient needs discrete actions"):
        ExpectedGradient().check(Box(1))
    for update in (GumbelGradient(), JointImprovement()):
        update.check(Box(1))
        update.check(SPACE)
    ExpectedGradient().check(SPACE)


def test_small_joint_spaces_are_enumerated():
    update = JointImprovement(enumerate_up_to=100)
    assert update.enumerates(Discrete(10), 2)
    assert not update.enumerates(Discrete(11), 2)
    assert not update.enumerates(Discrete(5), 3)
    assert not update.enumerates(Box(1), 1)


def test_joint_improvement_picks_the_best_joint_action():
    table, outputs, played = random_table(seed=4)
    chosen = improve(JointImprovement(margin=0.0), table, outputs, played)
    for b, t in np.ndindex(BATCH, TIME):
        assert tuple(chosen[b, t]) == np.unravel_index(table[b, t].argmax(), (ACTIONS, ACTIONS))


@pytest.mark.parametrize(
    ("advantage", "moves"), [(0.0, False), (0.05, False), (0.0999, False), (0.11, True), (1.0, True)]
)
@pytest.mark.parametrize("update", [JointImprovement(margin=0.1), replace(BARE, margin=0.1)], ids=["all", "pool"])
def test_only_a_clear_gain_replaces_the_greedy_joint_action(update, advantage: float, moves: bool):
    greedy, best = (2, 3), (0, 1)
    table = np.zeros((1, 1, ACTIONS, ACTIONS), np.float32)
    table[0, 0][greedy], table[0, 0][best] = 0.5, 0.5 + advantage
    outputs = 0.01 * np.eye(ACTIONS)[[[greedy]]]
    chosen = improve(update, table, outputs, np.array([[best]]), np.array([best]))
    assert tuple(chosen[0, 0]) == (best if moves else greedy)


def test_ties_never_move_the_team():
    """The eighteen optima of k = 1 are worth the same: whichever is greedy stays, even without a margin."""
    table = np.full((10, 10), 0.5, np.float32)
    table[7, :] = table[:, 7] = 1.0
    table[7, 7] = 0.0
    optima = np.argwhere(table == 1.0)
    outputs = np.eye(10)[optima[None]]
    chosen = improve(JointImprovement(margin=0.0), np.broadcast_to(table, (1, 18, 10, 10)), outputs, optima[None])
    np.testing.assert_array_equal(chosen[0], optima)


def test_joint_improvement_imitates_what_it_chose(getkey):
    table, outputs, played = random_table(seed=6)
    loss, gradient = loss_and_gradient(JointImprovement(margin=0.0), table, outputs, played, getkey())
    chosen = np.eye(ACTIONS)[improve(JointImprovement(margin=0.0), table, outputs, played)]
    policy = softmax(outputs)
    np.testing.assert_allclose(loss, -(chosen * np.log(policy)).sum(axis=(-2, -1)), rtol=1e-4)
    np.testing.assert_allclose(gradient, policy - chosen, atol=1e-5)


def peaked(number: int, peak: tuple[int, int]) -> np.ndarray:
    table = np.zeros((1, 1, number, number), np.float32)
    table[0, 0][peak] = 1.0
    return table


@pytest.mark.parametrize("source", ["played", "pool", "policy", "uniform"])
def test_every_source_of_candidates_is_tried(source: str):
    number, peak, elsewhere = 30, (17, 4), (0, 0)
    played = np.array([[peak if source == "played" else elsewhere]])
    pool = np.array([elsewhere, peak if source == "pool" else elsewhere, elsewhere])
    outputs = np.zeros((1, 1, AGENTS, number), np.float32)
    outputs[..., 0] = 6.0
    if source == "policy":
        outputs[0, 0, [0, 1], list(peak)] = 5.5
    amounts = {"policy": {"num_policy": 100}, "uniform": {"num_uniform": 8_000}}.get(source, {})
    chosen = improve(replace(BARE, **amounts), peaked(number, peak), outputs, played, pool)
    assert tuple(chosen[0, 0]) == peak
    without = improve(BARE, peaked(number, peak), outputs, np.array([[elsewhere]]), np.array([elsewhere] * 3))
    assert tuple(without[0, 0]) == elsewhere


def test_the_pool_serves_every_state():
    """One pool, and each state takes the member that is best there."""
    number = 12
    peaks = actions(BATCH, TIME, AGENTS, seed=3, number=number)
    table = np.zeros((BATCH, TIME, number, number), np.float32)
    for b, t in np.ndindex(BATCH, TIME):
        table[b, t][tuple(peaks[b, t])] = 1.0
    outputs = random(BATCH, TIME, AGENTS, number)
    chosen = improve(BARE, table, outputs, np.zeros((BATCH, TIME, AGENTS), int), peaks.reshape(-1, AGENTS))
    np.testing.assert_array_equal(chosen, peaks)


def continuous(target: np.ndarray, outputs: jax.Array, pool: jax.Array) -> ActorProblem:
    def q(joint):
        return -jnp.sum(jnp.square(joint - jnp.broadcast_to(target, joint.shape)), axis=(-2, -1))

    def q_of_one(joint):
        return jnp.broadcast_to(q(joint), outputs.shape[:2])

    return ActorProblem(outputs, jnp.tanh(outputs), pool, q=q, q_of_one=q_of_one, action_space=Box(1))


def test_continuous_improvement_moves_toward_the_best_candidate(getkey):
    target = np.array([[0.6], [-0.4]], np.float32)
    update = replace(BARE, num_policy=64, num_uniform=2_000, policy_noise=0.3)

    @jax.jit
    def compute(key):
        outputs = jnp.zeros((1, 1, AGENTS, 1))
        sampled = update.improved(continuous(target, outputs, jnp.zeros((1, AGENTS, 1))), key)
        in_pool = continuous(target, outputs, jnp.asarray(target[None]))
        return sampled, BARE.improved(in_pool, key), evaluated(BARE, in_pool, key)

    sampled, chosen, (loss, gradient) = jax.device_get(compute(getkey()))
    np.testing.assert_allclose(sampled[0, 0], target, atol=0.1)
    np.testing.assert_allclose(chosen[0, 0], target)
    np.testing.assert_allclose(loss[0, 0], 0.6**2 + 0.4**2, rtol=1e-5)
    np.testing.assert_allclose(gradient[0, 0], -2 * target, rtol=1e-5)


def test_continuous_improvement_rests_at_the_optimum(getkey):
    target = np.array([[0.6], [-0.4]], np.float32)
    update = replace(BARE, num_policy=16, num_uniform=16, margin=1e-4)

    @jax.jit
    def compute(key):
        given = continuous(target, jnp.arctanh(target)[None, None], jnp.zeros((1, AGENTS, 1)))
        return evaluated(update, given, key)[1]

    np.testing.assert_allclose(compute(getkey()), 0.0, atol=1e-5)


def test_an_empty_pool_is_allowed():
    outputs, nobody = np.zeros((1, 1, AGENTS, 30)), np.zeros((0, AGENTS), int)
    chosen = improve(replace(BARE, num_replay=0), peaked(30, (3, 3)), outputs, np.array([[[3, 3]]]), nobody)
    assert tuple(chosen[0, 0]) == (3, 3)
