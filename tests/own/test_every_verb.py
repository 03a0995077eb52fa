"""An environment of a user's own with every verb: run by workers, killed, resumed, looked at, swept."""

import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from execution.test_runner import command_line
from mesax import load_explorers, load_policy
from mesax.errors import USAGE, UsageError
from mesax.execution import sweep
from mesax.formatting import NOT_MEASURED
from mesax.store.run_directory import RunDirectory

HERE = Path(__file__).resolve().parent
ENV = "tiny_meeting:make"
SMALL = [
    *("--preset", "smoke", "--num-test-tasks", "2"),
    *("--method.explorer.algorithm.actor-net.hidden", "8", "--method.explorer.algorithm.critic-net.hidden", "8"),
    *("--method.explorer.algorithm.epochs", "1", "--method.explorer.algorithm.minibatches", "1"),
    *("--method.reward.num-clusters", "4", "--num-train-tasks", "4", "--method.num-explorers", "1"),
]
LEARNER = ["--algorithm.algorithm.actor-net.hidden", "8", "--algorithm.algorithm.critic-net.hidden", "8"]


def here(words: list[object]) -> tuple[int, str, str]:
    """A command in this process: exit code, output and errors."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = command_line(*words)
    return code, output.getvalue(), errors.getvalue()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two workers that somebody killed in the middle."""
    path = tmp_path_factory.mktemp("own") / "run"
    command = ["run", "mesa", ENV, *SMALL, *LEARNER, "--out", str(path), "--workers", "2", "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "mesax.cli", *command], cwd=HERE, start_new_session=True) as process:
        first = path / "jobs" / "collect" / "000" / "done.json"
        while not first.exists() and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and first.exists()
    return path


POLICIES = ("final", "explorer-1")


@pytest.fixture(scope="module")
def answers(killed: Path) -> dict[str, tuple[int, str, str]]:
    """What every verb says of the killed run, which is gone on with to its end; and of a sweep beside it."""
    load = ["--load", "tiny_meeting"]
    swept = ["sweep", "--methods", "plain", "--envs", ENV, "--preset", "smoke", "--out", killed.parent / "sweep"]
    swept += ["--workers", 1, *LEARNER]
    commands: dict[str, list[object]] = {
        "resume without its module": ["resume", killed],
        "resume": ["resume", killed, *load, "--workers", 1, "--json"],
        "eval without its module": ["eval", killed],
        "eval": ["eval", killed, *load, "--episodes", 3, "--json"],
        **{f"render {policy}": ["render", killed, *load, "--policy", policy] for policy in POLICIES},
        **{verb: [verb, killed] for verb in ("report", "compare", "verify")},
        "export": ["export", killed, "--out", killed.parent / "bundle"],
        "sweep --plan": [*swept, "--plan"],
        "sweep": [*swept, "--quiet", "--json"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)  # where the module is
        patch.setattr(sys, "path", [*sys.path])
        patch.delitem(sys.modules, "tiny_meeting", raising=False)
        # `execution/test_sweep.py` starts them for real.
        patch.setattr(
            sweep, "_attempt", lambda run, *_: (command_line(*run.command, "--workers", 1, "--quiet"), "told")
        )
        said = {title: here(words) for title, words in commands.items()}
        patch.delitem(sys.modules, "tiny_meeting")
        return said


@pytest.fixture(scope="module")
def run(killed: Path, answers: dict[str, tuple[int, str, str]]) -> Path:
    """The same, gone on with to its end."""
    code, output, errors = answers["resume"]
    assert code == 0, errors
    assert f"distinct rewarding places {NOT_MEASURED}" in errors
    assert json.loads(output.splitlines()[-1])["run_dir"] == str(killed)
    return killed


@pytest.mark.parametrize("verb", ["resume", "eval"])
def test_without_its_module_it_says_what_to_type(killed: Path, answers, verb: str):
    code, _, errors = answers[f"{verb} without its module"]
    assert code == USAGE
    (line,) = errors.splitlines()
    needed = f"type: mesax {verb} {killed} --load tiny_meeting"
    assert "needs 'tiny_meeting:make' (family.env.make), which is not part of mesax" in line and line.endswith(needed)


def test_from_python_it_says_what_to_pass(run: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=r"'tiny_meeting:make'.*: import tiny_meeting, .*modules=\[tiny_meeting\]"):
        load_policy(run)
    with pytest.raises(UsageError, match="not their names: import them first"):
        load_policy(run, modules=["tiny_meeting"])
    monkeypatch.syspath_prepend(HERE)
    learned = load_policy(run, modules=importlib.import_module("tiny_meeting"))
    assert learned.start().act(np.zeros((2, 4))).shape == (2,)


def test_it_is_killed_and_resumed(run: Path):
    directory = RunDirectory.open(run)
    assert directory.status == "done"
    assert directory.run["env"] == ENV and directory.run["modules"] == ["tiny_meeting"]
    assert directory.run["request"]["env"] == ENV and directory.run["suite"] == "foreign"
    assert directory.run["config"]["family"]["env"]["make"] == ENV
    assert len(directory.read_rows("clock.jsonl")) == 1  # the killed attempt could not write its own


def test_what_nobody_could_measure_is_null(run: Path):
    """Nobody said what truly pays in this world; what was paid is known."""
    directory = RunDirectory.open(run)
    found = [row for row in directory.read_rows("metrics.jsonl") if row.get("high_reward_pairs")]
    assert found and all(row["reward_threshold"] is not None for row in found)
    coverage = directory.read_json("coverage.json")
    assert [visitor["distinct_visits"] for visitor in coverage["visitors"]] == [None] * 3
    assert all(visitor["high_reward_steps"] is not None for visitor in coverage["visitors"])
    assert coverage["leaks"]["precision"] is None and coverage["leaks"]["rewarding_steps"] is None
    assert directory.read_json("summary.json")["explorers"]["visitors"]["uniform"]["distinct_visits"] is None


def test_eval(answers):
    code, output, errors = answers["eval"]
    assert code == 0, errors
    assert len(json.loads(output.splitlines()[-1])["per_task"]) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_render(run: Path, answers, policy: str):
    code, output, errors = answers[f"render {policy}"]
    assert code == 0, errors
    drawn = [Path(line.split(maxsplit=1)[1]).name for line in output.splitlines()]
    base = f"episode-task-00-{policy}"
    assert drawn == [f"{base}.png", f"{base}.svg", f"{base}.gif", f"{base}-environment.gif"]
    assert all((run / "figures" / name).stat().st_size > 5_000 for name in drawn[:3])
    with Image.open(run / "figures" / drawn[3]) as film:
        assert film.size == (16, 16)  # as the environment draws itself


def test_report_compare_and_verify_need_no_module(run: Path, answers):
    shown = {verb: answers[verb] for verb in ("report", "compare", "verify")}
    assert [code for code, _, _ in shown.values()] == [0] * 3, shown
    page = (run / "report.html").read_text(encoding="utf-8")
    assert ENV in page and NOT_MEASURED in page
    assert "the paper's configuration" not in page and "is no environment of the paper" in page
    assert "its last evaluation" in page and "last 5" not in page
    assert "its last evaluation" in " ".join(shown["compare"][1].split())


def test_export(run: Path, answers):
    code, _, errors = answers["export"]
    assert code == 0, errors
    explorers = load_explorers(run.parent / "bundle")
    assert explorers.spec.num_agents == 2 and explorers.about["env"] == ENV
    assert NOT_MEASURED in (run.parent / "bundle" / "README.md").read_text(encoding="utf-8")


def test_sweep(answers):
    assert answers["sweep --plan"][0] == 0
    code, output, errors = answers["sweep"]
    assert code == 0, errors
    (done,) = json.loads(output.splitlines()[-1])["runs"]
    assert done["ending"] == "done" and ":" not in Path(done["run_dir"]).name
