"""What the swimmers' presets say fits what agents see: joints alone in the paper's, the head too in the wide one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.swimmer_climb import SwimmerTask
from mesax.suites.swimmer.presets import WORLDS, World, preset
from mesax.suites.swimmer.render import REACH, scene
from mesax.training.driver import play_episodes
from mesax.types import Transition

pytest.importorskip("mujoco")


@pytest.fixture(params=WORLDS, scope="module")
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]


def seen_at(world: World, front: float, rear: float) -> np.ndarray:
    """What both agents see at these angles, while all else is about 7."""
    everything = np.full((1, 5), 7.0)
    everything[0, 3:] = front, rear
    return jnp.asarray(world.family.env.observe(everything, np.full((1, 5), 7.0))[0], jnp.float32)


def test_keys_are_bins_of_both_joints(world: World):
    step = Transition(seen_at(world, 0.0, 0.0), jnp.zeros((2, 1)), seen_at(world, 0.35, -0.17))
    state, _ = world.keys(world.family.env.spec, step)
    assert state.tolist() == [[4, -2], [-2, 4]]  # 20 and -10 degrees, by 5


def test_the_tour_holds_its_angles_within_the_band(world: World):
    env, policy = world.family.env, world.tour(world.family.env.spec)
    batch = env.batch(1, 1)
    obs, memory = batch.reset(SwimmerTask(np.zeros(1)), np.zeros(1, np.uint32)), policy.start(jax.random.key(3))
    angles, act = np.asarray(memory[0]), jax.jit(policy.act)
    for number in range(3):
        for _ in range(world.tour.steps):
            action, memory = act(memory, jnp.asarray(obs[0]), jax.random.key(0))
            obs = batch.step(np.asarray(action)[None], np.ones(1, bool)).obs
        assert np.all(np.abs(env.joint_angles(obs[0]) - angles[number]) < env.band)


@pytest.mark.parametrize(("name", "degrees"), [("swimmer", 1.1459), ("swimmer-wide", 3.0)])
def test_the_paper_preset_has_the_band_as_its_threshold(name: str, degrees: float):
    mesa = preset(name, "paper").mesa
    assert mesa.method.reward.distance_threshold == pytest.approx(2**0.5 * degrees * np.pi / 180, abs=1e-4)
    assert mesa.family == WORLDS[name].family and mesa.num_test_tasks == {"swimmer": 5, "swimmer-wide": 6}[name]


def test_a_body_whose_heading_nobody_sees_is_drawn_with_its_head_to_the_right():
    smoke = preset("swimmer", "smoke").mesa
    env, task = smoke.training_env, SwimmerTask(np.array([-0.3], np.float32))
    policy = WORLDS["swimmer"].tour(env.spec)
    episodes = play_episodes(env, task, policy, jax.random.key(0), 1)
    shown = scene(smoke.family, SwimmerTask(np.asarray(task.target[0])), episodes)
    assert np.ptp(shown.band) == pytest.approx(2 * 1.1459, abs=1e-4)
    (take,) = shown.takes
    nose, front = take.chains[2][:, 0], take.chains[2][:, 1]
    np.testing.assert_allclose(nose - front, np.tile([1.0, 0.0], (len(nose), 1)), atol=1e-6)
    assert "within 1.15° of -17.2°" in shown.about and np.abs(take.chains[2]).max() < REACH
