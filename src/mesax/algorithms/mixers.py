"""What a team's joint action is worth, from what each agent's own action is worth: IQL, VDN, QMIX and QPLEX.

    Independent   every agent's own value, learned by itself                              IQL   (Tan 1993)
    Sum           Qtot = sum_i Q_i                                                        VDN   (Sunehag et al. 2018)
    Monotonic     Qtot = f_s(Q_1, .., Q_n), rising in every Q_i                           QMIX  (Rashid et al. 2018)
    Duplex        Qtot = sum_i w_i max Q_i + v + sum_i lambda_i w_i (Q_i - max Q_i)       QPLEX (Wang et al. 2021)
    StateDuplex   the same, its weights w_i from the state alone, and not from attention  QPLEX, on matrix games

In all but the first the best joint action is every agent's own best action, so a team can play it without talking; only
the last two can represent every payoff of which that is true. A mixer is written for one step. Its context is what is
known centrally: all observations, and the episode's latent if there is one. It returns the values that are learned, one
or one per agent.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.nets import Dense, FeedForward
from mesax.ranges import at_least, each_at_least
from mesax.types import EnvSpec, Key, tree_stack

TINY = 1e-10
"""Keeps weights that must be positive away from zero."""


class MixerStep(eqx.Module):
    """All that a mixer may know of one step."""

    q: Float[Array, "*steps agents"]
    """Value of each agent's action."""
    best: Float[Array, "*steps agents"]
    """Value of each agent's best action."""
    obs: Float[Array, "*steps agents obs"]
    action: Float[Array, "*steps agents actions"]
    """One-hot."""
    latent: Float[Array, "*steps latent"]
    """Latent of the episode (see `Label`); mostly empty."""
    values: Float[Array, "*steps agents actions"]
    """Values of every action of every agent, not of those played alone."""

    @property
    def context(self) -> Float[Array, " context"]:
        """What is known centrally: all observations and the latent."""
        return jnp.concatenate([self.obs.reshape(-1), self.latent])


def context_size(spec: EnvSpec, latent_size: int) -> int:
    """Numbers in a step's context."""
    return spec.num_agents * spec.obs_size + latent_size


@runtime_checkable
class Mixer(Protocol):
    """A network that turns agents' values into what is learned."""

    def __call__(self, step: MixerStep) -> Float[Array, " values"]:
        """One value for the team, or one per agent."""

    def with_penalty(self, step: MixerStep) -> tuple[Float[Array, " values"], Float[Array, ""]]:
        """The same, and what the mixer adds to the loss of this step: what both share is computed once."""


@runtime_checkable
class BuildsMixer(Protocol):
    """A frozen dataclass: the settings of a mixer."""

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> Mixer:
        """A fresh mixer, whose context also has the episode's latent if that has a size."""


class MixerBase(eqx.Module):
    """A mixer that adds nothing to the loss, unless it says otherwise."""

    @abstractmethod
    def __call__(self, step: MixerStep) -> Float[Array, " values"]:
        """One value for the team, or one per agent."""

    def with_penalty(self, step: MixerStep) -> tuple[Float[Array, " values"], Float[Array, ""]]:
        """The same, and nothing."""
        return self(step), jnp.zeros_like(step.q[0])


def hypernets(key: Key, *sizes: tuple[int, ...]) -> list[FeedForward]:
    """ReLU nets of these layer sizes; weights and biases start uniform within 1 / sqrt(inputs), as in the reference.

    Biases start random, because a weight that is an absolute value has no gradient at zero: with none, a state of
    zeros would never be learned. All come from one draw, because draws are slow to compile.
    """
    shapes = [(inputs + 1, outputs) for size in sizes for inputs, outputs in itertools.pairwise(size)]
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    parts = jnp.split(jax.random.uniform(key, (ends[-1],), minval=-1.0, maxval=1.0), ends[:-1])
    both = (part.reshape(shape) / math.sqrt(shape[0] - 1) for part, shape in zip(parts, shapes, strict=True))
    layers = iter([Dense(weight[:-1], weight[-1]) for weight in both])
    return [FeedForward(tuple(itertools.islice(layers, len(size) - 2)), next(layers)) for size in sizes]


class OwnValues(MixerBase):
    """Nothing is mixed."""

    def __call__(self, step: MixerStep) -> Float[Array, " agents"]:
        """Every agent's own value."""
        return step.q


@dataclass(frozen=True)
class Independent:
    """IQL: every agent learns from the shared reward by itself, the others being part of its world."""

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> OwnValues:
        """Nothing to be learned."""
        del spec, key, latent_size
        return OwnValues()


class SumOfValues(MixerBase):
    """The plain sum."""

    def __call__(self, step: MixerStep) -> Float[Array, " 1"]:
        """Qtot."""
        return jnp.sum(step.q, keepdims=True)


