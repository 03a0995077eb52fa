"""Feed-forward nets and the layers that all nets are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.ranges import between, each_at_least
from mesax.types import Key

Products: TypeAlias = Literal["float32", "bfloat16"]
"""What the factors of matrix products are rounded to; they are summed in float32."""
NARROW = 8
"""Outputs of a layer up to which products with many rows take several times too long on a CPU, unless transposed."""


class Dense(eqx.Module):
    """A linear layer with variance-scaled uniform weights and zero bias."""

    weight: Float[Array, "*batch inputs outputs"]
    bias: Float[Array, "*batch outputs"]
    products: Products = eqx.field(static=True, default="float32")

    @staticmethod
    def create(
        inputs: int, outputs: int, key: Key, gain: float = math.sqrt(2.0), products: Products = "float32"
    ) -> Dense:
        """Weights of variance gain^2 / inputs; the default gain suits ReLU.

        Deviation(uniform-init): the reference code draws orthogonal matrices of the same scale. Their QR
        decompositions tripled the time to compile a run's first step and changed no result we could measure.
        """
        limit = gain * math.sqrt(3.0 / inputs)
        weight = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        return Dense(weight, jnp.zeros(outputs), products)

    def __call__(self, x: Input, forms: int = 1) -> Float[Array, "*rows outputs"]:
        """Affine map of one example, or of rows of them.

        Parts are multiplied apart: when a critic rates many actions at one observation (or one action at many), `vmap`
        then computes the product of what stays the same only once. A part may have its inputs in several `forms`, one
        form after another; weights are those of all inputs in the first form, then of all in the second.
        """
        if not isinstance(x, tuple):
            return self.linear(x) + for_rows(self.bias, x)
        inputs, outputs = self.weight.shape
        ends = np.cumsum([part.shape[-1] // forms for part in x])
        shares = jnp.split(self.weight.reshape(forms, inputs // forms, outputs), ends[:-1], axis=1)
        products = (self._times(part, share.reshape(-1, outputs)) for part, share in zip(x, shares, strict=True))
        return sum(products, for_rows(self.bias, x[0]))

    def linear(self, x: Float[Array, "*rows inputs"]) -> Float[Array, "*rows outputs"]:
        """The map without its bias."""
        return self._times(x, self.weight)

    def after(self, norm: LayerNorm) -> Dense:
        """This layer behind a norm, as a layer of what is `standardized`: scale and shift become part of its weights.

        That is a small product, and so are their gradients, in place of passes over all rows.
        """
        return Dense(norm.scale[:, None] * self.weight, self.bias + self.linear(norm.shift), self.products)

    @property
    def turned(self) -> Dense:
        """The same layer; if it is narrow, the gradient of its weights is computed transposed, which is quicker."""
        if self.weight.shape[-1] > NARROW:
            return self
        # The barrier keeps XLA from computing it the other way around after all.
        return Dense(jax.lax.optimization_barrier(self.weight.T).T, self.bias, self.products)

    def _times(self, x: Array, weight: Array) -> Array:
        return jnp.matmul(x, weight) if self.products == "float32" else rounded_product(x, weight)


def for_rows(values: Float[Array, " size"], x: Float[Array, "*rows inputs"]) -> Float[Array, "*rows size"]:
    """The same values for each row of `x`."""
    return jnp.broadcast_to(values, (*x.shape[:-1], *values.shape))


@jax.custom_vjp
def rounded_product(
    x: Float[Array, "*rows inputs"], weight: Float[Array, "inputs outputs"]
) -> Float[Array, "*rows outputs"]:
    """`x @ weight` with factors rounded to bfloat16 and sums in float32, in the gradient of `x` too.

    JAX's own gradient would multiply a rounded factor with one that is not: a product in float32. Give all rows at
    once: under `vmap` over rows, the gradient of `weight` is computed for each row before it is summed.
    """
    return _rounded_product(x, weight)[0]


def _rounded_product(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    # Kept as they are: of rounded numbers along a scan XLA would convert all that were kept so far, at every step.
    return _product_of_rounded(x, weight), (x, weight)


def _rounded_gradients(factors: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = factors
    rows, outer = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    # To lay all rows out for a product of rounded ones would cost what it saves.
    return _product_of_rounded(gradient, transposed_copy(weight)), jnp.matmul(rows.T, outer)


def _product_of_rounded(x: Array, y: Array) -> Array:
    return jnp.matmul(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def transposed_copy(matrix: Float[Array, "rows columns"]) -> Float[Array, "columns rows"]:
    """The transpose, number by number: what XLA knows to be a transpose it multiplies in float32."""
    places = np.arange(matrix.size).reshape(matrix.shape)
    return matrix.reshape(-1)[places.T]


rounded_product.defvjp(_rounded_product, _rounded_gradients)


class LayerNorm(eqx.Module):
    """Standardize an example, then scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    @staticmethod
    def create(size: int) -> LayerNorm:
        """Identity scale and shift."""
        return LayerNorm(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*rows size"]) -> Float[Array, "*rows size"]:
        """Normalize over the features of one example, or of each of several rows."""
        return standardized(x) * for_rows(self.scale, x) + for_rows(self.shift, x)


@jax.custom_vjp
def standardized(x: Float[Array, "*rows size"]) -> Float[Array, "*rows size"]:
    """Every row with mean 0 and variance 1; its gradient takes fewer passes over the rows than JAX's own."""
    return _standardized(x)[0]


def _standardized(x: Array) -> tuple[Array, tuple[Array, Array]]:
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-5)
    return centered * scale, (centered * scale, scale)


