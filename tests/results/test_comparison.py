"""Which runs are pooled, which are compared, and what is said of those that cannot be."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_store import SMALL, write_run
from mesax.cli.parser import main
from mesax.results.comparison import by_family, compare_directories, nothing_comparable, pooled, samples_of_one
from mesax.results.drawing import draw_comparison
from mesax.results.summary import run_figures
from mesax.store.reading import load_run
from mesax.store.run_directory import RunDirectory

FAKES = {
    "mesa-0": SMALL,
    "mesa-1": replace(SMALL, seed=1),
    "plain-0": replace(SMALL, method="plain"),
    "plain-1-few": replace(SMALL, method="plain", seed=1, num_tasks=2),
    "multi-mesa": replace(SMALL, env="climb-multi-mixed", num_stages=2),
    "multi-plain": replace(SMALL, env="climb-multi-mixed", num_stages=2, method="plain"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    return {name: write_run(root / name, fake) for name, fake in FAKES.items()}


def runs_of(store, *names: str):
    return [load_run(store[name]) for name in names]


def with_config(run, **settings):
    return replace(run, run={**run.run, "config": {**run.run["config"], **settings}})


def test_seeds_are_pooled_and_other_differences_are_not(store):
    mesa, plain, second = runs_of(store, "mesa-0", "plain-0", "mesa-1")
    both, alone = map(pooled, samples_of_one([mesa, plain, second]))
    assert alone is plain
    assert both.run["seed"] == [0, 1] and both.tasks.tolist() == list(range(8))
    np.testing.assert_array_equal(both.final_returns, [*mesa.final_returns, *second.final_returns])
    assert both.curves[4].label == f"seed 1: {second.curves[0].label}"
    assert both.summary["env_steps"] == mesa.summary["env_steps"] + second.summary["env_steps"]
    assert samples_of_one([mesa, mesa]) == [[mesa], [mesa]], "the same tasks would count twice"


def test_runs_of_another_configuration_are_not_pooled_even_if_their_names_agree(store):
    mesa, second = runs_of(store, "mesa-0", "mesa-1")
    assert len(samples_of_one([mesa, with_config(second, schedule={"total_steps": 7})])) == 2
    one, other = with_config(mesa, seed=0, num_test_tasks=4), with_config(second, seed=1, num_test_tasks=2)
    assert len(samples_of_one([one, other])) == 1


def test_a_directory_stands_for_the_evaluated_runs_below_it(store, tmp_path, capsys):
    for name in ("mesa-0", "plain-0"):
        shutil.copytree(store[name], tmp_path / "runs" / name)
    unfinished = shutil.copytree(store["mesa-1"], tmp_path / "runs" / "later")
    RunDirectory(unfinished).unseal()
    for name in ("eval.jsonl", "summary.json"):
        (unfinished / name).unlink()
    (unfinished / "STATUS").write_text("running\n")
    assert main(["compare", str(tmp_path / "runs"), "--out", str(tmp_path / "drawn"), "--json"]) == 0
    *printed, told = capsys.readouterr().out.splitlines()
    (family,) = json.loads(told)["families"]
    assert [row["method"] for row in family["rows"]] == ["mesa", "plain"]
    assert [line for line in printed if line.startswith("note     left out: ") and "later" in line]
    assert main(["compare", str(unfinished)]) == 2, "what is named must be there"


def test_each_family_has_its_own_tables_and_pictures(store, tmp_path, request):
    families = compare_directories(store[name] for name in ("mesa-0", "multi-mesa", "plain-0", "multi-plain"))
    assert [family.title for family in families] == ["climb-one", "climb-multi-mixed"]
    for family in families:
        table, differences = family.tables
        assert [row[0] for row in table.rows] == ["MESA", "learner alone"] and table.title.startswith(
            family.title + ","
        )
        assert [row[3] for row in differences.rows] == ["same test tasks"] and not family.warning
    assert nothing_comparable(families) is None
    drawn = draw_comparison(families, tmp_path)
    names = {f"compare-{kind}-{family.title}.png" for kind in ("curves", "returns", "profiles") for family in families}
    assert {path.name for path in drawn} == names
    request.getfixturevalue("unpainted")
    assert {path.name for path in draw_comparison(families[:1], tmp_path / "one")} == {
        "compare-curves.png",
        "compare-profiles.png",
        "compare-returns.png",
    }


def test_families_that_differ_only_in_a_setting_are_told_apart(store):
    mesa, plain = runs_of(store, "mesa-0", "plain-0")
    changed = with_config(plain, family={"num_actions": 20})
    changed = replace(changed, run={**changed.run, "overrides": {"family.num-actions": "20", "lanes": "1"}})
    families = by_family([mesa, changed])
    assert [family.title for family in families] == ["climb-one (as it is)", "climb-one (family.num-actions=20)"]
    assert "a family of tasks of its own" in (nothing_comparable(families) or "")
    assert all(len(family.tables) == 1 for family in families)


def test_rows_over_different_tasks_say_so_and_are_compared_over_what_both_have(store):
    (family,) = compare_directories(store[name] for name in ("mesa-0", "mesa-1", "plain-0", "plain-1-few"))
    mesa, plain = family.runs
    assert (len(mesa.curves), len(plain.curves)) == (8, 6)
    assert "MESA 8 of seed 0, 1; learner alone 6 of seed 0, 1" in family.warning
    table, differences = family.tables
    assert table.note.endswith(family.warning) and table.columns[-1] == "task runs"
    assert differences.rows[0][3] == "the 6 test tasks of both"
    (found,) = family.as_json()["differences"]
    shared = [index for index in range(8) if index < 6]  # seed 1's first two tasks do not depend on their number
    assert found["value"] == pytest.approx(np.mean(mesa.final_returns[shared]) - np.mean(plain.final_returns))


def test_tasks_of_older_results_are_the_same_whether_seeds_are_pooled_or_not(store):
    def without_targets(run):
        return replace(run, run={**run.run, "test_tasks": [{"label": task["label"]} for task in run.run["test_tasks"]]})

    (family,) = by_family([without_targets(run) for run in runs_of(store, "mesa-0", "mesa-1", "plain-0")])
    assert family.as_json()["differences"][0]["shared_tasks"] == 4
    old, new = without_targets(load_run(store["plain-0"])), load_run(store["mesa-0"])
    assert by_family([new, old])[0].warning == "", "a task without its target is known by its label"


def test_rows_with_other_budgets_name_them_and_are_no_fair_comparison(store, tmp_path):
    longer = replace(SMALL, method="plain", interval=300_000, overrides=(("schedule.total-steps", "3_600_000"),))
    paths = [store["mesa-0"], write_run(tmp_path / "longer", longer)]
    (family,) = compare_directories(paths)
    table, differences = family.tables
    assert [row[0] for row in table.rows] == ["MESA", "learner alone schedule.total-steps=3_600_000"]
    differ = "steps on each test task differ (MESA 12k, learner alone schedule.total-steps=3_600_000 3.6M): this"
    assert differ in table.note and differ in family.verdict and differ in family.as_json()["warning"]
    assert differences.rows[0][0] == "MESA against learner alone schedule.total-steps=3_600_000"
    seeds = [write_run(tmp_path / "other-seed", replace(longer, seed=1)), store["plain-0"]]
    (family,) = compare_directories(seeds)
    assert [row[0] for row in family.tables[0].rows] == [
        "learner alone schedule.total-steps=3_600_000",
        "learner alone",
    ]


def test_budgets_that_rounds_meet_to_within_a_twentieth_are_the_same(store, tmp_path):
    for interval, same in ((1_050, True), (1_051, False)):
        other = write_run(tmp_path / str(interval), replace(SMALL, method="plain", interval=interval))
        (family,) = compare_directories([store["mesa-0"], other])
        assert (family.warning == "") is same


def test_a_scripted_team_takes_no_step_and_may_be_compared(store, tmp_path):
    scripted = write_run(tmp_path / "optimum", replace(SMALL, method="optimum", interval=0, evaluations=1))
    (family,) = compare_directories([store["mesa-0"], scripted])
    assert family.unequal == "" and [run.curves[0].steps[-1] for run in family.runs][1] == 0


def test_a_sentence_says_how_many_tasks_were_solved(store):
    mesa, plain, few, other = runs_of(store, "mesa-0", "plain-0", "plain-1-few", "multi-mesa")
    solved = [round(run_figures(run)["optimal_fraction"] * len(run.curves)) for run in (mesa, plain)]
    [family] = by_family([mesa, plain])
    expected = f"{family.title}: MESA solved {solved[0]} of 4 unseen tasks, the learner alone {solved[1]}."
    assert family.verdict == expected
    assert by_family([mesa, few])[0].verdict.endswith("of 2.")
    assert by_family([other])[0].verdict == "climb-multi-mixed: MESA solved 4 of 4 unseen tasks."


@pytest.mark.usefixtures("unpainted")
def test_json_holds_the_numbers_of_the_table(store, tmp_path, capsys):
    paths = [str(store[name]) for name in ("mesa-0", "mesa-1", "plain-0")]
    assert main(["compare", *paths, "--out", str(tmp_path), "--json"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    (family,) = result["families"]
    mesa, plain = family["rows"]
    assert (mesa["seeds"], plain["seeds"]) == ([0, 1], [0]) and result["note"] is None
    assert run_figures(load_run(store["plain-0"])).items() <= plain.items()
    assert plain["steps_to_optimum"] is None and isinstance(mesa["steps_to_optimum"], int)
    assert family["differences"][0]["of"] == "MESA" and family["differences"][0]["shared_tasks"] == 4


@pytest.mark.usefixtures("unpainted")
def test_runs_without_a_family_in_common_are_shown_with_a_note(store, tmp_path, capsys):
    paths = [str(store[name]) for name in ("mesa-0", "multi-plain")]
    assert main(["compare", *paths, "--out", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("IQM: mean of the middle half") == 1, "what columns mean is said once"
    assert "nothing to compare: each run has a family of tasks of its own (climb-one, climb-multi-mixed)" in text
