"""Stage 2's reward, Eq. (6): distances, hash, counts and decay, by hand and against brute force."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from mesax.errors import UsageError
from mesax.mesa.coverage import CoverageReward, match
from mesax.rewards.features import ObsActionFeatures
from mesax.rewards.points import squared_distances
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.types import Box, Discrete, EnvSpec, Episode, Label, Transition

NUM_ACTIONS = 4
TIME = 6
SPEC = EnvSpec(2, 2, Discrete(NUM_ACTIONS), TIME)
# Members (0, 0), (1, 1), (2, 2) of value 1, .5, .05 in two clusters: (0, 0) alone, the others together. Then padding.
MEMBERS = [(0, 0), (1, 1), (2, 2)]
VALUES = [1.0, 0.5, 0.05]
CLUSTER = {(0, 0): 0, (1, 1): 1, (2, 2): 1}


def features_of(joint: tuple[int, int]) -> np.ndarray:
    return np.eye(NUM_ACTIONS, dtype=np.float32)[list(joint)].reshape(-1)


def small_subspace() -> HighRewardSet:
    rows = [features_of(joint) for joint in MEMBERS]
    padding = [np.zeros_like(rows[0])] * 2
    centroids = [rows[0], (rows[1] + rows[2]) / 2, padding[0]]
    return HighRewardSet(
        jnp.array(rows + padding),
        jnp.array([*VALUES, 9.0, 9.0]),
        jnp.array([True, True, True, False, False]),
        jnp.array([0, 1, 1, 0, 0]),
        jnp.array(centroids),
        jnp.array([True, True, False]),
    )


def episodes_of(joints: list[list[tuple[int, int]]]) -> Episode:
    """Episodes of given joint actions, padded by repeating a member: padding must never count."""
    number = len(joints)
    action = np.zeros((number, TIME, 2), np.int32)
    mask = np.zeros((number, TIME), bool)
    for row, episode in enumerate(joints):
        action[row, : len(episode)] = episode
        mask[row, : len(episode)] = True
    return Episode(
        jnp.zeros((number, TIME + 1, 2, 2)),
        jnp.asarray(action),
        jnp.full((number, TIME), 7.0),
        jnp.zeros((number, TIME), bool),
        jnp.asarray(mask),
        Label.of(jnp.zeros(number, jnp.int32)),
    )


REWARD = CoverageReward()
observe = {
    flag: jax.jit(lambda s, e, r=replace(REWARD, normalize=flag): r.observe(SPEC, s, e, jax.random.key(0)))
    for flag in (False, True)
}


def rewards_of(joints: list[list[tuple[int, int]]], visits=(0.0, 0.0, 0.0), normalize: bool = False) -> np.ndarray:
    state = CoverageState(small_subspace(), jnp.array(visits, jnp.float32))
    after, episodes = observe[normalize](state, episodes_of(joints))
    for before, now in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(before, now)
    return np.asarray(episodes.reward)


def oracle(joints: list[tuple[int, int]], visits: tuple[float, ...], normalize: bool) -> list[float]:
    """Eq. (6) with loops: counts start at the global count and grow only near M_*."""
    counts, rewards = list(visits), []
    for joint in joints:
        distances = [np.linalg.norm(features_of(joint) - features_of(member)) for member in MEMBERS]
        nearest = int(np.argmin(distances))
        if distances[nearest] >= 0.5:
            rewards.append(0.0)
            continue
        cluster = CLUSTER[MEMBERS[nearest]]
        counts[cluster] += 1
        rewards.append(VALUES[nearest] / counts[cluster] ** 5)
    scale = (min(visits[:2]) + 1) ** 5 if normalize else 1.0
    return [scale * reward for reward in rewards] + [0.0] * (TIME - len(joints))


def test_repeated_visits_decay_with_the_fifth_power():
    np.testing.assert_allclose(rewards_of([[(0, 0)] * 3])[0, :3], [1.0, 1 / 32, 1 / 243], rtol=1e-6)


def test_the_global_count_comes_first():
    first, second = rewards_of([[(0, 0)], [(1, 1)]], visits=(1.0, 0.0, 0.0))[:, 0]
    assert first == pytest.approx(1 / 32)
    assert second == pytest.approx(0.5)


def test_global_counts_may_be_fractions():
    assert rewards_of([[(0, 0)]], visits=(0.5, 0.0, 0.0))[0, 0] == pytest.approx(1.5**-5)


def test_far_steps_earn_and_count_nothing():
    """(3, 0) has (0, 0)'s cluster as its nearest, but is not near: the visit after it is still the first."""
    np.testing.assert_allclose(rewards_of([[(3, 0), (0, 3), (3, 3), (0, 0)]])[0, :4], [0.0, 0.0, 0.0, 1.0])


def test_every_episode_starts_from_the_global_count():
    np.testing.assert_allclose(rewards_of([[(0, 0), (0, 0)], [(0, 0)]])[:, 0], [1.0, 1.0])


def test_the_nearest_member_gives_its_value_and_its_cluster_the_count():
    np.testing.assert_allclose(rewards_of([[(1, 1), (2, 2), (0, 0)]])[0, :3], [0.5, 0.05 / 32, 1.0], rtol=1e-6)


def test_padding_earns_nothing():
    assert rewards_of([[(0, 0)]])[0, 1:].tolist() == [0.0] * (TIME - 1)


