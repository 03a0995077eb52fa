"""Rewards for records: nearness, dwelling, what is paid and what is not, by hand and against loops."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from mesax.errors import UsageError
from mesax.ours.records import RecordReward, ToldCoverage, cluster_distances
from mesax.rewards.features import ObsActionFeatures
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.types import Discrete, EnvSpec, Episode, Label

TIME = 6
SPEC = EnvSpec(1, 1, Discrete(2), TIME)
WHERE = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
"""A walk on a line: the feature is where the step led to."""
REWARD = RecordReward(WHERE)
TOUCH = replace(REWARD, stay=0.0)
# Members at 0 (cluster 0), at 3 and 4 (cluster 1); none in cluster 2; cluster 3 is padding, like two members at 9.
SUBSPACE = HighRewardSet(
    jnp.array([[0.0], [3.0], [4.0], [9.0], [9.0]]),
    jnp.array([1.0, 0.1, 0.2, 9.0, 9.0]),
    jnp.array([True, True, True, False, False]),
    jnp.array([0, 1, 1, 0, 3]),
    jnp.array([[0.0], [3.5], [0.0], [0.0]]),
    jnp.array([True, True, True, False]),
)
PLACES = [[0.0], [3.0, 4.0], [], []]
FAR = 20.0
NAN = float("nan")
ALL = jnp.ones(4)
"""No wishes: every cluster is wanted alike."""

KEY = jax.random.key(0)
observe = jax.jit(lambda reward, state, episodes: reward.observe(SPEC, state, episodes, KEY), static_argnums=0)


def episodes_of(*walks: list[float]) -> Episode:
    """Episodes that lead to the given places, padded by standing at 0: padding must never count."""
    obs, mask = np.zeros((len(walks), TIME + 1, 1, 1), np.float32), np.zeros((len(walks), TIME), bool)
    for row, walk in enumerate(walks):
        obs[row, 1 : len(walk) + 1, 0, 0] = walk
        mask[row, : len(walk)] = True
    return Episode(
        jnp.asarray(obs),
        jnp.zeros((len(walks), TIME, 1), jnp.int32),
        jnp.full((len(walks), TIME), 7.0),
        jnp.zeros((len(walks), TIME), bool),
        jnp.asarray(mask),
        Label.of(jnp.zeros(len(walks), jnp.int32)),
    )


def rewards_of(*walks: list[float], visits=(0.0, 0.0, 0.0, 0.0), reward: RecordReward = REWARD) -> np.ndarray:
    state = CoverageState(SUBSPACE, jnp.array(visits, jnp.float32))
    after, episodes = observe(reward, state, episodes_of(*walks))
    jax.tree.map(np.testing.assert_array_equal, after, state)
    return np.asarray(episodes.reward)


def nearness(place: float) -> list[float]:
    """kappa of every cluster."""
    distances = [min((abs(place - member) for member in members), default=np.inf) for members in PLACES]
    return [float(np.exp(-0.5 * (max(distance - 0.5, 0.0) / 0.3) ** 2)) for distance in distances]


def gains(visits: tuple[float, ...]) -> np.ndarray:
    least = min(visits[:3])
    return np.array([((least + 1) / (number + 1)) ** 5 for number in visits[:3]] + [0.0])


def test_distances_to_clusters():
    distances = jax.jit(cluster_distances)
    np.testing.assert_allclose(distances(SUBSPACE, jnp.array([2.5])), [2.5, 0.5, np.inf, np.inf])
    np.testing.assert_allclose(distances(SUBSPACE, jnp.array([9.0])), [9.0, 5.0, np.inf, np.inf])


def test_nearness_at_known_distances():
    """1 up to the threshold of .5, then a bell of width .3: exp(-1/2) at -.8, exp(-2) at -1.1."""
    paid = rewards_of(*[[place] for place in (0.0, 0.5, -0.5, -0.8, -1.1, FAR)], reward=TOUCH)[:, 0]
    np.testing.assert_allclose(paid, [1.0, 1.0, 1.0, np.exp(-0.5), np.exp(-2.0), 0.0], rtol=1e-4)


def test_nearness_with_a_peak():
    """1 up to the threshold of .5, then exp(-x / .3): exp(-1) at -.8, exp(-2) at -1.1."""
    peaked = replace(TOUCH, kernel="peaked")
    paid = rewards_of(*[[place] for place in (0.0, -0.5, -0.8, -1.1, FAR)], reward=peaked)[:, 0]
    # The other cluster, at 3, is not quite out of sight: exp(-2.5 / .3) = .0002.
    np.testing.assert_allclose(paid, [1.0, 1.0, np.exp(-1.0), np.exp(-2.0), 0.0], atol=3e-4)


def test_dwelling_by_hand():
    """e = .303, .652, .826, .413, .706: each new record pays its growth, and the way back up to it pays nothing."""
    half = 0.5 * np.exp(-0.5)
    paid = rewards_of([0.8, 0.0, 0.0, FAR, 0.0])[0]
    np.testing.assert_allclose(paid, [half, 0.5 - half / 2, 0.25 - half / 4, 0.0, 0.0, 0.0], atol=1e-5)


def test_repeats_pay_nothing():
    np.testing.assert_allclose(rewards_of([0.0, 0.0, FAR, 0.3], reward=TOUCH)[0], [1, 0, 0, 0, 0, 0], atol=1e-6)
    staying = rewards_of([0.0] * TIME)[0]
    np.testing.assert_allclose(staying, 0.5 ** np.arange(1, TIME + 1), rtol=1e-5)


def test_another_member_of_the_same_cluster_is_a_repeat():
    np.testing.assert_allclose(rewards_of([3.0, 4.0, 0.0], reward=TOUCH)[0, :3], [1, 0, 1], atol=1e-6)


def test_clusters_that_earlier_policies_visit_pay_less():
    """G = ((least + 1) / (N + 1))^5 among the clusters there are; padding's count of 0 is not the least."""
    walk = [0.0, 3.0]
    np.testing.assert_allclose(rewards_of(walk, visits=(1, 0, 0, 0), reward=TOUCH)[0, :2], [1 / 32, 1], rtol=1e-5)
    np.testing.assert_allclose(rewards_of(walk, visits=(3, 1, 1, 0), reward=TOUCH)[0, :2], [1 / 32, 1], rtol=1e-5)
    fractions = rewards_of(walk, visits=(0.5, 0.2, 0.2, 0), reward=TOUCH)[0, :2]
    np.testing.assert_allclose(fractions, [0.8**5, 1], rtol=1e-5)


