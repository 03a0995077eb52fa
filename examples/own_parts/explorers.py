"""A reward of explorers, with a state of its own: it pays for joint actions that paid in training tasks."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mesax
from mesax.rewards.base import Visits


class Wanted(eqx.Module):
    """Joint actions of two agents, each a cluster."""

    paid: jax.Array
    """Which of them paid."""
    visits: jax.Array


class Told(eqx.Module):
    """A policy that is told, next to what it observes, how many of them there are."""

    policy: mesax.Policy
    number: jax.Array

    def start(self, key):
        return self.policy.start(key)

    def act(self, memory, obs, key):
        return self.policy.act(memory, with_number(obs, self.number), key)

    def label(self, memory):
        return self.policy.label(memory)


@dataclass(frozen=True)
class PaidActions:
    """Pay for each visit to a joint action that paid, the less the more often earlier policies visit it."""

    patience: float = 1.0
    distance_threshold: float = 0.5

    def learner_spec(self, spec):
        return replace(spec, obs_size=spec.obs_size + 1)

    def begin(self, spec, given, key):
        return given

    def equip(self, spec, state, policy):
        return Told(policy, jnp.sum(state.paid))

    def observe(self, spec, state, episodes, key):
        worth = state.paid / (1.0 + state.visits / self.patience)
        obs = with_number(episodes.obs, jnp.sum(state.paid))
        return state, replace(episodes, reward=worth[code(spec, episodes)] * episodes.mask, obs=obs)

    def features_of(self, spec, episodes):
        return code(spec, episodes)[..., None].astype(jnp.float32)

    def subspace(self, spec, features, values, seed):
        paid = np.zeros(spec.action_space.num_actions**2, np.float32)
        paid[features[:, 0].astype(int)] = values > 0
        return Wanted(*jax.device_put((paid, np.zeros_like(paid))))

    def empty_state(self, spec):
        nothing = jnp.zeros(spec.action_space.num_actions**2)
        return Wanted(nothing, nothing)

    def clusters(self, state):
        return state.paid > 0

    def counted(self, state, visits):
        return replace(state, visits=state.visits + jnp.asarray(visits, jnp.float32))

    def visits(self, spec, state, episodes):
        played = code(spec, episodes)
        near = (jax.nn.one_hot(played, state.paid.size) * state.paid > 0) & episodes.mask[..., None]
        return Visits(near, 1.0 - state.paid[played])


def code(spec, episodes):
    return episodes.action[..., 0] * spec.action_space.num_actions + episodes.action[..., 1]


def with_number(obs, number):
    return jnp.concatenate([obs, jnp.broadcast_to(number, (*obs.shape[:-1], 1))], axis=-1)
