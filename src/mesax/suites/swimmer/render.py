"""Episodes of the swimmer as pictures: its joint angles against the band that pays, its rewards, and its poses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Wedge

from mesax.envs.base import TaskFamily, configurations_of
from mesax.envs.swimmer_climb import LINK_LENGTH, NUM_AGENTS, SwimmerFamily, SwimmerTask
from mesax.formatting import format_tenths
from mesax.rendering import canvas
from mesax.rendering.canvas import OPTIMAL, OPTIMAL_AREA, SOFT, place_axes
from mesax.rendering.scene import Scene, Take, changes, moments, since
from mesax.store.json_values import Json
from mesax.suites.base import expect
from mesax.suites.swimmer.figures import joint_angle_plane
from mesax.types import Episode

SHOWN_PATHS = 4
"""Episodes in the plane of joint angles."""
STILL_EPISODES = 2
"""Episodes of the still, one below the other."""
POSES = 6
"""Bodies drawn above each episode of the still."""
FRAMES = 80
"""Steps of time in a GIF, at most."""
FRAME_SECONDS, FIRST_SECONDS, LAST_SECONDS = 0.1, 0.8, 3.0
REACH = 1.75 * LINK_LENGTH
"""Half the side of the square that shows a body: any pose fits, centered on its middle link."""
WIDTH, LEFT, RIGHT = 7.4, 0.6, 0.2
"""Inches: the picture, and the room next to its charts."""
TOP, BOTTOM = 0.62, 0.35
"""Inches above the first episode, if the picture's title takes one line, and for the legend."""
TITLE_ROOM, CHART, STRIP, LABELS, GAP = 0.3, 1.35, 0.4, 0.5, 0.12
"""Inches of an episode: its title, its angles, its rewards, what is written below them, and what parts them."""
LEAST_DEGREES = 35.0
"""Charts reach at least this far up and down."""
BODY = "#8C8C8C"
TARGET, BAND = OPTIMAL, OPTIMAL_AREA
AGENTS = canvas.AGENTS[:NUM_AGENTS]


@dataclass(frozen=True, eq=False)
class SwimmerPlay:
    """Episodes of one policy on one target."""

    title: str
    target: float
    """Degrees, as all angles here."""
    band: float
    safe_reward: float
    angles: np.ndarray
    """Angles of the joints: `[episodes, time + 1, agents]`."""
    headings: np.ndarray
    """Headings of the head link: `[episodes, time + 1]`."""
    rewards: np.ndarray
    """`[episodes, time]`."""
    lengths: np.ndarray
    """Steps that each episode lasted: `[episodes]`."""
    places: np.ndarray | None = None
    """Angle at which both joints meet after each step, by number, -1 for none: `[episodes, time]`."""

    @classmethod
    def of(cls, title: str, family: SwimmerFamily, task: SwimmerTask, episodes: Episode) -> SwimmerPlay:
        """Stacked episodes of one task."""
        world, obs = family.env, np.asarray(episodes.obs, np.float64)
        return cls(
            title=title,
            target=float(np.rad2deg(np.float64(task.target))),
            band=world.band_degrees,
            safe_reward=1.0 - world.delta,
            angles=np.rad2deg(world.joint_angles(obs)),
            headings=np.rad2deg(world.heading(obs)),
            rewards=np.asarray(episodes.reward),
            lengths=np.asarray(episodes.mask).sum(axis=1),
            places=configurations_of(family, episodes),
        )

    @property
    def horizon(self) -> int:
        """Steps of an episode that is not cut short."""
        return int(self.rewards.shape[1])

    @property
    def returns(self) -> np.ndarray:
        """Sum of each episode's rewards."""
        return np.asarray(self.rewards.sum(axis=1))

    def highest(self, episodes: int) -> float:
        """How far charts of the first episodes reach."""
        farthest = (np.abs(self.angles[e, : self.lengths[e] + 1]).max() for e in range(episodes))
        return 1.05 * max(LEAST_DEGREES, abs(self.target) + 2 * self.band, *farthest)

    def picture(self) -> Figure:
        """A few episodes from start to end."""
        return draw_still(self)

    def scene(self) -> Scene:
        """The body from above with the directions that its outer links must take, and both angles over time."""
        about = (
            f"Reward 1 with both joints within {self.band:.3g}° of {self.target:+.1f}°,"
            f" {self.safe_reward:.3g} with none."
        )
        return Scene(
            about,
            (-REACH, REACH, -REACH, REACH),
            tuple(self._take(episode) for episode in range(len(self.rewards))),
            chains=("target", "target", "body"),
            trails=False,
            curves=tuple(f"joint of agent {agent + 1}" for agent in range(NUM_AGENTS)),
            curves_title="joint angle (degrees)",
            band=(self.target - self.band, self.target + self.band),
        )

    def _take(self, episode: int) -> Take:
        """One episode, as often as it is shown."""
        length = int(self.lengths[episode])
        steps = moments(length)
        angles, headings = self.angles[episode, steps], self.headings[episode, steps]
        bodies = np.stack([pose(heading, *joints) for heading, joints in zip(headings, angles, strict=True)])
        goals = np.stack(
            [
                pose(heading + front - self.target, self.target, self.target)
                for heading, (front, _) in zip(headings, angles, strict=True)
            ]
        )
        return Take(
            steps,
            since(self.rewards[episode, :length], steps),
            bodies[:, 1:3],
            () if self.places is None else changes(self.places[episode, :length]),
            chains=(goals[:, :2], goals[:, 2:], bodies),
            curves=angles,
        )

    def more(self, coverage: Json) -> dict[str, Figure]:
        """The plane of joint angles: this policy's paths, and the explorers' with them over M_*."""
        ends = np.arange(self.angles.shape[1])[None] <= self.lengths[:, None]
        own = np.deg2rad(np.where(ends[..., None], self.angles, np.nan))[:SHOWN_PATHS]
        others = {one["name"]: np.array(one["path"], float) for one in coverage.get("visitors", ()) if one.get("path")}
        plane = coverage.get("plane") or {"members": [], "centroids": []}
        figure = joint_angle_plane(
            {"this policy": own} | others,
            target_degrees=self.target,
            band_degrees=self.band,
            members=np.array(plane["members"], float).reshape(-1, 2),
            centroids=np.array(plane["centroids"], float).reshape(-1, 2),
        )
        return {"plane": figure}

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """The first episode, step by step."""
        last = int(self.lengths[0])
        for time in frame_times(last):
            yield draw_frame(self, time), {0: FIRST_SECONDS, last: LAST_SECONDS}.get(time, FRAME_SECONDS)


