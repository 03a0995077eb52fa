"""Pictures of particle episodes show where agents were, the landmarks they met at, and what it earned."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle, StepPatch
from PIL import Image, ImageSequence

from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily, ParticleState, ParticleTask
from mesax.policy import UniformPolicy
from mesax.rendering.episode import write_gif
from mesax.suites.particles import render as render_particles
from mesax.suites.particles.render import (
    AGENTS,
    FRAMES,
    TARGET,
    TRAIL,
    Moment,
    ParticlePlay,
    draw,
    frame_times,
    positions_of,
)
from mesax.training.driver import play_episodes
from mesax.types import Label, tree_index

HORIZON, EPISODES = 60, 6


class Tour(eqx.Module):
    """Everyone to one landmark after another, by full thrust along the longer way, braking in time."""

    order: jax.Array
    family: ParticleClimbFamily = eqx.field(static=True)
    leg: int = eqx.field(static=True, default=20)

    def start(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, memory, obs, key):
        goal = self.order[jnp.minimum(memory // self.leg, len(self.order) - 1)]
        way = self.family.env.landmark_offsets(obs)[:, goal] - 0.25 * obs[:, :2]
        axis = jnp.argmax(jnp.abs(way), axis=1)
        forward = jnp.take_along_axis(way, axis[:, None], axis=1)[:, 0] > 0
        return jnp.where(jnp.abs(way).max(axis=1) < 0.05, 0, 1 + 2 * axis + forward), memory + 1

    def label(self, memory):
        return Label.of(0)


def tour(family: ParticleClimbFamily, order: list[int], episodes: int = EPISODES) -> ParticlePlay:
    return played(family, Tour(jnp.array(order), family), episodes)


def played(family: ParticleClimbFamily, policy, episodes: int) -> ParticlePlay:
    tasks = jax.device_get(family.split(0, 0, 1).test)
    found = play_episodes(family.env, tasks, policy, jax.random.key(1), episodes)
    return ParticlePlay.of("mesa on a world, test task 0: policy explorer-1", family, tree_index(tasks, 0), found)


@pytest.fixture(scope="module")
def family() -> ParticleClimbFamily:
    return ParticleClimbFamily(ParticleClimb(horizon=HORIZON))


@pytest.fixture(scope="module")
def play(family) -> ParticlePlay:
    return tour(family, [2, 0, 3])


@pytest.fixture(scope="module")
def plays(play) -> dict[str, ParticlePlay]:
    """Sizes and settings that could break a picture."""
    plane = ParticleClimbFamily(ParticleClimb(3, 4, horizon=20, wall=None, delta=0.2, agents_collide=True))
    crowd = ParticleClimbFamily(ParticleClimb(9, 12, horizon=5, radius=0.1), count=4)
    least = ParticleClimbFamily(ParticleClimb(1, 1, horizon=1), count=1)
    uniform = UniformPolicy(plane.env.spec.action_space)
    return {
        "tour": play,
        "plane": played(plane, uniform, 5),
        "crowd": replace(played(crowd, uniform, 2), title="a title " * 15),
        "least": played(least, uniform, 1),
    }


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text")))


def discs(axes) -> list[Circle]:
    return [patch for patch in axes.patches if isinstance(patch, Circle)]


def trails(axes) -> list[LineCollection]:
    return [one for one in axes.collections if isinstance(one, LineCollection)]


# The play


def test_positions_are_read_from_what_agents_saw():
    world = ParticleClimb(num_agents=3, num_landmarks=2, observe_position=True)
    random = np.random.default_rng(0)
    landmarks, places = random.uniform(-1, 1, (2, 2)), random.uniform(-1, 1, (4, 5, 3, 2))
    task = ParticleTask(*jax.device_put((landmarks.astype(np.float32), np.int32(0), np.int32(2))))
    observe = jax.jit(lambda place: world.observe(task, ParticleState(place, jnp.ones((3, 2)))))
    obs = np.stack([observe(one) for one in places.reshape(-1, 3, 2).astype(np.float32)]).reshape(4, 5, 3, -1)
    np.testing.assert_allclose(positions_of(world, np.asarray(task.landmarks), obs), places, atol=1e-6)


def test_a_tour_visits_its_landmarks_in_order(family, play):
    assert play.positions.shape == (EPISODES, HORIZON + 1, 2, 2) and play.rewards.shape == (EPISODES, HORIZON)
    assert np.abs(play.positions).max() <= 1.0
    for episode in range(EPISODES):
        met = [place for place in play.order(episode) if place in (2, 0, 3)]
        assert met == [2, 0, 3], "it may pass over others on the way"
        ends = play.positions[episode, -1]
        assert np.all(np.linalg.norm(ends - play.landmarks[3], axis=1) < play.radius)
    assert play.target == 3 and np.all(play.rewards[:, -1] == 1.0)
    np.testing.assert_array_equal(play.rewards == 1.0, play.configurations == play.target)
    np.testing.assert_allclose(play.returns, [family.score(jnp.asarray(one)) for one in play.rewards], rtol=1e-6)


def test_the_order_is_that_of_first_visits():
    play = ParticlePlay(
        *("", np.zeros((4, 2)), 0, 2, 0.2, 0.15, None, 0.5),
        positions=np.zeros((1, 8, 2, 2)),
        rewards=np.zeros((1, 7)),
        configurations=np.array([[-1, 3, 3, -1, 1, 3, 0]]),
    )
    assert [play.order(0, time) for time in (0, 1, 2, 5, 6, 7)] == [[], [], [3], [3, 1], [3, 1], [3, 1, 0]]
    assert play.order(0) == [3, 1, 0]


# The still


def test_the_still_shows_a_few_whole_episodes(play):
    figure = play.picture()
    assert len(figure.axes) == 2 * render_particles.STILL_EPISODES
    for episode, arena in enumerate(figure.axes[::2]):
        for agent, trail in enumerate(trails(arena)):
            path = play.positions[episode, :, agent]
            segments = np.array(trail.get_segments())
            np.testing.assert_allclose(segments, np.stack([path[:-1], path[1:]], axis=1))
            colors = trail.get_colors()
            assert {to_hex(color) for color in colors} == {AGENTS[agent].lower()}
            assert np.all(np.diff(colors[:, 3]) > 0), "it fades into the past"
        assert len(trails(arena)) == 2
        ends = [line.get_xydata()[0] for line in arena.lines if line.get_marker() == "o"]
        np.testing.assert_allclose(ends, play.positions[episode, -1])
        starts = [one.get_offsets()[0] for one in arena.collections if not isinstance(one, LineCollection)]
        np.testing.assert_allclose(starts, play.positions[episode, 0])
        assert arena.get_title() == f"episode {episode + 1}: return {play.returns[episode]:.3g}"


def test_the_world_is_drawn_as_it_is(play):
    arena = play.picture().axes[0]
    (wall,) = (patch for patch in arena.patches if isinstance(patch, Rectangle))
    assert wall.get_bbox().bounds == (-1.0, -1.0, 2.0, 2.0)
    assert arena.get_aspect() == 1.0 and arena.get_xlim() == arena.get_ylim()
    np.testing.assert_allclose([disc.center for disc in discs(arena)], play.landmarks)
    assert {disc.radius for disc in discs(arena)} == {play.radius}
    fills = [to_hex(disc.get_facecolor()) for disc in discs(arena)]
    assert [fills.count(fill) for fill in fills] == [4, 4, 4, 1, 4], "the target stands out"
    (star,) = (line for line in arena.lines if line.get_marker() == "*")
    assert to_hex(star.get_color()) == TARGET.lower()
    x, y = star.get_xydata()[0]
    assert np.hypot(x - play.landmarks[3, 0], y - play.landmarks[3, 1]) < play.radius
    labels = {text.get_text(): text for text in arena.texts}
    assert set(labels) == {*"01234", "target"}
    for number, place in enumerate(play.landmarks):
        assert np.linalg.norm(np.array(labels[str(number)].get_position()) - place) < play.radius


def test_what_was_visited_together_is_listed_and_rimmed(play):
    figure = play.picture()
    for episode, (arena, strip) in enumerate(zip(figure.axes[::2], figure.axes[1::2], strict=True)):
        order = play.order(episode)
        assert strip.get_xlabel() == "together at " + ", ".join(map(str, order))
        rims = [to_hex(disc.get_edgecolor()) == "#333333" for disc in discs(arena)]
        assert np.flatnonzero(rims).tolist() == sorted(order)
    never = replace(play, configurations=np.full_like(play.configurations, -1))
    assert never.picture().axes[1].get_xlabel() == "together nowhere"


def test_rewards_are_drawn_step_by_step(play):
    strip = play.picture().axes[3]
    whole = next(patch for patch in strip.patches if isinstance(patch, StepPatch)).get_data()
    np.testing.assert_array_equal(whole.values, play.rewards[1])
    np.testing.assert_array_equal(whole.edges, np.arange(HORIZON + 1))
    assert [label.get_text() for label in strip.get_yticklabels()] == ["0", "0.5", "1"]


@pytest.mark.parametrize("name", ["tour", "plane", "crowd", "least"])
@pytest.mark.parametrize("moving", [False, True])
def test_every_world_is_drawn_legibly(plays, name, moving):
    play = plays[name]
    figure = draw(play, [Moment(0, play.horizon // 2, TRAIL)]) if moving else play.picture()
    drawn = texts(figure)
    assert play.title.split()[0] in drawn and f"{play.count} of {play.num_agents} on the target" in drawn
    assert f"mean return of {len(play.rewards)} episode" in drawn
    figure.canvas.draw()
    for text in figure.findobj(lambda one: hasattr(one, "get_text")):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0, text.get_text()
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text.get_text()
    heading = min(text.get_window_extent().y0 for text in figure.texts)
    assert heading > figure.axes[0].title.get_window_extent().y1, "the explanation ends above the first arena's title"
    lowest = figure.axes[-1].xaxis.label.get_window_extent().y0
    assert figure.legends[0].get_window_extent().y1 < lowest, "the legend is below the last rewards"


def test_the_legend_names_every_agent(plays):
    for name, expected in (("tour", ["agent 1", "agent 2"]), ("crowd", ["agent 1, 7", "agent 2, 8", "agent 3, 9"])):
        legend = [text.get_text() for text in plays[name].picture().legends[0].get_texts()]
        assert legend[: len(expected)] == expected and legend[-1] == "start"


def test_a_plane_without_end_is_drawn_as_far_as_agents_went(plays):
    play = plays["plane"]
    arena = play.picture().axes[0]
    assert not any(isinstance(patch, Rectangle) for patch in arena.patches)
    assert arena.get_xlim()[1] >= np.abs(play.positions[:4]).max()
    far = replace(play, positions=play.positions + 7.0)
    assert far.picture().axes[0].get_xlim()[1] >= 7.0


# The frames


@pytest.mark.parametrize("horizon", [1, 2, FRAMES - 1, FRAMES, FRAMES + 1, 2 * FRAMES, 500])
def test_frames_go_from_the_start_to_the_end(horizon):
    times = frame_times(horizon)
    assert times[0] == 0 and times[-1] == horizon
    assert len(times) == min(horizon, FRAMES) + 1 and np.all(np.diff(times) > 0)
    assert np.ptp(np.diff(times)) <= 1


def test_a_frame_shows_now_and_the_recent_past(play):
    time = 30
    arena, strip = draw(play, [Moment(0, time, TRAIL)]).axes
    for agent, trail in enumerate(trails(arena)):
        path = play.positions[0, time - TRAIL : time + 1, agent]
        np.testing.assert_allclose(np.array(trail.get_segments())[:, 0], path[:-1])
    now = [line.get_xydata()[0] for line in arena.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(now, play.positions[0, time])
    bodies = [disc for disc in discs(arena) if disc.radius == play.agent_size]
    np.testing.assert_allclose([body.center for body in bodies], play.positions[0, time])
    (cursor,) = strip.lines
    assert set(cursor.get_xdata()) == {time}
    future, past, _ = (patch.get_data().values for patch in strip.patches if isinstance(patch, StepPatch))
    np.testing.assert_array_equal(future, play.rewards[0])
    np.testing.assert_array_equal(past, play.rewards[0, :time])
    so_far, total = play.rewards[0, :time].sum(), play.returns[0]
    assert arena.get_title() == f"episode 1: step {time}, return {so_far:.3g} of {total:.3g}"
    assert strip.get_xlabel() == "together at " + ", ".join(map(str, play.order(0, time)))


def test_a_landmark_lights_up_while_they_are_together(play):
    together = np.flatnonzero(play.configurations[0] == 0)[0] + 1
    widths = [disc.get_linewidth() for disc in discs(draw(play, [Moment(0, together, TRAIL)]).axes[0])[:5]]
    assert widths.index(max(widths)) == 0 and widths.count(max(widths)) == 1
    apart = draw(play, [Moment(0, 0, TRAIL)]).axes[0]
    assert max(disc.get_linewidth() for disc in discs(apart)) < max(widths)


def test_a_gif_follows_the_first_episode_and_is_small(play, tmp_path, monkeypatch):
    monkeypatch.setattr(render_particles, "FRAMES", 6)
    write_gif(play.frames(), tmp_path / "play.gif")
    with Image.open(tmp_path / "play.gif") as image:
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
    assert len(frames) == 7 and len({frame.size for frame, _ in frames}) == 1
    assert frames[-1][1] > frames[0][1] > frames[1][1] == 120
    size = (tmp_path / "play.gif").stat().st_size
    assert size / len(frames) * (FRAMES + 1) < 2_000_000
    colors = {color for _, color in frames[-1][0].getcolors(1 << 16)}
    for color in AGENTS[:2]:
        assert tuple(bytes.fromhex(color[1:])) in colors, "one palette for all frames keeps the agents' colors"
