"""The particle world moves as MPE's does, step by step, and as computed by hand; walls and contacts hold."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2.simple_spread.simple_spread import raw_env as spread

from mesax.envs.particle_climb import ParticleClimb, ParticleState, ParticleTask
from mesax.envs.particles import DIRECTIONS, UNIT_FORCE, ParticlePhysics, length, steer
from mesax.errors import UsageError

STEPS = 25
SIZE = 0.15
"""Radius of the agents in simple_spread, whose landmarks push nobody."""


def mpe_state(env) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of mpe2's agents, then of its landmarks."""
    states = [entity.state for entity in env.world.entities]
    return np.stack([state.p_pos for state in states]), np.stack([state.p_vel for state in states])


def crowded(env, seed: int) -> None:
    """A fresh episode, in a part of the plane so small that bodies overlap from the start."""
    env.reset(seed=seed)
    for entity in env.world.entities:
        entity.state.p_pos = 0.5 * entity.state.p_pos


def chase(random: np.random.Generator, position: np.ndarray) -> np.ndarray:
    """Actions of which half are random and half lead to the middle, where the others are."""
    away = np.argmax(np.abs(position), axis=1)
    home = 1 + 2 * away + (np.take_along_axis(position, away[:, None], 1)[:, 0] < 0)
    return np.where(random.random(len(position)) < 0.5, home, random.integers(0, 5, len(position)))


