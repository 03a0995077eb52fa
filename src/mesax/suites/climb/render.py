"""Episodes of climb games as scenes: what pays at every stage, and what was played there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mesax.envs.base import TaskFamily
from mesax.envs.climb import ClimbFamily, ClimbTask
from mesax.rendering.scene import Role, Scene, Shape, Take, since
from mesax.suites.base import expect
from mesax.types import Episode


def scene(family: TaskFamily, task: ClimbTask, episodes: Episode) -> Scene:
    """Stacked episodes of one task."""
    family = expect(ClimbFamily, family)
    targets = [(int(count), int(special)) for count, special in family.describe(task).target]
    actions, rewards = np.asarray(episodes.action), np.asarray(episodes.reward)
    return board(targets, family.num_actions, 1.0 - family.delta, actions, rewards)


def board(
    targets: list[tuple[int, int]], num_actions: int, safe_reward: float, actions: np.ndarray, rewards: np.ndarray
) -> Scene:
    """Two agents' choices `[episodes, stages, agents]` as cells of their payoffs, or a row of actions for each agent.

    `targets` has (k, u) of every stage.
    """
    stages, agents = actions.shape[1:]
    matrix, rows = agents == 2, num_actions if agents == 2 else agents
    shapes = [
        shape
        for stage, (count, special) in enumerate(targets)
        for shape in _payoffs(count, special, num_actions, rows, matrix, stage + 1 if stages > 1 else None)
    ]
    steps, takes = np.arange(stages + 1), []
    for played, earned in zip(actions, rewards, strict=True):
        points = np.full((stages + 1, 1 if matrix else agents, 2), np.nan)
        if matrix:  # column: the second agent's action, row: the first's
            points[1:, 0] = np.stack([played[:, 1], -played[:, 0]], axis=1)
        else:
            points[1:, :, 0], points[1:, :, 1] = played, -np.arange(agents)
        joint = played @ num_actions ** np.arange(agents, dtype=float)
        visits = [(step + 1, int(cell) * stages + step) for step, cell in enumerate(joint)]
        takes.append(Take(steps, since(earned, steps), points, visits))
    told = "just {} on action {}".format(*targets[0]) if stages == 1 else "just k on the stage's action u"
    where, blue, gray = "a row for each agent", "", ""
    if matrix:
        where, blue, gray = "row: agent 1, column: agent 2", " (blue)", " (gray)"
    about = f"Reward 1 with {told}{blue}, {safe_reward:.3g} with none{gray}; {where}."
    view = (-0.5, num_actions - 0.5, 0.5 - rows, 0.5)
    return Scene(about, view, tuple(takes), tuple(shapes), trails=False, mean_return=True)


def _payoffs(count: int, special: int, actions: int, rows: int, matrix: bool, step: int | None) -> Iterator[Shape]:
    """The areas of a stage: neither of two agents plays the special action, one does, both do; or its column."""
    middle, height, label = (actions - 1) / 2, (rows - 1) / 2, f"k={count}, u={special}" if step else ""
    yield Shape("box", (middle, -height), (actions, rows), "safe" if matrix else "low", label, step=step)
    if not matrix:
        yield Shape("box", (special, -height), (1, rows), "target", step=step)
        return
    one: Role = "high" if count == 1 else "low"
    both: Role = "high" if count == 2 else "low"
    yield Shape("box", (middle, -special), (actions, 1), one, step=step)
    yield Shape("box", (special, -middle), (1, actions), one, step=step)
    yield Shape("box", (special, -special), (1, 1), both, step=step)
