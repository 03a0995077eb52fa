"""MAESN (Gupta et al. 2018) for teams: every agent has a policy gradient of its own, and a latent that is meta-learned.

    play      z = mu + exp(s) xi, xi ~ N(0, I), once per episode and agent;  a ~ pi(. | o, z)
    adapt     L = -mean over episodes of A_0 log N(z; mu, exp(s));  mu' = mu - alpha dL/dmu, s' = s - beta dL/ds
    meta      with (mu_k, s_k) for every training task k: play, adapt, play again; then lower
                  mean over k of  -mean min(rho A, clip(rho) A) + kl_weight KL(N(mu_k, exp(s_k)) || N(0, I))
              over pi, all mu_k and s_k, alpha and beta, through the adaptation: rho is the change of
              pi(a | o, mu' + exp(s') xi) since the second episodes were played
    test      begin with mu = 0, s = 0; in some rounds adapt, half as far in each; then lower the same over pi alone

Adapting the weights of pi in place of latents is MAML; never adapting is plain policy gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mesax.algorithms.base import OnPolicy
from mesax.algorithms.mappo import HALF_LOG_TWO_PI, Actors, StochasticPolicy, check_initial_std, within_range
from mesax.algorithms.targets import clipped_gain, lambda_returns
from mesax.errors import UsageError
from mesax.nets import Adam, Memory, Mlp, NetConfig, Team, Trainable, unroll_batch
from mesax.policy import LEARNER, Policy
from mesax.ranges import above, at_least, between
from mesax.types import (
    Action,
    Elapsed,
    EnvSpec,
    Episode,
    Key,
    Label,
    Metrics,
    masked_mean,
    tree_where,
)

LEAST_DEVIATION = 1e-5
"""Below which returns are all alike, and nothing is learned from them."""


class Latents(eqx.Module):
    """Gaussians that agents draw their latents from, a number of them for each task or of one task."""

    mean: Float[Array, "*tasks agents size"]
    log_std: Float[Array, "*tasks agents size"]

    @staticmethod
    def prior(num_agents: int, size: int) -> Latents:
        """N(0, I) for every agent."""
        return Latents(jnp.zeros((num_agents, size)), jnp.zeros((num_agents, size)))

    def at(self, noise: Float[Array, "agents size"]) -> Float[Array, "agents size"]:
        """The latents of one episode that standard normal `noise` stands for."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_likelihood(self, latent: Float[Array, "agents size"]) -> Float[Array, " agents"]:
        """Log-likelihood of each agent's latent in one episode."""
        scaled = (latent - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(scaled) - self.log_std - HALF_LOG_TWO_PI, axis=-1)

    def divergence(self) -> Float[Array, "*tasks agents"]:
        """KL of each agent's Gaussian from the prior."""
        variance = jnp.exp(2 * self.log_std)
        return jnp.sum(0.5 * (variance + jnp.square(self.mean) - 1.0) - self.log_std, axis=-1)


class StepSizes(eqx.Module):
    """Logarithms of how far one adaptation goes: learned, and never negative."""

    mean: Float[Array, "agents size"]
    log_std: Float[Array, "agents size"]
    weights: Float[Array, ""]


class Adaptable(eqx.Module):
    """What plays one task: actors and the latents that they are told."""

    actors: Actors
    latents: Latents


class MetaParameters(eqx.Module):
    """What meta-training learns: actors, latents of every training task, step sizes."""

    actors: Actors
    latents: Latents
    steps: StepSizes

    def of_task(self, latents: Latents) -> Adaptable:
        """Who plays a task with these latents."""
        return Adaptable(self.actors, latents)


class LatentState(eqx.Module):
    """A learner of one task."""

    actors: Trainable[Actors]
    latents: Latents
    steps: StepSizes
    rounds: Int[Array, ""]
    """Played so far."""


class Batch(eqx.Module):
    """Episodes of one task with what follows from how they were played."""

    episodes: Episode
    noise: Float[Array, "envs agents size"]
    """What latents were made of."""
    latent: Float[Array, "envs agents size"]
    """As they were in play: a sample, whatever becomes of its Gaussian."""
    old_log: Float[Array, "envs time agents"]
    """Log-likelihood of the actions, as they were played."""
    advantages: Float[Array, "envs time"]
    whole: Float[Array, " envs"]
    """Advantage of each whole episode."""


