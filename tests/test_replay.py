"""Replay against a list: the last episodes in order, whole, and nothing else."""

from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesax.replay import Replay
from mesax.types import Episode, Label

TIME, AGENTS = 2, 2


def episodes(numbers) -> Episode:
    """Episodes in which every leaf carries the episode's own number."""
    marks = np.asarray(numbers)

    def fill(*shape: int, dtype=np.float32):
        return np.broadcast_to(marks.reshape(-1, *(1,) * len(shape)), (len(marks), *shape)).astype(dtype)

    return Episode(
        obs=fill(TIME + 1, AGENTS, 1),
        action=fill(TIME, AGENTS, dtype=np.int32),
        reward=fill(TIME),
        terminated=fill(TIME, dtype=np.int32) % 2 == 0,
        mask=fill(TIME, dtype=np.int32) % 3 == 0,
        label=Label(fill(dtype=np.int32), np.zeros((len(marks), 0), np.float32)),
    )


EXAMPLE = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), episodes([0]))
add = jax.jit(Replay.add, static_argnames="first")
sample = jax.jit(Replay.sample, static_argnums=2)
SIZE = jax.jit(lambda replay: replay.size)


@cache
def empty(capacity: int, prioritized: bool = False) -> Replay:
    return jax.jit(lambda: Replay.create(EXAMPLE, capacity, prioritized=prioritized))()


def numbers_in(batch: Episode) -> list[int]:
    """The episodes' numbers, after making sure that no episode is a mixture."""
    batch = jax.tree.map(np.asarray, batch)
    expected = episodes(batch.label.actor)
    jax.tree.map(np.testing.assert_array_equal, batch, expected)
    return batch.label.actor.tolist()


@pytest.mark.parametrize("capacity", [3, 7])
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6), seed=st.integers(0, 2**16))
@settings(max_examples=12)
def test_replay_is_a_list_of_the_last_episodes(capacity: int, sizes: list[int], seed: int):
    replay, model = empty(capacity), []
    for size in sizes:
        fresh = list(range(len(model) + 1, len(model) + size + 1))
        replay, model = add(replay, episodes(fresh)), model + fresh
        held = model[-capacity:]
        assert (int(replay.added), int(SIZE(replay))) == (len(model), len(held))
        assert set(numbers_in(sample(replay, jax.random.key(seed), 16))) <= set(held)
    slots = {number: (number - 1) % capacity for number in held}
    ring = numbers_in(jax.tree.map(lambda leaf: np.asarray(leaf)[list(slots.values())], replay.episodes))
    assert ring == held


def test_every_episode_is_drawn_equally_often():
    replay = add(add(empty(7), episodes([1, 2, 3])), episodes([4, 5]))
    counts = np.bincount(numbers_in(sample(replay, jax.random.key(0), 10_000)), minlength=6)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:] / 10_000, np.full(5, 0.2), atol=0.02)


def test_episodes_are_drawn_by_their_priority():
    """Errors of 1, 4 and 16 weigh 1, 2 and 4 by their roots; a new episode weighs 10, and empty slots nothing."""
    rate = jax.jit(Replay.rated)
    replay = add(empty(5, prioritized=True), episodes([1, 2, 3]), first=100.0)
    np.testing.assert_array_equal(replay.priority, [100.0, 100.0, 100.0, 0.0, 0.0])
    replay = add(rate(replay, np.array([2, 0, 1]), np.array([16.0, 1.0, 4.0])), episodes([4]), first=100.0)
    draw = jax.jit(lambda replay, key: replay.sample_by_priority(key, 10_000, 0.5))
    batch, slots = draw(replay, jax.random.key(0))
    numbers = numbers_in(batch)
    np.testing.assert_array_equal(np.asarray(slots) + 1, numbers)
    counts = np.bincount(numbers, minlength=6)
    np.testing.assert_allclose(counts / 10_000, np.array([0, 1, 2, 4, 10, 0]) / 17, atol=0.02)
    alike = jax.jit(lambda replay, key: replay.sample_by_priority(key, 10_000, 0.0))(replay, jax.random.key(0))[1]
    np.testing.assert_allclose(np.bincount(alike, minlength=5) / 10_000, [0.25] * 4 + [0], atol=0.02)
    # What was learned perfectly stays within reach, and who takes its place is new.
    assert np.asarray(rate(replay, np.array([0]), np.array([0.0])).priority)[0] > 0.0
    np.testing.assert_array_equal(add(replay, episodes([5, 6]), first=9.0).priority, [9.0, 4.0, 16.0, 100.0, 9.0])


def test_a_whole_ring_can_be_replaced_at_once():
    replay = add(add(empty(3), episodes([1])), episodes([2, 3, 4]))
    assert sorted(numbers_in(replay.episodes)) == [2, 3, 4]


def test_more_than_the_ring_holds_is_refused():
    with pytest.raises(ValueError, match="cannot add 4 episodes to a replay of 3"):
        empty(3).add(episodes([1, 2, 3, 4]))


def test_shapes_and_types_are_those_of_the_example():
    replay = empty(3)
    assert replay.capacity == 3
    for stored, example in zip(jax.tree.leaves(replay.episodes), jax.tree.leaves(EXAMPLE), strict=True):
        assert (stored.shape, stored.dtype) == ((3, *example.shape), example.dtype)


def test_replays_can_be_batched():
    batches = jax.tree.map(lambda *leaves: np.stack(leaves), episodes([1, 2]), episodes([5, 6]))
    lanes = jax.jit(jax.vmap(lambda batch: Replay.create(EXAMPLE, 3).add(batch)))(batches)
    np.testing.assert_array_equal(lanes.added, [2, 2])
    np.testing.assert_array_equal(np.asarray(lanes.episodes.label.actor)[:, :2], [[1, 2], [5, 6]])
