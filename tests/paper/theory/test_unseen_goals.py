"""Theorem 5.1 and Lemma A.3 by hand, by simulation and on grids."""

import numpy as np
import pytest

from mesax.errors import UsageError
from paper.theory.unseen_goals import (
    approximate_failure,
    bound,
    cross_entropy,
    failure,
    finite_bound,
    lemma_slack,
    neighborhoods,
    simulated_failure,
    uniform_goals,
)


def test_failure_by_hand():
    # Two goals, each trained with chance 1/2, no reach beyond itself: missed twice with chance 1/4.
    half = uniform_goals(2, 2)
    assert failure(half, half, 1, 2) == 0.25
    assert failure(half, half, 2, 1) == 0.0
    assert failure(np.array([1.0, 0.0]), np.array([0.25, 0.75]), 1, 3) == pytest.approx(0.75**3)


def test_neighborhoods_on_a_ring():
    np.testing.assert_allclose(neighborhoods(np.array([0.4, 0.3, 0.2, 0.1]), 3), [0.8, 0.9, 0.6, 0.7])
    with pytest.raises(UsageError, match="between 1 and 4 goals around each, not 5"):
        neighborhoods(np.full(4, 0.25), 5)


def test_approximation_is_exact_where_the_density_is_flat():
    flat = uniform_goals(20, 20)
    assert approximate_failure(flat, flat, 3, 7) == pytest.approx(failure(flat, flat, 3, 7))


@pytest.mark.parametrize("reach", [1, 2, 5])
def test_failure_is_what_happens(reach):
    random = np.random.default_rng(0)
    p, q = random.dirichlet(np.ones(12)), random.dirichlet(np.ones(12))
    simulated = simulated_failure(p, q, reach, 6, 20_000, seed=1)
    assert simulated == pytest.approx(failure(p, q, reach, 6), abs=0.015)


def test_bounds_hold_for_random_goals():
    random = np.random.default_rng(0)
    for _ in range(200):
        size = int(random.integers(2, 200))
        p, q = random.dirichlet(np.full(size, 0.5)), random.dirichlet(np.full(size, 0.5))
        samples = int(random.integers(2, 10_000))
        assert approximate_failure(p, q, 1, samples) <= bound(p, q, 1, samples)
        assert approximate_failure(p, q, 1, samples) <= finite_bound(p, q, 1, samples) + 1e-12


def test_cross_entropy_by_hand():
    assert cross_entropy(uniform_goals(4, 16), uniform_goals(16, 16)) == pytest.approx(np.log(16))
    assert cross_entropy(uniform_goals(2, 2), np.array([1.0, 0.0])) == np.inf


def test_lemma_a3():
    assert lemma_slack(np.geomspace(16.001, 1e8, 100), np.geomspace(1e-12, 1e3, 1_000)).min() > 0
    # k = e^4, x = 1: (0 + 1) / 2 + e^-4 - e^(-e^4)
    assert lemma_slack([np.exp(4.0)], [1.0])[0, 0] == pytest.approx(0.5 + np.exp(-4.0) - np.exp(-np.exp(4.0)))
