"""Running means and variances, for whatever comes in unknown units: observations, features, returns."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Moments(eqx.Module):
    """Mean and variance of every entry of an array, over batches with equal weights: they settle as 1 / batches."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    batches: Float[Array, ""]

    @staticmethod
    def create(shape: tuple[int, ...]) -> Moments:
        """Nothing seen yet: values pass as they are."""
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def observe(self, values: Float[Array, "batch time ..."], mask: Array) -> Moments:
        """Mix in the steps `[batch, time]` that really happened."""
        weights = mask.reshape(*mask.shape, *(1,) * self.mean.ndim).astype(values.dtype)
        total = jnp.maximum(jnp.sum(weights), 1.0)
        share = 1.0 / (self.batches + 1.0)
        mean = jnp.sum(weights * values, axis=(0, 1)) / total
        # Centered, because a mean square minus a squared mean would drown small deviations in rounding.
        variance = jnp.sum(weights * jnp.square(values - mean[None, None]), axis=(0, 1)) / total
        gap = mean - self.mean
        return Moments(
            self.mean + share * gap,
            (1.0 - share) * (self.variance + share * jnp.square(gap)) + share * variance,
            self.batches + 1.0,
        )

    def standardize(self, values: Float[Array, "..."], least: float, limit: float) -> Array:
        """Mean 0 and deviation 1, within +- `limit`; entries that hardly vary are only shifted."""
        std = jnp.sqrt(self.variance)
        scale = jnp.where(std > least, std, 1.0)
        lead = (1,) * (values.ndim - self.mean.ndim)
        centered = values - self.mean.reshape(*lead, *self.mean.shape)
        return jnp.clip(centered / scale.reshape(*lead, *scale.shape), -limit, limit)
