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
from jaxtyping import Array

from mesax.errors import UsageError
from mesax.moments import Moments
from mesax.nets import Memory
from mesax.policy import Policy
from mesax.types import Action, Elapsed, EnvSpec, Episode, Key, Metrics


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
        return NormalizedState(self.algorithm.init(spec, key), Moments.create((spec.num_agents, spec.obs_size)))

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
        seen = state.moments.observe(batch.obs[:, :-1], batch.mask)
        used = state.moments if on_policy else seen
        batch = eqx.tree_at(lambda e: e.obs, batch, used.standardize(batch.obs, self.least, self.limit))
        learner, metrics = self.algorithm.update(spec, state.learner, batch, *rest)
        return NormalizedState(learner, seen), metrics
