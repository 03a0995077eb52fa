"""The examples run as a reader would run them, and find what they say that they find."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mesax.cli.parser import main
from mesax.envs.adapters.pettingzoo_export import parallel_env

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


def test_explorers_of_a_climb_game_hit_five_times_as_often(tmp_path: Path):
    """The cheapest of them: explorers as the example trains them, few episodes for its learners."""
    result = run("your_learner.py", tmp_path / "run", "--seeds", "1", "--episodes", "20")
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"explorers are paid 1 ([\d.]+) times an episode", result.stdout)
    assert float(found[1]) >= 5 * 0.03  # three stages, and one of a hundred pairs pays at each
    assert result.stdout.count("reward per stage") == 3


@pytest.mark.parametrize("name", ["your_environment", "another_environment"])
def test_their_environments_fit(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert main(["env", "check", f"{name}:make", "--seeds", "2", "--steps", "100"]) == 0
    assert "it fits" in capsys.readouterr().out


class Nobody:
    """A mixer that leaves all episodes to the learner."""

    def choose(self, step: int) -> None:
        return None


def test_the_learner_from_elsewhere_learns_the_safe_reward_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("your_learner")
    env = parallel_env(example.FAMILY, 0)
    assert example.learn(env, Nobody(), "alone", seed=0, num_episodes=40) >= 0.5


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
    returns = {
        name: float(value) for name, value in re.findall(r"^(\w+) +reward per stage ([\d.]+)", result.stdout, re.M)
    }
    assert returns["explorers"] > max(returns["alone"], returns["random"]) + 0.02
