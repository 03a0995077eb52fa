"""An explorers' reward of a user's own with every verb: run by workers, killed, resumed, looked at, exported."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mesax import ExplorersReward, load_explorers
from mesax.errors import USAGE, UsageError
from mesax.experiments.catalogue import experiment
from mesax.mesa.coverage import CoverageReward
from mesax.ours.learned_records import LearnedRecords
from mesax.ours.records import RecordReward, ToldCoverage
from mesax.store.run_directory import RunDirectory
from own.test_every_verb import here

HERE = Path(__file__).resolve().parents[2] / "examples"
REWARD = "own_parts.explorers:PaidActions"
SMALL = [
    *("--preset", "smoke", "--num-test-tasks", "2", "--num-train-tasks", "2", "--method.num-explorers", "2"),
    *("--method.reward", REWARD, "--method.reward.patience", "2", "--method.explorer.actor-net.hidden", "8"),
    *("--method.explorer.critic-net.hidden", "8", "--algorithm.actor-net.hidden", "8"),
]
LOAD = ["--load", "own_parts.explorers"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two workers that somebody killed in the middle."""
    path = tmp_path_factory.mktemp("reward") / "run"
    command = ["run", "mesa", "climb-one", *SMALL, "--out", str(path), "--workers", "2", "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "mesax.cli", *command], cwd=HERE) as process:
        first = path / "jobs" / "collect" / "000" / "done.json"
        while not first.exists() and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and first.exists()
    return path


@pytest.fixture(scope="module")
def answers(killed: Path) -> dict[str, tuple[int, str, str]]:
    """What every verb says of it."""
    commands: dict[str, list[object]] = {
        "resume without its module": ["resume", killed],
        "resume": ["resume", killed, *LOAD, "--workers", 1, "--json"],
        "eval": ["eval", killed, *LOAD, "--episodes", 2, "--json"],
        "render": ["render", killed, *LOAD, "--policy", "explorer-1"],
        **{verb: [verb, killed] for verb in ("report", "compare", "verify")},
        "export": ["export", killed, "--out", killed.parent / "bundle"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)
        patch.setattr(sys, "path", [*sys.path])
        patch.delitem(sys.modules, "own_parts.explorers", raising=False)
        said = {title: here(words) for title, words in commands.items()}
        patch.delitem(sys.modules, "own_parts.explorers", raising=False)
        return said


def test_without_its_module_it_says_what_to_type(killed: Path, answers):
    code, _, errors = answers["resume without its module"]
    assert code == USAGE
    (line,) = errors.splitlines()
    assert f"needs '{REWARD}' (method.reward), which" in line and line.endswith(
        f"type: mesax resume {killed} --load own_parts.explorers"
    )


@pytest.mark.parametrize("verb", ["resume", "eval", "render", "report", "compare", "verify", "export"])
def test_every_verb(answers, verb: str):
    code, _, errors = answers[verb]
    assert code == 0, errors


def test_explorers_are_trained_by_it_and_measured(killed: Path, answers):
    directory = RunDirectory.open(killed)
    assert directory.run["config"]["method"]["reward"] == {"type": REWARD, "patience": 2.0, "distance_threshold": 0.5}
    rows = [row for row in directory.read_rows("metrics.jsonl") if row["phase"] == "explore"]
    assert {row["policy"] for row in rows} <= {0, 1} and any(row["intrinsic_return"] > 0 for row in rows[:-1])
    # What it pays for is what truly pays, so that both figures are the same.
    assert all(row["clusters_visited"] == row["distinct_visits"] for row in rows)
    coverage = directory.read_json("coverage.json")
    assert coverage["leaks"]["precision"] == coverage["leaks"]["recall"] == 1.0
    assert (coverage["dataset_size"], coverage["plane"]) == (None, None) and coverage["clusters"] >= 2
    assert json.loads(answers["eval"][1].splitlines()[-1])["per_task"]


def test_explorers_travel_with_it(killed: Path, answers, monkeypatch: pytest.MonkeyPatch):
    bundle = killed.parent / "bundle"
    with pytest.raises(UsageError, match=r"import PaidActions from own_parts.explorers"):
        load_explorers(bundle)
    monkeypatch.syspath_prepend(HERE)
    own = importlib.import_module("own_parts.explorers")
    explorers = load_explorers(bundle, kinds=[own.PaidActions])
    action = explorers.start(seed=0, which=1).act(np.zeros((2, explorers.spec.obs_size)))
    assert action.shape == (2,) and explorers.recipe.reward == own.PaidActions(2.0)
    assert f"paid by {REWARD}" in (bundle / "README.md").read_text()


def test_ours_use_nothing_else(monkeypatch: pytest.MonkeyPatch):
    """Rewards of this package and of a user's own keep one contract."""
    monkeypatch.syspath_prepend(HERE)
    own = importlib.import_module("own_parts.explorers")
    for reward in (CoverageReward(), RecordReward(), ToldCoverage(), LearnedRecords(), own.PaidActions()):
        assert isinstance(reward, ExplorersReward)
    assert not isinstance(experiment("plain", "climb-one", "smoke").reward_model, ExplorersReward)
