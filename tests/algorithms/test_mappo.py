"""MAPPO by hand: distributions, the scale of returns, the first step and clipped ones, padding, minibatches."""

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from scipy.special import log_softmax

from mesax.algorithms.mappo import LOG_STD_RANGE, Actors, Mappo, MappoState, Piece
from mesax.errors import UsageError
from mesax.moments import ValueNorm
from mesax.nets import Adam, Dense, FeedForward, Gru, Mlp, Team, unroll
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Episode, Label
from probes import put

TIME, AGENTS, ACTIONS = 3, 2, 3
SPEC = EnvSpec(AGENTS, 2, Discrete(ACTIONS), TIME)
ONE_STEP = Mappo(
    actor_net=Mlp((4,)),
    critic_net=Mlp((4,)),
    optimizer=Adam(0.01, clip_norm=1e9),
    epochs=1,
    discount=0.9,
    gae=0.8,
    entropy_bonus=0.05,
    norm_decay=0.5,
    final_rate=0.25,
)
SEVERAL = replace(ONE_STEP, epochs=4, minibatches=2, values_of="own")
LENGTHS = np.array([3, 2, 1, 3])
"""Steps of each episode; the last one is cut at the horizon, the others terminate."""

update = jax.jit(
    lambda algorithm, state, batch, elapsed: algorithm.update(SPEC, state, batch, elapsed, jax.random.key(0)),
    static_argnums=0,
)


def fresh(algorithm: Mappo, spec: EnvSpec = SPEC, seed: int = 0) -> MappoState:
    """A learner with weights from NumPy, for which nothing is compiled, and returns of mean 1 and deviation 2."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: algorithm.init(spec, key), jax.random.key(0))

    def weights(tree):
        return jax.tree.map(lambda leaf: put(0.5 * random.normal(size=leaf.shape), jnp.float32), tree)

    def zeros(tree):
        return jax.tree.map(lambda leaf: put(np.zeros(leaf.shape, leaf.dtype)), tree)

    return MappoState(
        replace(shapes.actors, net=weights(shapes.actors.net), optimizer_state=zeros(shapes.actors.optimizer_state)),
        replace(shapes.values, net=weights(shapes.values.net), optimizer_state=zeros(shapes.values.optimizer_state)),
        ValueNorm(put(0.5), put(2.5), put(0.5)),
    )


def episodes(junk: float = 0.0) -> Episode:
    """Four episodes; `junk` is the size of what follows their ends, and decides nothing else."""
    random = np.random.default_rng(1)
    number, time = len(LENGTHS), np.arange(TIME)
    after, later = time[None] >= LENGTHS[:, None], np.arange(TIME + 1)[None] > LENGTHS[:, None]
    ends = (time[None] == LENGTHS[:, None] - 1) & (np.arange(number) < number - 1)[:, None]
    obs = random.normal(size=(number, TIME + 1, AGENTS, 2))
    poison = np.random.default_rng(2)
    return Episode(
        obs=put(np.where(later[..., None, None], junk * poison.normal(size=obs.shape), obs), jnp.float32),
        action=put(random.integers(0, ACTIONS, (number, TIME, AGENTS)), jnp.int32),
        reward=put(
            np.where(after, junk * poison.normal(size=after.shape), random.normal(size=after.shape)), jnp.float32
        ),
        terminated=put(np.where(after, junk > 0, ends)),
        mask=put(~after),
        label=nobody(number),
    )


def nobody(number: int) -> Label:
    """Labels of the learner's own episodes."""
    return Label(put(np.zeros(number, np.int32)), put(np.zeros((number, 0), np.float32)))


