"""An episode as numbers that a player on a page can show: what stands still, what moves, what is paid and visited.

A world says with these few words what its episodes look like, so that a player need not know which world it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mesax.store.json_values import Json

Role = Literal["wall", "place", "target", "high", "safe", "low", "body"]
"""What something means: a border, a place, the place that counts, areas by what they pay, a body that moves."""
FINENESS = 1000
"""Coordinates are whole numbers: the sides of the view in so many parts."""
ABSENT = -1
"""A coordinate of what is not there."""
MOST_FRAMES = 120
"""Moments of an episode that are kept; longer ones lose steps in between."""


@dataclass(frozen=True)
class Shape:
    """Something that stands still."""

    kind: Literal["disc", "box"]
    center: tuple[float, float]
    size: tuple[float, float]
    """Width and height."""
    role: Role
    label: str = ""
    place: int | None = None
    """The place that it is, if visits to it are counted."""
    step: int | None = None
    """The only step at which it is seen; None: always."""


@dataclass(frozen=True, eq=False)
class Take:
    """One episode at `[moments]` from before its first step to after its last."""

    steps: np.ndarray
    """How many steps have been made: `[moments]`, from 0 on."""
    rewards: np.ndarray
    """Earned since the moment before: `[moments]`, first 0."""
    points: np.ndarray
    """Where the agents are: `[moments, agents, 2]`; NaN if nowhere."""
    visits: Sequence[tuple[int, int]] = ()
    """(step, place): from that step on the team was there; place -1 is none."""
    chains: tuple[np.ndarray, ...] = ()
    """Joined points that move, `[moments, points, 2]` each, in the order of the scene's `chains`."""
    curves: np.ndarray | None = None
    """What is drawn over time, `[moments, curves]`."""


@dataclass(frozen=True, eq=False)
class Scene:
    """Episodes of one policy on one task."""

    about: str
    """What pays, in a sentence."""
    view: tuple[float, float, float, float]
    """Left, right, bottom, top; y points up."""
    takes: tuple[Take, ...]
    shapes: tuple[Shape, ...] = ()
    chains: tuple[Role, ...] = ()
    trails: bool = True
    """Whether points leave a trail in their episode; otherwise they stay as marks of all episodes so far."""
    mean_return: bool = False
    """Whether a return is the mean of the rewards, not their sum."""
    curves: tuple[str, ...] = ()
    """Names of what is drawn over time."""
    curves_title: str = ""
    band: tuple[float, float] | None = None
    """Where curves ought to be."""

    def stage(self) -> Json:
        """All but the episodes, as plain numbers."""
        left, right, bottom, top = self.view
        return {
            "about": self.about,
            "aspect": round((top - bottom) / (right - left), 4),
            "shapes": [self._shape(shape) for shape in self.shapes],
            "chains": list(self.chains),
            "trails": self.trails,
            "mean": self.mean_return,
            "curves": list(self.curves),
            "curvesTitle": self.curves_title,
            "band": None if self.band is None else [round(end, 3) for end in self.band],
        }

    def episodes(self) -> list[Json]:
        """The episodes as plain numbers; coordinates are in parts of the view."""
        return [self._take(take) for take in self.takes]

    def _shape(self, shape: Shape) -> Json:
        left, right, bottom, top = self.view
        size = (shape.size[0] / (right - left), shape.size[1] / (top - bottom))
        plain: Json = {"kind": shape.kind, "role": shape.role, "at": self._parts(np.array(shape.center))}
        plain["size"] = [round(FINENESS * side, 1) for side in size]
        extra = {"label": shape.label or None, "place": shape.place, "step": shape.step}
        return plain | {name: value for name, value in extra.items() if value is not None}

    def _take(self, take: Take) -> Json:
        plain: Json = {
            "steps": [int(step) for step in take.steps],
            "rewards": _rounded(take.rewards),
            "agents": int(take.points.shape[1]),
            "points": self._parts(take.points),
            "visits": [[int(step), int(place)] for step, place in take.visits],
        }
        if take.chains:
            plain["chains"] = [self._parts(chain) for chain in take.chains]
        if take.curves is not None:
            plain["curves"] = [_rounded(curve) for curve in take.curves.T]
        return plain

    def _parts(self, points: np.ndarray) -> list[int]:
        """Points `[..., 2]` as a flat list of whole numbers; y points down, as on a screen."""
        left, right, bottom, top = self.view
        x = FINENESS * (points[..., 0] - left) / (right - left)
        y = FINENESS * (top - points[..., 1]) / (top - bottom)
        shares = np.clip(np.stack([x, y], axis=-1).round(), 0, FINENESS)
        return np.where(np.isfinite(shares), shares, ABSENT).astype(int).reshape(-1).tolist()


def moments(length: int) -> np.ndarray:
    """Steps after which an episode is shown: all, or evenly chosen ones with the first and the last."""
    return np.unique(np.linspace(0, length, min(length, MOST_FRAMES) + 1).round().astype(int))


def since(rewards: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """What was earned between each moment and the one before."""
    earned = np.concatenate([[0.0], np.cumsum(rewards, dtype=float)])[steps]
    return np.diff(earned, prepend=0.0)


def changes(places: np.ndarray) -> list[tuple[int, int]]:
    """(step, place) of every step after which the team is elsewhere than before; it begins nowhere."""
    before = np.concatenate([[-1], places[:-1]])
    return [(int(step) + 1, int(places[step])) for step in np.flatnonzero(places != before)]


def choice_board(
    num_actions: int, actions: np.ndarray, special: Sequence[int | None] = ()
) -> tuple[tuple[float, float, float, float], tuple[Shape, ...], np.ndarray]:
    """A row for each agent and a column for each action: view, shapes and points of what was played.

    `actions` are `[steps, agents]`; `special[step]` is the column to point out while that step is shown.
    """
    steps, agents = actions.shape
    view = (-0.5, num_actions - 0.5, -agents + 0.5, 0.5)
    middle = ((num_actions - 1) / 2, -(agents - 1) / 2)
    shapes = [Shape("box", middle, (num_actions, agents), "low")]
    for step, column in enumerate(special):
        if column is not None:
            when = step + 1 if len(special) > 1 else None
            shapes.append(Shape("box", (column, middle[1]), (1.0, agents), "target", str(column), step=when))
    points = np.full((steps + 1, agents, 2), np.nan)
    points[1:, :, 0] = actions
    points[1:, :, 1] = -np.arange(agents)
    return view, tuple(shapes), points


def _rounded(values: np.ndarray) -> list[float | int]:
    """Three decimals, without a point where there are none."""
    rounded = np.round(np.asarray(values, float), 3).tolist()
    return [int(value) if value == int(value) else value for value in rounded]
