"""MA-MAESN as a method: meta-training that can be stopped anywhere, budgets that are MESA's, what is refused."""

import json
from dataclasses import replace
from itertools import product

import pytest

from execution.test_resume import determined, do
from mesax.baselines.maesn.learner import LatentPolicyGradient
from mesax.baselines.maesn.method import LEARNED, Maesn, meta_training_steps
from mesax.cli.parser import main
from mesax.envs.climb import ClimbFamily
from mesax.errors import USAGE, TrainingError, UsageError
from mesax.execution.run_experiment import run_experiment
from mesax.execution.saved_policies import evaluate_run
from mesax.experiments.catalogue import experiment as named
from mesax.experiments.names import ENVIRONMENTS, PRESETS
from mesax.methods.base import Experiment
from mesax.nets import Adam, Mlp
from mesax.store.run_directory import RunDirectory
from mesax.store.trees import read_manifest
from mesax.training.schedule import Budget
from methods.helpers import MemoryServices, announced_and_given, run

FAMILY = ClimbFamily(2, 3, 2, counts=(1,))
LEARNER = LatentPolicyGradient(Mlp((4,)), 1, epochs=1, adapt_rounds=1)
METHOD = Maesn(240, 4)
EXPERIMENT = Experiment(
    METHOD, FAMILY, LEARNER, Budget(80, 5, 4), seed=3, num_train_tasks=3, num_test_tasks=2, eval_episodes=2, lanes=2
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("maesn") / "run"
    run_experiment(EXPERIMENT, path, "maesn", quiet=True)
    return RunDirectory(path)


def test_a_run_meta_trains_adapts_and_plays_again(finished):
    rows = [json.loads(line) for line in (finished.path / "metrics.jsonl").read_text().splitlines()]
    meta = [row for row in rows if row["phase"] == "meta"]
    plan = METHOD.plan(EXPERIMENT)
    assert plan.steps == 240 and plan.num_chunks == 5
    assert [row["step"] for row in meta] == [48, 96, 144, 192, 240]
    assert {"return_before", "return_after", "divergence", "step_size", "latent_std", "meta_loss"} <= set(meta[0])
    assert read_manifest(finished.path / "policies" / LEARNED)["facts"] == {"steps": 240}
    adapting = [row["adapting"] for row in rows if row["phase"] == "adapt" and row["task"] == 0 and "adapting" in row]
    assert adapting[0] > adapting[-1] == 0.0
    assert len(evaluate_run(finished, EXPERIMENT, 2, 0)) == 2


def test_what_test_tasks_begin_with_is_as_announced(finished, monkeypatch):
    announced, given = announced_and_given(EXPERIMENT, MemoryServices(finished.path / "jobs"), monkeypatch)
    assert announced == given


def test_it_goes_on_to_the_same_bytes(finished, tmp_path, monkeypatch):
    """Stopped at every second pause of every job; meta-training pauses five times."""
    stops = do(EXPERIMENT, tmp_path / "stopped", monkeypatch, stop_at=2)
    stopped = {name: data for name, data in determined(tmp_path / "stopped").items() if name.startswith("jobs")}
    whole = {name: data for name, data in determined(finished.path).items() if name.startswith("jobs")}
    assert stops >= 4 and stopped == whole and any("meta" in name for name in whole)


def test_meta_training_can_be_borrowed(finished, tmp_path):
    borrowing = replace(EXPERIMENT, method=replace(METHOD, pretrained_from=str(finished.path)))
    borrowing.method.check(borrowing)
    assert [stage.name for stage in borrowing.method.stages(borrowing)] == ["borrow", "adapt"]
    host = run(borrowing, tmp_path)
    rows = [json.loads(line) for line in (finished.path / "eval.jsonl").read_text().splitlines()]
    ours, theirs = (
        sorted((row["task"], row["step"], row["return"]) for row in evaluated) for evaluated in (host.eval, rows)
    )
    assert ours == theirs
    for settings in ({"algorithm": replace(LEARNER, latent_size=2)}, {"num_train_tasks": 4}):
        other = replace(borrowing, **settings)
        with pytest.raises(UsageError, match="does not fit this environment or these settings"):
            other.method.check(other)
    nothing = replace(borrowing, method=replace(METHOD, pretrained_from=str(tmp_path)))
    with pytest.raises(UsageError, match="no finished run of maesn"):
        nothing.method.check(nothing)


@pytest.mark.parametrize("env, preset", list(product(ENVIRONMENTS, PRESETS)))
def test_meta_training_takes_as_many_steps_as_mesa(env, preset):
    entry, mesa = named("maesn", env, preset), named("mesa", env, preset)
    assert entry.method.plan(entry).steps == pytest.approx(meta_training_steps(mesa), rel=0.05)
    assert entry.num_train_tasks == mesa.num_train_tasks


def test_from_scratch_there_is_nothing_before_the_test_tasks():
    scratch = replace(EXPERIMENT, method=Maesn(0))
    scratch.method.check(scratch)
    assert [stage.name for stage in scratch.method.stages(scratch)] == ["adapt"]


def test_numbers_that_are_not_finite_stop_it(tmp_path):
    wild = replace(EXPERIMENT, algorithm=replace(LEARNER, meta_optimizer=Adam(float("inf"))))
    with pytest.raises(TrainingError, match=r"meta-training: .* is not finite by step 48; stopped"):
        run(wild, tmp_path, "meta")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["swimmer-wide"],
            "maesn meta-trains in JAX, and SwimmerClimb is stepped by the host: use an environment in JAX",
        ),
        (["climb-one", "--learner", "qmix"], "'maesn' brings its own learner: --learner goes with mesa"),
        (["climb-one", "--method.episodes", "1"], "episodes must be at least 2"),
        (["climb-one", "--method.steps", "-1"], "steps must be at least 0, not -1"),
        (["climb-one", "--schedule.num-envs", "1"], "num-envs must be at least 2, not 1"),
        (["climb-one", "--algorithm.latent-size", "0"], "--algorithm.adapts weights"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(arguments, message, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", "maesn", *arguments, "--preset", "smoke", "--out", str(out)]) == USAGE
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not out.exists()


def test_another_learner_is_refused():
    other = replace(named("mappo", "climb-one", "smoke"), method=METHOD)
    with pytest.raises(UsageError, match="Mappo cannot be meta-trained so"):
        other.method.check(other)
