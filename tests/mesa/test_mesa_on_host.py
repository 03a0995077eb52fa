"""MESA in an environment that lives on the host: every stage finds what it finds in JAX, and goes on when stopped."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from execution.test_resume import determined, do
from hosted import Hosted
from mesax.envs.base import TaskFamily
from mesax.envs.climb import ClimbFamily
from mesax.envs.host import shortened
from mesax.errors import UsageError
from mesax.mesa.coverage import CoverageReward
from mesax.methods.base import Experiment
from mesax.ours.steady import SteadyMesa
from mesax.policy import UniformPolicy
from mesax.training import schedule
from mesax.training.driver import BrokenEnvironmentError, play_episodes
from mesax.training.host_rollout import running
from methods.helpers import TINY, TWO_STAGE, IndependentQ, MemoryServices, run

METHOD = SteadyMesa(
    IndependentQ(),
    collect=TINY,
    explore=TINY,
    relabel_discount=0.0,
    reward=CoverageReward(num_clusters=4, capacity=8),
    num_explorers=2,
    coverage_episodes=10,
    enough_coverage=2.0,
)


@dataclass(frozen=True)
class OnHost:
    """A family whose environment is stepped by the host; all else is the family's own."""

    family: ClimbFamily = TWO_STAGE
    break_at: int | None = None

    @property
    def env(self) -> Hosted:
        return Hosted(self.family.env, break_at=self.break_at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.family, name)


for _name in [name for name in vars(TaskFamily) if not name.startswith("_") and name != "env"]:
    # Since Python 3.12 `isinstance` looks for what a protocol asks for in the class, not by __getattr__.
    setattr(OnHost, _name, property(lambda self, name=_name: getattr(self.family, name)))


EXPERIMENT = Experiment(
    METHOD, TWO_STAGE, IndependentQ(), TINY, seed=2, num_train_tasks=2, num_test_tasks=2, eval_episodes=2, lanes=2
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryServices, MemoryServices]:
    """The same experiment, in JAX and on the host."""
    here = replace(EXPERIMENT, family=OnHost())
    return run(EXPERIMENT, tmp_path_factory.mktemp("jax")), run(here, tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize("kind", ["eval", "metrics"])
def test_every_row_is_the_same(both, kind: str):
    expected, found = (getattr(host, kind) for host in both)
    assert len(expected) == len(found) > 4
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            if isinstance(value, float):
                assert ours[name] == pytest.approx(value, rel=1e-3, abs=1e-4), (name, theirs)
            else:
                assert ours[name] == value, (name, theirs)


def test_the_same_pairs_and_explorers_are_saved(both):
    expected, found = both
    for stage in ("collect", "explore", "gather", "adapt"):
        names = [sorted(path.name for path in directory.iterdir()) for directory in expected.outputs(stage)]
        assert names == [sorted(path.name for path in directory.iterdir()) for directory in found.outputs(stage)]
    frequencies = [[one["frequency"] for one in host.documents["coverage"]["visitors"]] for host in (expected, found)]
    np.testing.assert_allclose(frequencies[1], frequencies[0], atol=1e-3)


@pytest.mark.parametrize("place", ["jax", "host"])
def test_a_run_stopped_at_every_pause_ends_in_the_same_bytes(tmp_path, monkeypatch, place):
    """Collecting, each explorer, adapting; between chunks and within them (here, where all is compiled already)."""
    experiment = replace(EXPERIMENT, family=OnHost()) if place == "host" else EXPERIMENT
    experiment = replace(experiment, method=replace(experiment.method, snapshot="fairest"))
    do(experiment, tmp_path / "whole", monkeypatch)
    monkeypatch.setattr(schedule, "SEGMENT_TRANSITIONS", 2 * 5 * experiment.schedule.transitions(2))
    assert experiment.schedule.segment(2, 2) == 5 < experiment.schedule.chunks(2)[1]
    stops = do(experiment, tmp_path / "stopped", monkeypatch, stop_at=2)
    assert stops == 5 + 5 + 5, "six pauses in each job, and explorers are alone in their lane: one for each chunk"
    whole = determined(tmp_path / "whole")
    assert whole == determined(tmp_path / "stopped") and len(whole) > 20
    assert not [*tmp_path.rglob("checkpoints"), *tmp_path.rglob("scratch")]


def test_a_broken_environment_leaves_the_last_good_learner(tmp_path: Path):
    """It breaks in the second chunk of the test tasks' learning: the run stops, and what was learnt is saved."""
    # Every step call moves ten copies in each of two lanes; the warm-up takes 20 calls, an evaluation two.
    broken = replace(EXPERIMENT, family=OnHost(break_at=70))
    running.close()  # the copies that are open do not break
    with pytest.raises(BrokenEnvironmentError, match="broken on purpose"):
        run(broken, tmp_path, "collect")
    (job,) = (tmp_path / "collect").iterdir()
    facts = json.loads((job / "last-good" / "manifest.json").read_text())["facts"]
    assert "broken on purpose" in facts["error"]


def test_training_episodes_may_be_shorter_in_any_environment():
    with pytest.raises(UsageError, match="training-horizon must lie between 1 and the horizon 2, not 3"):
        replace(EXPERIMENT, training_horizon=3)
    shorter = replace(EXPERIMENT, training_horizon=1).training_env
    assert shorter.spec == replace(EXPERIMENT.family.env.spec, horizon=1)
    tasks = EXPERIMENT.family.split(0, 2, 0).train
    uniform = UniformPolicy(shorter.spec.action_space)
    for env in (shorter, shortened(OnHost().env, 1)):
        episodes = play_episodes(env, tasks, uniform, jax.random.key(0), 3)
        assert episodes.reward.shape == (3, 1) and not np.any(episodes.terminated), "a cut is no termination"
