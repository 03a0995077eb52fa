"""Experiments without a name: run, continued, refused; and the scripts of docs/your-own.md."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mesax.baselines.controls import Plain
from mesax.bridges.environments.family import ForeignFamily
from mesax.cli.parser import main
from mesax.errors import USAGE, UsageError
from mesax.execution import runner
from mesax.execution.run_experiment import _run_json, run_experiment
from mesax.experiments.request import Request, run_json
from mesax.methods.base import Experiment
from mesax.results.labels import method_label
from mesax.store.json_values import signed
from mesax.store.reading import load_run
from mesax.store.run_directory import RunDirectory
from methods.helpers import ONE_STEP, TINY, TINY_MADDPG
from paper.envs.matrix import MatrixGame

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-own.md"
OWN = Experiment(Plain(), ONE_STEP, TINY_MADDPG, TINY, num_train_tasks=1, num_test_tasks=2, lanes=2)


def test_a_run_is_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Environments that it has opened are closed when all is saved: closing may hang."""
    closed_when = []
    copies = SimpleNamespace(close=lambda: closed_when.append(RunDirectory.open(tmp_path / "run").status))
    monkeypatch.setattr(runner, "running", copies)
    summary = run_experiment(OWN, tmp_path / "run", method="plain", env="tiny", quiet=True)
    assert RunDirectory.open(tmp_path / "run").status == "done"
    loaded = load_run(tmp_path / "run")
    assert (loaded.run["method"], loaded.run["env"], loaded.run["preset"]) == ("plain", "tiny", "own")
    assert len(summary["per_task"]) == 2 and closed_when == ["done"]


def test_it_says_what_a_named_run_says():
    request = Request("plain", "climb-one", "smoke")
    named = run_json(request, request.experiment(), ())
    own = _run_json(request.experiment(), Path("runs/x"), "plain", "climb-one")
    assert named.keys() - own.keys() == {"request", "overrides", "suite"}
    for name in ("config", "config_hash", "family", "train_tasks", "test_tasks", "versions"):
        assert own[name] == named[name]


def test_the_same_experiment_is_continued_and_another_refused(tmp_path: Path):
    first = run_experiment(OWN, tmp_path / "run", quiet=True)
    assert (first["method"], method_label(load_run(tmp_path / "run").run)) == ("plain", "plain")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    assert run_experiment(OWN, str(tmp_path / "run"), quiet=True) == json.loads(json.dumps(first))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before
    with pytest.raises(UsageError, match="holds another experiment"):
        run_experiment(replace(OWN, seed=1), tmp_path / "run", quiet=True)


def test_a_stopped_run_goes_on_with_its_finished_jobs(tmp_path: Path):
    own = replace(OWN, lanes=1)
    first = run_experiment(own, tmp_path / "run", quiet=True)
    run = RunDirectory.open(tmp_path / "run")
    (run.job_directory("adapt", 1) / "done.json").unlink()
    run.set_status("preempted")
    kept = (run.job_directory("adapt", 0) / "done.json").stat().st_mtime_ns
    again = run_experiment(own, tmp_path / "run", quiet=True)
    assert again["per_task"] == first["per_task"]
    assert (run.job_directory("adapt", 0) / "done.json").stat().st_mtime_ns == kept


def test_a_run_whose_tasks_are_drawn_otherwise_now_learns_no_more_but_can_be_merged(tmp_path: Path):
    own = replace(OWN, family=ForeignFamily(MatrixGame(), 1.0))
    first = run_experiment(own, tmp_path / "run", quiet=True)
    run = RunDirectory.open(tmp_path / "run")
    run.unseal()
    elsewhere = [task | {"target": [[9]]} for task in run.run["test_tasks"]]
    run.write_json("run.json", signed(run.run | {"test_tasks": elsewhere, "git_commit": "another"}))
    run.set_status("failed")
    assert run_experiment(own, run.path, quiet=True)["mean_return"] == first["mean_return"]
    (run.job_directory("adapt", 0) / "done.json").unlink()
    run.set_status("preempted")
    with pytest.raises(UsageError, match="its test tasks are drawn otherwise now; run it anew"):
        run_experiment(own, run.path, quiet=True)


@dataclass(frozen=True)
class With:
    """A method with a function among its settings."""

    function: Any

    def check(self, experiment: Experiment) -> None:
        Plain().check(experiment)

    def stages(self, experiment: Experiment) -> tuple:
        return Plain().stages(experiment)


def one(seed):
    return seed


def other(seed):
    return seed


def test_functions_count_by_their_names(tmp_path: Path):
    run_experiment(replace(OWN, method=With(one)), tmp_path / "run", quiet=True)
    run_experiment(replace(OWN, method=With(one)), tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="holds another experiment"):
        run_experiment(replace(OWN, method=With(other)), tmp_path / "run", quiet=True)


def factory(number):
    def make(seed):
        return number

    return make


