"""The swimmer is MA-MuJoCo's, state by state; its game pays as the paper says, and broken physics stays alone."""

import dataclasses
import importlib
import sys
from pathlib import Path

import gymnasium
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium_robotics import mamujoco_v1
from hypothesis import given

from mesax.cli import running
from mesax.cli.parser import main
from mesax.envs.base import HostEnvironment
from mesax.envs.host import HostActionRepeat
from mesax.envs.swimmer_climb import COORDINATES, SwimmerBatch, SwimmerClimb, SwimmerFamily, SwimmerTask
from mesax.errors import USAGE, TrainingError, UsageError
from mesax.execution.run_experiment import run_experiment
from mesax.experiments.catalogue import experiment
from mesax.rewards.features import JointAngles
from mesax.store.run_directory import RunDirectory
from mesax.suites.swimmer.suite import SwimmerSuite
from mesax.types import Box, EnvSpec, Transition, tree_index, tree_stack

DEGREES = np.pi / 180
PAPER = SwimmerSuite().family("swimmer")
"""0.02 radians, joints alone are seen, all targets within 30 degrees, the first five of each seed the authors' own."""


def opened(
    copies: int = 1, *, threads: int = 1, target: float = 0.3, env: SwimmerClimb = SwimmerClimb()
) -> SwimmerBatch:
    """Copies after their reset, each from a seed of its own."""
    batch = env.batch(copies, threads)
    batch.reset(SwimmerTask(np.full(copies, target)), np.arange(copies, dtype=np.uint32))
    return batch


def placed(batch: SwimmerBatch, positions, velocities) -> SwimmerBatch:
    batch.positions[:], batch.velocities[:] = positions, velocities
    return batch


def all_alive(batch: SwimmerBatch) -> np.ndarray:
    return np.ones(batch.copies, bool)


