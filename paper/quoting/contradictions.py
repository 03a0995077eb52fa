"""What in a result does not follow from the rest of it: everything that can be computed again is.

Intervals and interquartile means are not: statistics have changed since some results were made, and every table
computes them anew from final returns. They must only lie where any statistics would have put them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mesax.errors import UsageError
from mesax.experiments.names import method_and_learner
from mesax.experiments.overrides import digest_of_plain
from mesax.results.evidence.kept import Kept, file_names
from mesax.results.labels import method_label
from mesax.results.summary import summarize
from mesax.store.json_values import Json
from mesax.store.reading import SUMMARY_NUMBERS, Evaluation, borrowed_from
from mesax.suites.renamed import RENAMED_FROM, name_today
from paper.freshness import with_family

CLOSE = 1e-3
"""Curves are kept to four decimals."""
A_MOMENT = 0.1
"""Clocks are kept to tenths of a second."""
OF_FINALS = ("std_return", "optimal_fraction", "by_group")
"""Figures that follow from final returns, which even results from before there was a store have."""
OF_CURVES = ("area_under_curve", "zero_shot_return")
BETWEEN = (
    ("ci_low", "mean_return", "ci_high"),
    ("optimal_fraction_low", "optimal_fraction", "optimal_fraction_high"),
)
"""A figure with the ends of its interval."""
OF_OLD_ONES = ("iqm", "normalized_return", "env_steps_per_second", "ci_low", "ci_high", *OF_FINALS)
"""Figures that every result has."""
OF_THE_STORE = ("label", "family", "test_tasks", "config", "made_with", "clocks", "curves")
"""What a result has in addition to its figures; one from before there was a store has none of it."""
OF_NEW_ONES = ("area_under_curve", "optimal_fraction_low", "optimal_fraction_high")
"""Figures of all others; `zero_shot_return` is there only if learners had learned something before."""


def contradictions(kept: Kept) -> Iterator[str]:
    """Entries that do not follow from those that they were computed from."""
    facts, is_old = kept.facts, not any(name in kept.facts for name in OF_THE_STORE if name != "made_with")
    missing = [name for name in (OF_OLD_ONES if is_old else (*OF_OLD_ONES, *OF_NEW_ONES)) if name not in facts]
    missing += [] if is_old else [name for name in OF_THE_STORE if not facts.get(name)]
    if missing:
        yield f"it lacks {', '.join(missing)}"
        return
    yield from _of_names(kept)
    yield from _of_finals(facts)
    if not is_old:
        unknown = list(_of_tasks(facts))
        yield from unknown
        if unknown:
            return
    yield from _of_rows(kept, is_old)
    yield from _of_clocks(facts)
    yield from () if is_old else _of_settings(kept)


def _of_names(kept: Kept) -> Iterator[str]:
    """The file must be called what it is of; a world, what its name of before is now."""
    facts, before = kept.facts, (kept.facts.get("made_with") or {}).get(RENAMED_FROM, kept.env)
    if RENAMED_FROM in facts:
        yield f"{facts[RENAMED_FROM]} is called {kept.env} now: type python tools/carry_results.py {kept.path.parent}"
    elif kept.path.stem not in file_names(facts):
        yield f"it is a result of {file_names(facts)[0]}, which is not its name"
    if kept.env not in (before, name_today(before)):
        yield f"its world is {kept.env}, which was never called {before}"


def _of_finals(facts: Json) -> Iterator[str]:
    finals = np.array([float(task["final_return"]) for task in facts["per_task"]])
    if not abs(finals.mean() - facts["mean_return"]) <= CLOSE:
        yield f"mean_return is {facts['mean_return']}, but its tasks have {finals.mean()}"
    for low, value, high in BETWEEN:
        if {low, high} <= facts.keys() and not _in_order(facts[low], facts[value], facts[high]):
            yield f"{value} {facts[value]} is not between {low} {facts[low]} and {high} {facts[high]}"
    if not _in_order(float(finals.min()), facts["iqm"], float(finals.max())):
        yield f"iqm is {facts['iqm']}, but its tasks have {finals.min()} to {finals.max()}"


def _in_order(low: float, value: float, high: float) -> bool:
    return low - CLOSE <= value <= high + CLOSE


def _of_tasks(facts: Json) -> Iterator[str]:
    """Tasks must be the same in all three places; without that nothing else can be compared."""
    places = [(task["task"], task["repeat"]) for task in facts["per_task"]]
    if len(set(places)) < len(places):
        yield "per_task has the same task and repeat twice"
    if sorted(places) != sorted((curve["task"], curve["repeat"]) for curve in facts["curves"]):
        yield "its curves are not those of the tasks and repeats of per_task"
    if {task for task, _ in places} != set(range(len(facts["test_tasks"]))):
        yield "its test_tasks are not those of per_task"


def _of_settings(kept: Kept) -> Iterator[str]:
    facts, config = kept.facts, kept.facts["config"]
    if digest_of_plain(config) != kept.config_hash:
        yield f"its settings do not have the hash {kept.config_hash}"
    if config.get("seed", kept.seed) != kept.seed:
        yield f"seed is {kept.seed}, but {config['seed']} in its settings"
    borrows = borrowed_from(config.get("method"))
    if len(borrows) != len(kept.lenders):
        yield f"its settings borrow from {len(borrows)} runs, but borrowed has {len(kept.lenders)}"
    # All but whether its settings are exactly the paper's is known: it may be called as published or not.
    unnamed = {**facts, "label": None}
    if facts["label"] not in (method_label(unnamed), method_label({**unnamed, "paper_diff": []})):
        yield f"label is {facts['label']}, but {method_label(unnamed)} by its settings"
    request = facts.get("request")
    if request and request != request | _asked_for(kept, request):
        yield "its request is not for this method, environment, preset, seed, number of tasks and overrides"


def _asked_for(kept: Kept, request: Json) -> Json:
    """What a request for this result must say; it need not say how many tasks it wants."""
    method, learner = method_and_learner(kept.method)
    tasks = {} if request.get("num_test_tasks") is None else {"num_test_tasks": kept.num_test_tasks}
    names = {"method": method, "learner": learner, "env": kept.env, "preset": kept.preset, "seed": kept.seed}
    return names | tasks | {"overrides": [list(pair) for pair in kept.overrides.items()]}


def _of_rows(kept: Kept, is_old: bool) -> list[str]:
    """Figures, and tasks one by one, against what today's `summarize` makes of the curves."""
    try:
        kept = with_family(kept)
    except UsageError:  # a world that is no more, and whose threshold was not recorded
        return []
    found = [*_of_figures(kept, _summary(kept), is_old)]
    # Curves are rounded, and may touch the threshold of the optimum: then it makes a difference where exactly it is.
    if found and any(not [*_of_figures(kept, _summary(kept, slack), is_old)] for slack in (-CLOSE, CLOSE)):
        return []
    return found


