"""Episodes of climb games as pictures: a still of every stage, and frames that walk through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mesax.envs.base import TaskFamily
from mesax.envs.climb import ClimbFamily, ClimbTask
from mesax.rendering import canvas
from mesax.rendering.canvas import EDGE, OPTIMAL, PAYOFF_COLORS
from mesax.rendering.scene import Role, Scene, Shape, Take, choice_board, since
from mesax.store.json_values import Json
from mesax.suites.base import expect
from mesax.types import Episode

MOST_STAGES = 20
"""Stages drawn at most; longer games say what is left out."""
SEPARATE_CELLS = 40
"""Up to this many actions a cell is large enough to be seen; beyond, lines and points stand for rows and cells."""
PER_LINE = 5
TOP = 1.1
"""Inches above the first panels, and more for a title of several lines."""


class _Sizes(NamedTuple):
    """Inches: side of a panel, and its place with the texts around it."""

    side: float
    wide: float
    high: float


ONE_STAGE, MANY_STAGES = _Sizes(2.6, 3.15, 3.35), _Sizes(1.6, 2.0, 2.42)
PLAYED = canvas.MARK
PALEST = 0.25
"""The color of a single visit."""


@dataclass(frozen=True, eq=False)
class ClimbPlay:
    """Episodes of one policy on one climb task."""

    title: str
    targets: Sequence[Sequence[int]]
    """(k, u) of each stage."""
    num_actions: int
    safe_reward: float
    actions: np.ndarray
    """`[episodes, stages, agents]`."""
    rewards: np.ndarray
    """`[episodes, stages]`."""

    @classmethod
    def of(cls, title: str, family: ClimbFamily, task: ClimbTask, episodes: Episode) -> ClimbPlay:
        """Stacked episodes of one task."""
        targets = [(int(count), int(special)) for count, special in family.describe(task).target]
        actions, rewards = np.asarray(episodes.action), np.asarray(episodes.reward)
        return cls(title, targets, family.num_actions, 1.0 - family.delta, actions, rewards)

    def picture(self) -> Figure:
        """The first episode, whole, with all visits."""
        return draw(self, still(self))

    def scene(self) -> Scene:
        """Two agents' choices as cells of their payoffs, or a row of actions for each agent."""
        matrix = self.num_agents == 2
        view, shapes, _ = choice_board(self.num_actions, self.actions[0], [special for _, special in self.targets])
        if matrix:
            view = (-0.5, self.num_actions - 0.5, 0.5 - self.num_actions, 0.5)
            shapes = tuple(shape for stage in range(self.num_stages) for shape in self._payoffs(stage))
        steps = np.arange(self.num_stages + 1)
        takes = []
        for actions, rewards in zip(self.actions, self.rewards, strict=True):
            points = choice_board(self.num_actions, actions)[2]
            if matrix:  # column: the second agent's action, row: the first's
                points = np.full((self.num_stages + 1, 1, 2), np.nan)
                points[1:, 0] = np.stack([actions[:, 1], -actions[:, 0]], axis=1)
            joint = actions @ self.num_actions ** np.arange(self.num_agents, dtype=float)
            visits = [(step + 1, int(cell) * self.num_stages + step) for step, cell in enumerate(joint)]
            takes.append(Take(steps, since(rewards, steps), points, visits))
        (first, special), where = self.targets[0], "row: agent 1, column: agent 2" if matrix else "a row for each agent"
        told = f"just {first} on action {special}" if self.num_stages == 1 else "just k on the stage's action u"
        about = f"Reward 1 with {told}, {self.safe_reward:.3g} with none ({where})."
        return Scene(about, view, tuple(takes), shapes, trails=False, mean_return=True)

    def _payoffs(self, stage: int) -> Iterator[Shape]:
        """The areas of two agents' payoffs: neither plays the special action, one does, both do."""
        count, special = self.targets[stage]
        number, step = self.num_actions, stage + 1 if self.num_stages > 1 else None
        middle = (number - 1) / 2
        one: Role = "high" if count == 1 else "low"
        both: Role = "high" if count == 2 else "low"
        yield Shape("box", (middle, -middle), (number, number), "safe", step=step)
        yield Shape("box", (middle, -special), (number, 1), one, step=step)
        yield Shape("box", (special, -middle), (1, number), one, step=step)
        yield Shape("box", (special, -special), (1, 1), both, step=step)

    def more(self, coverage: Json) -> dict[str, Figure]:
        """Nothing else to see."""
        del coverage
        return {}

    def frames(self) -> Iterator[tuple[Figure, float]]:
        """The frames of a GIF with their seconds."""
        return ((draw(self, moment), moment.seconds) for moment in moments(self))

    @property
    def num_stages(self) -> int:
        """Stages of an episode."""
        return len(self.targets)

    @property
    def num_agents(self) -> int:
        """Agents in the team."""
        return int(self.actions.shape[2])

    @property
    def varies(self) -> bool:
        """Whether episodes differ: then one of them says little, and visits are drawn too."""
        return bool(np.any(self.actions != self.actions[0]))

    def levels(self, episode: int, stage: int) -> np.ndarray:
        """0 nothing, 1 safe, 2 optimal for each action pair of the first two agents, the others as they played."""
        count, special = self.targets[stage]
        hit = np.arange(self.num_actions) == special
        others = int(np.sum(self.actions[episode, stage, 2:] == special))
        players = others + hit[None, :] + (hit[:, None] if self.num_agents > 1 else 0)
        return np.select([players == count, players == 0], [2, 1], 0)

    def cell(self, episode: int, stage: int) -> tuple[int, int]:
        """Row and column of what the first two agents played; a single agent has one row."""
        pair = self.actions[episode, stage, :2]
        return (0, int(pair[0])) if len(pair) == 1 else (int(pair[0]), int(pair[1]))

    def visits(self, stage: int, episodes: int) -> np.ndarray:
        """How often each pair was played in the first episodes."""
        counts = np.zeros((1 if self.num_agents == 1 else self.num_actions, self.num_actions), int)
        for episode in range(episodes):
            counts[self.cell(episode, stage)] += 1
        return counts


