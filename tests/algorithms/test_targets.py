"""Formulas, by hand and by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.targets import entropy, one_step_target, straight_through

LOGITS = jnp.array([[0.5, -1.0, 0.2], [2.0, 0.0, 0.0]])


def test_one_step_target():
    target = one_step_target(jnp.array([1.0, 1.0, -2.0]), jnp.array([0.9, 0.0, 0.5]), jnp.array([10.0, 10.0, 4.0]))
    np.testing.assert_allclose(target, [10.0, 1.0, 0.0])


def test_straight_through_is_one_hot_forward(getkey):
    key = getkey()
    sample = straight_through(LOGITS, key)
    chosen = np.argmax(LOGITS + jax.random.gumbel(key, LOGITS.shape), axis=-1)
    np.testing.assert_allclose(sample, np.eye(3)[chosen], atol=1e-6)


def test_straight_through_samples_the_softmax(getkey):
    draws = jax.jit(lambda key: straight_through(jnp.broadcast_to(LOGITS, (20_000, 2, 3)), key))(getkey())
    np.testing.assert_allclose(draws.mean(axis=0), jax.nn.softmax(LOGITS), atol=0.02)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_straight_through_gradient_is_the_relaxed_samples(getkey, temperature: float):
    """Softmax Jacobian at the same noise, times dQ/da at the one-hot."""
    key = getkey()
    slopes = jnp.array([[1.0, -2.0, 0.5], [0.3, 0.7, -0.1]])

    def q(action):
        return jnp.sum(slopes * action) + jnp.sum(action[0]) * jnp.sum(action[1] ** 2)

    gradient = jax.grad(lambda logits: q(straight_through(logits, key, temperature)))(LOGITS)
    noisy = np.asarray(LOGITS + jax.random.gumbel(key, LOGITS.shape))
    slope_at_one_hot = np.asarray(jax.grad(q)(jnp.asarray(np.eye(3)[noisy.argmax(axis=-1)], jnp.float32)))
    for agent in range(2):
        relaxed = np.exp(noisy[agent] / temperature) / np.exp(noisy[agent] / temperature).sum()
        jacobian = (np.diag(relaxed) - np.outer(relaxed, relaxed)) / temperature
        np.testing.assert_allclose(gradient[agent], jacobian @ slope_at_one_hot[agent], atol=1e-5)


def test_entropy():
    np.testing.assert_allclose(entropy(jnp.zeros((2, 4))), np.log([4.0, 4.0]), rtol=1e-6)
    probabilities = np.asarray(jax.nn.softmax(LOGITS))
    np.testing.assert_allclose(entropy(LOGITS), -(probabilities * np.log(probabilities)).sum(axis=-1), rtol=1e-5)
    np.testing.assert_allclose(entropy(jnp.array([1e4, 0.0])), 0.0, atol=1e-6)
