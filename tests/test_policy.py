"""Who acts: noise, explorers drawn per episode, repeated actions, and mixing that leaves the learner untouched."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.mesa.mixing import ExploreOrExploit
from mesax.policy import (
    EXPLORER,
    LEARNER,
    EpsilonRandom,
    ExplorationPolicySet,
    GaussianNoise,
    Repeated,
    UniformPolicy,
    with_noise,
    within_bounds,
)
from mesax.types import Box, Discrete, EnvSpec, Label, tree_index
from probes import put

AGENTS, ACTIONS, TIME, EPISODES = 2, 5, 4, 2_000
OBS = put(np.zeros((AGENTS, 1)), np.float32)


class Fixed(eqx.Module):
    """Always plays the same; its memory counts its steps."""

    action: jax.Array

    def start(self, key):
        del key
        return jnp.zeros((), jnp.int32)

    def act(self, memory, obs, key):
        del obs, key
        return self.action, memory + 1

    def label(self, memory):
        del memory
        return Label.of(LEARNER)


class Sampler(eqx.Module):
    """Plays categorical samples, and remembers a draw from its start."""

    logits: jax.Array

    def start(self, key):
        return jax.random.uniform(key)

    def act(self, memory, obs, key):
        return jax.random.categorical(key, self.logits + memory * obs), memory

    def label(self, memory):
        del memory
        return Label.of(LEARNER)


@jax.jit
def play_all(policy, keys):
    def episode(key):
        key_start, key_act = jax.random.split(key)
        memory = policy.start(key_start)

        def step(memory, key):
            action, memory = policy.act(memory, OBS, key)
            return memory, action

        memory, actions = jax.lax.scan(step, memory, jax.random.split(key_act, TIME))
        return actions, policy.label(memory).actor

    return jax.vmap(episode)(keys)


def play(policy, key):
    """Actions `[episodes, time, agents, ...]` and who played."""
    actions, actors = play_all(policy, jax.random.split(key, EPISODES))
    return np.asarray(actions), np.asarray(actors)


def constant(*values: float) -> Fixed:
    return Fixed(put(values))


def test_uniform_policy(getkey):
    actions, actors = play(UniformPolicy(Discrete(ACTIONS), number=3), getkey())
    np.testing.assert_allclose(np.bincount(actions.ravel()) / actions.size, np.full(ACTIONS, 0.2), atol=0.02)
    assert set(actors) == {3}


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_epsilon_random_rates(getkey, epsilon: float):
    policy = EpsilonRandom(constant(1, 4), put(epsilon), Discrete(ACTIONS))
    actions, _ = play(policy, getkey())
    kept = actions == np.array([1, 4])
    expected = 1.0 - epsilon + epsilon / ACTIONS
    np.testing.assert_allclose(kept.mean(axis=(0, 1)), [expected, expected], atol=0.03)
    np.testing.assert_allclose(kept.all(axis=2).mean(), expected**2, atol=0.03)  # agents slip independently
    slips = actions[..., 0][~kept[..., 0]]
    if epsilon:
        np.testing.assert_allclose(np.bincount(slips, minlength=5)[[0, 2, 3, 4]] / slips.size, 0.25, atol=0.05)


def test_gaussian_noise_is_clipped(getkey):
    policy = GaussianNoise(Fixed(put([[0.0], [0.9]])), put(0.5))
    actions, _ = play(policy, getkey())
    assert actions.min() == -1.0 and actions.max() == 1.0
    center = actions[..., 0, 0]
    np.testing.assert_allclose([center.mean(), np.median(center)], [0.0, 0.0], atol=0.03)
    np.testing.assert_allclose(np.mean(np.abs(center) < 0.5), 0.683, atol=0.02)  # one standard deviation
    np.testing.assert_allclose(np.mean(actions[..., 1, 0] == 1.0), 0.42, atol=0.02)  # P(noise > .2 std)


def test_noise_without_scale_changes_nothing(getkey):
    box = Fixed(put([[0.3], [-1.0]]))
    assert np.all(play(GaussianNoise(box, put(0.0)), getkey())[0] == np.asarray(box.action))


def test_with_noise_serves_both_spaces():
    assert isinstance(with_noise(constant(0, 0), put(0.1), Discrete(2)), EpsilonRandom)
    assert isinstance(with_noise(constant(0, 0), put(0.1), Box(1)), GaussianNoise)


def test_what_others_learn_from_stays_within_bounds(getkey):
    """Learners of the explorers may act beyond the box; the episode must say what the environment made of it."""
    beyond = Fixed(put([[1.7, -0.4], [-3.0, 1.0]]))
    actions, _ = play(within_bounds(beyond, Box(2)), getkey())
    np.testing.assert_array_equal(actions[0, 0], np.array([[1.0, -0.4], [-1.0, 1.0]], np.float32))
    assert within_bounds(beyond, Discrete(5)) is beyond


def test_explorers_are_drawn_uniformly_per_episode(getkey):
    explorers = ExplorationPolicySet(Fixed(put([[0, 0], [1, 1], [2, 2]])))
    actions, actors = play(explorers, getkey())
    assert np.all(actions == actions[:, :1])  # never changes within an episode
    np.testing.assert_allclose(np.bincount(actions[:, 0, 0]) / EPISODES, np.full(3, 1 / 3), atol=0.04)
    np.testing.assert_array_equal(actors, EXPLORER + actions[:, 0, 0])


class StartedAs(eqx.Module):
    """A policy that starts from the key which a set of policies would start it with."""

    policy: Sampler

    def start(self, key):
        return self.policy.start(jax.random.split(key)[1])

    def act(self, memory, obs, key):
        return self.policy.act(memory, obs, key)

    def label(self, memory):
        return self.policy.label(memory)


def test_the_drawn_explorer_plays_as_if_alone(getkey):
    """All of them act, and the others' actions and memories leave no trace."""
    policies = Sampler(put([[[1.0, 0.0, -1.0]] * 2, [[-2.0, 0.0, 2.0]] * 2, [[0.0, 0.0, 0.0]] * 2]))
    key = getkey()
    actions, actors = play(ExplorationPolicySet(policies), key)
    for number in range(3):
        alone, _ = play(StartedAs(tree_index(jax.device_get(policies), number)), key)
        drawn = actors == EXPLORER + number
        assert 0.28 * EPISODES < drawn.sum() < 0.39 * EPISODES
        np.testing.assert_array_equal(actions[drawn], alone[drawn])


