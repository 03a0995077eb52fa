"""Scenes of the swimmer show its angles against the band, what it earned and how it lay; figures of runs."""

import importlib
from dataclasses import replace

import jax
import numpy as np
import pytest

from fake_store import FakeRun, write_run
from mesax.envs.swimmer_climb import MODEL, SwimmerClimb, SwimmerFamily, SwimmerTask
from mesax.rendering.scene import Scene
from mesax.store.reading import load_run
from mesax.suites.swimmer.figures import FIGURES, paying_area
from mesax.suites.swimmer.render import REACH, pose, scene
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


def played(degrees: float = 20.0, number: int = EPISODES, lasted: int | None = None, **settings) -> Scene:
    family = SwimmerFamily(SwimmerClimb(**({"horizon": HORIZON} | settings)))
    found = episodes_of(family.env, degrees * DEGREES, number, family.env.horizon)
    if lasted is not None:
        found.mask[0, lasted:] = False
    task = SwimmerTask(jax.device_put(np.float32(degrees * DEGREES)))
    return scene(family, task, found)


def test_a_scene_holds_what_agents_saw():
    shown = played()
    assert shown.band == pytest.approx((17.0, 23.0), abs=1e-4) and "within 3° of +20.0°, 0.5 with none" in shown.about
    for take in shown.takes:
        assert take.curves.shape == (HORIZON + 1, 2) and take.points.shape == (HORIZON + 1, 2, 2)
        np.testing.assert_allclose(take.curves[-1], 20.0, atol=1.0)
        np.testing.assert_array_equal(take.rewards[1:] == 1.0, np.all(np.abs(take.curves[1:] - 20.0) < 3.0, axis=1))
        np.testing.assert_allclose(take.points, take.chains[2][:, 1:3])
    partial = played(-25.0, 1, see_neighbor=False, delta=0.2, horizon=30)
    assert "0.8 with none" in partial.about
    np.testing.assert_allclose(partial.takes[0].curves[-1], -25.0, atol=1.5)


def test_an_episode_that_was_cut_short_ends_there():
    first, second, _ = played(lasted=17).takes
    assert (first.steps[-1], second.steps[-1]) == (17, HORIZON) and len(first.curves) == len(first.rewards) == 18


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


def test_what_pays_for_some_target_agrees_with_the_game():
    corners = paying_area(3.0, 30.0)
    (region,) = [importlib.import_module("matplotlib.path").Path(corners)]
    points = np.random.default_rng(0).uniform(-36, 36, (400, 2))
    targets = np.linspace(-30, 30, 6001) * DEGREES
    for point in points:
        pays = np.any(SwimmerClimb().reward(targets, np.tile(point * DEGREES, (len(targets), 1))) == 1.0)
        assert region.contains_point(point) == pays


def random_paths(number: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(scale=0.03, size=(number, 40, 2)), axis=1)


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
