"""Pictures of episodes show the true payoffs, what was played and what it earned, at any size of the game."""

import shutil
from itertools import product
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from experiments.test_runner import command_line, finished_run
from mesax.cli import USAGE
from mesax.envs.climb import ClimbGame
from mesax.errors import StoreError
from mesax.experiments import render
from mesax.experiments.render import MOST_STAGES, Moment, Play, draw, moments, play_policy, still, write_gif
from mesax.experiments.request import Request
from mesax.experiments.store import RunDirectory

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


def make_play(stages: int, agents: int, actions: int, varies: bool, episodes: int = 30) -> Play:
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
    return Play("mesa on a game, test task 0: policy final", targets, actions, 0.5, played, rewards)


@pytest.fixture(scope="module")
def plays() -> dict[str, Play]:
    return {name: make_play(*size) for name, size in SIZES.items()}


def texts(figure: Figure) -> list[str]:
    return [text for artist in figure.findobj(lambda one: hasattr(one, "get_text")) if (text := artist.get_text())]


@pytest.mark.parametrize("agents, actions", [(1, 3), (2, 3), (3, 3), (4, 2)])
def test_payoffs_are_those_of_the_game(agents, actions):
    game = ClimbGame(agents, actions)
    for count, special in product(range(1, agents + 1), range(actions)):
        for joint in product(range(actions), repeat=agents):
            play = Play("", [(count, special)], actions, 0.5, np.array([[joint]]), np.zeros((1, 1)))
            levels, cell = play.levels(0, 0), play.cell(0, 0)
            expected = game.reward(jnp.array(count), jnp.array(special), jnp.array(joint))
            assert [0.0, 0.5, 1.0][levels[cell]] == expected
            assert levels.shape == ((1 if agents == 1 else actions), actions)


def test_visits_are_counted_by_hand():
    actions = np.array([[[0, 1]], [[0, 1]], [[2, 0]], [[1, 1]]])
    play = Play("", [(1, 0)], 3, 0.5, actions, np.zeros((4, 1)))
    assert play.visits(0, 3).tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert play.visits(0, 0).sum() == 0 and play.varies


@pytest.mark.parametrize("name", SIZES)
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


def test_a_gif_holds_all_frames_at_one_size(tmp_path):
    play = make_play(1, 2, 4, varies=True, episodes=5)
    write_gif(play, tmp_path / "new" / "play.gif")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["play.gif"]
    with Image.open(tmp_path / "new" / "play.gif") as image:
        assert image.info["loop"] == 0
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
    assert len(frames) == 5, "an episode each; the last, which looks the same twice, is one long frame"
    assert sum(duration for _, duration in frames) == 1_000 * sum(moment.seconds for moment in moments(play))
    assert len({frame.size for frame, _ in frames}) == 1
    assert {frame.getpixel((1, 1)) for frame, _ in frames} == {(255, 255, 255)}


def test_a_gif_that_cannot_be_written_is_one_line(plays, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(render, "moments", lambda play: [still(play)])
    with pytest.raises(StoreError, match=r"play\.gif cannot be written"):
        write_gif(plays["smallest"], tmp_path / "file" / "play.gif")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("render") / "run"
    shutil.copytree(finished_run(tmp_path_factory), path)
    return path


def test_render_draws_the_final_policy(run, tmp_path, capsys):
    gif = tmp_path / "final.gif"
    assert command_line("render", run, "--task", 1, "--gif", gif) == 0
    drawn = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    base = run / "figures" / "episode-task-01-final"
    assert drawn == [f"{base}.png", f"{base}.svg", str(gif)]
    assert all(Path(path).stat().st_size > 1_000 for path in drawn)
    before = Path(drawn[0]).read_bytes()
    assert command_line("render", run, "--task", 1, "--gif", gif) == 0
    assert Path(drawn[0]).read_bytes() == before, "the same episode every time"


def test_render_draws_what_an_explorer_visits(run, monkeypatch):
    monkeypatch.setattr(render, "moments", lambda play: [still(play)])
    assert command_line("render", run, "--policy", "explorer-1") == 0
    assert (run / "figures" / "episode-task-00-explorer-1.gif").is_file()


def test_uniform_play_earns_what_chance_earns(run):
    directory = RunDirectory.open(run)
    play = play_policy(directory, Request.of_run(directory.run).experiment(), 0, "uniform")
    ((count, special),) = directory.run["test_tasks"][0]["target"]
    hits = np.sum(play.actions[:, 0] == special, axis=-1)
    np.testing.assert_array_equal(play.rewards[:, 0], np.where(hits == count, 1.0, np.where(hits == 0, 0.5, 0.0)))
    assert play.varies and play.actions.shape == (render.EPISODES, 1, 2)
    assert len(np.unique(play.actions)) == play.num_actions


@pytest.mark.parametrize(
    "arguments, needles",
    [
        (["--task", "2"], ["no test task 2", "0 to 1"]),
        (["--task", "-1"], ["no test task -1", "0 to 1"]),
        (["--policy", "best"], ["'best'", "final, uniform, explorer-1"]),
        (["--policy", "../x"], ["'../x'", "final, uniform, explorer-1"]),
        (["--gif", "movie.mp4"], ["movie.mp4", ".gif"]),
        (["--gif", "."], ["--gif .", ".gif"]),
    ],
)
def test_bad_requests_are_one_line_and_draw_nothing(run, tmp_path, capsys, monkeypatch, arguments, needles):
    monkeypatch.chdir(tmp_path)
    before = sorted((run / "figures").iterdir())
    assert command_line("render", run, *arguments) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert all(needle in line for needle in needles), line
    assert sorted((run / "figures").iterdir()) == before and not list(tmp_path.iterdir())
