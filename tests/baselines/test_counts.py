"""C-BET's counts by hand: what the first and the next visits pay, whose tables they are, and when they are cleared."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from mesax.baselines.counts import ActionKeys, BinnedEntries, CountReward, PlaceKeys, ProjectedKeys, mixed
from mesax.errors import UsageError
from mesax.types import Discrete, EnvSpec, Episode, Label, Transition

SPEC = EnvSpec(num_agents=1, obs_size=2, action_space=Discrete(3), horizon=4)
COUNTS = CountReward(BinnedEntries((0,), width=1.0), reset_chance=0.0, buckets=512, copies=2)
KEY = jax.random.key(0)


def episodes(*walks: list[float], steps: int | None = None) -> Episode:
    """Walkers at these places; the task pays 9 at every step and ends with the last one that happens."""
    places = np.array(walks, np.float32)
    number, time = places.shape[0], places.shape[1] - 1
    obs = np.stack([places, np.zeros_like(places)], axis=-1)[:, :, None]
    happened = np.broadcast_to(np.arange(time) < (time if steps is None else steps), (number, time))
    ends = happened & ~np.pad(happened, ((0, 0), (0, 1)))[:, 1:]
    label = Label(*jax.device_put((np.zeros(number, np.int32), np.zeros((number, 0), np.float32))))
    action, reward = np.zeros((number, time, 1), np.int32), np.full((number, time), 9.0, np.float32)
    return Episode(*jax.device_put((obs, action, reward, ends, happened)), label)


@partial(jax.jit, static_argnums=(0, 3))
def paid(model: CountReward, played: Episode, state=None, spec: EnvSpec = SPEC):
    """(tables after these episodes, the episodes as they are learned from, what is reported of the tables)."""
    state = model.begin(spec, (), KEY) if state is None else state
    state, seen = model.observe(spec, state, played, KEY)
    return state, seen, model.report(state)


def test_a_first_transition_pays_one_half_and_repeats_pay_less():
    state, seen, figures = paid(COUNTS, episodes([0, 1, 2, 1, 2]))
    # New place and new change; new place, known change; known place (1), new change (-1); both known.
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1 / 2, 1 / 3, 1 / 3, 1 / 5], rtol=1e-6)
    np.testing.assert_allclose(state.repeats, [2 / 4, 2 / 4])
    assert not np.any(seen.terminated), "nothing is terminal to whoever explores"
    assert np.asarray(seen.obs)[0, :, 0, 0].tolist() == [0, 1, 2, 1, 0], (
        "where the task ends, it goes on at a fresh start"
    )
    assert np.asarray(seen.restarted)[0].tolist() == [False, False, False, True], "and whoever remembers is told so"
    assert float(figures["state_occupancy"]) == pytest.approx(2 / 1024)
    assert float(figures["change_occupancy"]) == pytest.approx(2 / 1024)


def test_tables_last_from_round_to_round_and_every_copy_has_its_own():
    state, seen, _ = paid(COUNTS, episodes([0, 1, 2], [0, 1, 2]))
    np.testing.assert_allclose(seen.reward, [[1 / 2, 1 / 3]] * 2, rtol=1e-6)
    _, seen, _ = paid(COUNTS, episodes([0, 1, 2], [0, 5, 9]), state)
    np.testing.assert_allclose(seen.reward, [[1 / 5, 1 / 6], [1 / 2, 1 / 2]], rtol=1e-6)


def test_a_table_counts_every_episode_that_it_serves():
    """Three walkers on one table: each finds what those before it have just been paid for."""
    state, seen, _ = paid(replace(COUNTS, copies=1), episodes([0, 1, 2], [0, 1, 2], [0, 1, 5]))
    np.testing.assert_allclose(seen.reward, [[1 / 2, 1 / 5], [1 / 4, 1 / 7], [1 / 6, 1 / 2]], rtol=1e-6)
    counts = np.asarray(state.count)
    assert sorted(counts[0][counts[0] > 0]) == [1, 2, 3] and counts.sum(axis=1).tolist() == [6, 6]


def test_the_same_change_may_be_another_one_elsewhere():
    there = replace(COUNTS, keys=BinnedEntries((0,), width=1.0, where=True))
    _, seen, _ = paid(there, episodes([0, 1, 2, 1, 2]))
    # A step to the right onto 1, onto 2, to the left onto 1, and to the right onto 2 once more.
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1 / 2, 1 / 2, 1 / 3, 1 / 4], rtol=1e-6)


def test_states_alone():
    _, seen, _ = paid(replace(COUNTS, changes=False), episodes([0, 1, 2, 1, 1]))
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1, 1, 1 / 2, 1 / 3], rtol=1e-6)


def test_cleared_tables_know_nothing():
    _, seen, figures = paid(replace(COUNTS, reset_chance=1.0), episodes([0, 1, 2, 1, 2]))
    np.testing.assert_allclose(np.asarray(seen.reward)[0], 1 / 2)
    assert float(figures["state_occupancy"]) == pytest.approx(1 / 1024), "one step of one copy"


def test_steps_that_never_happened_are_neither_paid_nor_counted():
    state, seen, _ = paid(COUNTS, episodes([0, 1, 2, 3, 4], steps=2))
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1 / 2, 1 / 3, 0, 0], rtol=1e-6)
    assert np.sum(np.asarray(state.count)[0] > 0) == 2


def team(places: list[list[float]]) -> Episode:
    """Two agents on one line, `places[time][agent]`."""
    one = episodes([0.0] * len(places))
    obs = np.array(places, np.float32)[None, :, :, None] * np.array([1.0, 0.0], np.float32)
    obs, action = jax.device_put((obs, np.zeros((1, len(places) - 1, 2), np.int32)))
    return replace(one, obs=obs, action=action)


def test_agents_count_by_themselves_or_together():
    spec = replace(SPEC, num_agents=2)
    played = team([[0, 0], [1, 1], [2, 1]])
    _, seen, _ = paid(COUNTS, played, None, spec)
    # The second agent stays: its place is known, its change is new.
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1 / 2, (1 / 3 + 1 / 3) / 2], rtol=1e-6)
    _, seen, _ = paid(replace(COUNTS, joint=True), played, None, spec)
    np.testing.assert_allclose(np.asarray(seen.reward)[0], [1 / 2, 1 / 2], rtol=1e-6)


def test_key_maps():
    spec = EnvSpec(2, 6, Discrete(3), 4)
    before = np.array([[1.0, 0, 0.5, 0.0, -0.5, 0.0], [0, 1, 0.1, 0.0, -0.9, 0.0]], np.float32)
    after = before - np.array([[0, 0, 0.4, 0.0, 0.4, 0.0]], np.float32)
    action = np.array([2, 0], np.int32)

    @jax.jit
    def keys(before: jax.Array, action: jax.Array, after: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        step = Transition(before, action, after)
        return [which(spec, step) for which in (ActionKeys(seen=2), PlaceKeys(num_points=2), ProjectedKeys(rows=5))]

    (state, change), of_places, projected = keys(before, action, after)
    np.testing.assert_array_equal(state, [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]])
    np.testing.assert_array_equal(change, [[0, 0, 1], [1, 0, 0]])
    # Two points at offsets (.5, 0) and (-.5, 0): the first agent moves right by .4 and comes upon the first of them.
    state, change = of_places
    np.testing.assert_array_equal(state, [[-2, 0], [-4, 0]])
    np.testing.assert_array_equal(change, [[-2, 0, -1, 0], [-2, 0, 0, -1]])
    state, change = projected
    assert state.shape == change.shape == (2, 5) and np.abs(np.asarray(state)).max() <= 1
    _, _, (same, none) = keys(after, action, after)
    np.testing.assert_array_equal(same, state)
    assert not np.any(none)


def test_hashes_spread_neighbors_over_all_buckets():
    line = np.arange(-20, 20, dtype=np.int32)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    hashes = np.asarray(jax.jit(jax.vmap(mixed))(grid))
    assert len(np.unique(hashes)) == 1_600
    filled = np.bincount(hashes % 64, minlength=64)
    assert filled.min() > 5 and filled.max() < 60, "25 on average"


def test_impossible_tables_are_refused():
    with pytest.raises(UsageError, match="copies x buckets"):
        replace(COUNTS, buckets=0)
    with pytest.raises(UsageError, match="reset-chance"):
        replace(COUNTS, reset_chance=1.5)
    with pytest.raises(UsageError, match="width must be above 0"):
        BinnedEntries((0,), width=0.0)
