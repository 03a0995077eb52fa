"""Scenes of episodes: coordinates, moments, rewards and visits against numbers computed by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from mesax.rendering.scene import Scene, Shape, Take, changes, moments, since
from mesax.suites.climb.render import board
from mesax.suites.foreign.render import scene as plain_scene
from mesax.types import Box, Discrete


def test_moments_keep_both_ends():
    assert moments(3).tolist() == [0, 1, 2, 3]
    long = moments(1_000)
    assert len(long) == 121 and (long[0], long[-1]) == (0, 1_000)


def test_rewards_since_the_moment_before():
    assert since(np.array([1.0, 0.5, 0.0, 2.0]), np.array([0, 2, 4])).tolist() == [0.0, 1.5, 2.0]


def test_changes_of_place():
    assert changes(np.array([-1, -1, 3, 3, -1, 3])) == [(3, 3), (5, -1), (6, 3)]
    assert changes(np.array([0, 0])) == [(1, 0)]


def test_coordinates_are_parts_of_the_view_and_y_points_down():
    take = Take(np.arange(2), np.array([0, 1 / 3]), np.array([[[-1.0, 2.0]], [[np.nan, np.nan]]]))
    scene = Scene("", (-1.0, 1.0, 0.0, 4.0), (take,), (Shape("disc", (0.0, 1.0), (0.5, 1.0), "target", "a", place=2),))
    assert scene.episodes() == [
        {"steps": [0, 1], "rewards": [0, 0.333], "agents": 1, "points": [0, 500, -1, -1], "visits": []}
    ]
    stage = scene.stage()
    shape = {"kind": "disc", "role": "target", "at": [500, 750], "size": [250.0, 250.0], "label": "a", "place": 2}
    assert stage["shapes"] == [shape] and stage["aspect"] == 2.0


def test_climb_game_of_two_is_a_matrix_and_of_three_a_row_each():
    scene = board([(2, 1)], 3, 0.5, np.array([[[1, 2]], [[1, 1]]]), np.array([[0.0], [1.0]]))
    areas = [(shape.role, shape.center, shape.size) for shape in scene.shapes]
    cells = [
        ("safe", (1.0, -1.0), (3, 3)),
        ("low", (1.0, -1), (3, 1)),
        ("low", (1, -1.0), (1, 3)),
        ("high", (1, -1), (1, 1)),
    ]
    assert areas == cells and scene.mean_return and scene.is_board
    first, second = scene.episodes()
    assert first["points"] == [-1, -1, 833, 500], "row of agent 1's action, column of agent 2's"
    assert second["visits"] != first["visits"]
    trio = board([(2, 1), (3, 0)], 3, 0.5, np.array([[[1, 2, 1], [0, 0, 0]]]), np.array([[1.0, 1.0]]))
    targets = [(shape.center[0], shape.step) for shape in trio.shapes if shape.role == "target"]
    assert targets == [(1, 1), (0, 2)]
    assert trio.episodes()[0]["agents"] == 3 and len(trio.episodes()[0]["visits"]) == 2


def test_returns_are_sums_or_means_and_end_at_a_moment():
    take = Take(np.array([0, 2, 4]), np.array([0.0, 1.5, 2.0]), np.zeros((3, 1, 2)))
    scene = Scene("", (0.0, 1.0, 0.0, 1.0), (take,))
    assert (scene.return_of(take), scene.return_of(take, 1), scene.return_of(take, 0)) == (3.5, 1.5, 0.0)
    mean = Scene("", (0.0, 1.0, 0.0, 1.0), (take,), mean_return=True)
    assert mean.return_of(take) == 0.875 and scene.reward_limits() == (0.0, 1.0)


@pytest.mark.parametrize("space", [Discrete(5), Box(1)])
def test_any_other_world(space):
    action = np.array([[2, 4], [1, 0]])
    action = action[..., None] if isinstance(space, Box) else action
    label = SimpleNamespace(label="seed 3")
    env = SimpleNamespace(spec=SimpleNamespace(action_space=space))
    family = SimpleNamespace(env=env, describe=lambda task: label)
    episodes = SimpleNamespace(action=action[None], reward=np.array([[0.0, 2.0]]), mask=np.ones((1, 2), bool))
    scene = plain_scene(family, None, episodes)
    (take,) = scene.episodes()
    assert take["rewards"] == [0, 0, 2] and take["points"] == [] and not scene.has_arena
    assert take["curves"] == [[2, 2, 1], [4, 4, 0]] and scene.curves == ("agent 1", "agent 2")
    assert "Task seed 3" in scene.about
