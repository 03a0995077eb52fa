"""A run of before, whose world has another name now: every verb says so in one line, and goes on with it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from execution.test_runner import SMOKE, command_line, finished_run
from mesax.cli import running
from mesax.execution.saved_policies import load_policy
from mesax.results import drawing
from mesax.store.json_values import OWN_SUM
from mesax.store.run_directory import RunDirectory

# As `mesax run mesa climb-multi` wrote it when the name was that of games with mixed k.
NOW = "climb-multi-mixed"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


@pytest.fixture
def of_before(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped when all its jobs were done."""
    monkeypatch.setattr(drawing, "draw_run", lambda directory: [])
    path = tmp_path / "before"
    shutil.copytree(finished, path)
    run = RunDirectory(path)
    run.unseal()
    run.set_status("preempted")
    known = json.loads((path / "run.json").read_text())
    del known[OWN_SUM]  # versions of before wrote none
    (path / "run.json").write_text(
        json.dumps(known | {"env": "climb-multi", "family": known["family"] | {"name": "climb-multi"}})
    )
    return path


def told(path: Path) -> str:
    return f"note     {path} was made when climb-multi was the name of {NOW}; it is read as {NOW}"


def test_it_is_resumed_with_its_settings_and_ends_in_the_same_rows(of_before: Path, finished: Path, capsys):
    before = (of_before / "run.json").read_bytes()
    assert command_line("resume", of_before, "--quiet") == 0
    output = capsys.readouterr().out
    assert output.count(told(of_before)) == 1 and NOW in output.replace(told(of_before), ""), "its table names it too"
    assert (of_before / "run.json").read_bytes() == before
    for name in ("eval.jsonl", "metrics.jsonl", "coverage.json"):
        assert (of_before / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--episodes", "1"),
        ("export", "--to", "csv"),
        ("export",),
        ("compare",),
        ("report", "--no-episodes"),
    ],
    ids=" ".join,
)
def test_every_verb_says_so_once(of_before: Path, words: tuple[str, ...], capsys):
    verb, *options = words
    assert command_line(verb, of_before, *options) == 0
    output = capsys.readouterr().out
    assert output.splitlines().count(told(of_before)) == 1
    if verb == "report":
        assert f"MESA on {NOW}" in (page := (of_before / "report.html").read_text()) and told(of_before)[9:] in page
    if words == ("export",):
        assert f"policies for {NOW}" in (of_before / "bundle" / "README.md").read_text()


def test_a_policy_that_is_loaded_in_python_says_so_too(of_before: Path):
    with pytest.warns(UserWarning, match="was made when climb-multi was the name of climb-multi-mixed"):
        policy = load_policy(of_before)
    assert policy.start(0).act(np.zeros((2, policy.spec.obs_size), np.float32)).shape == (2,)


def test_whose_explorers_are_borrowed_is_said_before_anything_begins(
    of_before: Path, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(running, "_execute", lambda *_: 0)
    RunDirectory(of_before).set_status("done")
    words = ("run", "transfer", *SMOKE[1:], "--out", tmp_path / "run", "--quiet", "--method.explorers-from")
    assert command_line(*words, of_before) == 0
    assert told(of_before) in capsys.readouterr().out


def test_a_run_of_today_is_not_told_of(finished: Path, capsys):
    assert command_line("eval", finished, "--episodes", "1") == 0
    assert "was the name of" not in capsys.readouterr().out
