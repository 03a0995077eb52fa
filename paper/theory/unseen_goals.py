"""Theorem 5.1: the chance that a test goal stays unexplored, exactly on finite sets of goals, next to the bound.

Goals are numbered on a ring. Test goals come from p, the N training goals from q, and an explorer that was trained on a
goal also finds those around it: a neighborhood of `reach` goals (epsilon of the paper; the goal itself included). Then

P_fail = sum_x p(x) (1 - q(neighborhood of x))^N                                  exactly
      ~= sum_x p(x) (1 - epsilon q(x))^N                                          Eq. (7), left
      <= sum_x p(x) (log 1/q(x) + 2 q(x) + 16) / (1/2 log(epsilon N))             App. A.5
"""

from __future__ import annotations

import numpy as np

from mesax.errors import UsageError


def uniform_goals(number: int, within: int) -> np.ndarray:
    """The first `number` of `within` goals, all alike likely."""
    return np.where(np.arange(within) < number, 1.0 / number, 0.0)


def neighborhoods(q: np.ndarray, reach: int) -> np.ndarray:
    """q of the `reach` goals around each goal of the ring."""
    if not 1 <= reach <= len(q):
        raise UsageError(f"an explorer must reach between 1 and {len(q)} goals around each, not {reach}")
    around = np.arange(reach) - (reach - 1) // 2
    return q[(np.arange(len(q))[:, None] + around[None]) % len(q)].sum(axis=1)


def failure(p: np.ndarray, q: np.ndarray, reach: int, samples: int) -> float:
    """P_fail, exactly."""
    return float(np.sum(p * (1.0 - np.minimum(neighborhoods(q, reach), 1.0)) ** samples))


def approximate_failure(p: np.ndarray, q: np.ndarray, reach: int, samples: int) -> float:
    """P_fail where the density is taken to be flat around each goal."""
    return float(np.sum(p * (1.0 - np.minimum(reach * q, 1.0)) ** samples))


def cross_entropy(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p || q) + H(p) in nats; infinite if some test goal is never a training goal."""
    seen = p > 0
    with np.errstate(divide="ignore"):
        return float(-np.sum(p[seen] * np.log(q[seen])))


def bound(p: np.ndarray, q: np.ndarray, reach: int, samples: int) -> float:
    """The bound with all its constants; it says nothing below epsilon N = 1."""
    if reach * samples <= 1:
        return np.inf
    constants = float(np.sum(p * 2 * q)) + 16.0
    return float((cross_entropy(p, q) + constants) / (0.5 * np.log(reach * samples)))


def finite_bound(p: np.ndarray, q: np.ndarray, reach: int, samples: int) -> float:
    """The same for a finite set of goals and epsilon N > 16, where Lemma A.3 itself holds: without the 16."""
    if reach * samples <= 16:
        return np.inf
    return float((cross_entropy(p, q) + np.sum(p * 2 * q)) / (0.5 * np.log(reach * samples)))


def simulated_failure(p: np.ndarray, q: np.ndarray, reach: int, samples: int, trials: int, seed: int) -> float:
    """Share of trials in which no training goal lies in the neighborhood of the test goal."""
    random = np.random.default_rng(seed)
    tests = random.choice(len(p), size=trials, p=p)
    training = random.choice(len(q), size=(trials, samples), p=q)
    before = (reach - 1) // 2
    offset = (training - tests[:, None] + before) % len(q)
    return float(np.mean(np.all(offset >= reach, axis=1)))


def lemma_slack(k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Right side minus left side of Lemma A.3, `[k, x]`: not negative for k > 16 and x > 0."""
    k, x = np.asarray(k, float)[:, None], np.asarray(x, float)[None, :]
    return (np.log(1 / x) + x) / (0.5 * np.log(k)) + x / k - np.exp(-k * x)
