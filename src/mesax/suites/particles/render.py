"""Episodes of particle worlds as pictures: a still of a few episodes, and frames that follow the first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import withStroke

from mesax.envs.base import TaskFamily, configurations_of
from mesax.envs.particle_climb import ParticleClimb, ParticleTask, TasksAmongLandmarks
from mesax.formatting import format_tenths
from mesax.rendering import canvas
from mesax.rendering.canvas import AGENTS, EDGE, INK, OPTIMAL, OPTIMAL_AREA, SOFT
from mesax.rendering.scene import Scene, Shape, Take, changes, moments, since
from mesax.store.json_values import Json
from mesax.suites.base import expect
from mesax.types import Episode

STILL_EPISODES = 4
"""Episodes of the still: agents start elsewhere in each."""
FRAMES = 40
"""Steps of time in a GIF, at most."""
TRAIL = 15
"""Steps that a GIF's trails reach into the past."""
FRAME_SECONDS, FIRST_SECONDS, LAST_SECONDS = 0.12, 0.8, 3.0


class _Sizes(NamedTuple):
    """Inches: side of an arena, height of the rewards below it, and the place of both with the texts around them."""

    side: float
    strip: float
    wide: float
    high: float


SEVERAL, SINGLE = _Sizes(2.75, 0.55, 3.3, 4.15), _Sizes(3.9, 0.65, 4.75, 5.35)
TOP, BOTTOM = 0.8, 0.3
"""Inches above the first arena's title, if the picture's takes one line, and for the legend."""
DISC = "#F1F1F1"
TARGET, TARGET_DISC = OPTIMAL, OPTIMAL_AREA


class View(NamedTuple):
    """A square: its center and half its side."""

    x: float
    y: float
    half: float

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top, with a little room."""
        room = 1.04 * self.half
        return (self.x - room, self.x + room, self.y - room, self.y + room)


@dataclass(frozen=True, eq=False)
class ParticlePlay:
    """Episodes of one policy on one layout with its target."""

    title: str
    landmarks: np.ndarray
    """`[landmarks, 2]`."""
    target: int
    count: int
    """k: agents that belong on the target."""
    radius: float
    """Radius of a landmark's disc."""
    agent_size: float
    wall: float | None
    safe_reward: float
    positions: np.ndarray
    """`[episodes, time + 1, agents, 2]`."""
    rewards: np.ndarray
    """`[episodes, time]`."""
    configurations: np.ndarray
    """Landmark that each step visits as the family counts it, -1 for none: `[episodes, time]`."""

    @classmethod
    def of(cls, title: str, family: TasksAmongLandmarks, task: ParticleTask, episodes: Episode) -> ParticlePlay:
        """Stacked episodes of one task."""
        world, landmarks = family.env, np.asarray(task.landmarks)
        return cls(
            title=title,
            landmarks=landmarks,
            target=int(task.target),
            count=int(task.count),
            radius=world.radius,
            agent_size=world.agent_size,
            wall=world.wall,
            safe_reward=1.0 - world.delta,
            positions=positions_of(world, landmarks, np.asarray(episodes.obs)),
            rewards=np.asarray(episodes.reward),
            configurations=configurations_of(family, episodes),
        )

    @property
    def num_agents(self) -> int:
        """Agents in the team."""
        return int(self.positions.shape[2])

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return int(self.rewards.shape[1])

    @property
    def returns(self) -> np.ndarray:
        """Sum of each episode's rewards."""
        return np.asarray(self.rewards.sum(axis=1))

    def order(self, episode: int, time: int | None = None) -> list[int]:
        """Landmarks visited together up to a time, in the order of their first visit."""
        seen = self.configurations[episode, : self.horizon if time is None else time]
        return list(dict.fromkeys(seen[seen >= 0].tolist()))

    def view(self, episodes: int) -> View:
        """What is drawn: all within the wall, or the landmarks and wherever these episodes lead."""
        if self.wall is not None:
            return View(0.0, 0.0, self.wall)
        rims = np.concatenate([self.landmarks - self.radius, self.landmarks + self.radius])
        places = np.concatenate([rims, self.positions[:episodes].reshape(-1, 2)])
        low, high = places.min(axis=0), places.max(axis=0)
        x, y = (low + high) / 2
        return View(float(x), float(y), float(np.max(high - low)) / 2)

    def picture(self) -> Figure:
        """A few episodes from start to end."""
        return draw(self, [Moment(episode, self.horizon) for episode in range(min(STILL_EPISODES, len(self.rewards)))])

    def scene(self) -> Scene:
        """Agents on their ways among the landmarks."""
        view = self.view(len(self.rewards))
        discs = [
            Shape(
                "disc",
                (float(x), float(y)),
                (2 * self.radius, 2 * self.radius),
                "target" if number == self.target else "place",
                str(number),
                place=number,
            )
            for number, (x, y) in enumerate(self.landmarks)
        ]
        side = 2 * (self.wall or 0.0)
        walls = [] if self.wall is None else [Shape("box", (0.0, 0.0), (side, side), "wall")]
        steps = moments(self.horizon)
        takes = [
            Take(steps, since(rewards, steps), positions[steps], changes(visited))
            for rewards, positions, visited in zip(self.rewards, self.positions, self.configurations, strict=True)
        ]
        about = f"Reward 1 with just {self.count} of {self.num_agents} agents on landmark {self.target}, the target."
        return Scene(about, view.edges, tuple(takes), (*walls, *discs))

    def more(self, coverage: Json) -> dict[str, Figure]:
        """Nothing else to see."""
        del coverage
        return {}

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """The first episode, step by step."""
        times = frame_times(self.horizon)
        for time in times:
            seconds = {0: FIRST_SECONDS, self.horizon: LAST_SECONDS}.get(time, FRAME_SECONDS)
            yield draw(self, [Moment(0, time, TRAIL)]), seconds


