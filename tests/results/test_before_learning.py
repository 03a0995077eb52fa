"""What tables say of runs that learned on training tasks first: zero-shot returns, privileges, equal budgets."""

from pathlib import Path

import numpy as np

from mesax.results.comparison import FamilyComparison
from mesax.results.summary import run_figures, summarize
from mesax.results.tables import comparison_table, run_labels, task_table
from mesax.store.json_values import Json
from mesax.store.reading import RunResults, curves_from_rows

FAMILY = {"name": "climb-one", "optimal_return": 1.0, "suboptimal_return": 0.5, "optimal_threshold": 0.95}
TASKS = [{"label": "u=1", "target": [[1, 1]]}, {"label": "u=2", "target": [[1, 2]]}]


def rows(zero_shot: tuple[float, float] | None) -> list[Json]:
    first = [{"task": task, "repeat": 0, "step": 0, "return": (zero_shot or (0.0, 0.0))[task]} for task in (0, 1)]
    first = [row | ({"zero_shot": True} if zero_shot else {}) for row in first]
    return first + [{"task": task, "repeat": 0, "step": 10, "return": 1.0} for task in (0, 1)]


def run(method: str, steps: int, zero_shot: tuple[float, float] | None = None, **more: object) -> RunResults:
    facts = {"method": method, "env": "climb-one", "preset": "quick", "seed": 0, "family": FAMILY} | more
    facts |= {"test_tasks": TASKS}
    summary = {"wall_seconds": 1.0, "env_steps": 20, "meta_env_steps": steps}
    return RunResults(Path(method), facts, curves_from_rows(facts, rows(zero_shot)), summary, (), None, "done")


MESA, PRETRAIN = run("mesa", 180_000), run("pretrain", 179_840, (0.5, 1.0))
GOAL = run("goal", 188_000, (1.0, 1.0), privileged=True)


def test_zero_shot_returns_are_those_of_marked_rows_alone():
    assert [curve.zero_shot for curve in MESA.curves] == [None, None]
    assert [curve.zero_shot for curve in PRETRAIN.curves] == [0.5, 1.0]
    assert run_figures(PRETRAIN)["zero_shot_return"] == 0.75
    assert "zero_shot_return" not in run_figures(MESA)
    totals = {"env_steps": 20, "meta_env_steps": 1, "wall_seconds": 1.0, "run_dir": ""}
    summary = summarize(PRETRAIN.run, rows((0.5, 1.0)), **totals)
    assert summary["zero_shot_return"] == 0.75
    assert [task["zero_shot_return"] for task in summary["per_task"]] == [0.5, 1.0]
    assert "zero_shot_return" not in summarize(MESA.run, rows(None), **totals)["per_task"][0]


def test_tables_have_a_column_where_there_is_something_to_tell():
    table = comparison_table([MESA, PRETRAIN])
    place = table.columns.index("zero-shot")
    assert [row[place] for row in table.rows] == ["–", "0.75"]
    assert "before the first update" in table.note
    assert "zero-shot" not in comparison_table([MESA]).columns
    assert "zero-shot" in task_table(PRETRAIN).columns and "zero-shot" not in task_table(MESA).columns


def test_steps_on_training_tasks_are_compared_with_the_first():
    note = comparison_table([run("plain", 0), MESA, PRETRAIN, GOAL]).note
    assert "MESA 180k, Pretrain 180k (-0.1%), Goal (privileged) 188k (+4.4%) steps" in note


def test_a_privilege_is_marked_wherever_a_run_is_named():
    assert run_labels([MESA, GOAL]) == ["MESA", "Goal (privileged)"]
    assert task_table(GOAL).title == "Goal (privileged) on climb-one: test tasks"
    assert "(privileged): told what every task asks for" in comparison_table([GOAL]).note
    assert "(privileged)" not in comparison_table([MESA]).note
    compared = FamilyComparison("climb-one", [MESA, PRETRAIN, GOAL])
    assert "Goal (privileged) 2" in compared.verdict
    assert [row["run"] for row in compared.as_json()["rows"]] == ["MESA", "Pretrain", "Goal (privileged)"]
    assert np.isclose(compared.as_json()["rows"][2]["zero_shot_return"], 1.0)
