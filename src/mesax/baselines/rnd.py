"""Random network distillation (Burda et al. 2019): what a trained net cannot predict yet is new, and new is paid.

    x_t      = clip((features_t - mean) / std, -limit, limit)      features of the joint step; running moments
    i_t      = mean_k (target_k(x_t) - predictor_k(x_t))^2         the target net is random and stays so
    reward_t = task_weight r_t + weight i_t / std of the discounted sums of i      one sum, or two parts kept apart
    predictor: lower i on the episodes just played, one pass in minibatches

A reward model, so any learner can be paid so. A learner with replay keeps the bonus that a step had when it was played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from mesax.moments import Moments
from mesax.nets import Adam, FeedForward, Mlp, Trainable
from mesax.policy import Policy
from mesax.ranges import above, at_least, between
from mesax.rewards.features import ObsActionFeatures
from mesax.types import EnvSpec, Episode, FeatureMap, Key, as_one, blank_episode, masked_mean, tree_index

NAMES: dict[str, str] = {"mappo-rnd": "MAPPO with random network distillation: a bonus for what is new"}


class RndState(eqx.Module):
    """Both nets, and the scales of their inputs and of the bonus."""

    target: FeedForward
    predictor: Trainable[FeedForward]
    inputs: Moments
    returns: Moments


@dataclass(frozen=True)
class Rnd:
    """The task's reward with a bonus for joint steps that are new."""

    features: FeatureMap = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
    """What can be new: by default the joint observation reached. Where steps lead nowhere, take the actions too."""
    weight: float = 0.5
    """Weight of the bonus."""
    task_weight: float = 1.0
    """Weight of the task's own reward."""
    discount: float = 0.99
    """Discount of the sums whose deviation scales the bonus."""
    size: int = 32
    """Numbers to be predicted."""
    target_net: Mlp = Mlp((64,))
    """Net that is random and stays so."""
    predictor_net: Mlp = Mlp((64, 64, 64))
    """Two layers more than the target's, as released."""
    optimizer: Adam = Adam(7e-4)
    """Optimizer of the predictor."""
    minibatches: int = 4
    """Steps of the predictor per round, over all that was played."""
    least: float = 1e-2
    """Features that deviate less are not blown up."""
    limit: float = 5.0
    """Standardized features stay within +- this."""
    apart: bool = False
    """Whether the bonus is valued by itself, with `discount` and beyond the end of an episode, as released; only for
    learners that can (MAPPO)."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot pay."""
        at_least(self, 1, "size", "minibatches")
        between(self, 0, 1, "discount")
        at_least(self, 0, "least")
        above(self, 0, "limit")

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """The learner sees what there is; it may have to value the bonus apart."""
        return replace(spec, bonus_discount=self.discount) if self.apart else spec

    def begin(self, spec: EnvSpec, given: PyTree, key: Key) -> RndState:
        """Fresh nets; nothing seen."""
        del given
        example = as_one(blank_episode(spec))
        number = jax.eval_shape(lambda e: self._features(spec, e), example).shape[-1]
        key_target, key_predictor = jax.random.split(key)
        predictor = self.predictor_net.build(number, self.size, key_predictor)
        return RndState(
            self.target_net.build(number, self.size, key_target),
            Trainable.create(predictor, self.optimizer),
            Moments.create((number,)),
            Moments.create(()),
        )

    def equip(self, spec: EnvSpec, state: RndState, policy: Policy) -> Policy:
        """Nothing to add."""
        del spec, state
        return policy

    def observe(self, spec: EnvSpec, state: RndState, episodes: Episode, key: Key) -> tuple[RndState, Episode]:
        """Pay for what was new when it was played, then learn to predict it."""
        features = self._features(spec, episodes)
        inputs = state.inputs.observe(features, episodes.mask)
        x = inputs.standardize(features, self.least, self.limit)
        bonus = jnp.where(episodes.mask, novelty(state.target, state.predictor.net, x), 0.0)
        returns = state.returns.observe(jax.vmap(self._sums)(bonus), episodes.mask)
        std = jnp.sqrt(returns.variance)
        scaled = bonus / jnp.where(std > 1e-6, std, 1.0)  # not centered: a bonus must stay positive
        seen = self._paid(episodes, self.weight * scaled)
        predictor = self._learn(state, x, episodes.mask, key)
        return RndState(state.target, predictor, inputs, returns), seen

    def _paid(self, episodes: Episode, bonus: Float[Array, "envs time"]) -> Episode:
        """Episodes with the bonus, in their reward or apart from it."""
        reward = self.task_weight * episodes.reward
        if self.apart:
            return replace(episodes, reward=reward, bonus=bonus)
        return replace(episodes, reward=reward + bonus)

    def _features(self, spec: EnvSpec, episodes: Episode) -> Float[Array, "envs time features"]:
        of_step = jax.vmap(lambda step: self.features(spec, step))
        return jax.vmap(lambda episode: of_step(episode.transitions))(episodes)

    def _sums(self, bonus: Float[Array, " time"]) -> Float[Array, " time"]:
        """Discounted sums of what came before: the scale on which a value of bonuses moves."""

        def step(total: Float[Array, ""], now: Float[Array, ""]) -> tuple[Array, Array]:
            return (self.discount * total + now,) * 2

        return jax.lax.scan(step, jnp.zeros(()), bonus)[1]

    def _learn(
        self, state: RndState, x: Float[Array, "envs time features"], mask: Bool[Array, "envs time"], key: Key
    ) -> Trainable[FeedForward]:
        steps, happened = x.reshape(-1, x.shape[-1]), mask.reshape(-1)
        parts = min(self.minibatches, len(steps))
        size = len(steps) // parts
        order = jax.random.permutation(key, len(steps))[: parts * size].reshape(parts, size)

        def descend(
            predictor: Trainable[FeedForward], which: Int[Array, " steps"]
        ) -> tuple[Trainable[FeedForward], None]:
            some, real = tree_index((steps, happened), which)
            gradients = jax.grad(lambda net: masked_mean(novelty(state.target, net, some), real))(predictor.net)
            return predictor.descend(gradients, self.optimizer), None

        return jax.lax.scan(descend, state.predictor, order)[0]


def novelty(target: FeedForward, predictor: FeedForward, x: Float[Array, "*steps features"]) -> Float[Array, "*steps"]:
    """Mean squared error of the prediction at every entry of `x`."""
    flat = x.reshape(-1, x.shape[-1])
    known, guess = (jax.vmap(lambda row, net=net: net.step((), row)[1])(flat) for net in (target, predictor))
    return jnp.mean(jnp.square(known - guess), axis=-1).reshape(x.shape[:-1])


PAID: Mapping[str, tuple[str, Rnd]] = {"mappo-rnd": ("mappo", Rnd())}
"""Learners with a reward model that go by one name, and which these are."""
