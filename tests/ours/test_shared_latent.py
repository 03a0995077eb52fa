"""Explorers that share a latent: their exact density, how often the latent is drawn, and what a fit comes to."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.ours.relations import Equality, Members, relation_density
from mesax.ours.shared_latent import SharedLatent, SharedLatentPolicy
from mesax.policy import EXPLORER
from mesax.types import Discrete, EnvSpec

SPEC = EnvSpec(2, 1, Discrete(5), 2)
FIT = SharedLatent(num_updates=120, batch_size=128)
OBS = jax.device_put(np.zeros((2, 1), np.float32))


def test_the_visit_density_by_hand():
    """A latent of 3/4 plays (0, 0) or (0, 1) evenly, one of 1/4 plays (1, 1)."""
    table = np.log(np.array([[[[1.0, 1e-9], [0.5, 0.5]], [[1e-9, 1.0], [1e-9, 1.0]]]], np.float32))
    policy = SharedLatentPolicy(*jax.device_put((np.log(np.array([[3.0, 1.0]], np.float32)), table)))
    actions = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], np.int32)
    density = jax.jit(lambda policy, actions: jnp.exp(policy.log_ratio(jnp.asarray(0), actions)) / 4)(policy, actions)
    np.testing.assert_allclose(density, [0.375, 0.375, 0.25, 0.0], atol=1e-6)


@pytest.mark.parametrize("drawn", ["step", "episode"])
def test_how_often_the_latent_is_drawn(drawn, getkey):
    """Every latent stands for one action of both agents: within an episode it changes, or it does not."""
    latents = jax.jit(partial(SharedLatent(latents_per_action=1, drawn=drawn).init, SPEC))(getkey())
    certain = np.where(np.eye(5, dtype=bool)[None, :, None], 0.0, -np.inf)
    table = np.broadcast_to(certain, latents.logits.shape).astype(np.float32)
    policy = SharedLatentPolicy(latents.prior, jax.device_put(table))

    def episode(key):
        memory, actions = policy.start(key), []
        for key_step in jax.random.split(key, 3):  # one step more than there are tables
            action, memory = policy.act(memory, OBS, key_step)
            actions.append(action)
        return jnp.stack(actions), policy.label(memory)

    actions, label = jax.device_get(jax.jit(lambda key: jax.vmap(episode)(jax.random.split(key, 200)))(getkey()))
    assert np.array_equal(actions[..., 0], actions[..., 1])
    changed = np.mean(actions[:, 0, 0] != actions[:, 1, 0])
    assert changed == (pytest.approx(0.8, abs=0.1) if drawn == "step" else 0.0)
    assert label.latent.shape == (200, 2 if drawn == "step" else 1)
    assert np.array_equal(label.latent[:, 0], actions[:, 0, 0])
    assert set(np.asarray(label.actor).tolist()) == {EXPLORER}


def test_a_fit_comes_to_the_density(getkey):
    """Two tasks paid at (1, 1) and (3, 3): the explorer agrees on every action equally often, at both steps."""
    paid = Members(np.array([0, 1]), np.array([0, 1]), np.array([[1, 1], [3, 3]]))
    density = relation_density(Equality(), paid, SPEC, 0.01)

    @jax.jit
    def fit(density, key):
        def update(state, index):
            return FIT.update(state, density, jax.random.fold_in(key, index))

        state, metrics = jax.lax.scan(update, FIT.begin(SPEC, key), jnp.arange(FIT.num_updates))
        diagonal = jnp.stack([jnp.arange(5)] * 2, axis=1)
        return metrics, jnp.exp(jax.vmap(lambda step: state.net.log_ratio(step, diagonal))(jnp.arange(2))) / 25

    metrics, chance = jax.device_get(fit(density, getkey()))
    assert float(metrics["density_return"][0]) < -1.0 < -0.05 < float(metrics["density_return"][-1])
    np.testing.assert_allclose(chance, np.full((2, 5), 1 / 5), rtol=0.15)
    assert float(metrics["log_likelihood"][-1]) == pytest.approx(math.log(5), abs=0.3)


@pytest.mark.parametrize("name", ["latents_per_action", "num_updates", "learning_rate", "reward_limit"])
def test_impossible_settings_are_refused(name):
    with pytest.raises(UsageError, match=f"{name.replace('_', '-')} must be .*, not 0"):
        SharedLatent(**{name: 0})
