"""The form of a result: of which kind each entry of its file must be for its readers. Needs no JAX."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from mesax.store.json_values import Json
from mesax.store.reading import FAMILY_NUMBERS
from mesax.suites.renamed import RENAMED_FROM

LARGEST = 1e100
"""The largest number: squares of such numbers can still be summed."""
TEXT, NUMBER, COUNT, NULL = "text", "a number", "a whole number", "null"
# A kind is one of these; a list of what each of its items is; an object of what its entries are (`name?`: if it has
# it; `*`: all others); or a tuple of kinds, any of which will do.
Kind: TypeAlias = object
ANYTHING: Kind = {"*": None}
PLACE = {"task": COUNT, "repeat": COUNT}
TASK_RUN: Kind = {
    **PLACE,
    "label": TEXT,
    "final_return": NUMBER,
    "groups?": ({"*": NUMBER}, NULL),
    "zero_shot_return?": (NUMBER, NULL),
    "steps_to_optimal?": (NUMBER, NULL),
}
CURVE: Kind = {**PLACE, "steps": [NUMBER], "returns": [NUMBER], "groups?": {"*": [NUMBER]}}
FAMILY: Kind = {
    **dict.fromkeys(FAMILY_NUMBERS, NUMBER),
    "lowest_return?": (NUMBER, NULL),
    "groups?": ([TEXT], NULL),
    "lost?": ([NUMBER], NULL),
}
VISITOR: Kind = {
    **dict.fromkeys(("distinct_visits", "high_reward_steps"), (NUMBER, NULL)),
    "worst_target?": ({"steps?": (NUMBER, NULL)}, NULL),
}
LENDER: Kind = {**dict.fromkeys(("method", "env", "preset"), TEXT), "overrides?": (ANYTHING, NULL)}
NEEDED: dict[str, tuple[str, Kind]] = {
    **dict.fromkeys(("method", "env", "preset"), (TEXT, TEXT)),
    **dict.fromkeys(("seed", "env_steps", "meta_env_steps"), (COUNT, COUNT)),
    **dict.fromkeys(("mean_return", "wall_seconds"), (NUMBER, NUMBER)),
    "per_task": ("a list of task runs", [TASK_RUN]),
}
"""Entries without which a file is no result of a run: what they are for people, and their kind."""
MEASURES = (
    *("std_return", "ci_low", "ci_high", "iqm", "normalized_return", "area_under_curve", "zero_shot_return"),
    *("optimal_fraction", "optimal_fraction_low", "optimal_fraction_high", "env_steps_per_second"),
)
OTHERS: dict[str, tuple[str, Kind]] = {
    "label": (TEXT, TEXT),
    **dict.fromkeys(MEASURES, (NUMBER, NUMBER)),
    "by_group": ("an object of numbers", {"*": NUMBER}),
    "family": (f"an object with numbers {', '.join(FAMILY_NUMBERS)}", FAMILY),
    "test_tasks": ("a list of tasks", [{"label": TEXT, "group?": (TEXT, NULL)}]),
    "config": ("an object", ANYTHING),
    "made_with": (
        "an object or null, with the name that its world had then as text",
        ({f"{RENAMED_FROM}?": TEXT}, NULL),
    ),
    **dict.fromkeys(("overrides", "request"), ("an object or null", (ANYTHING, NULL))),
    "clocks": ("an object of numbers", ({"*": NUMBER}, NULL)),
    "curves": ("a list of evaluations by task and repeat, in the order of steps", ([CURVE], NULL)),
    "explorers": ("what visitors reach", ({"visitors?": ({"*": VISITOR}, NULL)}, NULL)),
    "borrowed": ("a list of runs", ([(LENDER, NULL)], NULL)),
}
"""What only newer results have, or only some; null stands for nothing where a reader takes it so."""


def malformed(facts: Json) -> str | None:
    """What is wrong with the first entry that is not what it must be, of those that are there; None: all are."""
    for name, (told, kind) in (NEEDED | OTHERS).items():
        if name in facts and not (fits(facts[name], kind) and _in_order(name, facts[name])):
            return f"{name} is not {told}"
    tasks = [task["task"] for task in facts.get("per_task", ())]
    if "test_tasks" in facts and max(tasks, default=-1) >= len(facts["test_tasks"]):
        return f"per_task has a task {max(tasks)}, but there are only {len(facts['test_tasks'])} test_tasks"
    return None


def fits(value: object, kind: Kind) -> bool:
    """Whether a value is of a kind."""
    if isinstance(kind, tuple):
        return any(fits(value, one) for one in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(item, kind[0]) for item in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and _has(value, kind)
    if kind in (NUMBER, COUNT):
        number = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
        return number and (kind == NUMBER or (isinstance(value, int) and value >= 0))
    return kind is None or (value is None if kind == NULL else isinstance(value, str))


def _has(value: Json, kinds: dict[str, Kind]) -> bool:
    """Whether an object has all that it needs, and whether what it has is of the right kind."""
    needed = {name for name in kinds if name != "*" and not name.endswith("?")}
    known = {name.removesuffix("?"): kind for name, kind in kinds.items()}
    return needed <= value.keys() and all(fits(own, known.get(name, known.get("*"))) for name, own in value.items())


def _in_order(name: str, value: object) -> bool:
    """Whether there is a task run, and whether each curve has evaluations in the order of steps, a return for each."""
    if name == "per_task":
        return bool(value)
    if name != "curves" or not isinstance(value, list):
        return True
    return all(
        curve["steps"]
        and all(one < other for one, other in pairwise(curve["steps"]))
        and all(len(line) == len(curve["steps"]) for line in (curve["returns"], *curve.get("groups", {}).values()))
        for curve in value
    )
