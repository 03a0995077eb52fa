"""All that is computed about the theorems, as one document of plain numbers; the same on every machine, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from paper.theory.explorations import (
    AgentEpsilon,
    AgentHarmonic,
    Exploration,
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
)
from paper.theory.quadratic import maximizer, reward_matrix
from paper.theory.slips import SLIPS
from paper.theory.unseen_goals import (
    approximate_failure,
    bound,
    cross_entropy,
    failure,
    finite_bound,
    lemma_slack,
    simulated_failure,
    uniform_goals,
)

Document: TypeAlias = dict[str, object]
EPSILON = 0.1
PICTURE_DELTA = 0.5
"""delta of the paper's experiments."""
PICTURE_ACTIONS = tuple(range(4, 31))
LEARNED_ACTIONS = (4, 6, 8, 12, 20)
MOST_STEPS = 300_000
"""Most steps of a sampled learner."""
HIGHEST_RATIO = 2.0
"""T* f_0 delta is below this for every exploration that treats actions alike (see `lemma.py`)."""


@dataclass(frozen=True)
class Order:
    """What a theorem says T* grows with."""

    theorem: str
    exploration: Exploration
    formula: str
    scale: Callable[[int, float], float]
    """The formula."""
    num_actions: range
    deltas: tuple[float, ...]
    stated: float | None
    """The constant of the printed proof; None if the statement is ours."""
    of_logarithm: bool = False
    """Whether the formula is that of log T*."""

    def ratio(self, num_actions: int, delta: float) -> float:
        """T*, or its logarithm, over the formula."""
        needed = log_steps_needed(self.exploration, num_actions, delta)
        return float((needed if self.of_logarithm else np.exp(needed)) / self.scale(num_actions, delta))


SMALL_DELTAS = (1 / 6, 1 / 12, 1 / 32, 1 / 100)
SMALLER_DELTAS = (1 / 32, 1 / 64, 1 / 100)
ORDERS = (
    Order("4.2", Uniform(), "U²/δ", lambda u, d: u**2 / d, range(3, 31), SMALL_DELTAS, 1 / 6),
    Order(
        "4.3",
        JointEpsilon(EPSILON),
        "U²/(δε)",
        lambda u, d: u**2 / (d * EPSILON),
        range(4, 31),
        SMALLER_DELTAS,
        1 / 32,
    ),
    Order("4.3", JointEpsilon(0.5), "U²/(δε)", lambda u, d: u**2 / (d * 0.5), range(4, 31), SMALLER_DELTAS, 1 / 32),
    Order("4.3", JointHarmonic(), "U²/δ", lambda u, d: u**2 / d, range(4, 31), SMALLER_DELTAS, 1 / 32, True),
    Order(
        "ours",
        AgentEpsilon(EPSILON),
        "U²/(δε²)",
        lambda u, d: u**2 / (d * EPSILON**2),
        range(4, 31),
        SMALLER_DELTAS,
        None,
    ),
)


def study() -> Document:
    """Every check of the paper's theory."""
    return {
        "lemma": _lemma(),
        "orders": [_order(order) for order in ORDERS],
        "thresholds": _thresholds(),
        "structured": _structured(),
        "delta_one": _delta_one(),
        "never": [{"num_actions": u, "least_delta": harmonic_limit(u)} for u in (3, 5, 10, 30)],
        "goals": _goals(),
        "lemma_a3": _lemma_a3(),
        "slips": [
            {"where": one.where, "printed": one.printed, "correct": one.correct, "evidence": one.evidence()}
            for one in SLIPS
        ],
        "picture": _picture(),
    }


def random_game(random: np.random.Generator) -> tuple[Tries, int, float]:
    """Any exploration that treats actions alike, any number of steps, actions and delta."""
    shares = random.dirichlet(np.full(3, 0.5))
    steps = np.exp(random.uniform(-2, 12))
    return (
        Tries(*(float(steps * share) for share in shares)),
        int(random.integers(3, 11)),
        float(random.uniform(0.01, 1)),
    )


def _lemma(draws: int = 4_000) -> Document:
    """Lemma A.1 against the exact maximizer."""
    random = np.random.default_rng(0)
    disagreements, printed_disagreements, optimal = 0, 0, 0
    for _ in range(draws):
        tries, num_actions, delta = random_game(random)
        solved = solved_margin(tries, num_actions, delta) >= 0
        optimal += solved
        disagreements += solved != (criterion_margin(tries, num_actions, delta) >= 0)
        steps = sum(tries)
        printed_disagreements += solved != (printed_criterion(tries, num_actions, delta, steps) >= 0)
    return {
        "draws": draws,
        "equivalently_optimal": int(optimal),
        "disagreements": int(disagreements),
        "printed_disagreements": int(printed_disagreements),
    }


