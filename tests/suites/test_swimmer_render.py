"""Pictures of the swimmer show its angles against the band, what it earned and how it lay; likewise its angle plane."""

import importlib
from dataclasses import replace

import jax
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle, StepPatch, Wedge
from PIL import Image, ImageSequence

from fake_store import FakeRun, write_run
from mesax.envs.swimmer_climb import MODEL, SwimmerClimb, SwimmerFamily, SwimmerTask
from mesax.errors import UsageError
from mesax.rendering.episode import write_gif
from mesax.store.reading import load_run
from mesax.suites.swimmer import render as render_swimmer
from mesax.suites.swimmer.figures import FIGURES, joint_angle_plane
from mesax.suites.swimmer.render import (
    AGENTS,
    FRAMES,
    POSES,
    REACH,
    STILL_EPISODES,
    TARGET,
    SwimmerPlay,
    draw_frame,
    frame_times,
    pose,
    pose_times,
)
from mesax.types import Episode, Label

HORIZON, EPISODES, DEGREES = 60, 3, np.pi / 180


def episodes_of(env: SwimmerClimb, target: float, number: int, horizon: int) -> Episode:
    """Both joints driven to the target, in radians."""
    batch, alive = env.batch(number, 1), np.ones(number, bool)
    obs = [batch.reset(SwimmerTask(np.full(number, target)), np.arange(number, dtype=np.uint32))]
    actions, rewards = [], []
    for _ in range(horizon):
        action = np.clip(3.0 * (target - obs[-1][..., :1]) - 0.5 * obs[-1][..., 2:3], -1.0, 1.0)
        step = batch.step(action, alive)
        for column, value in ((actions, action), (obs, step.obs), (rewards, step.reward)):
            column.append(value)
    return Episode(
        obs=np.stack(obs, axis=1),
        action=np.stack(actions, axis=1),
        reward=np.stack(rewards, axis=1),
        terminated=np.zeros((number, horizon), bool),
        mask=np.ones((number, horizon), bool),
        label=Label(np.zeros(number, np.int32), np.zeros((number, 0), np.float32)),
    )


def played(degrees: float = 20.0, number: int = EPISODES, **settings) -> SwimmerPlay:
    family = SwimmerFamily(SwimmerClimb(**({"horizon": HORIZON} | settings)))
    found = episodes_of(family.env, degrees * DEGREES, number, family.env.horizon)
    task = SwimmerTask(jax.device_put(np.float32(degrees * DEGREES)))
    return SwimmerPlay.of("mesa on the swimmer, test task 0: policy final", family, task, found)


@pytest.fixture(scope="module")
def play() -> SwimmerPlay:
    return played()


@pytest.fixture(scope="module")
def plays(play) -> dict[str, SwimmerPlay]:
    """Sizes and settings that could break a picture."""
    lengths = play.lengths.copy()
    lengths[0] = 17
    return {
        "driven": play,
        "partial": replace(played(-25.0, 1, see_neighbor=False, delta=0.2, horizon=30), title="a title " * 20),
        "least": played(10.0, 1, horizon=1),
        "cut short": replace(play, lengths=lengths),
    }


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text")))


def assert_legible(figure: Figure) -> None:
    figure.canvas.draw()
    for text in figure.findobj(lambda one: hasattr(one, "get_text")):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0, text.get_text()
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text.get_text()


# The play


def test_a_play_holds_what_agents_saw(plays):
    play = plays["driven"]
    assert play.angles.shape == (EPISODES, HORIZON + 1, 2) and play.headings.shape == (EPISODES, HORIZON + 1)
    np.testing.assert_allclose(play.angles[:, -1], 20.0, atol=1.0)
    assert play.target == pytest.approx(20.0, abs=1e-4) and play.band == 3.0
    inside = np.all(np.abs(play.angles[:, 1:] - 20.0) < 3.0, axis=2)
    np.testing.assert_array_equal(play.rewards == 1.0, inside)
    assert plays["partial"].safe_reward == pytest.approx(0.8)
    np.testing.assert_allclose(plays["partial"].angles[:, -1], -25.0, atol=1.5)


def test_poses_are_those_of_the_engine():
    mujoco = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_xml_string(MODEL)
    data, random = mujoco.MjData(model), np.random.default_rng(0)
    for angles in random.uniform(-90, 90, (20, 3)):
        data.qpos[2:] = np.deg2rad(angles)
        mujoco.mj_forward(model, data)
        first, second = (data.body(name).xpos[:2] for name in ("middle", "tail"))
        centers = data.geom_xpos[:, :2]
        expected = np.stack([2 * centers[0] - first, first, second, 2 * centers[2] - second])
        np.testing.assert_allclose(pose(*angles), expected - (first + second) / 2, atol=1e-9)
    assert np.abs(pose(45.0, 0.0, 0.0)).max() < REACH


