"""MAESN by hand: divergence, advantages, the inner step, the gradient through it, and what a test task learns when."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.baselines.maesn.learner import (
    Adaptable,
    Batch,
    LatentPolicyGradient,
    Latents,
    LatentState,
    MetaParameters,
    StepSizes,
)
from mesax.errors import UsageError
from mesax.nets import Adam, Mlp, Trainable
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Episode, Label, tree_index
from probes import put, stacked

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
    made = Episode(
        obs=random.normal(size=(ENVS, TIME + 1, AGENTS, 2)),
        action=random.integers(0, 3, (ENVS, TIME, AGENTS), np.int32),
        reward=reward,
        terminated=~np.roll(mask, -1, axis=1) | (np.arange(TIME) == TIME - 1),
        mask=mask,
        label=Label(np.zeros(ENVS, np.int32), random.normal(size=(ENVS, noise_size))),
    )
    return jax.device_put(made)


def parameters(algorithm: LatentPolicyGradient, num_tasks: int, seed: int = 0) -> MetaParameters:
    """Weights from NumPy, for which nothing is compiled."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: algorithm.meta_init(SPEC, num_tasks, key), jax.random.key(0)).net
    return jax.tree.map(lambda leaf: put(0.5 * random.normal(size=leaf.shape)), shapes)


def test_divergence_from_the_prior():
    latents = Latents(put([[0.5, 0.0], [0.0, 0.0]]), put([[math.log(2), 0.0], [0.0, 0.0]]))
    found, of_prior = jax.jit(lambda: (latents.divergence(), Latents.prior(3, 2).divergence()))()
    by_hand = 0.5 * (4 + 0.25 - 1) - math.log(2)
    assert np.asarray(found) == pytest.approx([by_hand, 0.0])
    assert np.all(np.asarray(of_prior) == 0)


def test_advantages_compare_episodes_step_by_step():
    algorithm = replace(MAML, net=Mlp((1,)))
    playing = parameters(algorithm, 1).of_task(Latents(*put(np.zeros((2, AGENTS, 0)))))
    batch = jax.jit(algorithm.batch)
    seen = jax.device_get(batch(playing, episodes(0)))
    reward = np.asarray(episodes(0).reward, np.float64)
    returns = np.stack([reward[:, 0] + 0.5 * reward[:, 1], reward[:, 1]], axis=1)
    returns[-1] = [reward[-1, 0], 0.0]  # it ended there
    usual = np.array([returns[:, 0].mean(), returns[:3, 1].mean()])
    centered = (returns - usual)[seen.episodes.mask]
    expected = np.zeros((ENVS, TIME))
    expected[seen.episodes.mask] = centered / centered.std()
    assert seen.advantages == pytest.approx(expected, abs=1e-4)
    whole = returns[:, 0] - returns[:, 0].mean()
    assert seen.whole == pytest.approx(whole / whole.std(), abs=1e-4)
    whole_time, never = np.ones((ENVS, TIME), bool), np.zeros((ENVS, TIME), bool)
    alike = replace(episodes(0), reward=np.ones((ENVS, TIME), np.float32), mask=whole_time, terminated=never)
    same = jax.device_get(batch(playing, alike))
    assert np.all(same.whole == 0) and np.all(same.advantages == 0), "nothing to tell apart"


def test_the_inner_step_by_hand():
    """d log N / d mu = (z - mu) / sigma^2 and d log N / d s = (z - mu)^2 / sigma^2 - 1, weighted by whole episodes."""
    sizes = np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.5], [0.5, 0.5]]])
    steps = StepSizes(*put(np.log(sizes)), put(0.0))

    @jax.jit
    def compute(learned: MetaParameters):
        playing = learned.of_task(tree_index(learned.latents, 0))
        seen = ALGORITHM.batch(playing, episodes())
        after = ALGORITHM.adapted(playing, steps, seen, 0.5)
        assert after.actors is playing.actors
        untouched = ALGORITHM.adapted(playing, steps, seen, 0.0)
        return playing.latents, seen, after.latents, [ALGORITHM.objective(who, seen)[0] for who in (untouched, playing)]

    before, seen, after, (untouched, playing) = jax.device_get(compute(parameters(ALGORITHM, 1, seed=3)))
    mu, s, xi, weight = before.mean, before.log_std, seen.noise, seen.whole
    up = np.mean(weight[:, None, None] * xi / np.exp(s), axis=0)
    wider = np.mean(weight[:, None, None] * (xi**2 - 1), axis=0)
    assert after.mean == pytest.approx(mu + 0.5 * sizes[0] * up, rel=1e-5)
    assert after.log_std == pytest.approx(s + 0.25 * wider, rel=1e-5)
    assert untouched == playing