def torques(steps: int, copies: int, seed: int = 0, hold: int = 1) -> np.ndarray:
    """Random actions `[steps, copies, agents, 1]`, each held for a while, so that joints get far."""
    drawn = np.random.default_rng(seed).uniform(-1, 1, (-(-steps // hold), copies, 2, 1)).astype(np.float32)
    return np.repeat(drawn, hold, axis=0)[:steps]


def played(batch: SwimmerBatch, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observations and rewards of every step."""
    steps = [batch.step(action, all_alive(batch)) for action in actions]
    return np.stack([step.obs for step in steps]), np.stack([step.reward for step in steps])


# The body


@pytest.mark.parametrize("see_neighbor", [True, False])
@pytest.mark.parametrize(("seed", "hold"), [(0, 1), (1, 25)])
def test_states_and_observations_are_those_of_mamujoco(see_neighbor: bool, seed: int, hold: int):
    """Same seed, same start; same actions, same states, with both joints in their stops for some of the time."""
    theirs = mamujoco_v1.parallel_env("Swimmer", "2x1", agent_obsk=int(see_neighbor))
    first, _ = theirs.reset(seed=seed)
    env = SwimmerClimb(see_neighbor=see_neighbor)
    batch = env.batch(2, 1)
    obs = batch.reset(SwimmerTask(np.zeros(2)), np.array([seed, seed + 1], np.uint32))
    np.testing.assert_array_equal(obs[0], np.stack(list(first.values())).astype(np.float32))
    engine, ours, mamujoco = theirs.single_agent_env.unwrapped.data, [], []
    for action in torques(1000, 2, seed, hold):
        seen = batch.step(action, np.ones(2, bool)).obs[0]
        expected, *_ = theirs.step({f"agent_{agent}": action[0, agent] for agent in range(2)})
        ours.append((batch.positions[0].copy(), batch.velocities[0].copy(), seen))
        mamujoco.append((engine.qpos.copy(), engine.qvel.copy(), np.stack(list(expected.values()))))
    (positions, velocities, obs), (their_positions, their_velocities, their_obs) = (
        map(np.stack, zip(*steps, strict=True)) for steps in (ours, mamujoco)
    )
    np.testing.assert_allclose(positions, their_positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(velocities, their_velocities, rtol=0, atol=1e-9)
    np.testing.assert_allclose(obs, their_obs, rtol=1e-6, atol=1e-7)
    assert hold == 1 or np.abs(positions[:, 3:]).max() > 100 * DEGREES, "the stops were felt"
    theirs.close()


def test_the_papers_episode_is_that_of_a_plain_loop():
    """Gymnasium's file of the body in the engine itself: what joints do there decides what is seen and paid here."""
    mujoco = importlib.import_module("mujoco")
    body = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "swimmer.xml"
    model = mujoco.MjModel.from_xml_path(str(body))
    data, target = mujoco.MjData(model), 8.769 * DEGREES
    batch = PAPER.env.batch(1, 1)
    obs = batch.reset(SwimmerTask(np.array([target])), np.zeros(1, np.uint32))
    data.qpos[:], data.qvel[:] = batch.positions[0], batch.velocities[0]
    paid = []
    for push in 0.3 * torques(1000, 1)[:, 0, :, 0]:
        # Random pushes against a spring to the target: joints come and go.
        torque = push + 3.0 * (target - obs[0, :, 0]) - 0.5 * obs[0, :, 1]
        obs, reward, _, _ = batch.step(torque[None, :, None], np.ones(1, bool))
        data.ctrl[:] = np.clip(torque, -1.0, 1.0)
        mujoco.mj_step(model, data, 4)
        (front, rear), (front_speed, rear_speed) = data.qpos[3:], data.qvel[3:]
        np.testing.assert_allclose(obs, [[[front, front_speed, rear], [rear, rear_speed, front]]], atol=1e-5)
        close = [abs(angle - target) < 0.02 for angle in (front, rear)]
        assert reward.tolist() == [{2: 1.0, 1: 0.0, 0: 0.5}[sum(close)]]
        paid.append(reward[0])
    assert all(paid.count(value) > 20 for value in (0.0, 0.5, 1.0))


def test_spaces_are_those_of_mamujoco():
    for see_neighbor in (True, False):
        theirs = mamujoco_v1.parallel_env("Swimmer", "2x1", agent_obsk=int(see_neighbor))
        spec = SwimmerClimb(see_neighbor=see_neighbor).spec
        assert spec == EnvSpec(2, theirs.observation_space("agent_0").shape[0], Box(1), 1000)
        assert theirs.action_space("agent_1").shape == (1,)
        theirs.close()


def test_observations_by_hand():
    positions, velocities = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]), np.array([[10.0, 20.0, 30.0, 40.0, 50.0]])
    full = SwimmerClimb().observe(positions, velocities)
    np.testing.assert_array_equal(full, [[[4, 10, 40, 5, 3, 30], [5, 20, 50, 4, 3, 30]]])
    partial = SwimmerClimb(see_neighbor=False).observe(positions, velocities)
    np.testing.assert_array_equal(partial, [[[4, 10, 40, 3, 30], [5, 20, 50, 3, 30]]])
    joints = PAPER.env.observe(positions, velocities)
    np.testing.assert_array_equal(joints, [[[4, 40, 5], [5, 50, 4]]])
    own = SwimmerClimb(see_neighbor=False, see_head=False)
    np.testing.assert_array_equal(own.observe(positions, velocities), [[[4, 40], [5, 50]]])
    for env, obs in ((SwimmerClimb(), full), (SwimmerClimb(see_neighbor=False), partial), (PAPER.env, joints)):
        assert env.spec.obs_size == obs.shape[-1]
        np.testing.assert_array_equal(env.joint_angles(obs), [[4, 5]])
        np.testing.assert_array_equal(env.heading(obs), [3 if env.see_head else 0])
        np.testing.assert_array_equal(obs[..., env.speed_at], [[40, 50]])
        if env.see_neighbor:
            np.testing.assert_array_equal(obs[..., env.neighbor_at], [[5, 4]])


def test_left_and_right_are_alike():
    """Turned actions from the mirrored start give the mirrored path: what lies across the body changes its sign."""
    mirror = np.array([1.0, -1.0, -1.0, -1.0, -1.0])
    batch = opened(2)
    batch.positions[1], batch.velocities[1] = batch.positions[0] * mirror, batch.velocities[0] * mirror
    for action in torques(200, 1, hold=5):
        batch.step(np.concatenate([action, -action]), all_alive(batch))
        np.testing.assert_allclose(batch.positions[1], batch.positions[0] * mirror, atol=1e-9)
        np.testing.assert_allclose(batch.velocities[1], batch.velocities[0] * mirror, atol=1e-9)
    assert np.abs(batch.positions[0, 3:]).max() > 0.1


def test_energy_falls_without_torque():
    """The fluid takes energy from every motion, and nothing else gives any."""
    mujoco = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_xml_string(importlib.import_module("mesax.envs.swimmer_climb").MODEL)
    data, mass = mujoco.MjData(model), np.zeros((5, 5))

    def energy(batch: SwimmerBatch) -> np.ndarray:
        found = []
        for position, velocity in zip(batch.positions, batch.velocities, strict=True):
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            mujoco.mj_fullM(model, data, mass)
            found.append(0.5 * velocity @ mass @ velocity)
        return np.array(found)

    batch = opened(4)
    batch.velocities[:] = np.random.default_rng(0).normal(size=(4, 5))
    before = energy(batch)
    for _ in range(100):
        batch.step(np.zeros((4, 2, 1)), all_alive(batch))
        after = energy(batch)
        assert np.all(after < before)
        before = after


def test_hinges_stop_at_a_hundred_degrees():
    batch = opened(4)
    push = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], np.float32)[..., None]
    obs, _ = played(batch, np.broadcast_to(push, (300, 4, 2, 1)))
    angles = SwimmerClimb().joint_angles(obs) / DEGREES
    assert np.all(np.abs(angles[-1]) > 99.0)
    assert np.abs(angles).max() < 105.0, "stops are soft, but not very"
    np.testing.assert_array_equal(np.sign(angles[-1]), push[..., 0])


