"""Layouts of landmarks as the paper's authors draw them: discs far apart, then jammed into a cluster.

    cells     U cells of a grid over [-0.8, 0.8]^2, drawn without replacement
    spread    1,000 times: one disc to a uniform place there, unless it would then overlap another
    jam       up to 10,000 times, until all are within 0.9 x difficulty of their center: one disc to a uniform place
              within that, or a tenth of its way toward the center, unless it would then overlap another

All draws come from one generator in this order, so a seed gives the authors' own map to the digit. What is drawn for a
move is drawn whether or not the move is made.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mesax.errors import UsageError

HALF_WIDTH = 0.8
"""Centers lie within +- this."""
SPREAD_MOVES = 1_000
JAM_MOVES = 10_000
PITCH = 2.1
"""Pitch of the grid, in radii."""
CLEARANCE = 1e-5
"""Discs are kept apart as if their radius were larger by this."""
TOWARD_CENTER = 0.9


@lru_cache(maxsize=256)
def jammed_layout(seed: int, num_landmarks: int, radius: float, difficulty: float) -> tuple[tuple[float, float], ...]:
    """The map of a seed: centers of the discs."""
    random = np.random.RandomState(seed)
    cells = _cells(num_landmarks, radius)
    discs = [cells[index] for index in random.choice(len(cells), num_landmarks, replace=False)]
    apart = (2 * (radius + CLEARANCE)) ** 2
    for _ in range(SPREAD_MOVES):
        which = random.randint(num_landmarks)
        x, y = random.uniform(-HALF_WIDTH, HALF_WIDTH, 2).tolist()
        if _free(discs, which, x, y, apart):
            discs[which] = (x, y)
    center = tuple(np.mean(discs, axis=0).tolist())
    return tuple(_jammed(discs, center, 0.9 * difficulty, apart, random))


def _jammed(
    discs: list[tuple[float, float]],
    center: tuple[float, float],
    limit: float,
    apart: float,
    random: np.random.RandomState,
) -> list[tuple[float, float]]:
    offsets = [(x - center[0], y - center[1]) for x, y in discs]
    for _ in range(JAM_MOVES):
        if all(abs(x) <= limit and abs(y) <= limit for x, y in offsets):
            break
        which = random.randint(len(offsets))
        if random.rand() < 0.5:
            drawn = random.uniform(-limit, limit, 2).tolist()
            x, y = (_held(at + mean) - mean for at, mean in zip(drawn, center, strict=True))
        else:
            x, y = (TOWARD_CENTER * at for at in offsets[which])
        if _free(offsets, which, x, y, apart):
            offsets[which] = (x, y)
    return [(x + center[0], y + center[1]) for x, y in offsets]


def _held(value: float) -> float:
    return min(max(value, -HALF_WIDTH), HALF_WIDTH)


def _free(discs: list[tuple[float, float]], which: int, x: float, y: float, apart: float) -> bool:
    """Whether disc number `which` would overlap none of the others at this place."""
    return all(
        (x - other_x) ** 2 + (y - other_y) ** 2 >= apart
        for index, (other_x, other_y) in enumerate(discs)
        if index != which
    )


def _cells(num_landmarks: int, radius: float) -> list[tuple[float, float]]:
    """Where discs may begin: column after column of a grid that would hold a square of as many."""
    across = math.ceil(math.sqrt(num_landmarks)) - 1
    margin = (2 * HALF_WIDTH - PITCH * radius * across) / 2
    if margin <= 0:
        raise UsageError(
            f"a grid over +-{HALF_WIDTH} does not hold {num_landmarks} landmarks of radius {radius}:"
            " choose fewer, or a smaller radius"
        )
    cells, x, y = [], margin - HALF_WIDTH, margin - HALF_WIDTH
    while x < HALF_WIDTH:
        cells.append((x, y))
        y += PITCH * radius
        if y > HALF_WIDTH:
            x, y = x + PITCH * radius, margin - HALF_WIDTH
    return cells