class OwnLatentsPolicy(eqx.Module):
    """Agents that draw a latent each before the first step, and are told it at every step."""

    playing: Adaptable
    mode: Literal["greedy", "sample"] = eqx.field(static=True)

    def start(self, key: Key) -> Memory:
        """Draw the noise that latents are made of; none if greedy: then they are at their means."""
        shape = self.playing.latents.mean.shape
        noise = jnp.zeros(shape) if self.mode == "greedy" else jax.random.normal(key, shape)
        return noise, self.playing.actors.team.start()

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Every agent acts on its own observation and latent."""
        noise, inner = memory
        told = jnp.concatenate([obs, self.playing.latents.at(noise)], axis=-1)
        action, inner = StochasticPolicy(self.playing.actors, self.mode).act(inner, told, key)
        return action, (noise, inner)

    def label(self, memory: Memory) -> Label:
        """The learner itself, and the noise of its latents."""
        return Label(jnp.asarray(LEARNER, jnp.int32), memory[0].reshape(-1))


@dataclass(frozen=True)
class LatentPolicyGradient(OnPolicy):
    """Policy gradient for agents that learn by themselves, told a latent each."""

    net: NetConfig = Mlp((64, 64))
    """Net of each actor."""
    latent_size: int = 2
    """Numbers in the latent of each agent; 0: none."""
    adapts: Literal["latents", "weights"] = "latents"
    """What an adaptation moves: the latents (MAESN), or the weights of the actors (MAML)."""
    step_size: float = 1.0
    """Step size of an adaptation, before meta-training learns it."""
    kl_weight: float = 0.1
    """How much training tasks' latents are drawn toward the prior."""
    meta_optimizer: Adam = Adam(3e-3)
    """Optimizer of what is meta-learned."""
    optimizer: Adam = Adam(3e-3)
    """Optimizer of the actors on a test task."""
    adapt_rounds: int = 5
    """Rounds of a test task in which nothing but adaptation takes place."""
    epochs: int = 4
    """Gradient steps on the episodes of a round."""
    clip: float = 0.2
    """Most that the ratio of old and new probabilities may leave 1 by."""
    discount: float = 0.99
    """Discount of later rewards."""
    entropy_bonus: float = 0.01
    """Weight of the policies' entropy."""
    initial_std: float = 0.5
    """Standard deviation of continuous actions at the start."""

    def __post_init__(self) -> None:
        """Refuse settings that no learner can have."""
        at_least(self, 0, "latent_size", "adapt_rounds", "entropy_bonus", "kl_weight")
        at_least(self, 1, "epochs")
        above(self, 0, "step_size", "clip", "initial_std")
        check_initial_std(self.initial_std)
        between(self, 0, 1, "discount")
        if self.adapts == "latents" and not self.latent_size:
            raise UsageError(
                "without latents (latent-size 0) there is only one thing to adapt: --algorithm.adapts weights"
            )

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Episodes are compared with each other: one alone teaches nothing."""
        super().check(spec, num_envs)
        if num_envs < 2:
            raise UsageError(
                f"policy gradient compares episodes of one round: num-envs must be at least 2, not {num_envs}"
            )

    def init(self, spec: EnvSpec, key: Key) -> LatentState:
        """Fresh actors, latents of the prior, and step sizes before any learning."""
        return self.start_from(self._actors(spec, key), self._steps(spec))

    def start_from(self, actors: Actors, steps: StepSizes) -> LatentState:
        """A learner of a new task from what meta-training has learned."""
        latents = Latents.prior(*steps.mean.shape)
        return LatentState(Trainable.create(actors, self.optimizer), latents, steps, jnp.zeros((), jnp.int32))

    def meta_init(self, spec: EnvSpec, num_tasks: int, key: Key) -> Trainable[MetaParameters]:
        """Fresh actors, a random place among the latents for every training task."""
        key_net, key_latent = jax.random.split(key)
        shape = (num_tasks, spec.num_agents, self.latent_size)
        latents = Latents(jax.random.normal(key_latent, shape), jnp.zeros(shape))
        return Trainable.create(
            MetaParameters(self._actors(spec, key_net), latents, self._steps(spec)), self.meta_optimizer
        )

    def _actors(self, spec: EnvSpec, key: Key) -> Actors:
        """One net per agent: none learns for another."""
        features = spec.action_space.feature_size
        sizes = (spec.obs_size + self.latent_size, features)
        team = Team.create(self.net, spec.num_agents, sizes, key, shared=False, head_gain=0.1)
        return Actors.fresh(team, spec.action_space, self.initial_std)

    def _steps(self, spec: EnvSpec) -> StepSizes:
        initial = math.log(self.step_size)
        each = jnp.full((spec.num_agents, self.latent_size), initial)
        return StepSizes(each, each, jnp.asarray(initial))

    def behavior(self, spec: EnvSpec, state: LatentState, elapsed: Elapsed) -> Policy:
        """Sampled latents and sampled actions."""
        del spec, elapsed
        return self.player(Adaptable(state.actors.net, state.latents))

    def player(self, playing: Adaptable) -> Policy:
        """Who explores with these actors and latents."""
        return OwnLatentsPolicy(playing, "sample")

    def greedy(self, spec: EnvSpec, state: LatentState) -> Policy:
        """Latents at their means, most likely actions."""
        del spec
        return OwnLatentsPolicy(Adaptable(state.actors.net, state.latents), "greedy")

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """Noise as the players draw it."""
        return jax.random.normal(key, (spec.num_agents * self.latent_size,))

    def batch(self, playing: Adaptable, episodes: Episode) -> Batch:
        """Episodes `[envs, ...]` that `playing` has just played on one task, ready to be learned from."""
        noise = episodes.label.latent.reshape(len(episodes.reward), *playing.latents.mean.shape)
        discounts = self.discount * episodes.continues * episodes.goes_on
        nothing = jnp.zeros_like(episodes.reward)
        returns = jax.vmap(lambda r, d, v: lambda_returns(r, d, v, 1.0))(episodes.reward, discounts, nothing)
        alive = episodes.mask.astype(returns.dtype)
        # What the others have from the same step on: the only baseline, for there are no values.
        usual = jnp.sum(alive * returns, axis=0) / jnp.maximum(jnp.sum(alive, axis=0), 1.0)
        outputs = self._outputs(playing, noise, episodes)
        return Batch(
            episodes,
            noise,
            jax.vmap(playing.latents.at)(noise),
            playing.actors.log_probability(outputs, episodes.action),
            standardized(returns - usual[None], episodes.mask),
            standardized(returns[:, 0], episodes.mask[:, 0]),
        )

    def adapted(
        self, playing: Adaptable, steps: StepSizes, batch: Batch, share: Float[Array, ""] | float = 1.0
    ) -> Adaptable:
        """One step on what was played; `share` of its learned length."""
        actors, latents = playing.actors, playing.latents
        if self.adapts == "weights":
            slope = jax.grad(lambda actors: -self._score(Adaptable(actors, latents), batch))(actors)
            length = share * jnp.exp(steps.weights)
            return Adaptable(jax.tree.map(lambda leaf, d: leaf - length * d, actors, slope), latents)

        def loss(latents: Latents) -> Float[Array, ""]:
            return -jnp.mean(jnp.sum(jax.vmap(latents.log_likelihood)(batch.latent), axis=-1) * batch.whole)

        slope = jax.grad(loss)(latents)
        mean = latents.mean - share * jnp.exp(steps.mean) * slope.mean
        return Adaptable(actors, Latents(mean, latents.log_std - share * jnp.exp(steps.log_std) * slope.log_std))

    def _score(self, playing: Adaptable, batch: Batch) -> Float[Array, ""]:
        """What REINFORCE climbs: likely actions that paid."""
        outputs = self._outputs(playing, batch.noise, batch.episodes)
        log = playing.actors.log_probability(outputs, batch.episodes.action)
        return masked_mean(jnp.sum(log, axis=-1) * batch.advantages, batch.episodes.mask)

    def objective(self, playing: Adaptable, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
        """To be lowered: clipped policy gradient of every agent, its latents moving with their Gaussians."""
        outputs = self._outputs(playing, batch.noise, batch.episodes)
        change = playing.actors.log_probability(outputs, batch.episodes.action) - batch.old_log
        mask = batch.episodes.mask
        gains, clipped = clipped_gain(jnp.where(mask[..., None], change, 0.0), batch.advantages[..., None], self.clip)
        gain = masked_mean(jnp.sum(gains, axis=-1), mask)
        spread = masked_mean(jnp.sum(playing.actors.entropy(outputs), axis=-1), mask)
        outside = masked_mean(clipped.astype(gain.dtype), mask)
        entropy = spread / outputs.shape[-2]
        return -gain - self.entropy_bonus * spread, {"entropy": entropy, "clipped": outside}

    def _outputs(
        self, playing: Adaptable, noise: Float[Array, "envs agents size"], episodes: Episode
    ) -> Float[Array, "envs time agents features"]:
        obs, latent = episodes.obs[:, :-1], jax.vmap(playing.latents.at)(noise)
        told = jnp.broadcast_to(latent[:, None], (*obs.shape[:3], self.latent_size))
        return unroll_batch(playing.actors.team, jnp.concatenate([obs, told], axis=-1))

    def update(
        self, spec: EnvSpec, state: LatentState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[LatentState, Metrics]:
        """Adapt in the first rounds, learn the actors' weights in all others."""
        del spec, elapsed, key
        playing = Adaptable(state.actors.net, state.latents)
        seen = self.batch(playing, batch)
        adapting = state.rounds < self.adapt_rounds
        quick = self.adapted(playing, state.steps, seen, 0.5**state.rounds)
        quickly = LatentState(
            within_range(Trainable(quick.actors, state.actors.optimizer_state)),
            quick.latents,
            state.steps,
            state.rounds,
        )

        def step(actors: Trainable[Actors], _: None) -> tuple[Trainable[Actors], Metrics]:
            def loss_of(net: Actors) -> tuple[Float[Array, ""], Metrics]:
                return self.objective(Adaptable(net, state.latents), seen)

            (loss, metrics), gradients = jax.value_and_grad(loss_of, has_aux=True)(actors.net)
            return within_range(actors.descend(gradients, self.optimizer)), metrics | {"actor_loss": loss}

        actors, metrics = jax.lax.scan(step, state.actors, None, self.epochs)
        slowly = LatentState(actors, state.latents, state.steps, state.rounds)
        after: LatentState = tree_where(adapting, quickly, slowly)
        after = eqx.tree_at(lambda s: s.rounds, after, state.rounds + 1)
        return after, jax.tree.map(jnp.mean, metrics) | {
            "adapting": adapting.astype(jnp.float32),
            **self._about(after.latents),
        }

    def meta_loss(self, parameters: MetaParameters, before: Batch, after: Batch) -> tuple[Float[Array, ""], Metrics]:
        """What the episodes `[tasks, envs, ...]` after adaptation say of all that adaptation began with."""

        def of_task(latents: Latents, before: Batch, after: Batch) -> tuple[Float[Array, ""], Metrics]:
            adapted = self.adapted(parameters.of_task(latents), parameters.steps, before)
            loss, metrics = self.objective(adapted, after)
            divergence = jnp.sum(latents.divergence())
            return loss + self.kl_weight * divergence, metrics | {"divergence": divergence}

        losses, metrics = jax.vmap(of_task)(parameters.latents, before, after)
        return jnp.mean(losses), jax.tree.map(jnp.mean, metrics)

    def meta_update(
        self, state: Trainable[MetaParameters], before: Batch, after: Batch
    ) -> tuple[Trainable[MetaParameters], Metrics]:
        """A few steps on the episodes before and after adaptation, of all training tasks."""

        def step(state: Trainable[MetaParameters], _: None) -> tuple[Trainable[MetaParameters], Metrics]:
            (loss, metrics), gradients = jax.value_and_grad(self.meta_loss, has_aux=True)(state.net, before, after)
            moved = state.descend(gradients, self.meta_optimizer)
            moved = eqx.tree_at(lambda state: state.net.actors, moved, moved.net.actors.within_range())
            return moved, metrics | {"meta_loss": loss}

        state, metrics = jax.lax.scan(step, state, None, self.epochs)
        steps = state.net.steps
        moved = steps.weights if self.adapts == "weights" else steps.mean
        return state, jax.tree.map(jnp.mean, metrics) | {
            "step_size": jnp.mean(jnp.exp(moved)),
            **self._about(state.net.latents),
        }

    def _about(self, latents: Latents) -> Metrics:
        if not self.latent_size:
            return {}
        return {
            "latent_mean": jnp.sqrt(jnp.mean(jnp.square(latents.mean))),
            "latent_std": jnp.mean(jnp.exp(latents.log_std)),
        }


def standardized(values: Float[Array, "*steps"], mask: Bool[Array, "*steps"]) -> Float[Array, "*steps"]:
    """Mean 0 and deviation 1 over what happened; 0 where all are alike."""
    mean = masked_mean(values, mask)
    deviation = jnp.sqrt(masked_mean(jnp.square(values - mean), mask))
    return jnp.where(mask, values - mean, 0.0) / (deviation + LEAST_DEVIATION)
