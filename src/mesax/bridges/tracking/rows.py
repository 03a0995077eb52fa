"""A row of `metrics.jsonl` or `eval.jsonl` as curves want it: which series, which step, which values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mesax.store.json_values import Json

Kind = Literal["metrics", "eval"]
KINDS: tuple[Kind, ...] = ("metrics", "eval")
"""The files of rows, in the order in which they are gone through."""
IDENTITY = {"task": "task", "repeat": "run", "policy": "policy"}
"""What a series is about, and what it is called there."""


@dataclass(frozen=True)
class Entry:
    """Values of one series at one step."""

    series: str
    """For example `adapt-task-00-run-00`: one learner on one task."""
    step: int
    values: dict[str, float]
    """By names such as `adapt/critic_loss` and `eval/return`."""


def entry_of(kind: Kind, row: Json) -> Entry:
    """The numbers of a row; what is not finite or no number is not there."""
    phase = str(row.get("phase", "adapt"))
    about = [f"{word}-{int(row[name]):02d}" for name, word in IDENTITY.items() if name in row]
    prefix = "eval" if kind == "eval" else phase
    values: dict[str, float] = {}
    for name, value in row.items():
        if name in (*IDENTITY, "phase", "step"):
            continue
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            if _is_number(number):
                values["/".join(filter(None, (prefix, name, str(part))))] = float(number)
    return Entry("-".join([phase, *about]), int(row.get("step", 0)), values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
