"""Two rooms, a key and a door: what opens what, what ends an episode, and how layouts are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.types import Transition
from paper.envs.key_doors import (
    DOOR,
    GOAL,
    HAS_KEY,
    KEY,
    OPEN,
    ROOM,
    KeyDoorFamily,
    KeyDoors,
    KeyDoorState,
    KeyDoorTask,
)

UP, DOWN, LEFT, RIGHT, USE = range(5)
FAMILY = KeyDoorFamily(KeyDoors(width=3, height=3, horizon=20))
TASK = KeyDoorTask(jnp.array([0, 2]), jnp.array([3, 1]), jnp.array([5, 0]))
RANDOM = jax.random.key(0)


@jax.jit
def step(state: KeyDoorState, action: jax.Array):
    """State and outcome of a step, and what it has done."""
    env = FAMILY.env
    after, outcome = env.step(TASK, state, action, RANDOM)
    return after, outcome, FAMILY.configuration(Transition(env._observe(TASK, state), action, outcome.obs))


def walked(actions: list[int], place: tuple[int, int] = (0, 1)):
    """(place, reward, over, configuration, observation) after each action."""
    state = KeyDoorState(*jax.device_put((np.array(place, np.int32), np.array(False), np.array(False))))
    for action in actions:
        state, outcome, what = step(state, np.array([action], np.int32))
        yield (
            tuple(np.asarray(state.place).tolist()),
            float(outcome.reward),
            bool(outcome.terminated),
            int(what),
            np.asarray(outcome.obs)[0],
        )


def test_the_way_to_the_goal():
    way = [UP, USE, DOWN, RIGHT, RIGHT, USE, RIGHT, RIGHT, RIGHT, DOWN]
    seen = list(walked(way))
    assert [step[0] for step in seen] == [
        *[(0, 2), (0, 2), (0, 1), (1, 1), (2, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 0)],
    ]
    assert [step[1] for step in seen] == [0.0] * 9 + [1.0]
    assert [step[2] for step in seen] == [False] * 9 + [True]
    assert [step[3] for step in seen] == [-1, KEY, -1, -1, -1, DOOR, -1, -1, -1, GOAL]
    assert [float(step[4][HAS_KEY]) for step in seen] == [0.0] + [1.0] * 9
    assert [float(step[4][OPEN]) for step in seen] == [0.0] * 5 + [1.0] * 5
    assert [float(step[4][ROOM]) for step in seen] == [0.0] * 6 + [0.5] + [1.0] * 3
    np.testing.assert_allclose(seen[0][4][:8], np.array([0, 2, 0, 0, 3, -1, 5, -2]) / 7.0, rtol=1e-6)


def test_a_closed_door_and_walls_hold():
    assert [step[0] for step in walked([RIGHT, RIGHT, RIGHT, USE, RIGHT])][-1] == (2, 1), "no key, no way"
    assert [step[0] for step in walked([UP, USE, DOWN, RIGHT, RIGHT, RIGHT])][-1] == (2, 1), "a key alone opens nothing"
    assert [step[0] for step in walked([LEFT, UP, UP, UP])] == [(0, 1), (0, 2), (0, 2), (0, 2)]


def test_what_was_done_can_be_undone():
    put_back = list(walked([UP, USE, USE, USE]))
    assert [step[3] for step in put_back] == [-1, KEY, KEY, KEY]
    assert [float(step[4][HAS_KEY]) for step in put_back] == [0.0, 1.0, 0.0, 1.0]
    closed = list(walked([UP, USE, DOWN, RIGHT, RIGHT, USE, USE, RIGHT]))
    assert [step[3] for step in closed] == [-1, KEY, -1, -1, -1, DOOR, DOOR, -1]
    assert closed[-1][0] == (2, 1), "a door that was closed again"


def test_walkers_start_anywhere_in_the_first_room():
    starts = jax.jit(lambda key: jax.vmap(lambda key: FAMILY.env.reset(TASK, key)[0])(jax.random.split(key, 200)))
    places = starts(RANDOM).place
    assert {tuple(place) for place in np.asarray(places).tolist()} == {(x, y) for x in range(3) for y in range(3)}


def test_layouts_are_different_and_training_ones_do_not_depend_on_the_others():
    split, more = FAMILY.split(3, 30, 10), FAMILY.split(3, 30, 100)
    names = [
        FAMILY.describe(jax.tree.map(lambda leaf, i=i: leaf[i], part)).label
        for part in (split.train, split.test)
        for i in range(part.key.shape[0])
    ]
    assert len(set(names)) == 40
    np.testing.assert_array_equal(split.train.key, more.train.key)
    np.testing.assert_array_equal(split.test.goal, more.test.goal[:10])
    every = FAMILY.split(0, FAMILY.num_tasks, 0).train
    assert FAMILY.num_tasks == 243
    assert set(np.unique(every.key)) == {0, 1, 2} and set(np.unique(every.door[:, 0])) == {3}
    assert set(np.unique(every.goal[:, 0])) == {4, 5, 6} and set(np.unique(every.goal[:, 1])) == {0, 1, 2}
    with pytest.raises(UsageError, match="243 layouts"):
        FAMILY.split(0, 240, 4)


def test_rooms_need_room():
    with pytest.raises(UsageError, match="at least 2"):
        KeyDoors(width=1)
