"""Rows and columns of Table 2: which methods in which worlds, what they cost, and what the paper has there.

The seven columns of the paper are its own worlds. `WIDE` are ours, from before these were known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mesax.results.labels import PRIVILEGED, PUBLISHED
from paper.cells import Cell, Kind

COLUMNS = ("climb-one", "climb-multi", "mpe-2a5l", "mpe-2a6l", "mpe-3a5l", "mpe-3a6l", "swimmer")
"""Columns of Table 2."""
WIDE = ("climb-multi-mixed", "wide-2a5l", "wide-2a6l", "wide-3a5l", "wide-3a6l", "swimmer-wide")
"""Columns of the second table."""
CLIMB, PARTICLES = COLUMNS[:2], COLUMNS[2:6]
ONE_STEP, FIVE_STAGES, TWO_AGENTS, _, THREE_AGENTS, _, SWIMMER = COLUMNS
LEARNED, OURS = "MESA (ours), learned", "MESA (ours)"


@dataclass(frozen=True)
class World:
    """What a column costs."""

    minutes: float
    """Of a seed of MESA's learner alone on two quiet cores, about."""
    kind: int
    """Which of a method's factors counts: 0 climb games, 1 particle worlds, 2 the swimmer."""
    num_test_tasks: int | None = None
    """None: as many as the preset has."""


WORLDS = {
    "climb-one": World(0.05, 0, 10),
    "climb-multi": World(0.17, 0),
    "mpe-2a5l": World(0.3, 1),
    "mpe-2a6l": World(0.5, 1),
    "mpe-3a5l": World(1.0, 1),
    "mpe-3a6l": World(1.4, 1),
    "swimmer": World(4.2, 2),
    "climb-multi-mixed": World(0.85, 0, 10),
    "wide-2a5l": World(0.4, 1, 5),
    "wide-2a6l": World(0.7, 1, 5),
    "wide-3a5l": World(1.9, 1, 5),
    "wide-3a6l": World(2.3, 1, 5),
    "swimmer-wide": World(5.0, 2, 6),
}
FACTORS = {
    "mesa": (1.8, 2.5, 1.8),
    "learned": (1.8, 4.0, 1.8),
    "maddpg": (0.8, 0.75, 0.55),
    "mappo": (0.4, 2.0, 0.5),
    "mappo-rnd": (0.45, 2.2, 0.6),
    "qmix": (0.9, 0.6, 0.8),
    "maven": (2.6, 1.5, 1.1),
    "emc": (3.0, 2.2, 1.8),
    "pretrain": (0.45, 3.0, 0.8),
    "cbet": (0.5, 3.2, 0.9),
    "goal": (1.6, 3.2, 0.8),
    "maesn": (0.3, 1.5, 1.5),
    "plain": (1.0, 1.0, 1.0),
    "uniform": (1.0, 1.0, 1.0),
    "tour": (1.0, 1.0, 1.0),
    "safe": (0.2, 0.1, 0.1),
    "optimum": (0.2, 0.1, 0.1),
}
"""What methods cost beside MESA's learner alone, about: in climb games, in particle worlds, on the swimmer. Clocks of
stored results are better."""


def _row(
    label: str, method: str, kind: Kind, envs: Iterable[str], settings: tuple[tuple[str, str], ...] = ()
) -> Iterator[Cell]:
    """A method in preset `quick`, in several worlds."""
    for env in envs:
        world = WORLDS[env]
        minutes = world.minutes * FACTORS[method][world.kind]
        yield Cell(method, env, minutes, label, settings, num_test_tasks=world.num_test_tasks, kind=kind)


def _published(label: str, method: str, minutes: Mapping[str, float]) -> Iterator[Cell]:
    """A method in preset `paper`, in the worlds whose minutes are given."""
    for env, estimate in minutes.items():
        yield Cell(method, env, estimate, label, (), "paper", WORLDS[env].num_test_tasks, "published")


