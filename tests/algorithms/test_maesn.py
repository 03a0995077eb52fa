"""MAESN by hand: divergence, advantages, the inner step, the gradient through it, and what a test task learns when."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.maesn import Adaptable, Batch, LatentPolicyGradient, Latents, MetaParameters, StepSizes
from mesax.errors import UsageError
from mesax.nets import Adam, Mlp, Trainable
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Episode, Label, tree_index

TIME, AGENTS, SIZE, ENVS = 2, 2, 2, 4
SPEC = EnvSpec(AGENTS, 2, Discrete(3), TIME)
ALGORITHM = LatentPolicyGradient(
    Mlp((3,)), SIZE, kl_weight=0.3, epochs=1, discount=0.5, adapt_rounds=2, optimizer=Adam(0.01, clip_norm=1e9)
)
MAML = replace(ALGORITHM, latent_size=0, adapts="weights")


def episodes(noise_size: int = AGENTS * SIZE, seed: int = 0) -> Episode:
    """Four episodes of two steps; the last is over after the first of them, and absurd afterwards."""
    random = np.random.default_rng(seed)
    mask = np.ones((ENVS, TIME), bool)
    mask[-1, 1] = False
    reward = random.normal(size=(ENVS, TIME))
    reward[-1, 1] = 1e6
    return Episode(
        obs=jnp.asarray(random.normal(size=(ENVS, TIME + 1, AGENTS, 2))),
        action=jnp.asarray(random.integers(0, 3, (ENVS, TIME, AGENTS)), jnp.int32),
        reward=jnp.asarray(reward),
        terminated=jnp.asarray(~np.roll(mask, -1, axis=1) | (np.arange(TIME) == TIME - 1)),
        mask=jnp.asarray(mask),
        label=Label(jnp.zeros(ENVS, jnp.int32), jnp.asarray(random.normal(size=(ENVS, noise_size)))),
    )


def parameters(algorithm: LatentPolicyGradient, num_tasks: int, seed: int = 0) -> MetaParameters:
    """Weights from NumPy, for which nothing is compiled."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: algorithm.meta_init(SPEC, num_tasks, key), jax.random.key(0)).net
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * random.normal(size=leaf.shape)), shapes)


def test_divergence_from_the_prior():
    latents = Latents(jnp.array([[0.5, 0.0], [0.0, 0.0]]), jnp.array([[math.log(2), 0.0], [0.0, 0.0]]))
    by_hand = 0.5 * (4 + 0.25 - 1) - math.log(2)
    assert latents.divergence() == pytest.approx([by_hand, 0.0])
    assert np.all(Latents.prior(3, 2).divergence() == 0)


def test_advantages_compare_episodes_step_by_step():
    algorithm = replace(MAML, net=Mlp((1,)))
    seen = algorithm.batch(parameters(algorithm, 1).of_task(Latents.prior(AGENTS, 0)), episodes(0))
    reward = np.asarray(episodes(0).reward, np.float64)
    returns = np.stack([reward[:, 0] + 0.5 * reward[:, 1], reward[:, 1]], axis=1)
    returns[-1] = [reward[-1, 0], 0.0]  # it ended there
    usual = np.array([returns[:, 0].mean(), returns[:3, 1].mean()])
    centered = (returns - usual)[seen.episodes.mask]
    expected = np.zeros((ENVS, TIME))
    expected[np.asarray(seen.episodes.mask)] = centered / centered.std()
    assert seen.advantages == pytest.approx(expected, abs=1e-4)
    whole = returns[:, 0] - returns[:, 0].mean()
    assert seen.whole == pytest.approx(whole / whole.std(), abs=1e-4)
    whole_time, never = jnp.ones((ENVS, TIME), bool), jnp.zeros((ENVS, TIME), bool)
    alike = replace(episodes(0), reward=jnp.ones((ENVS, TIME)), mask=whole_time, terminated=never)
    same = algorithm.batch(parameters(algorithm, 1).of_task(Latents.prior(AGENTS, 0)), alike)
    assert np.all(same.whole == 0) and np.all(same.advantages == 0), "nothing to tell apart"


def test_the_inner_step_by_hand():
    """d log N / d mu = (z - mu) / sigma^2 and d log N / d s = (z - mu)^2 / sigma^2 - 1, weighted by whole episodes."""
    learned = parameters(ALGORITHM, 1, seed=3)
    playing = learned.of_task(tree_index(learned.latents, 0))
    seen = ALGORITHM.batch(playing, episodes())
    steps = StepSizes(jnp.log(jnp.array([[0.1, 0.2], [0.3, 0.4]])), jnp.log(0.5 * jnp.ones((2, 2))), jnp.zeros(()))
    after = ALGORITHM.adapted(playing, steps, seen, 0.5)
    mu, s, xi, weight = (
        np.asarray(array) for array in (playing.latents.mean, playing.latents.log_std, seen.noise, seen.whole)
    )
    up = np.mean(weight[:, None, None] * xi / np.exp(s), axis=0)
    wider = np.mean(weight[:, None, None] * (xi**2 - 1), axis=0)
    assert after.latents.mean == pytest.approx(mu + 0.5 * np.array([[0.1, 0.2], [0.3, 0.4]]) * up, rel=1e-5)
    assert after.latents.log_std == pytest.approx(s + 0.25 * wider, rel=1e-5)
    assert after.actors is playing.actors
    untouched = ALGORITHM.adapted(playing, steps, seen, 0.0)
    assert ALGORITHM.objective(untouched, seen)[0] == ALGORITHM.objective(playing, seen)[0]