def test_normalized_rewards_are_relative_to_the_largest_bonus_left():
    plain = rewards_of([[(0, 0), (1, 1)]], (3.0, 1.0, 0.0))
    normalized = rewards_of([[(0, 0), (1, 1)]], (3.0, 1.0, 0.0), normalize=True)
    np.testing.assert_allclose(normalized, 32 * plain, rtol=1e-6)
    assert normalized[0, 1] == pytest.approx(0.5)


JOINT = st.tuples(st.integers(0, 3), st.integers(0, 3)) | st.sampled_from(MEMBERS)
EPISODES = st.lists(st.lists(JOINT, min_size=1, max_size=TIME), min_size=3, max_size=3)
VISITS = st.tuples(st.sampled_from([0.0, 0.4, 1.0, 2.0]), st.sampled_from([0.0, 0.4, 1.0, 2.0]), st.just(0.0))


@settings(max_examples=60)
@given(EPISODES, VISITS, st.booleans())
def test_equals_the_brute_force_oracle(joints, visits, normalize):
    expected = [oracle(episode, visits, normalize) for episode in joints]
    np.testing.assert_allclose(rewards_of(joints, visits, normalize), expected, rtol=1e-5, atol=1e-9)


def test_only_the_reward_changes():
    before = episodes_of([[(0, 0), (1, 1)]])
    _, after = observe[False](CoverageState(small_subspace(), jnp.zeros(3)), before)
    for name in ("obs", "action", "terminated", "mask"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_visit_counts():
    state = CoverageState(small_subspace(), jnp.zeros(3))
    episodes = episodes_of([[(0, 0), (3, 0), (1, 1), (2, 2)], [(0, 0), (0, 0)]])
    found = jax.jit(lambda state, episodes: REWARD.visits(SPEC, state, episodes))(state, episodes)
    np.testing.assert_array_equal(np.asarray(found.near).sum(axis=1), [[1, 2, 0], [2, 0, 0]])


distances_of = jax.jit(jax.vmap(squared_distances, in_axes=(0, None)))


@given(st.integers(0, 10_000), st.sampled_from([0.01, 1.0, 30.0]))
def test_distances_equal_brute_force(seed, scale):
    random = np.random.default_rng(seed)
    points, others = (scale * random.normal(size=(number, 3)).astype(np.float32) for number in (5, 7))
    expected = np.square(points[:, None].astype(np.float64) - others[None]).sum(axis=-1)
    np.testing.assert_allclose(distances_of(points, others), expected, rtol=1e-4, atol=1e-5 * scale**2)


match_of = jax.jit(match)


def mask_of(number: int):
    """All valid, all in the first cluster."""
    return jnp.ones(number, bool), jnp.zeros(number, jnp.int32)


def test_near_is_strictly_within_the_threshold():
    member = HighRewardSet(jnp.zeros((1, 1)), jnp.ones(1), *mask_of(1), jnp.zeros((1, 1)), jnp.array([True]))
    near = [bool(match_of(member, jnp.array([x]), 0.5).near) for x in (0.0, 0.49, 0.5, 0.51)]
    assert near == [True, True, False, False]


def test_far_from_the_origin_near_is_still_near():
    """Features in raw units may be large: |a|^2 - 2ab + |b|^2 must not drown small distances in rounding."""
    point = jnp.array([1000.0, -2000.0])
    subspace = HighRewardSet(
        jnp.stack([point, point + 0.3]), jnp.array([1.0, 2.0]), *mask_of(2), point[None], jnp.ones(1, bool)
    )
    found = match_of(subspace, point, 0.1)
    assert (bool(found.near), float(found.value)) == (True, 1.0)
    assert not bool(match_of(subspace, point - 0.2, 0.1).near)


TRANSITION = Transition(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([2, 0]), jnp.array([[5.0, 6.0], [7.0, 8.0]]))
ACTIONS = [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (ObsActionFeatures(), ACTIONS),
        (ObsActionFeatures(1.0, 0.0), [1.0, 2.0, 3.0, 4.0]),
        (ObsActionFeatures(0.5, 2.0, obs_from=1), [1.0, 2.0, *(2 * a for a in ACTIONS)]),
        (ObsActionFeatures(1.0, 0.0, obs_to=1, after_step=True), [5.0, 7.0]),
    ],
)
def test_features_of_a_transition(features, expected):
    assert features(SPEC, TRANSITION).tolist() == expected


def test_features_of_continuous_actions():
    spec = EnvSpec(2, 2, Box(1), TIME)
    step = Transition(TRANSITION.obs, jnp.array([[0.5], [-1.0]]), TRANSITION.next_obs)
    assert ObsActionFeatures()(spec, step).tolist() == [0.5, -1.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ObsActionFeatures(obs_weight=0.0, action_weight=0.0), "must not both be 0"),
        (lambda: CoverageReward(distance_threshold=0.0), "distance-threshold must be above 0, not 0.0"),
        (lambda: CoverageReward(distance_threshold=float("nan")), "distance-threshold must be above 0, not nan"),
        (lambda: CoverageReward(decay_power=-1.0), "decay-power must be at least 0, not -1.0"),
        (lambda: CoverageReward(decay_power=float("nan")), "decay-power must be at least 0, not nan"),
    ],
)
def test_settings_that_cannot_work_are_refused(build, message):
    with pytest.raises(UsageError, match=message):
        build()