RAW = (
    ("method.reward.features", "ObsActionFeatures"),
    ("method.reward.features.obs-weight", "1"),
    ("method.reward.features.action-weight", "0"),
    ("method.reward.features.obs-from", "2"),
    ("method.reward.features.after-step", "true"),
    ("method.reward.distance-threshold", "0.5"),
    ("method.explorer.actor-net", "Mlp"),
    ("method.explorer.critic-net", "Mlp"),
)
"""Distances between joint observations, and nets that know no landmarks, in place of features that know the radius."""
BUFFER = ("algorithm.actor-update.partners", "buffer")
TOUR = f"learner and a scripted tour {PRIVILEGED}"
TABLE_2: tuple[Cell, ...] = (
    *_row(OURS, "mesa", "ours", COLUMNS),
    *_row(LEARNED, "learned", "ours", PARTICLES),
    # In `mpe-2a5l` half of 56,000 updates of .55 s on each of two cores.
    *_published(PUBLISHED, "mesa", {ONE_STEP: 6, FIVE_STAGES: 12, TWO_AGENTS: 270, SWIMMER: 120}),
    *_row("MADDPG", "maddpg", "baseline", COLUMNS),
    *_row("MAPPO", "mappo", "baseline", COLUMNS),
    *_row("MAPPO-RND", "mappo-rnd", "baseline", COLUMNS),
    *_row("QMIX", "qmix", "baseline", COLUMNS),
    *_row("MAVEN", "maven", "baseline", COLUMNS),
    *_row("EMC", "emc", "baseline", COLUMNS),
    *_row("Pretrain", "pretrain", "baseline", COLUMNS),
    *_row("C-BET", "cbet", "baseline", COLUMNS),
    *_row("MA-MAESN", "maesn", "baseline", CLIMB),
    *_row(f"Goal {PRIVILEGED}", "goal", "privileged", COLUMNS),
    *_row("learner alone", "plain", "control", COLUMNS),
    *_row("learner and random episodes", "uniform", "control", COLUMNS),
    *_row(TOUR, "tour", "control", COLUMNS),
    *_row(f"scripted safe equilibrium {PRIVILEGED}", "safe", "privileged", COLUMNS),
    *_row(f"scripted optimum {PRIVILEGED}", "optimum", "privileged", COLUMNS),
)
"""Same seeds and tasks for every row, and the same environment steps on them in all of preset `quick`; rows of `paper`
have the paper's, and take hours, but for climb games."""
TABLE_WIDE: tuple[Cell, ...] = (
    *_row(OURS, "mesa", "ours", WIDE),
    *_published(PUBLISHED, "mesa", {"climb-multi-mixed": 12, "swimmer-wide": 120}),
    *_row("MADDPG", "maddpg", "baseline", WIDE),
    *_row("MAPPO", "mappo", "baseline", WIDE),
    *_row("QMIX", "qmix", "baseline", WIDE),
    *_row("EMC", "emc", "baseline", WIDE),
    *_row("Pretrain", "pretrain", "baseline", WIDE),
    *_row("C-BET", "cbet", "baseline", WIDE),
    *_row("learner alone", "plain", "control", WIDE),
    *_row("learner and random episodes", "uniform", "control", WIDE),
    *_row(TOUR, "tour", "control", WIDE),
    *_row("MESA (ours), raw positions", "mesa", "control", WIDE[1:5], RAW),
)
"""The same of worlds that the paper does not have, with the methods that the pages speak of."""

IN_THE_PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    name: dict(zip(COLUMNS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
    for name, numbers in {
        "MESA": (0.83, 0.20, 0.81, 0.06, 61.32, 8.24, 58.73, 10.16, 51.83, 13.37, 44.71, 15.92, 599.32, 35.93),
        "MADDPG": (0.74, 0.25, 0.50, 0.0, 21.09, 23.07, 19.44, 18.41, 5.45, 6.49, 3.16, 5.73, 499.33, 0.52),
        "MAPPO": (0.50, 0.0, 0.54, 0.05, 24.42, 2.99, 27.57, 4.86, 10.12, 5.83, 13.52, 2.91, 496.88, 1.98),
        "MAPPO-RND": (0.50, 0.0, 0.53, 0.04, 24.05, 2.45, 27.10, 5.67, 17.18, 3.52, 7.30, 2.76, 496.36, 1.76),
        "QMIX": (0.50, 0.0, 0.50, 0.0, 0.21, 0.04, 0.48, 0.12, 0.06, 0.02, 0.04, 0.03, 499.97, 0.03),
        "MAVEN": (0.50, 0.0, 0.50, 0.0, 0.06, 0.03, 0.13, 0.10, 0.06, 0.05, 0.07, 0.0, 495.41, 2.63),
        "EMC": (0.50, 0.0, 0.50, 0.0, 50.49, 17.26, 50.61, 17.41, 36.63, 0.11, 36.47, 0.28, 499.66, 0.20),
        "Pretrain": (0.55, 0.0, 0.55, 0.0, 23.26, 2.19, 29.81, 4.97, 17.91, 2.63, 17.72, 5.28, 496.49, 1.33),
        "C-BET": (0.55, 0.0, 0.55, 0.0, 23.69, 1.01, 28.37, 3.59, 19.85, 5.05, 19.80, 4.36, 497.54, 1.49),
        "Goal": (0.55, 0.0, 0.55, 0.0, 31.61, 0.90, 32.14, 0.10, 30.60, 1.03, 30.44, 0.60, 498.13, 0.45),
    }.items()
}
"""Table 2 as printed: mean and ±, of which the paper does not say what it is."""
YARDSTICK = {"MESA": IN_THE_PAPER["MESA"]}
"""The row that stands among ours."""
PAPER_ROW = dict.fromkeys((LEARNED, OURS, PUBLISHED), "MESA") | {
    label: label.removesuffix(f" {PRIVILEGED}") for label in (*list(IN_THE_PAPER)[1:-1], f"Goal {PRIVILEGED}")
}
"""Row of the paper that each of ours is held against."""