@dataclass(frozen=True)
class Sum:
    """VDN: the team's value is the sum of the agents' values."""

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> SumOfValues:
        """Nothing to be learned."""
        del spec, key, latent_size
        return SumOfValues()


class MonotonicMixer(MixerBase):
    """Qtot = elu(q |W1(s)| + b1(s)) |w2(s)| + v(s)."""

    first: FeedForward
    bias: FeedForward
    second: FeedForward
    value: FeedForward

    def __call__(self, step: MixerStep) -> Float[Array, " 1"]:
        """Qtot, which no agent's value can lower by rising."""
        context = step.context
        weight = jnp.abs(applied(self.first, context)).reshape(step.q.shape[0], -1)
        hidden = jax.nn.elu(step.q @ weight + applied(self.bias, context))
        return jnp.sum(hidden * jnp.abs(applied(self.second, context)), keepdims=True) + applied(self.value, context)


@dataclass(frozen=True)
class Monotonic:
    """QMIX: the team's value rises with every agent's value, by weights that depend on the state."""

    hidden: int = 32
    """Units between the agents' values and the team's."""
    hyper_hidden: int = 64
    """Units of the layer from the state to those weights; 0: they are linear in the state, as in older code."""

    def __post_init__(self) -> None:
        """Refuse nets without units."""
        at_least(self, 1, "hidden")
        at_least(self, 0, "hyper_hidden")

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> MonotonicMixer:
        """Fresh hypernetworks."""
        context, agents = context_size(spec, latent_size), spec.num_agents
        layers = (context, self.hyper_hidden) if self.hyper_hidden else (context,)
        return MonotonicMixer(
            *hypernets(
                key,
                (*layers, agents * self.hidden),
                (context, self.hidden),
                (*layers, self.hidden),
                (context, self.hidden, 1),
            )
        )


class Attention(eqx.Module):
    """w_i = sum_h softmax_i(query_h(s) . key_h(o_i) / sqrt(size)): what agents count, by their own observations."""

    embed: Dense
    """From the state to the layer before the queries; stacked over heads, as all that follows."""
    query: Float[Array, "heads hidden size"]
    key: Float[Array, "heads obs size"]
    penalty_weight: float = eqx.field(static=True)

    def __call__(self, step: MixerStep) -> tuple[Float[Array, " agents"], Float[Array, ""]]:
        """(weights, above zero; mean squared logits, not divided, summed over heads: keeps the softmax unsaturated)."""
        logits = self.logits(step)
        scaled = logits / math.sqrt(self.key.shape[-1])
        weights = jnp.sum(jax.nn.softmax(scaled, axis=1) + TINY, axis=0)
        return weights, self.penalty_weight * jnp.sum(jnp.mean(jnp.square(logits), axis=1))

    def logits(self, step: MixerStep) -> Float[Array, "heads agents"]:
        """Before they are divided by sqrt(size): how much the agents count at this state."""
        # Queries and keys are linear in what they come from, so their product is known before either: for all steps
        # that is one small matrix instead of two larger products each.
        both = jnp.einsum("hos,his->hoi", self.key, self.query)

        def of_head(head: int) -> Float[Array, " agents"]:
            hidden = jax.nn.relu(jax.tree.map(lambda leaf: leaf[head], self.embed)(step.context))
            # Deviation(attention-features): every agent's own observation stands for its part of the state.
            return step.obs @ (both[head] @ hidden)

        # One after another: heads as an axis of the products would be copied to where a product needs it.
        return jnp.stack([of_head(head) for head in range(len(both))])


class StateWeights(eqx.Module):
    """w_i = |net(s)_i|: what agents count, by the state alone."""

    net: FeedForward

    def __call__(self, step: MixerStep) -> tuple[Float[Array, " agents"], Float[Array, ""]]:
        """(weights, above zero; no penalty)."""
        return jnp.abs(applied(self.net, step.context)) + TINY, jnp.zeros_like(step.q[0])