def _of_figures(kept: Kept, wanted: Json, is_old: bool) -> Iterator[str]:
    facts, best = kept.facts, kept.facts["family"]["optimal_return"]
    for name in OF_FINALS if is_old else (*OF_FINALS, *OF_CURVES):
        if not _same(facts.get(name), wanted.get(name)):
            yield f"{name} is {facts.get(name)}, but its curves give {wanted.get(name)}"
    if not _same(facts["normalized_return"] * best, facts["mean_return"]):
        yield f"normalized_return is {facts['normalized_return']}, but its mean {facts['mean_return']} of {best}"
    if is_old:
        return
    for task, curve in zip(facts["per_task"], wanted["per_task"], strict=True):
        yield from _of_task(task, curve)
    steps = sum(curve["steps"][-1] for curve in facts["curves"])
    if steps != facts["env_steps"]:
        yield f"env_steps is {facts['env_steps']}, but its curves end after {steps} in all"


def _of_task(task: Json, wanted: Json) -> Iterator[str]:
    number = wanted["task"]
    for name in dict.fromkeys((*wanted, *task)):
        if name in task and name in wanted and _same(task[name], wanted[name]):
            continue
        if name == "final_return":
            yield f"task {number} ends at {task[name]}, but its curve at {wanted[name]}"
        else:
            yield f"{name} of task {number} is {task.get(name)}, but its curve gives {wanted.get(name)}"


def _summary(kept: Kept, slack: float = 0.0) -> Json:
    """What `summarize` says today, with the threshold of the optimum a little to one side."""
    costs = {name: kept.facts[name] for name in SUMMARY_NUMBERS}
    run, family = kept.results.run, kept.facts["family"]
    moved = {**family, "optimal_threshold": family["optimal_threshold"] + slack}
    return summarize({**run, "family": moved}, _rows(kept), **costs, run_dir="")


def _rows(kept: Kept) -> Iterator[Json]:
    """Evaluations as the run wrote them; of results without curves one for each task, which says how it ended."""
    facts = kept.facts
    curves = {(curve["task"], curve["repeat"]): curve for curve in facts.get("curves") or ()}
    was_taught = "zero_shot_return" in facts
    for task in facts["per_task"]:
        place = task["task"], task["repeat"]
        named = task.get("groups") or {}
        if (curve := curves.get((task["task"], task["repeat"]))) is None:
            yield Evaluation(*place, 0, task["final_return"], named).row
            continue
        # Groups are left out where a curve has one only: it is the task's own, or the one that per_task names.
        has_own = facts["test_tasks"][task["task"]].get("group") is not None
        groups = curve.get("groups") or dict.fromkeys(() if has_own else named, curve["returns"])
        for number, (step, value) in enumerate(zip(curve["steps"], curve["returns"], strict=True)):
            own = {name: values[number] for name, values in groups.items()}
            yield Evaluation(*place, step, value, own, was_taught).row


def _of_clocks(facts: Json) -> Iterator[str]:
    seconds, steps, speed = facts["wall_seconds"], facts["env_steps"], facts["env_steps_per_second"]
    if "clocks" in facts and not abs(facts["clocks"].get("wall_seconds", np.nan) - seconds) <= A_MOMENT:
        yield f"wall_seconds is {seconds}, but {facts['clocks'].get('wall_seconds')} in its clocks"
    # Results of before counted steps on test tasks alone.
    speeds = [number / seconds if seconds > 0 else 0.0 for number in (steps + facts["meta_env_steps"], steps)]
    if not any(abs(speed - one) <= CLOSE * one for one in speeds):
        yield f"env_steps_per_second is {speed}, but {speeds[0]} by its steps and seconds"


def _same(value: object, other: object) -> bool:
    """Whether two entries are the same but for rounding."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    numbers = [one for one in (value, other) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) == 2:
        return abs(numbers[0] - numbers[1]) <= CLOSE
    return value == other
