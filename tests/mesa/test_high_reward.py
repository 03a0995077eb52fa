"""Stage 1 by hand and against brute force: thresholds, Eq. (5), what enters M_*, thinning, clusters."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from mesax.errors import UsageError
from mesax.mesa.collect import LEAST_VALUE, Threshold, relabel, valuable
from mesax.mesa.coverage import CoverageReward, match
from mesax.ours.records import RecordReward
from mesax.ours.threshold import MOST_LEVELS, RelativeThreshold
from mesax.rewards.levels import Collected, Levels
from mesax.rewards.points import balanced_subset, deduplicate, nearest, spread_out
from mesax.rewards.subspace import HighRewardSet
from mesax.types import Discrete, EnvSpec

GAMMA = 0.05
HAND = np.array([0.0, 0.0, 1.0, 0.5, 0.0], np.float32)
REWARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=8)


def dense_oracle(rewards: list[float], gamma: float) -> list[tuple[float, float]]:
    """Eq. (5), word for word: (densified reward, the reward it comes from), zeros where there is no t'."""
    result = []
    for time, reward in enumerate(rewards):
        if reward > 0:
            result.append((reward, reward))
            continue
        later = [t for t in range(time + 1, len(rewards)) if rewards[t] > 0]
        result.append((gamma ** (later[0] - time) * rewards[later[0]], rewards[later[0]]) if later else (0.0, 0.0))
    return result


def test_relabel_by_hand():
    dense, leads_to = relabel(HAND[None], GAMMA)
    np.testing.assert_allclose(dense, [[0.0025, 0.05, 1.0, 0.5, 0.0]])
    np.testing.assert_array_equal(leads_to, [[1.0, 1.0, 1.0, 0.5, 0.0]])


