"""MAPPO (Yu et al. 2022) over whole episodes: PPO for teams, with centralized values.

    A_t     = GAE(lambda) of normalized values; cut episodes are bootstrapped, terminated ones are not
    epochs x minibatches:
        rho     = pi(a|o) / pi_old(a|o)
        actors:   lower  -min(rho A, clip(rho, 1 +- clip) A) - entropy bonus
        values:   lower  max of clipped and unclipped Huber loss to the normalized return A + V

A bonus that comes apart from the reward (`Episode.bonus`) has a head of the values, a discount and a scale of its own;
where the task ends, it goes on at a fresh start. Its advantages are added to those of the reward.

`pi_old` is computed from the nets at the start of the update, which are those that played: nothing but the episode
need be stored. Recurrent nets are unrolled over whole episodes, or over chunks that start from the memories of the nets
that played.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from mesax.algorithms.base import OnPolicy
from mesax.algorithms.targets import clipped_gain, entropy, generalized_advantages, huber, lambda_returns
from mesax.errors import UsageError
from mesax.moments import ValueNorm
from mesax.nets import Adam, Memory, Mlp, Net, NetConfig, Team, Trainable, unroll_batch, unroll_with_memories
from mesax.policy import LEARNER, Policy
from mesax.ranges import above, at_least, between
from mesax.store.settings import added
from mesax.types import (
    Action,
    Actions,
    ActionSpace,
    Discrete,
    Elapsed,
    EnvSpec,
    Episode,
    Key,
    Label,
    Linear,
    Metrics,
    leading_size,
    masked_mean,
    tree_index,
)

NAMES: dict[str, str] = {
    "mappo": "MAPPO: on-policy, clipped updates, centralized values",
}
LARGEST_STD = 1.6
LOG_STD_RANGE = (-5.0, math.log(LARGEST_STD))
"""Where the parameter of a standard deviation is kept after every step, so that none is lost where gradients are 0."""
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Actors(eqx.Module):
    """Decentralized actors; continuous ones share a standard deviation that depends on nothing."""

    team: Net[Array]
    log_std: Float[Array, " size"]
    action_space: ActionSpace = eqx.field(static=True)

    @staticmethod
    def fresh(team: Net[Array], action_space: ActionSpace, initial_std: float) -> Actors:
        """Actors that all begin with one standard deviation."""
        size = 0 if isinstance(action_space, Discrete) else action_space.feature_size
        return Actors(team, jnp.full(size, math.log(initial_std)), action_space)

    def within_range(self) -> Actors:
        """The same with deviations that can be learned from here in either direction."""
        return eqx.tree_at(lambda actors: actors.log_std, self, jnp.clip(self.log_std, *LOG_STD_RANGE))

    def log_probability(
        self, outputs: Float[Array, "*batch agents features"], action: Actions
    ) -> Float[Array, "*batch agents"]:
        """Log-likelihood of each agent's action."""
        if isinstance(self.action_space, Discrete):
            return jnp.take_along_axis(jax.nn.log_softmax(outputs), action[..., None], axis=-1)[..., 0]
        log_std = self.log_stds(outputs)
        scaled = (action - jnp.tanh(outputs)) / jnp.exp(log_std)
        return jnp.sum(-0.5 * jnp.square(scaled) - log_std - HALF_LOG_TWO_PI, axis=-1)

    def entropy(self, outputs: Float[Array, "*batch agents features"]) -> Float[Array, "*batch agents"]:
        """Entropy of each agent's distribution."""
        if isinstance(self.action_space, Discrete):
            return entropy(outputs)
        return jnp.sum(self.log_stds(outputs) + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def log_stds(self, outputs: Float[Array, "*batch agents size"]) -> Float[Array, "*batch agents size"]:
        """Logarithms of the standard deviations, the same at all `outputs`."""
        return jnp.broadcast_to(self.log_std, outputs.shape)


class StochasticPolicy(eqx.Module):
    """The actors as one joint policy."""

    actors: Actors
    mode: Literal["greedy", "sample"] = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Fresh memories."""
        del key
        return self.actors.team.start()

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Every agent acts on its own observation."""
        memory, outputs = self.actors.team.step(memory, obs)
        if isinstance(self.actors.action_space, Discrete):
            chosen = jax.random.categorical(key, outputs) if self.mode == "sample" else jnp.argmax(outputs, axis=-1)
            return chosen, memory
        mean = jnp.tanh(outputs)
        if self.mode == "greedy":
            return mean, memory
        # Not clipped here: the likelihood is that of the Gaussian; environments hold actions to their box.
        std = jnp.exp(self.actors.log_stds(outputs))
        return mean + std * jax.random.normal(key, mean.shape), memory

    def label(self, memory: Memory) -> Label:
        """The learner itself."""
        del memory
        return Label.of(LEARNER)


class Piece(eqx.Module):
    """Consecutive steps of episodes, stacked, with what the nets that played said of them."""

    obs: Float[Array, "pieces time agents obs"]
    action: Int[Array, "pieces time agents"] | Float[Array, "pieces time agents size"]
    mask: Bool[Array, "pieces time"]
    old_log: Float[Array, "pieces time agents"]
    old_values: Float[Array, "pieces time agents"]
    """Normalized."""
    advantages: Float[Array, "pieces time agents"]
    returns: Float[Array, "pieces time agents"]
    actor_memory: Memory
    """At the first step; it is not learned through."""
    value_memory: Memory
    bonus: Valued | None = None


class Valued(eqx.Module):
    """A second kind of pay along pieces of episodes."""

    old_values: Float[Array, "pieces time agents"]
    """Normalized."""
    returns: Float[Array, "pieces time agents"]


class MappoState(eqx.Module):
    """Actors, values, and the scale of returns."""

    actors: Trainable[Actors]
    values: Trainable[Net[Array]]
    norm: ValueNorm
    bonus_norm: ValueNorm | None = None
    """Scale of a bonus that is valued apart."""


@dataclass(frozen=True)
class Mappo(OnPolicy):
    """On-policy actor-critic with clipped updates."""

    actor_net: NetConfig = Mlp()
    """Net of each actor."""
    critic_net: NetConfig = Mlp()
    """Net of the critic."""
    share_actors: bool = True
    """One actor net for all agents (told its identity) instead of one each."""
    values_of: Literal["joint", "own"] = "joint"
    """What a value is a function of: all observations, or (where an agent sees everything) each agent's own."""
    optimizer: Adam = Adam(7e-4)
    """Optimizer of all nets."""
    final_rate: float = 1.0
    """Learning rate at the end of the run, as a share of the first."""
    epochs: int = 10
    """Passes over the episodes of a round."""
    minibatches: int = 1
    """Parts of a pass, an update each."""
    chunk: int | None = None
    """Steps of the pieces that episodes are cut into, for recurrent nets; None takes whole episodes."""
    clip: float = 0.2
    """Most that the ratio of old and new probabilities may leave 1 by."""
    discount: float = 0.99
    """Discount of later rewards."""
    gae: float = 0.95
    """lambda of the advantages."""
    least_deviation: float = added(0.0)
    """Advantages are divided by their standard deviation, but by no less than this. With 0 the noise of values makes
    full steps while nothing is paid, and what actors could do before is soon forgotten."""
    entropy_bonus: float = 0.01
    """Weight of the policies' entropy."""
    huber: float = 10.0
    """Error from which on the critic's loss is linear."""
    norm_decay: float = 0.99999
    """Memory of the return statistics, per minibatch."""
    initial_std: float = 0.5
    """Standard deviation of continuous actions at the start."""
    largest_std: Linear = Linear(LARGEST_STD, LARGEST_STD, 0.0)
    """What it may be at most, over the run: an explorer that dwells must not tremble.

    Where this binds, it rules: the parameter behind it has no gradient there and waits.
    """

    def __post_init__(self) -> None:
        """Refuse settings that no learner can have."""
        at_least(self, 1, "epochs", "minibatches", "chunk")
        between(self, 0, 1, "discount", "gae", "final_rate", "norm_decay")
        at_least(self, 0, "least_deviation", "entropy_bonus")
        above(self, 0, "clip", "huber", "initial_std", "largest_std.start", "largest_std.end")
        check_initial_std(self.initial_std)

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Refuse rounds with fewer pieces of episodes than minibatches."""
        pieces = num_envs * -(-spec.horizon // (self.chunk or spec.horizon))
        if pieces < self.minibatches:
            raise UsageError(f"{self.minibatches} minibatches need at least as many pieces of episodes, not {pieces}")

    def acting_by(self, net: NetConfig) -> Mappo:
        """Critics keep theirs."""
        return replace(self, actor_net=net)

    def init(self, spec: EnvSpec, key: Key) -> MappoState:
        """Fresh nets."""
        key_actor, key_value = jax.random.split(key)
        features = spec.action_space.feature_size
        sizes = (spec.obs_size, features)
        team = Team.create(self.actor_net, spec.num_agents, sizes, key_actor, shared=self.share_actors, head_gain=0.01)
        apart = spec.bonus_discount is not None
        heads = 2 if apart else 1
        if self.values_of == "own":
            values: Net[Array] = Team.create(
                self.critic_net, spec.num_agents, (spec.obs_size, heads), key_value, shared=True, head_gain=1.0
            )
        else:
            values = self.critic_net.build(spec.num_agents * spec.obs_size, heads, key_value)
        actors = Actors.fresh(team, spec.action_space, self.initial_std)
        return MappoState(
            Trainable.create(actors, self.optimizer),
            Trainable.create(values, self.optimizer),
            ValueNorm.create(),
            ValueNorm.create() if apart else None,
        )

    def behavior(self, spec: EnvSpec, state: MappoState, elapsed: Elapsed) -> Policy:
        """Sampled actions; the policy's own entropy is the exploration."""
        del spec
        return StochasticPolicy(self._held(state.actors.net, elapsed), "sample")

    def greedy(self, spec: EnvSpec, state: MappoState) -> Policy:
        """Most likely actions."""
        del spec
        return StochasticPolicy(state.actors.net, "greedy")

    def _held(self, actors: Actors, elapsed: Elapsed) -> Actors:
        """Actors whose deviation keeps to its limit."""
        if min(self.largest_std.start, self.largest_std.end) >= LARGEST_STD:
            return actors
        most = jnp.log(self.largest_std(elapsed))
        return eqx.tree_at(lambda a: a.log_std, actors, jnp.minimum(actors.log_std, most))

    def heads(
        self, net: Net[Array], obs: Float[Array, "batch time agents obs"], start: Memory = None
    ) -> tuple[Memory, list[Float[Array, "batch time agents"]]]:
        """Many episodes (memories as of `unroll_with_memories`, what each head says of every step to every agent).

        Heads are normalized values: of the task, and of a bonus if it is valued apart.
        """
        if self.values_of == "own":
            along, values = unroll_with_memories(net, obs, start)
            return along, [values[..., head] for head in range(values.shape[-1])]
        along, values = unroll_with_memories(net, obs.reshape(*obs.shape[:2], -1), start)
        each = [values[..., head : head + 1] for head in range(values.shape[-1])]
        return along, [jnp.broadcast_to(value, obs.shape[:3]) for value in each]

    def update(
        self, spec: EnvSpec, state: MappoState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[MappoState, Metrics]:
        """A few epochs on the episodes just played."""
        pieces = self._pieces(spec, state, batch, elapsed)
        number = leading_size(pieces)
        self.check(spec, leading_size(batch))
        size = number // self.minibatches
        keys = jax.random.split(key, self.epochs)
        order = jax.vmap(lambda k: jax.random.permutation(k, number))(keys)[:, : size * self.minibatches]

        def step(state: MappoState, which: Int[Array, " size"]) -> tuple[MappoState, Metrics]:
            return self._descend(state, tree_index(pieces, which), elapsed)

        state, metrics = jax.lax.scan(step, state, order.reshape(-1, size))
        return state, jax.tree.map(jnp.mean, metrics)

    def _pieces(self, spec: EnvSpec, state: MappoState, batch: Episode, elapsed: Elapsed) -> Piece:
        """What was played with all that the nets at the start of the update say of it, cut into pieces."""
        obs = batch.obs[:, :-1]
        actor_memories, old_outputs = unroll_with_memories(state.actors.net.team, obs)
        old_log = self._held(state.actors.net, elapsed).log_probability(old_outputs, batch.action)
        value_memories, (old_values, *apart) = self.heads(state.values.net, batch.obs)
        values = _from_fresh_starts(state.values.net, batch, state.norm.denormalize(old_values))
        discounts = self.discount * batch.continues
        of_agents = jax.vmap(generalized_advantages, in_axes=(None, None, 1, None), out_axes=1)
        advantages = jax.vmap(of_agents)(batch.reward, discounts, values, self.gae * batch.goes_on)
        returns = advantages + values[:, :-1]
        bonus = None
        if apart:
            of_bonus, bonus = self._bonus(spec, state, batch, apart[0])
            advantages = advantages + of_bonus
        mean = masked_mean(advantages, batch.mask)
        std = jnp.sqrt(masked_mean(jnp.square(advantages - mean), batch.mask))
        if self.least_deviation > 0.0:
            std = jnp.maximum(std, self.least_deviation)
        advantages = (advantages - mean) / (std + 1e-5)
        horizon = batch.mask.shape[1]
        chunk = min(self.chunk or horizon, horizon)

        def starts(along: Memory) -> Memory:
            return jax.tree.map(lambda leaf: leaf[:, :horizon:chunk].reshape(-1, *leaf.shape[2:]), along)

        return Piece(
            obs=_cut(obs, chunk),
            action=_cut(batch.action, chunk),
            mask=_cut(batch.mask, chunk),
            old_log=_cut(old_log, chunk),
            old_values=_cut(old_values[:, :-1], chunk),
            advantages=_cut(advantages, chunk),
            returns=_cut(returns, chunk),
            actor_memory=starts(actor_memories),
            value_memory=starts(value_memories),
            bonus=jax.tree.map(lambda leaf: _cut(leaf, chunk), bonus),
        )

    def _bonus(
        self, spec: EnvSpec, state: MappoState, batch: Episode, old_values: Float[Array, "batch instants agents"]
    ) -> tuple[Float[Array, "batch time agents"], Valued]:
        """(advantages, what its head learns from) of a bonus that goes on beyond an episode's end."""
        assert batch.bonus is not None and state.bonus_norm is not None and spec.bonus_discount is not None
        values = state.bonus_norm.denormalize(old_values)
        fresh_start = jnp.mean(values[:, 0], axis=0)
        following = jnp.where(batch.terminated[..., None], fresh_start, values[:, 1:])
        discounts = jnp.full_like(batch.bonus, spec.bonus_discount)
        of_agents = jax.vmap(lambda_returns, in_axes=(None, None, 1, None), out_axes=1)
        returns = jax.vmap(of_agents)(batch.bonus, discounts, following, self.gae * batch.goes_on)
        return returns - values[:, :-1], Valued(old_values[:, :-1], returns)

    def _descend(self, state: MappoState, piece: Piece, elapsed: Elapsed) -> tuple[MappoState, Metrics]:
        def observed(norm: ValueNorm, returns: Float[Array, "pieces time agents"]) -> ValueNorm:
            return norm.observe(returns, piece.mask, self.norm_decay, whole=self.chunk is None)

        norm, bonus_norm = observed(state.norm, piece.returns), state.bonus_norm
        pays = [(piece.old_values, norm.normalize(piece.returns))]
        if piece.bonus is not None:
            assert bonus_norm is not None
            bonus_norm = observed(bonus_norm, piece.bonus.returns)
            pays.append((piece.bonus.old_values, bonus_norm.normalize(piece.bonus.returns)))
        rate = 1.0 + (self.final_rate - 1.0) * elapsed.fraction

        def actor_loss(actors: Actors) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
            actors = self._held(actors, elapsed)
            outputs = unroll_batch(actors.team, piece.obs, piece.actor_memory)
            change = actors.log_probability(outputs, piece.action) - piece.old_log
            gains, clipped = clipped_gain(jnp.where(piece.mask[..., None], change, 0.0), piece.advantages, self.clip)
            gain = masked_mean(gains, piece.mask)
            mean_entropy = masked_mean(actors.entropy(outputs), piece.mask)
            outside = masked_mean(clipped.astype(gain.dtype), piece.mask)
            return -gain - self.entropy_bonus * mean_entropy, (mean_entropy, outside)

        def value_loss(net: Net[Array]) -> Float[Array, ""]:
            heads = self.heads(net, piece.obs, piece.value_memory)[1]
            losses = [self._value_loss(head, *pay, piece.mask) for head, pay in zip(heads, pays, strict=True)]
            return sum(losses[1:], losses[0])

        (loss, (mean_entropy, outside)), gradients = jax.value_and_grad(actor_loss, has_aux=True)(state.actors.net)
        critic_loss, critic_gradients = jax.value_and_grad(value_loss)(state.values.net)
        after = MappoState(
            within_range(state.actors.descend(gradients, self.optimizer, rate)),
            state.values.descend(critic_gradients, self.optimizer, rate),
            norm,
            bonus_norm,
        )
        metrics = {"actor_loss": loss, "critic_loss": critic_loss, "entropy": mean_entropy, "clipped": outside}
        return after, metrics

    def _value_loss(
        self,
        values: Float[Array, "pieces time agents"],
        old_values: Float[Array, "pieces time agents"],
        target: Float[Array, "pieces time agents"],
        mask: Bool[Array, "pieces time"],
    ) -> Float[Array, ""]:
        near_old = old_values + jnp.clip(values - old_values, -self.clip, self.clip)
        losses = [huber(v - target, self.huber) for v in (values, near_old)]
        return masked_mean(jnp.maximum(*losses), mask)


def _from_fresh_starts(
    net: Net[Array], batch: Episode, values: Float[Array, "batch instants agents"]
) -> Float[Array, "batch instants agents"]:
    """Values along episodes in which a fresh start has that of the first step, where the net's memory was fresh, too.

    What follows a fresh start never happened, so nothing but the bootstrap of an end depends on what is replaced.
    """
    if batch.restarted is None or not jax.tree.leaves(net.start()):
        return values
    following = jnp.where(batch.restarted[..., None], values[:, :1], values[:, 1:])
    return jnp.concatenate([values[:, :1], following], axis=1)


def within_range(actors: Trainable[Actors]) -> Trainable[Actors]:
    """What has learned, with deviations that can be learned from here in either direction."""
    projected: Trainable[Actors] = eqx.tree_at(lambda a: a.net, actors, actors.net.within_range())
    return projected


def check_initial_std(initial_std: float) -> None:
    """Refuse a deviation that the first update would jump away from."""
    least, most = LOG_STD_RANGE
    if not least <= math.log(initial_std) <= most:
        raise UsageError(f"initial-std must lie between {math.exp(least):.4f} and {LARGEST_STD}, not {initial_std}")


def _cut(values: Shaped[Array, "envs time *rest"], size: int) -> Shaped[Array, "pieces {size} *rest"]:
    """Episodes in pieces of equal length; the last one of each is padded with zeros, which its mask leaves out."""
    missing = -values.shape[1] % size
    padded = jnp.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])
    return padded.reshape(-1, size, *values.shape[2:])
