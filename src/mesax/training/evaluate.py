"""Greedy evaluation: the same code for every method."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from mesax.envs.base import Environment
from mesax.policy import Policy
from mesax.training.rollout import play
from mesax.training.schedule import EVALUATION_STREAM
from mesax.types import Key


def mean_rewards(env: Environment, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Float[Array, " time"]:
    """Reward at each step of an episode, averaged over episodes: returns and breakdowns follow from it."""
    return jnp.mean(play(env, tasks, policy, key, num_episodes).reward, axis=0)


def evaluation_key(key: Key, step: Int[Array, ""] | int) -> Key:
    """Evaluations draw from their own stream, so that evaluating more often changes nothing else."""
    return jax.random.fold_in(jax.random.fold_in(key, EVALUATION_STREAM), step)
