"""Meta-training of another run: test tasks that it has seen are told of, once and in one line."""

from dataclasses import replace
from pathlib import Path

import pytest

from mesax.baselines.controls import Plain
from mesax.baselines.counts import ActionKeys, CountReward
from mesax.baselines.maesn.method import Maesn
from mesax.baselines.pretrain import CBet, Pretrain, Pretraining
from mesax.execution import runner
from mesax.execution.run_experiment import _run_json
from mesax.experiments.borrowing import seen_in_training
from mesax.methods.base import Experiment, Method
from mesax.ours.transfer import Borrowed
from mesax.store.run_directory import RunDirectory
from methods.helpers import ONE_STEP, TINY, TINY_MADDPG, TWO_STAGE

BUDGET = Pretraining(400, 10)
# Three tasks in all: whoever has another test task than the lender has trained on it.
EXPERIMENT = Experiment(Pretrain(BUDGET), ONE_STEP, TINY_MADDPG, TINY, seed=0, num_train_tasks=2, num_test_tasks=1)


def described(experiment: Experiment, path: Path) -> Path:
    """A run directory that says what was run, and has nothing else."""
    return RunDirectory.create(path, _run_json(experiment, path, "pretrain", "tiny")).path


def borrowers(lender: Path) -> tuple[Method, ...]:
    return (
        Pretrain(BUDGET, pretrained_from=str(lender)),
        CBet(BUDGET, CountReward(ActionKeys(seen=1)), pretrained_from=str(lender)),
        Maesn(pretrained_from=str(lender)),
        Borrowed(str(lender)),
    )


def target(seed: int) -> int:
    return int(replace(EXPERIMENT, seed=seed).split.test.special[0, 0])


OTHER = next(seed for seed in range(1, 50) if target(seed) != target(0))
SAME = next(seed for seed in range(1, 50) if target(seed) == target(0))


@pytest.mark.parametrize("number", range(4))
def test_test_tasks_that_were_trained_on_are_counted(number: int, tmp_path: Path):
    lender = described(EXPERIMENT, tmp_path / "lender")
    borrowing = replace(EXPERIMENT, method=borrowers(lender)[number])
    assert seen_in_training(borrowing) is None, "the same seed: training and test tasks are disjoint"
    assert seen_in_training(replace(borrowing, seed=SAME)) is None
    told = seen_in_training(replace(borrowing, seed=OTHER))
    assert told is not None and told.startswith("1 of 1 test tasks are among the training tasks of lender, whose")
    assert told.endswith("(others: --seed 0 --num-train-tasks 2, as there)")


def test_it_is_the_run_that_was_trained_whose_tasks_count(tmp_path: Path):
    """A lender may itself have borrowed, under a seed of its own."""
    lender = described(EXPERIMENT, tmp_path / "lender")
    between = replace(EXPERIMENT, seed=OTHER, method=borrowers(lender)[0])
    borrowing = replace(between, method=borrowers(described(between, tmp_path / "between"))[0])
    assert "the training tasks of lender" in str(seen_in_training(borrowing))
    assert seen_in_training(replace(borrowing, seed=0)) is None


def test_where_nobody_can_tell_nothing_is_said(tmp_path: Path):
    lender = described(EXPERIMENT, tmp_path / "lender")
    borrowing = replace(EXPERIMENT, seed=OTHER, method=borrowers(lender)[0])
    assert seen_in_training(replace(borrowing, family=TWO_STAGE)) is None, "tasks of another world are others"
    assert seen_in_training(replace(borrowing, method=Plain())) is None
    (lender / "run.json").unlink()
    assert seen_in_training(borrowing) is None, "it is there no more"


def test_a_run_says_so_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    lender = described(EXPERIMENT, tmp_path / "lender")
    borrowing = replace(EXPERIMENT, seed=OTHER, method=borrowers(lender)[0])
    monkeypatch.setattr(runner, "_do_stages", lambda *rest: None)
    monkeypatch.setattr(runner, "merge", lambda *rest: {})
    runner.execute(RunDirectory(described(borrowing, tmp_path / "run")), borrowing, 1)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "test tasks" in line]
    assert line.startswith("mesax: 1 of 1 test tasks are among the training tasks of lender")
