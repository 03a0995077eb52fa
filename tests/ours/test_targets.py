"""Visits to targets, task by task, counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesax.methods.targets import TargetVisits, count_targets, longest_stays

TARGETS = np.array([3, 7])


def visits_of(tasks: list[int], episodes: list[list[int]], num_tasks: int) -> TargetVisits:
    visited = np.array(episodes)
    return count_targets(np.array(tasks), visited[..., None] == TARGETS, TARGETS, num_tasks)


def test_steps_chances_and_stays():
    """Two episodes on task 0, one on task 1, none on task 2."""
    found = visits_of([0, 1, 0], [[3, 3, 0, 3, 7], [7, 7, 0, 7, 7], [0, 0, 0, 0, 0]], 3)
    np.testing.assert_array_equal(found.steps, [[1.5, 0.5], [0.0, 4.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(found.chance, [[0.5, 0.5], [0.0, 1.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(found.stay, [[2.0, 1.0], [0.0, 2.0], [np.nan, np.nan]])
    document = found.document()
    assert document is not None
    assert document["worst"] == {"task": 1, "target": 3, "steps": 0.0, "chance": 0.0, "stay": 0.0}
    assert document["mean_steps"] == 1.5
    assert document["pairs"] == 4
    assert document["steps"] == [[1.5, 0.5], [0.0, 4.0], [None, None]]


def test_a_mean_hides_what_the_worst_shows():
    """Twenty tasks, one of which is left out: the mean is 9.5 of 10."""
    episodes = [[7] * 10 if task else [0] * 10 for task in range(20)]
    found = count_targets(np.arange(20), np.array(episodes)[..., None] == TARGETS[1:], TARGETS[1:], 20)
    assert np.mean(found.steps) == 9.5
    assert found.worst_tenth == pytest.approx(5.0)


def test_nothing_measured_is_no_number():
    empty = TargetVisits(TARGETS, *(np.full((2, 2), np.nan) for _ in range(3)))
    assert np.isnan(empty.worst_tenth)
    assert empty.document() is None


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_longest_stays_against_splitting(rows: list[list[bool]]):
    expected = [max(len(run) for run in "".join("x" if one else " " for one in row).split(" ")) for row in rows]
    np.testing.assert_array_equal(longest_stays(np.array(rows)[..., None])[:, 0], expected)
