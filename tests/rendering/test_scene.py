"""Scenes of episodes: coordinates, moments, rewards and visits against numbers computed by hand."""

import json

import numpy as np
import pytest

from mesax.rendering.scene import Scene, Shape, Take, changes, choice_board, moments, since
from mesax.suites.climb.render import ClimbPlay
from mesax.suites.foreign.render import ForeignPlay
from mesax.suites.particles.render import ParticlePlay
from mesax.suites.swimmer.render import REACH, SwimmerPlay


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


def test_choice_board():
    view, shapes, points = choice_board(4, np.array([[0, 3], [2, 1]]), [1, 3])
    assert view == (-0.5, 3.5, -1.5, 0.5)
    assert [(shape.role, shape.center[0], shape.step) for shape in shapes] == [
        ("low", 1.5, None),
        ("target", 1, 1),
        ("target", 3, 2),
    ]
    assert np.isnan(points[0]).all() and points[1:].tolist() == [[[0, 0], [3, -1]], [[2, 0], [1, -1]]]


def test_particles():
    ways = np.zeros((1, 4, 2, 2))
    ways[0, :, 0, 0] = [-1.0, -0.5, 0.0, 0.5]
    play = ParticlePlay(
        *("title", np.array([[0.5, 0.0], [-0.5, 0.5]]), 1, 2, 0.2, 0.05, 1.0, 0.5, ways),
        rewards=np.array([[0.0, 0.5, 1.0]]),
        configurations=np.array([[-1, 0, 0]]),
    )
    scene = play.scene()
    assert [shape.role for shape in scene.shapes] == ["wall", "place", "target"] and scene.trails
    (take,) = scene.episodes()
    assert take["visits"] == [[2, 0]] and take["rewards"] == [0, 0, 0.5, 1]
    room = 1.04
    assert take["points"][:4] == [round(1000 * (room - 1) / (2 * room)), 500, 500, 500]


def test_climb_game_of_two_is_a_matrix_and_of_three_a_row_each():
    play = ClimbPlay("title", [(2, 1)], 3, 0.5, np.array([[[1, 2]], [[1, 1]]]), np.array([[0.0], [1.0]]))
    scene = play.scene()
    areas = [(shape.role, shape.center, shape.size) for shape in scene.shapes]
    cells = [
        ("safe", (1.0, -1.0), (3, 3)),
        ("low", (1.0, -1), (3, 1)),
        ("low", (1, -1.0), (1, 3)),
        ("high", (1, -1), (1, 1)),
    ]
    assert areas == cells and scene.mean_return and not scene.trails
    first, second = scene.episodes()
    assert first["points"] == [-1, -1, 833, 500], "row of agent 1's action, column of agent 2's"
    assert second["visits"] != first["visits"]
    trio = ClimbPlay(
        "title", [(2, 1), (3, 0)], 3, 0.5, np.array([[[1, 2, 1], [0, 0, 0]]]), np.array([[1.0, 1.0]])
    ).scene()
    assert [(shape.role, shape.label, shape.step) for shape in trio.shapes[1:]] == [
        ("target", "1", 1),
        ("target", "0", 2),
    ]
    assert trio.episodes()[0]["agents"] == 3 and len(trio.episodes()[0]["visits"]) == 2


def test_swimmer_shows_its_body_and_where_it_ought_to_be():
    angles = np.zeros((1, 3, 2))
    play = SwimmerPlay(
        *("title", 90.0, 3.0, 0.5, angles, np.zeros((1, 3)), np.array([[0.5, 1.0]]), np.array([2])),
        places=np.array([[4, 4]]),
    )
    scene = play.scene()
    (take,) = scene.takes
    length = REACH / 1.75
    assert np.allclose(take.chains[2][0], length * np.array([[1.5, 0], [0.5, 0], [-0.5, 0], [-1.5, 0]])), (
        "a straight body"
    )
    assert np.allclose(take.chains[0][0], length * np.array([[0.5, -1.0], [0.5, 0.0]])), (
        "the head turned by -90 degrees"
    )
    assert np.allclose(take.chains[1][0], length * np.array([[-0.5, 0.0], [-0.5, -1.0]]))
    assert scene.band == (87.0, 93.0) and take.visits == [(1, 4)]
    assert json.dumps(scene.episodes()) and scene.stage()["chains"] == ["target", "target", "body"]


@pytest.mark.parametrize("choices", [5, None])
def test_any_other_world(choices):
    actions = np.array([[[0.0], [1.0]], [[0.5], [0.25]]])
    scene = ForeignPlay("title", "seed 3", np.array([0.0, 2.0]), np.array([2.0]), actions, choices).scene()
    (take,) = scene.episodes()
    assert take["rewards"] == [0, 0, 2]
    if choices is None:
        assert take["curves"] == [[0, 0, 0.5], [1, 1, 0.25]] and take["points"] == []
    else:
        assert take["agents"] == 2 and take["points"][:4] == [-1] * 4 and "curves" not in take
