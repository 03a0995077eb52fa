"""A net that sees what changed since the step before: velocities, where observations hold positions alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mesax.errors import UsageError
from mesax.nets.attention import AttentionOverAgents, AttentionOverOthers
from mesax.nets.dense import Mlp
from mesax.nets.entities import Entities
from mesax.nets.sequence import Input, Memory, Net, StepByStep
from mesax.ranges import above, at_least
from mesax.types import Key

Last: TypeAlias = tuple[Float[Array, "*steps first"], Bool[Array, "*steps"]]
"""What was seen at the step before, and whether there was one."""


class ChangeNet(StepByStep[Input]):
    """y_t = net(factor (x_t - x_{t-1}), x_t), with x_{-1} = x_0; the net itself remembers nothing.

    Of an input in parts, the first is what is seen. The others are actions: their change is not given.
    """

    net: Net[Input]
    first: int = eqx.field(static=True)
    """How many numbers of an input are remembered."""
    factor: float = eqx.field(static=True)

    def start(self) -> Last:
        """Nothing was seen."""
        return jnp.zeros(self.first), jnp.zeros((), bool)

    def step(self, memory: Last, x: Input) -> tuple[Last, Array]:
        """The net on the change, what is seen, and the rest."""
        seen = self._remembered(x)
        return (seen, jnp.ones((), bool)), self.net.step((), self._changed(memory, x))[1]

    def along(self, start: Last, xs: Input) -> tuple[Memory, Float[Array, "time outputs"]]:
        """All steps at once."""
        after, outputs = self.along_batch(*jax.tree.map(lambda leaf: leaf[None], (start, xs)))
        return jax.tree.map(lambda leaf: leaf[0], (after, outputs))

    def along_batch(self, start: Last, xs: Input) -> tuple[Memory, Float[Array, "batch time outputs"]]:
        """The net's own way along inputs that are all known beforehand."""
        seen = self._remembered(xs)
        after = seen, jnp.ones(seen.shape[:2], bool)
        before = jax.tree.map(lambda one, rest: jnp.concatenate([one[:, None], rest[:, :-1]], axis=1), start, after)
        return after, self.net.along_batch((), self._changed(before, xs))[1]

    def _remembered(self, x: Input) -> Float[Array, "*steps first"]:
        return (x[0] if isinstance(x, tuple) else x)[..., : self.first]

    def _changed(self, memory: Last, x: Input) -> Input:
        last, known = memory
        change = jnp.where(known[..., None], self.factor * (self._remembered(x) - last), 0.0)
        return (change, *x) if isinstance(x, tuple) else (change, x)


@dataclass(frozen=True)
class WithChange:
    """A net without memory that also sees what changed since the step before: for worlds that hide velocities."""

    net: Mlp | Entities | AttentionOverOthers | AttentionOverAgents = Mlp()
    """Changes come ahead of what it sees: to nets over entities or others they are numbers about the agent itself."""
    factor: float = 10.0
    """What changes are multiplied by: one over the time of a step makes them velocities."""
    first: int | None = None
    """How many numbers change, from the first on; None: all. Two are enough where an observation begins with an offset
    to a landmark: its change is the agent's own velocity, the other way around."""

    def __post_init__(self) -> None:
        """Refuse changes that nothing comes of."""
        above(self, 0, "factor")
        at_least(self, 1, "first")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0, actions: int = 0) -> ChangeNet:
        """A fresh net with a linear head of the given gain; `actions` are numbers in further parts."""
        first = inputs if self.first is None else self.first
        if first > inputs:
            raise UsageError(f"first must be at most {inputs}, the number of inputs, but is {first}")
        return ChangeNet(self.net.build(first + inputs + actions, outputs, key, head_gain), first, self.factor)
