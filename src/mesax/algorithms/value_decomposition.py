"""Learning a value per agent whose mixture is the team's: IQL, VDN, QMIX and QPLEX by their mixer.

    Q_i(h_t, .)   every agent's net along the episode, h_t its history of observations (and own actions)
    Qtot_t        = mixer(Q_i(h_t, a_t), s_t)                                           online nets
    a'            = argmax Q_i(h_{t+1}, .) of the online nets (double Q) or of the target nets
    y_t           = r_t + gamma (1 - terminated_t) mixer'(Q'_i(h_{t+1}, a'), s_{t+1})   target nets
    lower         sum_t mask_t (Qtot_t - y_t)^2
    target nets   follow the online ones, softly or by copies

Agents act on the argmax of their own values, or at random with a probability that falls over the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.mixers import BuildsMixer, Mixer, MixerConfig, MixerStep, Monotonic
from mesax.algorithms.targets import lambda_returns
from mesax.errors import UsageError
from mesax.nets import (
    Adam,
    CodedTeam,
    Entities,
    Gru,
    Memory,
    NetConfig,
    NetT,
    Optimizer,
    Team,
    Trainable,
    WithChange,
    polyak,
    unroll_batch,
)
from mesax.policy import LEARNER, Policy, sometimes_random
from mesax.ranges import at_least, between
from mesax.store.settings import added
from mesax.types import (
    Action,
    Discrete,
    Elapsed,
    EnvSpec,
    Episode,
    Key,
    Label,
    Line,
    LinearSteps,
    Metrics,
    masked_mean,
    tree_where,
)

NAMES: dict[str, str] = {
    "iql": "independent Q-learning",
    "vdn": "VDN: value decomposition by a sum",
    "qmix": "QMIX: monotonic value decomposition",
    "qplex": "QPLEX: value decomposition into advantages, which represents every game with an optimum",
    "dmaq": "QPLEX with the mixer of its authors' matrix games: weights from the state, deeper importances",
}
NOTHING = -1
"""Stands for the action before the first one; its one-hot form is all zeros."""
WIDE = 32
"""Units from which on a recurrent net is quicker alone than side by side with others."""
Given = ParamSpec("Given")
Learned = TypeVar("Learned")


@dataclass(frozen=True)
class Soft:
    """Target nets move toward the online ones at every update."""

    rate: float = 0.005
    """Polyak step."""

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        between(self, 0, 1, "rate")

    def follow(self, target: NetT, online: NetT, updates: Int[Array, ""]) -> NetT:
        """Target nets after an update."""
        del updates
        return polyak(target, online, self.rate)


@dataclass(frozen=True)
class Periodic:
    """Target nets are copies of the online ones, renewed now and then."""

    updates: int = 200
    """Updates between copies."""

    def __post_init__(self) -> None:
        """Refuse copies that never come."""
        at_least(self, 1, "updates")

    def follow(self, target: NetT, online: NetT, updates: Int[Array, ""]) -> NetT:
        """Target nets after update number `updates`, from 1."""
        return tree_where(updates % self.updates == 0, online, target)


TargetConfig: TypeAlias = Soft | Periodic


ActionValues: TypeAlias = Float[Array, "batch instants agents actions"]
"""Every action's value to every agent along episodes."""
Rates: TypeAlias = tuple[ActionValues, Mixer]
"""Values along episodes, and what makes one of them."""


class ValuePolicy(eqx.Module):
    """Every agent takes the action that its own net rates highest, or a random one.

    Random actions are drawn in here, so that the memory holds what was played. Should somebody else play the episode,
    their actions never reach this memory, and what it answers is not obeyed either.
    """

    agents: Team | CodedTeam
    epsilon: Float[Array, ""] | None
    """Chance of a random action per agent; None: never."""
    action_space: Discrete = eqx.field(static=True)
    last_action: bool = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Fresh memories, and no action yet."""
        del key
        return self.agents.start(), jnp.full(self.agents.num_agents, NOTHING, jnp.int32)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Every agent acts on its own observation."""
        memory, last = memory
        memory, q = self.agents.step(memory, inputs(self.action_space, obs, last if self.last_action else None))
        action = jnp.argmax(q, axis=-1).astype(jnp.int32)
        if self.epsilon is not None:
            action = sometimes_random(action, self.epsilon, self.action_space, key)
        return action, (memory, action)

    def label(self, memory: Memory) -> Label:
        """The learner itself."""
        del memory
        return Label.of(LEARNER)


class Values(eqx.Module):
    """The agents' nets and what makes one value of theirs."""

    agents: Team | CodedTeam
    mixer: Mixer


class ValueState(eqx.Module):
    """Online and target nets."""

    values: Trainable[Values]
    target: Values
    updates: Int[Array, ""]
    """So far."""


