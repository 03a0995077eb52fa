"""Occupancy of points as features: by hand, sorted over agents, blind to the layout."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from mesax.errors import UsageError
from mesax.rewards.features import SortedOccupancy
from mesax.types import Discrete, EnvSpec, Transition

AGENTS, POINTS = 3, 2
SPEC = EnvSpec(AGENTS, 2 + 2 * POINTS + 4, Discrete(5), 10)
OCCUPANCY = SortedOccupancy(POINTS)

features_of = jax.jit(lambda step: OCCUPANCY(SPEC, step))


def step_to(position: np.ndarray, points: np.ndarray, before: float = 9.0) -> Transition:
    """A step after which agents at `position` see velocities, offsets to points, and offsets to the others."""
    random = np.random.default_rng(0)
    offsets = (points[None] - position[:, None]).reshape(AGENTS, -1)
    rest = [random.normal(size=(AGENTS, size)) for size in (2, 4)]
    obs = np.concatenate([rest[0], offsets, rest[1]], axis=1)
    return Transition(
        jnp.full((AGENTS, SPEC.obs_size), before), jnp.zeros(AGENTS, jnp.int32), jnp.asarray(obs, jnp.float32)
    )


def test_occupancy_by_hand():
    """Half at the radius of .2, sigmoid(4) on the spot, sigmoid(2) at .1, nothing far away; the best agent first."""
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    position = np.array([[0.2, 0.0], [0.0, 0.0], [1.0, 0.1]])
    on_the_spot, near = 1 / (1 + np.exp(-4.0)), 1 / (1 + np.exp(-2.0))
    np.testing.assert_allclose(
        features_of(step_to(position, points)), [on_the_spot, 0.5, 0.0, near, 0.0, 0.0], atol=1e-5
    )


def test_two_agents_at_a_point_differ_from_one():
    points = np.array([[0.0, 0.0], [5.0, 0.0]])
    for agents in range(AGENTS + 1):
        position = np.where(np.arange(AGENTS)[:, None] < agents, 0.0, -5.0) * np.ones((1, 2))
        occupied = features_of(step_to(position, points)).reshape(POINTS, AGENTS)
        np.testing.assert_array_equal(occupied[0] > 0.5, np.arange(AGENTS) < agents)
        np.testing.assert_allclose(occupied[1], np.zeros(AGENTS), atol=1e-5)


@given(st.integers(0, 1_000))
def test_agents_may_swap_and_the_world_may_move_and_turn(seed: int):
    random = np.random.default_rng(seed)
    position, points = (random.normal(scale=0.3, size=(number, 2)) for number in (AGENTS, POINTS))
    features = features_of(step_to(position, points))
    ranks = np.asarray(features).reshape(POINTS, AGENTS)
    assert np.all(ranks[:, :-1] >= ranks[:, 1:])
    swapped = features_of(step_to(position[random.permutation(AGENTS)], points))
    np.testing.assert_allclose(swapped, features, rtol=1e-5, atol=1e-6)
    angle, shift = random.uniform(0, 2 * np.pi), random.normal(size=2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = features_of(step_to(position @ turn + shift, points @ turn + shift))
    np.testing.assert_allclose(moved, features, rtol=1e-4, atol=1e-4)
    elsewhere = features_of(step_to(position, points[::-1]))
    np.testing.assert_allclose(elsewhere, np.asarray(ranks[::-1]).reshape(-1), rtol=1e-5, atol=1e-6)


def test_only_what_the_step_led_to_counts():
    position, points = np.zeros((AGENTS, 2)), np.ones((POINTS, 2))
    plain, other = (features_of(step_to(position, points, before)) for before in (9.0, 0.0))
    np.testing.assert_array_equal(plain, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_points": 0}, "num-points must be at least 1, not 0"),
        ({"num_points": 3, "softness": 0.0}, "softness must be above 0, not 0.0"),
        ({"num_points": 3, "softness": float("nan")}, "softness must be above 0, not nan"),
    ],
)
def test_maps_of_nothing_are_refused(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        SortedOccupancy(**settings)
