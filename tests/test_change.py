"""Nets that see changes: by hand, at once as step by step, in teams and critics, and what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.errors import UsageError
from mesax.nets import (
    CodedTeam,
    Ensemble,
    Entities,
    Mlp,
    Team,
    WithChange,
    step_at,
    unroll,
    unroll_batch,
    unroll_with_memories,
)
from mesax.types import tree_index
from probes import put

TIME, AGENTS, INPUTS, ACTIONS = 4, 2, 3, 2
RANDOM = np.random.default_rng(5)
OBS = RANDOM.normal(size=(5, TIME, AGENTS, INPUTS)).astype(np.float32)
JOINT = OBS.reshape(5, TIME, -1)
PLAYED = RANDOM.normal(size=(5, TIME, ACTIONS)).astype(np.float32)
TINY = WithChange(Mlp((4,)), factor=10.0)


def with_numbers(create):
    """A net with weights from NumPy, for which nothing is compiled."""
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(create, jax.random.key(0))
    return jax.tree.map(lambda leaf: put(random.normal(size=leaf.shape), np.float32), shapes)


def team(config, shared: bool = True):
    return lambda key: Team.create(config, AGENTS, (INPUTS, 2), key, shared=shared, head_gain=1.0)


def critics(config, additive: bool = False):
    return lambda key: Ensemble.create(config, 2, (AGENTS * INPUTS, ACTIONS), key, additive=additive)


def coded(key):
    return CodedTeam.create(TINY, AGENTS, (1, INPUTS - 1, 4, 2), key, shared=True, head_gain=1.0)


CASES = {
    "alone": (lambda key: TINY.build(INPUTS, 2, key), OBS[:, :, 0]),
    "shared team": (team(TINY), OBS),
    "team that sees waves": (team(WithChange(Mlp((4,), octaves=2)), shared=False), OBS),
    "coded team": (coded, np.concatenate([np.repeat(OBS[:, :1, :, :1], TIME, axis=1), OBS[..., 1:]], axis=-1)),
    "entities": (team(WithChange(Entities(1, 0, own=1, hidden=4)), shared=False), OBS),
    "critics": (critics(TINY), (JOINT, PLAYED)),
    "additive critics": (critics(TINY, additive=True), (JOINT, PLAYED)),
}


def at(xs, index):
    """Some steps of all episodes."""
    return jax.tree.map(lambda part: part[:, index], xs)


def by_steps(net, xs):
    memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * 5), net.start())
    memories, outputs = [memory], []
    for time in range(TIME):
        memory, output = jax.vmap(net.step)(memory, at(xs, time))
        memories.append(memory)
        outputs.append(output)
    return jax.tree.map(lambda *parts: jnp.stack(parts, axis=1), *memories), jnp.stack(outputs, axis=1)


def one_by_one(net, xs):
    return None, jax.vmap(lambda xs: unroll(net, xs))(xs)


def in_two(net, xs):
    memories, first = unroll_with_memories(net, at(xs, slice(2)))
    rest = unroll_batch(net, at(xs, slice(2, None)), tree_index(memories, (slice(None), 2)))
    return None, jnp.concatenate([first, rest], axis=1)


def with_gradient(run):
    def loss(net, xs):
        memories, outputs = run(net, xs)
        return jnp.sum(jnp.sin(outputs)), (memories, outputs)

    return jax.grad(loss, has_aux=True)


@pytest.mark.parametrize("case", CASES)
def test_all_at_once_as_step_by_step(case: str):
    """Outputs, memories and gradients of many episodes, of one, and from the middle of one; all gradients finite."""
    create, xs = CASES[case]
    runs = [with_gradient(run) for run in (by_steps, unroll_with_memories, one_by_one, in_two)]
    results = jax.jit(lambda net, xs: [run(net, xs) for run in runs])(with_numbers(create), xs)
    (gradient, (memories, outputs)), *others = jax.device_get(results)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    for other_gradient, (other_memories, other_outputs) in others:
        np.testing.assert_allclose(other_outputs, outputs, rtol=1e-4, atol=1e-4)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), other_gradient, gradient)
        if other_memories is not None:
            jax.tree.map(np.testing.assert_array_equal, other_memories, memories)


def test_changes_and_other_actions_by_hand():
    """Ten times the change goes in, none at first; other actions are rated at what was seen at the step before."""
    critic = with_numbers(lambda key: TINY.build_critic(INPUTS, ACTIONS, key))
    obs, other = OBS[0, :, 0], PLAYED[1]

    @jax.jit
    def rate(critic, obs, played, other):
        memories = tree_index(unroll_with_memories(critic, (obs[None], played[None]))[0], 0)
        return memories, step_at(critic, tree_index(memories, slice(-1)), (obs, other))

    memories, rated = rate(critic, obs, PLAYED[0], other)
    inputs = np.concatenate([10.0 * np.diff(obs, axis=0, prepend=obs[:1]), obs, other], axis=1)
    (first,), head = critic.net.layers, critic.net.head
    hidden = np.maximum(inputs @ np.asarray(first.weight) + np.asarray(first.bias), 0.0)
    np.testing.assert_allclose(rated, hidden @ np.asarray(head.weight) + np.asarray(head.bias), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(memories[0], np.concatenate([np.zeros((1, INPUTS)), obs]))
    np.testing.assert_array_equal(memories[1], [False] + [True] * TIME)


def test_own_velocity_of_a_net_over_entities():
    """What it would be told in a world that shows velocities, the other way around, comes before all offsets."""
    net = with_numbers(lambda key: WithChange(Entities(1, 1, own=2, hidden=4)).build(4, 2, key))
    seen = RANDOM.normal(size=(2, 4)).astype(np.float32)
    step = jax.jit(lambda net, told: net.step((told[0, :2], jnp.ones((), bool)), told[1])[1])
    plain = jax.jit(lambda net, x: net.step((), x)[1])
    told = np.concatenate([10.0 * (seen[1, :2] - seen[0, :2]), seen[1]])
    np.testing.assert_allclose(step(net, seen), plain(net.net, told), rtol=1e-4, atol=1e-4)


def test_changes_that_are_not_seen_or_drown_all_others_are_refused():
    with pytest.raises(UsageError, match="factor must be above 0"):
        WithChange(factor=0.0)
    with pytest.raises(UsageError, match="set last-action to false"):
        ValueDecomposition(agent_net=TINY)
