"""What every environment owes its callers: shapes and types of its spec, purity, batching over tasks, masks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.policy import UniformPolicy
from mesax.training.driver import play_episodes
from mesax.types import Box, Discrete, leading_size, tree_index, tree_stack
from probes import PROBES, ContinuousGame, ContinuousTask, TabularGame

FAMILIES = {
    "climb-one": ClimbFamily(),
    "climb-multi": ClimbFamily(num_stages=3, num_actions=4, counts=(2,), see_history=False, published=True),
    "climb-multi-mixed": ClimbFamily(num_stages=3, num_actions=4),
    "three agents": ClimbFamily(num_agents=3, num_actions=3, num_stages=2),
    "particles": ParticleClimbFamily(ParticleClimb(horizon=6)),
    "three particles that collide": ParticleClimbFamily(
        ParticleClimb(3, 4, horizon=5, agents_collide=True, wall=None, observe_position=True)
    ),
}
ENVS = {name: (family.env, jax.device_get(family.split(0, 4, 1).train)) for name, family in FAMILIES.items()} | {
    "discrete probes": (TabularGame(), tree_stack(jax.device_get([probe.task for probe in PROBES.values()]))),
    "continuous probe": (
        ContinuousGame(),
        ContinuousTask(np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 2, 2, 1)),
    ),
}


@pytest.fixture(params=ENVS, scope="module")
def world(request: pytest.FixtureRequest):
    """An environment, its stacked tasks, and one compiled step from every task's start, batched over tasks."""
    env, tasks = ENVS[request.param]

    def first_step(task, key):
        key_reset, key_action, key_step = jax.random.split(key, 3)
        state, obs = env.reset(task, key_reset)
        action = env.spec.action_space.sample(key_action, (env.spec.num_agents,))
        return (state, obs), action, env.step(task, state, action, key_step)

    return env, tasks, jax.jit(first_step), jax.jit(jax.vmap(first_step))


def keys_for(tasks, seed: int = 0):
    return jax.random.split(jax.random.key(seed), leading_size(tasks))


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_spec(world):
    env, tasks, first_step, _ = world
    spec = env.spec
    (state, obs), action, (after, outcome) = first_step(tree_index(tasks, 0), jax.random.key(0))
    for seen in (obs, outcome.obs):
        assert (seen.shape, seen.dtype) == ((spec.num_agents, spec.obs_size), jnp.float32)
    assert (outcome.reward.shape, outcome.reward.dtype) == ((), jnp.float32)
    assert (outcome.terminated.shape, outcome.terminated.dtype) == ((), bool)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)]
    assert shapes == [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(after)]
    if isinstance(spec.action_space, Discrete):
        assert (action.shape, action.dtype) == ((spec.num_agents,), jnp.int32)
    else:
        assert isinstance(spec.action_space, Box)
        assert action.shape == (spec.num_agents, spec.action_space.size)
    assert hash(env) == hash(dataclasses.replace(env))  # programs are cached by the environment's value


def test_same_key_same_step_and_batch_equals_loop(world):
    _, tasks, first_step, first_steps = world
    keys = keys_for(tasks)
    batch = first_steps(tasks, keys)
    assert_same(batch, first_steps(tasks, keys))
    loop = [first_step(tree_index(tasks, index), key) for index, key in enumerate(keys)]
    assert_same(batch, tree_stack(jax.device_get(loop)))


def test_compiled_equals_plain(world):
    env, tasks, first_step, _ = world
    task, key = jax.device_put(tree_index(tasks, 0)), jax.random.key(7)
    (state, obs), action, (_, outcome) = first_step(task, key)
    key_reset, _, key_step = jax.random.split(key, 3)
    plain_state, plain_obs = env.reset(task, key_reset)
    assert_same((plain_state, plain_obs), (state, obs))
    _, plain = env.step(task, plain_state, action, key_step)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, outcome)


def test_played_episodes_are_masked_after_their_end(world):
    env, tasks, _, _ = world
    episodes = play_episodes(env, tasks, UniformPolicy(env.spec.action_space), jax.random.key(3), 64)
    assert episodes.obs.shape == (64, env.spec.horizon + 1, env.spec.num_agents, env.spec.obs_size)
    alive = np.ones(64, bool)
    for time in range(env.spec.horizon):
        np.testing.assert_array_equal(episodes.mask[:, time], alive)
        assert not np.any(episodes.reward[:, time][~alive])
        alive &= ~episodes.terminated[:, time]
    assert np.all(np.isfinite(episodes.obs))


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str):
    family = FAMILIES[name]
    assert family.num_tasks is None or family.num_tasks > 1
    assert family.suboptimal_return < family.optimal_threshold <= family.optimal_return
    assert family.groups
    split = jax.device_get(family.split(0, 2, 2))
    info = family.describe(tree_index(split.train, 0))
    assert info.label and (info.group is None or info.group in family.groups)
    rewards = np.ones(family.env.spec.horizon, np.float32)
    assert set(family.breakdown(tree_index(split.test, 0), rewards)) <= set(family.groups)
    assert float(family.score(jax.device_put(rewards))) == family.optimal_return
    numbers = family.rewarding_configurations(split.train)
    assert len(numbers) == len(set(numbers.tolist())) > 0