def test_actions_beyond_one_are_clipped():
    wild, tame = opened(3), opened(3)
    for action in torques(20, 3):
        one, other = wild.step(50 * action, all_alive(wild)), tame.step(np.clip(50 * action, -1, 1), all_alive(tame))
        np.testing.assert_array_equal(one.obs, other.obs)


# The game


@pytest.mark.parametrize(
    ("front", "rear", "pay"),
    [
        (17.0, 17.0, 1.0),
        (14.001, 19.999, 1.0),
        (19.999, 14.001, 1.0),
        (13.999, 17.0, 0.0),
        (17.0, 20.001, 0.0),
        (13.999, 20.001, 0.5),
        (20.001, 20.001, 0.5),
        (-17.0, -17.0, 0.5),
        (-17.0, 17.0, 0.0),
        (90.0, 0.0, 0.5),
    ],
)
def test_reward_by_hand(front: float, rear: float, pay: float):
    angles = np.array([[front, rear]]) * DEGREES
    reward = SwimmerClimb().reward(np.array([17.0 * DEGREES]), angles)
    assert reward.dtype == np.float32 and reward.tolist() == [pay]


def test_the_edge_itself_is_out():
    env, edge = SwimmerClimb(delta=0.2), SwimmerClimb().band
    just_in, just_out = np.nextafter(edge, 0.0), np.nextafter(edge, 1.0)
    angles = np.array([[edge, edge], [just_in, -just_in], [just_out, -just_out], [edge, just_in], [edge, just_out]])
    np.testing.assert_array_equal(env.reward(np.zeros(5), angles), np.float32([0.8, 1.0, 0.8, 0.0, 0.8]))


def test_a_step_pays_for_the_state_it_reached():
    env = SwimmerClimb()
    batch = env.batch(3, 1)
    targets = np.array([10.0, 50.0, 12.0]) * DEGREES
    batch.reset(SwimmerTask(targets), np.zeros(3, np.uint32))
    placed(batch, [0.0, 0.0, 0.0, 10 * DEGREES, 10 * DEGREES], 0.0)
    for action in np.broadcast_to(np.float32([[[0.4], [0.4]]]), (10, 3, 2, 1)):
        outcome = batch.step(action, all_alive(batch))
        angles = env.joint_angles(outcome.obs).astype(np.float64)
        np.testing.assert_array_equal(outcome.reward, env.reward(targets, angles))
        assert not outcome.terminated.any() and not outcome.truncated.any()


