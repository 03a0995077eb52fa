"""MAVEN (Mahajan et al. 2019): QMIX whose agents share a latent z, drawn once per episode, and so explore together.

    z             ~ pi_z(. | s_0)                                        one-hot, drawn when the first step is seen
    Q_i(h_t, .)   = W(z, i) h_i,t                                        the last layer of every agent follows z
    Qtot_t        = mixer(Q_i(h_t, a_t), [s_t, z])
    q(z | t)      = discriminator(s_t, softmax of all agents' values)
    lower         TD error of Qtot + weight * mean_t -log q(z | t)       play must tell z: I(z; play) rises
    pi_z          raise return * log pi_z(z | s_0) over recent episodes  REINFORCE: which way to play pays

The second term is a variational bound on the mutual information between z and what is played. Its gradient reaches the
agents through the softmax. Everything else is value decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.mixers import (
    BuildsMixer,
    Mixer,
    MixerBase,
    MixerConfig,
    MixerStep,
    Monotonic,
    applied,
    hypernets,
)
from mesax.algorithms.targets import entropy
from mesax.algorithms.value_decomposition import (
    ActionValues,
    TargetConfig,  # noqa: F401 (as Line and NetConfig: settings that are inherited name their kinds here too)
    ValueDecomposition,
    Values,
    ValueState,
    choices_of,
)
from mesax.nets import Adam, CodedTeam, FeedForward, Memory, Mlp, NetConfig, Optimizer, Team, Trainable  # noqa: F401
from mesax.policy import LATENT_STREAM, LEARNER, Policy
from mesax.ranges import at_least, each_at_least
from mesax.types import (
    Action,
    Discrete,
    Elapsed,
    EnvSpec,
    Episode,
    Key,
    Label,
    Line,  # noqa: F401
    Metrics,
    random_index,
)

NAMES: dict[str, str] = {
    "maven": "MAVEN: QMIX with a latent per episode, so that agents explore together",
}
NEVER = -1e9
"""Added to the logit of a latent that must not be drawn."""


class OneLatentPolicy(eqx.Module):
    """Draws z from the first joint observation, and plays by it to the end of the episode."""

    policy: Policy
    """Plays on observations that begin with z."""
    choice: FeedForward | None
    """Logits of z; None: all are alike."""
    offset: Float[Array, " latent"]
    """Added to them: 0, or what leaves a single z."""

    def start(self, key: Key) -> Memory:
        """No z yet, but the noise that will decide."""
        noise = jax.random.gumbel(jax.random.fold_in(key, LATENT_STREAM), self.offset.shape)
        return self.policy.start(key), noise, jnp.zeros_like(noise)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Every agent acts on its own observation and z."""
        inner, noise, latent = memory
        logits = self.offset if self.choice is None else self.offset + applied(self.choice, obs.reshape(-1))
        drawn = jax.nn.one_hot(jnp.argmax(logits + noise), noise.size)
        latent = jnp.where(jnp.any(latent > 0), latent, drawn)
        action, inner = self.policy.act(inner, coded(latent, obs), key)
        return action, (inner, noise, latent)

    def label(self, memory: Memory) -> Label:
        """The learner itself, and its z."""
        return Label(jnp.asarray(LEARNER, jnp.int32), memory[2])


class Discerning(MixerBase):
    """A mixer that also tells which z is being played, and is paid for it."""

    mixer: Mixer
    discriminator: FeedForward
    weight: float = eqx.field(static=True)

    def __call__(self, step: MixerStep) -> Float[Array, " values"]:
        """Qtot; z is part of the context."""
        return self.mixer(step)

    def with_penalty(self, step: MixerStep) -> tuple[Float[Array, " values"], Float[Array, ""]]:
        """As the mixer does, and what it takes by surprise."""
        values, penalty = self.mixer.with_penalty(step)
        return values, penalty + self.weight * self.surprise(step)

    def surprise(self, step: MixerStep) -> Float[Array, ""]:
        """-log q(z | s_t, softmax of the values): nothing is told at log(latent size)."""
        seen = jnp.concatenate([jax.nn.softmax(step.values).reshape(-1), step.obs.reshape(-1)])
        return -jnp.sum(step.latent * jax.nn.log_softmax(applied(self.discriminator, seen)))