def chances(space, outputs: np.ndarray, action: np.ndarray, log_std=()) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of actions and entropies, of actors whose nets say `outputs`."""
    net = FeedForward((), Dense(put(np.zeros((2, space.feature_size))), put(np.zeros(space.feature_size))))
    actors = Actors(Team(net, 1, shared=True), put(log_std, jnp.float32), space)
    compute = jax.jit(lambda outputs, action: (actors.log_probability(outputs, action), actors.entropy(outputs)))
    return jax.device_get(compute(outputs, action))


def test_discrete_probabilities_and_entropy_against_scipy():
    random = np.random.default_rng(0)
    outputs, action = 3.0 * random.normal(size=(5, AGENTS, ACTIONS)), random.integers(0, ACTIONS, (5, AGENTS))
    logs = log_softmax(outputs, axis=-1)
    log_probability, entropy = chances(Discrete(ACTIONS), outputs, action)
    expected = np.take_along_axis(logs, action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(log_probability, expected, rtol=1e-4)
    np.testing.assert_allclose(entropy, scipy.stats.entropy(np.exp(logs), axis=-1), rtol=1e-4)


def test_gaussian_probabilities_and_entropy_against_scipy():
    """Means are squashed, actions are not."""
    random = np.random.default_rng(0)
    outputs, action = random.normal(size=(5, AGENTS, 4)), random.normal(size=(5, AGENTS, 4))
    action[..., 2] = np.tanh(outputs[..., 2]) + 0.01 * random.normal(size=(5, AGENTS))
    gaussian = scipy.stats.norm(np.tanh(outputs), np.exp([-0.7, 0.2, -5.0, 0.47]))
    log_probability, entropy = chances(Box(4), outputs, action, [-0.7, 0.2, -5.0, 0.47])
    np.testing.assert_allclose(log_probability, gaussian.logpdf(action).sum(axis=-1), rtol=1e-4)
    np.testing.assert_allclose(entropy, gaussian.entropy().sum(axis=-1), rtol=1e-5)


@pytest.mark.parametrize("space", [Discrete(3), Box(1)], ids=["discrete", "box"])
def test_behavior_samples_and_greedy_does_not(space):
    """Discrete: shares are the softmax. Box: mean and deviation are those of the Gaussian, beyond the box too."""
    algorithm, spec = replace(ONE_STEP, initial_std=0.5), EnvSpec(AGENTS, 2, space, TIME)
    state, obs = fresh(algorithm, spec), put([[1.0, -0.5], [0.3, 2.0]])
    state = replace(
        state, actors=replace(state.actors, net=replace(state.actors.net, log_std=put([-0.5] * space.feature_size)))
    )

    @jax.jit
    def act(state, keys):
        behavior, greedy = algorithm.behavior(spec, state, Elapsed.at(0.0)), algorithm.greedy(spec, state)
        one = greedy.act(greedy.start(keys[0]), obs, keys[0])[0]
        outputs = state.actors.net.team.step(behavior.start(keys[0]), obs)[1]
        return jax.vmap(lambda key: behavior.act(behavior.start(key), obs, key)[0])(keys), one, outputs

    sampled, greedy, outputs = jax.device_get(act(state, jax.random.split(jax.random.key(0), 4_000)))
    if isinstance(space, Discrete):
        shares = np.stack([np.bincount(column, minlength=3) / len(column) for column in sampled.T])
        np.testing.assert_allclose(shares, np.exp(log_softmax(outputs, axis=-1)), atol=0.03)
        np.testing.assert_array_equal(greedy, outputs.argmax(axis=-1))
        return
    np.testing.assert_allclose(greedy, np.tanh(outputs), rtol=1e-5)
    np.testing.assert_allclose(sampled.mean(axis=0), np.tanh(outputs), atol=0.03)
    np.testing.assert_allclose(sampled.std(axis=0), np.full((AGENTS, 1), np.exp(-0.5)), atol=0.03)
    assert np.abs(sampled).max() > 1.0


FAR = np.array([0.1, 3.0, 0.1, 3.0], np.float32)[:, None, None]
"""How far from the mean each episode's actions are, in deviations."""


