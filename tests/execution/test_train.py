"""Training in memory: the numbers of a run in a directory, and no file."""

import jax
import numpy as np
import pytest

from execution.test_runner import finished_run
from mesax.errors import UsageError
from mesax.execution.run_experiment import Results, train
from mesax.execution.saved_policies import learned_policy
from mesax.experiments.rebuild import experiment_of
from mesax.explorers.foreign_loop import load_explorers
from mesax.store.reading import load_run
from mesax.store.run_directory import RunDirectory
from methods.helpers import same_bits


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return RunDirectory(finished_run(tmp_path_factory))


@pytest.fixture(scope="module")
def results(stored: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Results:
    empty = tmp_path_factory.mktemp("train")
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("allow"):
        patch.chdir(empty)
        found = train(experiment_of(stored.run), seed=int(stored.run["seed"]))
    assert not list(empty.iterdir())
    return found


def test_rows_and_numbers_are_those_of_a_run_in_a_directory(stored: RunDirectory, results: Results):
    assert list(results.evaluations) == stored.read_rows("eval.jsonl")
    assert list(results.metrics) == stored.read_rows("metrics.jsonl")
    assert results.coverage == stored.read_json("coverage.json")
    clocks_and_names = ("method", "env", "preset", "run_dir", "wall_seconds", "env_steps_per_second")
    told = [
        {key: value for key, value in summary.items() if key not in clocks_and_names}
        for summary in (results.summary, stored.read_json("summary.json"))
    ]
    assert told[0] == told[1]
    for ours, theirs in zip(results.curves, load_run(stored.path).curves, strict=True):
        assert (ours.task, ours.label) == (theirs.task, theirs.label)
        np.testing.assert_array_equal(ours.steps, theirs.steps)
        np.testing.assert_array_equal(ours.returns, theirs.returns)


def test_policies_and_explorers_are_those_of_a_run_in_a_directory(stored: RunDirectory, results: Results):
    experiment = experiment_of(stored.run)
    for task in (0, 1):
        assert same_bits(results.policies[task, 0], learned_policy(stored, experiment, task))
        assert same_bits(results.best_policies[task, 0], learned_policy(stored, experiment, task, best=True))
    theirs = load_explorers(stored.path)
    assert results.explorers is not None and results.explorers.recipe == theirs.recipe
    assert same_bits(results.explorers.policies, theirs.policies)
    spec = results.experiment.env.spec
    actions = results.policy(1).start(seed=0).act(np.zeros((spec.num_agents, spec.obs_size)))
    assert actions.shape == (spec.num_agents,)


def test_a_policy_that_is_not_there_is_one_line(results: Results):
    with pytest.raises(UsageError, match="no policy of task 7, run 0: there are 2 tasks, 1 runs"):
        results.policy(7)
