"""The parts of `examples/own_parts` with every verb: run by workers, killed, resumed, looked at, exported."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mesax import load_explorers, load_policy
from mesax.errors import USAGE, UsageError
from mesax.store.run_directory import RunDirectory
from own.test_every_verb import here

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NET, REWARD, METHOD = "own_parts.nets:Residual", "own_parts.rewards:Rare", "own_parts.methods:Together"
SMALL = [
    *("--preset", "smoke", "--num-test-tasks", "2", "--num-train-tasks", "2", "--lanes", "1"),
    *("--algorithm.actor-net", NET, "--algorithm.actor-net.width", "8", "--reward-model", REWARD),
]
EXPLORERS = ["--method.explorer.actor-net", NET, "--method.explorer.critic-net", NET]
FEW = ["--method.reward.num-clusters", "2", "--method.num-explorers", "1"]
LOAD = ["--load", "own_parts.nets", "--load", "own_parts.rewards"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MESA around a learner and explorers with that net, paid by that model; its two workers were killed."""
    path = tmp_path_factory.mktemp("parts") / "run"
    command = ["run", "mesa", "climb-one", *SMALL, *EXPLORERS, *FEW, "--out", str(path), "--workers", "2", "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "mesax.cli", *command], cwd=EXAMPLES) as process:
        first = path / "jobs" / "collect" / "000" / "done.json"
        while not first.exists() and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and first.exists()
    return path


@pytest.fixture(scope="module")
def answers(killed: Path) -> dict[str, tuple[int, str, str]]:
    """What every verb says of the run, which is gone on with to its end, and of a run with that method."""
    together = killed.parent / "together"
    commands: dict[str, list[object]] = {
        "resume without a module": ["resume", killed],
        "resume": ["resume", killed, *LOAD, "--workers", 2, "--json"],
        "eval": ["eval", killed, *LOAD, "--episodes", 2, "--json"],
        "render": ["render", killed, *LOAD, "--policy", "explorer-1"],
        "report": ["report", killed, *LOAD],
        "export": ["export", killed, "--out", killed.parent / "bundle"],
        "run": ["run", METHOD, "climb-one", *SMALL, "--out", together, "--workers", 1, "--quiet"],
        "compare": ["compare", killed, together],
        "list": ["list", METHOD, "climb-one"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(EXAMPLES)
        patch.setattr(sys, "path", [*sys.path])
        return {title: here(words) for title, words in commands.items()}


def test_without_its_modules_it_says_what_to_type(killed: Path, answers):
    code, _, errors = answers["resume without a module"]
    assert code == USAGE
    (line,) = errors.splitlines()
    assert f"needs '{NET}' (method.explorer.actor-net), which is not part of mesax" in line
    assert line.endswith(f"type: mesax resume {killed} {' '.join(LOAD)}")


@pytest.mark.parametrize("verb", ["resume", "eval", "render", "report", "export", "run", "compare", "list"])
def test_every_verb(answers, verb: str):
    code, _, errors = answers[verb]
    assert code == 0, errors


def test_the_run_is_what_was_asked_for(killed: Path, answers):
    run = RunDirectory.open(killed).run
    assert run["modules"] == ["own_parts.nets", "own_parts.rewards"]
    assert run["config"]["algorithm"]["actor_net"] == {"type": NET, "width": 8, "depth": 2}
    rows = RunDirectory.open(killed).read_rows("metrics.jsonl")
    paid = [row["learnt_return"] - row["train_return"] for row in rows if row["phase"] == "adapt"]
    assert paid and min(paid) > 0, "the bonus is learned from"
    assert "own_parts.methods.Together" in answers["compare"][1].replace(":", ".")


def test_policies_play_elsewhere(killed: Path, answers):
    with pytest.raises(UsageError, match=r"import own_parts"):
        load_policy(killed)
    nets = importlib.import_module("own_parts.nets")
    learned = load_policy(killed, modules=[nets, importlib.import_module("own_parts.rewards")])
    obs = np.zeros((2, learned.spec.obs_size), np.float32)
    assert learned.start().act(obs).shape == (2,)
    explorers = load_explorers(killed.parent / "bundle", kinds=[nets.Residual])
    assert explorers.start(seed=0).act(obs).shape == (2,)


def test_list_shows_its_settings(answers):
    assert f"Settings of {METHOD}" in answers["list"][1] and "--method.mixing.probability" in answers["list"][1]
