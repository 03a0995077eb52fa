"""The learner that the paper's theorems are about (Sec. 4.1): a quadratic joint Q of the two-agent climb game.

q(i, j) = W_ij + b_i + c_j + d                                                              Eq. (3)
J(W, b, c, d) = -1/2 sum_ij visits_ij (q(i, j) - R_ij)^2 - 1/2 |W|^2   + constant           Eq. (4), times sigma_w^2

`visits` is T p_e(i, j) sigma_w^2 / sigma_e^2: expected tries of a joint action, in the unit of how much one observation
says against the prior of W. For given b, c, d the best W is in closed form, and what remains is weighted least squares:

W_ij = -visits_ij / (1 + visits_ij) K_ij,   K_ij = b_i + c_j + d - R_ij,   weights visits_ij / (1 + visits_ij)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def reward_matrix(num_actions: int, delta: float) -> np.ndarray:
    """R of the climb game G_f(2, 0, U): 1 if both play action 0, 1 - delta if none does, else 0."""
    rewards = np.zeros((num_actions, num_actions))
    rewards[1:, 1:] = 1.0 - delta
    rewards[0, 0] = 1.0
    return rewards


@dataclass(frozen=True)
class QuadraticQ:
    """Eq. (3), as values of all joint actions."""

    interaction: np.ndarray
    """W, `[U, U]`."""
    first: np.ndarray
    """b, `[U]`."""
    second: np.ndarray
    """c, `[U]`."""
    offset: float
    """d."""

    @property
    def values(self) -> np.ndarray:
        """q(i, j) for every joint action."""
        return self.interaction + self.first[:, None] + self.second[None, :] + self.offset

    @property
    def margin(self) -> float:
        """How far the optimum leads over the best other joint action; negative if it is not the best."""
        values = self.values
        others = values.ravel()[1:]
        return float(values[0, 0] - others.max())

    def equivalently_optimal(self, tolerance: float = 0.0) -> bool:
        """Definition 4.1: q(0, 0) is the maximum."""
        return self.margin >= -tolerance


def maximizer(visits: np.ndarray, rewards: np.ndarray) -> QuadraticQ:
    """The exact maximizer of J; of several, the one of least norm in (b, c, d)."""
    number = len(rewards)
    weights = visits / (1.0 + visits)
    design = np.zeros((number, number, 2 * number + 1))
    index = np.arange(number)
    design[index, :, index] = 1.0
    design[:, index, number + index] = 1.0
    design[:, :, -1] = 1.0
    tried = weights > 0
    root = np.sqrt(weights[tried])
    # Normal equations would square the condition; this is the minimum-norm solution itself.
    solution = np.linalg.lstsq(root[:, None] * design[tried], root * rewards[tried], rcond=1e-13)[0]
    first, second, offset = solution[:number], solution[number:-1], float(solution[-1])
    missing = first[:, None] + second[None, :] + offset - rewards
    return QuadraticQ(-weights * missing, first, second, offset)