@jax.jit
def deviation_after(state: MappoState, limit: jax.Array, sign: jax.Array) -> jax.Array:
    """What a step leaves of the logarithm of a deviation, if far actions are paid for (or near ones: `sign` -1)."""
    algorithm, batch = replace(ONE_STEP, entropy_bonus=0.0), episodes()
    actors = replace(state.actors, net=replace(state.actors.net, log_std=limit[None]))
    obs = batch.obs[:, :-1]
    mean = jnp.tanh(jax.vmap(unroll, in_axes=(None, 0))(actors.net.team, obs))
    action = mean + jnp.exp(limit) * FAR[..., None]
    old_log = actors.net.log_probability(mean, action)
    advantages = jnp.broadcast_to(sign * jnp.where(FAR > 1.0, 1.0, -1.0), old_log.shape)
    zeros = jnp.zeros(old_log.shape)
    piece = Piece(obs, action, batch.mask, old_log, zeros, advantages, zeros, (), ())
    return algorithm._descend(replace(state, actors=actors), piece, Elapsed.at(0.0))[0].actors.net.log_std


@pytest.mark.parametrize("end", [0, 1], ids=["smallest", "largest"])
def test_a_deviation_at_its_limit_can_come_back_and_cannot_go_beyond(end: int):
    """Paid for actions far from the mean, deviations grow; paid for those near it, they shrink."""
    limit, state = LOG_STD_RANGE[end], fresh(ONE_STEP, EnvSpec(AGENTS, 2, Box(1), TIME))
    outward, inward = (
        float(np.asarray(deviation_after(state, limit, sign))[0]) for sign in ((1.0, -1.0) if end else (-1.0, 1.0))
    )
    assert outward == np.float32(limit)
    assert inward - limit == pytest.approx(-0.01 if end else 0.01, rel=0.01), "a whole step of the optimizer"


EMPTY = ValueNorm(*put(np.zeros(3, np.float32)))
observe = jax.jit(ValueNorm.observe, static_argnames=("decay", "whole"))
moments = jax.jit(ValueNorm.moments)
convert = jax.jit(lambda norm, x: (norm.normalize(x), norm.denormalize(x), norm.denormalize(norm.normalize(x))))


def test_value_norm_before_anything_was_seen_changes_nothing():
    norm, values = jax.jit(ValueNorm.create)(), np.array([-3.0, 0.0, 8.0])
    jax.tree.map(np.testing.assert_array_equal, norm, EMPTY)
    assert [float(moment) for moment in moments(norm)] == [0.0, 1.0]
    for converted in convert(norm, values):
        np.testing.assert_array_equal(converted, values)


@pytest.mark.parametrize("decay", [0.99999, 0.5])
def test_value_norm_is_debiased(decay: float):
    """The first batch alone gives the moments, however slowly the memory fills; padding is left out."""
    returns, mask = np.array([[1.0, 5.0, 99.0]]), np.array([[True, True, False]])
    norm = observe(EMPTY, returns, mask, decay=decay)
    np.testing.assert_allclose(moments(norm), [3.0, 2.0], rtol=1e-4)
    again = observe(norm, returns, mask, decay=decay)
    np.testing.assert_allclose(moments(again), [3.0, 2.0], rtol=1e-4)


def test_value_norm_forgets_with_its_decay():
    """Weights 1/4 and 1/2 of moments (0, 0) and (6, 36): mean 4, mean square 24, variance 8."""
    norm = observe(EMPTY, np.zeros(3), np.ones(3, bool), decay=0.5)
    norm = observe(norm, np.full(3, 6.0), np.ones(3, bool), decay=0.5)
    np.testing.assert_allclose(moments(norm), [4.0, np.sqrt(8.0)], rtol=1e-6)


def test_value_norm_has_a_least_deviation():
    norm = observe(EMPTY, np.full(3, 2.0), np.ones(3, bool), decay=0.9)
    np.testing.assert_allclose(moments(norm), [2.0, 0.1], rtol=1e-4)


def test_a_batch_in_which_nothing_happened_leaves_the_norm_alone():
    norm = observe(EMPTY, np.array([1.0, 2.0, 7.0]), np.ones(3, bool), decay=0.9)
    for known in (norm, EMPTY):
        after = observe(known, np.full(3, 99.0), np.zeros(3, bool), decay=0.9)
        jax.tree.map(np.testing.assert_array_equal, after, known)
    some = (np.array([1.0, 5.0, 2.0]), np.array([True, False, False]))
    plain, whole = (observe(norm, *some, decay=0.9, whole=whole) for whole in (False, True))
    jax.tree.map(np.testing.assert_array_equal, plain, whole)


