"""The coordinated actor update: all agents move at once, to the best joint action that the critic knows of.

    a* = argmax over candidate joint actions of Q, unless the team's greedy joint action is within a margin of it;
    then every agent imitates its part of a*

So a team leaves an equilibrium that only a joint move improves. The margin is hysteresis: tied optima would make the
argmax flip, and marginals averaged over flips are a choice that was not made. Where there are too many joint actions to
try them all, candidates come from the replay, from explorers, from the policies, from chance, and from the `Elites`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mesax.algorithms.actor_updates import ActorProblem, Outputs, Replayed, greedy_features, sampled_features
from mesax.policy import LEARNER
from mesax.ranges import at_least, at_most
from mesax.types import ActionSpace, Discrete, EnvSpec, Episode, Key

MOST_ENUMERATED = 256
"""Joint actions that are tried one by one at most: their number is a power of the number of agents."""
Rated: TypeAlias = tuple[Float[Array, "batch time agents features"], Float[Array, "batch time"]]
"""Joint actions and their values."""


class Elites(eqx.Module):
    """The joint actions with the highest targets seen, as candidates for improvement."""

    features: Float[Array, "elites agents features"]
    score: Float[Array, " elites"]

    @staticmethod
    def create(number: int, num_agents: int, features: int) -> Elites:
        """Nothing seen yet."""
        return Elites(jnp.zeros((number, num_agents, features)), jnp.full(number, -jnp.inf))

    def forgotten(self) -> Elites:
        """Room for as many."""
        return Elites.create(*self.features.shape[-3:])

    def observe(self, features: Float[Array, "steps agents features"], score: Float[Array, " steps"]) -> Elites:
        """Keep the best distinct joint actions of the memory and a batch; old scores fade slowly."""
        features = jnp.concatenate([self.features, features])
        score = jnp.concatenate([self.score - 1e-3 * jnp.abs(self.score), score])

        def take_best(left: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
            best = jnp.argmax(left)
            same = jnp.all(features == features[best][None], axis=(1, 2))
            return jnp.where(same, -jnp.inf, left), (features[best], left[best])

        return Elites(*jax.lax.scan(take_best, score, None, self.score.shape[0])[1])


def all_joint_actions(action_space: Discrete, num_agents: int) -> Float[Array, "joint agents features"]:
    """Every joint action, as critics see it."""
    joint = itertools.product(range(action_space.num_actions), repeat=num_agents)
    return action_space.encode(jnp.asarray(np.array(list(joint))))


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

    def begin(self, spec: EnvSpec) -> Elites:
        """No joint action has been seen."""
        return Elites.create(self.num_elite, spec.num_agents, spec.action_space.feature_size)

    def observe(
        self, spec: EnvSpec, memory: Elites, replayed: Replayed, key: Key
    ) -> tuple[Elites, Float[Array, "pool agents features"]]:
        """(best joint actions so far, candidates for every step), neither of which is needed where all are tried."""
        batch, played = replayed.episodes, replayed.played
        if self.enumerates(spec.action_space, spec.num_agents):
            return memory, jnp.zeros((0, *played.shape[2:]))
        score = jnp.where(batch.mask, self.elite_scores(batch.reward, replayed.targets), -jnp.inf)
        memory = memory.observe(played.reshape(-1, *played.shape[2:]), score.reshape(-1))
        return memory, self._pool(batch, played, memory, key)

    def _pool(self, batch: Episode, played: Outputs, elites: Elites, key: Key) -> Float[Array, "pool agents features"]:
        """Joint actions played elsewhere: anywhere in the batch, by explorers, and the elites."""
        key_replay, key_explorer, key_instead = jax.random.split(key, 3)
        steps = played.reshape(-1, *played.shape[2:])
        happened = batch.mask.reshape(-1)
        explored = happened & jnp.repeat(batch.label.actor != LEARNER, batch.mask.shape[1])
        replay = _choose(key_replay, happened, self.num_replay)
        explorer = _choose(key_explorer, jnp.where(jnp.any(explored), explored, happened), self.num_explorer)
        instead = steps[_choose(key_instead, happened, self.num_elite)]  # for places that are still empty
        elite = jnp.where(jnp.isfinite(elites.score)[:, None, None], elites.features, instead)
        return jnp.concatenate([steps[replay], steps[explorer], elite])

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
        if not enumerates and problem.found.shape[0]:
            other, other_value = self._best_shared(problem)
            best = jnp.where((other_value > value)[..., None, None], other, best)
            value = jnp.maximum(value, other_value)
        better = value > problem.q(greedy) + self.margin
        return jnp.where(better[..., None, None], best, greedy)

    def _best_shared(self, problem: ActorProblem) -> Rated:
        """Best of the candidates that are the same at every state: all joint actions, or the pool."""
        space, num_agents = problem.action_space, problem.outputs.shape[-2]
        candidates = problem.found
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


def _choose(key: Key, allowed: Bool[Array, " steps"], number: int) -> Int[Array, " {number}"]:
    return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf), shape=(number,))
