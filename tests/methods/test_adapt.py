"""Learning the test tasks: rows, policies, groups of lanes, and what is left behind when a run breaks."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized
from mesax.baselines.controls import Plain
from mesax.errors import TrainingError, UsageError
from mesax.mesa.method import Mesa
from mesax.methods.adapt import policy_name
from mesax.methods.base import Experiment, groups_of
from mesax.store.trees import load_tree, read_manifest
from mesax.training.driver import NotFiniteError, play_episodes
from mesax.training.schedule import Budget
from methods.helpers import (
    ONE_STEP,
    SICK,
    TINY,
    TINY_MADDPG,
    TWO_STAGE,
    IndependentQ,
    LinearPolicy,
    MemoryServices,
    run,
)

LEARNER = IndependentQ()
EXPERIMENT = Experiment(
    Plain(), TWO_STAGE, LEARNER, TINY, num_train_tasks=2, num_test_tasks=2, num_repeats=2, eval_episodes=2, lanes=2
)
RUNS = [(task, repeat) for task in range(2) for repeat in range(2)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    """Two tasks, each twice, in two jobs."""
    return run(EXPERIMENT, tmp_path_factory.mktemp("plain"))


def of_run(rows: list[dict], task: int, repeat: int) -> list[dict]:
    return [row for row in rows if (row["task"], row["repeat"]) == (task, repeat)]


def test_every_run_has_its_rows(host: MemoryServices):
    for task, repeat in RUNS:
        for rows in (host.eval, host.metrics):
            mine = of_run(rows, task, repeat)
            assert [row["step"] for row in mine] == [200, 400, 600, 800]
            assert {row["phase"] for row in mine} == {"adapt"}
    assert len(host.eval) == len(host.metrics) == 4 * len(RUNS)
    for row in host.eval:
        assert row["groups"] == {"k=2": pytest.approx(row["return"])}


def test_jobs_are_groups_of_lanes(host: MemoryServices):
    (stage,) = Plain().stages(EXPERIMENT)
    assert stage.name == "adapt"
    assert stage.job_steps == (1600, 1600)
    assert [report[1:3] for report in host.reports] == [
        (job, 2 * step) for job in (0, 1) for step in (200, 400, 600, 800)
    ]


@pytest.mark.parametrize("wrap", [lambda learner: learner, Normalized], ids=["bare", "wrapped"])
def test_a_learner_with_the_schedule_of_another_kind_is_refused(wrap):
    budget = Budget(TINY.total_steps, TINY.num_envs)
    with pytest.raises(UsageError, match="learns on-policy and has no replay"):
        Plain().stages(replace(EXPERIMENT, algorithm=wrap(Mappo())))
    with pytest.raises(UsageError, match="learns from replay: its schedule is a Schedule"):
        Plain().stages(replace(EXPERIMENT, algorithm=wrap(LEARNER), schedule=budget))
    Plain().stages(replace(EXPERIMENT, algorithm=wrap(Mappo(minibatches=TINY.num_envs)), schedule=budget))
    with pytest.raises(UsageError, match="minibatches need at least as many pieces"):
        Plain().stages(replace(EXPERIMENT, algorithm=wrap(Mappo(minibatches=TINY.num_envs + 1)), schedule=budget))


def test_groups_of():
    assert groups_of([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
    assert groups_of([], 2) == []


def test_repeats_are_independent(host: MemoryServices):
    returns = {run: [row["train_return"] for row in of_run(host.metrics, *run)] for run in RUNS}
    assert len({tuple(values) for values in returns.values()}) == len(RUNS)


def test_the_saved_policy_is_the_evaluated_one(host: MemoryServices):
    tasks = TWO_STAGE.split(EXPERIMENT.seed, 2, 2).test
    directories = {path.name: path for job in host.outputs("adapt") for path in job.iterdir()}
    names = {policy_name(*run) for run in RUNS}
    assert set(directories) == names | {f"best-{name}" for name in names}
    for task, repeat in RUNS:
        directory = directories[policy_name(task, repeat)]
        rows = of_run(host.eval, task, repeat)
        assert read_manifest(directory)["facts"] == {"task": task, "repeat": repeat, "step": rows[-1]["step"]}
        best = read_manifest(directories[f"best-{policy_name(task, repeat)}"])["facts"]
        assert best["return"] == max(row["return"] for row in rows)
        assert best["step"] == max(row["step"] for row in rows if row["return"] == best["return"])
        policy = load_tree(directory, LinearPolicy(jax.ShapeDtypeStruct((2, 8, 3), np.float32)))
        task_alone = jax.tree.map(lambda leaf, task=task: leaf[task : task + 1], tasks)
        episodes = play_episodes(TWO_STAGE.env, task_alone, policy, jax.random.key(0), 2)
        assert of_run(host.eval, task, repeat)[-1]["return"] == pytest.approx(float(np.mean(episodes.reward)))


def test_the_last_evaluation_follows_the_last_step(host: MemoryServices):
    (stage,) = Plain().stages(EXPERIMENT)
    assert max(row["step"] for row in host.eval) * len(RUNS) == sum(stage.job_steps)


def test_a_task_alone_equals_the_task_in_a_batch(tmp_path: Path):
    """How many other tasks are learned in the same command must not change a single digit."""
    both = replace(EXPERIMENT, family=ONE_STEP, algorithm=TINY_MADDPG, num_train_tasks=1, num_repeats=1)
    together = run(both, tmp_path / "together")
    alone = run(replace(both, num_test_tasks=1), tmp_path / "alone")
    assert {row["task"] for row in alone.eval} == {0}
    assert alone.eval == of_run(together.eval, 0, 0)
    assert alone.metrics == of_run(together.metrics, 0, 0)
    arrays = [
        load_file(host.outputs("adapt")[0] / policy_name(0, 0) / "arrays.safetensors") for host in (alone, together)
    ]
    assert arrays[0].keys() == arrays[1].keys()
    for name, array in arrays[0].items():
        np.testing.assert_array_equal(array, arrays[1][name])


@pytest.mark.parametrize("stage", ["collect", "adapt"])
def test_a_run_that_breaks_leaves_its_last_good_learners(stage: str, tmp_path: Path):
    sick = replace(EXPERIMENT, algorithm=SICK, num_repeats=1)
    if stage == "collect":
        sick = replace(sick, method=Mesa(LEARNER, collect=TINY, explore=TINY))
    with pytest.raises(NotFiniteError, match="loss is not finite") as error:
        run(sick, tmp_path, stage)
    assert isinstance(error.value, TrainingError)
    assert "\n" not in str(error.value)
    saved = list((tmp_path / stage / "000" / "last-good").rglob("arrays.safetensors"))
    assert saved
    assert all(np.isfinite(array).all() for path in saved for array in load_file(path).values())
    assert not list((tmp_path / stage / "000").glob("task-*")), "nothing that looks finished"


def test_evaluations_before_the_break_are_kept(tmp_path: Path):
    host = MemoryServices(tmp_path, "adapt")
    (stage,) = Plain().stages(replace(EXPERIMENT, algorithm=SICK, num_repeats=1))
    with pytest.raises(NotFiniteError):
        stage.run(0, host)
    assert [row["step"] for row in of_run(host.eval, 0, 0)] == [200, 400]
    assert all(np.isfinite(row["return"]) for row in host.eval)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_test_tasks": 0}, "num-test-tasks must be at least 1, not 0"),
        ({"num_train_tasks": 8}, "has 9 tasks, fewer than 8 for training"),
        ({"num_repeats": 0}, "num-repeats must be at least 1, not 0"),
        ({"lanes": 0}, "lanes must be at least 1, not 0"),
        ({"seed": -1}, "seed must be at least 0 and at most 4294967295, not -1"),
        ({"seed": 2**40}, "seed must be at least 0 and at most 4294967295, not 1099511627776"),
    ],
)
def test_impossible_experiments_are_refused(change: dict[str, int], words: str):
    with pytest.raises(UsageError, match=words):
        replace(EXPERIMENT, **change)


def test_streams_of_an_experiment_differ():
    keys = [EXPERIMENT.key(purpose, task, repeat) for purpose in range(4) for task in range(3) for repeat in range(3)]
    keys += [EXPERIMENT.key(purpose, task) for purpose in range(4) for task in range(3)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)
    other = replace(EXPERIMENT, seed=1)
    assert not np.array_equal(jax.random.key_data(other.key(0)), jax.random.key_data(EXPERIMENT.key(0)))