def play(title: str, family: TaskFamily, task: ParticleTask, episodes: Episode) -> ParticlePlay:
    """Stacked episodes of one task, ready to be drawn."""
    return ParticlePlay.of(title, expect(TasksAmongLandmarks, family), task, episodes)


@dataclass(frozen=True)
class Moment:
    """What one arena shows: an episode up to a time."""

    episode: int
    time: int
    trail: int | None = None
    """Steps that trails reach back; None: to the start."""


def positions_of(world: ParticleClimb, landmarks: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Where the agents were, from what they saw: the offset to the first landmark, taken off its place."""
    offsets = np.asarray(world.landmark_offsets(obs.reshape(-1, obs.shape[-1])))  # type: ignore[arg-type]
    return np.asarray(landmarks[0] - offsets[:, 0].reshape(*obs.shape[:-1], 2))


def frame_times(horizon: int) -> list[int]:
    """Times that a GIF shows: the start, the end, and evenly between."""
    return np.unique(np.linspace(0, horizon, min(horizon, FRAMES) + 1).round().astype(int)).tolist()


@canvas.styled
def draw(play: ParticlePlay, moments: list[Moment]) -> Figure:
    """One picture: for each moment an arena, and the episode's rewards below it."""
    figure, panels = _layout(play, len(moments))
    view = play.view(max(moment.episode for moment in moments) + 1)
    for moment, (arena, strip) in zip(moments, panels, strict=True):
        _draw_world(arena, play, moment, view)
        _draw_agents(arena, play, moment)
        _draw_strip(strip, play, moment)
        _write_panel(arena, strip, play, moment)
    canvas.write_heading(figure, play.title, _explanation(play))
    _write_legend(figure, play, columns=4 if len(moments) == 1 else 7)
    return figure


def _layout(play: ParticlePlay, number: int) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """A figure with (arena, rewards) for each moment."""
    sizes, columns = (SINGLE, 1) if number == 1 else (SEVERAL, 2)
    width = columns * sizes.wide + 0.15
    top = TOP + canvas.title_room(play.title, width)
    height = -(-number // columns) * sizes.high + top + BOTTOM
    figure = canvas.new_frame(width, height)
    panels = []
    for index in range(number):
        row, column = divmod(index, columns)
        x, y = 0.15 + column * sizes.wide + (sizes.wide - sizes.side) / 2 + 0.05, height - top - row * sizes.high
        arena = canvas.place_axes(figure, x, y - 0.28 - sizes.side, sizes.side, sizes.side)
        strip = canvas.place_axes(figure, x, y - 0.42 - sizes.side - sizes.strip, sizes.side, sizes.strip)
        panels.append((arena, strip))
    return figure, panels


def _draw_world(axes: Axes, play: ParticlePlay, moment: Moment, view: View) -> None:
    """Wall, landmarks with their numbers, and the target; those visited together so far have a dark rim."""
    axes.set(xlim=view.edges[:2], ylim=view.edges[2:], xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    if play.wall is not None:
        corner, side = (-play.wall, -play.wall), 2 * play.wall
        axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=INK, linewidth=1.6, zorder=1))
    visited = play.order(moment.episode, moment.time)
    now = play.configurations[moment.episode, moment.time - 1] if moment.time and moment.trail is not None else -1
    outline = [withStroke(linewidth=2, foreground="white")]
    for number, place in enumerate(play.landmarks):
        rim = INK if number in visited else TARGET if number == play.target else EDGE
        disc = Circle(
            (place[0], place[1]),
            play.radius,
            facecolor=TARGET_DISC if number == play.target else DISC,
            edgecolor=rim,
            linewidth=2.6 if number == now else 1.3 if number in visited else 1.0,
            zorder=0.5,
        )
        axes.add_patch(disc)
        # Next to the center, where the agents meet.
        x, y = place[0] - 0.62 * play.radius, place[1]
        axes.text(x, y, str(number), color=SOFT, ha="center", va="center", path_effects=outline, zorder=3.8)
    x, y = play.landmarks[play.target]
    above = y - 1.5 * play.radius < view.y - view.half  # below there would be the wall
    axes.plot(x, y + play.radius * (-0.55 if above else 0.55), "*", color=TARGET, markersize=9, zorder=3.9)
    axes.annotate(
        "target",
        (x, y + (play.radius if above else -play.radius)),
        (0, 1.5 if above else -1.5),
        textcoords="offset points",
        color=TARGET,
        weight="bold",
        fontsize=7.5,
        ha="center",
        va="bottom" if above else "top",
        path_effects=outline,
        zorder=5,
    )


def _draw_agents(axes: Axes, play: ParticlePlay, moment: Moment) -> None:
    """Each agent where it is, and the way it came, fainter the longer ago."""
    first = 0 if moment.trail is None else max(0, moment.time - moment.trail)
    for agent in range(play.num_agents):
        color = AGENTS[agent % len(AGENTS)]
        path = play.positions[moment.episode, first : moment.time + 1, agent]
        segments = np.stack([path[:-1], path[1:]], axis=1)
        colors = [to_rgba(color, float(alpha)) for alpha in np.linspace(0.12, 1.0, len(segments))]
        axes.add_collection(LineCollection(list(segments), colors=colors, linewidths=1.7, zorder=3), autolim=False)
        if first == 0:
            axes.scatter(path[0, 0], path[0, 1], s=25, facecolors="white", edgecolors=color, linewidths=1.4, zorder=3.5)
        x, y = path[-1]
        if moment.trail is not None:
            axes.add_patch(Circle((x, y), play.agent_size, facecolor=color, alpha=0.16, linewidth=0, zorder=3.2))
        axes.plot(x, y, "o", color=color, markeredgecolor="white", markersize=8, zorder=4)


def _draw_strip(axes: Axes, play: ParticlePlay, moment: Moment) -> None:
    """The rewards of the episode; a line marks now."""
    canvas.draw_rewards(axes, play.rewards[moment.episode], moment.time, play.horizon, play.safe_reward)
    axes.set_xticks([0, play.horizon])
    if moment.trail is not None:
        canvas.mark_now(axes, moment.time)


def _write_panel(arena: Axes, strip: Axes, play: ParticlePlay, moment: Moment) -> None:
    total, done = play.returns[moment.episode], moment.time >= play.horizon
    so_far = play.rewards[moment.episode, : moment.time].sum()
    earned = (
        f"return {format_tenths(total)}"
        if done
        else f"step {moment.time}, return {format_tenths(so_far)} of {format_tenths(total)}"
    )
    arena.set_title(f"episode {moment.episode + 1}: {earned}", loc="center", fontsize=9, pad=5)
    order = play.order(moment.episode, moment.time)
    shown = ", ".join(map(str, order[:12])) + (", …" if len(order) > 12 else "")
    strip.set_xlabel(f"together at {shown}" if order else "together nowhere", fontsize=8, labelpad=-2)


def _explanation(play: ParticlePlay) -> str:
    return (
        f"{canvas.mean_return(play.returns)}; "
        f"reward 1 with just {play.count} of {play.num_agents} on the target\n"
        f"“together at”: where just {play.count} met and no agent was astray, by first time"
    )


def _write_legend(figure: Figure, play: ParticlePlay, columns: int) -> None:
    """A large team shares colors: the legend names all agents of each."""
    alike = [range(first, play.num_agents, len(AGENTS)) for first in range(min(play.num_agents, len(AGENTS)))]
    handles = [
        Line2D(
            [], [], marker="o", linestyle="", color=color, label=f"agent {', '.join(str(one + 1) for one in agents)}"
        )
        for color, agents in zip(AGENTS, alike, strict=False)
    ]
    start = Line2D([], [], marker="o", linestyle="", markersize=5, markeredgecolor=SOFT, label="start")
    start.set_markerfacecolor("white")
    handles.append(start)
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=min(len(handles), columns),
        frameon=False,
        fontsize=8,
        handletextpad=0.2,
        borderpad=0,
    )
