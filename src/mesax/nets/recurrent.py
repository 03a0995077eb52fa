"""Recurrent nets: a GRU over whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.nets.dense import Dense, LayerNorm, Products, for_rows, standardized
from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.ranges import at_least
from mesax.store.settings import added
from mesax.types import Key


class Recurrent(StepByStep[Input]):
    """LayerNorm-MLP, one GRU layer, LayerNorm, linear head: the paper's network."""

    norm_in: LayerNorm
    layers: tuple[tuple[Dense, LayerNorm], ...]
    gates_in: Dense
    gates_hidden: Dense
    norm_out: LayerNorm
    head: Dense

    def start(self) -> Memory:
        """Zero hidden state."""
        return jnp.zeros(self.norm_out.scale.shape[-1])

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """One GRU step on embedded input."""
        memory = self.advance(memory, self.to_gates(self.embed(x)))
        return memory, self.read(memory)

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time outputs"]]:
        """All that does not depend on the memory is computed for the whole episode at once."""
        after, outputs = self.along_rows(start[None], jax.tree.map(lambda part: part[:, None], xs))
        return after[:, 0], outputs[:, 0]

    def along_batch(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "batch time outputs"]]:
        """Along many episodes."""
        after, outputs = self.along_rows(start, jax.tree.map(lambda part: jnp.swapaxes(part, 0, 1), xs))
        return jnp.swapaxes(after, 0, 1), jnp.swapaxes(outputs, 0, 1)

    def along_rows(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time rows outputs"]]:
        """The same for many episodes side by side, `[time, rows, inputs]`.

        Rows of all steps are one matrix: `vmap` over episodes would lead to the same products, but to gradients that
        copy their operands first.
        """
        time, rows = jax.tree.leaves(xs)[0].shape[:2]
        to_gates = self.to_gates

        def flat(function: Callable[[Input], Array], xs: Input) -> Float[Array, "time rows outputs"]:
            outputs = function(jax.tree.map(lambda part: part.reshape(-1, part.shape[-1]), xs))
            return outputs.reshape(time, rows, -1)

        def step(memory: Memory, gates: Float[Array, "rows gates"]) -> tuple[Memory, Memory]:
            # The bias is added here, where the gates are at hand: before the loop that is a pass over all steps.
            return (self.advance(memory, gates + for_rows(to_gates.bias, gates)),) * 2

        after = jax.lax.scan(step, start, flat(lambda x: to_gates.linear(self.embed(x)), xs))[1]
        return after, flat(self.read, after)

    @property
    def norms(self) -> tuple[LayerNorm, ...]:
        """What stands before each of the layers, the one to the gates being the last."""
        return (self.norm_in, *(norm for _, norm in self.layers))

    @property
    def to_gates(self) -> Dense:
        """From embedded inputs to the gates."""
        return self.gates_in.after(self.norms[-1])

    def embed(self, x: Input) -> Float[Array, "*rows hidden"]:
        """Inputs as the gates see them, but for the scale and shift of the norm before them."""
        x = standardized(jnp.concatenate(x, axis=-1) if isinstance(x, tuple) else x)
        for norm, (layer, _) in zip(self.norms, self.layers, strict=False):
            x = standardized(jax.nn.relu(layer.after(norm)(x)))
        return x

    def advance(self, memory: Memory, gates: Float[Array, "*rows gates"]) -> Memory:
        """The GRU."""
        return gru(gates, self.gates_hidden(memory), memory)

    def read(self, memory: Memory) -> Float[Array, "*rows outputs"]:
        """Outputs at memories."""
        return self.head.after(self.norm_out).turned(standardized(memory))


@jax.custom_vjp
def gru(
    inputs: Float[Array, "*rows gates"], hidden: Float[Array, "*rows gates"], memory: Float[Array, "*rows size"]
) -> Float[Array, "*rows size"]:
    """The next memory, from what inputs and memory do to the gates.

    JAX's own gradient would keep ten arrays of every step, this one five.
    """
    return _gru(inputs, hidden, memory)[0]


def _gru(inputs: Array, hidden: Array, memory: Array) -> tuple[Array, tuple[Array, ...]]:
    reset_in, update_in, new_in = jnp.split(inputs, 3, axis=-1)
    reset_hidden, update_hidden, new_hidden = jnp.split(hidden, 3, axis=-1)
    reset = jax.nn.sigmoid(reset_in + reset_hidden)
    update = jax.nn.sigmoid(update_in + update_hidden)
    new = jnp.tanh(new_in + reset * new_hidden)
    return (1.0 - update) * new + update * memory, (reset, update, new, new_hidden, memory)


def _gru_gradient(kept: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array]:
    reset, update, new, new_hidden, memory = kept
    of_new = gradient * (1.0 - update) * (1.0 - jnp.square(new))
    of_reset = of_new * new_hidden * reset * (1.0 - reset)
    of_update = gradient * (memory - new) * update * (1.0 - update)
    inputs = jnp.concatenate([of_reset, of_update, of_new], axis=-1)
    hidden = jnp.concatenate([of_reset, of_update, of_new * reset], axis=-1)
    return inputs, hidden, gradient * update


gru.defvjp(_gru, _gru_gradient)


@dataclass(frozen=True)
class Gru:
    """Recurrent network over whole episodes."""

    hidden: int = 64
    """Units of the GRU and of the layers before it."""
    num_layers: int = 2
    """ReLU layers before the GRU."""
    products: Products = added("float32")
    """What the factors of matrix products are rounded to: `bfloat16` is quicker on processors that multiply it in
    hardware and slower on others (`mesax doctor` measures it). Sums, weights and all else stay float32."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        at_least(self, 1, "hidden")
        at_least(self, 0, "num_layers")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> Recurrent:
        """A fresh net with a linear head of the given gain."""
        *layer_keys, key_in, key_hidden, key_head = jax.random.split(key, self.num_layers + 3)
        sizes = (inputs, *(self.hidden,) * self.num_layers)
        layers = tuple(
            (Dense.create(a, b, k, products=self.products), LayerNorm.create(b))
            for a, b, k in zip(sizes, sizes[1:], layer_keys, strict=False)
        )
        return Recurrent(
            LayerNorm.create(inputs),
            layers,
            Dense.create(sizes[-1], 3 * self.hidden, key_in, 1.0, self.products),
            Dense.create(self.hidden, 3 * self.hidden, key_hidden, 1.0, self.products),
            LayerNorm.create(self.hidden),
            Dense.create(self.hidden, outputs, key_head, head_gain, self.products),
        )