def play(title: str, family: TaskFamily, task: SwimmerTask, episodes: Episode) -> SwimmerPlay:
    """Stacked episodes of one task, ready to be drawn."""
    return SwimmerPlay.of(title, expect(SwimmerFamily, family), task, episodes)


def frame_times(length: int) -> list[int]:
    """Times that a GIF shows: more of them early on, when the joints make their way to the target."""
    share = np.linspace(0.0, 1.0, min(length, FRAMES) + 1)
    return np.unique((length * share**1.5).round().astype(int)).tolist()


def pose_times(length: int) -> list[int]:
    """Times at which the still shows the body: most of them early on, when it changes most."""
    return (length * np.linspace(0.0, 1.0, POSES) ** 3).round().astype(int).tolist()


def pose(heading: float, front: float, rear: float) -> np.ndarray:
    """Nose, both hinges and tail `[4, 2]` around the middle link's center; angles in degrees."""
    links = np.deg2rad([heading, heading + front, heading + front + rear])
    ahead = LINK_LENGTH * np.stack([np.cos(links), np.sin(links)], axis=1)
    first, second = ahead[1] / 2, -ahead[1] / 2
    return np.stack([first + ahead[0], first, second, second - ahead[2]])


@canvas.styled
def draw_still(play: SwimmerPlay) -> Figure:
    """For each of a few episodes: poses along the way, both angles over time with the band, and the rewards."""
    number = min(STILL_EPISODES, len(play.rewards))
    side = (WIDTH - LEFT - RIGHT) / POSES
    block = TITLE_ROOM + side + CHART + STRIP + LABELS + GAP
    figure, top = _new_figure(play, number * block)
    for episode in range(number):
        y = top - episode * block
        figure.text(LEFT / WIDTH, _share(figure, y - 0.08), _episode_title(play, episode), fontsize=9, va="top")
        y -= TITLE_ROOM + side
        for index, time in enumerate(pose_times(int(play.lengths[episode]))):
            arena = place_axes(figure, LEFT + index * side, y, side, side)
            draw_body(arena, play, episode, time, side)
            arena.set_title(f"step {time}", loc="center", fontsize=7.5, y=0.98, pad=-6, color=SOFT)
        angles = place_axes(figure, LEFT, y - CHART, WIDTH - LEFT - RIGHT, CHART)
        strip = place_axes(figure, LEFT, y - CHART - GAP - STRIP, WIDTH - LEFT - RIGHT, STRIP)
        _draw_charts(angles, strip, play, episode, None, play.highest(number))
    _write_legend(figure)
    return figure


@canvas.styled
def draw_frame(play: SwimmerPlay, time: int) -> Figure:
    """The first episode at a time: its body, and its angles and rewards up to then."""
    high = CHART + 0.5 + GAP + STRIP
    figure, top = _new_figure(play, TITLE_ROOM + high + LABELS)
    title = _episode_title(play, 0, time)
    figure.text(canvas.MARGIN / WIDTH, _share(figure, top - 0.08), title, fontsize=9, va="top")
    y = top - TITLE_ROOM
    draw_body(place_axes(figure, 0.1, y - high, high, high), play, 0, time, high)
    left = 0.1 + high + LEFT
    angles = place_axes(figure, left, y - CHART - 0.5, WIDTH - RIGHT - left, CHART + 0.5)
    strip = place_axes(figure, left, y - high, WIDTH - RIGHT - left, STRIP)
    _draw_charts(angles, strip, play, 0, time, play.highest(1))
    _write_legend(figure)
    return figure


