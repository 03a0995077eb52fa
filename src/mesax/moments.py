"""Running means and variances, for whatever comes in unknown units: observations, features, returns."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mesax.types import masked_mean, tree_where

HELD = 2.0**32
"""Batches of moments that no longer move: finite, because a saved policy with an infinity passes for damaged, and
beyond 2^24, where a float32 that is counted up by ones ends."""
COUNTED_BATCHES = ".moments.batches"
"""How their paths end in saved policies; those from before there was `HELD` have an infinity there."""


class Moments(eqx.Module):
    """Mean and variance of every entry of an array, over batches with equal weights: they settle as 1 / batches."""

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    batches: Float[Array, ""]

    @staticmethod
    def create(shape: tuple[int, ...]) -> Moments:
        """Nothing seen yet: values pass as they are."""
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def observe(self, values: Float[Array, "batch time *shape"], mask: Bool[Array, "batch time"]) -> Moments:
        """Mix in the steps `[batch, time]` that really happened; there are some, as every episode has a first step."""
        weights = mask.reshape(*mask.shape, *(1,) * self.mean.ndim).astype(values.dtype)
        total = jnp.maximum(jnp.sum(weights), 1.0)
        share = jnp.where(self.batches >= HELD, 0.0, 1.0 / (self.batches + 1.0))
        mean = jnp.sum(weights * values, axis=(0, 1)) / total
        # Centered, because a mean square minus a squared mean would drown small deviations in rounding.
        variance = jnp.sum(weights * jnp.square(values - mean[None, None]), axis=(0, 1)) / total
        gap = mean - self.mean
        return Moments(
            self.mean + share * gap,
            (1.0 - share) * (self.variance + share * jnp.square(gap)) + share * variance,
            self.batches + 1.0,
        )

    def held(self) -> Moments:
        """The same for good: as if of so many batches that another one moves nothing."""
        return Moments(self.mean, self.variance, jnp.full_like(self.batches, HELD))

    def standardize(self, values: Float[Array, "*shape"], least: float, limit: float) -> Float[Array, "*shape"]:
        """Mean 0 and deviation 1, within +- `limit`; entries that hardly vary are only shifted."""
        std = jnp.sqrt(self.variance)
        scale = jnp.where(std > least, std, 1.0)
        lead = (1,) * (values.ndim - self.mean.ndim)
        centered = values - self.mean.reshape(*lead, *self.mean.shape)
        return jnp.clip(centered / scale.reshape(*lead, *scale.shape), -limit, limit)


class ValueNorm(eqx.Module):
    """Running mean and variance of returns, debiased for their short history."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    weight: Float[Array, ""]

    @staticmethod
    def create() -> ValueNorm:
        """Nothing seen yet."""
        return ValueNorm(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def observe(
        self, returns: Float[Array, "..."], mask: Bool[Array, "..."], decay: float, whole: bool = False
    ) -> ValueNorm:
        """Mix in the moments of a batch; one in which nothing happened changes nothing.

        In a batch of `whole` episodes something has happened, and none need be checked.
        """
        mean, square = masked_mean(returns, mask), masked_mean(jnp.square(returns), mask)
        mixed = ValueNorm(
            decay * self.mean + (1 - decay) * mean,
            decay * self.square + (1 - decay) * square,
            decay * self.weight + (1 - decay),
        )
        return mixed if whole else tree_where(jnp.any(mask), mixed, self)

    def moments(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Debiased mean and standard deviation; (0, 1) before anything was seen."""
        seen = jnp.maximum(self.weight, 1e-8)
        mean, square = self.mean / seen, self.square / seen
        std = jnp.sqrt(jnp.maximum(square - jnp.square(mean), 1e-2))
        return mean, jnp.where(self.weight > 0, std, 1.0)

    def normalize(self, returns: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """To mean 0 and standard deviation 1."""
        mean, std = self.moments()
        return (returns - mean) / std

    def denormalize(self, values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Back to the units of the reward."""
        mean, std = self.moments()
        return values * std + mean
