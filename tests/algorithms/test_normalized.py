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
from mesax.nets import Adam, Mlp, Trainable, for_another_task
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
    return Episode(*map(put, parts), label=Label(put(np.zeros(envs, np.int32)), put(np.zeros((envs, 0), np.float32))))


fresh = jax.jit(lambda: Moments.create((SPEC.num_agents, SPEC.obs_size)))


@jax.jit
def observed(moments: Moments, batch: Episode) -> Moments:
    return moments.observe(batch.obs[:, :-1], batch.mask)


def test_moments_are_those_of_all_steps_that_happened():
    moments = fresh()
    batches = [batch_of(seed) for seed in range(3)]
    for batch in batches:
        moments = observed(moments, batch)
    steps = np.concatenate([np.asarray(b.obs)[:, :-1][np.asarray(b.mask)] for b in batches])
    np.testing.assert_allclose(moments.mean, steps.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, steps.var(axis=0), rtol=1e-3, atol=1e-6)
    assert float(moments.batches) == 3.0


def test_standardized_by_hand():
    """(5 - 1) / 2 = 2; an entry that does not vary is only shifted; far outliers are clipped."""
    mean = put([[1.0, 7.0, 0.0]])
    moments = Moments(mean, put([[4.0, 0.0, 1.0]]), put(1.0))
    seen = jax.jit(lambda obs: moments.standardize(obs, 1e-3, 10.0))(put([[5.0, 9.0, 400.0]]))
    np.testing.assert_allclose(seen, [[2.0, 2.0, 10.0]])


def test_held_moments_do_not_move():
    moments = observed(fresh(), batch_of(1))
    after = observed(jax.jit(Moments.held)(moments), batch_of(2))
    np.testing.assert_array_equal(after.mean, moments.mean)
    np.testing.assert_array_equal(after.variance, moments.variance)
    assert np.any(np.asarray(observed(moments, batch_of(2)).mean) != np.asarray(moments.mean))


def test_before_anything_is_seen_observations_pass():
    obs = np.arange(6.0).reshape(2, 3) / 2.0
    np.testing.assert_array_equal(jax.jit(lambda obs: fresh().standardize(obs, 1e-3, 10.0))(obs), obs)


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
    before = observed(fresh(), batch_of(7))

    @jax.jit
    def compute(before, batch, key):
        start = NormalizedState(learner.init(SPEC, key).learner, before)
        state, metrics = learner.update(SPEC, start, batch, Elapsed.at(0.5), key)
        used = before if which == "before" else observed(before, batch)
        return state, metrics, used.standardize(batch.obs, learner.least, learner.limit), jax.random.uniform(key)

    state, metrics, seen, draw = jax.device_get(compute(before, batch_of(8), jax.random.key(7)))
    np.testing.assert_array_equal(state.learner, seen)
    assert metrics == {"elapsed": 0.5, "draw": draw}
    jax.tree.map(np.testing.assert_array_equal, state.moments, observed(before, batch_of(8)))
    assert np.abs(np.asarray(state.learner)).max() <= learner.limit


def test_fixed_scales_are_those_of_the_first_round():
    """Whoever remembers what was seen finds it again: playing and learning change no scale."""
    learner = Normalized(Recorder(), fixed=True)

    @jax.jit
    def compute(first, second, key):
        state = learner.observe(SPEC, learner.init(SPEC, key), first)
        learned, _ = learner.update(SPEC, state, second, Elapsed.at(0.5), key)
        again = learner.observe(SPEC, learned, first)
        scales = Moments.create((SPEC.num_agents, SPEC.obs_size)).observe(first.obs[:, :-1], first.mask)
        return state, learned, again, [scales.standardize(one.obs, 1e-3, 10.0) for one in (first, second)]

    state, learned, again, seen = jax.device_get(compute(batch_of(1), batch_of(2), jax.random.key(0)))
    np.testing.assert_array_equal(state.learner, seen[0])
    np.testing.assert_array_equal(learned.learner, seen[1])
    np.testing.assert_array_equal(again.learner, seen[0])


def test_learners_that_go_on_elsewhere_keep_their_scales():
    state = NormalizedState(Trainable.create(put(np.ones(2)), Adam()), observed(fresh(), batch_of(1)))
    moved = for_another_task(state)
    np.testing.assert_array_equal(moved.learner.net, state.learner.net)
    np.testing.assert_array_equal(observed(moved.moments, batch_of(2)).mean, state.moments.mean)


def test_fixed_scales_are_refused_for_learners_from_their_own_rounds():
    with pytest.raises(UsageError, match="fixed goes with learners from replay"):
        Normalized(Mappo(Mlp((4,)), Mlp((4,))), fixed=True).check(SPEC, 4)


@pytest.mark.parametrize("algorithm", [Maddpg(Mlp((4,)), Mlp((4,))), Mappo(Mlp((4,)), Mlp((4,)))])
def test_policies_act_on_standardized_observations(algorithm):
    learner = Normalized(algorithm)

    @jax.jit
    def compute(key, moments, obs):
        state = eqx.tree_at(lambda s: s.moments, learner.init(SPEC, key), moments)
        seen = moments.standardize(obs, learner.least, learner.limit)
        results = []
        for policy, inner in (
            (learner.greedy(SPEC, state), algorithm.greedy(SPEC, state.learner)),
            (learner.behavior(SPEC, state, Elapsed.end()), algorithm.behavior(SPEC, state.learner, Elapsed.end())),
        ):
            assert isinstance(policy, StandardizedPolicy)
            memory = policy.start(key)
            actions = policy.act(memory, obs, key)[0], inner.act(inner.start(key), seen, key)[0]
            results.append((*actions, policy.label(memory).actor))
        return results

    obs = np.asarray(batch_of(2).obs)[0, 0]
    for action, expected, actor in compute(jax.random.key(3), observed(fresh(), batch_of(1)), obs):
        np.testing.assert_array_equal(action, expected)
        assert int(actor) == 0


def test_a_learner_solves_what_its_units_hid():
    """One agent, one step: play the sign of an observation that is 1000 +- 1; raw, the sign cannot be seen."""
    spec = EnvSpec(1, 1, Box(1), 1)
    inner = Maddpg(Mlp((8,)), Mlp((16,)), actor_optimizer=Adam(1e-2), critic_optimizer=Adam(1e-2))
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
    def trained(key, obs):
        def step(state, key):
            return learner.update(spec, state, batch(key), Elapsed.end(), key)

        state = jax.lax.scan(step, learner.init(spec, key), jax.random.split(jax.random.key(1), 300))[0]
        policy = learner.greedy(spec, state)
        return jax.vmap(lambda seen: policy.act(policy.start(key), seen, key)[0])(obs)

    signs = np.array([1.0, -1.0])
    actions = np.asarray(trained(jax.random.key(0), 1000.0 + signs[:, None, None]))
    assert np.all(signs * actions[:, 0, 0] > 0.5)


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(UsageError, match="limit must be above 0"):
        Normalized(Recorder(), limit=0.0)
