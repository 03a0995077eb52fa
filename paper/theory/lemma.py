"""Lemma A.1 and Theorems 4.2 to 4.4: when does the learner's Q have its maximum at the optimum?

For an exploration that treats the other actions alike, with tries a_0, a_1, a_2 of the optimum, of mismatches and of
safe joint actions (each T f_i, in units of sigma_e^2 / sigma_w^2), Eq. (9) of the paper is, with its fractions cleared,

delta (U^2 + m^2 (1/a_0 + 4/a_1 + 1/a_2)) >= (2 - delta) m^2 (1/a_0 - 1/a_2),     m = U - 1.

So an exploration whose shares f_i stay the same needs exactly

T* = 2 m^2 / (delta U^2) ((1 - delta)/f_0 - 2 delta/f_1 - 1/f_2)

steps: what counts is how often the optimum is tried, about 2/delta times. All orders of Theorems 4.2 and 4.3 follow.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from mesax.errors import UsageError
from paper.theory.explorations import Exploration, Tries
from paper.theory.quadratic import maximizer, reward_matrix

LARGEST_LOG_STEPS = 1e7
"""A threshold beyond exp of this is never reached."""


def check_game(num_actions: int, delta: float) -> None:
    """Refuse games that the theorems are not about."""
    if num_actions < 2:
        raise UsageError(f"the climb game has at least 2 actions, not {num_actions}")
    if not 0.0 < delta <= 1.0:
        raise UsageError(f"delta must be above 0 and at most 1, not {delta}")


def criterion_margin(tries: Tries, num_actions: int, delta: float) -> float:
    """Left side minus right side of Eq. (9), cleared of fractions: not negative if Q is equivalently optimal."""
    squared = (num_actions - 1) ** 2
    optimum, mismatch, safe = (1.0 / value if value > 0 else np.inf for value in tries)
    left = delta * (num_actions**2 + squared * (optimum + 4 * mismatch + safe))
    return float(left - (2.0 - delta) * squared * (optimum - safe))


def printed_criterion(tries: Tries, num_actions: int, delta: float, steps: float) -> float:
    """The same as the paper prints it: r delta minus the right side of Eq. (9), with r = 1 and lambda = T."""
    m = num_actions - 1
    f_0, f_1, f_2 = (value / steps for value in tries)
    third = f_2 * (f_0 * steps + 1) * m**2 / (f_0 * (f_2 * steps + m**2))
    denominator = 1 + 2 * f_2 * (f_1 * steps + 2 * m) * m / (f_1 * (f_2 * steps + m**2)) + third
    return float(delta - (f_2 / f_0 - 1) * m**2 / (f_2 * steps + m**2) * (2 - delta) / denominator)


def solved_margin(tries: Tries, num_actions: int, delta: float) -> float:
    """The same by solving for the maximizer of J: the lead of q(0, 0) over the best other joint action."""
    return maximizer(tries.matrix(num_actions), reward_matrix(num_actions, delta)).margin


def stationary_steps(shares: Tries, num_actions: int, delta: float) -> float:
    """T* of an exploration with constant shares f_0, f_1, f_2; negative if it needs none."""
    m = num_actions - 1
    return float(
        2 * m**2 / (delta * num_actions**2) * ((1 - delta) / shares.optimum - 2 * delta / shares.mismatch)
        - 2 * m**2 / (delta * num_actions**2 * shares.safe)
    )


def log_steps_needed(exploration: Exploration, num_actions: int, delta: float) -> float:
    """log T*: when Q is equivalently optimal for the first time; 0 if the first step is enough, inf if none is."""
    check_game(num_actions, delta)

    def margin(log_steps: float) -> float:
        return criterion_margin(exploration.tries(num_actions, log_steps), num_actions, delta)

    if margin(0.0) >= 0:
        return 0.0
    last = 1.0
    while margin(last) < 0:
        last *= 2
        if last > LARGEST_LOG_STEPS:
            return math.inf
    return float(brentq(margin, 0.0, last, xtol=1e-12, rtol=1e-14))


def solved_log_steps(exploration: Exploration, num_actions: int, delta: float, around: float) -> float:
    """log T* once more, by bisection on the exact maximizer instead of the criterion."""

    def margin(log_steps: float) -> float:
        return solved_margin(exploration.tries(num_actions, log_steps), num_actions, delta)

    return float(brentq(margin, around - 0.2, around + 0.2, xtol=1e-12, rtol=1e-14))


def harmonic_limit(num_actions: int) -> float:
    """The least delta with which agents with epsilon = 1/t each have the optimum in the end.

    Both are random at once pi^2/6 times in all.
    """
    m = num_actions - 1
    weight = m**2 / (m**2 + np.pi**2 / 6)
    return float(2 * weight / (1 + weight))