def mpe_step(env, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    for action in actions:
        env.step(int(action))
    return mpe_state(env)


def contacts(position: np.ndarray) -> int:
    """How many pairs of agents overlap."""
    apart = np.linalg.norm(position[:, None] - position[None], axis=-1)
    return int(np.sum(np.triu(apart < 2 * SIZE, 1)))


@jax.jit
def agents_step(position, velocity, action):
    """Our step of the agents of mpe2's world."""
    return ParticlePhysics().step(position, velocity, UNIT_FORCE * jnp.asarray(DIRECTIONS)[action], SIZE)


def drive(env, episodes: int, follow: Callable) -> int:
    """Play mpe2 and hand every step to `follow(before, actions, after, first)`; returns overlaps on the way."""
    random, found = np.random.default_rng(len(env.world.entities)), 0
    for episode in range(episodes):
        crowded(env, episode)
        before = mpe_state(env)
        for time in range(STEPS):
            actions = chase(random, before[0][: len(env.world.agents)])
            after = mpe_step(env, actions)
            follow(before, actions, after, time == 0)
            before = after
            found += contacts(after[0][: len(env.world.agents)])
    return found


# Parity with mpe2


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_episodes_of_simple_spread_in_double_precision(number: int):
    env = spread(N=number, max_cycles=STEPS + 1)
    with jax.enable_x64(True):
        state, found, expected = None, [], []

        def follow(before, actions, after, first):
            nonlocal state
            state = agents_step(*([part[:number] for part in before] if first else state), actions)
            found.append(state)
            expected.append([part[:number] for part in after])

        overlaps = drive(env, 30, follow)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert state is not None and state[0].dtype == np.float64
    assert overlaps > 100 or number == 1


def test_every_single_step_in_single_precision():
    """From the same state each time: contacts multiply rounding errors, so whole episodes drift apart."""
    env = spread(N=3, max_cycles=STEPS + 1)

    def follow(before, actions, after, first):
        ours = agents_step(*(part[:3].astype(np.float32) for part in before), actions)
        assert ours[0].dtype == jnp.float32
        np.testing.assert_allclose(ours, [part[:3] for part in after], rtol=0, atol=5e-6)

    assert drive(env, 10, follow) > 50


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_climb_world_without_walls_moves_and_observes_as_simple_spread(number: int):
    env = spread(N=number, max_cycles=STEPS + 1)
    world = ParticleClimb(number, number, wall=None, agents_collide=True, horizon=STEPS)
    placed = dataclasses.replace(world, observe_position=True)
    names, key, state, task = env.possible_agents, jax.random.key(0), None, None
    with jax.enable_x64(True):
        step, observe = jax.jit(world.step), jax.jit(placed.observe)

        def follow(before, actions, after, first):
            nonlocal state, task
            if first:
                task = ParticleTask(*jax.device_put((before[0][number:], np.int64(0), np.int64(1))))
                state = ParticleState(*jax.device_put([part[:number] for part in before]))
            state, outcome = step(task, state, actions, key)
            np.testing.assert_allclose([state.position, state.velocity], np.array(after)[:, :number], rtol=0, atol=1e-9)
            seen = np.stack([env.observe(name) for name in names])
            whole = seen[:, : 4 * number + 2]  # without what others say
            np.testing.assert_allclose(observe(task, state), whole, rtol=0, atol=1e-6)
            np.testing.assert_allclose(outcome.obs, np.delete(whole, [2, 3], axis=1), rtol=0, atol=1e-6)

        drive(env, 3, follow)


# By hand


@partial(jax.jit, static_argnums=0)
def move(physics: ParticlePhysics, position, velocity, force):
    return physics.step(position, velocity, force)


def travel(physics: ParticlePhysics, force, steps: int, start=(0.0, 0.0), speed=(0.0, 0.0)):
    """Positions and velocities of a single body after each step under a constant force."""
    path = [np.array([[start, speed]], np.float32).swapaxes(0, 1)]
    for _ in range(steps):
        path.append(np.array(move(physics, *path[-1], np.array([force], np.float32))))
    positions, velocities = np.array(path[1:])[:, :, 0].swapaxes(0, 1)
    return positions, velocities


@pytest.mark.parametrize(
    ("integration", "places"),
    [
        ("velocity-first", [0.05, 0.1375, 0.253125, 0.38984375]),
        ("position-first", [0.0, 0.05, 0.1375, 0.253125]),
    ],
)
def test_displacements_under_constant_thrust(integration, places: list[float]):
    """v: .5, .75 * .5 + .5 = .875, 1.15625, 1.3671875; a tenth of each is traveled, at once or a step later."""
    positions, velocities = travel(ParticlePhysics(integration=integration), (5.0, 0.0), 4)
    np.testing.assert_allclose(positions[:, 0], places, rtol=1e-6)
    np.testing.assert_allclose(velocities[:, 0], [0.5, 0.875, 1.15625, 1.3671875], rtol=1e-6)
    assert not positions[:, 1].any() and not velocities[:, 1].any()


def test_the_five_actions():
    world = ParticleClimb(num_agents=5, wall=None)
    nowhere = np.zeros((5, 2), np.float32)
    task = ParticleTask(*jax.device_put((nowhere, np.int32(0), np.int32(1))))
    still = ParticleState(*jax.device_put((nowhere, nowhere)))

    def moved(world: ParticleClimb) -> ParticleState:
        return jax.jit(world.step)(task, still, np.arange(5, dtype=np.int32), jax.random.key(0))[0]

    after = moved(world)
    np.testing.assert_allclose(after.velocity, [[0, 0], [-0.5, 0], [0.5, 0], [0, -0.5], [0, 0.5]])
    faster = moved(dataclasses.replace(world, acceleration=2.0))
    np.testing.assert_allclose(faster.velocity, 0.4 * np.asarray(after.velocity))


def test_thrust_and_damping_balance_at_the_terminal_speed():
    """F dt / damping = 5 * .1 / .25."""
    _, velocities = travel(ParticlePhysics(), (5.0, 0.0), 60)
    assert velocities[-1, 0] == pytest.approx(2.0, rel=1e-5)


@jax.jit
def forces_between(position: jax.Array) -> jax.Array:
    return ParticlePhysics().contact_forces(position, SIZE)


def contact_forces(places) -> np.ndarray:
    return np.asarray(forces_between(np.array(places, np.float32)))


def test_repulsion_by_hand():
    """Overlap .1 of two bodies: a force of 100 * .1, opposite on both, along the line between them."""
    forces = contact_forces([[0.0, 0.0], [0.12, 0.16]])
    np.testing.assert_allclose(forces, [[-6.0, -8.0], [6.0, 8.0]], rtol=1e-5)
    touching = contact_forces([[0.0, 0.0], [0.3, 0.0]])
    np.testing.assert_allclose(touching[:, 0], np.array([-1, 1]) * 0.1 * np.log(2), rtol=1e-3)
    apart = contact_forces([[0.0, 0.0], [0.4, 0.0]])
    np.testing.assert_allclose(apart, 0.0, atol=1e-12)


def test_bodies_without_a_size_pass_through_each_other():
    here = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(move(ParticlePhysics(), here + 0.1, here, here)[0], here + 0.1)


# Walls


@pytest.mark.parametrize("integration", ["position-first", "velocity-first"])
def test_a_wall_holds_and_stops_only_what_presses_against_it(integration):
    physics = ParticlePhysics(wall=1.0, integration=integration)
    positions, velocities = travel(physics, (5.0, 0.0), 20, start=(0.9, -0.5), speed=(0.0, 1.0))
    assert positions.max() <= 1.0 and np.all(positions[4:, 0] == 1.0)
    assert np.all(velocities[4:, 0] == 0.0), "pressing on does not gather speed"
    np.testing.assert_allclose(velocities[:, 1], 0.75 ** np.arange(1, 21), rtol=1e-5)
    assert positions[-1, 1] > -0.25, "sliding along the wall is free"


def test_a_wall_lets_go_at_once():
    for side in (-1.0, 1.0):
        positions, velocities = travel(ParticlePhysics(wall=1.0), (-5.0 * side, 0.0), 2, start=(side, 0.0))
        np.testing.assert_allclose(velocities[:, 0], [-0.5 * side, -0.875 * side])
        np.testing.assert_allclose(positions[:, 0], [side, 0.95 * side])


def test_corners_hold_both_ways():
    positions, velocities = travel(ParticlePhysics(wall=0.5), (5.0, -5.0), 20, start=(0.4, -0.4))
    np.testing.assert_array_equal(positions[-1], [0.5, -0.5])
    np.testing.assert_array_equal(velocities[-1], [0.0, 0.0])


# Bodies at the very same point


@pytest.mark.parametrize("others", [(), ((0.1, 0.0),), ((0.5, 0.5), (0.0, 0.0))])
def test_bodies_in_one_point_give_numbers_and_finite_gradients(others):
    position = np.array([(0.0, 0.0), (0.0, 0.0), *others], np.float32)

    def last_place(position, velocity, force):
        def step(carry, _):
            return ParticlePhysics(wall=2.0).step(*carry, force, SIZE), None

        (position, velocity), _ = jax.lax.scan(step, (position, velocity), None, 3)
        return jnp.sum(jnp.square(position)) + jnp.sum(velocity), (position, velocity)

    still = np.zeros_like(position)
    slopes, after = jax.jit(jax.grad(last_place, argnums=(0, 1, 2), has_aux=True))(position, still, still)
    for array in jax.tree.leaves((slopes, after)):
        assert np.all(np.isfinite(array))


def test_bodies_in_one_point_do_not_push_each_other():
    assert not np.any(contact_forces([[0.3, 0.3]] * 2))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_step": 0.0}, "time-step must be above 0, not 0.0"),
        ({"contact_margin": -1.0}, "contact-margin must be above 0, not -1.0"),
        ({"wall": 0.0}, "wall must be above 0, not 0.0"),
        ({"wall": float("nan")}, "wall must be above 0, not nan"),
        ({"integration": "both"}, "integration must be position-first or velocity-first, not both"),
    ],
)
def test_impossible_physics(settings: dict, message: str):
    with pytest.raises(UsageError, match=f"^{message}$"):
        ParticlePhysics(**settings)


