"""Three ways to improve decentralized actors under a centralized critic.

    GumbelGradient    each agent climbs dQ/da_i through a straight-through sample of its own action (the paper's)
    ExpectedGradient  each agent climbs E_{a_i ~ pi_i} Q exactly, by evaluating all its own actions
    JointImprovement  a* = argmax over candidate joint actions of Q, unless the team's greedy joint action is within a
                      margin of it; then every agent imitates its part of a*                     (coordinated)

The first two move one agent at a time, and so cannot leave an equilibrium that only a joint move improves. The margin
is hysteresis: tied optima would make the argmax flip, and marginals averaged over flips are a choice that was not made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mesax.algorithms.targets import straight_through
from mesax.errors import UsageError
from mesax.ranges import above, at_least, at_most
from mesax.types import Actions, ActionSpace, Discrete, Key

MOST_ENUMERATED = 256
"""Joint actions that are tried one by one at most: their number is a power of the number of agents."""
Partners: TypeAlias = Literal["policy", "buffer"]
Outputs: TypeAlias = Float[Array, "*batch agents features"]
"""What actors say of each of their actions, or what a critic sees of the actions chosen."""
Rated: TypeAlias = tuple[Float[Array, "batch time agents features"], Float[Array, "batch time"]]
"""Joint actions and their values."""


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
    pool: Float[Array, "pool agents features"]
    """Joint actions from elsewhere (replay, explorers, the best so far) offered as candidates at every step."""
    q: Callable[[Float[Array, "batch time agents features"]], Float[Array, "batch time"]]
    """Value of other joint actions at these states, critic memory advanced by what was played."""
    q_of_one: Callable[[Float[Array, "agents features"]], Float[Array, "batch time"]]
    """Value of one and the same joint action at all these states: much cheaper under `vmap` over actions."""
    action_space: ActionSpace
    advantages: Float[Array, "batch time agents features"] | None = None
    """What each own action adds to the value whatever the others do, if the critic is additive."""


@runtime_checkable
class ActorUpdate(Protocol):
    """A frozen dataclass whose `loss` says, per step, what the actors should lower."""

    def check(self, action_space: ActionSpace) -> None:
        """Raise a `UsageError` if the update cannot serve this action space."""

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


def all_joint_actions(action_space: ActionSpace, num_agents: int) -> Float[Array, "joint agents features"]:
    """Every joint action, as critics see it; refused where there are too many."""
    if not isinstance(action_space, Discrete) or action_space.num_actions**num_agents > MOST_ENUMERATED:
        raise UsageError(
            f"all joint actions can be tried only if they are discrete and at most {MOST_ENUMERATED}:"
            f" not those of {num_agents} agents with {action_space}"
        )
    joint = itertools.product(range(action_space.num_actions), repeat=num_agents)
    return action_space.encode(jnp.asarray(np.array(list(joint))))


@dataclass(frozen=True)
class GumbelGradient:
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
class ExpectedGradient:
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


@dataclass(frozen=True)
class JointImprovement:
    """Coordinated update: imitate the best joint action under the critic, with hysteresis against ties."""

    margin: float = 0.1
    """A candidate must beat the team's greedy joint action by this much in Q to replace it."""
    enumerate_up_to: int = 256
    """Joint action spaces of at most this size are enumerated; larger ones are sampled from the sources below."""
    num_replay: int = 32
    """Candidates played elsewhere in the batch, by any policy."""
    num_explorer: int = 16
    """Candidates from episodes that an explorer played."""
    num_elite: int = 8
    """Candidates from a memory of the joint actions with the highest targets so far."""
    num_policy: int = 4
    """Candidates sampled from the current policies."""
    policy_noise: float = 0.3
    """Scale of the noise around continuous policies' candidates."""
    num_uniform: int = 8
    """Uniformly random candidates."""

    def __post_init__(self) -> None:
        """Refuse to try more than can be tried."""
        at_most(self, MOST_ENUMERATED, "enumerate_up_to")
        counts = ("num_replay", "num_explorer", "num_elite", "num_policy", "num_uniform")
        at_least(self, 0, "margin", "policy_noise", *counts)

    def elite_scores(self, rewards: Float[Array, "*steps"], targets: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """What joint actions are remembered by: their targets."""
        del rewards
        return targets

    def enumerates(self, action_space: ActionSpace, num_agents: int) -> bool:
        """Whether the joint action space is small enough to try all of it."""
        return isinstance(action_space, Discrete) and action_space.num_actions**num_agents <= self.enumerate_up_to

    def check(self, action_space: ActionSpace) -> None:
        """Serves every action space."""
        del action_space

    def loss(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time"]:
        """Cross-entropy (discrete) or squared distance (continuous) to the improved joint action."""
        target = jax.lax.stop_gradient(self.improved(problem, key))
        if isinstance(problem.action_space, Discrete):
            return -jnp.sum(target * jax.nn.log_softmax(problem.outputs), axis=(-2, -1))
        return jnp.sum(jnp.square(jnp.tanh(problem.outputs) - target), axis=(-2, -1))

    def improved(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time agents features"]:
        """The best candidate where it beats the greedy joint action by the margin, else the greedy joint action."""
        greedy = greedy_features(problem.outputs, problem.action_space)
        enumerates = self.enumerates(problem.action_space, greedy.shape[-2])
        best, value = self._best_shared(problem) if enumerates else self._best_local(problem, key)
        if not enumerates and problem.pool.shape[0]:
            other, other_value = self._best_shared(problem)
            best = jnp.where((other_value > value)[..., None, None], other, best)
            value = jnp.maximum(value, other_value)
        better = value > problem.q(greedy) + self.margin
        return jnp.where(better[..., None, None], best, greedy)

    def _best_shared(self, problem: ActorProblem) -> Rated:
        """Best of the candidates that are the same at every state: all joint actions, or the pool."""
        space, num_agents = problem.action_space, problem.outputs.shape[-2]
        candidates = problem.pool
        if isinstance(space, Discrete) and self.enumerates(space, num_agents):
            candidates = all_joint_actions(space, num_agents)
        values = jax.vmap(problem.q_of_one)(candidates)
        return candidates[jnp.argmax(values, axis=0)], jnp.max(values, axis=0)

    def _best_local(self, problem: ActorProblem, key: Key) -> Rated:
        """Best of the candidates drawn for each state: the joint action played, policy samples, uniform ones."""
        shape, space = problem.outputs.shape, problem.action_space
        key_policy, key_uniform = jax.random.split(key)
        own = self._own_samples(problem, key_policy)
        uniform = space.encode(space.sample(key_uniform, (self.num_uniform, *shape[:-1])))
        candidates = jnp.concatenate([problem.played[None], own, uniform])
        values = jax.vmap(problem.q)(candidates)
        best = jnp.argmax(values, axis=0)
        return jnp.take_along_axis(candidates, best[None, ..., None, None], axis=0)[0], jnp.max(values, axis=0)

    def _own_samples(self, problem: ActorProblem, key: Key) -> Float[Array, "samples batch time agents features"]:
        outputs = jnp.broadcast_to(problem.outputs, (self.num_policy, *problem.outputs.shape))
        if isinstance(problem.action_space, Discrete):
            return sampled_features(outputs, problem.action_space, key)
        noise = self.policy_noise * jax.random.normal(key, outputs.shape)
        return jnp.clip(jnp.tanh(outputs) + noise, -1.0, 1.0)


@dataclass(frozen=True)
class ImmediateElites(JointImprovement):
    """The same, with a memory of the joint actions that were paid most at once.

    Where every step asks for another joint action, targets are higher the more steps follow, and the memory of the
    highest ones would hold whatever is played first.
    """

    def elite_scores(self, rewards: Float[Array, "*steps"], targets: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """By their reward."""
        del targets
        return rewards


ActorUpdateConfig: TypeAlias = GumbelGradient | ExpectedGradient | JointImprovement | ImmediateElites
