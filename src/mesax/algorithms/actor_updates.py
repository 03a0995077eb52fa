"""What improves decentralized actors under a centralized critic: the contract, and two updates that need no memory.

    GumbelGradient    each agent climbs dQ/da_i through a straight-through sample of its own action (the paper's)
    ExpectedGradient  each agent climbs E_{a_i ~ pi_i} Q exactly, by evaluating all its own actions

Both move one agent at a time, and so cannot leave an equilibrium that only a joint move improves: `coordinated.py` can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from mesax.algorithms.targets import straight_through
from mesax.errors import UsageError
from mesax.ranges import above
from mesax.types import Actions, ActionSpace, Discrete, EnvSpec, Episode, Key

Partners: TypeAlias = Literal["policy", "buffer"]
Outputs: TypeAlias = Float[Array, "*batch agents features"]
"""What actors say of each of their actions, or what a critic sees of the actions chosen."""


@dataclass(frozen=True)
class ActorProblem:
    """Improve the actors at the states of a batch of episodes; action features are one-hot or continuous.

    Batched rather than written for one step: one random draw for the whole batch compiles many times faster than a
    `vmap` of small draws.
    """

    outputs: Float[Array, "batch time agents features"]
    """The current actors' raw outputs; gradients flow through these."""
    played: Float[Array, "batch time agents features"]
    """The joint actions in the replay."""
    found: PyTree
    """What the update itself has found in the batch (`ActorUpdate.observe`)."""
    q: Callable[[Float[Array, "batch time agents features"]], Float[Array, "batch time"]]
    """Value of other joint actions at these states, critic memory advanced by what was played."""
    q_of_one: Callable[[Float[Array, "agents features"]], Float[Array, "batch time"]]
    """Value of one and the same joint action at all these states: much cheaper under `vmap` over actions."""
    action_space: ActionSpace
    advantages: Float[Array, "batch time agents features"] | None = None
    """What each own action adds to the value whatever the others do, if the critic is additive."""


@dataclass(frozen=True)
class Replayed:
    """A batch of episodes as critics see it."""

    episodes: Episode
    """The episodes, `[batch, ...]`."""
    played: Float[Array, "batch time agents features"]
    """Their joint actions."""
    targets: Float[Array, "batch time"]
    """What the critics were taught of each step."""


@runtime_checkable
class ActorUpdate(Protocol):
    """A frozen dataclass whose `loss` says, per step, what the actors should lower.

    What it remembers from batch to batch is part of the learner's state: saved, resumed and stacked with it.
    """

    def check(self, action_space: ActionSpace) -> None:
        """Raise a `UsageError` if the update cannot serve this action space."""

    def begin(self, spec: EnvSpec) -> PyTree:
        """What it remembers at the start of a run."""

    def observe(self, spec: EnvSpec, memory: PyTree, replayed: Replayed, key: Key) -> tuple[PyTree, PyTree]:
        """(the memory with a batch in it, what `loss` is to know of that batch)."""

    def loss(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time"]:
        """Loss at every step."""


def greedy_features(outputs: Outputs, action_space: ActionSpace) -> Outputs:
    """What a critic sees of the actors' greedy actions."""
    if isinstance(action_space, Discrete):
        return jax.nn.one_hot(jnp.argmax(outputs, axis=-1), action_space.num_actions)
    return jnp.tanh(outputs)


def greedy_action(outputs: Outputs, action_space: ActionSpace) -> Actions:
    """The actors' greedy joint action, as the environment takes it."""
    return jnp.argmax(outputs, axis=-1) if isinstance(action_space, Discrete) else jnp.tanh(outputs)


def sampled_features(outputs: Outputs, action_space: ActionSpace, key: Key, temperature: float = 1.0) -> Outputs:
    """Differentiable samples of the actors' actions."""
    if isinstance(action_space, Discrete):
        return straight_through(outputs, key, temperature)
    return jnp.tanh(outputs)


def replace_own(
    own: Float[Array, "batch time agents features"], partners: Float[Array, "batch time agents features"]
) -> Float[Array, "agents batch time agents features"]:
    """For each agent i, the joint action in which only i's entry comes from `own`."""
    is_own: Bool[Array, "agents 1 1 agents 1"] = jnp.eye(own.shape[-2], dtype=bool)[:, None, None, :, None]
    return jnp.where(is_own, own[None], partners[None])


class Memoryless:
    """What an update leaves alone that remembers nothing."""

    def begin(self, spec: EnvSpec) -> PyTree:
        """Nothing."""
        del spec
        return ()

    def observe(self, spec: EnvSpec, memory: PyTree, replayed: Replayed, key: Key) -> tuple[PyTree, PyTree]:
        """Nothing is noted."""
        del spec, replayed, key
        return memory, ()


@dataclass(frozen=True)
class GumbelGradient(Memoryless):
    """The paper's MADDPG actor: gradient of Q through each agent's own sampled (or continuous) action."""

    partners: Partners = "policy"
    """Where the other agents' actions come from: their current policies, or the replay buffer."""
    temperature: float = 1.0
    """Temperature of the relaxed draws."""

    def __post_init__(self) -> None:
        """Refuse samples that no gradient comes through."""
        above(self, 0, "temperature")

    def check(self, action_space: ActionSpace) -> None:
        """Serves every action space."""
        del action_space

    def loss(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time"]:
        """- sum_i Q(a_i from pi_i, a_-i), only a_i differentiable."""
        own = sampled_features(problem.outputs, problem.action_space, key, self.temperature)
        if self.partners == "buffer":
            return -jnp.sum(jax.vmap(problem.q)(replace_own(own, problem.played)), axis=0)
        # Every agent's term is the value of one and the same joint action, whose gradient has a part for each of them.
        value = problem.q(own)
        return -value - (own.shape[-2] - 1) * jax.lax.stop_gradient(value)


@dataclass(frozen=True)
class ExpectedGradient(Memoryless):
    """Exact expectation of Q over each agent's own actions (discrete actions only)."""

    partners: Partners = "policy"
    """Where the other agents' actions come from: their current policies, or the replay buffer."""

    def check(self, action_space: ActionSpace) -> None:
        """Needs a finite set of own actions."""
        if not isinstance(action_space, Discrete):
            raise UsageError("ExpectedGradient needs discrete actions; choose GumbelGradient or JointImprovement")

    def loss(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time"]:
        """- sum_i sum_a pi_i(a) Q(a, a_-i)."""
        num_actions = problem.outputs.shape[-1]
        if problem.advantages is not None:  # the partners only add a constant
            return -jnp.sum(jax.nn.softmax(problem.outputs) * problem.advantages, axis=(-2, -1))
        sampled = sampled_features(jax.lax.stop_gradient(problem.outputs), problem.action_space, key)
        partners = sampled if self.partners == "policy" else problem.played

        def values_of(action: Int[Array, ""]) -> Float[Array, "agents batch time"]:
            own = jnp.broadcast_to(jax.nn.one_hot(action, num_actions), problem.outputs.shape)
            return jax.vmap(problem.q)(replace_own(own, partners))

        values = jax.lax.stop_gradient(jax.vmap(values_of, out_axes=-1)(jnp.arange(num_actions)))
        probabilities = jnp.moveaxis(jax.nn.softmax(problem.outputs), -2, 0)
        return -jnp.sum(probabilities * values, axis=(0, -1))
