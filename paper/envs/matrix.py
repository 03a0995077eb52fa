"""One-step games of two agents with any payoff, such as the matrix game of QPLEX (Wang et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.envs.base import Step
from mesax.errors import UsageError
from mesax.types import Discrete, EnvSpec, Key

QPLEX_PAYOFF = ((8.0, -12.0, -12.0), (-12.0, 0.0, 0.0), (-12.0, 0.0, 0.0))
"""8 if both play the first action, -12 if one does: with a partner who plays at random it is the worst."""


@dataclass(frozen=True)
class MatrixGame:
    """Both agents pick a row and a column at once; all tasks are the same."""

    payoff: tuple[tuple[float, ...], ...] = QPLEX_PAYOFF
    """Payoff of the first agent's action (row) and the second's (column)."""

    def __post_init__(self) -> None:
        """Refuse what is no square of at least two actions."""
        sizes = {len(row) for row in self.payoff} | {len(self.payoff)}
        if len(sizes) > 1 or min(sizes) < 2:
            raise UsageError(f"a payoff must be a square of at least 2 x 2 numbers, not {self.payoff}")

    @property
    def spec(self) -> EnvSpec:
        """Observation = number of steps so far."""
        return EnvSpec(2, 1, Discrete(len(self.payoff)), 1)

    def reset(self, task: Int[Array, ""], key: Key) -> tuple[Float[Array, ""], Float[Array, "agents obs"]]:
        """No step so far."""
        del task, key
        return jnp.zeros(()), jnp.zeros((2, 1))

    def step(
        self, task: Int[Array, ""], state: Float[Array, ""], action: Int[Array, " agents"], key: Key
    ) -> tuple[Float[Array, ""], Step]:
        """Pay, and end."""
        del task, key
        reward = jnp.asarray(self.payoff)[action[0], action[1]]
        return state + 1.0, Step(jnp.ones((2, 1)), reward, jnp.asarray(True))
