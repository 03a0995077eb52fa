"""A net that sees what changed since the step before: velocities, where observations hold positions alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mesax.nets.dense import Mlp
from mesax.nets.entities import Entities
from mesax.nets.sequence import Input, Memory, Net, NetConfig, StepByStep
from mesax.ranges import above
from mesax.types import Key

Last: TypeAlias = tuple[Float[Array, "*steps changing"], Bool[Array, "*steps"]]
"""What was seen at the step before, and whether there was one."""


class ChangeNet(StepByStep[Input]):
    """y_t = net(factor (x_t - x_{t-1}), x_t), with x_{-1} = x_0; the net itself remembers nothing.

    Of an input in parts, the first is what is seen. The others are actions: their change is not given.
    """

    net: Net[Input]
    changing: int = eqx.field(static=True)
    """How many numbers of an input, from the first on, are remembered."""
    factor: float = eqx.field(static=True)

    def start(self) -> Last:
        """Nothing was seen."""
        return jnp.zeros(self.changing), jnp.zeros((), bool)

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

    def _remembered(self, x: Input) -> Float[Array, "*steps changing"]:
        return (x[0] if isinstance(x, tuple) else x)[..., : self.changing]

    def _changed(self, memory: Last, x: Input) -> Input:
        last, known = memory
        change = jnp.where(known[..., None], self.factor * (self._remembered(x) - last), 0.0)
        return (change, *x) if isinstance(x, tuple) else (change, x)


@dataclass(frozen=True)
class WithChange:
    """A net without memory that also sees what changed since the step before: for worlds that hide velocities."""

    net: NetConfig = Mlp()
    """To nets over entities, changes are the `own` numbers: where an observation begins with the offset to a landmark,
    its change is the agent's own velocity, the other way around. Other nets see the change of all numbers."""
    factor: float = 10.0
    """What changes are multiplied by: one over the time of a step makes them velocities."""

    def __post_init__(self) -> None:
        """Refuse changes that are not seen."""
        above(self, 0, "factor")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> ChangeNet:
        """A fresh net with a linear head of the given gain."""
        return self._built(inputs, inputs, outputs, key, head_gain)

    def build_critic(self, obs: int, actions: int, key: Key, head_gain: float = 1.0) -> ChangeNet:
        """A critic that sees the change of observations, and actions as they are."""
        return self._built(obs, obs + actions, 1, key, head_gain)

    def _built(self, seen: int, inputs: int, outputs: int, key: Key, head_gain: float) -> ChangeNet:
        changing = self.net.own if isinstance(self.net, Entities) else seen
        return ChangeNet(self.net.build(changing + inputs, outputs, key, head_gain), changing, self.factor)
