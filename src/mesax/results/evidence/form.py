"""The form of a result: of which kind each entry of its file must be for its readers. Needs no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from mesax.store.json_values import Json
from mesax.store.reading import FAMILY_NUMBERS
from mesax.suites.renamed import RENAMED_FROM

Fits: TypeAlias = Callable[[object], bool]
"""Whether a value is of some kind."""
LARGEST = 1e100
"""The largest number: squares of such numbers can still be summed."""


@dataclass(frozen=True)
class Kind:
    """What an entry must be, and how an error says it."""

    name: str
    fits: Fits


def malformed(facts: Json) -> str | None:
    """What is wrong with the first entry that is not what it must be, of those that are there; None: all are."""
    for name, kind in (NEEDED | OTHERS).items():
        if name in facts and not kind.fits(facts[name]):
            return f"{name} is not {kind.name}"
    tasks = [task["task"] for task in facts.get("per_task", ())]
    if "test_tasks" in facts and max(tasks, default=-1) >= len(facts["test_tasks"]):
        return f"per_task has a task {max(tasks)}, but there are only {len(facts['test_tasks'])} test_tasks"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_number(value) and value >= 0


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _object_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _has(needed: Mapping[str, Fits], **others: Fits) -> Fits:
    """Whether something is an object with all that is needed, and with others of the right kind if it has them."""

    def fits(value: object) -> bool:
        if not isinstance(value, dict) or not needed.keys() <= value.keys():
            return False
        return all(fits(value[name]) for name, fits in {**needed, **others}.items() if name in value)

    return fits


_is_place = {"task": _is_count, "repeat": _is_count}
_is_task_run = _has(
    {**_is_place, "label": _is_text, "final_return": _is_number},
    groups=_or_none(_object_of(_is_number)),
    zero_shot_return=_or_none(_is_number),
    steps_to_optimal=_or_none(_is_number),
)
_has_lines = _has({**_is_place, "steps": _are_numbers, "returns": _are_numbers}, groups=_object_of(_are_numbers))


def _is_curve(value: object) -> bool:
    """Evaluations in the order of their steps, with a return of every group for each."""
    if not isinstance(value, dict) or not _has_lines(value):
        return False
    steps = value["steps"]
    lines = (value["returns"], *value.get("groups", {}).values())
    return bool(steps) and all(len(line) == len(steps) for line in lines) and all(a < b for a, b in pairwise(steps))


_is_visitor = _has(
    dict.fromkeys(("distinct_visits", "high_reward_steps"), _or_none(_is_number)),
    worst_target=_or_none(_has({}, steps=_or_none(_is_number))),
)
_is_lender = _has(dict.fromkeys(("method", "env", "preset"), _is_text), overrides=_or_none(_is_object))

TEXT, NUMBER, COUNT = Kind("text", _is_text), Kind("a number", _is_number), Kind("a whole number", _is_count)
OBJECT, OBJECT_OR_NULL = Kind("an object", _is_object), Kind("an object or null", _or_none(_is_object))

NEEDED: dict[str, Kind] = {
    **dict.fromkeys(("method", "env", "preset"), TEXT),
    "seed": COUNT,
    "mean_return": NUMBER,
    "per_task": Kind("a list of task runs", lambda value: bool(value) and _list_of(_is_task_run)(value)),
    **dict.fromkeys(("env_steps", "meta_env_steps"), COUNT),
    "wall_seconds": NUMBER,
}
"""Without these a file is no result of a run."""
OTHERS: dict[str, Kind] = {
    "label": TEXT,
    **dict.fromkeys(
        (
            *("std_return", "ci_low", "ci_high", "iqm", "normalized_return", "area_under_curve", "zero_shot_return"),
            *("optimal_fraction", "optimal_fraction_low", "optimal_fraction_high", "env_steps_per_second"),
        ),
        NUMBER,
    ),
    "by_group": Kind("an object of numbers", _object_of(_is_number)),
    "family": Kind(
        f"an object with numbers {', '.join(FAMILY_NUMBERS)}",
        _has(
            dict.fromkeys(FAMILY_NUMBERS, _is_number),
            lowest_return=_or_none(_is_number),
            groups=_or_none(_list_of(_is_text)),
            lost=_or_none(_list_of(_is_number)),
        ),
    ),
    "test_tasks": Kind("a list of tasks", _list_of(_has({"label": _is_text}, group=_or_none(_is_text)))),
    "config": OBJECT,
    "made_with": Kind(
        "an object or null, with the name that its world had then as text",
        _or_none(_has({}, **{RENAMED_FROM: _is_text})),
    ),
    **dict.fromkeys(("overrides", "request"), OBJECT_OR_NULL),
    "clocks": Kind("an object of numbers", _or_none(_object_of(_is_number))),
    "curves": Kind("a list of evaluations by task and repeat, in the order of steps", _or_none(_list_of(_is_curve))),
    "explorers": Kind("what visitors reach", _or_none(_has({}, visitors=_or_none(_object_of(_is_visitor))))),
    "borrowed": Kind("a list of runs", _or_none(_list_of(_or_none(_is_lender)))),
}
"""What only newer results have, or only some; null stands for nothing where a reader takes it so."""
