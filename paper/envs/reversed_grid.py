"""The reversed gridworld of EMC (Zheng et al. 2021): two agents must step onto neighboring cells at the same time.

    the left agent lives in the left half of the grid, the right one in the right half; each starts in an outer corner
    +10, and the end     if both are on their goal, the two cells in the middle of the grid
    -penalty             if only one of them is, at every step
    0                    else

An agent sees where it is. Around the goals is an area; an agent inside is seen by the other, and not the other way
round (which is what is reversed); if both are inside, both see.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mesax.envs.base import Step, Task
from mesax.errors import UsageError
from mesax.ranges import at_least
from mesax.types import Discrete, EnvSpec, Key

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
"""Up, down, left, right, stay, in rows and columns."""
AREA = (2, 3)
"""Rows above and below the goals' own, and columns on either side of the middle, that the area has."""


class GridState(eqx.Module):
    """Where both agents are."""

    place: Int[Array, "agents 2"]


@dataclass(frozen=True)
class ReversedGrid:
    """The game, of any size."""

    rows: int = 11
    columns: int = 12
    penalty: float = 2.0
    """What it costs per step if one agent is on its goal alone."""
    prize: float = 10.0
    horizon: int = 30

    def __post_init__(self) -> None:
        """Refuse grids without two halves."""
        if self.rows < 1 or self.columns < 2 or self.columns % 2:
            raise UsageError(
                f"a grid needs at least 1 row and an even number of columns, not {self.rows} and {self.columns}"
            )
        at_least(self, 1, "horizon")
        at_least(self, 0, "penalty")

    @property
    def spec(self) -> EnvSpec:
        """Own row and column, and those of the other agent while it is seen, all one-hot."""
        return EnvSpec(2, 2 * (self.rows + self.columns), Discrete(len(MOVES)), self.horizon)

    @property
    def goals(self) -> Int[Array, "agents 2"]:
        """The middle row, on both sides of the middle."""
        middle = self.columns // 2
        return jnp.array([[self.rows // 2, middle - 1], [self.rows // 2, middle]])

    def reset(self, task: Task, key: Key) -> tuple[GridState, Float[Array, "agents obs"]]:
        """Upper left and lower right."""
        del task, key
        state = GridState(jnp.array([[0, 0], [self.rows - 1, self.columns - 1]]))
        return state, self._observe(state)

    def step(self, task: Task, state: GridState, action: Int[Array, " agents"], key: Key) -> tuple[GridState, Step]:
        """Move both; a wall stops an agent that walks into it."""
        del task, key
        middle = self.columns // 2
        least = jnp.array([[0, 0], [0, middle]])
        most = jnp.array([[self.rows - 1, middle - 1], [self.rows - 1, self.columns - 1]])
        state = GridState(jnp.clip(state.place + jnp.array(MOVES)[action], least, most))
        there = jnp.all(state.place == self.goals, axis=1)
        both = jnp.all(there)
        reward = jnp.where(both, self.prize, jnp.where(jnp.any(there), -self.penalty, 0.0))
        return state, Step(self._observe(state), reward, both)

    def seen(self, state: GridState) -> Bool[Array, " agents"]:
        """Which agents are in the area around the goals."""
        rows, columns = AREA
        off = state.place - jnp.array([[self.rows // 2, self.columns // 2]])
        return jnp.all((off >= jnp.array([[-rows, -columns]])) & (off <= jnp.array([[rows, columns - 1]])), axis=1)

    def _observe(self, state: GridState) -> Float[Array, "agents obs"]:
        row, column = state.place[:, 0], state.place[:, 1]
        own = jnp.concatenate([jax.nn.one_hot(row, self.rows), jax.nn.one_hot(column, self.columns)], axis=1)
        shown = own * self.seen(state)[:, None]
        return jnp.concatenate([own, shown[::-1]], axis=1)
