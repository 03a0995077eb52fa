"""Formulas, by hand and by brute force."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy.special import softmax

from mesax.algorithms.targets import (
    clipped_gain,
    entropy,
    generalized_advantages,
    huber,
    lambda_returns,
    straight_through,
)
from probes import put

LOGITS = put([[0.5, -1.0, 0.2], [2.0, 0.0, 0.0]])


def test_straight_through_is_one_hot_forward(getkey):
    compute = jax.jit(lambda key: (straight_through(LOGITS, key), LOGITS + jax.random.gumbel(key, LOGITS.shape)))
    sample, noisy = jax.device_get(compute(getkey()))
    chosen = np.argmax(noisy, axis=-1)
    np.testing.assert_allclose(sample, np.eye(3)[chosen], atol=1e-6)


def test_straight_through_samples_the_softmax(getkey):
    draws = jax.jit(lambda key: straight_through(jnp.broadcast_to(LOGITS, (20_000, 2, 3)), key))(getkey())
    np.testing.assert_allclose(np.mean(draws, axis=0), softmax(LOGITS, axis=-1), atol=0.02)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_straight_through_gradient_is_the_relaxed_samples(getkey, temperature: float):
    """Softmax Jacobian at the same noise, times dQ/da at the one-hot."""
    slopes = put([[1.0, -2.0, 0.5], [0.3, 0.7, -0.1]])

    def q(action):
        return jnp.sum(slopes * action) + jnp.sum(action[0]) * jnp.sum(action[1] ** 2)

    @jax.jit
    def compute(key):
        gradient = jax.grad(lambda logits: q(straight_through(logits, key, temperature)))(LOGITS)
        noisy = LOGITS + jax.random.gumbel(key, LOGITS.shape)
        return gradient, noisy, jax.grad(q)(jnp.eye(3)[jnp.argmax(noisy, axis=-1)])

    gradient, noisy, slope_at_one_hot = jax.device_get(compute(getkey()))
    for agent in range(2):
        relaxed = np.exp(noisy[agent] / temperature) / np.exp(noisy[agent] / temperature).sum()
        jacobian = (np.diag(relaxed) - np.outer(relaxed, relaxed)) / temperature
        np.testing.assert_allclose(gradient[agent], jacobian @ slope_at_one_hot[agent], atol=1e-5)


def test_clipped_gain_by_hand():
    """A gain stops counting where it has gone far enough; a loss counts on, so that it can be undone."""
    ratio = np.array([1.5, 1.5, 0.5, 0.5, 1.1])
    advantages = np.array([2.0, -2.0, 2.0, -2.0, 3.0])
    gain, clipped = clipped_gain(put(np.log(ratio), jnp.float32), put(advantages, jnp.float32), 0.2)
    np.testing.assert_allclose(gain, [2.4, -3.0, 1.0, -1.6, 3.3], rtol=1e-6)
    assert clipped.tolist() == [True, True, True, True, False]


def test_entropy():
    even, some, certain = jax.jit(lambda *given: [entropy(logits) for logits in given])(
        np.zeros((2, 4)), LOGITS, np.array([1e4, 0.0])
    )
    np.testing.assert_allclose(even, np.log([4.0, 4.0]), rtol=1e-6)
    probabilities = softmax(LOGITS, axis=-1)
    np.testing.assert_allclose(some, -(probabilities * np.log(probabilities)).sum(axis=-1), rtol=1e-5)
    np.testing.assert_allclose(certain, 0.0, atol=1e-6)


TIME = 4
returns_of = jax.jit(lambda_returns)
advantages_of = jax.jit(generalized_advantages)


def trajectory(seed: int, ends: list[bool]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, discounts that vanish where a task is over, and the values of all states, the first included."""
    random = np.random.default_rng(seed)
    discounts = np.where(ends, 0.0, random.uniform(0.3, 1.0, TIME))
    return random.normal(size=TIME), discounts, random.normal(size=TIME + 1)


def n_step(rewards: np.ndarray, discounts: np.ndarray, reached: np.ndarray, start: int, steps: int) -> float:
    """r_t + d_t r_{t+1} + ... + d_t ... d_{t+n-1} v: a sum without recursion."""
    now = range(start, start + steps)
    paid = sum(np.prod(discounts[start:time]) * rewards[time] for time in now)
    return float(paid + np.prod(discounts[start : start + steps]) * reached[start + steps - 1])


def test_lambda_returns_by_hand():
    """Backward: 3 + .5 * 8 = 7; 2, the task is over; 1 + .5 (.75 * 10 + .25 * 2) = 5."""
    returns = returns_of(put([1.0, 2.0, 3.0]), put([0.5, 0.0, 0.5]), put([10.0, 99.0, 8.0]), 0.25)
    np.testing.assert_allclose(returns, [5.0, 2.0, 7.0], rtol=1e-6)