def play(title: str, family: TaskFamily, task: ClimbTask, episodes: Episode) -> ClimbPlay:
    """Stacked episodes of one task, ready to be drawn."""
    return ClimbPlay.of(title, expect(ClimbFamily, family), task, episodes)


@dataclass(frozen=True)
class Moment:
    """What one picture shows: an episode up to a stage, and the visits of so many episodes."""

    episode: int
    played: int
    """Stages played so far."""
    visits: int
    seconds: float = 0.5
    walking: bool = False
    """Whether the last stage played is pointed out."""


def still(play: ClimbPlay) -> Moment:
    """The first episode, whole, with all visits."""
    return Moment(0, play.num_stages, len(play.actions))


def moments(play: ClimbPlay) -> Iterator[Moment]:
    """The frames: stage after stage; if episodes differ, a few of them, then visits in ever larger steps."""
    stages, number = play.num_stages, len(play.actions)
    shown = min(stages, MOST_STAGES)
    if not play.varies:
        yield from (Moment(0, played, 1, 1.0, walking=True) for played in range(shown + 1))
        yield Moment(0, stages, 1, 3.0)
        return
    for episode in range(min(number, 12 if stages == 1 else 2)):
        yield from (Moment(episode, played, episode + 1, walking=True) for played in range(1, shown + 1))
    for visits in (25, 50, 100):
        if visits < number:
            yield Moment(visits - 1, stages, visits, 0.8)
    yield Moment(number - 1, stages, number, 3.0)


@canvas.styled
def draw(play: ClimbPlay, moment: Moment) -> Figure:
    """One picture: a panel per stage with its payoffs and what was played; below it or next to it all visits."""
    figure, panels = _layout(play)
    norm = LogNorm(1, max(10, *(int(play.visits(s, len(play.actions)).max()) for s in range(len(panels)))))
    for stage, (payoffs, visited) in enumerate(panels):
        _draw_stage(payoffs, play, moment, stage)
        if visited is not None:
            _draw_visits(visited, play, moment, stage, norm)
    canvas.write_heading(figure, play.title, _explanation(play, moment))
    if play.varies:
        _draw_color_bar(figure, play, norm)
    _write_legend(figure, play)
    return figure


