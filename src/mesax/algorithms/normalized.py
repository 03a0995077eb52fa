"""Any algorithm on standardized observations: users' environments come in all units.

    mean, std    of each agent's every entry, over all steps of all batches so far
    policy       acts on clip((obs - mean) / std, -limit, limit); it carries mean and std along
    update       the algorithm's own, on a batch that is standardized likewise

Moments are means over batches with equal weights, so they settle as 1 / updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import Policy
from mesax.types import Action, Elapsed, EnvSpec, Episode, Key, Metrics


class Moments(eqx.Module):
    """Running mean and variance of every entry of the joint observation."""

    mean: Float[Array, "agents obs"]
    variance: Float[Array, "agents obs"]
    batches: Float[Array, ""]

    @staticmethod
    def create(spec: EnvSpec) -> Moments:
        """Nothing seen yet: observations pass as they are."""
        shape = (spec.num_agents, spec.obs_size)
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def observe(self, batch: Episode) -> Moments:
        """Mix in the steps that a batch of episodes really had."""
        weights = batch.mask[:, :, None, None].astype(batch.obs.dtype)
        total = jnp.maximum(jnp.sum(weights), 1.0)
        seen = batch.obs[:, :-1]
        share = 1.0 / (self.batches + 1.0)
        mean = jnp.sum(weights * seen, axis=(0, 1)) / total
        # Centered, because a mean square minus a squared mean would drown small deviations in rounding.
        variance = jnp.sum(weights * jnp.square(seen - mean[None, None]), axis=(0, 1)) / total
        gap = mean - self.mean
        return Moments(
            self.mean + share * gap,
            (1.0 - share) * (self.variance + share * jnp.square(gap)) + share * variance,
            self.batches + 1.0,
        )

    def standardize(self, obs: Float[Array, "... agents obs"], least: float, limit: float) -> Array:
        """Mean 0 and deviation 1; entries that hardly vary are only shifted."""
        std = jnp.sqrt(self.variance)
        scale = jnp.where(std > least, std, 1.0)
        lead = (1,) * (obs.ndim - 2)
        centered = obs - self.mean.reshape(*lead, *self.mean.shape)
        return jnp.clip(centered / scale.reshape(*lead, *scale.shape), -limit, limit)


class StandardizedPolicy(eqx.Module):
    """A policy that sees standardized observations."""

    policy: Any
    moments: Moments
    least: float = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Memory of the wrapped policy."""
        return self.policy.start(key)

    def act(self, memory: Memory, obs: Array, key: Key) -> tuple[Action, Memory]:
        """Act on what is standardized."""
        action: tuple[Action, Memory] = self.policy.act(
            memory, self.moments.standardize(obs, self.least, self.limit), key
        )
        return action

    def actor(self, memory: Memory) -> Array:
        """Whoever the wrapped policy says."""
        actor: Array = self.policy.actor(memory)
        return actor


class NormalizedState(eqx.Module):
    """The wrapped algorithm's state and what has been seen."""

    learner: Any
    moments: Moments


@dataclass(frozen=True)
class Normalized:
    """A learner, off-policy or on-policy, on standardized observations."""

    algorithm: Any
    """Who learns."""
    least: float = 1e-3
    """Entries whose deviation is smaller are not blown up."""
    limit: float = 10.0
    """Standardized entries stay within +- this."""

    def __post_init__(self) -> None:
        """Refuse limits that leave nothing."""
        if not (self.least >= 0 and self.limit > 0):
            raise UsageError(f"least must not be negative and limit must be above 0, not {self.least} and {self.limit}")

    def init(self, spec: EnvSpec, key: Key) -> NormalizedState:
        """Fresh learner, nothing seen."""
        return NormalizedState(self.algorithm.init(spec, key), Moments.create(spec))

    def behavior(self, spec: EnvSpec, state: NormalizedState, elapsed: Elapsed) -> Policy:
        """The learner's own, standardized."""
        policy = self.algorithm.behavior(spec, state.learner, elapsed)
        return StandardizedPolicy(policy, state.moments, self.least, self.limit)

    def greedy(self, spec: EnvSpec, state: NormalizedState) -> Policy:
        """The learner's own, standardized."""
        return StandardizedPolicy(self.algorithm.greedy(spec, state.learner), state.moments, self.least, self.limit)

    def update(self, spec: EnvSpec, state: NormalizedState, batch: Episode, *rest: Any) -> tuple[Any, Metrics]:
        """Learn from a standardized batch; an on-policy batch is seen by the moments only afterwards.

        The likelihood of an action that was just played must be that of the policy that played it.
        """
        on_policy = len(rest) > 1  # (elapsed, key) instead of (key,)
        seen = state.moments.observe(batch)
        used = state.moments if on_policy else seen
        batch = eqx.tree_at(lambda e: e.obs, batch, used.standardize(batch.obs, self.least, self.limit))
        learner, metrics = self.algorithm.update(spec, state.learner, batch, *rest)
        return NormalizedState(learner, seen), metrics
