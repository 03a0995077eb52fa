"""Whether explorers will help, in words, before any is trained: from layouts that a reward model has not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mesax.ours.learned_reward import RECALL, HeldOut

WILL, MAY = 0.25, 0.05
"""Precision at recall .9 from which explorers will work, or may: measured in docs/methods/learned.md."""


def overall(found: Sequence[HeldOut]) -> HeldOut | None:
    """All layouts together, each of the models counting by the high steps that it is judged by."""
    table = np.array(found, float).reshape(-1, len(HeldOut._fields))
    steps = table[:, -1]
    if not steps.sum():
        return None
    likelihood, chance, precision = (steps @ table[:, :-1] / steps.sum()).tolist()
    return HeldOut(likelihood, chance, precision, float(steps.sum()))


def will_help(found: HeldOut | None) -> bool:
    """Whether explorers will work, as far as can be known."""
    return found is not None and found.precision >= WILL and found.log_likelihood > found.by_chance


def verdict(found: HeldOut | None, shared: bool, declared: bool) -> str:
    """One line."""
    return " ".join([_verdict(found), *_advice(found, shared, declared)])


def _verdict(found: HeldOut | None) -> str:
    if found is None:
        return (
            "too few high rewards to say whether explorers will work: on no held-out layout was there one to go by"
            " and one to be judged by."
        )
    told = (
        f"on layouts it has not seen, the model tells paying from unpaid steps with {found.precision:.2f} precision at"
        f" {RECALL:.2f} recall (log-likelihood {found.log_likelihood:.3f}, by chance {found.by_chance:.3f}):"
    )
    if will_help(found):
        return f"{told} explorers will work."
    if found.precision >= MAY:
        return f"{told} explorers may work, and will also go for what does not pay."
    return f"{told} MESA will not help here; the learner alone is the better choice."


def _advice(found: HeldOut | None, shared: bool, declared: bool) -> list[str]:
    """What may make it better, if it is not good."""
    if will_help(found):
        return []
    lines = []
    if not declared:
        lines.append(
            "Without declared entities the observation is a single one: say which numbers are about what"
            " (method.reward.entities)."
        )
    if not shared:
        lines.append(
            "No two training tasks share a layout: with several on each, what pays can be told from what only"
            " pays elsewhere."
        )
    return lines or ["More steps on training tasks (method.collect.total-steps) show more of what pays."]