def _layout(play: ClimbPlay) -> tuple[Figure, list[tuple[Axes, Axes | None]]]:
    """A figure with (payoffs, visits) for each stage."""
    stages, rows = min(play.num_stages, MOST_STAGES), 1 + play.varies
    single = stages == 1
    side, wide, high = ONE_STAGE if single else MANY_STAGES
    columns = rows if single else min(stages, PER_LINE)
    lines = 1 if single else -(-stages // PER_LINE) * rows
    width = max(columns * wide + (0.95 if play.varies else 0.25), 6.4)
    figure = canvas.new_frame(width, lines * high + TOP + canvas.title_room(play.title, width) + 0.15)
    left = max(0.4, (width - columns * wide - (0.7 if play.varies else 0)) / 2 + 0.25)

    def panel(line: int, column: int) -> Axes:
        return canvas.place_axes(figure, left + column * wide, (lines - line) * high + 0.15 - side, side, side)

    panels: list[tuple[Axes, Axes | None]] = []
    for stage in range(stages):
        line, column = divmod(stage, PER_LINE)
        beside = (0, 1) if single else (line * rows + 1, column)
        panels.append((panel(line * rows, column), panel(*beside) if play.varies else None))
    return figure, panels


def _draw_stage(axes: Axes, play: ClimbPlay, moment: Moment, stage: int) -> None:
    """Payoffs of a stage, the special action, and what was played if the episode has come so far."""
    count, special = play.targets[stage]
    reached = stage < moment.played
    levels = play.levels(moment.episode, stage)
    _draw_payoffs(axes, levels, special, 1.0 if stage <= moment.played else 0.35)
    axes.set_title(f"{'' if play.num_stages == 1 else f'stage {stage + 1}: '}k={count}, u={special}", loc="center")
    current = moment.walking and stage == moment.played - 1 and play.num_stages > 1
    _frame_panel(axes, special, play, PLAYED if current else EDGE)
    if not reached:
        return
    row, column = play.cell(moment.episode, stage)
    size = np.clip(72 * (ONE_STAGE if play.num_stages == 1 else MANY_STAGES).side / play.num_actions, 12, 40)
    axes.plot(
        *(column, row, "s"),
        markersize=size,
        markerfacecolor="none",
        markeredgecolor=PLAYED,
        markeredgewidth=2.4,
        clip_on=False,
        zorder=4,
    )
    rewards = play.rewards[moment.episode]
    text = f"plays {_listed(play.actions[moment.episode, stage])}: reward {rewards[stage]:.3g}"
    if play.num_stages > 1:
        text += f"\nreturn so far {rewards[: stage + 1].mean():.2f}"
    axes.set_xlabel(text, fontsize=8)


def _draw_payoffs(axes: Axes, levels: np.ndarray, special: int, alpha: float) -> None:
    colors = PAYOFF_COLORS
    rows, columns = levels.shape
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    optima = np.argwhere(levels == 2)
    if columns <= SEPARATE_CELLS:
        axes.imshow(levels, cmap=ListedColormap(colors), vmin=0, vmax=2, aspect="auto", alpha=alpha)
    else:
        elsewhere = 0 if special else 1
        row = min(elsewhere, rows - 1)
        axes.set_facecolor(colors[levels[row, elsewhere]])
        axes.axvline(special, color=colors[levels[row, special]], linewidth=1.6, alpha=alpha)
        if rows > 1:
            axes.axhline(special, color=colors[levels[row, special]], linewidth=1.6, alpha=alpha)
            center = colors[levels[special, special]]
            axes.plot(special, special, "s", color=center, markersize=9, markeredgewidth=0, alpha=alpha)
        optima = optima[(optima == special).all(axis=1)]
    size = max(min(9.0, 80 / columns), 5.0 if len(optima) == 1 else 0.0)
    axes.plot(optima[:, 1], optima[:, 0], "*", color="white", markersize=size, markeredgewidth=0, zorder=3)


def _draw_visits(axes: Axes, play: ClimbPlay, moment: Moment, stage: int, norm: LogNorm) -> None:
    """What the first episodes played at a stage; dotted lines mark the special action."""
    _, special = play.targets[stage]
    episodes = moment.visits if stage < moment.played else moment.visits - 1
    counts = play.visits(stage, episodes)
    axes.set_xlim(-0.5, counts.shape[1] - 0.5)
    axes.set_ylim(counts.shape[0] - 0.5, -0.5)
    if play.num_actions <= SEPARATE_CELLS:
        axes.imshow(counts, cmap=canvas.visits_colormap(PALEST), norm=norm, aspect="auto")
    else:
        rows, columns = np.nonzero(counts)
        colors = canvas.visits_colormap(PALEST)
        axes.scatter(columns, rows, c=counts[rows, columns], cmap=colors, norm=norm, s=7, zorder=3)
    for line in (axes.axvline, *([axes.axhline] if play.num_agents > 1 else [])):
        line(special, color=OPTIMAL, linewidth=0.9, linestyle=":", zorder=2)
    _frame_panel(axes, special, play, EDGE)
    if play.num_stages == 1:
        axes.set_title("visits", loc="center")
    elif stage % PER_LINE == 0:
        axes.set_ylabel("visits", fontsize=8, labelpad=1)
    share = np.mean(play.rewards[:episodes, stage] >= 1.0) if episodes else 0.0
    axes.set_xlabel(f"{np.count_nonzero(counts)} of {counts.size} visited\nreward 1 in {share:.1%}", fontsize=8)


def _frame_panel(axes: Axes, special: int, play: ClimbPlay, color: str) -> None:
    """Border and ticks: the first, the last and, in bold, the special action."""
    axes.spines[:].set(visible=True, color=color, linewidth=1.8 if color == PLAYED else 0.8)
    last = play.num_actions - 1
    clear = max(1, play.num_actions // 6)  # room for the special action's number
    ticks = [special, *(end for end in (0, last) if abs(end - special) >= clear)]
    axes.set_xticks(ticks)
    axes.set_yticks(ticks if play.num_agents > 1 else [])
    axes.tick_params(length=2, pad=1.5, labelsize=7.5, color=EDGE)
    for label in (axes.get_xticklabels()[0], *axes.get_yticklabels()[:1]):
        label.set(color=OPTIMAL, weight="bold")


def _draw_color_bar(figure: Figure, play: ClimbPlay, norm: LogNorm) -> None:
    width, height = figure.get_size_inches()
    last = max(axes.get_position().x1 for axes in figure.axes) * width
    top = TOP + canvas.title_room(play.title, width)
    place = canvas.place_axes(figure, last + 0.2, height - top - 1.5, 0.1, 1.5)
    ticks = [number for number in (1, 10, 100) if number <= (norm.vmax or 1)]
    colors = ScalarMappable(norm, canvas.visits_colormap(PALEST))
    bar = figure.colorbar(colors, cax=place, ticks=ticks, format="%d")
    bar.set_label(f"visits in {len(play.actions)} episodes", fontsize=7.5, labelpad=2)
    bar.ax.tick_params(labelsize=7)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def _write_legend(figure: Figure, play: ClimbPlay) -> None:
    nothing, safe, optimal = PAYOFF_COLORS
    handles = [
        Patch(color=optimal, label="reward 1"),
        Patch(color=safe, label=f"reward {play.safe_reward:.3g}"),
        Patch(facecolor=nothing, edgecolor=EDGE, linewidth=0.5, label="reward 0"),
        Line2D([], [], marker="s", linestyle="", markerfacecolor="none", markeredgecolor=PLAYED, label="played"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=4, frameon=False, fontsize=8)


def _explanation(play: ClimbPlay, moment: Moment) -> str:
    number, total = len(play.actions), play.rewards[moment.episode].mean()
    which = f"episode {moment.episode + 1} of {number}" if play.varies else f"the same in all of {number} episodes"
    done = f", return {total:.3g}" if moment.played >= play.num_stages else ""
    if play.varies:
        done += f"; mean return of all {play.rewards.mean():.2f}"
    axes = "column: the agent's action" if play.num_agents == 1 else "row: action of agent 1, column: of agent 2"
    text = f"{which}{done}\n{axes}, in bold the special action u"
    if play.num_agents > 2:
        text += f"\nplane of the first 2 of {play.num_agents} agents, the others as they play"
    return text + (f"; first {MOST_STAGES} of {play.num_stages} stages" if play.num_stages > MOST_STAGES else "")


def _listed(actions: np.ndarray) -> str:
    names = [str(int(action)) for action in actions[:4]]
    return ", ".join(names) + (", …" if len(actions) > 4 else "")