def test_value_norm_and_back():
    norm = observe(EMPTY, np.array([1.0, 2.0, 7.0]), np.ones(3, bool), decay=0.9)
    values = np.array([-10.0, 0.0, 10 / 3], np.float32)
    normalized, _, back = convert(norm, values)
    np.testing.assert_allclose(back, values, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(normalized)[2], 0.0, atol=1e-5)


def advantages_by_hand(batch: Episode, values: np.ndarray, discount: float, mixing: float) -> np.ndarray:
    """Sums of temporal differences, step by step, agent by agent."""
    batch = jax.device_get(batch)
    advantages = np.zeros(values[:, :-1].shape)
    for env, start in np.argwhere(batch.mask):
        weight = 1.0
        for time in range(start, LENGTHS[env]):
            goes_on = 1.0 - float(batch.terminated[env, time])
            reached = discount * goes_on * values[env, time + 1]
            advantages[env, start] += weight * (float(batch.reward[env, time]) + reached - values[env, time])
            weight *= discount * mixing * goes_on
    return advantages


def momentum(trainable):
    """Adam's first moment after one step is a tenth of the gradient."""
    moment = optax.tree_utils.tree_get(trainable.optimizer_state, "mu")
    return jax.tree.map(lambda leaf: 10.0 * np.asarray(leaf), moment)


def assert_close(left, right, atol: float = 1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=atol), left, right)


def test_the_first_step_is_the_plain_policy_gradient():
    """No ratio has left 1: nothing is clipped, and the step climbs A log pi + bonus H, A standardized over steps."""
    state, batch = fresh(ONE_STEP), episodes(junk=50.0)
    after, metrics = update(ONE_STEP, state, batch, Elapsed.at(0.0))
    happened = np.asarray(batch.mask)

    @jax.jit
    def outputs_of(state):
        return jax.vmap(lambda obs: unroll(state.values.net, obs.reshape(TIME + 1, -1))[:, 0])(batch.obs)

    normalized = np.repeat(np.asarray(outputs_of(state))[..., None], AGENTS, axis=2)
    values = 2.0 * normalized + 1.0
    advantages = advantages_by_hand(batch, values, 0.9, 0.8)
    returns = (advantages + values[:, :-1])[happened]
    standard = advantages[happened]
    standard = (standard - standard.mean()) / (standard.std() + 1e-5)

    def actor_loss(actors):
        outputs = jax.vmap(unroll, in_axes=(None, 0))(actors.team, batch.obs[:, :-1])[happened]
        log = jax.nn.log_softmax(outputs)
        chosen = jnp.take_along_axis(log, np.asarray(batch.action)[happened][..., None], axis=-1)[..., 0]
        entropy = -jnp.sum(jnp.exp(log) * log, axis=-1)
        return -jnp.mean(chosen * standard) - 0.05 * jnp.mean(entropy), jnp.mean(entropy)

    # The memory of returns held mean 1 and square 5 with weight 1/2; half of it stays, and half of the new comes in.
    mean = (0.25 * 1.0 + 0.5 * returns.mean()) / 0.75
    square = (0.25 * 5.0 + 0.5 * np.square(returns).mean()) / 0.75
    target = (returns - mean) / np.sqrt(square - mean**2)

    def value_loss(net):
        values = jax.vmap(lambda obs: unroll(net, obs.reshape(TIME + 1, -1))[:, 0])(batch.obs)[:, :-1][happened]
        return jnp.mean(0.5 * jnp.square(values[:, None] - target))

    compute = jax.jit(lambda actors, net: (jax.grad(actor_loss, has_aux=True)(actors), jax.grad(value_loss)(net)))
    (gradient, entropy), of_values = compute(state.actors.net, state.values.net)
    assert_close(momentum(after.actors), gradient)
    assert_close(momentum(after.values), of_values)
    np.testing.assert_allclose(moments(after.norm), [mean, np.sqrt(square - mean**2)], rtol=1e-4)
    assert float(metrics["clipped"]) == 0.0
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
    # Standardized advantages have mean 0: at ratios of 1 the loss is the entropy bonus alone.
    np.testing.assert_allclose(metrics["actor_loss"], -0.05 * float(entropy), atol=1e-5)