@pytest.mark.parametrize("algorithm", [ALGORITHM, MAML], ids=["latents", "weights"])
def test_the_gradient_through_the_inner_step(algorithm):
    """Against finite differences, in every group of parameters, in 64 bits."""
    with jax.enable_x64(True):
        learned = jax.device_get(parameters(algorithm, 2, seed=4))
        size = AGENTS * algorithm.latent_size
        first, second = (stacked([episodes(size, seed + task) for task in range(2)]) for seed in (10, 20))
        random = np.random.default_rng(5)
        ways = {}
        for group in ("actors", "latents", "steps"):
            if any(leaf.size for leaf in jax.tree.leaves(getattr(learned, group))):
                part = jax.tree.map(lambda leaf: random.normal(size=leaf.shape), getattr(learned, group))
                ways[group] = replace(jax.tree.map(np.zeros_like, learned), **{group: part})
        assert len(ways) == (3 if algorithm.latent_size else 2)
        moved = [
            jax.tree.map(lambda leaf, step, h=h: leaf + h * step, learned, way)
            for way in ways.values()
            for h in (1e-5, -1e-5)
        ]

        @jax.jit
        def compute(learned: MetaParameters, moved: MetaParameters):
            def play(latents: Latents, first: Episode, second: Episode) -> tuple[Batch, Batch]:
                playing = learned.of_task(latents)
                before = algorithm.batch(playing, first)
                return before, algorithm.batch(algorithm.adapted(playing, learned.steps, before), second)

            batches = jax.vmap(play)(learned.latents, first, second)

            def loss(learned: MetaParameters):
                return algorithm.meta_loss(learned, *batches)[0]

            return jax.grad(loss)(learned), jax.vmap(loss)(moved)

        gradient, losses = jax.device_get(compute(learned, stacked(moved)))
    for (group, way), (there, back) in zip(ways.items(), losses.reshape(-1, 2), strict=True):
        slope = sum(np.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (gradient, way)), strict=True))
        assert slope == pytest.approx((there - back) / 2e-5, rel=1e-4), group
        assert abs(slope) > 1e-4, f"{group} matter"


def test_a_test_task_adapts_by_halves_and_then_learns_weights():
    learned = parameters(ALGORITHM, 1, seed=6)

    @jax.jit
    def compute(learned: MetaParameters):
        def adapted(state: LatentState, share: float) -> Latents:
            playing = Adaptable(state.actors.net, state.latents)
            return ALGORITHM.adapted(playing, learned.steps, ALGORITHM.batch(playing, episodes()), share).latents

        def update(state: LatentState, _: None):
            expected = [adapted(state, share) for share in (1.0, 0.5)]
            after, metrics = ALGORITHM.update(SPEC, state, episodes(), Elapsed.end(), jax.random.key(0))
            return after, (after, metrics["adapting"], expected)

        begin = ALGORITHM.start_from(learned.actors, learned.steps)
        return begin, jax.lax.scan(update, begin, None, 3)[1]

    begin, (later, told, expected) = jax.device_get(compute(learned))
    assert np.all(begin.latents.mean == 0) and np.all(begin.latents.log_std == 0), "the prior"
    states = [begin, *(tree_index(later, number) for number in range(3))]
    assert told.tolist() == [1, 1, 0] and [int(state.rounds) for state in states] == [0, 1, 2, 3]
    for number, earlier, after in ((0, states[0], states[1]), (1, states[1], states[2])):
        assert after.latents.mean == pytest.approx(expected[number].mean[number], rel=1e-4)
        assert jax.tree.all(jax.tree.map(np.array_equal, after.actors.net, earlier.actors.net))
    assert np.array_equal(states[3].latents.mean, states[2].latents.mean)
    # The first step of Adam goes as far as its rate, against the gradient.
    moved = states[3].actors.net.team.nets.head.bias - states[2].actors.net.team.nets.head.bias
    assert np.abs(moved).max() == pytest.approx(0.01, rel=0.01)


def test_meta_training_moves_all_that_it_learns():
    @jax.jit
    def compute(learned: MetaParameters):
        playing = learned.of_task(tree_index(learned.latents, 0))
        before = ALGORITHM.batch(playing, episodes())
        after = ALGORITHM.batch(ALGORITHM.adapted(playing, learned.steps, before), episodes(seed=1))
        batches = [jax.tree.map(lambda leaf: leaf[None], batch) for batch in (before, after)]
        state, metrics = ALGORITHM.meta_update(Trainable.create(learned, ALGORITHM.meta_optimizer), *batches)
        return state.net, metrics, jnp.sum(learned.latents.divergence())

    learned = jax.device_get(parameters(ALGORITHM, 1, seed=7))
    net, metrics, divergence = jax.device_get(compute(learned))
    for group in ("actors", "latents"):
        for new, old in zip(*(jax.tree.leaves(getattr(which, group)) for which in (net, learned)), strict=True):
            assert new.size == 0 or not np.array_equal(new, old)
    assert not np.array_equal(net.steps.mean, learned.steps.mean)
    assert metrics["divergence"] == pytest.approx(divergence, rel=1e-5)


def test_continuous_actions_and_greedy_play(getkey):
    spec = EnvSpec(1, 2, Box(2), TIME)

    @jax.jit
    def compute(key):
        state = ALGORITHM.init(spec, key)
        greedy, sampled = ALGORITHM.greedy(spec, state), ALGORITHM.behavior(spec, state, Elapsed.end())
        memory = greedy.start(jax.random.fold_in(key, 1))
        chosen = [greedy.act(memory, jnp.ones((1, 2)), jax.random.fold_in(key, number))[0] for number in (2, 3)]
        return chosen, greedy.label(memory).latent, sampled.label(sampled.start(jax.random.fold_in(key, 4))).latent

    (first, again), latent, noise = jax.device_get(compute(getkey()))
    assert np.array_equal(first, again) and np.all(latent == 0)
    assert noise.shape == (SIZE,) and np.all(noise != 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_size": 0}, "only one thing to adapt: --algorithm.adapts weights"),
        ({"latent_size": -1}, "latent-size must be at least 0"),
        ({"step_size": 0.0}, "step-size must be above 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"discount": 1.5}, "discount must lie between 0 and 1"),
        ({"initial_std": 2.0}, r"initial-std must lie between 0\.0067 and 1\.6, not 2\.0"),
        ({"initial_std": 1e-4}, r"initial-std must lie between 0\.0067 and 1\.6, not 0\.0001"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        LatentPolicyGradient(**settings)
