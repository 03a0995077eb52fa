"""Scenes of climb games show the true payoffs, and what was played."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.climb import ClimbGame
from mesax.rendering.scene import Scene
from mesax.suites.climb.render import board


def climb_scene(stages: int, agents: int, actions: int, varies: bool = True, episodes: int = 30) -> Scene:
    """Random play of a random task; rewards by the rule of the game."""
    random = np.random.default_rng([stages, agents, actions])
    targets = [(int(random.integers(1, agents + 1)), int(random.integers(actions))) for _ in range(stages)]
    played = random.integers(0, actions, (episodes, stages, agents))
    for stage, (count, special) in enumerate(targets[::2]):
        played[:, 2 * stage, :count] = special
    if varies:
        played[1] = (played[0] + 1) % actions
    else:
        played[:] = played[:1]
    hits = np.sum(played == np.array([special for _, special in targets])[:, None], axis=-1)
    counts = np.array([count for count, _ in targets])
    return board(targets, actions, 0.5, played, np.where(hits == counts, 1.0, np.where(hits == 0, 0.5, 0.0)))


@pytest.mark.parametrize("actions", [2, 3])
def test_areas_are_the_payoffs_of_the_game(actions):
    game = ClimbGame(2, actions)
    for count, special in product((1, 2), range(actions)):
        scene = board([(count, special)], actions, 0.5, np.zeros((1, 1, 2), int), np.zeros((1, 1)))
        for joint in product(range(actions), repeat=2):
            covering = [
                shape.role
                for shape in scene.shapes
                if abs(joint[1] - shape.center[0]) < shape.size[0] / 2
                and abs(-joint[0] - shape.center[1]) < shape.size[1] / 2
            ]
            expected = game.reward(jnp.array(count), jnp.array(special), jnp.array(joint))
            assert {"high": 1.0, "safe": 0.5, "low": 0.0}[covering[-1]] == expected


def test_stages_are_shown_one_after_another():
    scene = climb_scene(3, 2, 4)
    for step in (1, 2, 3):
        shown = scene.shapes_at(step)
        assert len(shown) == 4 and {shape.step for shape in shown} == {step}
        assert shown[0].label.startswith("k=")
    assert scene.shapes_at(0) == scene.shapes_at(1) and scene.is_board


@pytest.mark.parametrize("agents", [1, 3])
def test_other_teams_have_a_row_each(agents):
    scene = climb_scene(2, agents, 5)
    assert scene.view == (-0.5, 4.5, 0.5 - agents, 0.5)
    assert [shape.role for shape in scene.shapes] == ["low", "target"] * 2
    take = scene.takes[0]
    assert take.points.shape == (3, agents, 2) and np.isnan(take.points[0]).all()
    assert take.points[1:, :, 1].tolist() == [[-agent for agent in range(agents)]] * 2