def test_steering_reckons_with_the_order_of_integration():
    """At .04 to the right a push leads to .05, .0875, .1156 at once, or a step later: it misses by .133, or by .0975.

    Who stays misses by .12.
    """
    for order, action in (("velocity-first", 0), ("position-first", 2)):
        physics = ParticlePhysics(integration=order)
        assert jax.jit(partial(steer, physics=physics))(jnp.array([0.04, 0.0]), jnp.zeros(2)) == action


def test_a_steered_agent_stays_on_a_small_disc_whatever_way_it_came():
    """A push from rest coasts over .2, the width of a disc of radius .1: few places to rest are on it."""
    physics, number = ParticlePhysics(integration="velocity-first"), 2_000
    random = np.random.default_rng(0)
    place, speed = (random.uniform(-most, most, (number, 2)).astype(np.float32) for most in (0.7, 1.4))

    def step(state, _):
        push = jax.vmap(partial(steer, physics=physics))(-state[0], state[1])
        state = physics.step(*state, UNIT_FORCE * jnp.asarray(DIRECTIONS)[push])
        return state, length(state[0]) < 0.1

    _, on = jax.jit(lambda *state: jax.lax.scan(step, state, None, 75))(place, speed)
    assert np.asarray(on)[16:].all() and not np.asarray(on)[4].all()
