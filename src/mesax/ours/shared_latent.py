"""An explorer whose agents share randomness: a latent that all of them know decides what they do together.

    z_t ~ prior_t         one of Z values, at every step or once per episode
    a_i ~ table_t[z, i]   every agent by itself, given z
    d(a)                  = sum_z prior_t(z) prod_i table_t[z, i](a_i)        exact, without a list of all U^n actions

Independent agents can only play products of distributions, in which a diagonal has no place; a mixture of products can
be any distribution. Sharing z asks for nothing on a test task, where explorers play in training only.

The tables are fitted to a density p* (`mesax.ours.relations`) from both sides, and play no environment for it:

    own draws a ~ d       climb E r(a),  r(a) = clip(log p*(a) - log d(a), -limit, limit), by the gradient of log d
    draws a ~ p*          climb log d(a): what own draws never meet pays nothing, and would never be found
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.nets import Adam, Memory, Trainable
from mesax.ours.relations import RelationDensity
from mesax.policy import EXPLORER, Policy
from mesax.ranges import above, at_least
from mesax.types import Action, Discrete, EnvSpec, Key, Keys, Label, Metrics


class SharedLatentPolicy(eqx.Module):
    """Tables that a shared latent picks from."""

    prior: Float[Array, "draws latents"]
    """Logits; one row for each step, or a single one if the latent is drawn once per episode."""
    logits: Float[Array, "steps latents agents actions"]

    def start(self, key: Key) -> Memory:
        """No step made; all latents of the episode are drawn."""
        return jnp.zeros((), jnp.int32), jax.random.categorical(key, self.prior)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Agents draw by themselves, given the latent; beyond the last table its row serves on."""
        del obs
        step, drawn = memory
        latent = drawn[jnp.minimum(step, drawn.size - 1)]
        logits = self.logits[jnp.minimum(step, self.logits.shape[0] - 1), latent]
        return jax.random.categorical(key, logits).astype(jnp.int32), (step + 1, drawn)

    def label(self, memory: Memory) -> Label:
        """An explorer, and the latents of its steps."""
        return Label(jnp.asarray(EXPLORER, jnp.int32), memory[1].astype(jnp.float32))

    def log_ratio(self, step: Int[Array, ""], actions: Int[Array, "batch agents"]) -> Float[Array, " batch"]:
        """log(d(a) U^n) of joint actions at a step."""
        num_actions = self.logits.shape[-1]
        prior = jax.nn.log_softmax(self.prior[jnp.minimum(step, self.prior.shape[0] - 1)])
        tables = jax.nn.log_softmax(self.logits[step])
        chosen = jax.nn.one_hot(actions, num_actions)
        # One product of matrices: to gather entries, and to scatter their gradients, is slower on a CPU.
        given_latent = tables.reshape(tables.shape[0], -1) @ chosen.reshape(chosen.shape[0], -1).T
        density = jax.nn.logsumexp(prior[:, None] + given_latent, axis=0)
        return density + actions.shape[1] * math.log(num_actions)


