"""An environment of a user's own with every verb: run by workers, killed, resumed, looked at, swept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from mesax import load_explorers
from mesax.errors import USAGE
from mesax.formatting import NOT_MEASURED
from mesax.store.run_directory import RunDirectory

HERE = Path(__file__).resolve().parent
ENV = "tiny_meeting:make"
SMALL = [
    *("--preset", "smoke", "--num-test-tasks", "2"),
    *("--method.explorer.algorithm.actor-net.hidden", "8", "--method.explorer.algorithm.critic-net.hidden", "8"),
    *("--method.explorer.algorithm.epochs", "1", "--method.explorer.algorithm.minibatches", "1"),
    *("--method.num-clusters", "4", "--num-train-tasks", "4", "--method.num-explorers", "1"),
]
LEARNER = ["--algorithm.algorithm.actor-net.hidden", "8", "--algorithm.algorithm.critic-net.hidden", "8"]


def mesax(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mesax.cli", *map(str, words)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)


IN_TURN = """
import contextlib, io, json, sys
from mesax.cli.parser import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    print(json.dumps([code, output.getvalue(), errors.getvalue()]))
"""


def in_turn(*commands: list[object]) -> list[tuple[int, str, str]]:
    """Several commands in one process, which spares the others their imports: exit code, output and errors of each."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    result = subprocess.run(
        [sys.executable, "-c", IN_TURN, words], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [tuple(json.loads(line)) for line in result.stdout.splitlines()]


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


@pytest.fixture(scope="module")
def run(killed: Path) -> Path:
    """The same, gone on with to its end."""
    result = mesax("resume", killed, "--load", "tiny_meeting", "--workers", 2, "--json")
    assert result.returncode == 0, result.stderr
    assert f"distinct visits {NOT_MEASURED}" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["run_dir"] == str(killed)
    return killed


def test_without_its_module_it_says_what_to_type(killed: Path):
    result = mesax("resume", killed)
    assert result.returncode == USAGE
    (line,) = result.stderr.splitlines()
    needed = f"type: mesax resume {killed} --load tiny_meeting"
    assert "needs 'tiny_meeting:make', which is not part of mesax" in line and line.endswith(needed)


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


def test_eval(run: Path):
    without, (code, output, errors) = in_turn(
        ["eval", run], ["eval", run, "--load", "tiny_meeting", "--episodes", 3, "--json"]
    )
    assert without[0] == USAGE
    assert code == 0, errors
    assert len(json.loads(output.splitlines()[-1])["per_task"]) == 2


def test_render(run: Path):
    policies = ("final", "explorer-1")
    shown = in_turn(*(["render", run, "--load", "tiny_meeting", "--policy", policy] for policy in policies))
    for policy, (code, output, errors) in zip(policies, shown, strict=True):
        assert code == 0, errors
        drawn = [Path(line.split(maxsplit=1)[1]).name for line in output.splitlines()]
        base = f"episode-task-00-{policy}"
        assert drawn == [f"{base}.png", f"{base}.svg", f"{base}.gif", f"{base}-environment.gif"]
        assert all((run / "figures" / name).stat().st_size > 5_000 for name in drawn[:3])
        with Image.open(run / "figures" / drawn[3]) as film:
            assert film.size == (16, 16)  # as the environment draws itself


def test_report_compare_and_verify_need_no_module(run: Path):
    shown = in_turn(["report", run], ["compare", run], ["verify", run])
    assert [code for code, _, _ in shown] == [0] * 3, shown
    page = (run / "report.html").read_text(encoding="utf-8")
    assert ENV in page and NOT_MEASURED in page
    assert "the paper's configuration" not in page and "is no environment of the paper" in page
    assert "mean of the last 3 evaluations" in page and "last 5" not in page
    assert "mean of the last 3 evaluations" in " ".join(shown[1][1].split())


def test_export(run: Path, tmp_path: Path):
    result = mesax("export", run, "--out", tmp_path / "bundle")
    assert result.returncode == 0, result.stderr
    explorers = load_explorers(tmp_path / "bundle")
    assert explorers.spec.num_agents == 2 and explorers.about["env"] == ENV
    assert NOT_MEASURED in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")


def test_sweep(tmp_path: Path):
    out = tmp_path / "sweep"
    words = ["sweep", "--methods", "plain", "--envs", ENV, "--preset", "smoke", "--out", out, "--workers", 1, *LEARNER]
    plan, (code, output, errors) = in_turn([*words, "--plan"], [*words, "--quiet", "--json"])
    assert (plan[0], code) == (0, 0), errors
    (done,) = json.loads(output.splitlines()[-1])["runs"]
    assert done["ending"] == "done" and ":" not in Path(done["run_dir"]).name
