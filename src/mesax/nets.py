"""Networks as values: every leaf is an array, so a net can be scanned, stacked, saved and outlive its trainer.

A net has an episode memory, like a policy: `start() -> memory`, `step(memory, x) -> (memory, y)`; memoryless nets keep
`()`. An input may be a tuple of parts, which stands for their concatenation. `memories` and `unroll` run a net over an
episode; evaluating *other* inputs at the memories of the episode that was played is then one `vmap` (MADDPG's targets
and counterfactual actions need exactly this). Nets may know a quicker way along an episode than step by step:
`along(start, xs) -> (memories after each step, outputs)`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from mesax.errors import UsageError
from mesax.types import Key

Memory: TypeAlias = PyTree
Input: TypeAlias = Float[Array, "..."] | tuple[Float[Array, "..."], ...]


class Net(Protocol):
    """A network with an episode memory, written for one example."""

    def start(self) -> Memory:
        """Memory at the start of an episode."""

    def step(self, memory: Memory, x: Any) -> tuple[Memory, Float[Array, " outputs"]]:
        """Advance the memory by one input and return the output."""


def memories(net: Net, xs: Input) -> Memory:
    """Memories before each step and after the last: leading axis time + 1."""
    start = net.start()
    if not jax.tree.leaves(start):
        return start

    after = along(net, xs)[0]
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, after)


def step_at(net: Net, memory: Memory, xs: Input) -> Float[Array, "time outputs"]:
    """Outputs for inputs `xs`, each at its own memory; the new memories are dropped."""
    return jax.vmap(lambda m, x: net.step(m, x)[1])(memory, xs)


def unroll(net: Net, xs: Input, start: Memory = None) -> Float[Array, "time outputs"]:
    """Outputs of the net along an episode, from a fresh memory or from `start`."""
    return along(net, xs, start)[1]


def unroll_batch(net: Any, xs: Float[Array, "batch time ..."], start: Memory = None) -> Float[Array, "batch time ..."]:
    """`unroll` for many episodes."""
    return batch_along(net, xs, start)[1]


def batch_along(
    net: Any, xs: Float[Array, "batch time ..."], start: Memory = None
) -> tuple[Memory, Float[Array, "batch time ..."]]:
    """(memories before each step and after the last, outputs) of many episodes; the net's own way if it has one."""
    if start is None:
        start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(xs), *leaf.shape)), net.start())
    if hasattr(net, "along_batch"):
        after, outputs = net.along_batch(start, xs)
    else:
        after, outputs = jax.vmap(along, in_axes=(None, 0, 0))(net, xs, start)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[:, None], rest], axis=1), start, after), outputs


def along(net: Any, xs: Input, start: Memory = None) -> tuple[Memory, Float[Array, "time outputs"]]:
    """(memories after each step, outputs) of an episode, from a fresh memory or `start`; the net's own way if any."""
    start = net.start() if start is None else start
    if hasattr(net, "along"):
        return net.along(start, xs)
    if not jax.tree.leaves(start):
        return start, step_at(net, start, xs)

    def step(memory: Memory, x: Any) -> tuple[Memory, tuple[Memory, Array]]:
        memory, output = net.step(memory, x)
        return memory, (memory, output)

    return jax.lax.scan(step, start, xs)[1]