def test_only_pairs_that_lead_to_a_high_reward_are_valuable():
    mask = np.ones((1, 5), bool)
    np.testing.assert_allclose(valuable(HAND[None], mask, Levels(1.0), GAMMA), [[0.0025, 0.05, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(valuable(HAND[None], mask, Levels(1.0), 0.01), [[0.0, 0.01, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(valuable(HAND[None], mask, Levels(1.0), 0.0), [[0.0, 0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(valuable(HAND[None], mask, Levels(0.5), GAMMA), [[0.0025, 0.05, 1.0, 0.5, 0.0]])
    assert not valuable(HAND[None], mask, Levels(1.1), GAMMA).any()


def test_a_zero_before_a_small_reward_stays_out_although_a_high_one_follows():
    rewards = np.array([[0.0, 0.5, 0.0, 1.0]], np.float32)
    np.testing.assert_allclose(valuable(rewards, np.ones((1, 4), bool), Levels(1.0), GAMMA), [[0.0, 0.0, 0.05, 1.0]])


def test_a_high_reward_is_kept_however_small_the_unit_of_reward():
    """The least value is about relabeled pairs only: R* alone judges a pair's own reward."""
    rewards = np.array([[0.0, 1e-4]], np.float32)
    np.testing.assert_allclose(valuable(rewards, np.ones((1, 2), bool), Levels(1e-4), GAMMA), [[0.0, 1e-4]])


def test_a_punished_step_is_not_relabeled():
    """Eq. (5) densifies rewards that are zero; a step that costs something is no stepping stone."""
    rewards = np.array([[-1.0, 0.0, 1.0]], np.float32)
    np.testing.assert_allclose(valuable(rewards, np.ones((1, 3), bool), Levels(1.0), GAMMA), [[0.0, 0.05, 1.0]])


@given(st.lists(REWARDS, min_size=1, max_size=4), st.sampled_from([0.0, 0.05, 0.5, 1.0]), st.sampled_from([0.5, 1.0]))
@example([[0.0, 0.0, 1.0, 0.5, 0.0]], GAMMA, 1.0)
def test_relabel_equals_the_oracle_under_masks(batch, gamma, threshold):
    """Episodes of different lengths, padded with absurd rewards that must never be read."""
    longest = max(map(len, batch))
    rewards, mask = np.full((len(batch), longest), 99.0, np.float32), np.zeros((len(batch), longest), bool)
    for row, episode in enumerate(batch):
        rewards[row, : len(episode)], mask[row, : len(episode)] = episode, True
    values = valuable(rewards, mask, Levels(threshold), gamma)
    assert not values[~mask].any()
    for row, episode in enumerate(batch):
        expected = [
            dense if leads_to >= threshold and dense >= LEAST_VALUE else 0.0
            for dense, leads_to in dense_oracle(episode, gamma)
        ]
        np.testing.assert_allclose(values[row, : len(episode)], expected, rtol=1e-6)


def test_absolute_threshold():
    assert Threshold(0.7).levels(np.array([0.0, 5.0])) == Levels(0.7, usual=0.0, unit=1.0)
    assert RelativeThreshold(-0.5, None).levels(np.array([-2.0, -2.0, -1.0, -0.25])) == Levels(-0.5, usual=-2.0)
    assert RelativeThreshold(-0.5, None).levels(np.array([-0.25, 0.0])).high == np.inf  # everything would be high


@given(st.lists(st.sampled_from([k / 16 for k in range(17)]), min_size=1, max_size=50), st.floats(0, 100))
def test_percentile_threshold_is_high_and_positive_where_a_step_may_pay_nothing(rewards, percentile):
    """With few different rewards it is the highest."""
    rewards = np.array([0.0, *rewards], np.float32)
    levels, positive = RelativeThreshold(percentile=percentile).levels(rewards), rewards[rewards > 0]
    if not positive.size or len(set(rewards.tolist())) <= MOST_LEVELS:
        assert levels.high == (positive.max() if positive.size else np.inf)
    else:
        assert levels.high == max(np.percentile(rewards, percentile), positive.min())
    assert levels.high > 0 and levels.usual == 0


def test_a_safe_reward_is_not_high_however_rare_it_is():
    """A percentile alone would take 0.5 for high, whether 4 steps of a thousand pay it or 40."""
    for safe in (40, 400):
        rewards = np.array([0.0] * 10_000 + [0.5] * safe + [1.0] * 5, np.float32)
        assert RelativeThreshold(percentile=99).levels(rewards).high == 1.0


def test_percentile_by_hand():
    rewards = np.linspace(0.0, 1.0, 101)
    assert RelativeThreshold(percentile=99).levels(rewards).high == pytest.approx(0.99)
    assert RelativeThreshold(percentile=0).levels(rewards).high == pytest.approx(0.01)


WORLDS = {
    "level-based foraging": ([0.0] * 300 + [0.5], 0.0, 0.5),
    "a cost of every step": ([-0.01] * 300 + [0.99], -0.01, 0.99),
    "a bonus for every step": ([0.1] * 300 + [1.1, 1.1], 0.1, 1.1),
    "nothing is the best there is": ([-1.0] * 300 + [0.0], -1.0, 0.0),
    "forbidden moves are punished": ([0.0] * 200 + [-0.1] * 100 + [0.5], 0.0, 0.5),
    "always below zero": (list(-np.linspace(5.0, 0.1, 201)), -5.0, -0.149),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_percentile_fits_rewards_of_any_sign_and_size(name):
    rewards, usual, high = WORLDS[name]
    levels = RelativeThreshold(percentile=99).levels(np.array(rewards, np.float32))
    assert (levels.usual, levels.high) == pytest.approx((usual, high))
    assert levels.height(np.float32(levels.high)) == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-6, 0.5, 1e6])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 2.0])
def test_values_depend_on_neither_the_unit_nor_the_level_of_rewards(scale, shift):
    rewards, mask = HAND[None], np.array([[True, True, True, True, False]])
    other = (rewards * np.float32(scale) + np.float32(scale * shift)).astype(np.float32)
    found = [
        valuable(given, mask, RelativeThreshold(percentile=100).levels(given[mask]), GAMMA)
        for given in (rewards, other)
    ]
    np.testing.assert_allclose(found[0], [[0.0025, 0.05, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, -1.0, 1.0])
def test_nothing_stands_out_where_all_steps_pay_the_same(value):
    levels = RelativeThreshold(percentile=99).levels(np.full(10, value))
    assert levels.high == np.inf
    assert not valuable(np.full((1, 10), value, np.float32), np.ones((1, 10), bool), levels, GAMMA).any()


def test_what_is_said_if_nothing_was_found():
    text = RelativeThreshold(1.0, None).nothing_found(Collected(tasks=8, steps=4_000, lowest=0.0, best=0.5))
    assert text == (
        "stage 1 found no reward worth going for: method.threshold.reward is 1, and the best reward of 4,000 steps on 8"
        " training tasks was 0.5: start a new run (another --out) with --method.threshold.percentile 99, or"
        " --method.threshold.reward 0.5"
    )
    plain = Threshold(1.0).nothing_found(Collected(tasks=8, steps=4_000, lowest=0.0, best=0.5))
    assert plain == text.replace("threshold.percentile 99", "threshold RelativeThreshold")
    below = RelativeThreshold(1.0, None).nothing_found(Collected(tasks=8, steps=4_000, lowest=-9.0, best=-0.1))
    assert below.endswith("was -0.1: start a new run (another --out) with --method.threshold.percentile 99")
    same = RelativeThreshold(percentile=99.0).nothing_found(Collected(tasks=8, steps=4_000, lowest=0.0, best=0.0))
    assert "method.threshold.percentile is 99" in same and "all of them paid the same; make rewards easier" in same


@pytest.mark.parametrize("reward", [0.0, -0.5])
def test_a_reward_that_every_step_may_reach_is_no_threshold(reward):
    with pytest.raises(UsageError, match=f"reward must be above 0, not {reward}"):
        Threshold(reward)


@pytest.mark.parametrize("percentile", [-1.0, 100.5])
def test_impossible_percentiles_are_refused(percentile):
    with pytest.raises(UsageError, match=str(percentile)):
        RelativeThreshold(percentile=percentile)


def test_deduplicate_keeps_the_highest_value_in_canonical_order():
    features = np.array([[1, 0], [0, 1], [1, 0], [0, 1 + 1e-7], [0, 1.1]])
    values = np.array([0.05, 0.5, 1.0, 0.2, 0.3])
    distinct, best = deduplicate(features, values)
    np.testing.assert_allclose(distinct, [[0, 1], [0, 1.1], [1, 0]])
    np.testing.assert_allclose(best, [0.5, 0.3, 1.0])
    assert distinct.dtype == best.dtype == np.float32


@given(st.permutations(range(12)))
def test_deduplicate_does_not_depend_on_the_order(order):
    random = np.random.default_rng(0)
    features, values = random.integers(0, 2, (12, 3)).astype(np.float32), random.random(12)
    expected = deduplicate(features, values)
    found = deduplicate(features[list(order)], values[list(order)])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_deduplicate_of_nothing():
    distinct, best = deduplicate(np.zeros((0, 4), np.float32), np.zeros(0))
    assert distinct.shape == (0, 4)
    assert best.shape == (0,)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 40), st.integers(0, 3))
def test_balanced_subset(labels, capacity, seed):
    labels = np.array(labels)
    kept = balanced_subset(labels, capacity, np.random.default_rng(seed))
    np.testing.assert_array_equal(kept, balanced_subset(labels, capacity, np.random.default_rng(seed)))
    assert len(kept) == min(capacity, len(labels))
    assert len(set(kept)) == len(kept)
    before, after = (np.bincount(array, minlength=6) for array in (labels, labels[kept]))
    # Fair: a cluster that lost members has at least as many left as any other, less one for the remainder.
    thinned = after[after < before]
    assert thinned.size == 0 or thinned.min() >= after.max() - 1


def test_balanced_subset_lets_small_clusters_keep_all():
    labels = np.array([0] * 100 + [1] * 3 + [2] * 2)
    kept = balanced_subset(labels, 15, np.random.default_rng(0))
    assert np.bincount(labels[kept]).tolist() == [10, 3, 2]


def random_pairs(number: int = 40, size: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.normal(size=(number, size)).astype(np.float32), random.uniform(0.1, 1.0, number)


def build_subspace(
    features: np.ndarray, values: np.ndarray, capacity: int, num_clusters: int, seed: int, placement: str = "density"
) -> HighRewardSet:
    kind = CoverageReward if placement == "density" else partial(RecordReward, placement=placement)
    reward = kind(num_clusters=num_clusters, capacity=capacity)
    state = reward.subspace(EnvSpec(1, 1, Discrete(2), 1), features, values, seed)
    np.testing.assert_array_equal(state.visits, np.zeros(num_clusters))
    return state.subspace


def test_build_subspace_is_determined_by_its_seed():
    first, again, other = (build_subspace(*random_pairs(), 16, 4, seed) for seed in (1, 1, 2))
    for name in ("members", "values", "valid", "centroids", "cluster_valid"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.members, other.members)


def test_build_subspace_stores_members_with_their_values():
    features, values = random_pairs()
    subspace = build_subspace(features, values, 64, 4, 0)
    stored = {tuple(row): value for row, value in zip(features.tolist(), values, strict=True)}
    assert int(subspace.valid.sum()) == len(features)
    for member, value in zip(np.asarray(subspace.members)[:40].tolist(), subspace.values, strict=False):
        assert stored[tuple(member)] == pytest.approx(float(value), rel=1e-6)


def test_thinned_members_come_from_every_cluster():
    far = np.repeat(10.0 * np.eye(5), [30, 1, 2, 30, 30], axis=0)
    features = (far + np.random.default_rng(0).normal(scale=0.1, size=far.shape)).astype(np.float32)
    subspace = build_subspace(features, np.ones(len(features)), 12, 5, 0)
    largest = np.asarray(subspace.members)[np.asarray(subspace.valid)].argmax(axis=1)
    assert np.bincount(largest).tolist() == [3, 1, 2, 3, 3]


def test_spread_out_by_hand():
    """A crowd near 0 and few points far from it: the farthest first, then the one farthest from all chosen."""
    points = np.array([[0.0], [0.1], [0.2], [0.3], [4.0], [10.0]])
    assert spread_out(points, 3).tolist() == [5, 0, 4]
    assert spread_out(points, 9).tolist() == [5, 0, 4, 3, 1, 2]
    assert nearest(points, points[[5, 0, 4]]).tolist() == [1, 1, 1, 1, 2, 0]


def test_spread_clusters_are_few_where_much_was_seen():
    """Of four clusters three are among the three rare points; KMeans on the same pairs has at most two there."""
    crowd = np.linspace(0.0, 0.5, 200)[:, None]
    features = np.concatenate([crowd, [[2.0], [3.0], [4.0]]]).astype(np.float32)
    subspace = build_subspace(features, np.ones(len(features)), 16, 4, 0, "spread")
    np.testing.assert_allclose(np.sort(subspace.centroids[:, 0]), [0.0, 2.0, 3.0, 4.0])
    members = np.asarray(subspace.members)[np.asarray(subspace.valid)]
    assert len(members) == 16
    assert {2.0, 3.0, 4.0} <= set(members[:, 0].tolist())
    labels = np.asarray(subspace.member_cluster)
    np.testing.assert_allclose(np.asarray(subspace.centroids)[labels[-3:]], members[-3:])
    by_density = build_subspace(features, np.ones(len(features)), 16, 4, 0)
    assert np.sum(np.asarray(by_density.centroids) > 1.5) <= 2


def test_spread_clusters_never_outnumber_the_members():
    subspace = build_subspace(*random_pairs(), capacity=4, num_clusters=8, seed=0, placement="spread")
    assert np.asarray(subspace.cluster_valid).sum() == 4
    assert set(np.asarray(subspace.member_cluster)[:4].tolist()) == {0, 1, 2, 3}


match_of = jax.jit(match)


def test_padding_never_matches():
    """Padding is all zeros, and so is the point that is asked for: it is near nothing but a real member."""
    subspace = build_subspace(np.full((1, 2), 0.4, np.float32), np.array([0.7]), capacity=5, num_clusters=3, seed=0)
    assert np.asarray(subspace.valid).tolist() == [True] + 4 * [False]
    assert np.asarray(subspace.cluster_valid).tolist() == [True, False, False]
    origin = match_of(subspace, jnp.zeros(2), 0.5)
    assert (bool(origin.near), int(origin.cluster)) == (False, 0)
    assert float(match_of(subspace, jnp.zeros(2), 0.6).value) == pytest.approx(0.7)


def test_clusters_never_outnumber_the_members_that_stay():
    """A cluster without members can never be visited: it would keep the union from ever being covered."""
    subspace = build_subspace(*random_pairs(), capacity=4, num_clusters=8, seed=0)
    members = np.asarray(subspace.members)[np.asarray(subspace.valid)]
    reachable = {int(match_of(subspace, jnp.asarray(member), 0.1).cluster) for member in members}
    assert reachable == set(np.flatnonzero(subspace.cluster_valid))


matches_of = jax.jit(jax.vmap(match, in_axes=(None, 0, None)))


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_the_hash_of_every_member_is_its_label(seed, number):
    features = np.random.default_rng(seed).normal(size=(number, 4)).astype(np.float32)
    subspace = build_subspace(features, np.ones(number), capacity=64, num_clusters=6, seed=seed)
    distinct, _ = deduplicate(features, np.ones(number))
    with threadpool_limits(1):
        kmeans = KMeans(min(6, number), n_init=10, max_iter=100, random_state=seed).fit(distinct.astype(np.float64))
    found = matches_of(subspace, subspace.members, 0.5)
    np.testing.assert_array_equal(subspace.members[:number], distinct)
    np.testing.assert_array_equal(found.cluster[:number], kmeans.labels_)
    assert found.near[:number].all()