def test_where_nothing_is_paid_advantages_stay_small():
    """They are divided by their deviation, or by the least one if that is larger."""

    @partial(jax.jit, static_argnums=0)
    def advantages(algorithm, state, batch):
        return algorithm._pieces(SPEC, state, batch, Elapsed.at(0.0)).advantages

    state, batch = fresh(ONE_STEP), episodes()
    usual = advantages(ONE_STEP, state, batch)[batch.mask]
    np.testing.assert_allclose(np.std(usual), 1.0, rtol=1e-3)
    held = advantages(replace(ONE_STEP, least_deviation=100.0), state, batch)[batch.mask]
    ratio = np.asarray(held) / np.asarray(usual)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)
    assert np.std(held) < 0.5
    np.testing.assert_allclose(
        advantages(replace(ONE_STEP, least_deviation=1e-9), state, batch)[batch.mask], usual, rtol=1e-6
    )


def test_a_bonus_that_is_valued_apart_by_hand():
    """It has a head and a discount of its own, and goes on at a fresh start where the task ends."""
    spec = replace(SPEC, bonus_discount=0.5)
    batch, random = episodes(junk=50.0), np.random.default_rng(4)
    happened, ends = np.asarray(batch.mask), np.asarray(batch.terminated)
    batch = replace(batch, bonus=put(np.where(happened, random.random(happened.shape), 0.0), jnp.float32))
    state = replace(fresh(ONE_STEP, spec), bonus_norm=EMPTY)

    @jax.jit
    def pieces(state):
        own = ONE_STEP._pieces(spec, state, batch, Elapsed.at(0.0))
        after, _ = ONE_STEP.update(spec, state, batch, Elapsed.at(0.0), jax.random.key(0))
        return own, ONE_STEP.heads(state.values.net, batch.obs)[1], after

    piece, (of_reward, of_bonus), after = jax.device_get(pieces(state))
    bonus = np.asarray(batch.bonus)
    fresh_start = of_bonus[:, 0].mean(axis=0)
    returns = np.zeros((*happened.shape, AGENTS))
    for env, time in np.argwhere(happened)[::-1]:
        reached = fresh_start if ends[env, time] else of_bonus[env, time + 1]
        if time + 1 < LENGTHS[env]:
            reached = 0.2 * reached + 0.8 * returns[env, time + 1]
        returns[env, time] = bonus[env, time] + 0.5 * reached
    np.testing.assert_allclose(piece.bonus.returns[happened], returns[happened], rtol=1e-4)
    np.testing.assert_array_equal(piece.bonus.old_values, of_bonus[:, :-1])
    both = advantages_by_hand(batch, 2.0 * of_reward + 1.0, 0.9, 0.8) + returns - of_bonus[:, :-1]
    standard = both[happened]
    standard = (standard - standard.mean()) / (standard.std() + 1e-5)
    np.testing.assert_allclose(piece.advantages[happened], standard, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(moments(after.bonus_norm)[0], returns[happened].mean(), rtol=1e-4)
    # Both heads learn: the loss is the sum of theirs.
    assert np.all(np.any(momentum(after.values).head.weight, axis=0))


def going_on_at_a_fresh_start() -> Episode:
    """Episodes whose task is over, as a reward model tells of them that has no ends."""
    batch = jax.device_get(episodes())
    after = np.where(batch.terminated[..., None, None], batch.obs[:, :1], batch.obs[:, 1:])
    obs = put(np.concatenate([batch.obs[:, :1], after], axis=1))
    never = put(np.zeros_like(batch.terminated))
    return replace(episodes(), obs=obs, terminated=never, restarted=put(batch.terminated))


@pytest.mark.parametrize("values_of", ["joint", "own"])
def test_a_fresh_start_is_valued_with_a_fresh_memory(values_of: str):
    """Of a last step: reward + discount V(o_0; h_0), and not the same observation at the memory of the episode."""
    algorithm = replace(ONE_STEP, critic_net=Gru(4, 1), values_of=values_of)
    batch = going_on_at_a_fresh_start()

    @jax.jit
    def read(state):
        pieces = algorithm._pieces(SPEC, state, batch, Elapsed.at(0.0))
        return pieces.returns, algorithm.heads(state.values.net, batch.obs)[1][0]

    returns, normalized = jax.device_get(read(fresh(algorithm)))
    values, number = 2.0 * normalized + 1.0, np.arange(len(LENGTHS))
    last = np.asarray(batch.reward)[number, LENGTHS - 1]
    reached = np.where(number[:, None] < 3, values[:, 0], values[:, -1])
    np.testing.assert_allclose(returns[number, LENGTHS - 1], last[:, None] + 0.9 * reached, rtol=1e-4)
    assert not np.allclose(values[0, -1], values[0, 0], atol=1e-3), "the memory matters here"


def test_a_net_without_memory_need_not_be_told_of_fresh_starts():
    """Its numbers are the same, bit for bit."""
    batch = going_on_at_a_fresh_start()
    read = jax.jit(lambda state, batch: ONE_STEP._pieces(SPEC, state, batch, Elapsed.at(0.0)))
    told, untold = (jax.device_get(read(fresh(ONE_STEP), one)) for one in (batch, replace(batch, restarted=None)))
    jax.tree.map(np.testing.assert_array_equal, told, untold)


def test_clipped_ratios_and_values_by_hand():
    """A ratio beyond the clip teaches only what leads back; a value beyond it only if the loss there is the larger."""
    state, batch = fresh(ONE_STEP), episodes()
    random, shape = np.random.default_rng(3), (len(LENGTHS), TIME, AGENTS)
    ratio = random.choice([0.5, 0.9, 1.1, 1.5], shape)
    advantages, returns, old_values = (random.normal(size=shape).astype(np.float32) for _ in range(3))

    @jax.jit
    def descend(state):
        outputs = jax.vmap(unroll, in_axes=(None, 0))(state.actors.net.team, batch.obs[:, :-1])
        log = state.actors.net.log_probability(outputs, batch.action)
        values = ONE_STEP.heads(state.values.net, batch.obs)[1][0][:, :-1]
        played = (batch.obs[:, :-1], batch.action, batch.mask, log - jnp.log(ratio))
        piece = Piece(*played, put(old_values), put(advantages), put(returns), (), ())
        return values, ONE_STEP._descend(state, piece, Elapsed.at(1.0))

    happened = np.asarray(batch.mask)
    counts = np.where(advantages > 0, ratio < 1.2, ratio > 0.8) & happened[..., None]
    slope = np.where(counts, ratio * advantages, 0.0) / (happened.sum() * AGENTS)

    def plain(actors):
        outputs = jax.vmap(unroll, in_axes=(None, 0))(actors.team, batch.obs[:, :-1])
        entropy = jnp.sum(actors.entropy(outputs) * happened[..., None]) / (happened.sum() * AGENTS)
        return -jnp.sum(slope * actors.log_probability(outputs, batch.action)) - 0.05 * entropy

    values, (after, metrics) = jax.device_get(descend(state))
    assert_close(momentum(after.actors), jax.jit(jax.grad(plain))(state.actors.net))
    outside = np.isin(ratio, [0.5, 1.5])[happened].mean()
    np.testing.assert_allclose(metrics["clipped"], outside, rtol=1e-5)
    mean, deviation = map(np.asarray, moments(after.norm))
    errors = [
        values - (returns - mean) / deviation
        for values in (values, old_values + np.clip(values - old_values, -0.2, 0.2))
    ]
    losses = np.maximum(*(0.5 * np.square(error) for error in errors))
    np.testing.assert_allclose(metrics["critic_loss"], losses[happened].mean(), rtol=1e-4)


@pytest.mark.parametrize("junk", [1.0, 50.0, 1e4])
def test_padding_has_no_influence(junk: float):
    """What follows an end differs in size between the batches, by a lot: over several epochs it must not matter."""
    state = fresh(SEVERAL)
    plain, metrics = update(SEVERAL, state, episodes(), Elapsed.at(0.0))
    poisoned, same = update(SEVERAL, state, episodes(junk), Elapsed.at(0.0))
    assert_close((poisoned, same), (plain, metrics), atol=1e-6)
    assert all(np.isfinite(value) for value in metrics.values())


def test_the_rate_falls_to_its_final_share():
    state, batch = fresh(ONE_STEP), episodes()
    steps = []
    for progress in (0.0, 0.5, 1.0):
        after, _ = update(ONE_STEP, state, batch, Elapsed.at(progress))
        nets = ((learner.actors.net, learner.values.net) for learner in (after, state))
        steps.append(jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), *nets))
    for net in steps[0]:
        assert max(np.abs(leaf).max(initial=0.0) for leaf in jax.tree.leaves(net)) == pytest.approx(0.01, rel=0.01)
    for share, step in zip((0.625, 0.25), steps[1:], strict=True):
        assert_close(step, jax.tree.map(lambda leaf, share=share: share * leaf, steps[0]), atol=1e-7)


