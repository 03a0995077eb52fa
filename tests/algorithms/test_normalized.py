"""Standardized observations: moments by hand, policies that carry them, and learners that see nothing else."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.base import OffPolicy
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized, NormalizedState, StandardizedPolicy
from mesax.errors import UsageError
from mesax.moments import Moments
from mesax.nets import Adam, Mlp
from mesax.policy import UniformPolicy
from mesax.types import Box, Elapsed, EnvSpec, Episode, Label
from probes import put

SPEC = EnvSpec(2, 3, Box(1), 4)


def batch_of(seed: int, envs: int = 5) -> Episode:
    """Episodes with large, shifted observations; the second ends after two steps, and its padding is absurd."""
    random = np.random.default_rng(seed)
    obs = random.normal(100.0, [1.0, 50.0, 0.0], (envs, 5, 2, 3)).astype(np.float32)
    mask = np.ones((envs, 4), bool)
    mask[1, 2:] = False
    obs[1, 3:] = 1e6
    action = random.uniform(-1, 1, (envs, 4, 2, 1)).astype(np.float32)
    zeros = np.zeros((envs, 4), np.float32)
    parts = (obs, action, zeros + 1.0, zeros.astype(bool), mask)
    return Episode(*map(jnp.asarray, parts), label=Label.of(jnp.zeros(envs, jnp.int32)))


def test_moments_are_those_of_all_steps_that_happened():
    moments = Moments.create((SPEC.num_agents, SPEC.obs_size))
    batches = [batch_of(seed) for seed in range(3)]
    for batch in batches:
        moments = moments.observe(batch.obs[:, :-1], batch.mask)
    steps = np.concatenate([np.asarray(b.obs[:, :-1])[np.asarray(b.mask)] for b in batches])
    np.testing.assert_allclose(moments.mean, steps.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, steps.var(axis=0), rtol=1e-3, atol=1e-6)
    assert float(moments.batches) == 3.0


def test_standardized_by_hand():
    """(5 - 1) / 2 = 2; an entry that does not vary is only shifted; far outliers are clipped."""
    mean = put([[1.0, 7.0, 0.0]])
    moments = Moments(mean, put([[4.0, 0.0, 1.0]]), jnp.ones(()))
    seen = moments.standardize(put([[5.0, 9.0, 400.0]]), 1e-3, 10.0)
    np.testing.assert_allclose(seen, [[2.0, 2.0, 10.0]])


def test_before_anything_is_seen_observations_pass():
    obs = jnp.arange(6.0).reshape(2, 3) / 2.0
    np.testing.assert_array_equal(Moments.create((SPEC.num_agents, SPEC.obs_size)).standardize(obs, 1e-3, 10.0), obs)


@dataclass(frozen=True)
class Recorder(OffPolicy):
    """An algorithm that keeps what it was given."""

    needs_replay: bool = True

    def init(self, spec, key):
        return jnp.zeros((5, spec.horizon + 1, spec.num_agents, spec.obs_size))

    def observe(self, spec, state, fresh):
        return fresh.obs

    def update(self, spec, state, batch, elapsed, key):
        return batch.obs, {"elapsed": elapsed.fraction, "draw": jax.random.uniform(key)}

    def behavior(self, spec, state, elapsed):
        return UniformPolicy(spec.action_space)

    def greedy(self, spec, state):
        return UniformPolicy(spec.action_space)


@pytest.mark.parametrize("needs_replay, which", [(True, "after"), (False, "before")])
def test_learners_see_standardized_batches(needs_replay: bool, which: str):
    """Off-policy batches by moments that include them; on-policy ones as the policy saw them when it played."""
    learner = Normalized(Recorder(needs_replay))
    before = Moments.create((SPEC.num_agents, SPEC.obs_size)).observe(batch_of(7).obs[:, :-1], batch_of(7).mask)
    batch = batch_of(8)
    key = jax.random.key(7)
    start = NormalizedState(learner.init(SPEC, key).learner, before)
    state, metrics = learner.update(SPEC, start, batch, Elapsed.at(0.5), key)
    used = before if which == "before" else before.observe(batch.obs[:, :-1], batch.mask)
    np.testing.assert_array_equal(state.learner, used.standardize(batch.obs, learner.least, learner.limit))
    assert metrics == {"elapsed": 0.5, "draw": jax.random.uniform(key)}
    jax.tree.map(np.testing.assert_array_equal, state.moments, before.observe(batch.obs[:, :-1], batch.mask))
    assert np.abs(np.asarray(state.learner)).max() <= learner.limit


@pytest.mark.parametrize("algorithm", [Maddpg(Mlp((4,)), Mlp((4,))), Mappo(Mlp((4,)), Mlp((4,)))])
def test_policies_act_on_standardized_observations(algorithm):
    learner = Normalized(algorithm)
    state = learner.init(SPEC, jax.random.key(0))
    state = eqx.tree_at(lambda s: s.moments, state, state.moments.observe(batch_of(1).obs[:, :-1], batch_of(1).mask))
    obs, key = batch_of(2).obs[0, 0], jax.random.key(3)
    for policy, inner in (
        (learner.greedy(SPEC, state), algorithm.greedy(SPEC, state.learner)),
        (learner.behavior(SPEC, state, Elapsed.end()), algorithm.behavior(SPEC, state.learner, Elapsed.end())),
    ):
        assert isinstance(policy, StandardizedPolicy)
        memory = policy.start(key)
        seen = state.moments.standardize(obs, learner.least, learner.limit)
        np.testing.assert_array_equal(policy.act(memory, obs, key)[0], inner.act(inner.start(key), seen, key)[0])
        assert int(policy.label(memory).actor) == 0


def test_a_learner_solves_what_its_units_hid():
    """One agent, one step: play the sign of an observation that is 1000 +- 1; raw, the sign cannot be seen."""
    spec = EnvSpec(1, 1, Box(1), 1)
    inner = Maddpg(Mlp((16,)), Mlp((32,)), actor_optimizer=Adam(3e-3), critic_optimizer=Adam(3e-3))
    learner = Normalized(inner, least=1e-4)

    def batch(key):
        key_sign, key_action = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(key_sign, 0.5, (64,)), 1.0, -1.0)
        action = jax.random.uniform(key_action, (64, 1, 1, 1), minval=-1.0, maxval=1.0)
        obs = jnp.broadcast_to((1000.0 + 1.0 * sign)[:, None, None, None], (64, 2, 1, 1))
        over = jnp.ones((64, 1), bool)
        reward = sign[:, None] * action[:, :, 0, 0]
        return Episode(obs, action, reward, over, over, Label.of(jnp.zeros(64, jnp.int32)))

    @jax.jit
    def train(state):
        def step(state, key):
            return learner.update(spec, state, batch(key), Elapsed.end(), key)

        return jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 600))[0]

    policy = learner.greedy(spec, train(learner.init(spec, jax.random.key(0))))
    for sign in (1.0, -1.0):
        action = policy.act(policy.start(jax.random.key(0)), put([[1000.0 + sign]]), jax.random.key(0))[0]
        assert sign * float(action[0, 0]) > 0.5


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(UsageError, match="limit must be above 0"):
        Normalized(Recorder(), limit=0.0)
