"""Nets that attend to the other agents, however many there are.

Landmarks stay in their order: a learner must tell the one that counts by its number. Explorers need not, and have nets
over sets of both (`entities`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.nets.dense import Dense
from mesax.nets.sequence import Input, Memory, StepByStep
from mesax.ranges import at_least
from mesax.types import Key


class AttentionNet(StepByStep[Input]):
    """What an agent sees itself, and what others see, weighed by how much that matters to it.

    h       = relu(W own)
    weights = softmax_j((Q h) . (K other_j) / sqrt(size))
    c       = sum_j weights_j relu(V other_j)
    output  = W mean(relu(W [h, c]))          the mean is over views; an actor has one, a centralized critic one of each
    """

    own: Dense
    query: Dense
    key: Dense
    value: Dense
    mixed: Dense
    head: Dense
    views: AttentionOverOthers | AttentionOverAgents = eqx.field(static=True)

    def start(self) -> Memory:
        """Feed-forward nets remember nothing."""
        return ()

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """Plain forward pass."""
        own, others = self.views.of(x)
        hidden = jax.nn.relu(self.own(own))
        context = jnp.einsum("vo,voh->vh", self.weights(hidden, others), jax.nn.relu(self.value(others)))
        return memory, self.head(jnp.mean(jax.nn.relu(self.mixed((hidden, context))), axis=0))

    def weights(
        self, hidden: Float[Array, "views hidden"], others: Float[Array, "views others size"]
    ) -> Float[Array, "views others"]:
        """How much each of the others matters in each view; they add up to 1."""
        scores = jnp.einsum("vh,voh->vo", self.query(hidden), self.key(others))
        return jax.nn.softmax(scores / math.sqrt(hidden.shape[-1]))


Views: TypeAlias = tuple[Float[Array, "views own"], Float[Array, "views others size"]]


@dataclass(frozen=True)
class AttentionOverOthers:
    """For an actor in a particle world: it attends to the others, each seen from itself and from every landmark."""

    num_points: int = 5
    """Landmarks in an observation, two numbers each, in their order."""
    num_others: int = 1
    """Other agents in an observation, two numbers each, behind the landmarks."""
    own: int = 2
    """Numbers about the agent itself, at the start of an observation."""
    hidden: int = 64
    """Units per layer."""

    def __post_init__(self) -> None:
        """Refuse an actor without others to attend to."""
        at_least(self, 0, "num_points", "own")
        at_least(self, 1, "num_others", "hidden")

    @property
    def inputs(self) -> int:
        """Length of an observation of this layout."""
        return self.own + 2 * self.num_points + 2 * self.num_others

    def of(self, x: Input) -> Views:
        """One view: all but the others (an agent's identity too), and each of the others."""
        x = jnp.concatenate(x) if isinstance(x, tuple) else x
        start, end = self.own + 2 * self.num_points, self.inputs
        points, others = x[self.own : start].reshape(-1, 2), x[start:end].reshape(-1, 2)
        from_points = (points[None] - others[:, None]).reshape(self.num_others, -1)
        own = jnp.concatenate([x[:start], x[end:]])
        return own[None], jnp.concatenate([others, from_points], axis=1)[None]

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> AttentionNet:
        """A fresh net with a linear head of the given gain."""
        if inputs not in (self.inputs, self.inputs + self.num_others + 1):  # with or without the agent's identity
            raise UsageError(
                f"a net over {self.num_points} points and {self.num_others} others needs {self.inputs} inputs, but"
                f" observations have {inputs}"
            )
        own = inputs - 2 * self.num_others
        return _built(self, (own, 2 + 2 * self.num_points), self.hidden, outputs, key, head_gain)


@dataclass(frozen=True)
class AttentionOverAgents:
    """For a centralized critic: each agent's view is its observation and action, and it attends to the others."""

    num_agents: int = 2
    """Agents of the team."""
    hidden: int = 128
    """Units per layer."""

    def __post_init__(self) -> None:
        """Refuse a critic of one agent, which has no others to attend to."""
        at_least(self, 2, "num_agents")
        at_least(self, 1, "hidden")

    def of(self, x: Input) -> Views:
        """A view for every agent, from what all see and what all do, each agent's numbers together."""
        parts = x if isinstance(x, tuple) else (x,)
        if any(part.size % self.num_agents for part in parts):
            raise UsageError(
                f"{self.num_agents} agents cannot share {' and '.join(str(p.size) for p in parts)} numbers"
            )
        own = jnp.concatenate([part.reshape(self.num_agents, -1) for part in parts], axis=1)
        # Row i: everybody but i, from the next on around.
        turned = (jnp.arange(self.num_agents)[:, None] + jnp.arange(1, self.num_agents)[None]) % self.num_agents
        return own, own[turned]

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> AttentionNet:
        """A fresh net with a linear head of the given gain."""
        if inputs % self.num_agents:
            raise UsageError(f"{inputs} inputs cannot be those of {self.num_agents} agents alike")
        if outputs != 1:
            raise UsageError("a critic that attends over agents has one value: additive-critic must be false")
        size = inputs // self.num_agents
        return _built(self, (size, size), self.hidden, outputs, key, head_gain)


def _built(
    views: AttentionOverOthers | AttentionOverAgents,
    sizes: tuple[int, int],
    hidden: int,
    outputs: int,
    key: Key,
    head_gain: float,
) -> AttentionNet:
    own, other = sizes
    keys = jax.random.split(key, 6)
    return AttentionNet(
        Dense.create(own, hidden, keys[0]),
        Dense.create(hidden, hidden, keys[1], 1.0),
        Dense.create(other, hidden, keys[2], 1.0),
        Dense.create(other, hidden, keys[3]),
        Dense.create(2 * hidden, hidden, keys[4]),
        Dense.create(hidden, outputs, keys[5], head_gain),
        views,
    )