def test_an_epoch_learns_from_every_episode_once():
    """Four episodes in minibatches of one: what the scale of returns remembers tells their order, and all came."""
    spec = EnvSpec(AGENTS, 2, Discrete(2), 1)
    algorithm = replace(ONE_STEP, actor_net=Mlp(()), critic_net=Mlp(()), minibatches=4)
    state, number = fresh(algorithm, spec), 4
    state = replace(state, norm=EMPTY)
    rewards = np.array([1.0, 10.0, 100.0, 1000.0], np.float32)
    batch = Episode(
        put(np.ones((number, 2, AGENTS, 2))),
        put(np.zeros((number, 1, AGENTS), np.int32)),
        put(rewards[:, None]),
        put(np.ones((number, 1), bool)),
        put(np.ones((number, 1), bool)),
        nobody(number),
    )
    run = jax.jit(lambda key: algorithm.update(spec, state, batch, Elapsed.at(0.0), key)[0].norm)
    weights, orders = 0.5 ** np.arange(4, 0, -1), set()
    for seed in range(6):
        norm = jax.device_get(run(jax.random.key(seed)))
        assert float(norm.weight) == 1 - 0.5**4
        fitting = [
            order
            for order in itertools.permutations(range(4))
            if abs(weights @ rewards[list(order)] - norm.mean) < 1e-4
        ]
        assert len(fitting) == 1
        orders.add(fitting[0])
    assert len(orders) > 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 10])