class Hint(eqx.Module):
    """What the values of replayed steps are known to be from elsewhere, and how much that counts."""

    value: Float[Array, "batch time"]
    weight: Float[Array, "batch time"]
    """0 where nothing is known."""
    at_least: bool = eqx.field(static=True, default=False)
    """Whether more may be true: then only predictions below the value are wrong."""

    def error(self, predicted: Float[Array, "batch time values"]) -> Float[Array, "batch time values"]:
        """Weighted squared error of every step."""
        short = self.value[..., None] - predicted
        return self.weight[..., None] * jnp.square(jnp.maximum(short, 0.0) if self.at_least else short)


def inputs(
    action_space: Discrete, obs: Float[Array, "*batch agents obs"], last: Int[Array, "*batch agents"] | None
) -> Float[Array, "*batch agents inputs"]:
    """What agents' nets see: their observation and, if given, their own last action."""
    return obs if last is None else jnp.concatenate([obs, action_space.encode(last)], axis=-1)


@dataclass(frozen=True)
class ValueDecomposition(OffPolicy):
    """Off-policy learner of values for discrete actions; its mixer makes it IQL, VDN, QMIX or QPLEX."""

    mixer: MixerConfig | BuildsMixer = Monotonic()
    """How agents' values make the team's: Independent (IQL), Sum (VDN), Monotonic (QMIX), Duplex or StateDuplex
    (QPLEX), or your own."""
    agent_net: NetConfig = Gru(64, num_layers=1)
    """Net of the agents' action values."""
    share_agents: bool = True
    """One net for all agents (told its identity) instead of one each."""
    last_action: bool = True
    """Whether an agent sees its own last action."""
    double_q: bool = True
    """Target actions are chosen by the online nets and rated by the target nets; false: both by the target nets."""
    trace: float = 0.0
    """lambda of the targets along replayed episodes; 0 is the one-step target."""
    optimizer: Optimizer = Adam()
    """Optimizer of agents and mixer."""
    discount: float = 0.99
    """Discount of later rewards."""
    target: TargetConfig = Periodic()
    """How target nets follow: Periodic copies or Soft steps."""
    exploration: Line = LinearSteps(1.0, 0.05, 50_000)
    """Chance of a random action per agent, over the run."""
    horizon_ends: bool = added(False)
    """Whether nothing is worth anything beyond the horizon, as if the task ended there; false: only where it ends."""

    def __post_init__(self) -> None:
        """Refuse settings that no learner can have."""
        between(self, 0, 1, "discount", "trace", "exploration.start", "exploration.end")
        if self.last_action and isinstance(self.agent_net, Entities):
            raise UsageError("a net over entities cannot see the last action: set last-action to false")
        if self.last_action and isinstance(self.agent_net, WithChange):
            raise UsageError("changes of the last action would drown all others: set last-action to false")

    def init(self, spec: EnvSpec, key: Key) -> ValueState:
        """Fresh nets; targets start equal."""
        values = self.build(spec, key)
        return ValueState(Trainable.create(values, self.optimizer), values, jnp.zeros((), jnp.int32))

    def build(self, spec: EnvSpec, key: Key) -> Values:
        """Fresh nets of the agents, and what mixes their values."""
        key_agents, key_mixer = jax.random.split(key)
        return Values(self.fresh_agents(spec, key_agents), self.mixer.build(spec, key_mixer))

    def fresh_agents(self, spec: EnvSpec, key: Key, head_gain: float = 0.1) -> Team:
        """New nets; values are near zero at first, because the largest of several random ones would be bootstrapped."""
        space = choices_of(spec)
        sizes = (spec.obs_size + self.last_action * space.num_actions, space.num_actions)
        return Team.create(self.agent_net, spec.num_agents, sizes, key, shared=self.share_agents, head_gain=head_gain)

    def greedy(self, spec: EnvSpec, state: ValueState) -> Policy:
        """Highest values."""
        return ValuePolicy(state.values.net.agents, None, choices_of(spec), self.last_action)

    def behavior(self, spec: EnvSpec, state: ValueState, elapsed: Elapsed) -> Policy:
        """Highest values, or random actions."""
        epsilon = self.exploration(elapsed)
        return ValuePolicy(state.values.net.agents, epsilon, choices_of(spec), self.last_action)

    def update(
        self, spec: EnvSpec, state: ValueState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[ValueState, Metrics]:
        """One step of the online nets, and of the target nets if it is their turn."""
        del elapsed, key
        space = choices_of(spec)

        def learn(state: ValueState, batch: Episode) -> tuple[ValueState, Metrics]:
            state, metrics, _ = self.learn(space, state, batch)
            return state, metrics

        return self.in_turn(learn)(state, batch)

    def in_turn(self, learn: Callable[Given, Learned]) -> Callable[Given, Learned]:
        """`learn`, of which lanes take turns if nets are wide and recurrent.

        Products with the weights of several nets at once take twice as long on a CPU.
        """
        wide = isinstance(self.agent_net, Gru) and self.agent_net.hidden >= WIDE
        return jax.custom_batching.sequential_vmap(learn) if wide else learn

    def learn(
        self,
        space: Discrete,
        state: ValueState,
        batch: Episode,
        hint: Hint | None = None,
    ) -> tuple[ValueState, Metrics, Float[Array, " batch"]]:
        """An update of one lane: (new state, metrics, every episode's mean squared error)."""
        target_q = self.agent_values(space, state.target.agents, batch)

        def loss(values: Values) -> tuple[Float[Array, ""], tuple[Metrics, Float[Array, " batch"]]]:
            q = self.agent_values(space, values.agents, batch)
            return self.loss(space, (q, values.mixer), batch, (target_q, state.target.mixer), hint)

        gradients, (metrics, errors) = jax.grad(loss, has_aux=True)(state.values.net)
        return self.descended(state, gradients), metrics, errors

    def loss(
        self, space: Discrete, online: Rates, batch: Episode, target: Rates, hint: Hint | None
    ) -> tuple[Float[Array, ""], tuple[Metrics, Float[Array, " batch"]]]:
        """What is lowered, (metrics, every episode's mean squared error), from values along the episodes."""
        q, mixer = online
        targets = jax.lax.stop_gradient(self.targets(space, q, batch, target))
        now = steps_of(space, q[:, :-1], batch.obs[:, :-1], batch.action, batch.label.latent)
        predicted, penalties = each(mixer.with_penalty, now)
        errors = jnp.square(predicted - targets)
        critic_loss = masked_mean(errors, batch.mask)
        penalty = masked_mean(penalties, batch.mask)
        followed = (batch.action == jnp.argmax(q[:, :-1], axis=-1)).astype(q.dtype)
        metrics = {
            "critic_loss": critic_loss,
            "mixer_penalty": penalty,
            "target_mean": masked_mean(targets, batch.mask),
            "q_mean": masked_mean(predicted, batch.mask),
            "greedy_share": masked_mean(followed, batch.mask),
        }
        total = critic_loss + penalty
        if hint is not None:
            metrics["hint_loss"] = masked_mean(hint.error(predicted), batch.mask)
            total = total + metrics["hint_loss"]
        return total, (metrics, jax.vmap(masked_mean)(errors, batch.mask))

    def descended(self, state: ValueState, gradients: Values) -> ValueState:
        """Online nets a step further, and the target nets if it is their turn."""
        values = state.values.descend(gradients, self.optimizer)
        updates = state.updates + 1
        return ValueState(values, self.target.follow(state.target, values.net, updates), updates)

    def agent_values(self, space: Discrete, agents: Team | CodedTeam, batch: Episode) -> ActionValues:
        """Every action's value to every agent along the episodes, from the actions that were played."""
        last = None
        if self.last_action:
            last = jnp.concatenate([jnp.full_like(batch.action[:, :1], NOTHING), batch.action], axis=1)
        return unroll_batch(agents, inputs(space, batch.obs, last))

    def targets(
        self, space: Discrete, q: ActionValues, batch: Episode, target: Rates
    ) -> Float[Array, "batch instants-1 values"]:
        """y_t, for the team or for every agent."""
        target_q, mixer = target
        action = jnp.argmax((q if self.double_q else target_q)[:, 1:], axis=-1)
        following = each(mixer, steps_of(space, target_q[:, 1:], batch.obs[:, 1:], action, batch.label.latent))
        of_values = jax.vmap(lambda_returns, in_axes=(None, None, 1, None), out_axes=1)
        discounts = self.discount * self.continues(batch)
        return jax.vmap(of_values)(batch.reward, discounts, following, self.trace * batch.goes_on)

    def continues(self, batch: Episode) -> Float[Array, "batch time"]:
        """1 where what follows a step is worth something, else 0."""
        return batch.goes_on.astype(batch.reward.dtype) if self.horizon_ends else batch.continues


def choices_of(spec: EnvSpec) -> Discrete:
    """The actions to choose from; a box is refused."""
    if not isinstance(spec.action_space, Discrete):
        raise UsageError(
            "ValueDecomposition needs discrete actions; Binned(ValueDecomposition(...)) cuts a box into bins"
        )
    return spec.action_space


def steps_of(
    space: Discrete,
    q: Float[Array, "batch time agents actions"],
    obs: Float[Array, "batch time agents obs"],
    action: Int[Array, "batch time agents"],
    latent: Float[Array, "batch latent"],
) -> MixerStep:
    """Every step as mixers see it."""
    played = space.encode(action)
    latents = jnp.broadcast_to(latent[:, None], (*obs.shape[:2], latent.shape[-1]))
    return MixerStep(jnp.sum(q * played, axis=-1), jnp.max(q, axis=-1), obs, played, latents, q)


Rated = TypeVar("Rated")


def each(function: Callable[[MixerStep], Rated], steps: MixerStep) -> Rated:
    """`function` of every step of every episode, `[batch, time, ...]`; to it they are the rows of one matrix."""
    batch, time = steps.q.shape[:2]
    rows = jax.tree.map(lambda leaf: leaf.reshape(batch * time, *leaf.shape[2:]), steps)
    found: Rated = jax.tree.map(lambda leaf: leaf.reshape(batch, time, *leaf.shape[1:]), jax.vmap(function)(rows))
    return found
