"""Episodes of any world: the team's reward and each agent's actions over time, for want of knowing more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.envs.base import Task, TaskFamily
from mesax.formatting import format_number
from mesax.rendering.canvas import (
    AGENTS,
    EDGE,
    INK,
    OPTIMAL,
    mark_now,
    new_frame,
    place_axes,
    soften,
    styled,
    title_room,
    write_heading,
)
from mesax.rendering.scene import Scene, Take, choice_board, moments, since
from mesax.store.json_values import Json
from mesax.types import Discrete, Episode

WIDTH, LEFT, RIGHT = 6.4, 0.75, 0.15
REWARD_HEIGHT, ROW_HEIGHT, GAP, BOTTOM, TOP = 1.2, 0.4, 0.3, 0.45, 0.75
MOST_FRAMES = 60
MOST_ROWS = 12
SECONDS, LAST_SECONDS = 0.12, 1.5


@dataclass(frozen=True, eq=False)
class ForeignPlay:
    """The first of several episodes on one task, and what all of them were paid."""

    title: str
    task: str
    rewards: np.ndarray
    """`[time]`: the first episode, to its end."""
    returns: np.ndarray
    """`[episodes]`."""
    actions: np.ndarray
    """`[time, agents, numbers]`; numbers between 0 and 1."""
    choices: int | None
    """Actions to choose from; None for numbers."""

    @staticmethod
    def of(title: str, family: TaskFamily, task: Task, episodes: Episode) -> ForeignPlay:
        """From stacked episodes."""
        length = int(np.sum(episodes.mask[0]))
        space = family.env.spec.action_space
        actions = np.asarray(episodes.action[0], float)[:length]
        if isinstance(space, Discrete):
            choices, shares = space.num_actions, (actions / max(space.num_actions - 1, 1))[..., None]
        else:
            choices, shares = None, (np.clip(actions, -1.0, 1.0) + 1.0) / 2.0
        returns = np.sum(np.where(episodes.mask, episodes.reward, 0.0), axis=1)
        rewards = np.asarray(episodes.reward[0], float)[:length]
        return ForeignPlay(title, family.describe(task).label, rewards, returns, shares, choices)

    def picture(self) -> Figure:
        """The whole first episode."""
        return self._drawn(len(self.rewards))

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """The same, step by step; of a long episode only some steps."""
        stops = np.unique(np.linspace(1, len(self.rewards), MOST_FRAMES).round().astype(int))
        for stop in stops:
            yield self._drawn(int(stop)), LAST_SECONDS if stop == stops[-1] else SECONDS

    def scene(self) -> Scene:
        """A row of actions for each agent to choose from, or the numbers of their actions over time."""
        length, agents = len(self.rewards), self.actions.shape[1]
        steps, about = moments(length), f"Task {self.task}."
        earned = since(self.rewards, steps)
        if self.choices is not None:
            chosen = np.rint(self.actions[..., 0] * max(self.choices - 1, 1))
            view, shapes, points = choice_board(self.choices, chosen)
            return Scene(about, view, (Take(steps, earned, points[steps]),), shapes, trails=False)
        rows = self.actions.reshape(length, -1)[:, :MOST_ROWS]
        names = [
            f"agent {agent + 1}, {number + 1}" for agent in range(agents) for number in range(self.actions.shape[2])
        ]
        shown = np.concatenate([rows[:1], rows])[steps]
        take = Take(steps, earned, np.zeros((len(steps), 0, 2)), curves=shown)
        return Scene(about, (0.0, 1.0, 0.0, 1.0), (take,), curves=tuple(names[:MOST_ROWS]), curves_title="actions")

    def more(self, coverage: Json) -> dict[str, Figure]:
        """Nothing else."""
        del coverage
        return {}

    @styled
    def _drawn(self, past: int) -> Figure:
        """Rewards above, a row for each agent below; what is still to come is pale."""
        rows = min(self.actions.shape[1], MOST_ROWS)
        room = title_room(self.title, WIDTH)
        below = rows * ROW_HEIGHT
        figure = new_frame(WIDTH, TOP + room + REWARD_HEIGHT + GAP + below + BOTTOM)
        across = WIDTH - LEFT - RIGHT
        write_heading(figure, self.title, self._text())
        top = place_axes(figure, LEFT, BOTTOM + below + GAP, across, REWARD_HEIGHT)
        self._draw_rewards(top, past)
        for agent in range(rows):
            axes = place_axes(figure, LEFT, BOTTOM + (rows - 1 - agent) * ROW_HEIGHT, across, ROW_HEIGHT * 0.8)
            self._draw_actions(axes, agent, past)
            axes.set_xticks([])
        axes.set_xticks([0, len(self.rewards)])
        axes.set_xlabel("step", fontsize=7.5, labelpad=-6)
        for axes in figure.axes:
            mark_now(axes, past)
        return figure

    def _text(self) -> str:
        what = f"which of {self.choices} actions" if self.choices is not None else "the numbers of its action"
        mean, own = (format_number(float(value)) for value in (np.mean(self.returns), self.returns[0]))
        paid = f"return {own}, on average of {len(self.returns)} such episodes {mean}"
        return f"task {self.task}: {paid}\nbelow: {what} each agent chose, from low to high"

    def _draw_rewards(self, axes: Axes, past: int) -> None:
        edges = np.arange(len(self.rewards) + 1)
        axes.stairs(self.rewards, edges, color=EDGE, linewidth=1.0)
        axes.stairs(self.rewards[:past], edges[: past + 1], color=INK, linewidth=1.3)
        axes.stairs(self.rewards[:past], edges[: past + 1], fill=True, color=OPTIMAL, alpha=0.18, linewidth=0)
        low, high = min(0.0, float(self.rewards.min())), max(0.0, float(self.rewards.max()))
        margin = 0.08 * ((high - low) or 1.0)
        axes.set(xlim=(0, len(self.rewards)), ylim=(low - margin, high + margin))
        axes.set_xticks([])
        axes.set_ylabel("team's reward", fontsize=7.5, labelpad=2)
        soften(axes)

    def _draw_actions(self, axes: Axes, agent: int, past: int) -> None:
        edges, color = np.arange(len(self.rewards) + 1), AGENTS[agent % len(AGENTS)]
        for number in range(self.actions.shape[2]):
            values = self.actions[:, agent, number]
            axes.stairs(values, edges, baseline=None, color=EDGE, linewidth=0.8)
            axes.stairs(values[:past], edges[: past + 1], baseline=None, color=color, linewidth=1.2)
        axes.set(xlim=(0, len(self.rewards)), ylim=(-0.1, 1.1))
        axes.set_yticks([])
        axes.set_ylabel(f"agent {agent + 1}", fontsize=7, rotation=0, ha="right", va="center")
        soften(axes)