def test_what_one_function_makes_is_not_taken_for_another(tmp_path: Path):
    """It goes by one name: whose run is there, nobody can tell; a directory of its own is all that it takes."""
    directory = RunDirectory.create(
        tmp_path / "run", _run_json(replace(OWN, method=With(factory(1))), tmp_path, "", "")
    )
    for function in (factory(2), factory(1)):
        with pytest.raises(UsageError, match=r"whether .* cannot be known: With\.function goes by a name that others"):
            run_experiment(replace(OWN, method=With(function)), directory.path, quiet=True)
    run_experiment(replace(OWN, method=With(lambda seed: seed)), tmp_path / "another", quiet=True)


def test_what_has_no_plain_form_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"a object cannot be a setting \(With\.function\): use numbers, text"):
        run_experiment(replace(OWN, method=With(object())), tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match=r"a PosixPath cannot be a setting \(With\.function\)"):
        run_experiment(replace(OWN, method=With(tmp_path)), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_cluster_by_its_name_alone_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^on must be mesax\.OnRay\(\.\.\.\), not 'ray'$"):
        run_experiment(OWN, tmp_path / "run", on="ray")  # type: ignore[arg-type]


def test_what_workers_cannot_rebuild_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"cannot be rebuilt from its settings .*workers=1 can do without"):
        run_experiment(replace(OWN, method=With(lambda seed: seed)), tmp_path / "run", workers=2)
    with pytest.raises(UsageError, match="workers must be at least 1, not 0"):
        run_experiment(OWN, tmp_path / "run", workers=0)
    assert not (tmp_path / "run").exists()


SCRIPT = '''
"""A learner and a family of a user's own, in a script."""
import dataclasses

from mesax.algorithms.actor_updates import ExpectedGradient
from mesax.algorithms.maddpg import Maddpg
from mesax.envs.climb import ClimbFamily
from mesax.execution.run_experiment import run_experiment
from mesax.methods.base import Experiment
from mesax.baselines.controls import Plain
from mesax.nets import Adam, Mlp
from mesax.training.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class MyLearner(Maddpg):
    spice: float = 0.25


@dataclasses.dataclass(frozen=True)
class MyFamily(ClimbFamily):
    nickname: str = "mine"


SETTINGS = Schedule(400, 10, 2, 200, 1, 4, 100)
learner = MyLearner(Mlp((8,)), Mlp((8,)), actor_update=ExpectedGradient(), actor_optimizer=Adam(5e-3))
experiment = Experiment(Plain(), MyFamily(num_actions=4), learner, SETTINGS, 0, 1, 2, lanes=1)
if {condition}:
    for workers, name in {runs}:
        run_experiment(experiment, name, env="mine", workers=workers, quiet=True)
'''


def run_script(folder: Path, runs: list[tuple[int, str]], condition: str = '__name__ == "__main__"'):
    """One run after another, each by so many workers and of this name."""
    (folder / "mine.py").write_text(SCRIPT.format(runs=runs, condition=condition))
    return subprocess.run([sys.executable, "mine.py"], cwd=folder, capture_output=True, text=True, check=False)


def test_classes_of_a_script_work_in_two_processes(tmp_path: Path, capsys, monkeypatch):
    """The same bytes as in one: that of the command line, which continues such a run with the script loaded."""
    result = run_script(tmp_path, [(2, "two")])
    assert result.returncode == 0, result.stderr
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    one, two = (RunDirectory.open(tmp_path / name) for name in ("one", "two"))
    assert two.run["config"]["algorithm"]["type"] == "mine:MyLearner" and two.run["modules"] == ["mine.py"]
    shutil.rmtree(one.path / "jobs")
    rows = {name: (one.path / name).read_bytes() for name in ("eval.jsonl", "metrics.jsonl")}
    one.unseal()
    one.set_status("preempted")
    assert main(["resume", str(one.path), "--quiet"]) == USAGE
    assert f"type: mesax resume {one.path} --quiet --load mine.py" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", None)  # so that it is taken away again
    del sys.modules["mine"]
    assert main(["resume", "one", "--load", "mine.py", "--workers", "1", "--quiet"]) == 0
    for name, expected in rows.items():
        assert (one.path / name).read_bytes() == expected
    assert (one.job_directory("adapt", 1) / "done.json").exists()


def test_a_script_that_works_whenever_it_is_loaded_is_one_line(tmp_path: Path):
    result = run_script(tmp_path, [(2, "run")], "True")
    assert result.returncode == 1
    assert "UsageError: adapt job" in result.stderr and 'under if __name__ == "__main__":' in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_scripts_of_the_page_run(tmp_path: Path):
    """All of them as they stand there, with smaller budgets."""
    scripts = re.findall(r"`(\w+\.py)`: .*?\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in scripts] == ["meeting.py", "run_meeting.py"]
    for name, text in scripts:
        (tmp_path / name).write_text(text.replace("20_000, warmup_steps=2_000", "2_000, warmup_steps=1_000"))
    result = subprocess.run(
        [sys.executable, "run_meeting.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert {run.name for run in (tmp_path / "runs").iterdir()} == {"meeting-mesa"}
