"""The paper's theorems on the climb game, against numbers worked out by hand and against the exact maximizer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesax.errors import UsageError
from paper.theory.explorations import (
    AgentEpsilon,
    AgentHarmonic,
    JointEpsilon,
    JointHarmonic,
    Tries,
    Uniform,
    structured_visits,
)
from paper.theory.learners import LEARNERS
from paper.theory.lemma import (
    criterion_margin,
    harmonic_limit,
    log_steps_needed,
    printed_criterion,
    solved_log_steps,
    solved_margin,
    stationary_steps,
)
from paper.theory.quadratic import QuadraticQ, maximizer, reward_matrix
from paper.theory.slips import SLIPS
from paper.theory.study import ORDERS, _lemma


def test_rewards_of_the_climb_game():
    np.testing.assert_array_equal(reward_matrix(3, 0.25), [[1, 0, 0], [0, 0.75, 0.75], [0, 0.75, 0.75]])


def test_definition_of_equivalently_optimal():
    zero = np.zeros((2, 2))
    best = QuadraticQ(zero, np.array([1.0, 0.0]), np.zeros(2), 0.0)
    assert best.margin == 0.0  # (0, 1) is as good: a maximum all the same
    assert best.equivalently_optimal()
    worse = QuadraticQ(zero, np.array([1.0, 0.0]), np.array([0.0, 0.5]), 0.0)
    assert worse.margin == -0.5
    assert not worse.equivalently_optimal()


def test_maximizer_of_one_try_by_hand():
    # One try of one cell of a 1x1 game: b = c = d = 1/3 fit it without any W.
    solved = maximizer(np.array([[1.0]]), np.array([[1.0]]))
    np.testing.assert_allclose(
        [solved.interaction[0, 0], solved.first[0], solved.offset], [0, 1 / 3, 1 / 3], atol=1e-12
    )


@given(st.integers(2, 6), st.floats(0.05, 1.0), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_gradient_of_the_objective_vanishes_at_the_maximizer(num_actions, delta, seed):
    visits = np.random.default_rng(seed).exponential(3.0, (num_actions, num_actions))
    rewards = reward_matrix(num_actions, delta)
    solved = maximizer(visits, rewards)
    error = visits * (solved.values - rewards)
    np.testing.assert_allclose(error + solved.interaction, 0, atol=1e-9)
    np.testing.assert_allclose(error.sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(error.sum(axis=1), 0, atol=1e-9)


@pytest.mark.parametrize(
    "num_actions, delta, steps",
    [(10, 1 / 2, 140), (10, 1 / 6, 780), (5, 1 / 6, 140), (4, 1 / 32, 488), (20, 1 / 2, 680)],
)
def test_uniform_threshold_is_the_formula_by_hand(num_actions, delta, steps):
    # U^2 ((U-2)(2-delta)/(U delta) - 1)
    needed = log_steps_needed(Uniform(), num_actions, delta)
    assert math.exp(needed) == pytest.approx(steps, rel=1e-9)
    assert solved_log_steps(Uniform(), num_actions, delta, needed) == pytest.approx(needed, abs=1e-9)


def test_without_a_safe_payoff_one_step_is_enough():
    assert log_steps_needed(Uniform(), 30, 1.0) == 0.0
    assert solved_margin(Uniform().tries(30, 0.0), 30, 1.0) > 0


@pytest.mark.parametrize(
    "exploration", [JointEpsilon(0.1), AgentEpsilon(0.3), JointHarmonic()], ids=lambda one: one.name
)
def test_thresholds_of_the_criterion_and_of_the_maximizer_agree(exploration):
    needed = log_steps_needed(exploration, 4, 0.5)
    assert solved_log_steps(exploration, 4, 0.5, needed) == pytest.approx(needed, abs=1e-8)


def test_closed_form_for_constant_shares():
    shares = Tries(0.02, 0.3, 0.68)
    steps = stationary_steps(shares, 6, 0.25)
    # 2*25/(0.25*36) * (0.75/0.02 - 0.5/0.3 - 1/0.68)
    assert steps == pytest.approx(50 / 9 * (37.5 - 5 / 3 - 1 / 0.68))
    for factor, sign in ((0.999, -1), (1.001, 1)):
        tries = Tries(*(factor * steps * share for share in shares))
        assert np.sign(criterion_margin(tries, 6, 0.25)) == sign
        assert np.sign(solved_margin(tries, 6, 0.25)) == sign


def test_criterion_is_the_printed_one_and_the_maximizer_agrees():
    found = _lemma(draws=300)
    assert found["disagreements"] == found["printed_disagreements"] == 0
    assert 30 < found["equivalently_optimal"] < 290  # both answers occur


def test_the_printed_criterion_by_hand():
    # U = 3, delta = 1/2, uniform, T = 9: delta - (m^2-1)(2-delta) / ((1 + 1) U^2) = 1/2 - 3 * 1.5 / 18
    assert printed_criterion(Uniform().tries(3, math.log(9)), 3, 0.5, 9.0) == pytest.approx(0.25)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.exploration.name} {order.formula}")
def test_orders_of_the_theorems(order):
    for num_actions in (order.num_actions[0], order.num_actions[-1]):
        for delta in order.deltas:
            assert (order.stated or 0.0) <= order.ratio(num_actions, delta) <= 2.0


def test_agents_that_explore_apart_with_falling_chance_never_learn():
    assert log_steps_needed(AgentHarmonic(), 4, 0.5) == math.inf
    least = harmonic_limit(4)
    in_the_end = AgentHarmonic().tries(4, 1e6)
    assert criterion_margin(in_the_end, 4, least + 0.001) > 0 > criterion_margin(in_the_end, 4, least - 0.001)


@pytest.mark.parametrize("num_actions", [2, 3, 17])
def test_one_structured_step_is_enough(num_actions):
    solved = maximizer(structured_visits(num_actions, 1.0), reward_matrix(num_actions, 0.1))
    np.testing.assert_allclose(solved.interaction, 0, atol=1e-12)
    assert solved.margin == pytest.approx(0.05)  # half of delta: a mismatch is worth the mean of its two actions


def test_tries_add_up_to_the_steps():
    for exploration in (Uniform(), JointEpsilon(0.2), AgentEpsilon(0.2), JointHarmonic(), AgentHarmonic()):
        assert sum(exploration.tries(5, math.log(7.0))) == pytest.approx(7.0)
        assert exploration.tries(5, math.log(7.0)).matrix(5).sum() == pytest.approx(7.0)
    assert JointHarmonic().tries(2, math.log(3.0)).optimum == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)
    assert AgentHarmonic().tries(2, math.log(3.0)).optimum == pytest.approx((1 + 1 / 4 + 1 / 9) / 4)


def test_sampled_learners_rank_as_the_theorems_say():
    structured, uniform, greedy, _ = LEARNERS
    medians = [
        np.median([learner.steps_needed(12, 0.5, 20_000, seed) for seed in range(5)])
        for learner in (structured, uniform, greedy)
    ]
    assert medians == sorted(medians)
    assert medians[0] < 60 < medians[1]


def test_every_slip_has_evidence():
    for slip in SLIPS:
        assert any(letter.isdigit() for letter in slip.evidence())
    assert "-0.060000, printed +0.060000" in SLIPS[0].evidence()


def test_games_that_do_not_exist_are_refused():
    with pytest.raises(UsageError, match="at least 2 actions, not 1"):
        log_steps_needed(Uniform(), 1, 0.5)
    with pytest.raises(UsageError, match="delta must be above 0 and at most 1, not 0"):
        log_steps_needed(Uniform(), 3, 0.0)
