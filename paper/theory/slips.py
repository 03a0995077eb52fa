"""Where the printed proofs slip: what stands there, what is right, and a number that shows it.

No conclusion of the paper falls; two are narrower than they read (per-agent epsilon, several maximizers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paper.theory.explorations import AgentHarmonic, JointEpsilon, Uniform, structured_visits
from paper.theory.lemma import criterion_margin, harmonic_limit, log_steps_needed, printed_criterion, solved_margin
from paper.theory.quadratic import QuadraticQ, maximizer, reward_matrix


@dataclass(frozen=True)
class Slip:
    """One slip of a printed proof."""

    where: str
    printed: str
    correct: str
    evidence: Callable[[], str]
    """Computed when it is asked for."""


def _sign_of_k2() -> str:
    num_actions, delta, steps = 5, 0.5, 100.0
    tries = Uniform().tries(num_actions, np.log(steps))
    solved = maximizer(tries.matrix(num_actions), reward_matrix(num_actions, delta))
    k_2 = solved.first[1] + solved.second[1] + solved.offset - (1 - delta)
    m = num_actions - 1
    f_0, f_1, f_2 = (value / steps for value in tries)
    third = f_2 * (f_0 * steps + 1) * m**2 / (f_0 * (f_2 * steps + m**2))
    printed = (2 - delta) / (1 + 2 * f_2 * (f_1 * steps + 2 * m) * m / (f_1 * (f_2 * steps + m**2)) + third)
    return f"U = 5, δ = 1/2, T = 100, uniform: solved K_2 = {k_2:+.6f}, printed {printed:+.6f}"


def _symmetry() -> str:
    """Draws of p without any symmetry, judged by their f_0, f_1, f_2 alone."""
    random, wrong, draws = np.random.default_rng(0), 0, 1_000
    for _ in range(draws):
        num_actions, delta = int(random.integers(3, 7)), float(random.uniform(0.1, 0.9))
        visits = random.dirichlet(np.full(num_actions**2, 0.3)).reshape(num_actions, num_actions)
        visits *= np.exp(random.uniform(0, 8))
        f_0, f_1 = visits[0, 0], visits[0, 1:].sum() + visits[1:, 0].sum()
        tries = type(Uniform().tries(3, 0.0))(f_0, f_1, visits[1:, 1:].sum())
        solved = maximizer(visits, reward_matrix(num_actions, delta)).equivalently_optimal(1e-9)
        wrong += solved != (criterion_margin(tries, num_actions, delta) >= 0)
    return f"{draws:,} draws without symmetry: the criterion errs in {wrong}"


def _theorem_42() -> str:
    least = min(
        np.exp(log_steps_needed(Uniform(), num_actions, delta)) * delta / num_actions**2
        for num_actions in range(3, 31)
        for delta in (1 / 6, 1 / 12, 1 / 32)
    )
    return f"least T* δ / U² over U = 3..30, δ <= 1/6: {least:.4f} (4/9 = 0.4444)"


def _theorem_43() -> str:
    num_actions, delta, steps = 10, 1 / 32, 5_000.0
    tries = JointEpsilon(0.1).tries(num_actions, np.log(steps))
    true = delta - printed_criterion(tries, num_actions, delta, steps)
    m = num_actions - 1
    f_0, f_2 = tries.optimum / steps, tries.safe / steps
    claimed = (f_2 / f_0 - 1) * m**2 / (f_2 * steps + m**2) * (2 - delta) / (m + 1) ** 2
    return f"U = 10, δ = 1/32, ε = 0.1, T = 5,000: the two 'equal' sides are {true:.4f} and {claimed:.4f}"


def _never() -> str:
    needed = log_steps_needed(AgentHarmonic(), 4, 0.5)
    margin = solved_margin(AgentHarmonic().tries(4, np.log(1e12)), 4, 0.5)
    return (
        f"U = 4, δ = 1/2, each agent with ε = 1/t: log T* = {needed}, lead of (0, 0) after 1e12 steps {margin:+.3f};"
        f" in the end only δ >= {harmonic_limit(4):.3f} is learned"
    )


def _structured() -> str:
    num_actions, delta = 5, 0.5
    rewards = reward_matrix(num_actions, delta)
    unit = np.eye(num_actions)[0]
    printed = QuadraticQ(np.zeros_like(rewards), unit, np.zeros(num_actions), 0.0)
    error = np.abs(np.diag(printed.values - rewards)).max()
    right = QuadraticQ(np.zeros_like(rewards), delta * unit, np.zeros(num_actions), 1 - delta)
    exact = np.abs(np.diag(right.values - rewards)).max()
    return f"U = 5, δ = 1/2: largest error on the diagonal {error:.2f} as printed, {exact:.2f} as corrected"


def _several_maximizers() -> str:
    num_actions, delta = 5, 0.5
    rewards = reward_matrix(num_actions, delta)
    least_norm = maximizer(structured_visits(num_actions, 1.0), rewards)
    shift = np.eye(num_actions)[1]
    other = QuadraticQ(least_norm.interaction, least_norm.first + shift, least_norm.second - shift, least_norm.offset)
    error = np.abs(np.diag(other.values - rewards)).max()
    return (
        f"U = 5: lead of (0, 0) {least_norm.margin:+.2f} for the least norm, {other.margin:+.2f} for another maximizer"
        f" with error {error:.0e}"
    )


def _lemma_a3() -> str:
    first = np.exp(2 * np.e)
    return f"x_1 exists only for k >= e^(2e) = {first:.1f}; there x_1 < 1/k gives f(x_1) >= 2 - 1 = 1 at once"


def _constant() -> str:
    width, reach, samples = 1e-3, 1e-4, 100
    entropy = np.log(width)
    failed = (1 - reach / width) ** samples
    return (
        f"p = q uniform on an interval of length {width:g}, ε = {reach:g}, N = {samples}: KL + H = {entropy:.2f} < 0,"
        f" P_fail = {failed:.1e} > 0"
    )


SLIPS = (
    Slip(
        "A.1, Lemma A.1",
        "K_2 = r(2-δ) / (...)",
        "K_2 = -r(2-δ) / (...); the criterion (9) that follows has the right sign",
        _sign_of_k2,
    ),
    Slip(
        "A.1, Lemma A.1",
        "for any exploration policy p_e",
        "for any p_e that treats the agents, and the actions other than 0, alike. Its proof compares (0, 0) with safe"
        " joint actions only; mismatches follow, since q(0,0) + q(i,j) - 2 q(0,i) = U² W_2 >= 0",
        _symmetry,
    ),
    Slip(
        "A.2, Theorem 4.2",
        "T >= U²(...(2-δ)/(m+1)² - 1) >= U²(3/δ - 6/δ) = U²/(6δ)",
        "T >= U²((U-2)(2-δ)/(Uδ) - 1) >= (4/9) U²/δ: the first step drops 1/δ, the second shows a negative number."
        " |A| of the theorem is the joint space, U²; the lemma calls U by that name",
        _theorem_42,
    ),
    Slip(
        "A.3, Eq. (14)",
        "the second '=' replaces f_2(f_0λ+1) / (f_0(f_2λ+m²)) by 1",
        "it is >= 1, so the right side shrinks and the chain proves nothing; the closed form"
        " T* = 2m²/(δU²)((1-δ)/f_0 - 2δ/f_1 - 1/f_2) gives the stated order",
        _theorem_43,
    ),
    Slip(
        "A.3, Theorem 4.3",
        "ε-greedy",
        "ε must mean a random *joint* action. With ε for each agent the order is U²/(δε²), and with ε = 1/t for each"
        " agent the optimum is never learned",
        _never,
    ),
    Slip(
        "A.4, Theorem 4.4",
        "b = (1, 0, ..., 0), d = 0",
        "b = (δ, 0, ..., 0), d = 1 - δ: the printed parameters predict 0 where the reward is 1 - δ",
        _structured,
    ),
    Slip(
        "A.4, Theorem 4.4",
        "'the' learned parameter",
        "J has many maximizers, b_i + s_i and c_i - s_i for any s; only the symmetric one of least norm is"
        " equivalently optimal for certain",
        _several_maximizers,
    ),
    Slip(
        "A.5, Lemma A.3",
        "x_1 < 1/2",
        "k x_1 < 1/2 is meant, holds for log k > 4 e^(1/2) only, and is not needed: the lemma stands",
        _lemma_a3,
    ),
    Slip(
        "A.5, Theorem 5.1",
        "P_fail <= O((KL(p||q) + H(p)) / log(εN))",
        "O((KL + H + 1) / log(εN)): the 16 of the proof must stay, for densities KL + H can be negative. 'g(t) ≈ g(x)'"
        " should read q(t) ≈ q(x)",
        _constant,
    ),
)