@dataclass(frozen=True)
class Reinforce:
    """How the choice of z is learned from what recent episodes returned."""

    hidden: int = 128
    """Units between the first joint observation and the logits of z."""
    optimizer: Adam = Adam(5e-4)
    """Optimizer of the policy over latents."""
    updates: int = 8
    """Steps of the choice for each update of the values."""
    batch_size: int = 64
    """Episodes in such a step."""
    capacity: int = 512
    """Recent episodes that they are drawn from."""
    entropy_bonus: float = 1e-3
    """Weight of the entropy of that policy."""
    baseline: bool = False
    """Whether the mean return of the batch is subtracted; needed where returns are negative."""

    def __post_init__(self) -> None:
        """Refuse settings that nothing could be learned with."""
        at_least(self, 1, "hidden", "updates", "batch_size", "capacity")
        at_least(self, 0, "entropy_bonus")

    def init(self, spec: EnvSpec, latent_size: int, key: Key) -> Choice:
        """A choice that knows nothing."""
        size = spec.num_agents * spec.obs_size
        net = Mlp((self.hidden,)).build(size, latent_size, key, head_gain=0.1)
        recent = Recent(
            jnp.zeros((self.capacity, size)),
            jnp.zeros((self.capacity, latent_size)),
            jnp.zeros(self.capacity),
            jnp.zeros(self.capacity),
        )
        none = jnp.zeros((), jnp.int32)
        return Choice(Trainable.create(net, self.optimizer), recent, none, none)

    def loss(self, net: FeedForward, recent: Recent) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(what is lowered, mean entropy of the choice) on some episodes."""
        logits = jax.vmap(lambda obs: applied(net, obs))(recent.obs)
        weights = recent.own / jnp.maximum(jnp.sum(recent.own), 1.0)
        returns = recent.returns - (jnp.sum(weights * recent.returns) if self.baseline else 0.0)
        chosen = jnp.sum(recent.latent * jax.nn.log_softmax(logits), axis=-1)
        spread = jnp.sum(weights * entropy(logits))
        return -jnp.sum(weights * returns * chosen) - self.entropy_bonus * spread, spread

    def update(self, choice: Choice, key: Key) -> tuple[Choice, Metrics]:
        """A few steps on recent episodes."""
        shape = (self.updates, self.batch_size)
        which = random_index(key, shape, jnp.clip(choice.added, 1, self.capacity))

        def step(
            net: Trainable[FeedForward], which: Int[Array, " batch"]
        ) -> tuple[Trainable[FeedForward], Float[Array, ""]]:
            batch: Recent = jax.tree.map(lambda leaf: leaf[which], choice.recent)
            gradients, spread = jax.grad(self.loss, has_aux=True)(net.net, batch)
            return net.descend(gradients, self.optimizer), spread

        net, spread = jax.lax.scan(step, choice.net, which)
        return Choice(net, choice.recent, choice.added, choice.updates + 1), {"latent_entropy": spread[-1]}


class Recent(eqx.Module):
    """Episodes as the choice of z sees them; a ring."""

    obs: Float[Array, "episodes obs"]
    """First joint observations."""
    latent: Float[Array, "episodes latent"]
    returns: Float[Array, " episodes"]
    own: Float[Array, " episodes"]
    """1 for episodes that were played by z, 0 for those of others: what they returned is not z's doing."""


class Choice(eqx.Module):
    """The policy over z, and what it learns from."""

    net: Trainable[FeedForward]
    recent: Recent
    added: Int[Array, ""]
    """Episodes ever seen; the next one takes the place of the oldest."""
    updates: Int[Array, ""]
    """Before the first one no policy plays by z: that is the warm-up."""

    def forgotten(self) -> Choice:
        """The policy alone."""
        recent = jax.tree.map(jnp.zeros_like, self.recent)
        return Choice(self.net.forgotten(), recent, jnp.zeros_like(self.added), jnp.zeros_like(self.updates))

    def seen(self, fresh: Recent) -> Choice:
        """With some more episodes."""
        capacity = len(self.recent.returns)
        fresh = jax.tree.map(lambda leaf: leaf[-capacity:], fresh)
        count = len(fresh.returns)
        slots = (self.added + jnp.arange(count)) % capacity
        recent = jax.tree.map(lambda ring, new: ring.at[slots].set(new, unique_indices=True), self.recent, fresh)
        return Choice(self.net, recent, self.added + count, self.updates)


