"""Scenes as pictures: a still of a few episodes, and the frames of a GIF. Which world it is, no line here knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Rectangle
from matplotlib.patheffects import withStroke

from mesax.formatting import format_number, format_tenths
from mesax.rendering import canvas
from mesax.rendering.canvas import AGENTS, EDGE, INK, MARK, OPTIMAL, OPTIMAL_AREA, SOFT, place_axes
from mesax.rendering.scene import Scene, Shape, Take

AREAS = {"place": "#F1F1F1", "target": OPTIMAL_AREA, "high": "#7FB8DD", "safe": "#DCDEE1", "low": "#F7F7F7"}
"""Colors of areas, by their role."""
BODY, HALO = "#8C8C8C", [withStroke(linewidth=2, foreground="white")]
WIDTH, PANEL, SMALL, BOARD = 7.4, 3.4, 1.36, 3.6
"""Inches: a picture, and panels of it: an arena, one of several boards, a single one."""
TITLE, CURVES, ROW, STRIP, BELOW, SIDE = 0.3, 1.35, 0.36, 0.5, 0.42, 0.55
"""Inches of an episode: its title, its curves together or one of them, its rewards, what is below; its left edge."""
NAMES = 1.1
"""Inches at the right of curves, for their names."""
LEGEND, NAMES_PER_LINE = 0.22, 4
"""Inches of a line of the legend, and how many agents it names."""
TRAVELS, POSES, MOST_BOARDS, BOARDS_PER_LINE = 4, 6, 20, 5
"""What a still shows at most: episodes of travel, bodies along the way of an episode, boards."""
FRAMES, TRAIL = 80, 15
"""Moments of a GIF, and how many of them a trail reaches back."""
SHORT_EPISODES = (2, 12)
"""Episodes on boards that a GIF walks through: of several steps, and of one."""
SECONDS, BOARD_SECONDS, FIRST_SECONDS, LAST_SECONDS = 0.12, 0.5, 0.8, 3.0


@dataclass(frozen=True)
class Moment:
    """What a picture shows of an episode: everything up to a moment, the last one as now if it is of a GIF."""

    episode: int
    at: int
    moving: bool = True


@canvas.styled
def draw_still(scene: Scene, title: str) -> Figure:
    """A board for every step with what all episodes chose there; elsewhere a few episodes from start to end."""
    if scene.is_board:
        return _draw_boards(scene, title)
    wide = bool(scene.curves)
    number = min(TRAVELS if not wide else 2 if scene.chains else 1, len(scene.takes))
    width = WIDTH if wide else PANEL
    columns = 1 if wide else min(2, number)
    high = _height(scene, width, POSES if scene.chains else 1)
    figure, top = _new_figure(scene, title, columns * width, -(-number // columns) * high + _legend_room(scene))
    for episode in range(number):
        row, column = divmod(episode, columns)
        moment = Moment(episode, len(scene.takes[episode].steps) - 1, moving=False)
        _draw_episode(figure, scene, moment, (column * width, top - row * high), width)
    _write_legend(figure, scene)
    return figure


def frames(scene: Scene, title: str) -> Iterator[tuple[Figure, float]]:
    """Pictures of one size, each with the seconds for which it is shown."""
    shown = list(walk(scene))
    usual = BOARD_SECONDS if scene.is_board else SECONDS
    for place, moment in enumerate(shown):
        seconds = LAST_SECONDS if place == len(shown) - 1 else FIRST_SECONDS if place == 0 else usual
        yield draw_moment(scene, title, moment), seconds


def walk(scene: Scene) -> Iterator[Moment]:
    """The first episode; on boards, if episodes differ, a few of them, and then all at once."""
    last = len(scene.takes[0].steps) - 1
    if not scene.is_board:
        times = np.unique(np.linspace(0, last, min(last, FRAMES) + 1).round().astype(int))
        yield from (Moment(0, int(at)) for at in times)
    elif not _differ(scene):
        yield from (Moment(0, at) for at in range(last + 1))
    else:
        number = min(SHORT_EPISODES[last == 1], len(scene.takes))
        yield from (Moment(episode, at) for episode in range(number) for at in range(1, last + 1))
        yield Moment(len(scene.takes) - 1, last)


@canvas.styled
def draw_moment(scene: Scene, title: str, moment: Moment) -> Figure:
    """One frame: where all are now, and what was earned up to now."""
    if scene.is_board:
        side, high = _board_size(scene, BOARD)
        figure, top = _new_figure(scene, title, WIDTH, TITLE + high + BELOW)
        axes = place_axes(figure, (WIDTH - side) / 2, top - TITLE - high, side, high)
        _draw_board(axes, scene, side, moment.at, scene.takes[: moment.episode], scene.takes[moment.episode])
        axes.set_title(_told(scene, moment), loc="center")
        return figure
    width = WIDTH if scene.curves else 1.25 * PANEL
    aside = scene.has_arena and bool(scene.curves)
    room = _charts(scene) if aside else _height(scene, width, 1) - TITLE - BELOW
    figure, top = _new_figure(scene, title, width, TITLE + room + BELOW + _legend_room(scene))
    left = room + 0.15 if aside else 0.0
    if aside:
        arena = place_axes(figure, 0.1, top - TITLE - room, room, room)
        draw_arena(arena, scene, moment)
    _draw_episode(figure, scene, moment, (left, top), width - left, arena=not aside)
    _write_legend(figure, scene)
    return figure


def _new_figure(scene: Scene, title: str, width: float, room: float) -> tuple[Figure, float]:
    """A figure with its heading and room below, and the height at which that begins."""
    returns = np.array([scene.return_of(take) for take in scene.takes])
    many = "1 episode" if len(returns) == 1 else f"{len(returns)} episodes"
    text = f"mean return of {many} {format_number(float(returns.mean()))}. {scene.about}"
    figure = canvas.new_frame(width, room + canvas.heading_room(title, text, width))
    canvas.write_heading(figure, title, text)
    return figure, room


def _charts(scene: Scene) -> float:
    """Inches of the curves and the rewards below them."""
    curves = CURVES if scene.band is not None else ROW * len(scene.curves)
    return STRIP + (curves + 0.1 if scene.curves else 0.0)


def _height(scene: Scene, width: float, arenas: int) -> float:
    """Inches of an episode: title, arenas side by side, charts, and what is written below them."""
    arena = (width - SIDE - 0.15) / arenas * scene.aspect if scene.has_arena else 0.0
    return TITLE + arena + (0.12 if arena else 0.0) + _charts(scene) + BELOW


def _draw_episode(
    figure: Figure, scene: Scene, moment: Moment, corner: tuple[float, float], width: float, arena: bool = True
) -> None:
    """From the upper left corner down: what has happened, arenas, curves, rewards."""
    take, (x, y) = scene.takes[moment.episode], corner
    x, width, y = x + SIDE, width - SIDE - 0.15, y - TITLE
    across, up = figure.get_size_inches()
    figure.text(x / across, (y + 0.08) / up, _told(scene, moment), fontsize=9)
    if scene.has_arena and arena:
        times = _pose_times(moment.at) if scene.chains and not moment.moving else [moment.at]
        side = width / len(times)
        y -= side * scene.aspect + 0.12
        for place, at in enumerate(times):
            axes = place_axes(figure, x + place * side, y + 0.12, side, side * scene.aspect)
            draw_arena(axes, scene, Moment(moment.episode, at, moment.moving))
            if len(times) > 1:
                axes.set_title(f"step {take.steps[at]}", loc="center", fontsize=7.5, y=0.96, pad=-6, color=SOFT)
    width -= NAMES if scene.band is not None else 0.0
    for number, high in enumerate(_rows(scene)):
        y -= high
        _draw_curves(place_axes(figure, x, y, width, 0.88 * high), scene, moment, number)
    y -= STRIP + (0.1 if scene.curves else 0.0)
    strip = place_axes(figure, x, y, width, STRIP)
    draw_rewards(strip, scene, moment)
    strip.set_xlabel(_visited(scene, take, int(take.steps[moment.at])), fontsize=8, labelpad=-2 if scene.places else 1)


def _rows(scene: Scene) -> list[float]:
    """Heights of the charts of curves: all in one if a band says where they ought to be, otherwise one each."""
    return [CURVES] if scene.band is not None else [ROW] * len(scene.curves)


def _pose_times(last: int) -> list[int]:
    """Most of them early on, when most changes."""
    return (last * np.linspace(0.0, 1.0, POSES) ** 3).round().astype(int).tolist()


def _told(scene: Scene, moment: Moment) -> str:
    """Which episode it is, and what it has earned."""
    take = scene.takes[moment.episode]
    total, last = format_tenths(scene.return_of(take)), len(take.steps) - 1
    if moment.at == last:
        return f"episode {moment.episode + 1}: return {total}"
    so_far = format_tenths(scene.return_of(take, moment.at))
    return f"episode {moment.episode + 1}, step {take.steps[moment.at]}: return {so_far} of {total}"


def _visited(scene: Scene, take: Take, step: int) -> str:
    """Places in the order of their first visit; where places have no shape, that time goes by."""
    if not scene.places:
        return "step"
    order = _order(take, step)
    names = [scene.places[place] for place in order if place in scene.places]
    return f"visits {', '.join(names[:12])}{', …' * (len(names) > 12)}" if names else "visits nothing"


def _order(take: Take, step: int) -> list[int]:
    return list(dict.fromkeys(place for when, place in take.visits if when <= step and place >= 0))


def draw_arena(axes: Axes, scene: Scene, moment: Moment) -> None:
    """Shapes, joined points, and the agents with the way they came."""
    take = scene.takes[moment.episode]
    step = int(take.steps[moment.at])
    now = next((place for when, place in reversed(take.visits) if when <= step), -1) if moment.moving else -1
    _draw_shapes(axes, scene, step, _order(take, step), now)
    wide = 72.0 * canvas.inches_of(axes)[0]  # points
    for role, chain in zip(scene.chains, take.chains, strict=True):
        (line,) = axes.plot(*chain[moment.at].T, solid_capstyle="round", solid_joinstyle="round")
        line.set(color=BODY, linewidth=0.045 * wide, zorder=2)
        if role == "target":
            line.set(color=OPTIMAL, alpha=0.3, linewidth=0.1 * wide, zorder=3)
    for agent in range(take.points.shape[1]):
        color = AGENTS[agent % len(AGENTS)]
        if scene.trails:
            _draw_trail(axes, take.points[:, agent], moment, color)
        size = 8.0 if scene.trails else max(4.0, 0.03 * wide)
        axes.plot(*take.points[moment.at, agent], "o", color=color, markeredgecolor="white", markersize=size, zorder=4)


def _draw_trail(axes: Axes, path: np.ndarray, moment: Moment, color: str) -> None:
    """The way that an agent came, fainter the longer ago, with a ring where it began."""
    first = max(0, moment.at - TRAIL) if moment.moving else 0
    way = path[first : moment.at + 1]
    segments = np.stack([way[:-1], way[1:]], axis=1)
    colors = [to_rgba(color, float(alpha)) for alpha in np.linspace(0.12, 1.0, len(segments))]
    axes.add_collection(LineCollection(list(segments), colors=colors, linewidths=1.7, zorder=3), autolim=False)
    if first == 0:
        axes.scatter(path[0, 0], path[0, 1], s=25, facecolors="white", edgecolors=color, linewidths=1.4, zorder=3.5)


def _draw_shapes(axes: Axes, scene: Scene, step: int, visited: Sequence[int] = (), now: int = -1) -> None:
    """What stands still at a step, in the frame of the view; visited places have a dark rim."""
    left, right, bottom, top = scene.view
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    for shape in scene.shapes_at(step):
        (x, y), (width, height) = shape.center, shape.size
        if shape.kind == "box":
            box = Rectangle((x - width / 2, y - height / 2), width, height, linewidth=0, zorder=0.4)
            box.set(facecolor=AREAS.get(shape.role, "none"))
            if shape.role == "wall":
                box.set(facecolor="none", edgecolor=INK, linewidth=1.6)
            elif shape.role == "high":  # still to be seen in a large game
                box.set(edgecolor=AREAS["high"], linewidth=1.5)
            axes.add_patch(box)
            continue
        rim = MARK if shape.place == now else INK if shape.place in visited else EDGE
        disc = Ellipse((x, y), width, height, facecolor=AREAS.get(shape.role), edgecolor=rim, zorder=0.5)
        disc.set_linewidth(1.0 if rim == EDGE else 1.6)
        axes.add_patch(disc)
        _name(axes, shape)


def _name(axes: Axes, shape: Shape) -> None:
    """The name of a place, low in its disc, where agents do not hide it."""
    (x, y), target = shape.center, shape.role == "target"
    axes.annotate(
        f"★ {shape.label}" if target else shape.label,
        (x, y - shape.size[1] / 2),
        (0, 3),
        textcoords="offset points",
        color=OPTIMAL if target else SOFT,
        weight="bold" if target else "normal",
        fontsize=8,
        ha="center",
        path_effects=HALO,
        zorder=3.8,
    )


def _draw_curves(axes: Axes, scene: Scene, moment: Moment, row: int) -> None:
    """Curves over time with the band in which they ought to be, named at their ends; or one of them in its row."""
    take = scene.takes[moment.episode]
    assert take.curves is not None
    together = scene.band is not None
    stepped = "default" if together else "steps-pre"
    shown = range(len(scene.curves)) if together else [row]
    ends = []
    for number in shown:
        color, values = AGENTS[number % len(AGENTS)], take.curves[:, number]
        for until, alpha, width in ((len(values), 0.3, 0.8), (moment.at + 1, 1.0, 1.4)):
            (line,) = axes.plot(take.steps[:until], values[:until], color=color, drawstyle=stepped)
            line.set(alpha=alpha, linewidth=width, zorder=3)
        ends.append((float(values[-1]), scene.curves[number], color))
    if scene.band is not None:
        axes.axhspan(*scene.band, color=OPTIMAL_AREA, linewidth=0, zorder=0)
    low, high = scene.curve_limits()
    margin = 0.06 * (high - low or 1.0)
    axes.set(xlim=(0, take.steps[-1]), ylim=(low - margin, high + margin))
    axes.tick_params(labelbottom=False)
    _soften(axes)
    if together:
        axes.set_ylabel(scene.curves_title, fontsize=7.5, labelpad=2)
        canvas.label_ends(axes, ends, fontsize=8)
    else:
        axes.set_yticks([])
        axes.set_ylabel(scene.curves[row], fontsize=7, rotation=0, ha="right", va="center", color=ends[0][2])
    _mark_now(axes, take, moment)


def draw_rewards(axes: Axes, scene: Scene, moment: Moment) -> None:
    """The reward of every step; what is still to come is pale."""
    take = scene.takes[moment.episode]
    rates = take.rewards[1:] / np.diff(take.steps)
    axes.stairs(rates, take.steps, color=EDGE, linewidth=1.0)
    if moment.at:
        earned = rates[: moment.at], take.steps[: moment.at + 1]
        axes.stairs(*earned, color=INK, linewidth=1.2)
        axes.stairs(*earned, fill=True, color=OPTIMAL, alpha=0.18, linewidth=0)
    low, high = scene.reward_limits()
    margin = 0.1 * (high - low or 1.0)
    axes.set(xlim=(0, take.steps[-1]), ylim=(low - margin, high + margin))
    ticks = sorted({low, 0.0, high})
    axes.set_yticks(ticks, [format_tenths(tick) for tick in ticks])
    axes.set_xticks([0, int(take.steps[-1])])
    axes.set_ylabel("reward", fontsize=7.5, labelpad=2)
    _soften(axes)
    _mark_now(axes, take, moment)


def _soften(axes: Axes) -> None:
    axes.tick_params(length=2, pad=1.5, labelsize=7, color=EDGE)
    axes.spines[["left", "bottom"]].set_color(EDGE)


def _mark_now(axes: Axes, take: Take, moment: Moment) -> None:
    if moment.moving:
        axes.axvline(float(take.steps[moment.at]), color=MARK, linewidth=1.4)


def _draw_boards(scene: Scene, title: str) -> Figure:
    """A board for each step, with everything that any episode chose there, larger the more often."""
    steps = len(scene.takes[0].steps) - 1
    shown = min(steps, MOST_BOARDS)
    side, high = _board_size(scene, BOARD if steps == 1 else SMALL)
    columns = max(1, min(shown, BOARDS_PER_LINE if side <= SMALL else 1))
    below = BELOW + (0.12 if steps > 1 else 0.0)
    figure, top = _new_figure(scene, title, WIDTH, -(-shown // columns) * (TITLE + high + below))
    left = (WIDTH - columns * (side + 0.1)) / 2
    for place in range(shown):
        row, column = divmod(place, columns)
        y = top - row * (TITLE + high + below) - TITLE - high
        axes = place_axes(figure, left + column * (side + 0.1), y, side, high)
        _draw_board(axes, scene, side, place + 1, scene.takes)
        name = " ".join(shape.label for shape in scene.shapes_at(place + 1) if shape.label)
        heading = f"step {place + 1}{f': {name}' * bool(name)}" if steps > 1 else name
        axes.set_title(heading, loc="center", fontsize=8.5)
        axes.set_xlabel(_chosen(scene, place + 1), fontsize=8)
    if shown < steps:
        figure.text(0.5, 0.0, f"the first {shown} of {steps} steps", fontsize=8, ha="center", va="bottom")
    return figure


def _board_size(scene: Scene, width: float) -> tuple[float, float]:
    """Inches: a long row needs all the width that there is."""
    if scene.aspect < 0.5:
        width = WIDTH - 0.6
    return width, width * max(scene.aspect, 0.06)


def _draw_board(
    axes: Axes, scene: Scene, side: float, at: int, earlier: Sequence[Take], current: Take | None = None
) -> None:
    """What pays at a step, and what was chosen: in earlier episodes pale, in the current one with a dark rim."""
    _draw_shapes(axes, scene, max(1, at))
    axes.spines[:].set(visible=True, color=EDGE)
    agents, largest = scene.takes[0].points.shape[1], 160.0 * min(1.0, side / BOARD)
    for agent in range(agents):
        color = MARK if agents == 1 else AGENTS[agent % len(AGENTS)]
        points = np.array([take.points[max(1, at), agent] for take in earlier]).reshape(-1, 2)
        points = points[np.isfinite(points).all(axis=1)]
        if len(points):
            places, counts = np.unique(points, axis=0, return_counts=True)
            sizes = largest * (0.05 + np.sqrt(counts / len(points)))
            axes.scatter(places[:, 0], places[:, 1], s=sizes, color=color, alpha=0.55, linewidths=0, zorder=3)
        if current is not None and at:
            x, y = current.points[at, agent]
            axes.scatter(x, y, s=70, color=color, edgecolors=INK, linewidths=1.2, zorder=4)


def _chosen(scene: Scene, at: int) -> str:
    """How many different choices episodes made at a step, and what these earned."""
    rewards = np.array([take.rewards[at] for take in scene.takes])
    visits = {place for take in scene.takes for when, place in take.visits if when == at}
    number = f"{len(visits)} different choices" if len(visits) > 1 else "always the same"
    return f"{number}\nmean reward {format_number(float(rewards.mean()))}"


def _differ(scene: Scene) -> bool:
    first, *others = scene.takes
    return any(not np.array_equal(first.points, other.points, equal_nan=True) for other in others)


def _legend_room(scene: Scene) -> float:
    agents = scene.takes[0].points.shape[1] if scene.trails else 0
    return LEGEND * -(-(min(agents, len(AGENTS)) + 1) // NAMES_PER_LINE)


def _write_legend(figure: Figure, scene: Scene) -> None:
    """Who is who, where agents travel; a large team shares colors."""
    if not scene.trails or not scene.has_arena:
        return
    number = scene.takes[0].points.shape[1]
    alike = [range(first, number, len(AGENTS)) for first in range(min(number, len(AGENTS)))]
    handles = [
        Line2D(
            [], [], marker="o", linestyle="", color=color, label=f"agent {', '.join(str(one + 1) for one in agents)}"
        )
        for color, agents in zip(AGENTS, alike, strict=False)
    ]
    start = Line2D([], [], marker="o", linestyle="", markersize=5, markeredgecolor=SOFT, label="start")
    start.set_markerfacecolor("white")
    style = {"frameon": False, "fontsize": 8, "handletextpad": 0.2, "borderpad": 0}
    figure.legend(handles=[*handles, start], loc="lower center", ncols=NAMES_PER_LINE, **style)