def test_a_simple_controller_earns_nearly_everything():
    """Holding both joints at the target is possible: all but the first steps pay 1."""
    env, target = SwimmerClimb(), 20 * DEGREES
    batch = opened(2, target=target)
    obs, rewards = env.observe(batch.positions, batch.velocities), []
    for _ in range(300):
        action = np.clip(3.0 * (target - obs[..., 0]) - 0.5 * obs[..., 2], -1.0, 1.0)
        obs, reward, _, _ = batch.step(action[..., None], all_alive(batch))
        rewards.append(reward)
    assert np.all(np.mean(rewards, axis=0) > 0.95)


def test_what_scripted_teams_lose_is_what_the_family_says():
    """A spring in every joint, to the target or 20 degrees from it; what is lost is lost in the first steps."""
    targets = np.concatenate([np.asarray(PAPER.split(seed, 0, 5).test.target) for seed in range(101, 106)])
    batch, lost = PAPER.env.batch(len(targets), 1), []
    for away, most in ((0.0, 1.0), (20 * DEGREES, 0.5)):
        goals, returns = targets - away * np.sign(targets), 0.0
        obs = batch.reset(SwimmerTask(targets), np.arange(len(targets), dtype=np.uint32))
        for _ in range(150):
            push = np.clip(4.0 * (goals[:, None] - obs[..., 0]) - 0.5 * obs[..., PAPER.env.speed_at], -1.0, 1.0)
            obs, reward, _, _ = batch.step(push[..., None], all_alive(batch))
            returns += reward
        lost.append(150 - np.mean(returns) / most)
    np.testing.assert_allclose(lost, PAPER.lost, atol=0.3)


def test_it_is_a_host_environment():
    env = SwimmerClimb(horizon=12)
    assert isinstance(env, HostEnvironment) and hash(env) == hash(dataclasses.replace(env))
    batch = HostActionRepeat(env, 3).batch(2, 1)
    obs = batch.reset(SwimmerTask(np.zeros(2)), np.arange(2, dtype=np.uint32))
    assert (obs.shape, obs.dtype) == ((2, 2, 6), np.float32)
    single = opened(2, env=env, target=0.0)
    action = torques(1, 2)[0]
    repeated, alone = batch.step(action, np.ones(2, bool)), [single.step(action, np.ones(2, bool)) for _ in range(3)]
    np.testing.assert_array_equal(repeated.obs, alone[-1].obs)
    np.testing.assert_array_equal(repeated.reward, sum(step.reward for step in alone))
    assert [(field.shape, field.dtype) for field in repeated[1:]] == [((2,), np.float32), ((2,), bool), ((2,), bool)]
    batch.close()


# Copies


def test_threads_change_nothing():
    actions = torques(60, 9)
    one, *others = (played(opened(9, threads=threads), actions) for threads in (1, 2, 5))
    for other in others:
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_copies_do_not_know_of_each_other():
    actions = torques(40, 5, hold=20)
    together, _ = played(opened(5), actions)
    for copy in range(5):
        alone = SwimmerClimb().batch(1, 1)
        alone.reset(SwimmerTask(np.full(1, 0.3)), np.array([copy], np.uint32))
        np.testing.assert_array_equal(played(alone, actions[:, copy : copy + 1])[0][:, 0], together[:, copy])


def test_a_reset_forgets_the_past():
    batch = opened(3)
    actions = torques(30, 3, hold=15)
    first = played(batch, actions)
    batch.reset(SwimmerTask(np.full(3, 0.3)), np.arange(3, dtype=np.uint32))
    for left, right in zip(first, played(batch, actions), strict=True):
        np.testing.assert_array_equal(left, right)


