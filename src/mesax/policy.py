"""Policies with an episode memory, and the choice of who plays an episode.

A joint policy is a value: `start(key) -> memory`, `act(memory, obs, key) -> (action, memory)`, and
`label(memory) -> Label`, which says who plays this episode (0: the learner itself) and what was drawn for it. It is
asked when the episode is over, so that a draw may wait for the first observation. Memory is a GRU state, or "which
explorer runs this episode".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.nets import Memory
from mesax.types import Action, ActionSpace, Discrete, EnvSpec, Key, Label, leading_size, random_index

LEARNER = 0
EXPLORER = 1
LATENT_STREAM = 2
"""Next to `EXPLORER`, which is a stream of its own too. Small numbers are what `jax.random.split` folds in as well, so
`fold_in(key, 1)` is the second half of a split of the key. Here that does no harm, since of two players only one is
obeyed; new streams should take large numbers, as those of `training/schedule.py` do."""


@runtime_checkable
class Policy(Protocol):
    """How a team of agents acts during one episode."""

    def start(self, key: Key) -> Memory:
        """Memory at the start of an episode."""

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Joint action for one joint observation."""

    def label(self, memory: Memory) -> Label:
        """Who plays this episode, and what was drawn for it."""


class UniformPolicy(eqx.Module):
    """Independent uniformly random actions."""

    action_space: ActionSpace = eqx.field(static=True)
    """Actions to draw from."""
    number: int = eqx.field(static=True, default=LEARNER)
    """Who plays (see `Label.actor`)."""

    def start(self, key: Key) -> Memory:
        """Nothing to remember."""
        del key
        return ()

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Ignore the observation."""
        return self.action_space.sample(key, (obs.shape[0],)), memory

    def label(self, memory: Memory) -> Label:
        """The number given at construction."""
        del memory
        return Label.of(self.number)


class SameActionPolicy(eqx.Module):
    """All agents play the same uniformly random action, a new one at every step."""

    action_space: Discrete = eqx.field(static=True)
    number: int = eqx.field(static=True, default=EXPLORER)
    """Who plays (see `Label.actor`)."""

    def start(self, key: Key) -> Memory:
        """Nothing to remember."""
        del key
        return ()

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Ignore the observation."""
        return jnp.broadcast_to(self.action_space.sample(key, (1,)), (obs.shape[0],)), memory

    def label(self, memory: Memory) -> Label:
        """The number given at construction."""
        del memory
        return Label.of(self.number)


class Wrapping(eqx.Module):
    """A policy around another, whose memory and label are the other's."""

    policy: Policy
    """Policy that is wrapped."""

    def start(self, key: Key) -> Memory:
        """Memory of the wrapped policy."""
        return self.policy.start(key)

    @abstractmethod
    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """What becomes of the wrapped policy's action, or of what it sees."""

    def label(self, memory: Memory) -> Label:
        """As the wrapped policy says."""
        return self.policy.label(memory)


class EpsilonRandom(Wrapping):
    """Each agent's discrete action is replaced by a uniformly random one with probability `epsilon`."""

    epsilon: Float[Array, ""]
    """Chance of a random action."""
    action_space: Discrete = eqx.field(static=True)
    """Actions to draw from."""

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Act, then replace some agents' actions by random ones."""
        key_policy, key_random = jax.random.split(key)
        action, memory = self.policy.act(memory, obs, key_policy)
        return sometimes_random(action, self.epsilon, self.action_space, key_random), memory


def sometimes_random(
    action: Int[Array, " agents"], epsilon: Float[Array, ""], space: Discrete, key: Key
) -> Int[Array, " agents"]:
    """The action, each agent's replaced by a uniformly random one with probability `epsilon`."""
    whether, which = jax.random.uniform(key, (2, action.shape[0]))  # one draw compiles faster than two
    return jnp.where(whether < epsilon, space.from_uniform(which), action)


