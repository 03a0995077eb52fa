"""Runs of scripted teams, from the command line: one evaluation of every test task, and nothing learned."""

import json
from pathlib import Path

import pytest

from mesax.cli.parser import main
from mesax.errors import USAGE


def said(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("method, earned", [("optimum", 1.0), ("safe", 0.5)])
def test_a_run_earns_what_its_script_says_and_takes_no_step(method: str, earned: float, tmp_path: Path, capsys):
    out = tmp_path / "run"
    words = ["run", method, "climb-multi", "--preset", "smoke", "--workers", "1", "--quiet", "--json"]
    assert main([*words, "--out", str(out)]) == 0
    summary = said(capsys)
    assert [task["final_return"] for task in summary["per_task"]] == [earned, earned]
    assert (summary["env_steps"], summary["meta_env_steps"]) == (0, 0)
    assert [json.loads(line)["step"] for line in (out / "eval.jsonl").read_text().splitlines()] == [0, 0]
    assert json.loads((out / "run.json").read_text())["privileged"] is True
    assert main(["eval", str(out), "--episodes", "2", "--json"]) == 0
    assert [task["return"] for task in said(capsys)["per_task"]] == [earned, earned]
    assert main(["compare", str(out), "--out", str(tmp_path)]) == 0
    assert "(privileged): told what every task asks for." in " ".join(capsys.readouterr().out.split())


def test_worlds_without_a_script_and_other_learners_are_refused(tmp_path: Path, capsys):
    for words, line in (
        (
            ["optimum", "key-doors"],
            "the suite of KeyDoors does not say how: use a suite of your own whose Preset has a",
        ),
        (["safe", "climb-one", "--learner", "qmix"], "method 'safe' brings its own learner"),
        (["safe", "mpe-2a5l", "--family.world.num-landmarks", "4"], "does not fit observations of"),
    ):
        assert main(["run", *words, "--preset", "smoke", "--out", str(tmp_path / "run")]) == USAGE
        assert line in capsys.readouterr().err and not (tmp_path / "run").exists()
