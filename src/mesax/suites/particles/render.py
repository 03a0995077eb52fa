"""Episodes of particle worlds as scenes: agents on their ways among the landmarks."""

from __future__ import annotations

import numpy as np

from mesax.envs.base import TaskFamily, configurations_of
from mesax.envs.particle_climb import ParticleClimb, ParticleTask, TasksAmongLandmarks
from mesax.rendering.scene import Scene, Shape, Take, changes, moments, since
from mesax.suites.base import expect
from mesax.types import Episode

ROOM = 1.04
"""The view, in parts of what must be seen."""


def scene(family: TaskFamily, task: ParticleTask, episodes: Episode) -> Scene:
    """Stacked episodes of one task."""
    family = expect(TasksAmongLandmarks, family)
    world, landmarks = family.env, np.asarray(task.landmarks)
    positions = positions_of(world, landmarks, np.asarray(episodes.obs))
    rewards, visited = np.asarray(episodes.reward), configurations_of(family, episodes)
    target, size = int(task.target), (2 * world.radius, 2 * world.radius)
    shapes = [
        Shape("disc", (float(x), float(y)), size, "target" if number == target else "place", str(number), place=number)
        for number, (x, y) in enumerate(landmarks)
    ]
    if world.wall is not None:
        shapes.insert(0, Shape("box", (0.0, 0.0), (2 * world.wall, 2 * world.wall), "wall"))
    steps = moments(rewards.shape[1])
    takes = [
        Take(steps, since(earned, steps), ways[steps], changes(places))
        for earned, ways, places in zip(rewards, positions, visited, strict=True)
    ]
    agents = positions.shape[2]
    about = f"Reward 1 with just {int(task.count)} of {agents} agents on landmark {target}, the target."
    return Scene(about, view_of(world, landmarks, positions), tuple(takes), tuple(shapes))


def view_of(world: ParticleClimb, landmarks: np.ndarray, positions: np.ndarray) -> tuple[float, float, float, float]:
    """A square with all within the wall, or with the landmarks and wherever episodes lead, and a little room."""
    x, y, half = 0.0, 0.0, world.wall or 0.0
    if world.wall is None:
        places = np.concatenate([landmarks - world.radius, landmarks + world.radius, positions.reshape(-1, 2)])
        low, high = places.min(axis=0), places.max(axis=0)
        (x, y), half = ((low + high) / 2).tolist(), float(np.max(high - low)) / 2
    room = ROOM * half
    return (x - room, x + room, y - room, y + room)


def positions_of(world: ParticleClimb, landmarks: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Where the agents were, from what they saw: the offset to the first landmark, taken off its place."""
    offsets = np.asarray(world.landmark_offsets(obs.reshape(-1, obs.shape[-1])))  # type: ignore[arg-type]
    return np.asarray(landmarks[0] - offsets[:, 0].reshape(*obs.shape[:-1], 2))