class Importances(eqx.Module):
    """lambda_i = sum_k |scale_k(s)| sigmoid(agent_k(s)_i) sigmoid(action_k(s, a)_i): what an advantage counts."""

    scale: FeedForward
    """Stacked over kernels k; so are the others."""
    agent: FeedForward
    action: FeedForward

    def __call__(self, step: MixerStep) -> Float[Array, " agents"]:
        """lambda_i, above zero."""
        both = jnp.concatenate([step.context, step.action.reshape(-1)])
        kernels = jax.vmap(applied, in_axes=(0, None))
        scale = jnp.abs(kernels(self.scale, step.context)) + TINY
        shares = jax.nn.sigmoid(kernels(self.agent, step.context)) * jax.nn.sigmoid(kernels(self.action, both))
        return jnp.sum(scale * shares, axis=0)

    @staticmethod
    def sizes(spec: EnvSpec, latent_size: int, kernels: int, hidden: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Layers of all nets, kernel after kernel."""
        agents, context = spec.num_agents, context_size(spec, latent_size)
        both = spec.joint_size + latent_size
        one = [(context, *hidden, 1), (context, *hidden, agents), (both, *hidden, agents)]
        return one * kernels

    @staticmethod
    def of(nets: list[FeedForward]) -> Importances:
        """From nets of these sizes."""
        return Importances(*(tree_stack(nets[kind::3]) for kind in range(3)))


class DuplexMixer(MixerBase):
    """Weighted values of the agents, and advantages weighted once more by what the others do.

    Qtot = sum_i w_i Q_i + v(s) + sum_i stop(w_i (Q_i - max Q_i)) (lambda_i - 1)
    """

    weighing: Attention | StateWeights
    value: FeedForward
    """Value of the state; the sum of what it says."""
    importances: Importances

    def __call__(self, step: MixerStep) -> Float[Array, " 1"]:
        """Qtot, at its highest where every agent's value is."""
        return self.with_penalty(step)[0]

    def with_penalty(self, step: MixerStep) -> tuple[Float[Array, " 1"], Float[Array, ""]]:
        """Qtot, and the penalty of the weights; both depend on what the agents count."""
        weights, penalty = self.weighing(step)
        advantages = jax.lax.stop_gradient(weights * (step.q - step.best))
        total = jnp.sum(weights * step.q) + jnp.sum(advantages * (self.importances(step) - 1.0))
        return total[None] + jnp.sum(applied(self.value, step.context), keepdims=True), penalty


@dataclass(frozen=True)
class Duplex:
    """QPLEX: any payoff whose best joint action is every agent's own best; agents count by attention."""

    heads: int = 4
    """Attention heads over agents."""
    attention_size: int = 32
    """Length of queries and keys."""
    query_hidden: int = 64
    """Units of the layer from the state to the queries."""
    value_hidden: int = 32
    """Units of the layer from the state to its own value."""
    kernels: int = 4
    """Terms of every agent's importance."""
    importance_hidden: tuple[int, ...] = ()
    """Widths of the ReLU layers before the importances; none: they are linear in state and joint action."""
    attention_penalty: float = 1e-3
    """Weight of the mean squared attention logits in the loss."""

    def __post_init__(self) -> None:
        """Refuse nets without units."""
        at_least(self, 1, "heads", "attention_size", "query_hidden", "value_hidden", "kernels")
        each_at_least(self, 1, "importance_hidden")

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> DuplexMixer:
        """Fresh attention and importances."""
        context = context_size(spec, latent_size)
        value, *rest = hypernets(
            key,
            (context, self.value_hidden, 1),
            *[(context, self.query_hidden, self.attention_size)] * self.heads,
            *[(spec.obs_size, self.attention_size)] * self.heads,
            *Importances.sizes(spec, latent_size, self.kernels, self.importance_hidden),
        )
        queries, keys = tree_stack(rest[: self.heads]), tree_stack(rest[self.heads : 2 * self.heads])
        # Neither queries nor keys have a bias in their last layer.
        attention = Attention(queries.layers[0], queries.head.weight, keys.head.weight, self.attention_penalty)
        return DuplexMixer(attention, value, Importances.of(rest[2 * self.heads :]))


@dataclass(frozen=True)
class StateDuplex:
    """QPLEX as on its authors' matrix games (`dmaq`): agents count by the state alone, importances have deeper nets."""

    hidden: int = 64
    """Units of the layers from the state to the weights and to its own value."""
    kernels: int = 10
    """Terms of every agent's importance."""
    importance_hidden: tuple[int, ...] = (64, 64)
    """Widths of the ReLU layers before the importances; none: they are linear in state and joint action."""

    def __post_init__(self) -> None:
        """Refuse nets without units."""
        at_least(self, 1, "hidden", "kernels")
        each_at_least(self, 1, "importance_hidden")

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> DuplexMixer:
        """Fresh weights and importances."""
        layers = (context_size(spec, latent_size), self.hidden, spec.num_agents)
        sizes = Importances.sizes(spec, latent_size, self.kernels, self.importance_hidden)
        weights, value, *rest = hypernets(key, layers, layers, *sizes)
        return DuplexMixer(StateWeights(weights), value, Importances.of(rest))


MixerConfig: TypeAlias = Independent | Sum | Monotonic | Duplex | StateDuplex


def applied(net: FeedForward, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
    """A net without memory as a function."""
    return net.step((), x)[1]
