"""Nets over sets of points and agents, whose number and order do not matter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.nets.dense import Dense
from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.ranges import at_least
from mesax.store.settings import added
from mesax.types import Key


class EntityNet(StepByStep[Input]):
    """Shared weights over points and other agents, pooled and attended to: their number and order do not matter.

    pair_pj  = relu(W [offset from agent j to point p, its length])          pooled over j by mean and max
    token_p  = relu(W [own, offset to p, its length, what is told of p, pooled pairs])
    token_p <- relu(W [token_p, mean and max over points])
    output   = W [sum_p softmax_p(w . token_p) token_p, mean and max over points]
    """

    pair: Dense
    first: Dense
    second: Dense
    attention: Dense
    head: Dense
    sizes: Entities = eqx.field(static=True)

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """Plain forward pass; numbers beyond the known layout (an agent's identity) are ignored."""
        x = jnp.concatenate(x) if isinstance(x, tuple) else x
        own, points, others, told = self.sizes.parts(x)
        if others.shape[0]:
            offsets = with_length(points[:, None] - others[None])
            pairs = mean_and_max(jax.nn.relu(jax.vmap(jax.vmap(self.pair))(offsets)), axis=1)
        else:
            pairs = jnp.zeros((points.shape[0], 2 * self.pair.bias.size))
        tokens = jnp.concatenate([with_length(points), told, pairs], axis=1)
        # What is the same for all points goes in as a part of its own: it is multiplied once.
        hidden = jax.nn.relu(jax.vmap(lambda token: self.first((own, token)))(tokens))
        pooled = mean_and_max(hidden, axis=0)
        hidden = jax.nn.relu(jax.vmap(lambda token: self.second((token, pooled)))(hidden))
        weights = jax.nn.softmax(jax.vmap(self.attention)(hidden)[:, 0])
        return memory, self.head((weights @ hidden, mean_and_max(hidden, axis=0)))


def mean_and_max(values: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Both along one axis, side by side."""
    return jnp.concatenate([jnp.mean(values, axis=axis), jnp.max(values, axis=axis)], axis=-1)


def with_length(vectors: Float[Array, "*shape size"]) -> Float[Array, "*shape more"]:
    """Vectors with their length appended; the gradient at zero is finite."""
    length = jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1, keepdims=True) + 1e-8)
    return jnp.concatenate([vectors, length], axis=-1)


@dataclass(frozen=True)
class Entities:
    """Permutation-equivariant network over points and other agents, for any number of both."""

    num_points: int = 5
    """Points (landmarks) in an observation."""
    num_others: int = 1
    """Other agents in an observation."""
    own: int = 2
    """Numbers about the agent itself, at the start of an observation."""
    told: int = 0
    """Vectors of `num_points x ranks` appended to an observation (see `ours/records.py: tell`)."""
    hidden: int = 32
    """Units per layer and point."""
    ranks: int | None = None
    """Numbers told of each point; None: one for every agent."""
    size: int = added(2)
    """Numbers that an observation has of each point, and of each other agent."""
    order: tuple[int, ...] = added(())
    """Where the numbers of an observation stand: own, the points', the other agents'; none: in this order."""

    def __post_init__(self) -> None:
        """Refuse nets without points."""
        at_least(self, 1, "num_points", "ranks", "size")
        at_least(self, 0, "num_others")
        at_least(self, 2, "hidden")

    @property
    def num_ranks(self) -> int:
        """Numbers told of each point."""
        return self.num_others + 1 if self.ranks is None else self.ranks

    @property
    def inputs(self) -> int:
        """Length of an observation of this layout."""
        return self._plain + self.told * self.num_points * self.num_ranks

    @property
    def _plain(self) -> int:
        return self.own + self.size * (self.num_points + self.num_others)

    def for_team(self, num_agents: int) -> Entities:
        """The same net, weight by weight, among another number of agents; what it is told keeps its size."""
        if self.order:
            raise UsageError("a net that reads numbers in an order of its own plays with the number of agents it knows")
        return replace(self, num_others=num_agents - 1, ranks=self.num_ranks)

    def parts(
        self, x: Float[Array, " inputs"]
    ) -> tuple[
        Float[Array, " own"], Float[Array, "points size"], Float[Array, "others size"], Float[Array, "points told"]
    ]:
        """(own, points `[points, size]`, others `[others, size]`, told `[points, 3 told]`) of one observation.

        What is told of a point comes as one number per rank; the largest, the second and the sum stand for them, so
        that the number of agents does not matter.
        """
        if self.order:
            x = jnp.concatenate([x[jnp.asarray(self.order)], x[self._plain :]])
        ends = list(itertools.accumulate([self.own, self.size * self.num_points, self.size * self.num_others]))
        own, points, others = x[: ends[0]], x[ends[0] : ends[1]], x[ends[1] : ends[2]]
        ranks = x[ends[2] : self.inputs].reshape(self.told, self.num_points, self.num_ranks)
        second = ranks[..., 1] if self.num_ranks > 1 else jnp.zeros_like(ranks[..., 0])
        told = jnp.stack([ranks[..., 0], second, jnp.sum(ranks, axis=-1)], axis=-1)
        told = jnp.moveaxis(told, 0, 1).reshape(self.num_points, 3 * self.told)
        return own, points.reshape(-1, self.size), others.reshape(-1, self.size), told

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> EntityNet:
        """A fresh net with a linear head of the given gain."""
        if inputs not in (self.inputs, self.inputs + self.num_others + 1):  # with or without the agent's identity
            raise UsageError(
                f"a net over {self.num_points} points and {self.num_others} others needs {self.inputs}"
                f" inputs, but observations have {inputs}"
            )
        keys = jax.random.split(key, 5)
        half, token = self.hidden // 2, self.own + self.size + 1 + 3 * self.told + 2 * (self.hidden // 2)
        return EntityNet(
            Dense.create(self.size + 1, half, keys[0]),
            Dense.create(token, self.hidden, keys[1]),
            Dense.create(3 * self.hidden, self.hidden, keys[2]),
            Dense.create(self.hidden, 1, keys[3], 1.0),
            Dense.create(3 * self.hidden, outputs, keys[4], head_gain),
            self,
        )
