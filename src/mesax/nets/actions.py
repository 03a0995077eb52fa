"""A net that rates every action by what is told of it, with weights that all actions share."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mesax.errors import UsageError
from mesax.nets.dense import FeedForward, Mlp
from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.ranges import each_at_least
from mesax.types import Key


class ActionNet(StepByStep[Input]):
    """output_a = net(what is told of action a, everything else): whatever holds for one action holds for all."""

    net: FeedForward

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """The first number for each action, all others shared."""
        x = jnp.concatenate(x) if isinstance(x, tuple) else x
        others = self.net.layers[0].weight.shape[-2] - 1
        told, shared = x[: x.size - others], x[x.size - others :]
        return memory, jax.vmap(lambda one: self.net.step((), (one[None], shared))[1][0])(told)


@dataclass(frozen=True)
class PerAction:
    """Equivariant network over actions: its inputs begin with one number for each action (see `envs/goals.py`).

    An action that was never asked for in training is rated like those that were: a plain net cannot know it.
    """

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the ReLU layers."""

    def __post_init__(self) -> None:
        """Refuse nets without layers, and layers without units."""
        if not self.hidden:
            raise UsageError("hidden must have at least one width: a net over actions needs a layer")
        each_at_least(self, 1, "hidden")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> ActionNet:
        """A fresh net with a linear head of the given gain."""
        if inputs <= outputs:
            raise UsageError(
                f"a net over {outputs} actions must be told one number of each and more, but has {inputs} inputs"
            )
        return ActionNet(Mlp(self.hidden).build(inputs - outputs + 1, 1, key, head_gain))
