"""Results that contradict themselves: whatever is dropped from a file, or changed in it, is found."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fake_store import FakeRun, write_run
from mesax.experiments.overrides import digest_of_plain
from mesax.results.evidence.kept import is_store, keep
from mesax.store.json_values import Json
from paper.quoting.checking import damage, verify_store
from paper.quoting.contradictions import CLOSE

NEEDS_NO_WORD = {"overrides", "explorers"}
"""None of the first are as good as nothing; what explorers reach follows from nothing else in the file."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of several stages and repeats whose learners had learned before."""
    place = tmp_path_factory.mktemp("kept")
    path = keep(write_run(place / "run", FakeRun("mesa", num_stages=3, repeats=2, evaluations=12)), place / "store")
    facts = json.loads(path.read_text())
    facts["made_with"]["config_hash"] = digest_of_plain(facts["config"])
    for task, curve in zip(facts["per_task"], facts["curves"], strict=True):
        task["zero_shot_return"] = curve["returns"][0]
    facts["zero_shot_return"] = float(np.mean([task["zero_shot_return"] for task in facts["per_task"]]))
    path.write_text(json.dumps(facts))
    return path


def found(kept: Path, tmp_path: Path, change: Callable[[Json], object], name: str = "") -> list[str]:
    facts = json.loads(kept.read_text())
    change(facts)
    path = tmp_path / (name or kept.name)
    path.write_text(json.dumps(facts))
    return list(damage(path))


def to(**values: object) -> Callable[[Json], object]:
    return lambda facts: facts.update(values)


def by(name: str, amount: float) -> Callable[[Json], object]:
    return lambda facts: facts.update({name: facts[name] + amount})


CHANGES: dict[str, Callable[[Json], object]] = {
    "method": to(method="plain"),
    "env": to(env="climb-multi-mixed"),
    "preset": to(preset="paper"),
    "seed": to(seed=1),
    "env_steps": by("env_steps", 1),
    "meta_env_steps": by("meta_env_steps", 1_000),
    "mean_return": by("mean_return", 0.01),
    "std_return": by("std_return", 0.01),
    "ci_low": to(ci_low=1.5),
    "ci_high": to(ci_high=0.1),
    "iqm": to(iqm=1.5),
    "normalized_return": by("normalized_return", 0.01),
    "optimal_fraction": by("optimal_fraction", -0.1),
    "optimal_fraction_low": to(optimal_fraction_low=1.5),
    "optimal_fraction_high": to(optimal_fraction_high=-0.5),
    "area_under_curve": by("area_under_curve", 0.01),
    "by_group": lambda facts: facts["by_group"].update({"k=1": 0.4}),
    "zero_shot_return": by("zero_shot_return", 0.01),
    "per_task": to(per_task=[]),
    "wall_seconds": by("wall_seconds", 1.0),
    "env_steps_per_second": by("env_steps_per_second", 100.0),
    "config": lambda facts: facts["config"].update(env={}),
    "family": lambda facts: facts["family"].update(optimal_return=2.0),
    "test_tasks": lambda facts: facts["test_tasks"].reverse(),
    "label": to(label="MESA as published"),
    "clocks": to(clocks={}),
    "made_with": lambda facts: facts["made_with"].update(config_hash="0"),
    "curves": to(curves=[]),
}


def test_a_result_as_it_was_kept_is_sound(kept: Path, tmp_path: Path):
    assert found(kept, tmp_path, lambda facts: None) == []
    assert json.loads(kept.read_text()).keys() - NEEDS_NO_WORD == CHANGES.keys(), "nothing is left unchecked"
    assert found(kept, tmp_path, lambda facts: None, "mesa-climb-one-quick-seed1.json")[0].endswith("is not its name")


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_dropped_or_changed_is_found(name: str, kept: Path, tmp_path: Path):
    for change in (CHANGES[name], to(**{name: None}), to(**{name: "x"}), lambda facts: facts.pop(name)):
        told = found(kept, tmp_path, change)
        assert told and all(one.startswith(str(tmp_path / kept.name)) for one in told)