def test_starts_are_spread_over_the_noise():
    env = SwimmerClimb(reset_noise=0.05)
    batch = opened(400, env=env)
    start = np.concatenate([batch.positions, batch.velocities], axis=1)
    assert np.all(np.abs(start) <= 0.05) and np.all(np.ptp(start, axis=0) > 0.09)
    still = opened(2, env=SwimmerClimb(reset_noise=0.0))
    assert not still.positions.any() and not still.velocities.any()


def test_only_living_copies_move():
    batch, reference = opened(4), opened(4)
    alive = np.array([True, False, True, False])
    for action in torques(10, 4):
        before = batch.positions.copy()
        part, whole = batch.step(action, alive), reference.step(action, all_alive(reference))
        np.testing.assert_array_equal(part.obs[alive], whole.obs[alive])
        np.testing.assert_array_equal(batch.positions[~alive], before[~alive])
        assert np.isfinite(part.obs).all() and not part.truncated.any()
    assert np.isfinite(batch.step(action, np.zeros(4, bool)).obs).all()


@pytest.mark.parametrize("velocity", [1e6, 1e12, np.inf, np.nan])
def test_broken_physics_ends_one_episode_only(velocity: float, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log in the working directory
    batch, untouched = opened(4, threads=2), opened(4, threads=2)
    alive = np.ones(4, bool)
    for time, action in enumerate(torques(20, 4)):
        if time == 5:
            seen = outcome.obs[2]
            batch.velocities[2] = velocity
        outcome, expected = batch.step(action, alive), untouched.step(action, np.ones(4, bool))
        assert np.isfinite(outcome.obs).all() and np.isfinite(outcome.reward).all()
        others = np.arange(4) != 2
        np.testing.assert_array_equal(outcome.obs[others], expected.obs[others])
        assert not outcome.terminated.any()
        assert np.flatnonzero(outcome.truncated).tolist() == ([2] if time == 5 else [])
        if time >= 5:
            np.testing.assert_array_equal(outcome.obs[2], seen)
        alive &= ~outcome.truncated
    start = batch.reset(SwimmerTask(np.full(4, 0.3)), np.arange(4, dtype=np.uint32))
    np.testing.assert_array_equal(start, opened(4)._obs)
    assert not batch.step(action, np.ones(4, bool)).truncated.any(), "a new episode is sound again"


def test_a_failure_of_the_engine_ends_the_episodes_it_names(monkeypatch):
    batch, untouched = opened(3), opened(3)
    engine, inner = batch._engine, batch._engine.step

    class Failing:
        """The engine, as if its copy 1 had raised."""

        status = np.array([0, 1, 0])
        warning = engine.warning

        def step(self, ids, number):
            inner(np.array([0, 2]), number)
            raise batch._failure(np.array([1]), "stack overflow", 3)

    monkeypatch.setattr(batch, "_engine", Failing())
    action = torques(1, 3)[0]
    outcome, expected = batch.step(action, np.ones(3, bool)), untouched.step(action, np.ones(3, bool))
    assert outcome.truncated.tolist() == [False, True, False] and np.isfinite(outcome.obs).all()
    np.testing.assert_array_equal(outcome.obs[[0, 2]], expected.obs[[0, 2]])


# What can go wrong


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"band_degrees": 0.0}, "band-degrees"),
        ({"band_degrees": float("nan")}, "band-degrees"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"horizon": 0}, "horizon"),
        ({"reset_noise": -0.1}, "reset-noise"),
    ],
)
def test_impossible_games_are_refused(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        SwimmerClimb(**settings)


def test_bad_calls_are_refused():
    with pytest.raises(UsageError, match="copies and threads must be at least 1"):
        SwimmerClimb().batch(0, 1)
    with pytest.raises(UsageError, match="copies and threads must be at least 1"):
        SwimmerClimb().batch(1, 0)
    batch = SwimmerClimb().batch(2, 1)
    with pytest.raises(UsageError, match="reset the swimmers"):
        batch.step(np.zeros((2, 2, 1)), np.ones(2, bool))
    with pytest.raises(UsageError, match="2 copies need as many tasks and seeds, not 3 and 2"):
        batch.reset(SwimmerTask(np.zeros(3)), np.arange(2))
    batch.reset(SwimmerTask(np.zeros(2)), np.arange(2))
    broken = np.array([[[0.0], [0.0]], [[np.nan], [0.0]]])
    with pytest.raises(TrainingError, match="not a number"):
        batch.step(broken, np.ones(2, bool))
    batch.step(broken, np.array([True, False]))  # nobody reads the action of a copy that does not play


def test_missing_mujoco_is_named_with_its_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UsageError, match=r"pip install 'mesax\[mujoco\]'"):
        SwimmerClimb().batch(1, 1)
    assert SwimmerClimb().spec.num_agents == 2, "all but running it works without"