def _order(order: Order) -> Document:
    """The range of T* over the formula of its order."""
    ratios = [order.ratio(u, d) for u in order.num_actions for d in order.deltas]
    lowest, highest = min(ratios), max(ratios)
    return {
        "theorem": order.theorem,
        "exploration": order.exploration.name,
        "quantity": "log T*" if order.of_logarithm else "T*",
        "formula": order.formula,
        "num_actions": [order.num_actions[0], order.num_actions[-1]],
        "largest_delta": max(order.deltas),
        "lowest": lowest,
        "highest": highest,
        "stated": order.stated,
        "holds": bool((order.stated or 0.0) <= lowest and highest <= HIGHEST_RATIO),
    }


def _thresholds() -> list[Document]:
    """T* over U and delta, by the criterion and by bisection on the exact maximizer."""
    rows: list[Document] = []
    for exploration in (Uniform(), JointEpsilon(EPSILON), AgentEpsilon(EPSILON), JointHarmonic(), AgentHarmonic()):
        for num_actions in (4, 5, 10, 20, 30):
            for delta in (0.5, 1 / 6, 1 / 32):
                needed = log_steps_needed(exploration, num_actions, delta)
                row: Document = {"exploration": exploration.name, "num_actions": num_actions, "delta": delta}
                row["log_steps"] = needed if np.isfinite(needed) else None
                # Beyond a few billion steps float64 cannot tell the visits of a solve apart.
                if 0.2 < needed < 20:
                    row["error"] = abs(solved_log_steps(exploration, num_actions, delta, needed) - needed)
                rows.append(row)
    return rows


def _structured() -> list[Document]:
    """Theorem 4.4: the lead of the optimum after a single structured step."""
    rows: list[Document] = []
    for num_actions in (3, 5, 10, 30):
        for delta in (0.5, 1 / 32):
            solved = maximizer(structured_visits(num_actions, 1.0), reward_matrix(num_actions, delta))
            rows.append({"num_actions": num_actions, "delta": delta, "lead": solved.margin})
    return rows


def _delta_one() -> list[Document]:
    """Without a safe payoff one uniform step is enough."""
    rows: list[Document] = []
    for num_actions in (3, 10, 30):
        tries = Uniform().tries(num_actions, 0.0)
        rows.append({"num_actions": num_actions, "lead": solved_margin(tries, num_actions, 1.0)})
    return rows


def _goals() -> list[Document]:
    """Theorem 5.1 where high rewards lie in a small set of goals, and where training goals come from everywhere."""
    rows: list[Document] = []
    goals, everywhere, reach = 30, 900, 3
    test = uniform_goals(goals, everywhere)
    for name, training in (("the same goals", test), ("everywhere", uniform_goals(everywhere, everywhere))):
        for samples in (10, 30, 100, 1_000, 10_000):
            rows.append(
                {
                    "training_goals": name,
                    "samples": samples,
                    "cross_entropy": cross_entropy(test, training),
                    "failure": failure(test, training, reach, samples),
                    "approximation": approximate_failure(test, training, reach, samples),
                    "simulated": simulated_failure(test, training, reach, samples, 2_000, seed=0)
                    if samples <= 1_000
                    else None,
                    "bound": bound(test, training, reach, samples),
                    "finite_bound": finite_bound(test, training, reach, samples),
                }
            )
    return rows


def _lemma_a3() -> Document:
    """The least slack of Lemma A.3 over a fine grid."""
    slack = lemma_slack(np.geomspace(np.nextafter(16.0, 17.0), 1e9, 400), np.geomspace(1e-14, 1e4, 4_000))
    return {"points": int(slack.size), "least_slack": float(slack.min())}


def _picture() -> Document:
    """Steps needed against U, in theory and by sampled learners."""
    lines = [
        {
            "name": exploration.name,
            "num_actions": list(PICTURE_ACTIONS),
            "log_steps": [log_steps_needed(exploration, u, PICTURE_DELTA) for u in PICTURE_ACTIONS],
        }
        for exploration in (Uniform(), JointEpsilon(EPSILON), JointHarmonic())
    ]
    learners = [
        {
            "name": learner.name,
            "num_actions": num_actions,
            "steps": [
                steps
                if np.isfinite(steps := learner.steps_needed(num_actions, PICTURE_DELTA, MOST_STEPS, seed))
                else None
                for seed in range(9)
            ],
        }
        for learner in LEARNERS
        for num_actions in LEARNED_ACTIONS
    ]
    return {"delta": PICTURE_DELTA, "most_steps": MOST_STEPS, "lines": lines, "learners": learners}
