"""Any algorithm on standardized observations: users' environments come in all units.

    mean, std    of each agent's every entry, over all steps of all batches so far
    policy       acts on clip((obs - mean) / std, -limit, limit); it carries mean and std along
    update       the algorithm's own, on a batch that is standardized likewise

Moments are means over batches with equal weights, so they settle as 1 / updates. Who recognizes what was seen before,
or goes on from what was learned on other tasks, needs scales that do not move at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from mesax.algorithms.base import ActsByNet, Learner
from mesax.errors import UsageError
from mesax.moments import Moments
from mesax.nets import Memory, NetConfig, for_another_task
from mesax.policy import Policy, Wrapping
from mesax.ranges import above, at_least
from mesax.store.settings import added
from mesax.types import Action, Elapsed, EnvSpec, Episode, Key, Metrics, tree_where


class StandardizedPolicy(Wrapping):
    """A policy that sees standardized observations."""

    moments: Moments
    least: float = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Act on what is standardized."""
        return self.policy.act(memory, self.moments.standardize(obs, self.least, self.limit), key)


class NormalizedState(eqx.Module):
    """The wrapped algorithm's state and what has been seen."""

    learner: PyTree
    moments: Moments

    def forgotten(self) -> NormalizedState:
        """On another task nets see what they know in the scales that they know."""
        return NormalizedState(for_another_task(self.learner), self.moments.held())


@dataclass(frozen=True)
class Normalized:
    """A learner, off-policy or on-policy, on standardized observations."""

    algorithm: Learner
    """Who learns."""
    least: float = 1e-3
    """Entries whose deviation is smaller are not blown up."""
    limit: float = 10.0
    """Standardized entries stay within +- this."""
    fixed: bool = added(False)
    """Whether mean and deviation stay those of the first round that was played (learners from replay only)."""

    def __post_init__(self) -> None:
        """Refuse limits that leave nothing."""
        at_least(self, 0, "least")
        above(self, 0, "limit")

    @property
    def needs_replay(self) -> bool:
        """As the learner does."""
        return self.algorithm.needs_replay

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """As the learner does; scales cannot change between playing a round and learning from it."""
        if self.fixed and not self.needs_replay:
            raise UsageError("fixed goes with learners from replay: others learn from a round as it looked when played")
        self.algorithm.check(spec, num_envs)

    def acting_by(self, net: NetConfig) -> Normalized:
        """As the learner does; one that has no actors stays as it is."""
        if not isinstance(self.algorithm, ActsByNet):
            return self
        return replace(self, algorithm=self.algorithm.acting_by(net))

    def init(self, spec: EnvSpec, key: Key) -> NormalizedState:
        """Fresh learner, nothing seen."""
        return NormalizedState(self.algorithm.init(spec, key), Moments.create((spec.num_agents, spec.obs_size)))

    def behavior(self, spec: EnvSpec, state: NormalizedState, elapsed: Elapsed) -> Policy:
        """The learner's own, standardized."""
        return self._seeing(state, self.algorithm.behavior(spec, state.learner, elapsed))

    def greedy(self, spec: EnvSpec, state: NormalizedState) -> Policy:
        """The learner's own, standardized."""
        return self._seeing(state, self.algorithm.greedy(spec, state.learner))

    def variants(self, spec: EnvSpec, state: NormalizedState) -> Policy | None:
        """The learner's own, standardized."""
        forms = self.algorithm.variants(spec, state.learner)
        return None if forms is None else jax.vmap(lambda form: self._seeing(state, form))(forms)

    def _seeing(self, state: NormalizedState, policy: Policy) -> StandardizedPolicy:
        return StandardizedPolicy(policy, state.moments, self.least, self.limit)

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """The learner's own."""
        return self.algorithm.latent(spec, key)

    def observe(self, spec: EnvSpec, state: NormalizedState, fresh: Episode) -> NormalizedState:
        """The learner takes note of standardized episodes."""
        moments = state.moments
        if self.fixed:
            first = moments.observe(fresh.obs[:, :-1], fresh.mask).held()
            moments = tree_where(moments.batches == 0, first, moments)
        return NormalizedState(self.algorithm.observe(spec, state.learner, self._standardized(moments, fresh)), moments)

    def update(
        self, spec: EnvSpec, state: NormalizedState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[NormalizedState, Metrics]:
        """Learn from a standardized batch; an on-policy batch is seen by the moments only afterwards.

        The likelihood of an action that was just played must be that of the policy that played it.
        """
        seen = state.moments if self.fixed else state.moments.observe(batch.obs[:, :-1], batch.mask)
        batch = self._standardized(seen if self.needs_replay else state.moments, batch)
        learner, metrics = self.algorithm.update(spec, state.learner, batch, elapsed, key)
        return NormalizedState(learner, seen), metrics

    def _standardized(self, moments: Moments, episodes: Episode) -> Episode:
        return eqx.tree_at(lambda e: e.obs, episodes, moments.standardize(episodes.obs, self.least, self.limit))
