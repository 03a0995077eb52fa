"""Ways of exploring the climb game, each as the expected number of tries of every joint action after T steps.

All but the structured one treat the other actions alike, so three numbers describe them: tries of the optimum (0, 0),
of the 2(U - 1) mismatches, and of the (U - 1)^2 safe joint actions. An epsilon-greedy learner is, until it has learned,
greedy for a safe joint action, and ties between these are broken uniformly; its first step is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import digamma, polygamma


class Tries(NamedTuple):
    """Expected tries, T f_0, T f_1 and T f_2 of Lemma A.1."""

    optimum: float
    mismatch: float
    safe: float

    def matrix(self, num_actions: int) -> np.ndarray:
        """The same for every joint action, `[U, U]`."""
        others = num_actions - 1
        tries = np.full((num_actions, num_actions), self.safe / others**2)
        tries[0, :] = tries[:, 0] = self.mismatch / (2 * others)
        tries[0, 0] = self.optimum
        return tries


class Exploration(Protocol):
    """Who tries what."""

    @property
    def name(self) -> str:
        """For people."""

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """Expected tries after exp(log_steps) steps; a logarithm, because some of them need that many."""


@dataclass(frozen=True)
class Uniform:
    """Every joint action alike (Theorem 4.2)."""

    name: str = "uniform"

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """T/U^2 for each joint action."""
        return _of_random_steps(num_actions, np.exp(log_steps), 0.0)


@dataclass(frozen=True)
class JointEpsilon:
    """With probability epsilon a uniformly random joint action, else the greedy one (Theorem 4.3)."""

    epsilon: float = 0.1

    @property
    def name(self) -> str:
        """With its epsilon."""
        return f"ε-greedy, ε = {self.epsilon:g}"

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """The first step, then epsilon of the others, are random."""
        steps = np.exp(log_steps)
        random = 1.0 + self.epsilon * (steps - 1.0)
        return _of_random_steps(num_actions, random, steps - random)


@dataclass(frozen=True)
class AgentEpsilon:
    """Each agent for itself plays at random with probability epsilon, as implementations do."""

    epsilon: float = 0.1

    @property
    def name(self) -> str:
        """With its epsilon."""
        return f"ε-greedy per agent, ε = {self.epsilon:g}"

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """Both must happen to try action 0: (epsilon / U)^2."""
        steps = np.exp(log_steps)
        first = _of_random_steps(num_actions, 1.0, 0.0)
        chance = self.epsilon / num_actions
        rest = np.array([chance**2, 2 * chance * (1 - chance), (1 - chance) ** 2])
        return Tries(*(np.array(first) + (steps - 1.0) * rest))


@dataclass(frozen=True)
class JointHarmonic:
    """A random joint action with probability 1/t (Theorem 4.3, second part)."""

    name: str = "ε-greedy, ε = 1/t"

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """H_T random steps."""
        random = _harmonic(log_steps)
        # Beyond float64 the safe tries are as good as infinite.
        steps = np.exp(min(log_steps, 700.0))
        return _of_random_steps(num_actions, random, max(steps - random, 0.0))


@dataclass(frozen=True)
class AgentHarmonic:
    """Each agent for itself plays at random with probability 1/t: both at once only pi^2/6 times, ever."""

    name: str = "ε-greedy per agent, ε = 1/t"

    def tries(self, num_actions: int, log_steps: float) -> Tries:
        """Sums of 1/t and of 1/t^2."""
        steps = np.exp(min(log_steps, 700.0))
        once, both = _harmonic(log_steps), np.pi**2 / 6 - float(polygamma(1, steps + 1.0))
        optimum = both / num_actions**2
        mismatch = 2 * (once / num_actions - optimum)
        return Tries(optimum, mismatch, max(steps - optimum - mismatch, 0.0))


def structured_visits(num_actions: int, steps: float) -> np.ndarray:
    """Both agents always play the same random action (Theorem 4.4): T/U on the diagonal, nothing off it."""
    return np.eye(num_actions) * steps / num_actions


def _of_random_steps(num_actions: int, random: float, greedy: float) -> Tries:
    others = num_actions - 1
    share = random / num_actions**2
    return Tries(share, 2 * others * share, others**2 * share + greedy)


def _harmonic(log_steps: float) -> float:
    """1 + 1/2 + ... + 1/T, for any T."""
    if log_steps > 30:
        return float(log_steps + np.euler_gamma)
    return float(digamma(np.exp(log_steps) + 1.0) + np.euler_gamma)
