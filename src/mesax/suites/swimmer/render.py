"""Episodes of the swimmer as scenes: its body from above, and its joint angles against the band that pays."""

from __future__ import annotations

import numpy as np

from mesax.envs.base import TaskFamily, configurations_of
from mesax.envs.swimmer_climb import LINK_LENGTH, NUM_AGENTS, SwimmerFamily, SwimmerTask
from mesax.rendering.scene import Scene, Take, changes, moments, since
from mesax.suites.base import expect
from mesax.types import Episode

REACH = 1.75 * LINK_LENGTH
"""Half the side of the square that shows a body: any pose fits, centered on its middle link."""


def scene(family: TaskFamily, task: SwimmerTask, episodes: Episode) -> Scene:
    """Stacked episodes of one task: where the outer links point, and where they must for the team to earn 1."""
    family = expect(SwimmerFamily, family)
    world, obs = family.env, np.asarray(episodes.obs, np.float64)
    target, band = float(np.rad2deg(np.float64(task.target))), world.band_degrees
    angles, headings = np.rad2deg(world.joint_angles(obs)), np.rad2deg(world.heading(obs))
    rewards, places = np.asarray(episodes.reward), configurations_of(family, episodes)
    takes = []
    for episode, length in enumerate(np.asarray(episodes.mask).sum(axis=1).tolist()):
        steps = moments(length)
        visited = () if places is None else changes(places[episode, :length])
        earned = since(rewards[episode, :length], steps)
        takes.append(take_of(steps, earned, angles[episode, steps], headings[episode, steps], target, visited))
    return Scene(
        about=(f"Reward 1 with both joints within {band:.3g}° of {target:+.1f}°, {1.0 - world.delta:.3g} with none."),
        view=(-REACH, REACH, -REACH, REACH),
        takes=tuple(takes),
        chains=("target", "target", "body"),
        trails=False,
        curves=tuple(f"joint of agent {agent + 1}" for agent in range(NUM_AGENTS)),
        curves_title="joint angle (degrees)",
        band=(target - band, target + band),
    )


def take_of(
    steps: np.ndarray,
    earned: np.ndarray,
    angles: np.ndarray,
    headings: np.ndarray,
    target: float,
    visited: list[tuple[int, int]] | tuple[()] = (),
) -> Take:
    """One episode from its angles `[moments, agents]` and headings of the head link, in degrees."""
    bodies = np.stack([pose(heading, *joints) for heading, joints in zip(headings, angles, strict=True)])
    # Seen from the middle link, which stays as it is.
    middles = headings + angles[:, 0]
    goals = np.stack([pose(middle - target, target, target) for middle in middles])
    return Take(steps, earned, bodies[:, 1:3], visited, chains=(goals[:, :2], goals[:, 2:], bodies), curves=angles)


def pose(heading: float, front: float, rear: float) -> np.ndarray:
    """Nose, both hinges and tail `[4, 2]` around the middle link's center; angles in degrees."""
    links = np.deg2rad([heading, heading + front, heading + front + rear])
    ahead = LINK_LENGTH * np.stack([np.cos(links), np.sin(links)], axis=1)
    first, second = ahead[1] / 2, -ahead[1] / 2
    return np.stack([first + ahead[0], first, second, second - ahead[2]])