@dataclass(frozen=True)
class SharedLatent:
    """Settings of such explorers, and how they are fitted."""

    latents_per_action: int = 4
    """Z / U: every action of an agent must find some latents that stand for it."""
    drawn: Literal["step", "episode"] = "step"
    """How often the latent is drawn."""
    num_updates: int = 400
    """Steps of the fit, at all steps of an episode together."""
    batch_size: int = 512
    """Joint actions drawn at each step of an episode, from the explorer and from p* each, in an update."""
    learning_rate: float = 0.1
    """In the beginning; it falls in a straight line to a twentieth."""
    reward_limit: float = 12.0
    """Rewards are clipped to +- this."""
    initial_scale: float = 1.0
    """Scale of the random logits at the start: latents must differ for one of them to become something."""

    def __post_init__(self) -> None:
        """Refuse explorers that cannot be fitted."""
        at_least(self, 1, "latents_per_action", "num_updates", "batch_size")
        above(self, 0, "learning_rate", "reward_limit", "initial_scale")

    @property
    def optimizer(self) -> Adam:
        """Adam over all updates."""
        return Adam(self.learning_rate, falling=self.num_updates)

    def init(self, spec: EnvSpec, key: Key) -> SharedLatentPolicy:
        """Random tables."""
        assert isinstance(spec.action_space, Discrete), "see check_relations"
        num_actions = spec.action_space.num_actions
        latents = self.latents_per_action * num_actions
        draws = spec.horizon if self.drawn == "step" else 1
        shape = (spec.horizon, latents, spec.num_agents, num_actions)
        return SharedLatentPolicy(jnp.zeros((draws, latents)), self.initial_scale * jax.random.normal(key, shape))

    def begin(self, spec: EnvSpec, key: Key) -> Trainable[SharedLatentPolicy]:
        """Random tables with their optimizer."""
        return Trainable.create(self.init(spec, key), self.optimizer)

    def update(
        self, state: Trainable[SharedLatentPolicy], density: RelationDensity, key: Key
    ) -> tuple[Trainable[SharedLatentPolicy], Metrics]:
        """One step toward the density, at all steps of an episode."""
        steps = jnp.arange(state.net.logits.shape[0])
        keys = jax.random.split(key, (steps.size, 2))
        own, wanted = jax.vmap(lambda step, keys: self._draws(state.net, density, step, keys))(steps, keys)
        pay = jax.vmap(lambda step, actions: jax.vmap(lambda action: density.log_ratio(step, action))(actions))
        paid = pay(steps, own)

        def loss(policy: SharedLatentPolicy) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            visits, covered = jax.vmap(policy.log_ratio)(steps, own), jax.vmap(policy.log_ratio)(steps, wanted)
            reward = jax.lax.stop_gradient(jnp.clip(paid - visits, -self.reward_limit, self.reward_limit))
            advantage = reward - jnp.mean(reward, axis=1, keepdims=True)
            climbed = jnp.mean(advantage * visits, axis=1) + jnp.mean(covered, axis=1)
            return -jnp.sum(climbed), (jnp.mean(reward), jnp.mean(covered))

        gradients, (reward, covered) = jax.grad(loss, has_aux=True)(state.net)
        return state.descend(gradients, self.optimizer), {"density_return": reward, "log_likelihood": covered}

    def _draws(
        self, policy: SharedLatentPolicy, density: RelationDensity, step: Int[Array, ""], keys: Keys
    ) -> tuple[Int[Array, "batch agents"], Int[Array, "batch agents"]]:
        """Joint actions of the explorer, and of p*."""
        key_latent, key_action = jax.random.split(keys[0])
        prior = policy.prior[jnp.minimum(step, policy.prior.shape[0] - 1)]
        latent = jax.random.categorical(key_latent, prior, shape=(self.batch_size,))
        own = jax.random.categorical(key_action, policy.logits[step][latent])
        wanted = jax.vmap(lambda key: density.draw(step, key))(jax.random.split(keys[1], self.batch_size))
        return own.astype(jnp.int32), wanted


@dataclass(frozen=True)
class SharedLatentRecipe:
    """Sizes and settings of explorers with a shared latent: with their tables, all that it takes to let them play."""

    spec: EnvSpec
    """The environment they play in."""
    explorer: SharedLatent = SharedLatent()

    def deployed(self, policy: Policy) -> Policy:
        """They play as they are."""
        return policy

    def shape(self, number: int) -> SharedLatentPolicy:
        """Shapes of `number` stacked explorers."""
        keys = jax.random.split(jax.random.key(0), number)
        shape: SharedLatentPolicy = jax.eval_shape(jax.vmap(lambda key: self.explorer.init(self.spec, key)), keys)
        return shape

    def like(self) -> Trainable[SharedLatentPolicy]:
        """Shapes of one that is being fitted."""
        shape: Trainable[SharedLatentPolicy] = jax.eval_shape(
            lambda key: self.explorer.begin(self.spec, key), jax.random.key(0)
        )
        return shape