def test_stored_values_do_not_matter():
    """Records are of nearness: a member of value .1 pays like one of value 1."""
    np.testing.assert_allclose(rewards_of([3.0], reward=TOUCH)[0, 0], 1.0, rtol=1e-6)


def test_padding_and_clusters_without_members_pay_nothing():
    assert not rewards_of([9.0, 9.0, 9.0]).any()
    assert not rewards_of([FAR])[0].any(), "the padding stands at 0"


PLACE = st.sampled_from([0.0, 0.6, 0.9, 3.0, 2.2, 4.8, 9.0, FAR]) | st.floats(-2.0, 10.0, width=32)
WALKS = st.lists(st.lists(PLACE, min_size=1, max_size=TIME), min_size=3, max_size=3)
COUNT = st.sampled_from([0.0, 0.4, 1.0, 2.0])


@settings(max_examples=60)
@given(WALKS, st.tuples(COUNT, COUNT, COUNT, st.just(0.0)))
def test_what_an_episode_pays_is_its_records(walks, visits):
    """Step by step against loops; and the sum telescopes to sum_c G_c B_c, whatever the way there."""
    paid = rewards_of(*walks, visits=visits)
    for walk, rewards in zip(walks, paid, strict=True):
        dwell, best, expected = np.zeros(4), np.zeros(4), []
        for place in walk:
            dwell = 0.5 * dwell + 0.5 * np.array(nearness(place))
            expected.append(gains(visits) @ (np.maximum(best, dwell) - best))
            best = np.maximum(best, dwell)
        np.testing.assert_allclose(rewards, expected + [0.0] * (TIME - len(walk)), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(rewards.sum(), gains(visits) @ best, rtol=1e-3, atol=1e-5)


def test_demand_is_what_is_left_to_gain():
    state = CoverageState(SUBSPACE, jnp.array([1.0, 0.0, 0.0, 0.0]))
    memory = REWARD.start(state)
    np.testing.assert_allclose(REWARD.demand(state, ALL, memory), [1 / 32, 1.0, 1.0, 0.0], rtol=1e-5)
    for place in (0.0, FAR):
        memory, _ = REWARD.step(state, ALL, memory, REWARD.perceive(SUBSPACE, jnp.array([place])))
    np.testing.assert_allclose(REWARD.demand(state, ALL, memory), [0.5 / 32, 1.0, 1.0, 0.0], rtol=1e-5)


def test_demand_of_the_papers_reward_is_the_next_bonus():
    """Counts 1, 0, 0: the second visit to cluster 0 would pay 1 / 32 of the first to another; after it, 1 / 243."""
    reward, state = ToldCoverage(WHERE), CoverageState(SUBSPACE, jnp.array([1.0, 0.0, 0.0, 0.0]))
    memory = reward.start(state)
    np.testing.assert_allclose(reward.demand(state, ALL, memory), [1 / 32, 1.0, 1.0, 0.0], rtol=1e-5)
    for place in (0.0, FAR):
        memory, _ = reward.step(state, ALL, memory, reward.perceive(SUBSPACE, jnp.array([place])))
    np.testing.assert_allclose(reward.demand(state, ALL, memory), [1 / 243, 1.0, 1.0, 0.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0.0}, "width must be above 0"),
        ({"width": NAN}, "width must be above 0, not nan"),
        ({"stay": 1.0}, "stay must be at least 0 and below 1, not 1.0"),
        ({"stay": -0.1}, "stay must be at least 0 and below 1, not -0.1"),
        ({"stay": NAN}, "stay must be at least 0 and below 1, not nan"),
        ({"distance_threshold": 0.0}, "distance-threshold must be above 0"),
        ({"distance_threshold": NAN}, "distance-threshold must be above 0, not nan"),
        ({"decay_power": NAN}, "decay-power must be at least 0, not nan"),
        ({"wish_decay": NAN}, "wish-decay must be above 0 and at most 1, not nan"),
    ],
)
def test_impossible_settings(change: dict, message: str):
    with pytest.raises(UsageError, match=message):
        replace(REWARD, **change)
