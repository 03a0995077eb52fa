"""Episodes of any world as scenes: each agent's actions over time, for want of knowing more."""

from __future__ import annotations

import numpy as np

from mesax.envs.base import Task, TaskFamily
from mesax.rendering.scene import Scene, Take, moments, since
from mesax.types import Discrete, Episode

MOST_ROWS = 12


def scene(family: TaskFamily, task: Task, episodes: Episode) -> Scene:
    """Stacked episodes of one task."""
    actions = np.asarray(episodes.action, float)
    discrete = isinstance(family.env.spec.action_space, Discrete)
    if discrete:
        actions = actions[..., None]
    agents, numbers = actions.shape[2:]
    names = [
        f"agent {agent + 1}{f', {number + 1}' * (numbers > 1)}" for agent in range(agents) for number in range(numbers)
    ][:MOST_ROWS]
    takes = []
    for played, rewards, length in zip(actions, episodes.reward, np.sum(episodes.mask, axis=1).tolist(), strict=True):
        steps = moments(length)
        rows = played[:length].reshape(length, -1)[:, :MOST_ROWS]
        chosen = np.concatenate([rows[:1], rows])[steps]
        earned = since(np.asarray(rewards, float)[:length], steps)
        takes.append(Take(steps, earned, np.zeros((len(steps), 0, 2)), curves=chosen))
    title = "number of the action" if discrete else "numbers of the action"
    about = f"Task {family.describe(task).label}; each agent's {'choice' if discrete else 'action'} over time."
    return Scene(about, (0.0, 1.0, 0.0, 1.0), tuple(takes), curves=tuple(names), curves_title=title)
