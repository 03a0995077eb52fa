"""Formulas of reinforcement learning, one function each, written for one example."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.types import Key


def one_step_target(r_t: Float[Array, "..."], discount_t: Float[Array, "..."], v_t: Float[Array, "..."]) -> Array:
    """r_t + discount_t * v_t: the discount, not a done flag, says what may be bootstrapped."""
    return r_t + discount_t * v_t


def straight_through(logits: Float[Array, "... actions"], key: Key, temperature: float = 1.0) -> Array:
    """Gumbel-softmax sample: forward a one-hot of the sampled action, backward the relaxed sample's gradient."""
    noisy = logits + jax.random.gumbel(key, logits.shape)
    relaxed = jax.nn.softmax(noisy / temperature)
    hard = jax.nn.one_hot(jnp.argmax(noisy, axis=-1), logits.shape[-1])
    return relaxed + jax.lax.stop_gradient(hard - relaxed)


def entropy(logits: Float[Array, "... actions"]) -> Float[Array, "..."]:
    """Entropy of a categorical distribution."""
    log_probabilities = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)