def without_curve(facts: Json) -> None:
    """What a curve says can be changed once it is gone."""
    del facts["curves"][0]
    facts["per_task"][0]["final_return"] += 0.4
    facts["mean_return"] += 0.4 / len(facts["per_task"])


def renamed_group(facts: Json) -> None:
    task = facts["per_task"][0]
    task["groups"] = {f"{name} too": value for name, value in task["groups"].items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_curve, "its curves are not those of the tasks"),
        (to(per_task={}), "per_task is not a list of task runs"),
        (lambda facts: facts["per_task"][0].update(final_return=None), "per_task is not a list of task runs"),
        (lambda facts: facts["per_task"][0].update(final_return=0.3), "task 0 ends at 0.3, but its curve at"),
        (lambda facts: facts["per_task"][1].update(steps_to_optimal=1), "steps_to_optimal of task 0 is 1"),
        (lambda facts: facts["per_task"][0].update(label="k=9"), "label of task 0 is k=9"),
        (lambda facts: facts["per_task"][0].pop("zero_shot_return"), "zero_shot_return of task 0 is None"),
        (lambda facts: facts["per_task"][0].update(more=1), "more of task 0 is 1"),
        (renamed_group, "by_group is"),
        (lambda facts: facts["per_task"].append(facts["per_task"][0]), "the same task and repeat twice"),
        (lambda facts: facts["test_tasks"].append({"label": "u=1"}), "its test_tasks are not those of per_task"),
        (lambda facts: facts["test_tasks"].pop(), "per_task has a task 3, but there are only 3 test_tasks"),
        (lambda facts: facts["curves"][0]["returns"].__setitem__(0, None), "curves is not a list of evaluations"),
        (lambda facts: facts["curves"][0].update(steps=[], returns=[]), "curves is not a list of evaluations"),
        (lambda facts: facts["curves"][0]["steps"].reverse(), "curves is not a list of evaluations"),
        (lambda facts: facts["curves"][0]["returns"].pop(), "curves is not a list of evaluations"),
        (to(borrowed=[None]), "its settings borrow from 0 runs, but borrowed has 1"),
        (to(request={"method": "mesa", "seed": 1}), "its request is not for this method"),
    ],
)
def test_what_is_changed_inside_is_found(change: Callable[[Json], object], reason: str, kept: Path, tmp_path: Path):
    assert any(reason in one for one in found(kept, tmp_path, change))


def test_a_rounded_curve_may_touch_the_threshold(kept: Path, tmp_path: Path):
    """It did not reach the optimum, and looks as if it had."""

    def touch(facts: Json) -> None:
        facts["family"]["optimal_threshold"] = 1.0 + CLOSE / 2
        facts["optimal_fraction"] = float(np.mean([task["final_return"] >= 1.0 for task in facts["per_task"]]))

    assert found(kept, tmp_path, touch) == []


def test_a_result_of_before_there_was_a_store_has_figures_only(kept: Path, tmp_path: Path):
    later = ("config", "family", "test_tasks", "label", "clocks", "made_with", "curves", "area_under_curve")

    def age(facts: Json) -> None:
        for name in (*later, "zero_shot_return", "optimal_fraction_low", "optimal_fraction_high"):
            del facts[name]

    assert found(kept, tmp_path, age) == []
    for name in ("std_return", "by_group", "optimal_fraction", "normalized_return", "mean_return", "iqm"):
        assert found(kept, tmp_path, lambda facts, name=name: (age(facts), CHANGES[name](facts))), name


def test_a_store_of_damaged_results_is_one(kept: Path, tmp_path: Path):
    """And no file of another kind is taken for a result."""
    assert found(kept, tmp_path, lambda facts: facts.pop("mean_return"))
    (tmp_path / "theory.json").write_text('{"lemma": 1}')
    assert is_store(tmp_path)
    (problem,) = verify_store(tmp_path).damaged
    assert problem.endswith("is no result of a run: it lacks mean_return")
