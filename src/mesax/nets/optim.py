"""A net with its optimizer, and targets that follow it; the only code that touches optax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree, ScalarLike

from mesax.ranges import above, at_least, between

NetT = TypeVar("NetT")


@dataclass(frozen=True)
class Adam:
    """Adam with clipping by global norm"""

    learning_rate: float = 5e-4
    """Step size."""
    clip_norm: float = 10.0
    """Largest norm of a gradient; larger ones are scaled down."""
    falling: int | None = None
    """Updates over which the learning rate falls in a straight line to a twentieth; None: it stays."""

    def __post_init__(self) -> None:
        """Refuse steps uphill and a fall without time; a rate of 0 learns nothing, which may be wanted."""
        at_least(self, 0, "learning_rate")
        above(self, 0, "clip_norm")
        at_least(self, 1, "falling")

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optax chain."""
        rate = self.learning_rate
        if self.falling is not None:
            rate = optax.linear_schedule(rate, rate / 20.0, self.falling)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), optax.adam(rate, eps=1e-5))


@dataclass(frozen=True)
class RmsProp:
    """RMSprop with clipping by global norm, as PyMARL has it"""

    learning_rate: float = 5e-4
    """Step size."""
    clip_norm: float = 10.0
    """Largest norm of a gradient; larger ones are scaled down."""
    decay: float = 0.99
    """What is kept of the mean square of gradients at every update."""

    def __post_init__(self) -> None:
        """Refuse steps uphill and squares without a mean."""
        at_least(self, 0, "learning_rate")
        above(self, 0, "clip_norm")
        between(self, 0, 1, "decay")

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optax chain."""
        steps = optax.rmsprop(self.learning_rate, self.decay, eps=1e-5, eps_in_sqrt=False)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), steps)


Optimizer: TypeAlias = Adam | RmsProp


class Trainable(eqx.Module, Generic[NetT]):
    """A network with its optimizer state."""

    net: NetT
    """The net as it is now."""
    optimizer_state: PyTree
    """Memory of its optimizer."""

    @staticmethod
    def create(net: NetT, optimizer: Optimizer) -> Trainable[NetT]:
        """Fresh optimizer state for `net`."""
        return Trainable(net, optimizer.transform.init(net))

    def descend(self, gradients: NetT, optimizer: Optimizer, scale: ScalarLike = 1.0) -> Trainable[NetT]:
        """One optimizer step along `gradients`, its length scaled (an annealed learning rate)."""
        updates, state = optimizer.transform.update(gradients, self.optimizer_state, self.net)
        if not (isinstance(scale, float) and scale == 1.0):
            updates = jax.tree.map(lambda leaf: scale * leaf, updates)
        return Trainable(optax.apply_updates(self.net, updates), state)

    def forgotten(self) -> Trainable[NetT]:
        """The network as it is, with an optimizer that has seen nothing."""
        return Trainable(self.net, jax.tree.map(jnp.zeros_like, self.optimizer_state))


@runtime_checkable
class Forgets(Protocol):
    """A part of a learner's state that is about one task."""

    def forgotten(self) -> Self:
        """The same before anything was seen of a task."""


def for_another_task(state: NetT) -> NetT:
    """A learner's state whose nets are as they were. Its optimizers have seen nothing: their counts and moments start
    at zero; and what it remembers of a task is forgotten.
    """

    def fresh(part: PyTree) -> PyTree:
        return part.forgotten() if isinstance(part, Forgets) else part

    restarted: NetT = jax.tree.map(fresh, state, is_leaf=lambda part: isinstance(part, Forgets))
    return restarted


def polyak(target: NetT, online: NetT, rate: float) -> NetT:
    """Move `target` toward `online` by `rate`."""
    moved: NetT = jax.tree.map(lambda old, new: old + rate * (new - old), target, online)
    return moved