# The still


def test_the_still_shows_angles_against_the_band(play):
    figure = play.picture()
    charts = [axes for axes in figure.axes if "angle" in axes.get_ylabel()]
    assert len(charts) == STILL_EPISODES
    for episode, axes in enumerate(charts):
        for agent, color in enumerate(AGENTS):
            (line,) = (one for one in axes.lines if to_hex(one.get_color()) == color.lower())
            np.testing.assert_array_equal(line.get_xdata(), np.arange(HORIZON + 1))
            np.testing.assert_array_equal(line.get_ydata(), play.angles[episode, :, agent])
        (band,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        np.testing.assert_allclose([band.get_y(), band.get_height()], [play.target - 3.0, 6.0], rtol=1e-6)
        assert axes.get_ylim()[1] > np.abs(play.angles[episode]).max()


def test_the_still_shows_rewards_and_poses(play):
    figure = play.picture()
    strips = [axes for axes in figure.axes if axes.get_ylabel() == "reward"]
    for episode, strip in enumerate(strips):
        whole = next(patch for patch in strip.patches if isinstance(patch, StepPatch)).get_data()
        np.testing.assert_array_equal(whole.values, play.rewards[episode])
    bodies = [axes for axes in figure.axes if any(isinstance(patch, Wedge) for patch in axes.patches)]
    assert len(bodies) == STILL_EPISODES * POSES
    for axes, time in zip(bodies, pose_times(HORIZON), strict=False):
        expected = pose(play.headings[0, time], *play.angles[0, time])
        np.testing.assert_allclose(axes.lines[0].get_xydata(), expected)
        assert axes.get_title() == f"step {time}"
    assert pose_times(HORIZON)[0] == 0 and pose_times(HORIZON)[-1] == HORIZON


@pytest.mark.parametrize("time", [0, HORIZON])
def test_a_link_lies_in_its_wedge_if_its_joint_is_at_the_target(play, time: int):
    axes = draw_frame(play, time).axes[0]
    nose, first, second, tail = axes.lines[0].get_xydata()
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    for wedge, hinge, end, angle in zip(wedges, (first, second), (nose, tail), play.angles[0, time], strict=True):
        np.testing.assert_allclose(wedge.center, hinge)
        way = np.rad2deg(np.arctan2(*(end - hinge)[::-1]))
        off = (way - (wedge.theta1 + wedge.theta2) / 2 + 180) % 360 - 180
        assert abs(off) == pytest.approx(abs(angle - play.target), abs=1e-6)
        assert (abs(off) < play.band) == (time == HORIZON)


@pytest.mark.parametrize("name", ["driven", "partial", "least", "cut short"])
@pytest.mark.parametrize("moving", [False, True])
def test_every_play_is_drawn_legibly(plays, name: str, moving: bool):
    play = plays[name]
    figure = draw_frame(play, play.horizon // 4) if moving else play.picture()
    drawn = texts(figure)
    assert play.title.split()[0] in drawn and f"within 3° of {play.target:+.1f}°" in drawn
    assert f"mean return of {len(play.rewards)} episode" in drawn
    assert ("cut short after 17 steps" in drawn) == (name == "cut short" and not moving)
    assert_legible(figure)


# The frames


@pytest.mark.parametrize("length", [1, 2, FRAMES - 1, FRAMES, 1000])
def test_frames_go_from_the_start_to_the_end(length: int):
    times = frame_times(length)
    assert times[0] == 0 and times[-1] == length and np.all(np.diff(times) > 0)
    assert len(times) <= FRAMES + 1


def test_a_frame_shows_now(play):
    time = 25
    body, angles, strip = draw_frame(play, time).axes
    np.testing.assert_allclose(body.lines[0].get_xydata(), pose(play.headings[0, time], *play.angles[0, time]))
    hinges = [line.get_xydata()[0] for line in body.lines[-2:]]
    np.testing.assert_allclose(hinges, pose(play.headings[0, time], *play.angles[0, time])[1:3])
    lengths = sorted(len(line.get_xdata()) for line in angles.lines if to_hex(line.get_color()) == AGENTS[1].lower())
    assert lengths == [time + 1, HORIZON + 1 - time], "past and future"
    assert any(set(line.get_xdata()) == {time} for line in strip.lines)
    assert f"step {time}, return {play.rewards[0, :time].sum():.3g} of" in texts(strip.get_figure())


def test_a_gif_follows_the_first_episode(play, plays, tmp_path, monkeypatch):
    monkeypatch.setattr(render_swimmer, "FRAMES", 5)
    write_gif(play.frames(), tmp_path / "play.gif")
    with Image.open(tmp_path / "play.gif") as image:
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
    assert len(frames) == 6 and len({frame.size for frame, _ in frames}) == 1
    assert frames[-1][1] > frames[0][1] > frames[1][1] == 100
    colors = {color for _, color in frames[-1][0].getcolors(1 << 16)}
    assert all(tuple(bytes.fromhex(color[1:])) in colors for color in AGENTS)
    assert len(list(plays["cut short"].frames())) == 6


# The plane of joint angles


def random_paths(number: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(scale=0.03, size=(number, 40, 2)), axis=1)


def test_the_plane_shows_paths_members_and_clusters():
    paths = {"explorer-1": random_paths(3), "explorer-2": random_paths(1, 1)[0], "final": random_paths(2, 2)}
    members, centroids = np.random.default_rng(3).uniform(-0.5, 0.5, (50, 2)), np.full((4, 2), 0.1)
    figure = joint_angle_plane(paths, target_degrees=15.0, members=members, centroids=centroids)
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(paths)
    for axes, path in zip(figure.axes, paths.values(), strict=True):
        found, crosses, *ends = [line.get_xydata() for line in axes.lines]
        np.testing.assert_allclose(found, np.rad2deg(members))
        np.testing.assert_allclose(crosses, np.rad2deg(centroids))
        several = path.reshape(-1, 40, 2)
        np.testing.assert_allclose(np.concatenate(ends[::2]), np.rad2deg(several[:, 0]))
        np.testing.assert_allclose(np.concatenate(ends[1::2]), np.rad2deg(several[:, -1]))
        (lines,) = (one for one in axes.collections if isinstance(one, LineCollection))
        assert len(lines.get_segments()) == 39 * len(several)
        square = next(one for one in axes.patches if one.get_linewidth())
        assert to_hex(square.get_edgecolor()) == TARGET.lower()
        assert square.get_bbox().bounds == (12.0, 12.0, 6.0, 6.0)
        assert axes.get_xlim() == axes.get_ylim()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["some target pays", "target +15.0° pays", "$M_*$", "clusters", "start", "end"]
    assert_legible(figure)


def test_what_pays_for_some_target_agrees_with_the_game():
    axes = joint_angle_plane({"final": random_paths(1)}).axes[0]
    (region,) = (patch for patch in axes.patches if isinstance(patch, Polygon))
    points = np.random.default_rng(0).uniform(-36, 36, (400, 2))
    targets = np.linspace(-30, 30, 6001) * DEGREES
    for point in points:
        pays = np.any(SwimmerClimb().reward(targets, np.tile(point * DEGREES, (len(targets), 1))) == 1.0)
        assert region.get_path().contains_point(point) == pays


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_planes_of_any_number_of_policies_are_legible(number: int):
    paths = {f"explorer-{index}": random_paths(2, index) for index in range(number)}
    paths["explorer-0"][1, 20:] = np.nan  # an episode that ended early
    figure = joint_angle_plane(paths)
    assert len([axes for axes in figure.axes if axes.axison]) == number
    assert_legible(figure)


def test_planes_of_nothing_are_refused():
    with pytest.raises(UsageError, match="no trajectories"):
        joint_angle_plane({})
    with pytest.raises(UsageError, match=r"trajectories of final: pairs .* shape \(5, 3\)"):
        joint_angle_plane({"final": np.zeros((5, 3))})
    with pytest.raises(UsageError, match="members: pairs"):
        joint_angle_plane({"final": np.zeros((5, 2))}, members=np.zeros(4))


# The figures of a run


def test_a_run_has_bars_for_angles_and_paths_in_the_plane(tmp_path):
    run = load_run(write_run(tmp_path / "run", FakeRun(num_tasks=2, evaluations=6, num_actions=4, num_explorers=2)))
    bars, paths = FIGURES
    assert not bars.applies(run) and not paths.applies(run) and not paths.applies(replace(run, coverage=None))
    angles = np.linspace(0.0, 4.0, 20)
    visitors = [
        {**one, "frequency": [angles.tolist()], "path": random_paths(2, number).tolist()}
        for number, one in enumerate(run.coverage["visitors"])
    ]
    plane = {"members": random_paths(1)[0].tolist(), "centroids": [[0.1, 0.1]]}
    facts = run.run | {"family": run.family | SwimmerFamily().facts()}
    swam = replace(run, run=facts, coverage={"shape": [20], "visitors": visitors, "plane": plane})
    assert bars.applies(swam) and paths.applies(swam)
    heights = [bar.get_height() for bar in bars.draw(swam).axes[0].patches]
    assert heights == angles.tolist()
    drawn = paths.draw(swam)
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.axison] == [one["name"] for one in visitors]
    np.testing.assert_allclose(drawn.axes[0].lines[1].get_xydata(), np.rad2deg([[0.1, 0.1]]))