@given(st.integers(0, 1_000), st.lists(st.booleans(), min_size=TIME, max_size=TIME), st.floats(0.0, 1.0))
def test_lambda_returns_are_the_mixture_of_all_n_step_returns(seed: int, ends: list[bool], mixing: float):
    rewards, discounts, values = trajectory(seed, ends)
    reached, expected = values[1:], []
    for start in range(TIME):
        longest = TIME - start
        weights = [(1 - mixing) * mixing ** (n - 1) for n in range(1, longest)] + [mixing ** (longest - 1)]
        mixed = [n_step(rewards, discounts, reached, start, n) for n in range(1, longest + 1)]
        expected.append(np.dot(weights, mixed))
    np.testing.assert_allclose(returns_of(rewards, discounts, reached, mixing), expected, rtol=1e-4, atol=1e-5)


def test_without_mixing_returns_are_one_step_targets():
    rewards, discounts, values = trajectory(1, [False] * TIME)
    expected = rewards + discounts * values[1:]
    np.testing.assert_allclose(returns_of(rewards, discounts, values[1:], 0.0), expected, rtol=1e-6)


def test_with_full_mixing_returns_are_discounted_sums_and_the_last_value():
    rewards, discounts, values = trajectory(2, [False] * TIME)
    expected = [n_step(rewards, discounts, values[1:], start, TIME - start) for start in range(TIME)]
    np.testing.assert_allclose(returns_of(rewards, discounts, values[1:], 1.0), expected, rtol=1e-5)


@pytest.mark.parametrize("mixing", [0.0, 0.7, 1.0])
def test_nothing_beyond_a_termination_counts(mixing: float):
    rewards, discounts, values = trajectory(3, [False, True, False, False])
    poisoned_rewards, poisoned_values = rewards.copy(), values.copy()
    poisoned_rewards[2:], poisoned_values[2:] = 1e3, -1e3
    plain = np.asarray(returns_of(rewards, discounts, values[1:], mixing))
    poisoned = np.asarray(returns_of(poisoned_rewards, discounts, poisoned_values[1:], mixing))
    np.testing.assert_array_equal(plain[:2], poisoned[:2])
    np.testing.assert_allclose(plain[1], rewards[1], rtol=1e-6)


@pytest.mark.parametrize("mixing", [0.0, 0.7, 1.0])
def test_a_cut_episode_is_bootstrapped_and_nothing_beyond_the_cut_counts(mixing: float):
    """Cut after two of four steps: the second step's return is its reward and the value of the state it reached."""
    rewards, discounts, values = trajectory(4, [False] * TIME)
    goes_on = np.array([True, False, True, False])
    poisoned_rewards, poisoned_values = rewards.copy(), values.copy()
    poisoned_rewards[2:], poisoned_values[3:] = 1e3, -1e3
    found = np.asarray(returns_of(poisoned_rewards, discounts, poisoned_values[1:], mixing * goes_on))
    np.testing.assert_allclose(found[1], rewards[1] + discounts[1] * values[2], rtol=1e-5)
    shorter = returns_of(rewards[:2], discounts[:2], values[1:3], mixing)
    np.testing.assert_allclose(found[:2], shorter, rtol=1e-5)


@given(st.integers(0, 1_000), st.lists(st.booleans(), min_size=TIME, max_size=TIME), st.floats(0.0, 1.0))
def test_advantages_are_discounted_sums_of_temporal_differences(seed: int, ends: list[bool], mixing: float):
    rewards, discounts, values = trajectory(seed, ends)
    delta = rewards + discounts * values[1:] - values[:-1]
    expected = [
        sum(np.prod(mixing * discounts[start:time]) * delta[time] for time in range(start, TIME))
        for start in range(TIME)
    ]
    np.testing.assert_allclose(advantages_of(rewards, discounts, values, mixing), expected, rtol=1e-4, atol=1e-5)


def test_huber_is_half_a_square_and_then_a_line():
    """Beyond 2: 2 (|e| - 1). The slope is the error, held within the bound."""
    errors = put([0.0, 0.5, -1.0, 2.0, -3.0, 10.0])
    of_one = jax.value_and_grad(lambda error: huber(error, 2.0))
    losses, slopes = jax.jit(jax.vmap(of_one))(errors)
    np.testing.assert_allclose(losses, [0.0, 0.125, 0.5, 2.0, 4.0, 18.0], rtol=1e-6)
    np.testing.assert_allclose(slopes, [0.0, 0.5, -1.0, 2.0, -2.0, 2.0], rtol=1e-6)
