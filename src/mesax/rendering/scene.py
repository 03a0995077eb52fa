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
    """Where curves ought to be; without it each is drawn in a row of its own."""

    @property
    def aspect(self) -> float:
        """Height over width of the view."""
        left, right, bottom, top = self.view
        return (top - bottom) / (right - left)

    @property
    def has_arena(self) -> bool:
        """Whether anything is to be seen that has a place."""
        return bool(self.chains) or self.takes[0].points.shape[1] > 0

    @property
    def is_board(self) -> bool:
        """Whether agents choose a place at every step, and do not travel there."""
        return self.has_arena and not self.trails and not self.chains

    @property
    def has_plane(self) -> bool:
        """Whether its curves are two that ought to be in the same band."""
        return self.band is not None and len(self.curves) == 2

    @property
    def places(self) -> dict[int, str]:
        """Names of the places that have a shape."""
        return {shape.place: shape.label for shape in self.shapes if shape.place is not None}

    def shapes_at(self, step: int) -> list[Shape]:
        """What is seen after so many steps; before the first, what the first step is about."""
        return [shape for shape in self.shapes if shape.step in (None, max(1, step))]

    def return_of(self, take: Take, at: int = -1) -> float:
        """What an episode has earned up to a moment; as a share of all its steps if returns are means."""
        earned = float(np.sum(take.rewards if at < 0 else take.rewards[: at + 1]))
        return earned / float(take.steps[-1]) if self.mean_return else earned

    def reward_limits(self) -> tuple[float, float]:
        """The least reward of a step in any episode, at most 0, and the highest."""
        rates = np.concatenate([take.rewards[1:] / np.diff(take.steps) for take in self.takes])
        return min(0.0, float(rates.min(initial=0.0))), max(0.0, float(rates.max(initial=0.0)))

    def curve_limits(self) -> tuple[float, float]:
        """As far as any curve and the band reach."""
        ends = [np.asarray(self.band or ())] + [take.curves for take in self.takes if take.curves is not None]
        return min(float(np.min(one, initial=np.inf)) for one in ends), max(
            float(np.max(one, initial=-np.inf)) for one in ends
        )

    def stage(self) -> Json:
        """All but the episodes, as plain numbers."""
        return {
            "about": self.about,
            "aspect": round(self.aspect, 4),
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


def _rounded(values: np.ndarray) -> list[float | int]:
    """Three decimals, without a point where there are none."""
    rounded = np.round(np.asarray(values, float), 3).tolist()
    return [int(value) if value == int(value) else value for value in rounded]
