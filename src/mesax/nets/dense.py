"""Feed-forward nets and the layers that all nets are made of."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.types import Key


class Dense(eqx.Module):
    """A linear layer with variance-scaled uniform weights and zero bias."""

    weight: Float[Array, "*batch inputs outputs"]
    bias: Float[Array, "*batch outputs"]

    @staticmethod
    def create(inputs: int, outputs: int, key: Key, gain: float = math.sqrt(2.0)) -> Dense:
        """Weights of variance gain^2 / inputs; the default gain suits ReLU.

        Deviation(uniform-init): the reference code draws orthogonal matrices of the same scale. Their QR
        decompositions tripled the time to compile a run's first step and changed no result we could measure.
        """
        limit = gain * math.sqrt(3.0 / inputs)
        weight = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        return Dense(weight, jnp.zeros(outputs))

    def __call__(self, x: Input) -> Float[Array, " outputs"]:
        """Affine map of one example.

        Parts are multiplied apart: when a critic rates many actions at one observation (or one action at many), `vmap`
        then computes the product of what stays the same only once.
        """
        if not isinstance(x, tuple):
            return x @ self.weight + self.bias
        ends = itertools.accumulate(part.shape[-1] for part in x)
        products = (part @ self.weight[end - part.shape[-1] : end] for part, end in zip(x, ends, strict=True))
        return sum(products, self.bias)


class LayerNorm(eqx.Module):
    """Standardize one example, then scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    @staticmethod
    def create(size: int) -> LayerNorm:
        """Identity scale and shift."""
        return LayerNorm(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Normalize over the features of one example."""
        centered = x - jnp.mean(x)
        return centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered)) + 1e-5) * self.scale + self.shift


class FeedForward(StepByStep[Input]):
    """ReLU layers and a linear head; no memory."""

    layers: tuple[Dense, ...]
    head: Dense
    octaves: int = eqx.field(static=True, default=0)

    def start(self) -> Memory:
        """Feed-forward nets remember nothing."""
        return ()

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """Plain forward pass."""
        if self.octaves:
            x = waves(jnp.concatenate(x) if isinstance(x, tuple) else x, self.octaves)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return memory, self.head(x)


def waves(x: Float[Array, " inputs"], octaves: int) -> Float[Array, " more"]:
    """Inputs with sines and cosines of 1, 2, 4, ... times their value appended: fine detail becomes easy to fit."""
    sines, cosines = [jnp.sin(x)], [jnp.cos(x)]
    for _ in range(octaves - 1):  # double the angle: products instead of new sines, which are slow on a CPU
        sine, cosine = sines[-1], cosines[-1]
        sines.append(2.0 * sine * cosine)
        cosines.append(1.0 - 2.0 * jnp.square(sine))
    return jnp.concatenate([x, *sines, *cosines])


@dataclass(frozen=True)
class Mlp:
    """Feed-forward network."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the ReLU layers."""
    octaves: int = 0
    """Frequencies at which inputs are seen besides themselves: for values that change within a narrow band."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        if any(width < 1 for width in self.hidden):
            raise UsageError(f"every hidden layer needs at least 1 unit, not {self.hidden}")
        if not 0 <= self.octaves <= 16:
            raise UsageError(f"octaves must lie between 0 and 16, not {self.octaves}")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> FeedForward:
        """A fresh net with a linear head of the given gain."""
        *layer_keys, head_key = jax.random.split(key, len(self.hidden) + 1)
        sizes = (inputs * (1 + 2 * self.octaves), *self.hidden)
        layers = tuple(Dense.create(a, b, k) for a, b, k in zip(sizes, sizes[1:], layer_keys, strict=False))
        return FeedForward(layers, Dense.create(sizes[-1], outputs, head_key, head_gain), self.octaves)