class GaussianNoise(Wrapping):
    """Adds clipped Gaussian noise to a continuous action."""

    scale: Float[Array, ""]

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Act, add noise, clip to the box."""
        key_policy, key_noise = jax.random.split(key)
        action, memory = self.policy.act(memory, obs, key_policy)
        noise = self.scale * jax.random.normal(key_noise, action.shape)
        return jnp.clip(action + noise, -1.0, 1.0), memory


class Relabeled(eqx.Module):
    """A policy whose episodes somebody else learns from: they carry a latent of the learner's own prior.

    What the policy itself had drawn means nothing to that learner. A learner without latents changes nothing.
    """

    policy: Policy
    prior: Callable[[Key], Float[Array, " latent"]] = eqx.field(static=True)
    """Hashable, for it names a compiled program."""

    def start(self, key: Key) -> Memory:
        """Memory of the wrapped policy, and a latent from a stream apart from its own."""
        return self.policy.start(key), self.prior(jax.random.fold_in(key, LATENT_STREAM))

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """As the wrapped policy does."""
        inner, latent = memory
        action, inner = self.policy.act(inner, obs, key)
        return action, (inner, latent)

    def label(self, memory: Memory) -> Label:
        """Who plays, with the latent of the learner."""
        inner, latent = memory
        return Label(self.policy.label(inner).actor, latent)


class ExplorationPolicySet(eqx.Module):
    """E stacked policies; one is drawn uniformly per episode (Algorithm 2, line 4)."""

    policies: Policy
    """One policy whose leaves carry a leading axis of E."""

    def start(self, key: Key) -> Memory:
        """Draw which explorer runs this episode."""
        key_which, key_start = jax.random.split(key)
        which = random_index(key_which, (), leading_size(self.policies))
        return which, jax.vmap(lambda policy: policy.start(key_start))(self.policies)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """All act, the drawn explorer is obeyed: gathering its weights for every episode would cost more."""
        which, inner = memory
        actions, inner = jax.vmap(lambda policy, memory: policy.act(memory, obs, key))(self.policies, inner)
        return actions[which], (which, inner)

    def label(self, memory: Memory) -> Label:
        """Number of the drawn explorer, from 1, and what it has drawn."""
        which, inner = memory
        labels = jax.vmap(lambda policy, memory: policy.label(memory))(self.policies, inner)
        return Label(jnp.asarray(which + EXPLORER, jnp.int32), labels.latent[which])


def with_noise(policy: Policy, epsilon: Float[Array, ""], action_space: ActionSpace) -> Policy:
    """A policy's own exploration: random actions among discrete ones, Gaussian noise of that scale for a box."""
    if isinstance(action_space, Discrete):
        return EpsilonRandom(policy, epsilon, action_space)
    return GaussianNoise(policy, epsilon)


class Bounded(Wrapping):
    """Keeps continuous actions in their box, as environments do: an episode then says what was really done."""

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """The nearest action of the box."""
        action, memory = self.policy.act(memory, obs, key)
        return jnp.clip(action, -1.0, 1.0), memory


def within_bounds(policy: Policy, action_space: ActionSpace) -> Policy:
    """A policy whose episodes others may learn from."""
    return policy if isinstance(action_space, Discrete) else Bounded(policy)


class Repeated(eqx.Module):
    """Plays each action of a policy several times in a row: fewer, longer decisions."""

    policy: Policy
    spec: EnvSpec = eqx.field(static=True)
    times: int = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """No action chosen yet."""
        return self.policy.start(key), jnp.zeros((), jnp.int32), self.spec.action_space.zeros((self.spec.num_agents,))

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Decide anew every `times` steps."""
        inner, count, action = memory
        # Episodes side by side have a count each, so that the decision is computed at every step, and mostly dropped.
        action, inner = jax.lax.cond(
            count % self.times == 0, lambda: self.policy.act(inner, obs, key), lambda: (action, inner)
        )
        return action, (inner, count + 1, action)

    def label(self, memory: Memory) -> Label:
        """As the wrapped policy says."""
        return self.policy.label(memory[0])
