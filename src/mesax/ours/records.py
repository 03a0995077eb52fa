"""What explorers of ours are paid for in place of Eq. (6) as it is, what they are told of it, and their wishes.

    RecordReward: pays for records, so what it pays in an episode telescopes
        kappa_c    = exp(-x^2 / 2), or exp(-x) with a peak, x = max(d_c - distance_threshold, 0) / width,
                     d_c to the nearest member of cluster c
        e_c       <- stay e_c + (1 - stay) kappa_c                         dwell: passing through is not enough
        B_c       <- max(B_c, e_c)                                         the episode's record
        r_t        = sum_c w_c G_c (B_c' - B_c),   G_c = ((min N + 1) / (N(c) + 1))^power

    ToldCoverage: Eq. (6), of which explorers are told, with wishes

The demand of a cluster is its bonus still to be had, between 0 and 1. An explorer is told it as a point in feature
space, sum_c demand_c centroid_c, next to the features of the step just made.

An explorer that is told may have wishes: every episode draws an order of the clusters, and the one of rank j is worth
w = wish_decay^j of its bonus. An explorer without wishes has habits: in some layouts it never visits one of the
clusters. With them it is as many explorers as there are orders. In turn, one wish is told and paid at a time: w = 1 for
the first in the order whose record B is not yet `fulfilled`, and 0 for the others.

Deviation(record-reward): the particle worlds' quick preset trains explorers on records instead of Eq. (6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from mesax.errors import UsageError
from mesax.mesa.coverage import Match, SubspaceReward, match
from mesax.nets import Memory
from mesax.policy import Policy
from mesax.ranges import above
from mesax.rewards.points import nearest, spread_out, squared_distances
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.store.settings import added
from mesax.types import Action, EnvSpec, Episode, Key, Label, Transition

WISH_STREAM = 3
"""Apart from the streams that policies draw from at the start of an episode."""
EpisodeMemory = TypeVar("EpisodeMemory")
Percept = TypeVar("Percept")


@dataclass(frozen=True)
class EpisodeReward(SubspaceReward, ABC, Generic[EpisodeMemory, Percept]):
    """A reward with a memory of the episode, of which explorers may be told; a percept is all it needs of a step."""

    tell_demand: bool = False
    """Whether the explorer sees what is left to visit, and the features of its last step."""
    wish_decay: float = 1.0
    """What a cluster is worth next to the one before it in the episode's order of wishes; 1: there are no wishes."""
    told: Literal["all", "most wanted"] = added("all")
    """How the demand is told: as the sum of all clusters' centers, each times its demand, or as the center of the one
    that is most wanted. In a few features, such as two angles, sums of many clusters are too much alike."""

    def __post_init__(self) -> None:
        """Refuse wishes that no policy sees, and those among nothing."""
        super().__post_init__()
        if not 0.0 < self.wish_decay <= 1.0:
            raise UsageError(f"wish-decay must be above 0 and at most 1, not {self.wish_decay}")
        if self.has_wishes and not self.tell_demand:
            raise UsageError(f"wishes (wish-decay {self.wish_decay}) need tell-demand: an explorer must know them")
        if self.has_wishes and self.num_clusters < 2:
            raise UsageError(f"wishes need at least 2 clusters to choose from, not num-clusters {self.num_clusters}")

    @property
    def has_wishes(self) -> bool:
        """Whether every episode draws an order of the clusters."""
        return self.wish_decay < 1.0

    def draw_wish(self, state: CoverageState, key: Key) -> Float[Array, " clusters"]:
        """Worth of each cluster in one episode: the decay to the power of its place in a random order."""
        if not self.has_wishes:
            return jnp.ones_like(state.visits)
        lots = jnp.where(state.subspace.cluster_valid, jax.random.uniform(key, state.visits.shape), jnp.inf)
        place = jnp.sum(lots[None] < lots[:, None], axis=1)  # few clusters: cheaper than sorting twice
        return self.wish_decay**place

    def wishes_of(self, state: CoverageState, label: Label) -> Float[Array, "*batch clusters"]:
        """The wishes in the labels of episodes, behind what the policy itself has drawn.

        A policy that plays without wishes is paid alike for all clusters.
        """
        own = self._own_size(state, label)
        if own < label.latent.shape[-1]:
            return jnp.asarray(label.latent[..., own:])
        return jnp.ones((*label.actor.shape, state.visits.shape[0]))

    def without_wishes(self, state: CoverageState, label: Label) -> Label:
        """Labels as the learner of the explorers knows them."""
        return Label(label.actor, label.latent[..., : self._own_size(state, label)])

    def _own_size(self, state: CoverageState, label: Label) -> int:
        """How many numbers of a latent the policy itself has drawn."""
        size, clusters = label.latent.shape[-1], state.visits.shape[0]
        return size - clusters if self.has_wishes and size >= clusters else size

    @abstractmethod
    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Percept:
        """All that the reward needs to know of a step: batched over an episode, one matrix product."""

    @abstractmethod
    def start(self, state: CoverageState) -> EpisodeMemory:
        """Memory at the start of an episode."""

    @abstractmethod
    def step(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: EpisodeMemory, percept: Percept
    ) -> tuple[EpisodeMemory, Float[Array, ""]]:
        """Advance the memory by one step and pay for it."""

    @abstractmethod
    def demand(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: EpisodeMemory
    ) -> Float[Array, " clusters"]:
        """Bonus still to be had in each cluster, as a share of the largest."""

    def wanted(self, state: CoverageState, demand: Float[Array, "*steps clusters"]) -> Float[Array, "*steps features"]:
        """The demand as the explorer is told it."""
        centers = state.subspace.centroids
        return demand @ centers if self.told == "all" else centers[jnp.argmax(demand, axis=-1)]

    def sense(self, spec: EnvSpec, state: CoverageState, transition: Transition) -> Float[Array, " features"]:
        """What is perceived and told of a step: its features, unless the state says what to make of them."""
        del state
        return self.features(spec, transition)

    def sensed(self, spec: EnvSpec, state: CoverageState, episodes: Episode) -> Float[Array, "envs time features"]:
        """The same for all steps of stacked episodes."""
        transitions = jax.vmap(lambda episode: episode.transitions)(episodes)
        return jax.vmap(jax.vmap(lambda step: self.sense(spec, state, step)))(transitions)

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """Observations grow by demand and features if they are told; few features cannot tell many wishes apart."""
        size = self.feature_size(spec)
        if self.has_wishes and self.told == "all" and self.num_clusters > size:
            raise UsageError(
                f"wishes over {self.num_clusters} clusters cannot be told in {size} features: use at most {size}"
                " clusters (num-clusters), other features, tell only what is most wanted (reward.told), or wish-decay 1"
            )
        return replace(spec, obs_size=spec.obs_size + 2 * size) if self.tell_demand else spec

    def equip(self, spec: EnvSpec, state: CoverageState, policy: Policy) -> Policy:
        """Tell the policy what is left, if it was trained so."""
        return Told(policy, state, self, spec) if self.tell_demand else policy

    def observe(
        self, spec: EnvSpec, state: CoverageState, episodes: Episode, key: Key
    ) -> tuple[CoverageState, Episode]:
        """Replace the task reward of stacked episodes, and tell the demand if wanted."""
        del key
        features = self.sensed(spec, state, episodes)
        percepts = jax.vmap(jax.vmap(lambda x: self.perceive(state.subspace, x)))(features)

        def of_episode(
            percepts: PyTree, mask: Bool[Array, " time"], wish: Float[Array, " clusters"]
        ) -> tuple[Float[Array, " time"], Float[Array, "time+1 clusters"]]:
            def step(memory: PyTree, one: tuple[PyTree, Bool[Array, ""]]) -> tuple[PyTree, tuple[Array, Array]]:
                percept, happened = one
                after, pay = self.step(state, wish, memory, percept)
                after = jax.tree.map(lambda new, old: jnp.where(happened, new, old), after, memory)
                return after, (jnp.where(happened, pay, 0.0), self.demand(state, wish, after))

            start = self.start(state)
            _, (pay, demand) = jax.lax.scan(step, start, (percepts, mask))
            return pay, jnp.concatenate([self.demand(state, wish, start)[None], demand])

        pay, demand = jax.vmap(of_episode)(percepts, episodes.mask, self.wishes_of(state, episodes.label))
        episodes = replace(episodes, reward=pay, label=self.without_wishes(state, episodes.label))
        if not self.tell_demand:
            return state, episodes
        seen = jnp.concatenate([jnp.zeros_like(features[:, :1]), features], axis=1)
        told = jax.vmap(jax.vmap(tell))(episodes.obs, self.wanted(state, demand), seen)
        return state, replace(episodes, obs=told)