def _standardized_gradient(kept: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    y, scale = kept
    along = jnp.mean(gradient * y, axis=-1, keepdims=True)
    return (scale * (gradient - jnp.mean(gradient, axis=-1, keepdims=True) - y * along),)


standardized.defvjp(_standardized, _standardized_gradient)


class FeedForward(StepByStep[Input]):
    """ReLU layers and a linear head; no memory."""

    layers: tuple[Dense, ...]
    """Hidden layers."""
    head: Dense
    """Output layer."""
    octaves: int = eqx.field(static=True, default=0)
    """Frequencies at which inputs are shown as sines and cosines too; 0: none."""

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """Plain forward pass."""
        forms = 1
        if self.octaves:
            x = jax.tree.map(lambda part: waves(part, self.octaves), x)
            forms = num_forms(self.octaves)
        first, *rest = *self.layers, self.head
        x = first(x, forms)
        for layer in rest:
            x = layer(jax.nn.relu(x))
        return memory, x

    def along_batch(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "batch time outputs"]]:
        """All steps of all episodes as the rows of one matrix: the gradient of a weight is then one product too."""
        batch, time = jax.tree.leaves(xs)[0].shape[:2]
        rows = jax.tree.map(lambda part: part.reshape(batch * time, -1), xs)
        return start, self.step((), rows)[1].reshape(batch, time, -1)


def num_forms(octaves: int) -> int:
    """In how many forms `waves` has each input."""
    return 1 + 2 * octaves


def waves(x: Float[Array, "*rows inputs"], octaves: int) -> Float[Array, "*rows more"]:
    """Inputs with sines and cosines of 1, 2, 4, ... times their value appended: fine detail becomes easy to fit."""
    sines, cosines = [jnp.sin(x)], [jnp.cos(x)]
    for _ in range(octaves - 1):  # double the angle: products instead of new sines, which are slow on a CPU
        sine, cosine = sines[-1], cosines[-1]
        sines.append(2.0 * sine * cosine)
        cosines.append(1.0 - 2.0 * jnp.square(sine))
    return jnp.concatenate([x, *sines, *cosines], axis=-1)


@dataclass(frozen=True)
class Mlp:
    """Feed-forward network."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the ReLU layers."""
    octaves: int = 0
    """Frequencies at which inputs are seen besides themselves: for values that change within a narrow band."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        each_at_least(self, 1, "hidden")
        between(self, 0, 16, "octaves")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> FeedForward:
        """A fresh net with a linear head of the given gain."""
        *layer_keys, head_key = jax.random.split(key, len(self.hidden) + 1)
        sizes = (inputs * num_forms(self.octaves), *self.hidden)
        layers = tuple(Dense.create(a, b, k) for a, b, k in zip(sizes, sizes[1:], layer_keys, strict=False))
        return FeedForward(layers, Dense.create(sizes[-1], outputs, head_key, head_gain), self.octaves)
