"""Formulas of reinforcement learning, one function each, written for one example."""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, ScalarLike

from mesax.types import Key

Number: TypeAlias = Float[Array, ""]


def straight_through(
    logits: Float[Array, "*batch actions"], key: Key, temperature: float = 1.0
) -> Float[Array, "*batch actions"]:
    """Gumbel-softmax sample: forward a one-hot of the sampled action, backward the relaxed sample's gradient."""
    noisy = logits + jax.random.gumbel(key, logits.shape)
    relaxed = jax.nn.softmax(noisy / temperature)
    hard = jax.nn.one_hot(jnp.argmax(noisy, axis=-1), logits.shape[-1])
    return relaxed + jax.lax.stop_gradient(hard - relaxed)


def entropy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """Entropy of a categorical distribution."""
    log_probabilities = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)


def clipped_gain(
    change: Float[Array, "*batch"], advantages: Float[Array, "*#batch"], clip: float
) -> tuple[Float[Array, "*batch"], Bool[Array, "*batch"]]:
    """PPO's min(rho A, clip(rho) A), and where it was clipped; `change` is log rho, rho how much likelier an action is.

    Where there is padding `change` must be 0: were rho to overflow there, a weight of 0 would not silence it.
    """
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio * advantages, clipped * advantages), jnp.abs(ratio - 1.0) > clip


def lambda_returns(
    r_t: Float[Array, " time"],
    discount_t: Float[Array, " time"],
    v_t: Float[Array, " time"],
    mixing_t: Float[Array, " time"] | ScalarLike,
) -> Float[Array, " time"]:
    """G_t = r_t + discount_t ((1 - lambda_t) v_t + lambda_t G_{t+1}), v_t the value of the state reached.

    lambda_t is 0 where an episode is cut short (`Episode.goes_on`): what follows there never happened. Along replayed
    data this is uncorrected for who acted: biased for lambda > 0, and quick to carry a rare reward back.
    """

    def step(later: Number, now: tuple[Number, Number, Number, Number]) -> tuple[Number, Number]:
        reward, discount, value, mixing = now
        target = reward + discount * ((1.0 - mixing) * value + mixing * later)
        return target, target

    mixing = jnp.broadcast_to(jnp.asarray(mixing_t, v_t.dtype), v_t.shape)
    return jax.lax.scan(step, v_t[-1], (r_t, discount_t, v_t, mixing), reverse=True)[1]


def generalized_advantages(
    r_t: Float[Array, " time"],
    discount_t: Float[Array, " time"],
    v: Float[Array, " time+1"],
    mixing_t: Float[Array, " time"] | ScalarLike,
) -> Float[Array, " time"]:
    """GAE (Schulman et al. 2016): A_t = delta_t + discount_t lambda_t A_{t+1}."""
    return lambda_returns(r_t, discount_t, v[1:], mixing_t) - v[:-1]


def huber(error: Float[Array, "*shape"], bound: float) -> Float[Array, "*shape"]:
    """Half the square up to `bound`, linear beyond."""
    small = jnp.clip(jnp.abs(error), 0.0, bound)
    return small * (jnp.abs(error) - 0.5 * small)