def test_nets_without_memory_do_not_see_how_episodes_are_cut(chunk: int):
    """One minibatch of all pieces is one minibatch of all episodes, whether or not pieces divide the horizon."""
    state = fresh(ONE_STEP)
    whole, metrics = update(ONE_STEP, state, episodes(), Elapsed.at(0.0))
    cut, same = update(replace(ONE_STEP, chunk=chunk), state, episodes(), Elapsed.at(0.0))
    assert_close(whole, cut)
    assert_close(metrics, same)


@pytest.mark.parametrize("values_of", ["joint", "own"])
def test_a_piece_starts_from_the_memory_that_played(values_of: str):
    """At the old weights every piece says what whole episodes say; only gradients do not pass between pieces."""
    whole = replace(ONE_STEP, actor_net=Gru(4, 1), critic_net=Gru(4, 1), values_of=values_of)
    cut = replace(whole, chunk=2)

    @jax.jit
    def read(state):
        one, many = (algorithm._pieces(SPEC, state, episodes(), Elapsed.at(0.0)) for algorithm in (whole, cut))
        assert (len(one.mask), len(many.mask)) == (4, 8)
        actors = state.actors.net
        outputs = jax.vmap(unroll, in_axes=(None, 0, 0))(actors.team, many.obs, many.actor_memory)
        forgetful = jax.vmap(unroll, in_axes=(None, 0))(actors.team, many.obs)
        values = cut.heads(state.values.net, many.obs, many.value_memory)[1][0]
        _, told = cut.update(SPEC, state, episodes(), Elapsed.at(0.0), jax.random.key(0))
        return many, outputs, forgetful, actors.log_probability(outputs, many.action), values, told

    many, outputs, forgetful, log, values, told = jax.device_get(read(fresh(whole)))
    happened = many.mask
    assert happened.sum() == LENGTHS.sum()
    np.testing.assert_allclose(log[happened], many.old_log[happened], atol=1e-5)
    np.testing.assert_allclose(values[happened], many.old_values[happened], atol=1e-5)
    assert float(told["clipped"]) == 0.0
    assert not np.allclose(forgetful[happened], outputs[happened], atol=1e-4)