def test_a_run_without_mujoco_is_refused_before_it_has_a_directory(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert main(["run", "plain", "swimmer-wide", "--preset", "smoke", "--out", str(tmp_path / "run")]) == USAGE
    assert "pip install 'mesax[mujoco]'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="needs MuJoCo"):
        run_experiment(experiment("plain", "swimmer-wide", "smoke"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    planned = [
        "--methods",
        "plain",
        "--envs",
        "swimmer-wide",
        "--preset",
        "smoke",
        "--out",
        str(tmp_path / "runs"),
        "--plan",
    ]
    assert main(["sweep", *planned]) == 0, "whoever plans need not have it"


def test_without_mujoco_a_run_that_is_done_is_shown_and_another_not_gone_on_with(monkeypatch, tmp_path, capsys):
    path, asked = tmp_path / "run", experiment("plain", "swimmer-wide", "smoke")
    words = ["run", "plain", "swimmer-wide", "--preset", "smoke", "--out", str(path), "--reuse", "--quiet"]
    monkeypatch.setattr(running, "_execute", lambda *_: 0)
    monkeypatch.setattr(running, "_show", lambda *_: 0)
    assert main(words) == 0
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for refused in (words, ["resume", str(path)]):
        assert main(refused) == USAGE
        assert "pip install 'mesax[mujoco]'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="needs MuJoCo"):
        run_experiment(asked, path)
    run, summary = RunDirectory.open(path), {"mean_return": 1.0}
    run.seal({"summary.json": run.write_json("summary.json", summary)})
    run.set_status("done")
    monkeypatch.setattr(RunDirectory, "check_results", lambda self: None)
    assert main(words) == 0
    assert run_experiment(asked, path) == summary


# The family

HEADLINE, FULL = SwimmerFamily(), SwimmerFamily(least_degrees=0.0)


def degrees_of(tasks: SwimmerTask) -> np.ndarray:
    return np.rad2deg(np.asarray(tasks.target, np.float64))


def step_to(front: float, rear: float, env: SwimmerClimb = SwimmerClimb()) -> Transition:
    """A transition that ends with these joint angles, in degrees."""
    obs = env.observe(np.array([[0, 0, 0.7, front * DEGREES, rear * DEGREES]]), np.ones((1, 5)))[0]
    after = jnp.asarray(obs, jnp.float32)
    return Transition(jnp.full_like(after, 0.1), jnp.zeros((2, 1)), after)


@given(st.integers(0, 2**32 - 1), st.sampled_from([HEADLINE, FULL, PAPER]))
def test_tasks_are_within_range_and_disjoint(seed: int, family: SwimmerFamily):
    split = family.split(seed, 20, 20)
    train, test = degrees_of(split.train), degrees_of(split.test)
    assert not set(np.asarray(split.train.target).tolist()) & set(np.asarray(split.test.target).tolist())
    for degrees in (train, test):
        assert np.all((np.abs(degrees) > family.least_degrees) & (np.abs(degrees) < 30.0))
    for fewer in (0, 3):
        np.testing.assert_array_equal(family.split(seed, 20, fewer).train.target, split.train.target)
        np.testing.assert_array_equal(family.split(seed, fewer, 20).test.target, split.test.target)
        np.testing.assert_array_equal(family.split(seed, fewer, 0).train.target, split.train.target[:fewer])


@pytest.mark.parametrize(("seed", "degrees"), [(0, -21.454), (1, 26.092), (2, 8.769), (3, -29.396), (4, 18.664)])
def test_the_first_five_test_tasks_are_the_papers(seed: int, degrees: float):
    """The first of each seed is what the authors' baselines learn."""
    drawn = degrees_of(PAPER.split(seed, 30, 7).test)
    assert drawn[0] == pytest.approx(degrees, abs=1e-3)
    np.random.seed(1357 + seed)  # noqa: NPY002
    theirs = np.random.uniform(-30 / 180 * np.pi, 30 / 180 * np.pi, size=5)  # noqa: NPY002
    np.testing.assert_allclose(drawn[:5], np.rad2deg(theirs), rtol=1e-6)
    np.testing.assert_array_equal(drawn[5:], degrees_of(FULL.split(seed, 0, 2).test))


def test_training_tasks_leave_the_papers_out(monkeypatch):
    first = PAPER.split(3, 4, 0).train.target
    monkeypatch.setattr(SwimmerFamily, "_published", lambda self, seed: [np.asarray(first)[1]])
    np.testing.assert_array_equal(PAPER.split(3, 3, 0).train.target, np.asarray(first)[[0, 2, 3]])


def test_tasks_are_spread_evenly():
    split = HEADLINE.split(3, 1500, 1500)
    for part in (split.train, split.test):
        degrees = degrees_of(part)
        assert abs(np.mean(degrees > 0) - 0.5) < 0.05
        found = [HEADLINE.describe(SwimmerTask(np.asarray(one))).group for one in np.asarray(part.target)]
        shares = [found.count(group) / len(found) for group in HEADLINE.groups]
        assert all(abs(share - 1 / 3) < 0.05 for share in shares)
        assert np.abs(degrees).min() < 9.1 and np.abs(degrees).max() > 29.9
    other = HEADLINE.split(4, 5, 0).train
    assert not set(np.asarray(other.target).tolist()) & set(np.asarray(split.train.target).tolist())


def test_returns_and_threshold():
    assert (HEADLINE.optimal_return, HEADLINE.suboptimal_return, HEADLINE.optimal_threshold) == (1000.0, 500.0, 750.0)
    safe = SwimmerFamily(SwimmerClimb(delta=0.1, horizon=200))
    assert safe.suboptimal_return == pytest.approx(180.0)
    assert safe.suboptimal_return < safe.optimal_threshold <= safe.optimal_return == 200.0
    assert float(HEADLINE.score(jnp.ones(1000))) == HEADLINE.optimal_return
    assert PAPER.env.band == 0.02 and PAPER.env.horizon == 1000
    slow = SwimmerFamily(SwimmerClimb(delta=0.2, horizon=100), lost=(10.0, 30.0))
    assert (slow.optimal_return, slow.suboptimal_return, slow.optimal_threshold) == pytest.approx((90.0, 56.0, 73.0))
    assert HEADLINE.num_tasks is None and HEADLINE.high_reward == 1.0
    assert HEADLINE.facts()["return_is"] == "sum" and HEADLINE.facts()["band_degrees"] == 3.0
    assert HEADLINE.facts()["lowest_return"] == 0.0


def test_tasks_in_words():
    assert HEADLINE.groups == ("9-16 deg", "16-23 deg", "23-30 deg")
    assert FULL.groups == ("0-10 deg", "10-20 deg", "20-30 deg")
    for degrees, label, group in ((14.23, "alpha=+14.2", 0), (-16.1, "alpha=-16.1", 1), (29.99, "alpha=+30.0", 2)):
        task = SwimmerTask(jnp.asarray(degrees * DEGREES, jnp.float32))
        info = HEADLINE.describe(task)
        assert (info.label, info.group) == (label, HEADLINE.groups[group])
        np.testing.assert_allclose(info.target, [[degrees]], atol=1e-3)
        assert HEADLINE.breakdown(task, np.ones(7)) == {HEADLINE.groups[group]: 7.0}
    for task in np.asarray(FULL.split(0, 200, 0).train.target):
        low, high = map(float, FULL.describe(SwimmerTask(np.asarray(task))).group.removesuffix(" deg").split("-"))
        assert low <= abs(float(task)) / DEGREES <= high
    with pytest.raises(UsageError, match="not within"):
        HEADLINE.describe(SwimmerTask(jnp.asarray(31 * DEGREES)))


@pytest.mark.parametrize("settings", [(-1.0, 30.0), (30.0, 30.0), (9.0, 101.0), (float("nan"), 30.0)])
def test_impossible_families_are_refused(settings: tuple[float, float]):
    with pytest.raises(UsageError, match="two growing angles"):
        SwimmerFamily(least_degrees=settings[0], most_degrees=settings[1])


@pytest.mark.parametrize(
    ("front", "rear", "number"),
    [
        (0.5, 0.5, 10),
        (-0.5, -0.5, 9),
        (-29.9, -29.9, 0),
        (29.9, 29.9, 19),
        (30.5, 30.5, -1),
        (-31.0, -30.0, -1),
        (12.0, 17.9, 14),
        (17.9, 12.0, 14),
        (12.0, 18.1, -1),
        (90.0, -90.0, -1),
    ],
)
def test_configurations_by_hand(front: float, rear: float, number: int):
    """Twenty bins of three degrees from -30 to 30, by the mean of two angles less than six degrees apart."""
    assert HEADLINE.configuration_shape == (1, 20)
    for env in (SwimmerClimb(), SwimmerClimb(see_neighbor=False)):
        found = jax.jit(SwimmerFamily(env).configuration)(step_to(front, rear, env))
        assert int(found) == number and found.dtype == jnp.int32


def test_a_configuration_is_one_that_some_target_would_pay():
    random = np.random.default_rng(0)
    angles = random.uniform(-24, 24, (200, 1)) + random.uniform(-5, 5, (200, 2))
    steps = tree_stack([step_to(*pair) for pair in angles])
    found = jax.jit(jax.vmap(HEADLINE.configuration))(steps).tolist()
    targets = np.linspace(-30, 30, 2401) * DEGREES
    for pair, number in zip(angles, found, strict=True):
        pays = HEADLINE.env.reward(targets, np.broadcast_to(pair * DEGREES, (len(targets), 2))) == 1.0
        if abs(abs(pair[0] - pair[1]) - 6.0) > 0.05:  # finer than the grid of targets
            assert pays.any() == (number >= 0)


def test_rewarding_configurations_are_the_bins_of_the_targets():
    tasks = SwimmerTask(jnp.asarray(np.array([-29.0, 10.0, 11.0, 12.5]) * DEGREES, jnp.float32))
    assert HEADLINE.rewarding_configurations(tasks).tolist() == [0, 13, 14]
    assert HEADLINE.rewarding_configurations(HEADLINE.split(0, 0, 0).train).tolist() == []
    assert FULL.rewarding_configurations(FULL.split(0, 400, 0).train).tolist() == list(range(20))
    wide = SwimmerFamily(SwimmerClimb(band_degrees=7.0))
    assert wide.num_bins == 9
    assert wide.rewarding_configurations(wide.split(0, 300, 0).train).max() < 9


def test_joint_angles_are_the_features():
    step = step_to(12.0, -7.0)
    features = JointAngles()(HEADLINE.env.spec, step)
    np.testing.assert_allclose(features, np.array([12.0, -7.0]) * DEGREES, rtol=1e-6)
    with pytest.raises(UsageError, match="entry"):
        JointAngles(-1)


def test_tasks_of_a_split_can_be_played():
    split = HEADLINE.split(0, 3, 0)
    batch = SwimmerClimb().batch(3, 1)
    batch.reset(split.train, np.arange(3, dtype=np.uint32))
    np.testing.assert_array_equal(batch._targets, np.asarray(split.train.target, np.float64))
    assert float(tree_index(split.train, 1).target) == batch._targets[1]
    assert len(COORDINATES) == batch.positions.shape[1]
