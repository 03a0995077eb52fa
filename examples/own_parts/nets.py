"""A net: layers that each add to what came before."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from mesax.nets import Dense, StepByStep


class ResidualNet(StepByStep):
    """h_0 = W x, h_i = h_{i-1} + relu(W_i h_{i-1}), y = V h; every leaf is an array, and nothing is remembered."""

    first: Dense
    layers: tuple[Dense, ...]
    head: Dense

    def step(self, memory, x):
        """An input in parts stands for its concatenation: a critic's observations and actions."""
        hidden = self.first(jnp.concatenate(x) if isinstance(x, tuple) else x)
        for layer in self.layers:
            hidden = hidden + jax.nn.relu(layer(hidden))
        return memory, self.head(hidden)


@dataclass(frozen=True)
class Residual:
    """Settings of such a net: all that `run.json` has to say of it."""

    width: int = 32
    depth: int = 2

    def build(self, inputs, outputs, key, head_gain=1.0):
        """A fresh net; `head_gain` is the scale of its first outputs."""
        key_first, key_head, *keys = jax.random.split(key, self.depth + 2)
        return ResidualNet(
            Dense.create(inputs, self.width, key_first),
            tuple(Dense.create(self.width, self.width, key) for key in keys),
            Dense.create(self.width, outputs, key_head, head_gain),
        )