@dataclass(frozen=True)
class CodedValues(ValueDecomposition):
    """Value decomposition under a latent z: agents and mixer see it, and a discriminator tells it from their values."""

    mixer: MixerConfig | BuildsMixer = Monotonic(hyper_hidden=0)
    """How agents' values make the team's; z is part of its context."""
    latent_size: int = 2
    """Values that z can take."""
    features: int = 64
    """Numbers that an agent's net hands to the weights that z chooses."""
    information_weight: float = 1.0
    """Weight of the discriminator's loss."""
    discriminator_hidden: tuple[int, ...] = (32,)
    """Widths of the discriminator's ReLU layers."""

    def __post_init__(self) -> None:
        """Refuse settings that no learner can have."""
        super().__post_init__()
        at_least(self, 1, "latent_size", "features")
        at_least(self, 0, "information_weight")
        each_at_least(self, 1, "discriminator_hidden")

    def build(self, spec: EnvSpec, key: Key) -> Values:
        """Agents whose last layer follows z, a mixer that sees it, and the discriminator."""
        space = choices_of(spec)
        key_agents, key_mixer, key_discriminator = jax.random.split(key, 3)
        inputs = spec.obs_size + self.last_action * space.num_actions
        sizes = (self.latent_size, inputs, self.features, space.num_actions)
        agents = CodedTeam.create(
            self.agent_net, spec.num_agents, sizes, key_agents, shared=self.share_agents, head_gain=0.1
        )
        (discriminator,) = hypernets(key_discriminator, (spec.joint_size, *self.discriminator_hidden, self.latent_size))
        mixer = self.mixer.build(spec, key_mixer, self.latent_size)
        return Values(agents, Discerning(mixer, discriminator, self.information_weight))

    def agent_values(self, space: Discrete, agents: Team | CodedTeam, batch: Episode) -> ActionValues:
        """Every action's value to every agent along the episodes, under their z."""
        seen = coded(batch.label.latent[:, None], batch.obs)
        return super().agent_values(space, agents, eqx.tree_at(lambda batch: batch.obs, batch, seen))


class MavenState(eqx.Module):
    """Values, and the choice of z if it is learned."""

    values: ValueState
    choice: Choice | None


@dataclass(frozen=True)
class Maven(OffPolicy):
    """Values under a latent per episode, and a policy over that latent."""

    values: CodedValues = CodedValues()
    """What is learned under every z."""
    choice: Reinforce | None = Reinforce()
    """How the policy over z learns; None: z is always uniform."""

    def init(self, spec: EnvSpec, key: Key) -> MavenState:
        """Fresh nets; nothing seen."""
        key_values, key_choice = jax.random.split(key)
        choice = None if self.choice is None else self.choice.init(spec, self.values.latent_size, key_choice)
        return MavenState(self.values.init(spec, key_values), choice)

    def greedy(self, spec: EnvSpec, state: MavenState) -> Policy:
        """Highest values under the z that is chosen."""
        return self._playing(state, self.values.greedy(spec, state.values))

    def behavior(self, spec: EnvSpec, state: MavenState, elapsed: Elapsed) -> Policy:
        """The same, or random actions."""
        return self._playing(state, self.values.behavior(spec, state.values, elapsed))

    def _playing(self, state: MavenState, policy: Policy) -> OneLatentPolicy:
        choice = None if state.choice is None else state.choice.net.net
        return OneLatentPolicy(policy, choice, jnp.zeros(self.values.latent_size))

    def variants(self, spec: EnvSpec, state: MavenState) -> Policy:
        """Highest values under every z."""
        policy = self.values.greedy(spec, state.values)
        only = NEVER * (1.0 - jnp.eye(self.values.latent_size))
        return jax.vmap(lambda offset: OneLatentPolicy(policy, None, offset))(only)

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """Uniform."""
        del spec
        return jax.nn.one_hot(random_index(key, (), self.values.latent_size), self.values.latent_size)

    def observe(self, spec: EnvSpec, state: MavenState, fresh: Episode) -> MavenState:
        """The choice of z sees what it led to."""
        del spec
        if state.choice is None:
            return state
        own = (fresh.label.actor == LEARNER) & (state.choice.updates > 0)
        returns = jnp.sum(fresh.reward * fresh.mask, axis=1)
        first = fresh.obs[:, 0].reshape(len(fresh.obs), -1)
        seen = state.choice.seen(Recent(first, fresh.label.latent, returns, own.astype(returns.dtype)))
        return MavenState(state.values, seen)

    def update(
        self, spec: EnvSpec, state: MavenState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[MavenState, Metrics]:
        """One step of the values, and a few of the choice of z."""
        values, metrics = self.values.update(spec, state.values, batch, elapsed, key)
        if self.choice is None or state.choice is None:
            return MavenState(values, state.choice), metrics
        choice, of_choice = self.choice.update(state.choice, key)
        return MavenState(values, choice), metrics | of_choice


def coded(
    latent: Float[Array, "... latent"], obs: Float[Array, "*batch agents obs"]
) -> Float[Array, "*batch agents more"]:
    """Observations that begin with z; it may stand for several instants."""
    codes = jnp.broadcast_to(latent[..., None, :], (*obs.shape[:-1], latent.shape[-1]))
    return jnp.concatenate([codes, obs], axis=-1)
