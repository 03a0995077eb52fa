"""MESA with structured explorers on a game so small that what they should visit is known exactly."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from execution.test_resume import determined, do
from mesax import load_explorers
from mesax.baselines.controls import Diagonal
from mesax.envs.climb import ClimbFamily
from mesax.errors import TrainingError, UsageError
from mesax.execution.run_experiment import run_experiment
from mesax.execution.saved_policies import play_policy
from mesax.experiments.catalogue import experiment as named
from mesax.explorers.bundle import export_run
from mesax.explorers.places import EXPLORERS
from mesax.mesa.collect import Threshold
from mesax.methods.base import Experiment
from mesax.ours.shared_latent import SharedLatent
from mesax.ours.structured import StructuredMesa
from mesax.policy import SameActionPolicy
from mesax.store.reading import read_coverage
from mesax.store.run_directory import RunDirectory
from mesax.store.trees import verify
from mesax.types import Discrete
from methods.helpers import TINY, IndependentQ, MemoryServices, announced_and_given, run

FAMILY = ClimbFamily(2, 5, 2, counts=(2,))
METHOD = StructuredMesa(
    SharedLatent(num_updates=95, batch_size=128), collect=replace(TINY, warmup_steps=600), coverage_steps=4000
)
EXPERIMENT = Experiment(
    METHOD, FAMILY, IndependentQ(), TINY, seed=2, num_train_tasks=4, num_test_tasks=2, eval_episodes=2, lanes=2
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("structured") / "run"
    run_experiment(EXPERIMENT, path, "structured", quiet=True)
    return RunDirectory(path)


def test_explorers_agree_on_actions_that_never_paid(finished):
    coverage = read_coverage(finished)
    assert coverage["relation"] == "equality"
    assert coverage["relations"]["equality"] > coverage["relations"]["identities"]
    uniform, explorer = coverage["visitors"]
    assert uniform["high_reward_steps"] == pytest.approx(2 / 25, rel=0.15)
    assert explorer["high_reward_steps"] == pytest.approx(2 / 5, rel=0.15)
    per_stage = np.asarray(explorer["frequency"])
    assert per_stage.shape == (2, 5, 5)
    for frequency in per_stage:
        assert np.diag(frequency) == pytest.approx(np.full(5, 1 / 5), rel=0.25)


def test_what_test_tasks_begin_with_is_as_announced(finished, monkeypatch):
    announced, given = announced_and_given(EXPERIMENT, MemoryServices(finished.path / "jobs"), monkeypatch)
    assert announced == given


def test_it_goes_on_to_the_same_bytes(finished, tmp_path, monkeypatch):
    """Stopped at every second pause of every job; the fit of the explorer pauses ten times."""
    stops = do(EXPERIMENT, tmp_path / "stopped", monkeypatch, stop_at=2)
    stopped = {name: data for name, data in determined(tmp_path / "stopped").items() if name.startswith("jobs")}
    whole = {name: data for name, data in determined(finished.path).items() if name.startswith("jobs")}
    assert stops >= 9 and stopped == whole and any("explore" in name for name in whole)


def test_a_bundle_plays_as_the_run_does(finished, tmp_path):
    bundle = export_run(finished, tmp_path / "bundle")
    assert verify(bundle) == []
    assert "a latent that all agents know, drawn once per step" in (Path(bundle) / "README.md").read_text()
    explorers = load_explorers(bundle)
    assert len(explorers) == 1 and explorers.spec == FAMILY.env.spec
    obs = np.zeros((50, 2, explorers.spec.obs_size))
    ours, theirs = (source.start(3, copies=50) for source in (explorers, load_explorers(finished.path)))
    first, second = ours.act(obs), ours.act(obs)
    assert np.array_equal(first, theirs.act(obs)) and not np.array_equal(first, second)
    assert np.mean(first[:, 0] == first[:, 1]) > 0.8
    assert play_policy(finished, EXPERIMENT, 0, "explorer-1").takes


@pytest.mark.parametrize("method", ["structured", "diagonal"])
def test_continuous_actions_are_refused(method):
    swimmer = named(method, "swimmer-wide", "smoke")
    with pytest.raises(UsageError, match="discrete actions"):
        swimmer.method.check(swimmer)


def test_one_task_has_nothing_to_compare_with(tmp_path):
    lonely = replace(EXPERIMENT, num_train_tasks=1)
    with pytest.raises(UsageError, match="num-train-tasks must be at least 2, not 1"):
        lonely.method.check(lonely)


def test_a_stage_that_found_nothing_says_so(tmp_path):
    hopeless = replace(EXPERIMENT, method=replace(METHOD, threshold=Threshold(2.0)))
    with pytest.raises(TrainingError, match="stage 1 found no reward worth going for"):
        run(hopeless, tmp_path, "collect", "explore")


def test_a_fit_that_diverges_is_not_saved(tmp_path):
    wild = replace(METHOD, explorer=replace(METHOD.explorer, learning_rate=float("inf")))
    with pytest.raises(TrainingError, match=r"the fit of the explorer: .*a weight is not finite by step 10; stopped"):
        run(replace(EXPERIMENT, method=wild), tmp_path, "collect", "explore")
    assert not list(tmp_path.rglob(EXPLORERS))


@pytest.mark.parametrize("settings", [{"relations": ()}, {"smoothing": 0.0}, {"coverage_steps": 0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings)).replace("_", "-")):
        StructuredMesa(**settings)


def test_the_diagonal_control_agrees_on_every_action(getkey):
    policy = SameActionPolicy(Discrete(4))
    actions = np.array([policy.act((), jnp.zeros((3, 1)), getkey())[0] for _ in range(60)])
    assert np.all(actions == actions[:, :1]) and set(actions[:, 0]) == {0, 1, 2, 3}
    control = replace(EXPERIMENT, method=Diagonal())
    control.method.check(control)
    assert [stage.name for stage in control.method.stages(control)] == ["adapt"]