def tell(
    obs: Float[Array, "agents obs"], wanted: Float[Array, " features"], features: Float[Array, " features"]
) -> Float[Array, "agents obs+2*features"]:
    """An observation with what is left to visit and the last step's features appended for every agent."""
    extra = jnp.concatenate([wanted, features])
    return jnp.concatenate([obs, jnp.broadcast_to(extra, (obs.shape[0], extra.size))], axis=1)


class Told(eqx.Module):
    """A policy that is told what is left to visit: it carries M_* along, and the episode's memory of the reward."""

    policy: Policy
    state: CoverageState
    reward: EpisodeReward = eqx.field(static=True)
    spec: EnvSpec = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Nothing visited, no step made; wishes come from a stream apart from the policy's own."""
        obs = jnp.zeros((self.spec.num_agents, self.spec.obs_size))
        action = self.spec.action_space.zeros((self.spec.num_agents,))
        wish = self.reward.draw_wish(self.state, jax.random.fold_in(key, WISH_STREAM))
        return self.policy.start(key), wish, self.reward.start(self.state), (obs, action, jnp.asarray(False))

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Account for the step that led here, then let the policy act on what it is told."""
        inner, wish, episode, (last_obs, last_action, moved) = memory
        features = self.reward.sense(self.spec, self.state, Transition(last_obs, last_action, obs))
        after, _ = self.reward.step(self.state, wish, episode, self.reward.perceive(self.state.subspace, features))
        episode = jax.tree.map(lambda new, old: jnp.where(moved, new, old), after, episode)
        wanted = self.reward.wanted(self.state, self.reward.demand(self.state, wish, episode))
        action, inner = self.policy.act(inner, tell(obs, wanted, jnp.where(moved, features, 0.0)), key)
        return action, (inner, wish, episode, (obs, action, jnp.asarray(True)))

    def label(self, memory: Memory) -> Label:
        """As the wrapped policy says, and the wishes, if there are any, behind what it has drawn."""
        label, wish = self.policy.label(memory[0]), memory[1]
        return Label(label.actor, jnp.concatenate([label.latent, wish])) if self.reward.has_wishes else label


class Record(eqx.Module):
    """How long the team has dwelt near each cluster, and the best of it in this episode."""

    dwell: Float[Array, " clusters"]
    best: Float[Array, " clusters"]


@dataclass(frozen=True)
class RecordReward(EpisodeReward[Record, Array]):
    """Pay for records of nearness, cluster by cluster: dense near M_*, and worth nothing twice."""

    width: float = 0.3
    """Distance over which nearness falls off beyond the threshold."""
    stay: float = 0.5
    """Weight of the past in the dwell average; 0 pays for a touch."""
    kernel: Literal["smooth", "peaked", "far"] = added("smooth")
    """How nearness falls off beyond the threshold: as exp(-x^2 / 2); as exp(-x), where the last bit of the way pays
    most per step; or as 1 / (1 + x), which is felt from afar."""
    fulfilled: float | None = added(None)
    """Record from which a wish is fulfilled: then wishes are told and paid in turn, one at a time, and hard ones get
    the time that they take. None: all at once, each by its worth."""
    placement: Literal["density", "spread"] = added("density")
    """Where the clusters lie: KMeans has more of them where stage 1 saw more, spread has them evenly over all that it
    saw; then what uniform play hardly reaches gets its share of wishes."""

    def __post_init__(self) -> None:
        """Refuse kernels without width, averages that never move, and records out of reach."""
        super().__post_init__()
        above(self, 0, "width")
        if not 0.0 <= self.stay < 1.0:
            raise UsageError(f"stay must be at least 0 and below 1, not {self.stay}")
        if self.fulfilled is None:
            return
        if not 0.0 < self.fulfilled < 1.0:
            raise UsageError(f"fulfilled must lie between 0 and 1, not {self.fulfilled}: no record is ever whole")
        if not self.has_wishes or self.told != "most wanted":
            raise UsageError(
                "wishes in turn (fulfilled) need wishes (wish-decay below 1), each told on its own (told most wanted)"
            )

    def placed(self, features: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centers of clusters, the cluster of every point, and indices of those that stay members."""
        if self.placement == "density":
            return super().placed(features, seed)
        order = spread_out(features, self.capacity)
        centers = features[order[: self.num_clusters]]
        return centers, nearest(features, centers), np.sort(order)

    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Float[Array, " clusters"]:
        """Nearness kappa to every cluster."""
        return self.nearness(cluster_distances(subspace, features))

    def nearness(self, distance: Float[Array, " clusters"]) -> Float[Array, " clusters"]:
        """kappa of distances."""
        beyond = jnp.maximum(distance - self.distance_threshold, 0.0)
        if self.kernel == "peaked":
            return jnp.exp(-beyond / self.width)
        if self.kernel == "far":
            return 1.0 / (1.0 + beyond / self.width)
        return jnp.exp(-0.5 * jnp.square(beyond / self.width))

    def start(self, state: CoverageState) -> Record:
        """Nothing reached yet."""
        return Record(jnp.zeros_like(state.visits), jnp.zeros_like(state.visits))

    def step(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record, percept: Float[Array, " clusters"]
    ) -> tuple[Record, Float[Array, ""]]:
        """Pay what the records grow by."""
        dwell = self.stay * memory.dwell + (1.0 - self.stay) * percept
        best = jnp.maximum(memory.best, dwell)
        return Record(dwell, best), jnp.sum(self.worth(state, wish, memory) * (best - memory.best))

    def worth(self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record) -> Float[Array, " clusters"]:
        """What the whole record of each cluster is worth now; in turns, nothing once all wishes are fulfilled."""
        gains = self.gains(state)
        if self.fulfilled is None:
            return wish * gains
        waiting = jnp.where(memory.best < self.fulfilled, wish * gains, 0.0)
        turn = (jnp.arange(wish.size) == jnp.argmax(waiting)) & (waiting > 0.0)
        return jnp.where(turn, gains, 0.0)

    def gains(self, state: CoverageState) -> Float[Array, " clusters"]:
        """G_c: clusters that earlier policies visit pay less."""
        gain = ((state.least_visits() + 1.0) / (state.visits + 1.0)) ** self.decay_power
        return jnp.where(state.subspace.cluster_valid, gain, 0.0)

    def demand(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Record
    ) -> Float[Array, " clusters"]:
        """What is left to gain."""
        return self.worth(state, wish, memory) * (1.0 - memory.best)


