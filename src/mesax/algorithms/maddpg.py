"""MADDPG (Lowe et al. 2017) over whole episodes, with a choice of actor updates.

    y_t = r_t + gamma (1 - terminated_t) min_c Q'_c(o_{t+1}, mu'(o_{t+1}); h_t)     target nets
    critics:  lower  sum_t mask_t (Q_c(o_t, a_t; h) - y_t)^2
    actors:   lower  actor_update.loss + logit penalty - entropy bonus              critics frozen
                     + imitation * distance to what explorers did                   off unless asked for
    targets:  follow by Polyak averaging

Recurrent critics advance their memory h with the joint actions *played*, never with target or counterfactual ones. One
centralized critic (or an ensemble) serves all agents, because the reward is shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from mesax.algorithms.actor_updates import (
    ActorProblem,
    ActorUpdate,
    GumbelGradient,
    Replayed,
    greedy_action,
    greedy_features,
)
from mesax.algorithms.base import OffPolicy
from mesax.algorithms.targets import entropy, lambda_returns
from mesax.errors import UsageError
from mesax.nets import (
    Adam,
    Ensemble,
    Input,
    Memory,
    Mlp,
    NetConfig,
    Team,
    Trainable,
    polyak,
    step_at,
    unroll_batch,
    unroll_with_memories,
)
from mesax.policy import LEARNER, Policy, with_noise
from mesax.ranges import at_least, at_most, between
from mesax.store.settings import added
from mesax.types import (
    Action,
    ActionSpace,
    Discrete,
    Elapsed,
    EnvSpec,
    Episode,
    Key,
    Label,
    Line,
    Linear,
    Metrics,
    masked_mean,
    tree_index,
)

NAMES: dict[str, str] = {
    "maddpg": "MADDPG as published (decentralized actor gradient)",
    "coordinated": "MADDPG whose actors agree on joint actions",
}


Played: TypeAlias = Float[Array, "batch time agents features"]
"""Joint actions of a batch of episodes, as critics see them."""


class ActorPolicy(eqx.Module):
    """Decentralized actors as one joint policy."""

    actors: Team
    action_space: ActionSpace = eqx.field(static=True)
    mode: Literal["greedy", "sample"] = eqx.field(static=True)
    """Discrete actors may sample their softmax; continuous ones get their noise from a wrapper."""

    def start(self, key: Key) -> Memory:
        """Fresh memories."""
        del key
        return self.actors.start()

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Every agent acts on its own observation."""
        memory, outputs = self.actors.step(memory, obs)
        if self.mode == "sample" and isinstance(self.action_space, Discrete):
            return jax.random.categorical(key, outputs), memory
        return greedy_action(outputs, self.action_space), memory

    def label(self, memory: Memory) -> Label:
        """The learner itself."""
        del memory
        return Label.of(LEARNER)


class MaddpgState(eqx.Module):
    """Online and target nets with their optimizers."""

    actors: Trainable[Team]
    critics: Trainable[Ensemble]
    target_actors: Team
    target_critics: Ensemble
    update: PyTree
    """What the actor update remembers."""


def unlikeness(
    outputs: Float[Array, "batch time agents outputs"], played: Played, space: ActionSpace
) -> Float[Array, "batch time agents"]:
    """How unlike the actions played are to those of actors: in nats, or as a squared distance."""
    if isinstance(space, Discrete):
        return -jnp.sum(played * jax.nn.log_softmax(outputs), axis=-1)
    return jnp.sum(jnp.square(greedy_features(outputs, space) - played), axis=-1)


def joint_inputs(obs: Float[Array, "*steps agents obs"], action: Float[Array, "*steps agents features"]) -> Input:
    """What a centralized critic sees: all observations and all actions."""
    return obs.reshape(*obs.shape[:-2], -1), action.reshape(*action.shape[:-2], -1)