def test_a_chunk_has_steps():
    with pytest.raises(UsageError, match="chunk must be at least 1, not 0"):
        Mappo(chunk=0)


def test_more_minibatches_than_episodes_are_refused():
    algorithm = replace(ONE_STEP, minibatches=5)
    with pytest.raises(UsageError, match="5 minibatches need at least as many pieces of episodes, not 4"):
        jax.eval_shape(
            lambda state: algorithm.update(SPEC, state, episodes(), Elapsed.at(0.0), jax.random.key(0)),
            fresh(algorithm),
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"minibatches": 0}, "minibatches must be at least 1, not 0"),
        ({"discount": 1.5}, "discount must lie between 0 and 1, not 1.5"),
        ({"gae": -0.1}, "gae must lie between 0 and 1"),
        ({"least_deviation": -0.1}, "least-deviation must be at least 0"),
        ({"clip": 0.0}, "clip must be above 0, not 0.0"),
        ({"initial_std": 0.0}, "initial-std must be above 0, not 0.0"),
        ({"norm_decay": 2.0}, "norm-decay must lie between 0 and 1, not 2.0"),
        ({"huber": -1.0}, "huber must be above 0, not -1.0"),
        ({"initial_std": 0.001}, r"initial-std must lie between 0\.0067 and 1\.6, not 0\.001"),
        ({"initial_std": 1.7}, r"initial-std must lie between 0\.0067 and 1\.6, not 1\.7"),
    ],
)
def test_impossible_settings(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        Mappo(**settings)


@pytest.mark.parametrize("net", [Mlp((4,)), Gru(4, num_layers=1)], ids=["mlp", "gru"])
@pytest.mark.parametrize("space", [Discrete(3), Box(2)], ids=["discrete", "box"])
@pytest.mark.parametrize(("values_of", "inputs"), [("joint", 2 * 5), ("own", 5 + 2)])
def test_shapes(net, space, values_of, inputs: int):
    """Joint values see both observations, own ones an observation and who it belongs to; each agent has a value."""
    algorithm, spec = Mappo(net, net, share_actors=False, values_of=values_of), EnvSpec(AGENTS, 5, space, TIME)
    state = jax.eval_shape(lambda key: algorithm.init(spec, key), jax.random.key(0))
    assert state.actors.net.team.nets.head.weight.shape == (AGENTS, 4, space.feature_size)
    assert state.actors.net.log_std.shape == ((0,) if isinstance(space, Discrete) else (2,))
    critic = state.values.net.nets if values_of == "own" else state.values.net
    first = critic.layers[0] if isinstance(net, Mlp) else critic.layers[0][0]
    assert (first.weight.shape, critic.head.weight.shape) == ((inputs, 4), (4, 1))
    obs = jax.ShapeDtypeStruct((3, TIME + 1, AGENTS, 5), jnp.float32)
    assert jax.eval_shape(algorithm.heads, state.values.net, obs)[1][0].shape == (3, TIME + 1, AGENTS)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(state))


def test_joint_values_are_the_same_for_all_agents_and_own_ones_are_not():
    for values_of, same in [("joint", True), ("own", False)]:
        algorithm = replace(ONE_STEP, values_of=values_of)
        net, obs = fresh(algorithm).values.net, episodes().obs
        first, second = np.moveaxis(np.asarray(jax.jit(algorithm.heads)(net, obs)[1][0]), -1, 0)
        assert np.array_equal(first, second) == same