def draw_body(axes: Axes, play: SwimmerPlay, episode: int, time: int, inches: float) -> None:
    """Three links, their hinges in the agents' colors, and where the outer links must point for the team to earn 1."""
    front, rear = play.angles[episode, time].tolist()
    heading = float(play.headings[episode, time])
    points = pose(heading, front, rear)
    axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    middle = heading + front
    # Seen from the middle link, the head is turned back by the front angle and the tail on by the rear one.
    for hinge, direction in ((points[1], middle - play.target), (points[2], middle + play.target + 180.0)):
        wedge = Wedge((hinge[0], hinge[1]), LINK_LENGTH, direction - play.band, direction + play.band)
        wedge.set(facecolor=TARGET, alpha=0.35, linewidth=0, zorder=3)
        axes.add_patch(wedge)
    axes.plot(*points.T, color=BODY, linewidth=3.2 * inches, solid_capstyle="round", solid_joinstyle="round", zorder=2)
    axes.plot(*points[0], marker="o", color="white", markersize=1.6 * inches, zorder=4)  # the head has an eye
    for point, color in zip(points[1:3], AGENTS, strict=True):
        axes.plot(*point, marker="o", color=color, markersize=max(4.0, 3.2 * inches), markeredgecolor="white", zorder=5)


def _draw_charts(angles: Axes, strip: Axes, play: SwimmerPlay, episode: int, now: int | None, highest: float) -> None:
    """Angles above, rewards below; with a time, what is still to come is pale."""
    length = int(play.lengths[episode])
    past = length if now is None else now
    steps = np.arange(length + 1)
    angles.axhspan(play.target - play.band, play.target + play.band, color=BAND, linewidth=0, zorder=0)
    angles.axhline(play.target, color=TARGET, linewidth=0.8, linestyle=":", zorder=1)
    for agent, color in enumerate(AGENTS):
        path = play.angles[episode, : length + 1, agent]
        if past < length:
            angles.plot(steps[past:], path[past:], color=color, linewidth=0.8, alpha=0.3, zorder=2)
        angles.plot(steps[: past + 1], path[: past + 1], color=color, linewidth=1.3, zorder=3)
    angles.set(xlim=(0, play.horizon), ylim=(-highest, highest))
    angles.tick_params(labelbottom=False)
    angles.set_ylabel("joint angle (degrees)", fontsize=7.5, labelpad=2)
    canvas.soften(angles)
    canvas.draw_rewards(strip, play.rewards[episode, :length], past, play.horizon, play.safe_reward)
    strip.set_xlabel("step", fontsize=8, labelpad=1)
    if now is not None:
        canvas.mark_now(angles, now)
        canvas.mark_now(strip, now)


def _new_figure(play: SwimmerPlay, room: float) -> tuple[Figure, float]:
    """A figure with its heading and room below it, and the height in inches at which that begins."""
    figure = canvas.new_frame(WIDTH, TOP + canvas.title_room(play.title, WIDTH) + room + BOTTOM)
    canvas.write_heading(figure, play.title, _explanation(play))
    return figure, room + BOTTOM


def _share(figure: Figure, inches: float) -> float:
    return float(inches / figure.get_size_inches()[1])


def _episode_title(play: SwimmerPlay, episode: int, time: int | None = None) -> str:
    total, length = play.returns[episode], int(play.lengths[episode])
    if time is not None and time < length:
        so_far = play.rewards[episode, :time].sum()
        return f"episode {episode + 1}: step {time}, return {format_tenths(so_far)} of {format_tenths(total)}"
    cut = f", cut short after {length} steps" if length < play.horizon else ""
    high = int(np.sum(play.rewards[episode, :length] >= 1.0))
    return f"episode {episode + 1}: return {format_tenths(total)}, {high} of {play.horizon} steps with reward 1{cut}"


def _explanation(play: SwimmerPlay) -> str:
    return (
        f"{canvas.mean_return(play.returns)}; reward 1 with"
        f" both joints within {play.band:.3g}° of {play.target:+.1f}°, {play.safe_reward:.3g} with none"
    )


def _write_legend(figure: Figure) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="o", color=color, label=f"joint of agent {agent + 1}")
        for agent, color in enumerate(AGENTS)
    ]
    handles.append(Patch(facecolor=TARGET, alpha=0.35, label="the band: where both outer links must point"))
    figure.legend(handles=handles, loc="lower center", ncols=3, frameon=False, fontsize=8, borderpad=0.2)
