"""Pictures of climb games show the true payoffs, what was played and what it earned, at any size of the game."""

from dataclasses import replace
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from mesax.envs.climb import ClimbGame
from mesax.suites.climb.render import MOST_STAGES, ClimbPlay, Moment, draw, moments, still

SIZES = {  # stages, agents, actions, whether episodes differ
    "one stage": (1, 2, 10, False),
    "one stage, chance": (1, 2, 10, True),
    "five stages": (5, 2, 10, False),
    "seven stages, chance": (7, 2, 3, True),
    "three agents": (2, 3, 5, True),
    "seven agents": (3, 7, 4, False),
    "one agent": (1, 1, 7, True),
    "one agent, many actions": (1, 1, 200, False),
    "many actions": (1, 2, 1_000, True),
    "smallest": (1, 2, 2, False),
    "too many stages": (MOST_STAGES + 3, 2, 4, False),
}
LONG_TITLE = "long title"


def make_play(stages: int, agents: int, actions: int, varies: bool, episodes: int = 30) -> ClimbPlay:
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
    rewards = np.where(hits == counts, 1.0, np.where(hits == 0, 0.5, 0.0))
    return ClimbPlay("mesa on a game, test task 0: policy final", targets, actions, 0.5, played, rewards)


@pytest.fixture(scope="module")
def plays() -> dict[str, ClimbPlay]:
    made = {name: make_play(*size) for name, size in SIZES.items()}
    return made | {LONG_TITLE: replace(made["one stage, chance"], title="a title of many words " * 8)}


def texts(figure: Figure) -> list[str]:
    return [text for artist in figure.findobj(lambda one: hasattr(one, "get_text")) if (text := artist.get_text())]


@pytest.mark.parametrize("agents, actions", [(1, 3), (2, 3), (3, 3), (4, 2)])
def test_payoffs_are_those_of_the_game(agents, actions):
    game = ClimbGame(agents, actions)
    for count, special in product(range(1, agents + 1), range(actions)):
        for joint in product(range(actions), repeat=agents):
            play = ClimbPlay("", [(count, special)], actions, 0.5, np.array([[joint]]), np.zeros((1, 1)))
            levels, cell = play.levels(0, 0), play.cell(0, 0)
            expected = game.reward(jnp.array(count), jnp.array(special), jnp.array(joint))
            assert [0.0, 0.5, 1.0][levels[cell]] == expected
            assert levels.shape == ((1 if agents == 1 else actions), actions)


def test_visits_are_counted_by_hand():
    actions = np.array([[[0, 1]], [[0, 1]], [[2, 0]], [[1, 1]]])
    play = ClimbPlay("", [(1, 0)], 3, 0.5, actions, np.zeros((4, 1)))
    assert play.visits(0, 3).tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert play.visits(0, 0).sum() == 0 and play.varies


@pytest.mark.parametrize("name", [*SIZES, LONG_TITLE])
def test_every_size_of_game_is_drawn_legibly(plays, name):
    play = plays[name]
    figure = draw(play, still(play))
    shown = min(play.num_stages, MOST_STAGES)
    assert len(figure.axes) == shown * (1 + play.varies) + play.varies
    drawn = "\n".join(texts(figure))
    for stage, (count, special) in enumerate(play.targets[:shown]):
        assert f"k={count}, u={special}" in drawn
        assert f"reward {play.rewards[0, stage]:.3g}" in drawn
    assert (f"first 2 of {play.num_agents} agents" in drawn) == (play.num_agents > 2)
    assert (f"first {MOST_STAGES} of {play.num_stages} stages" in drawn) == (play.num_stages > MOST_STAGES)
    assert ("visits" in drawn) == play.varies
    figure.canvas.draw()
    for text in figure.findobj(lambda one: hasattr(one, "get_text")):
        if text.get_text():
            box = text.get_window_extent()
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside or not text.get_visible(), text.get_text()


def test_a_panel_marks_the_played_cell_and_the_special_action(plays):
    play = plays["five stages"]
    for stage, axes in enumerate(draw(play, still(play)).axes):
        (frame,) = (line for line in axes.lines if line.get_marker() == "s")
        assert (frame.get_ydata()[0], frame.get_xdata()[0]) == play.cell(0, stage)
        np.testing.assert_array_equal(axes.images[0].get_array(), play.levels(0, stage))
        (bold,) = (label for label in axes.get_xticklabels() if label.get_weight() == "bold")
        assert bold.get_text() == str(play.targets[stage][1])
        assert f"return so far {play.rewards[0, : stage + 1].mean():.2f}" in axes.get_xlabel()


def test_frames_walk_through_the_stages(plays):
    play = plays["five stages"]
    frames = list(moments(play))
    assert [frame.played for frame in frames] == [0, 1, 2, 3, 4, 5, 5]
    labels = [sum(bool(axes.get_xlabel()) for axes in draw(play, frame).axes) for frame in frames[:3]]
    assert labels == [0, 1, 2]
    assert frames[-1].seconds > frames[0].seconds


def test_frames_of_chance_show_several_episodes_and_growing_visits():
    play = make_play(1, 2, 4, varies=True, episodes=60)
    frames = list(moments(play))
    assert [frame.episode for frame in frames] == [*range(12), 24, 49, 59]
    assert [frame.visits for frame in frames] == [frame.episode + 1 for frame in frames]
    counts = [draw(play, frame).axes[1].images[0].get_array().sum() for frame in (frames[0], frames[-1])]
    assert counts == [1, 60]
    stages = make_play(3, 2, 4, varies=True)
    visits = [axes.images[0].get_array().sum() for axes in draw(stages, Moment(1, 2, 2)).axes[1:6:2]]
    assert visits == [2, 2, 1], "the third stage of this episode has not been played yet"


def test_a_play_draws_its_still_and_its_moments(plays):
    play = plays["five stages"]
    assert texts(play.picture()) == texts(draw(play, still(play)))
    frames = list(play.frames())
    assert [seconds for _, seconds in frames] == [moment.seconds for moment in moments(play)]
    assert [texts(figure) for figure, _ in frames[:2]] == [texts(draw(play, one)) for one in list(moments(play))[:2]]
