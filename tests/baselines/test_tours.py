"""Scripted tours: they go where something may pay, stay there, and are refused where they make no sense."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.baselines.scripts import Angles, Landmarks, SameActions, UnknownTour
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.envs.particles import offsets_to
from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerTask
from mesax.errors import UsageError
from mesax.policy import EXPLORER
from mesax.types import Box, Discrete, EnvSpec, tree_index

PAPERS = ParticleClimb(3, 5, horizon=75, radius=0.1, wall=None, agent_size=0.05, integration="velocity-first")
"""The paper's physics; its observations are these without velocities."""


@pytest.mark.parametrize("world, hidden", [(ParticleClimb(3, 5), 0), (PAPERS, 2)], ids=["wide", "without velocities"])
def test_a_team_of_three_meets_in_twos_at_every_landmark(world: ParticleClimb, hidden: int):
    family = ParticleClimbFamily(world, 2, landmark_range=0.9 - 0.25 * hidden)
    task = tree_index(family.split(0, 1, 1).test, 0)
    policy = Landmarks(5, 2, world.num_own - hidden, world.integration)(world.spec)

    def episode(key):
        def step(carry, key):
            state, obs, memory = carry
            action, memory = policy.act(memory, obs[:, hidden:], key)
            state, outcome = world.step(task, state, action, key)
            on = world.occupied(offsets_to(task.landmarks, state.position))
            return (state, outcome.obs, memory), (jnp.sum(on, axis=0), outcome.reward)

        state, obs = world.reset(task, key)
        return jax.lax.scan(step, (state, obs, policy.start(key)), jax.random.split(key, world.horizon))[1]

    on, rewards = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 16))
    met = np.sum(np.asarray(on) == 2, axis=1)  # steps with two agents on a landmark, [episodes, landmarks]
    assert np.mean(met > 0) > 0.95 and np.median(met) >= 4
    assert np.all(np.sum(np.asarray(rewards) == 1.0, axis=1) >= 1)
    assert int(policy.label(policy.start(jax.random.key(0))).actor) == EXPLORER


def test_joints_hold_one_angle_after_the_other():
    pytest.importorskip("mujoco")
    env, plan = SwimmerClimb(horizon=80), Angles(0.5, steps=40)
    policy = plan(env.spec)
    batch = env.batch(1, 1)
    obs = batch.reset(SwimmerTask(np.zeros(1)), np.zeros(1, np.uint32))
    memory = policy.start(jax.random.key(3))
    angles = np.asarray(memory[0])
    assert angles.shape == (2,) and np.all(np.abs(angles) <= 0.5) and abs(angles[0] - angles[1]) > 0.1
    act, seen = jax.jit(policy.act), []
    for _ in range(80):
        action, memory = act(memory, jnp.asarray(obs[0]), jax.random.key(0))
        obs = batch.step(np.asarray(action)[None], np.ones(1, bool)).obs
        seen.append(env.joint_angles(obs[0]))
    batch.close()
    for number, angle in enumerate(angles):
        held = np.all(np.abs(np.array(seen[40 * number : 40 * number + 40]) - angle) < env.band, axis=1)
        assert held[-10:].all(), f"angle {number}"


def test_tours_are_refused_where_they_make_no_sense():
    few, many = EnvSpec(2, 3, Discrete(5), 10), EnvSpec(2, 3, Box(2), 10)
    with pytest.raises(UsageError, match="use 'uniform', which knows nothing"):
        UnknownTour()(few)
    with pytest.raises(UsageError, match="discrete actions"):
        SameActions()(many)
    with pytest.raises(UsageError, match="a tour of 5 landmarks needs to see them"):
        Landmarks(5, 2)(few)
    for spec in (few, many):
        with pytest.raises(UsageError, match="one torque"):
            Angles(0.5)(spec)
    with pytest.raises(UsageError, match="most must be above 0"):
        Angles(0.0)