def cluster_distances(subspace: HighRewardSet, features: Float[Array, " features"]) -> Float[Array, " clusters"]:
    """Distance to the nearest member of each cluster; infinite for clusters without members."""
    to_members = jnp.where(subspace.valid, squared_distances(features, subspace.members), jnp.inf)
    clusters = jnp.arange(subspace.centroids.shape[0])
    of_cluster = subspace.member_cluster[None] == clusters[:, None]
    return jnp.sqrt(jnp.min(jnp.where(of_cluster, to_members[None], jnp.inf), axis=1))


@dataclass(frozen=True)
class ToldCoverage(EpisodeReward[Array, Match]):
    """Eq. (6) with wishes, divided by the largest bonus still to be had."""

    def perceive(self, subspace: HighRewardSet, features: Float[Array, " features"]) -> Match:
        """Nearest member and cluster."""
        return match(subspace, features, self.distance_threshold)

    def start(self, state: CoverageState) -> Float[Array, " clusters"]:
        """Counts start at the global count."""
        return state.visits

    def step(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Float[Array, " clusters"], percept: Match
    ) -> tuple[Float[Array, " clusters"], Float[Array, ""]]:
        """Pay for the visit, then count it."""
        pay = percept.value * (memory[percept.cluster] + 1.0) ** -self.decay_power * percept.near
        pay = pay * wish[percept.cluster] * (state.least_visits() + 1.0) ** self.decay_power
        return memory.at[percept.cluster].add(percept.near.astype(memory.dtype)), pay

    def demand(
        self, state: CoverageState, wish: Float[Array, " clusters"], memory: Float[Array, " clusters"]
    ) -> Float[Array, " clusters"]:
        """What the next visit would pay."""
        bonus = wish * ((state.least_visits() + 1.0) / (memory + 1.0)) ** self.decay_power
        return jnp.where(state.subspace.cluster_valid, bonus, 0.0)
