"""A learner on top of a frozen guide: outputs add up, and the guide stays as it is."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized
from mesax.baselines.guided import Guided, guided, guided_by, unguided
from mesax.errors import UsageError
from mesax.nets import Adam, Mlp
from mesax.types import Discrete, Elapsed, EnvSpec, blank_episode

SPEC = EnvSpec(num_agents=2, obs_size=3, action_space=Discrete(4), horizon=3)
MAPPO = Mappo(Mlp((8,)), Mlp((8,)), optimizer=Adam(1e-2), epochs=2)
KEY = jax.random.key(0)


def rewarded(key: jax.Array, number: int = 6):
    """Random episodes that pay for action 1."""
    shape = (number, SPEC.horizon)
    blank = jax.tree.map(lambda leaf: jnp.stack([leaf] * number), blank_episode(SPEC))
    action = Discrete(4).sample(key, (*shape, 2))
    return replace(
        blank,
        obs=jax.random.normal(key, blank.obs.shape),
        action=action,
        reward=jnp.sum(action == 1, axis=-1).astype(jnp.float32),
        mask=jnp.ones(shape, bool),
    )


def test_logits_add_up_and_only_the_task_s_own_are_learned():
    learner = guided(MAPPO)
    assert isinstance(learner, Guided) and unguided(learner) == MAPPO

    @jax.jit
    def compute(key):
        explored = MAPPO.init(SPEC, jax.random.fold_in(key, 1))
        strong = jax.tree.map(lambda leaf: 30.0 * leaf, explored.actors.net.team)
        explored = replace(explored, actors=replace(explored.actors, net=replace(explored.actors.net, team=strong)))
        before = guided_by(learner, SPEC, explored, key)
        obs = jax.random.normal(key, (2, 3))
        team = before.actors.net.team
        outputs = [part.step(part.start(), obs)[1] for part in (team, team.guide, team.task, strong)]
        after, _ = learner.update(SPEC, before, rewarded(key), Elapsed.at(0.5), key)
        return outputs, team, after.actors.net.team

    (whole, guide, task, strong), before, after = jax.device_get(compute(KEY))
    np.testing.assert_allclose(whole, guide + task, rtol=1e-6)
    np.testing.assert_allclose(guide, strong, rtol=1e-6)
    assert np.abs(task).max() < 0.1 * np.abs(guide).max(), "at first it acts as its guide"
    for old, new in zip(jax.tree.leaves(before.guide), jax.tree.leaves(after.guide), strict=True):
        np.testing.assert_array_equal(old, new)
    moved = [
        np.abs(old - new).max()
        for old, new in zip(jax.tree.leaves(before.task), jax.tree.leaves(after.task), strict=True)
    ]
    assert min(moved) > 0.0


def test_what_was_seen_keeps_its_scales():
    learner = guided(Normalized(MAPPO))
    assert learner == Normalized(Guided(MAPPO)) and unguided(learner) == Normalized(MAPPO)

    @jax.jit
    def compute(key):
        explored, seen = Normalized(MAPPO).init(SPEC, key), rewarded(key)
        explored = replace(explored, moments=explored.moments.observe(seen.obs[:, :-1], seen.mask))
        state = guided_by(learner, SPEC, explored, key)
        return explored, state, state.moments.observe(2.0 * seen.obs[:, :-1], seen.mask)

    explored, state, later = compute(KEY)
    assert np.any(np.asarray(explored.moments.mean))
    np.testing.assert_array_equal(state.moments.mean, explored.moments.mean)
    np.testing.assert_array_equal(later.mean, explored.moments.mean)
    assert jax.tree.structure(state) == jax.tree.structure(jax.eval_shape(lambda key: learner.init(SPEC, key), KEY))


def test_only_mappo_takes_a_guide():
    with pytest.raises(UsageError, match="not to those of Maddpg: its learner is mappo or mappo-rnd"):
        guided(Normalized(Maddpg())).check(SPEC, 4)
    with pytest.raises(UsageError, match="for a guided learner only, not for Mappo"):
        unguided(MAPPO)
