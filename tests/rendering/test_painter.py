"""Pictures of scenes: boards, ways and bodies are where they were, of any size, and every text is inside."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle, StepPatch
from PIL import Image, ImageSequence

from mesax.rendering import painter
from mesax.rendering.canvas import AGENTS, EDGE, INK, MARK, OPTIMAL
from mesax.rendering.episode import draw_scene, write_gif
from mesax.rendering.painter import FRAMES, MOST_BOARDS, POSES, TRAIL, Moment, draw_moment, draw_still, frames, walk
from mesax.rendering.plane import Plane, draw_plane, draw_planes
from mesax.rendering.scene import Scene, Shape, Take, moments, since
from mesax.suites.swimmer.render import REACH, pose, take_of
from suites.test_climb_render import climb_scene

TITLE = "mesa on a world, test task 0: policy explorer-1"


def ways(episodes: int = 5, horizon: int = 60, agents: int = 2, places: int = 4) -> Scene:
    """Agents that wander among places; one is the target, and is visited in the middle of every episode."""
    random = np.random.default_rng([episodes, horizon, agents, places])
    shapes = [Shape("box", (0.0, 0.0), (2.0, 2.0), "wall")]
    for place, (x, y) in enumerate(random.uniform(-0.7, 0.7, (places, 2))):
        role = "target" if place == places - 1 else "place"
        shapes.append(Shape("disc", (float(x), float(y)), (0.4, 0.4), role, str(place), place=place))
    steps = moments(horizon)
    takes = [
        Take(
            steps,
            since(random.choice([0.0, 0.5, 1.0], horizon), steps),
            np.clip(random.normal(scale=0.1, size=(len(steps), agents, 2)).cumsum(axis=0), -1, 1),
            [(horizon // 3 + 1, 0), (horizon // 2 + 1, -1), (horizon // 2 + 2, places - 1)],
        )
        for _ in range(episodes)
    ]
    return Scene("Reward 1 with both on the target.", (-1.04, 1.04, -1.04, 1.04), tuple(takes), tuple(shapes))


def swims(episodes: int = 3, length: int = 60) -> Scene:
    """Both joints on their way to 20 degrees."""
    steps, takes = moments(length), []
    for episode in range(episodes):
        angles = 20.0 * (1 - np.exp(-steps[:, None] / np.array([5.0, 10.0 + episode])))
        takes.append(take_of(steps, since(np.ones(length), steps), angles, np.linspace(0, 90, len(steps)), 20.0))
    names, view = ("joint of agent 1", "joint of agent 2"), (-REACH, REACH, -REACH, REACH)
    band, chains = (17.0, 23.0), ("target", "target", "body")
    return Scene("Within 3°.", view, tuple(takes), (), chains, False, False, names, "joint angle (degrees)", band)


def choices(agents: int, length: int = 9) -> Scene:
    """Actions of a world that is not known, over time."""
    random, steps = np.random.default_rng(agents), np.arange(length + 1)
    curves = random.integers(0, 5, (length + 1, agents)).astype(float)
    take = Take(steps, since(random.normal(size=length), steps), np.zeros((length + 1, 0, 2)), curves=curves)
    names = tuple(f"agent {agent + 1}" for agent in range(agents))
    return Scene("Task seed 3.", (0.0, 1.0, 0.0, 1.0), (take,), curves=names, curves_title="number of the action")


SCENES = {
    "one board": climb_scene(1, 2, 10),
    "one board, always the same": climb_scene(1, 2, 10, varies=False),
    "seven boards": climb_scene(7, 2, 3),
    "rows of three": climb_scene(2, 3, 5),
    "a row of many": climb_scene(1, 1, 200),
    "a large board": climb_scene(1, 2, 1_000),
    "the smallest board": climb_scene(1, 2, 2),
    "too many boards": climb_scene(MOST_BOARDS + 3, 2, 4),
    "ways": ways(),
    "a crowd": ways(2, 5, 9, 12),
    "the least way": ways(1, 1, 1, 1),
    "a body": swims(),
    "the least body": swims(1, 1),
    "choices": choices(2),
    "choices of many": choices(12),
    "a long title": ways(1),
}


def texts(figure: Figure) -> list[str]:
    return [text for artist in figure.findobj(lambda one: hasattr(one, "get_text")) if (text := artist.get_text())]


def assert_legible(figure: Figure) -> None:
    figure.canvas.draw()
    for text in figure.findobj(lambda one: hasattr(one, "get_text")):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0, text.get_text()
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text.get_text()


def dots(axes) -> list[PathCollection]:
    return [one for one in axes.collections if isinstance(one, PathCollection)]


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_every_scene_is_drawn_legibly(name: str, moving: bool):
    scene, title = SCENES[name], "a title of many words " * 8 if name == "a long title" else TITLE
    last = len(scene.takes[0].steps) - 1
    figure = draw_moment(scene, title, Moment(0, (last + 1) // 2)) if moving else draw_still(scene, title)
    assert_legible(figure)
    drawn = " ".join(" ".join(texts(figure)).split())
    many = "episode" if len(scene.takes) == 1 else "episodes"
    assert f"mean return of {len(scene.takes)} {many} " in drawn and scene.about.split(";")[0] in drawn
    assert (f"the first {MOST_BOARDS} of" in drawn) == (name == "too many boards" and not moving)


def test_a_board_has_a_dot_for_each_choice_the_larger_the_more_often():
    scene = climb_scene(3, 2, 4)
    for step, axes in enumerate(draw_still(scene, TITLE).axes):
        (cloud,) = dots(axes)
        played = np.array([take.points[step + 1, 0] for take in scene.takes])
        places, counts = np.unique(played, axis=0, return_counts=True)
        np.testing.assert_array_equal(cloud.get_offsets(), places)
        sizes = cloud.get_sizes()
        assert np.all((sizes[:, None] > sizes) == (counts[:, None] > counts))
        rewards = [take.rewards[step + 1] for take in scene.takes]
        label = f"{len(places)} different choices\nmean reward {np.mean(rewards):.2f}"
        assert axes.get_xlabel() == label and axes.get_title().startswith(f"step {step + 1}: k=")


def test_frames_of_boards_walk_through_a_few_episodes_and_end_with_all():
    assert [(one.episode, one.at) for one in walk(climb_scene(5, 2, 4, varies=False))] == [(0, at) for at in range(6)]
    several = list(walk(climb_scene(1, 2, 4)))
    assert [one.episode for one in several] == [*range(12), 29] and {one.at for one in several} == {1}
    scene = climb_scene(1, 2, 4)
    earlier, now = dots(draw_moment(scene, TITLE, Moment(3, 1)).axes[0])
    assert len(now.get_offsets()) == 1 and len(earlier.get_offsets()) <= 3
    seconds = [seconds for _, seconds in frames(climb_scene(5, 2, 4, varies=False), TITLE)]
    assert seconds[-1] > seconds[0] > seconds[1]


def test_a_still_of_ways_shows_a_few_whole_episodes():
    scene = SCENES["ways"]
    figure = draw_still(scene, TITLE)
    assert len(figure.axes) == 2 * painter.TRAVELS
    for episode, (arena, strip) in enumerate(zip(figure.axes[::2], figure.axes[1::2], strict=True)):
        take = scene.takes[episode]
        for agent, trail in enumerate(one for one in arena.collections if isinstance(one, LineCollection)):
            path = take.points[:, agent]
            np.testing.assert_allclose(np.array(trail.get_segments()), np.stack([path[:-1], path[1:]], axis=1))
            assert {to_hex(color) for color in trail.get_colors()} == {AGENTS[agent].lower()}
            assert np.all(np.diff(trail.get_colors()[:, 3]) > 0), "it fades into the past"
        np.testing.assert_allclose([line.get_xydata()[0] for line in arena.lines], take.points[-1])
        np.testing.assert_allclose([one.get_offsets()[0] for one in dots(arena)], take.points[0])
        assert strip.get_xlabel() == "visits 0, 3"
        whole = next(patch for patch in strip.patches if isinstance(patch, StepPatch)).get_data()
        np.testing.assert_allclose(whole.values, take.rewards[1:])
        assert f"episode {episode + 1}: return {take.rewards.sum():.4g}" in texts(figure)


def test_places_are_where_they_are_and_visited_ones_have_a_rim():
    scene = SCENES["ways"]
    arena = draw_still(scene, TITLE).axes[0]
    discs = [patch for patch in arena.patches if isinstance(patch, Ellipse)]
    np.testing.assert_allclose([disc.center for disc in discs], [shape.center for shape in scene.shapes[1:]])
    assert {disc.width for disc in discs} == {0.4}
    assert [to_hex(disc.get_edgecolor()) for disc in discs] == [one.lower() for one in (INK, EDGE, EDGE, INK)]
    (wall,) = (patch for patch in arena.patches if isinstance(patch, Rectangle))
    assert wall.get_bbox().bounds == (-1.0, -1.0, 2.0, 2.0)
    labels = {text.get_text(): text.get_color() for text in arena.texts}
    assert list(labels) == ["0", "1", "2", "★ 3"] and labels["★ 3"] == OPTIMAL
    during = draw_moment(scene, TITLE, Moment(0, 25)).axes[0]
    rims = [to_hex(patch.get_edgecolor()) for patch in during.patches if isinstance(patch, Ellipse)]
    assert rims == [one.lower() for one in (MARK, EDGE, EDGE, EDGE)], "the place where the team is now"


def test_a_frame_of_ways_shows_now_and_the_recent_past():
    scene = SCENES["ways"]
    arena, strip = draw_moment(scene, TITLE, Moment(0, 30)).axes
    trails = [one for one in arena.collections if isinstance(one, LineCollection)]
    for agent, trail in enumerate(trails):
        path = scene.takes[0].points[30 - TRAIL : 31, agent]
        np.testing.assert_allclose(np.array(trail.get_segments())[:, 0], path[:-1])
    (cursor,) = strip.lines
    assert set(cursor.get_xdata()) == {30}
    rewards = scene.takes[0].rewards
    future, past, _ = (patch.get_data().values for patch in strip.patches if isinstance(patch, StepPatch))
    np.testing.assert_allclose(future, rewards[1:])
    np.testing.assert_allclose(past, rewards[1:31])
    told = f"episode 1, step 30: return {rewards[:31].sum():.4g} of {rewards.sum():.4g}"
    assert told in texts(arena.get_figure())
    legend = [text.get_text() for text in draw_still(SCENES["a crowd"], TITLE).legends[0].get_texts()]
    assert legend[:3] == ["agent 1, 7", "agent 2, 8", "agent 3, 9"] and legend[-1] == "start"


@pytest.mark.parametrize("length", [1, 2, FRAMES - 1, FRAMES, 500])
def test_frames_go_from_the_start_to_the_end(length: int):
    scene = ways(1, length)
    times = [moment.at for moment in walk(scene)]
    assert times[0] == 0 and times[-1] == len(scene.takes[0].steps) - 1
    assert len(times) <= FRAMES + 1 and np.all(np.diff(times) > 0) and np.ptp(np.diff(times)) <= 1


def test_a_body_is_drawn_with_its_angles_in_the_band():
    scene = SCENES["a body"]
    figure = draw_still(scene, TITLE)
    bodies = [axes for axes in figure.axes if axes.get_title().startswith("step")]
    assert [axes.get_title() for axes in bodies[:2]] == ["step 0", "step 0"] and len(bodies) == 2 * POSES
    np.testing.assert_allclose(bodies[POSES - 1].lines[2].get_xydata(), scene.takes[0].chains[2][-1])
    charts = [axes for axes in figure.axes if "angle" in axes.get_ylabel()]
    for take, axes in zip(scene.takes, charts, strict=False):
        for agent, color in enumerate(AGENTS[:2]):
            own = [one for one in axes.lines if to_hex(one.get_color()) == color.lower()]
            np.testing.assert_array_equal(own[-1].get_ydata(), take.curves[:, agent])
        (band,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        assert (band.get_y(), band.get_height()) == (17.0, 6.0)
        assert {text.get_text() for text in axes.texts} == set(scene.curves), "lines are named at their ends"
    body, angles, strip = draw_moment(scene, TITLE, Moment(0, 25)).axes
    np.testing.assert_allclose(body.lines[2].get_xydata(), scene.takes[0].chains[2][25])
    lengths = sorted(len(line.get_xdata()) for line in angles.lines if to_hex(line.get_color()) == AGENTS[1].lower())
    assert lengths == [26, 61] and any(set(line.get_xdata()) == {25} for line in strip.lines)


def test_links_lie_where_they_must_once_the_joints_are_there():
    take = take_of(np.arange(2), np.zeros(2), np.array([[0.0, 0.0], [20.0, 20.0]]), np.zeros(2), 20.0)
    front, rear, body = take.chains
    np.testing.assert_allclose(body[1], pose(0.0, 20.0, 20.0))
    np.testing.assert_allclose(front[1], body[1][:2])
    np.testing.assert_allclose(rear[1], body[1][2:])
    assert np.abs(front[0] - body[0][:2]).max() > 0.1


def test_choices_have_a_row_for_each_agent():
    scene = SCENES["choices"]
    *rows, strip = draw_still(scene, TITLE).axes
    assert [axes.get_ylabel() for axes in rows] == ["agent 1", "agent 2"] and strip.get_ylabel() == "reward"
    for number, axes in enumerate(rows):
        np.testing.assert_array_equal(axes.lines[-1].get_ydata(), scene.takes[0].curves[:, number])


def test_a_gif_follows_the_first_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(painter, "FRAMES", 5)
    for scene in (SCENES["ways"], SCENES["a body"]):
        write_gif(frames(scene, TITLE), tmp_path / "play.gif")
        with Image.open(tmp_path / "play.gif") as image:
            pictures = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
        assert len(pictures) == 6 and len({picture.size for picture, _ in pictures}) == 1
        assert pictures[-1][1] > pictures[0][1] > pictures[1][1] == 120
        colors = {color for _, color in pictures[-1][0].getcolors(1 << 16)}
        assert all(tuple(bytes.fromhex(color[1:])) in colors for color in AGENTS[:2]), "one palette keeps the colors"


# The plane of two numbers


def random_paths(number: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.cumsum(np.random.default_rng(seed).normal(scale=2.0, size=(number, 40, 2)), axis=1))


def test_a_plane_shows_paths_points_and_what_pays():
    paths = {"uniform": random_paths(3), "explorer 1": random_paths(1, 1)}
    points = {"$M_*$": np.random.default_rng(3).uniform(-20, 20, (50, 2)), "clusters": np.full((4, 2), 6.0)}
    figure = draw_planes(paths, Plane(("front", "rear"), (12.0, 18.0), points=points))
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(paths)
    for axes, own in zip(figure.axes, paths.values(), strict=True):
        found, crosses, *ends = [line.get_xydata() for line in axes.lines]
        np.testing.assert_allclose(found, points["$M_*$"])
        np.testing.assert_allclose(crosses, points["clusters"])
        np.testing.assert_allclose(np.concatenate(ends[::2]), [path[0] for path in own])
        np.testing.assert_allclose(np.concatenate(ends[1::2]), [path[-1] for path in own])
        (square,) = axes.patches
        assert square.get_bbox().bounds == (12.0, 12.0, 6.0, 6.0) and axes.get_xlim() == axes.get_ylim()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["this task pays", "$M_*$", "clusters", "start", "end"]
    assert_legible(figure)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_planes_of_any_number_of_policies_are_legible(number: int):
    paths = {f"explorer {index}": random_paths(2, index) for index in range(number)}
    paths["explorer 0"][1][20:] = np.nan  # an episode that ended early
    figure = draw_planes(paths, Plane(("front", "rear")))
    assert len([axes for axes in figure.axes if axes.axison]) == number
    assert_legible(figure)


def test_only_a_scene_of_two_numbers_and_a_band_has_a_plane(tmp_path):
    scene = replace(SCENES["a body"], takes=SCENES["a body"].takes[:1])
    drawn = draw_scene(scene, TITLE, tmp_path / "episode", tmp_path / "episode.gif")
    names = ["episode.png", "episode.svg", "episode-plane.png", "episode-plane.svg", "episode.gif"]
    assert [path.name for path in drawn] == names and all(path.stat().st_size > 1_000 for path in drawn)
    assert not SCENES["choices"].has_plane and not SCENES["ways"].has_plane
    (square,) = draw_plane(scene).axes[0].patches
    assert square.get_bbox().bounds == (17.0, 17.0, 6.0, 6.0)
