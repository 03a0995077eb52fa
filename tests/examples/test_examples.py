"""The examples run as a reader would run them, and find what they say that they find."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mesax
from execution.test_runner import finished_run
from mesax.bridges.environments.pettingzoo_export import parallel_env
from mesax.cli.parser import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=out.parent)


def factor_of(result: subprocess.CompletedProcess[str]) -> float:
    found = re.search(r"unseen tasks explorers hit the reward ([\d.]+) times as often", result.stdout)
    assert found, result.stdout + result.stderr
    return float(found[1])


@pytest.mark.parametrize("name", ["your_environment", "another_environment"])
def test_they_say_what_can_be_changed(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(name).main()
    assert "--explore-steps" in capsys.readouterr().out


@pytest.fixture
def your_learner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("your_learner")


def test_a_learner_from_elsewhere_meets_explorers(
    your_learner: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    """All of the example but its own training, which is begun: the explorers are those of a run for other tests."""
    asked = []

    def run_experiment(experiment: mesax.Experiment, path: Path, **about: str) -> dict[str, Any]:
        experiment.method.check(experiment)
        asked.append((experiment.family, path, about))
        return json.loads((path / "summary.json").read_text())

    path = finished_run(tmp_path_factory)
    monkeypatch.setattr(mesax, "run_experiment", run_experiment)
    monkeypatch.setattr(your_learner, "STAGES", 1)
    monkeypatch.setattr(your_learner, "FAMILY", mesax.ClimbFamily(num_actions=your_learner.ACTIONS))
    monkeypatch.setattr(sys, "argv", ["your_learner.py", "--out", str(path), "--seeds", "1", "--episodes", "20"])
    your_learner.main()
    shown = capsys.readouterr().out
    assert asked == [(your_learner.FAMILY, path, {"env": "climb-pairs"})]
    assert re.search(r"explorers are paid 1 [\d.]+ times an episode, random play [\d.]+ times", shown)
    assert re.findall(r"^(\w+) +reward per stage .* over 4 learners", shown, re.M) == ["alone", "random", "explorers"]


@pytest.mark.parametrize("name", ["your_environment", "another_environment"])
def test_their_environments_fit(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert main(["env", "check", f"{name}:make", "--seeds", "2", "--steps", "100"]) == 0
    assert "it fits" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["your_environment", "another_environment"])
def test_their_experiments_can_be_run(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    experiment = importlib.import_module(name).experiment(0, 20_000)
    experiment.check()
    assert [stage.name for stage in experiment.method.stages(experiment)] == ["collect", "explore", "gather", "adapt"]


class Nobody:
    """A mixer that leaves all episodes to the learner."""

    def choose(self, step: int) -> None:
        return None


def test_the_learner_from_elsewhere_learns_the_safe_reward_at_once(your_learner: ModuleType):
    env = parallel_env(your_learner.FAMILY, 0)
    assert your_learner.learn(env, Nobody(), "alone", seed=0, num_episodes=40) >= 0.5


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["your_environment.py", "another_environment.py"])
def test_explorers_hit_five_times_as_often(name: str, tmp_path: Path):
    result = run(name, tmp_path / "run")
    assert result.returncode == 0, result.stdout + result.stderr
    assert factor_of(result) >= 5.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_learner_from_elsewhere_gains_from_explorers(tmp_path: Path):
    result = run("your_learner.py", tmp_path / "run")
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"explorers are paid 1 ([\d.]+) times an episode", result.stdout)
    assert float(found[1]) >= 5 * 0.03  # three stages, and one of a hundred pairs pays at each
    returns = {
        name: float(value) for name, value in re.findall(r"^(\w+) +reward per stage ([\d.]+)", result.stdout, re.M)
    }
    assert returns["explorers"] > max(returns["alone"], returns["random"]) + 0.02
