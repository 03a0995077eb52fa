"""Networks as values: every leaf is an array, so a net can be scanned, stacked, saved and outlive its trainer.

A net has an episode memory, like a policy: `start() -> memory`, `step(memory, x) -> (memory, y)`; memoryless nets keep
`()`. An input may be a tuple of parts, which stands for their concatenation. `unroll` runs a net over an episode,
`unroll_batch` and `unroll_with_memories` over many; evaluating *other* inputs at the memories of the episodes that were
played is then `step_at` (MADDPG's targets and counterfactual actions need exactly this). `StepByStep` goes along an
episode one step at a time; nets that know a quicker way override `along` or `along_batch`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from mesax.types import Key

Memory: TypeAlias = PyTree
Input: TypeAlias = Float[Array, "..."] | tuple[Float[Array, "..."], ...]
InputT = TypeVar("InputT")
InputT_contra = TypeVar("InputT_contra", contravariant=True)


@runtime_checkable
class Net(Protocol[InputT_contra]):
    """A network with an episode memory, written for one example; `InputT_contra` is what it takes at a step."""

    def start(self) -> Memory:
        """Memory at the start of an episode."""

    def step(self, memory: Memory, x: InputT_contra) -> tuple[Memory, Float[Array, "..."]]:
        """Advance the memory by one input and return the output."""

    def along(self, start: Memory, xs: InputT_contra) -> tuple[Memory, Float[Array, "time ..."]]:
        """(memories after each step, outputs) of one episode whose memory begins as `start`."""

    def along_batch(self, start: Memory, xs: InputT_contra) -> tuple[Memory, Float[Array, "batch time ..."]]:
        """The same for many episodes, each with a `start` of its own."""


@runtime_checkable
class NetConfig(Protocol):
    """Settings of a net: a frozen dataclass that builds it. One of your own needs nothing else."""

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> Net[Input]:
        """A fresh net, whose last layer has the given gain."""


@runtime_checkable
class BuildsCritics(Protocol):
    """Settings of a net that must know which of a critic's inputs are actions; to most nets all inputs are alike."""

    def build_critic(self, obs: int, actions: int, key: Key, head_gain: float = 1.0) -> Net[Input]:
        """A fresh critic with one output, of an input in two parts."""


class StepByStep(eqx.Module, Generic[InputT]):
    """A net that goes along an episode one step after another, and along many episodes by `vmap`.

    It remembers nothing, unless it says otherwise.
    """

    def start(self) -> Memory:
        """Memory at the start of an episode."""
        return ()

    @abstractmethod
    def step(self, memory: Memory, x: InputT) -> tuple[Memory, Float[Array, "..."]]:
        """Advance the memory by one input and return the output."""

    def along(self, start: Memory, xs: InputT) -> tuple[Memory, Float[Array, "time ..."]]:
        """All steps at once if nothing is remembered, else one after another."""
        if not jax.tree.leaves(start):
            return start, step_at(self, start, xs)

        def step(memory: Memory, x: InputT) -> tuple[Memory, tuple[Memory, Array]]:
            memory, output = self.step(memory, x)
            return memory, (memory, output)

        return jax.lax.scan(step, start, xs)[1]

    def along_batch(self, start: Memory, xs: InputT) -> tuple[Memory, Float[Array, "batch time ..."]]:
        """Every episode by itself."""
        return jax.vmap(along, in_axes=(None, 0, 0))(self, xs, start)


def step_at(net: Net[InputT], memory: Memory, xs: InputT) -> Float[Array, "time ..."]:
    """Outputs for inputs `xs`, each at its own memory; the new memories are dropped."""
    return jax.vmap(lambda m, x: net.step(m, x)[1])(memory, xs)


def unroll(net: Net[InputT], xs: InputT, start: Memory = None) -> Float[Array, "time ..."]:
    """Outputs of the net along an episode, from a fresh memory or from `start`."""
    return along(net, xs, start)[1]


def unroll_batch(net: Net[InputT], xs: InputT, start: Memory = None) -> Float[Array, "batch time ..."]:
    """`unroll` for many episodes."""
    return unroll_with_memories(net, xs, start)[1]


def unroll_with_memories(
    net: Net[InputT], xs: InputT, start: Memory = None
) -> tuple[Memory, Float[Array, "batch time ..."]]:
    """(memories before each step and after the last, outputs) of many episodes, from fresh memories or `start`."""
    if start is None:
        batch = len(jax.tree.leaves(xs)[0])
        start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), net.start())
    after, outputs = net.along_batch(start, xs)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[:, None], rest], axis=1), start, after), outputs


def along(net: Net[InputT], xs: InputT, start: Memory = None) -> tuple[Memory, Float[Array, "time ..."]]:
    """(memories after each step, outputs) of an episode, from a fresh memory or `start`."""
    return net.along(net.start() if start is None else start, xs)