class Counter(eqx.Module):
    """Plays the number of its decision, and the number drawn at its start."""

    def start(self, key):
        return jnp.zeros((), jnp.int32), jax.random.uniform(key)

    def act(self, memory, obs, key):
        del obs, key
        count, draw = memory
        return jnp.stack([count, jnp.floor(100 * draw).astype(jnp.int32)]), (count + 1, draw)

    def label(self, memory):
        return Label.of(memory[0])


@pytest.mark.parametrize(("times", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 0, 1, 1]), (3, [0, 0, 0, 1])])
def test_actions_are_repeated(getkey, times: int, expected: list[int]):
    """The policy decides, and remembers, once every few steps: `actor` tells how often."""
    spec, key = EnvSpec(AGENTS, 1, Discrete(ACTIONS), TIME), getkey()
    actions, decisions = play(Repeated(Counter(), spec, times), key)
    np.testing.assert_array_equal(actions[:, :, 0], np.broadcast_to(expected, (EPISODES, TIME)))
    assert set(decisions) == {expected[-1] + 1}
    plain, _ = play(Counter(), key)
    np.testing.assert_array_equal(actions[:, 0], plain[:, 0])  # started with the same key
    assert len(np.unique(actions[:, 0, 1])) == 100


def test_repeated_random_actions_are_drawn_at_decisions(getkey):
    key, space = getkey(), Box(2)
    once, _ = play(UniformPolicy(space), key)
    twice, actors = play(Repeated(UniformPolicy(space, number=2), EnvSpec(AGENTS, 1, space, TIME), 2), key)
    np.testing.assert_array_equal(twice, np.repeat(once[:, ::2], 2, axis=1))
    assert set(actors) == {2}


def mixed(probability: float, learner=None):
    explorer = ExplorationPolicySet(Fixed(put([[7, 7], [8, 8]])))
    return ExploreOrExploit(learner or constant(1, 2), explorer, put(probability))


def test_without_exploration_the_learner_plays_bit_for_bit(getkey):
    logits = put([[0.1, 0.5, -0.3], [1.0, 0.0, 0.2]])
    learner = EpsilonRandom(Sampler(logits), put(0.3), Discrete(3))
    key = getkey()
    alone, _ = play(learner, key)
    actions, actors = play(mixed(0.0, learner), key)
    np.testing.assert_array_equal(actions, alone)
    assert set(actors) == {LEARNER}


def test_the_learner_plays_its_episodes_as_if_alone(getkey):
    learner, key = EpsilonRandom(Sampler(put(np.zeros((2, 3)), np.float32)), put(0.3), Discrete(3)), getkey()
    alone, _ = play(learner, key)
    actions, actors = play(mixed(0.5, learner), key)
    own = actors == LEARNER
    assert 0 < own.sum() < EPISODES
    np.testing.assert_array_equal(actions[own], alone[own])


def test_with_certain_exploration_an_explorer_always_plays(getkey):
    actions, actors = play(mixed(1.0), getkey())
    assert set(actions.ravel()) == {7, 8}
    assert set(actors) == {1, 2}


def test_the_choice_holds_for_the_episode(getkey):
    actions, actors = play(mixed(0.3), getkey())
    explored = actions[..., 0] >= 7
    assert np.all(explored == explored[:, :1])
    np.testing.assert_array_equal(actors > 0, explored[:, 0])
    np.testing.assert_allclose(np.mean(actors == LEARNER), 0.7, atol=0.04)
    np.testing.assert_allclose([np.mean(actors == 1), np.mean(actors == 2)], [0.15, 0.15], atol=0.03)


def test_both_memories_advance(getkey):
    policy = mixed(0.5)
    _, memory = jax.jit(lambda key: policy.act(policy.start(key), OBS, key))(getkey())
    explores, learner_memory, (_, explorer_memory) = memory
    assert explores.dtype == bool
    assert int(learner_memory) == 1
    assert explorer_memory.tolist() == [1, 1]