class Dense(eqx.Module):
    """A linear layer with variance-scaled uniform weights and zero bias."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    @staticmethod
    def create(inputs: int, outputs: int, key: Key, gain: float = math.sqrt(2.0)) -> Dense:
        """Weights of variance gain^2 / inputs; the default gain suits ReLU.

        Deviation(uniform-init): the reference code draws orthogonal matrices of the same scale. Their QR
        decompositions tripled the time to compile a run's first step and changed no result we could measure.
        """
        limit = gain * math.sqrt(3.0 / inputs)
        weight = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        return Dense(weight, jnp.zeros(outputs))

    def __call__(self, x: Input) -> Float[Array, " outputs"]:
        """Affine map of one example.

        Parts are multiplied apart: when a critic rates many actions at one observation (or one action at many), `vmap`
        then computes the product of what stays the same only once.
        """
        if not isinstance(x, tuple):
            return x @ self.weight + self.bias
        ends = itertools.accumulate(part.shape[-1] for part in x)
        products = (part @ self.weight[end - part.shape[-1] : end] for part, end in zip(x, ends, strict=True))
        return sum(products, self.bias)


class LayerNorm(eqx.Module):
    """Standardize one example, then scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    @staticmethod
    def create(size: int) -> LayerNorm:
        """Identity scale and shift."""
        return LayerNorm(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Normalize over the features of one example."""
        centered = x - jnp.mean(x)
        return centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered)) + 1e-5) * self.scale + self.shift


class FeedForward(eqx.Module):
    """ReLU layers and a linear head; no memory."""

    layers: tuple[Dense, ...]
    head: Dense
    octaves: int = eqx.field(static=True, default=0)

    def start(self) -> Memory:
        """Feed-forward nets remember nothing."""
        return ()

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Array]:
        """Plain forward pass."""
        if self.octaves:
            x = waves(jnp.concatenate(x) if isinstance(x, tuple) else x, self.octaves)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return memory, self.head(x)


def waves(x: Float[Array, " inputs"], octaves: int) -> Float[Array, " more"]:
    """Inputs with sines and cosines of 1, 2, 4, ... times their value appended: fine detail becomes easy to fit."""
    sines, cosines = [jnp.sin(x)], [jnp.cos(x)]
    for _ in range(octaves - 1):  # double the angle: products instead of new sines, which are slow on a CPU
        sine, cosine = sines[-1], cosines[-1]
        sines.append(2.0 * sine * cosine)
        cosines.append(1.0 - 2.0 * jnp.square(sine))
    return jnp.concatenate([x, *sines, *cosines])


class Recurrent(eqx.Module):
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
        memory = self.advance(memory, self.embed(x))
        return memory, self.read(memory)

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time outputs"]]:
        """All that does not depend on the memory is computed for the whole episode at once."""
        after, outputs = self.along_rows(start[None], jax.tree.map(lambda part: part[:, None], xs))
        return after[:, 0], outputs[:, 0]

    def along_batch(
        self, start: Memory, xs: Float[Array, "batch time inputs"]
    ) -> tuple[Memory, Float[Array, "batch time outputs"]]:
        """Along many episodes."""
        after, outputs = self.along_rows(start, jnp.swapaxes(xs, 0, 1))
        return jnp.swapaxes(after, 0, 1), jnp.swapaxes(outputs, 0, 1)

    def along_rows(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time rows outputs"]]:
        """The same for many episodes side by side, `[time, rows, inputs]`.

        Rows of all steps are one matrix: `vmap` over episodes would lead to the same products, but to gradients that
        copy their operands first.
        """
        time, rows = jax.tree.leaves(xs)[0].shape[:2]

        def flat(function: Any, xs: Any) -> Any:
            outputs = jax.vmap(function)(jax.tree.map(lambda part: part.reshape(-1, part.shape[-1]), xs))
            return outputs.reshape(time, rows, -1)

        def step(memory: Memory, gates: Array) -> tuple[Memory, Memory]:
            return (jax.vmap(self.advance)(memory, gates),) * 2

        after = jax.lax.scan(step, start, flat(self.embed, xs))[1]
        return after, flat(self.read, after)

    def embed(self, x: Input) -> Float[Array, " gates"]:
        """What an input does to the gates."""
        x = self.norm_in(jnp.concatenate(x) if isinstance(x, tuple) else x)
        for layer, norm in self.layers:
            x = norm(jax.nn.relu(layer(x)))
        return self.gates_in(x)

    def advance(self, memory: Memory, gates: Float[Array, " gates"]) -> Memory:
        """The GRU."""
        reset_in, update_in, new_in = jnp.split(gates, 3)
        reset_hidden, update_hidden, new_hidden = jnp.split(self.gates_hidden(memory), 3)
        reset = jax.nn.sigmoid(reset_in + reset_hidden)
        update = jax.nn.sigmoid(update_in + update_hidden)
        return (1.0 - update) * jnp.tanh(new_in + reset * new_hidden) + update * memory

    def read(self, memory: Memory) -> Float[Array, " outputs"]:
        """Output at a memory."""
        return self.head(self.norm_out(memory))


@dataclass(frozen=True)
class Mlp:
    """Feed-forward network."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the ReLU layers."""
    octaves: int = 0
    """Frequencies at which inputs are seen besides themselves: for values that change within a narrow band."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        if any(width < 1 for width in self.hidden):
            raise UsageError(f"every hidden layer needs at least 1 unit, not {self.hidden}")
        if not 0 <= self.octaves <= 16:
            raise UsageError(f"octaves must lie between 0 and 16, not {self.octaves}")

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> FeedForward:
        """A fresh net with a linear head of the given gain."""
        *layer_keys, head_key = jax.random.split(key, len(self.hidden) + 1)
        sizes = (inputs * (1 + 2 * self.octaves), *self.hidden)
        layers = tuple(Dense.create(a, b, k) for a, b, k in zip(sizes, sizes[1:], layer_keys, strict=False))
        return FeedForward(layers, Dense.create(sizes[-1], outputs, head_key, head_gain), self.octaves)


@dataclass(frozen=True)
class Gru:
    """Recurrent network over whole episodes."""

    hidden: int = 64
    """Units of the GRU and of the layers before it."""
    num_layers: int = 2
    """ReLU layers before the GRU."""

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> Recurrent:
        """A fresh net with a linear head of the given gain."""
        *layer_keys, key_in, key_hidden, key_head = jax.random.split(key, self.num_layers + 3)
        sizes = (inputs, *(self.hidden,) * self.num_layers)
        layers = tuple(
            (Dense.create(a, b, k), LayerNorm.create(b)) for a, b, k in zip(sizes, sizes[1:], layer_keys, strict=False)
        )
        return Recurrent(
            LayerNorm.create(inputs),
            layers,
            Dense.create(sizes[-1], 3 * self.hidden, key_in, 1.0),
            Dense.create(self.hidden, 3 * self.hidden, key_hidden, 1.0),
            LayerNorm.create(self.hidden),
            Dense.create(self.hidden, outputs, key_head, head_gain),
        )


class EntityNet(eqx.Module):
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

    def start(self) -> Memory:
        """Feed-forward nets remember nothing."""
        return ()

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


def with_length(vectors: Float[Array, "... 2"]) -> Float[Array, "... 3"]:
    """Vectors with their length appended; the gradient at zero is finite."""
    length = jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1, keepdims=True) + 1e-8)
    return jnp.concatenate([vectors, length], axis=-1)


@dataclass(frozen=True)
class Entities:
    """Permutation-equivariant network over points and other agents, for any number of both."""

    num_points: int
    """Points (landmarks) in an observation."""
    num_others: int
    """Other agents in an observation."""
    own: int = 2
    """Numbers about the agent itself, at the start of an observation."""
    told: int = 0
    """Vectors of `num_points x ranks` appended to an observation (see `rewards/coverage.py: tell`)."""
    hidden: int = 32
    """Units per layer and point."""

    def __post_init__(self) -> None:
        """Refuse nets without points."""
        if self.num_points < 1 or self.num_others < 0 or self.hidden < 2:
            raise UsageError("num-points must be at least 1, num-others at least 0 and hidden at least 2")

    @property
    def inputs(self) -> int:
        """Length of an observation of this layout."""
        plain = self.own + 2 * self.num_points + 2 * self.num_others
        return plain + self.told * self.num_points * (self.num_others + 1)

    def parts(self, x: Float[Array, " inputs"]) -> tuple[Array, Array, Array, Array]:
        """(own, points `[points, 2]`, others `[others, 2]`, told `[points, 3 told]`) of one observation.

        What is told of a point comes as one number per rank; the largest, the second and the sum stand for them, so
        that the number of agents does not matter.
        """
        ends = list(itertools.accumulate([self.own, 2 * self.num_points, 2 * self.num_others]))
        own, points, others = x[: ends[0]], x[ends[0] : ends[1]], x[ends[1] : ends[2]]
        ranks = x[ends[2] : self.inputs].reshape(self.told, self.num_points, self.num_others + 1)
        second = ranks[..., 1] if self.num_others else jnp.zeros_like(ranks[..., 0])
        told = jnp.stack([ranks[..., 0], second, jnp.sum(ranks, axis=-1)], axis=-1)
        told = jnp.moveaxis(told, 0, 1).reshape(self.num_points, 3 * self.told)
        return own, points.reshape(-1, 2), others.reshape(-1, 2), told

    def build(self, inputs: int, outputs: int, key: Key, head_gain: float = 1.0) -> EntityNet:
        """A fresh net with a linear head of the given gain."""
        if inputs not in (self.inputs, self.inputs + self.num_others + 1):  # with or without the agent's identity
            raise UsageError(
                f"a net over {self.num_points} points and {self.num_others} others needs {self.inputs}"
                f" inputs, but observations have {inputs}"
            )
        keys = jax.random.split(key, 5)
        half, token = self.hidden // 2, self.own + 3 + 3 * self.told + 2 * (self.hidden // 2)
        return EntityNet(
            Dense.create(3, half, keys[0]),
            Dense.create(token, self.hidden, keys[1]),
            Dense.create(3 * self.hidden, self.hidden, keys[2]),
            Dense.create(self.hidden, 1, keys[3], 1.0),
            Dense.create(3 * self.hidden, outputs, keys[4], head_gain),
            self,
        )


class Additive(eqx.Module):
    """Q(s, a) = V(s) + sum_i A_i(s, a_i): a net of the state alone, linear in the action features.

    All actions of all agents are rated by one pass, and the expectation over independent policies is exact: it is the
    value at their probabilities.
    """

    net: Any

    def start(self) -> Memory:
        """Memory of the net."""
        return self.net.start()

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Float[Array, " 1"]]:
        """Value of one state with one joint action."""
        obs, action = x
        memory, out = self.net.step(memory, obs)
        return memory, out[:1] + jnp.sum(out[1:] * action, keepdims=True)

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time 1"]]:
        """The net's own way along the states."""
        obs, action = xs
        after, out = along(self.net, obs, start)
        return after, out[:, :1] + jnp.sum(out[:, 1:] * action, axis=1, keepdims=True)

    def advantages(self, memory: Memory, obs: Float[Array, " obs"]) -> Float[Array, " action"]:
        """What each entry of the action features adds."""
        return self.net.step(memory, obs)[1][1:]


NetConfig: TypeAlias = Mlp | Gru | Entities
NetT = TypeVar("NetT", bound=PyTree)


@dataclass(frozen=True)
class Adam:
    """Adam with clipping by global norm; the only code that touches optax."""

    learning_rate: float = 5e-4
    clip_norm: float = 10.0
    falling: int | None = None
    """Updates over which the learning rate falls in a straight line to a twentieth; None: it stays."""

    def __post_init__(self) -> None:
        """Refuse a fall without time."""
        if self.falling is not None and self.falling < 1:
            raise UsageError(f"falling must be at least 1 update, not {self.falling}")

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optax chain."""
        rate = self.learning_rate
        if self.falling is not None:
            rate = optax.linear_schedule(rate, rate / 20.0, self.falling)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), optax.adam(rate, eps=1e-5))


class Trainable(eqx.Module, Generic[NetT]):
    """A network with its optimizer state."""

    net: NetT
    optimizer_state: Any

    @staticmethod
    def create(net: NetT, optimizer: Adam) -> Trainable[NetT]:
        """Fresh optimizer state for `net`."""
        return Trainable(net, optimizer.transform.init(net))

    def descend(self, gradients: NetT, optimizer: Adam, scale: Array | float = 1.0) -> Trainable[NetT]:
        """One optimizer step along `gradients`, its length scaled (an annealed learning rate)."""
        updates, state = optimizer.transform.update(gradients, self.optimizer_state, self.net)
        if not (isinstance(scale, float) and scale == 1.0):
            updates = jax.tree.map(lambda leaf: scale * leaf, updates)
        return Trainable(optax.apply_updates(self.net, updates), state)


def polyak(target: NetT, online: NetT, rate: float) -> NetT:
    """Move `target` toward `online` by `rate`."""
    moved: NetT = jax.tree.map(lambda old, new: old + rate * (new - old), target, online)
    return moved


class Team(eqx.Module):
    """One net per agent: separate parameters, or shared ones that are told the agent's identity."""

    nets: Any
    """A net with stacked leaves `[agents, ...]`, or a single net if shared."""
    num_agents: int = eqx.field(static=True)
    shared: bool = eqx.field(static=True)

    @staticmethod
    def create(
        config: NetConfig, num_agents: int, sizes: tuple[int, int], key: Key, *, shared: bool, head_gain: float
    ) -> Team:
        """Nets from `sizes = (inputs, outputs)` for every agent."""
        inputs, outputs = sizes
        if shared:
            # Identical agents with identical observations could not break ties: hence the identity.
            return Team(config.build(inputs + num_agents, outputs, key, head_gain), num_agents, shared)
        build = jax.vmap(lambda k: config.build(inputs, outputs, k, head_gain))
        return Team(build(jax.random.split(key, num_agents)), num_agents, shared)

    def start(self) -> Memory:
        """Memories of all agents."""
        if self.shared:
            return jax.tree.map(lambda leaf: jnp.stack([leaf] * self.num_agents), self.nets.start())
        return jax.vmap(lambda net: net.start())(self.nets)

    def step(self, memory: Memory, x: Float[Array, "agents inputs"]) -> tuple[Memory, Float[Array, "agents outputs"]]:
        """Every agent's net on its own input."""
        axis = None if self.shared else 0
        return jax.vmap(lambda net, m, row: net.step(m, row), in_axes=(axis, 0, 0))(
            self.nets, memory, self._identified(x)
        )

    def along(
        self, start: Memory, xs: Float[Array, "time agents inputs"]
    ) -> tuple[Memory, Float[Array, "time agents outputs"]]:
        """Every agent's net along its own inputs."""
        axis = None if self.shared else 0
        return jax.vmap(along, in_axes=(axis, 1, 0), out_axes=1)(self.nets, self._identified(xs), start)

    def along_batch(
        self, start: Memory, xs: Float[Array, "batch time agents inputs"]
    ) -> tuple[Memory, Float[Array, "batch time agents outputs"]]:
        """Along many episodes; to a shared recurrent net all agents of all episodes are alike."""
        if not (self.shared and isinstance(self.nets, Recurrent)):
            return jax.vmap(self.along)(start, xs)
        batch, time, agents, size = xs.shape
        rows = jnp.swapaxes(self._identified(xs), 0, 1).reshape(time, batch * agents, size + agents)
        both = self.nets.along_rows(start.reshape(batch * agents, -1), rows)
        after, outputs = (jnp.swapaxes(part.reshape(time, batch, agents, -1), 0, 1) for part in both)
        return after, outputs

    def _identified(self, x: Float[Array, "... agents inputs"]) -> Float[Array, "... agents more"]:
        if not self.shared:
            return x
        identity = jnp.broadcast_to(jnp.eye(self.num_agents), (*x.shape[:-1], self.num_agents))
        return jnp.concatenate([x, identity], axis=-1)


class Ensemble(eqx.Module):
    """Several nets with one output each, on the same input."""

    nets: Any
    """A net with stacked leaves `[members, ...]`."""

    @staticmethod
    def create(
        config: NetConfig, members: int, sizes: tuple[int, int], key: Key, *, additive: bool = False
    ) -> Ensemble:
        """Independent scalar-valued nets of `sizes = (joint observation, joint action)`."""
        obs, action = sizes

        def build(key: Key) -> Any:
            return Additive(config.build(obs, 1 + action, key)) if additive else config.build(obs + action, 1, key)

        return Ensemble(jax.vmap(build)(jax.random.split(key, members)))

    def start(self) -> Memory:
        """Memories of all members."""
        return jax.vmap(lambda net: net.start())(self.nets)

    def step(self, memory: Memory, x: Input) -> tuple[Memory, Float[Array, " members"]]:
        """Every member's value."""
        memory, values = jax.vmap(lambda net, m: net.step(m, x))(self.nets, memory)
        return memory, values[:, 0]

    def along(self, start: Memory, xs: Input) -> tuple[Memory, Float[Array, "time members"]]:
        """Every member along the same inputs; memories are `[time, members, ...]`."""
        after, values = jax.vmap(along, in_axes=(0, None, 0), out_axes=1)(self.nets, xs, start)
        return after, values[..., 0]