@pytest.mark.parametrize("algorithm", [ALGORITHM, MAML], ids=["latents", "weights"])
def test_the_gradient_through_the_inner_step(algorithm):
    """Against finite differences, in every group of parameters, in 64 bits."""
    with jax.enable_x64(True):
        learned = parameters(algorithm, 2, seed=4)
        size = AGENTS * algorithm.latent_size

        def batch_of(task: int, playing: Adaptable, seed: int) -> Batch:
            return algorithm.batch(playing, episodes(size, seed))

        before, after = [], []
        for task in range(2):
            playing = learned.of_task(tree_index(learned.latents, task))
            before.append(batch_of(task, playing, 10 + task))
            after.append(batch_of(task, algorithm.adapted(playing, learned.steps, before[-1]), 20 + task))
        stacked = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches) for batches in (before, after)]
        loss = jax.jit(lambda learned: algorithm.meta_loss(learned, *stacked)[0])
        gradient = jax.jit(jax.grad(lambda learned: algorithm.meta_loss(learned, *stacked)[0]))(learned)
        random = np.random.default_rng(5)
        for group in ("actors", "latents", "steps"):
            if not any(leaf.size for leaf in jax.tree.leaves(getattr(learned, group))):
                continue
            way = jax.tree.map(jnp.zeros_like, learned)
            part = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), getattr(learned, group))
            way = replace(way, **{group: part})
            there, back = (
                float(loss(jax.tree.map(lambda leaf, step, h=h: leaf + h * step, learned, way))) for h in (1e-5, -1e-5)
            )
            slope = sum(float(jnp.sum(a * b)) for a, b in zip(*map(jax.tree.leaves, (gradient, way)), strict=True))
            assert slope == pytest.approx((there - back) / 2e-5, rel=1e-4), group
            assert abs(slope) > 1e-4, f"{group} matter"


def test_a_test_task_adapts_by_halves_and_then_learns_weights():
    learned = parameters(ALGORITHM, 1, seed=6)
    state = ALGORITHM.start_from(learned.actors, learned.steps)
    assert np.all(state.latents.mean == 0) and np.all(state.latents.log_std == 0), "the prior"
    update = jax.jit(lambda state: ALGORITHM.update(SPEC, state, episodes(), Elapsed.end(), jax.random.key(0)))
    states, told = [state], []
    for _ in range(3):
        state, metrics = update(states[-1])
        states.append(state)
        told.append(float(metrics["adapting"]))
    assert told == [1, 1, 0] and [int(state.rounds) for state in states] == [0, 1, 2, 3]
    for share, earlier, later in ((1.0, states[0], states[1]), (0.5, states[1], states[2])):
        playing = Adaptable(earlier.actors.net, earlier.latents)
        expected = ALGORITHM.adapted(playing, learned.steps, ALGORITHM.batch(playing, episodes()), share)
        assert later.latents.mean == pytest.approx(np.asarray(expected.latents.mean), rel=1e-4)
        assert jax.tree.all(jax.tree.map(np.array_equal, later.actors.net, earlier.actors.net))
    assert np.array_equal(states[3].latents.mean, states[2].latents.mean)
    # The first step of Adam goes as far as its rate, against the gradient.
    moved = states[3].actors.net.team.nets.head.bias - states[2].actors.net.team.nets.head.bias
    assert np.abs(moved).max() == pytest.approx(0.01, rel=0.01)


def test_meta_training_moves_all_that_it_learns():
    learned = parameters(ALGORITHM, 1, seed=7)
    playing = learned.of_task(tree_index(learned.latents, 0))
    before = ALGORITHM.batch(playing, episodes())
    after = ALGORITHM.batch(ALGORITHM.adapted(playing, learned.steps, before), episodes(seed=1))
    batches = [jax.tree.map(lambda leaf: leaf[None], batch) for batch in (before, after)]
    state, metrics = jax.jit(ALGORITHM.meta_update)(Trainable.create(learned, ALGORITHM.meta_optimizer), *batches)
    for group in ("actors", "latents"):
        for new, old in zip(*(jax.tree.leaves(getattr(net, group)) for net in (state.net, learned)), strict=True):
            assert new.size == 0 or not np.array_equal(new, old)
    assert not np.array_equal(state.net.steps.mean, learned.steps.mean)
    assert metrics["divergence"] == pytest.approx(float(jnp.sum(learned.latents.divergence())), rel=1e-5)


def test_continuous_actions_and_greedy_play(getkey):
    spec = EnvSpec(1, 2, Box(2), TIME)
    state = ALGORITHM.init(spec, getkey())
    greedy, sampled = ALGORITHM.greedy(spec, state), ALGORITHM.behavior(spec, state, Elapsed.end())
    memory = greedy.start(getkey())
    first, _ = greedy.act(memory, jnp.ones((1, 2)), getkey())
    again, _ = greedy.act(memory, jnp.ones((1, 2)), getkey())
    assert np.array_equal(first, again) and np.all(greedy.label(memory).latent == 0)
    noise = sampled.label(sampled.start(getkey())).latent
    assert noise.shape == (SIZE,) and np.all(noise != 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_size": 0}, "only one thing to adapt: --algorithm.adapts weights"),
        ({"latent_size": -1}, "latent-size must be at least 0"),
        ({"step_size": 0.0}, "step-size must be above 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"discount": 1.5}, "discount must lie between 0 and 1"),
        ({"initial_std": 2.0}, "initial-std must be at most"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        LatentPolicyGradient(**settings)