@dataclass(frozen=True)
class Maddpg(OffPolicy):
    """Off-policy actor-critic with centralized critics and decentralized actors."""

    RETIRED: ClassVar = {"backup": "policy"}

    actor_net: NetConfig = Mlp()
    """Net of each actor."""
    critic_net: NetConfig = Mlp()
    """Net of each critic."""
    share_actors: bool = False
    """One actor net for all agents (told its identity) instead of one each."""
    num_critics: int = 1
    """2 for twin critics: targets use the smaller value, and so does improvement; exact improvement by additive critics
    uses their mean."""
    additive_critic: bool = False
    """Q = V(s) + sum_i A_i(s, a_i) instead of a net of states and actions: learns faster, represents less."""
    critic_head_gain: float = added(1.0)
    """Scale of the critics' values at first. Where rewards are rare, random values of the usual scale make actors
    certain before anything was earned; 0.01 leaves them undecided until then."""
    trace: float = 0.0
    """lambda of the targets along replayed episodes; 0 is the one-step target."""
    actor_update: ActorUpdate = GumbelGradient()
    """What the actors lower: one of mesax's, or your own `ActorUpdate`."""
    actor_batch_size: int | None = None
    """Episodes of a batch that the actors learn from; None takes all (fewer make joint improvement cheaper)."""
    actor_optimizer: Adam = Adam()
    """Optimizer of the actors."""
    critic_optimizer: Adam = Adam()
    """Optimizer of the critics."""
    discount: float = 0.99
    """Discount of later rewards."""
    target_rate: float = 0.005
    """Polyak step of the target nets per update."""
    logit_penalty: float = 1e-3
    """Weight of the mean squared actor output: keeps the policies soft."""
    entropy_bonus: float = 0.0
    """Weight of the policies' entropy (discrete actions)."""
    exploration: Line = Linear(1.0, 0.05, 0.1)
    """Chance of a random action per agent (discrete) or scale of the noise (continuous), over the run."""
    imitation: Line = added(Linear(0.0, 0.0, 0.0))
    """Weight over the run of doing as explorers did in their replayed episodes (behavior cloning). One that fades lasts
    until the critics have learned; cloned actors alone would be overwritten by fresh critics."""

    def __post_init__(self) -> None:
        """Refuse settings that no learner can have."""
        at_least(self, 1, "num_critics", "actor_batch_size")
        at_least(self, 0, "critic_head_gain", "logit_penalty", "entropy_bonus")
        at_least(self, 0, "exploration.start", "exploration.end", "imitation.start", "imitation.end")
        if isinstance(self.imitation, Linear) and self.imitation.start > 0.0 >= self.imitation.fraction:
            raise UsageError("imitation.start needs imitation.fraction: the share of the run over which it fades")
        between(self, 0, 1, "discount", "target_rate", "trace")

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Refuse chances of a random action beyond 1; noise of continuous ones may have any scale."""
        super().check(spec, num_envs)
        if isinstance(spec.action_space, Discrete):
            at_most(self, 1, "exploration.start", "exploration.end")

    def acting_by(self, net: NetConfig) -> Maddpg:
        """Critics keep theirs."""
        return replace(self, actor_net=net)

    def init(self, spec: EnvSpec, key: Key) -> MaddpgState:
        """Fresh nets; targets start equal."""
        self.actor_update.check(spec.action_space)
        key_actor, key_critic = jax.random.split(key)
        features = spec.action_space.feature_size
        actors = Team.create(
            self.actor_net,
            spec.num_agents,
            (spec.obs_size, features),
            key_actor,
            shared=self.share_actors,
            head_gain=0.01,
        )
        joint = (spec.num_agents * spec.obs_size, spec.num_agents * features)
        critics = Ensemble.create(
            self.critic_net,
            self.num_critics,
            joint,
            key_critic,
            additive=self.additive_critic,
            head_gain=self.critic_head_gain,
        )
        return MaddpgState(
            Trainable.create(actors, self.actor_optimizer),
            Trainable.create(critics, self.critic_optimizer),
            actors,
            critics,
            self.actor_update.begin(spec),
        )

    def greedy(self, spec: EnvSpec, state: MaddpgState) -> Policy:
        """Argmax or mean action."""
        return ActorPolicy(state.actors.net, spec.action_space, "greedy")

    def behavior(self, spec: EnvSpec, state: MaddpgState, elapsed: Elapsed) -> Policy:
        """Sampled actions with the exploration schedule's noise."""
        policy = ActorPolicy(state.actors.net, spec.action_space, "sample")
        return with_noise(policy, self.exploration(elapsed), spec.action_space)

    def update(
        self, spec: EnvSpec, state: MaddpgState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[MaddpgState, Metrics]:
        """One step of critics, actors and targets."""
        key_observe, key_actor = jax.random.split(key)
        played = spec.action_space.encode(batch.action)
        targets = self.targets(spec, state, batch, played)

        critic_loss, gradients = jax.value_and_grad(self._critic_loss)(state.critics.net, batch, played, targets)
        critics = state.critics.descend(gradients, self.critic_optimizer)

        memory, found = self.actor_update.observe(spec, state.update, Replayed(batch, played, targets), key_observe)
        some = slice(self.actor_batch_size)
        (actor_loss, told), gradients = jax.value_and_grad(self._actor_loss, has_aux=True)(
            state.actors.net, critics.net, spec, tree_index(batch, some), played[some], found, elapsed, key_actor
        )
        actors = state.actors.descend(gradients, self.actor_optimizer)
        metrics = {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "target_mean": masked_mean(targets, batch.mask),
            **told,
        }
        target_actors = polyak(state.target_actors, actors.net, self.target_rate)
        target_critics = polyak(state.target_critics, critics.net, self.target_rate)
        return MaddpgState(actors, critics, target_actors, target_critics, memory), metrics

    def targets(self, spec: EnvSpec, state: MaddpgState, batch: Episode, played: Played) -> Float[Array, "batch time"]:
        """y_t of every episode; `Episode.continues` alone decides what is bootstrapped."""
        at = unroll_with_memories(state.target_critics, joint_inputs(batch.obs[:, :-1], played))[0]
        at = tree_index(at, (slice(None), slice(1, None)))
        following = batch.obs[:, 1:]
        next_outputs = unroll_batch(state.target_actors, batch.obs)[:, 1:]
        if self.additive_critic and isinstance(spec.action_space, Discrete):
            next_action = jax.nn.softmax(next_outputs)  # linear in the action: this is the exact expectation
        else:
            next_action = greedy_features(next_outputs, spec.action_space)
        next_q = _values(state.target_critics, at, following, next_action)
        return jax.vmap(lambda_returns)(
            batch.reward, self.discount * batch.continues, next_q, self.trace * batch.goes_on
        )

    def _critic_loss(
        self, critics: Ensemble, batch: Episode, played: Played, targets: Float[Array, "batch time"]
    ) -> Float[Array, ""]:
        values = unroll_batch(critics, joint_inputs(batch.obs[:, :-1], played))
        return masked_mean(jnp.sum(jnp.square(values - targets[..., None]), axis=-1), batch.mask)

    def _actor_loss(
        self,
        actors: Team,
        critics: Ensemble,
        spec: EnvSpec,
        batch: Episode,
        played: Played,
        found: PyTree,
        elapsed: Elapsed,
        key: Key,
    ) -> tuple[Float[Array, ""], Metrics]:
        obs = batch.obs[:, :-1]
        outputs = unroll_batch(actors, obs)
        at = unroll_with_memories(critics, joint_inputs(obs, played))[0]
        at = tree_index(at, (slice(None), slice(-1)))
        problem = ActorProblem(
            outputs,
            played,
            found,
            lambda joint: _values(critics, at, obs, joint),
            lambda joint: _values_of_one(critics, at, obs, joint),
            spec.action_space,
            jax.lax.stop_gradient(_advantages(critics, at, obs)) if self.additive_critic else None,
        )
        improvement = self.actor_update.loss(problem, key)
        squares = jnp.mean(jnp.square(outputs), axis=(-2, -1))
        loss = masked_mean(improvement, batch.mask) + self.logit_penalty * masked_mean(squares, batch.mask)
        told = {"entropy": jnp.zeros(())}
        if isinstance(spec.action_space, Discrete):
            told["entropy"] = masked_mean(entropy(outputs), batch.mask)
            loss -= self.entropy_bonus * told["entropy"]
        if self.imitates:
            shown = batch.mask & (batch.label.actor != LEARNER)[:, None]
            told["imitation_loss"] = masked_mean(unlikeness(outputs, played, spec.action_space), shown)
            loss += self.imitation(elapsed) * told["imitation_loss"]
        return loss, told

    @property
    def imitates(self) -> bool:
        """Whether actors ever do as explorers did."""
        return self.imitation.start != 0.0 or self.imitation.end != 0.0


def _values(
    critics: Ensemble, at: Memory, obs: Float[Array, "batch time agents obs"], action: Played
) -> Float[Array, "batch time"]:
    """The ensemble's smallest value of each joint action, memories as they were at each state."""
    return jnp.min(jax.vmap(step_at, in_axes=(None, 0, 0))(critics, at, joint_inputs(obs, action)), axis=-1)


def _values_of_one(
    critics: Ensemble, at: Memory, obs: Float[Array, "batch time agents obs"], joint: Float[Array, "agents features"]
) -> Float[Array, "batch time"]:
    """The same of one and the same joint action at all states."""
    of_step = jax.vmap(jax.vmap(lambda memory, seen: critics.step(memory, (seen.reshape(-1), joint.reshape(-1)))[1]))
    return jnp.min(of_step(at, obs), axis=-1)


def _advantages(critics: Ensemble, at: Memory, obs: Float[Array, "batch time agents obs"]) -> Played:
    """What every own action adds under additive critics, averaged over the ensemble."""

    def of_step(memory: Memory, seen: Float[Array, "agents obs"]) -> Float[Array, "agents features"]:
        of_critic = jax.vmap(lambda critic, memory: critic.advantages(memory, seen.reshape(-1)))
        return jnp.mean(of_critic(critics.nets, memory), axis=0).reshape(len(seen), -1)

    return jax.vmap(jax.vmap(of_step))(at, obs)
