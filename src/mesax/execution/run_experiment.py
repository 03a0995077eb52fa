"""Runs an experiment that was built in code: in a directory, as `mesax run` does, or in memory."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from mesax.bridges.ray_cluster.where import OnRay
from mesax.bridges.tracking.sinks import check_trackers
from mesax.errors import DamageError, Preempted, UsageError
from mesax.execution.jobs import JobInMemory, Memory
from mesax.execution.mending import reopen
from mesax.execution.runner import execute
from mesax.execution.workers import how_to_continue, warn
from mesax.experiments.catalogue import method_name
from mesax.experiments.names import OWN_PRESET
from mesax.experiments.overrides import digest
from mesax.experiments.rebuild import check_facts, check_found_again, stored_difference
from mesax.experiments.request import described, facts_of, family_facts
from mesax.explorers.foreign_loop import Explorers, LearnedPolicy, explorers_of
from mesax.explorers.places import EXPLORERS
from mesax.methods.adapt import best_policy_name, greedy_shape, policy_name
from mesax.methods.base import Experiment, Stage
from mesax.results.summary import summarize
from mesax.runtime import configure
from mesax.store.json_values import Json, json_ready
from mesax.store.modules import loaded_modules, named_in, refuse_while_loading
from mesax.store.reading import Curve, curves_from_rows, in_order
from mesax.store.run_directory import RunDirectory
from mesax.store.settings import nameless
from mesax.store.trees import open_tree
from mesax.training.host_rollout import running


def run_experiment(
    experiment: Experiment,
    path: Path | str,
    method: str | None = None,
    env: str = "own",
    workers: int | None = None,
    quiet: bool = False,
    track: Sequence[str] = (),
    on: OnRay | None = None,
) -> dict[str, Any]:
    """Do all stages of an experiment, keep everything in the run directory `path`, and return its summary.

    A directory that holds the same experiment is continued, or its summary returned if it is done; one that holds
    another is refused. Functions and classes among the settings count by their names: what they do may change
    unnoticed, and with one whose name others may have (a lambda, say) nothing is continued. More than one worker is a
    process each, which loads the modules of these functions and classes again, or the script; so what a script does
    belongs under `if __name__ == "__main__":`. Asked to stop by a signal, it saves everything, and the script exits
    with code 75. `method` and `env` are names for tables and figures; if it is not given, a method has the name that
    `mesax run` knows it by, and one of your own that of its class. `track` names tools that are told every row:
    tensorboard, wandb, csv. `on` is a Ray cluster that does the jobs, as many at a time as it has CPUs, or as
    `workers` says; without a cluster, one worker is the default.
    """
    refuse_while_loading("run_experiment was called")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers}")
    check_trackers(track)
    if on is not None:
        if not isinstance(on, OnRay):  # Python does not ask what it is
            raise UsageError(f"on must be mesax.OnRay(...), not {on!r}")
        on.check()
    configure()
    expected = _digest(experiment)
    experiment.check()  # what does not fit is refused before there is a directory
    if on is None:
        workers = workers or 1
    if on is not None or workers != 1:
        check_found_again(experiment)
    path = Path(os.path.abspath(path))
    if path.exists():
        run = RunDirectory.open(path)
        if run.run.get("config_hash") != expected:
            difference = stored_difference(run.run, experiment)
            raise UsageError(f"{path} holds another experiment ({difference}); remove it or choose another directory")
        _check_names(path, experiment)
        check_facts(run.run, experiment)
        if run.status == "done":
            try:
                run.check_results()
                return run.read_json("summary.json")
            except DamageError as damage:
                with run.lock():
                    reopen(run, damage)
        elif on is None:
            experiment.check_engine()
    else:
        if on is None:
            experiment.check_engine()
        run = RunDirectory.create(
            path, _run_json(experiment, path, method_name(experiment) if method is None else method, env)
        )
    with run.lock():
        try:
            return execute(run, experiment, workers, quiet, track, on)
        except Preempted:
            warn(f"stopped and saved; {how_to_continue(run, on.words if on else ())}")
            raise


def _check_names(path: Path, experiment: Experiment) -> None:
    """Refuse to take what is there for this experiment if names alone do not say so."""
    places = list(dict.fromkeys(nameless(experiment)))
    if places:
        raise UsageError(
            f"whether {path} holds this experiment cannot be known: {', '.join(places)} goes by a name that others may"
            " have (a lambda, made inside a function, or bound to an object); define it at the top of a module, or"
            " remove the directory or choose another"
        )


def _digest(experiment: Experiment) -> str:
    try:
        return digest(experiment)
    except TypeError as error:
        raise UsageError(f"{error}: use numbers, text, frozen dataclasses and named functions") from error


def _run_json(experiment: Experiment, path: Path, method: str, env: str) -> dict[str, object]:
    names = {"id": path.name, "method": method, "env": env, "preset": OWN_PRESET, "seed": experiment.seed}
    return names | {"paper_diff": None, "command": shlex.join(["python", *sys.argv])} | facts_of(experiment, env)


@dataclass(frozen=True, eq=False)
class Results:
    """What an experiment has found."""

    experiment: Experiment
    """What was done, with its seed."""
    curves: tuple[Curve, ...]
    """Of each test task and repeat: `steps`, `returns` and `groups` as arrays."""
    evaluations: tuple[Json, ...]
    """The rows of `eval.jsonl`."""
    metrics: tuple[Json, ...]
    """The rows of `metrics.jsonl`."""
    coverage: Json | None
    """What explorers visit, as `coverage.json` has it; None if none were trained."""
    summary: Json
    """The numbers of `summary.json`."""
    policies: dict[tuple[int, int], PyTree]
    """What was learned by the end, by test task and repeat: a policy whose leaves are arrays."""
    best_policies: dict[tuple[int, int], PyTree]
    """The same at the best evaluation."""
    explorers: Explorers | None
    """Exploration policies, stacked, as `load_explorers` gives them; None if the method has none."""

    def policy(self, task: int = 0, repeat: int = 0, best: bool = False) -> LearnedPolicy:
        """What was learned on one test task, to be played anywhere: NumPy in, NumPy out."""
        known = self.best_policies if best else self.policies
        if (task, repeat) not in known:
            tasks, repeats = self.experiment.num_test_tasks, self.experiment.num_repeats
            raise UsageError(
                f"there is no policy of task {task}, run {repeat}: there are {tasks} tasks, {repeats} runs"
            )
        return LearnedPolicy(self.experiment.env.spec, known[task, repeat])


def train(
    experiment: Experiment, seed: int | None = None, report: Callable[[str, int], None] = lambda stage, steps: None
) -> Results:
    """Do all stages of an experiment in this process and keep everything in memory; the numbers are those of a run.

    `seed` takes the place of the experiment's own. `report` is told the stage and the environment steps that a job of
    it has taken. What is to survive this process, to be resumed or to use several cores, belongs into a directory:
    `run_experiment`.
    """
    configure()
    experiment = experiment if seed is None else replace(experiment, seed=seed)
    experiment.check()
    experiment.check_engine()
    started, memory, stop = time.monotonic(), Memory(), threading.Event()
    steps: dict[str, int] = {}
    stages = experiment.method.stages(experiment)
    try:
        for stage in stages:
            steps[stage.name] = sum(_do(stage, job, memory, stop, report) for job in range(len(stage.job_steps)))
    finally:
        running.close()
    return _results(experiment, stages, memory, steps, time.monotonic() - started)


def _do(stage: Stage, job: int, memory: Memory, stop: threading.Event, report: Callable[[str, int], None]) -> int:
    """Do one job; the environment steps that it took."""
    services = JobInMemory(stage.name, job, lambda steps, note: report(stage.name, steps), stop, memory)
    stage.run(job, services)
    services.scratch.forget()
    return stage.job_steps[job] if services.done_steps is None else services.done_steps


def _results(
    experiment: Experiment, stages: Sequence[Stage], memory: Memory, steps: dict[str, int], seconds: float
) -> Results:
    family = experiment.family
    name = method_name(experiment)
    run = {"method": name, "env": "own", "preset": OWN_PRESET, "seed": experiment.seed}
    run |= {"family": family_facts(family, "own"), "test_tasks": described(family, experiment.split.test)}
    evaluations = tuple(in_order(json_ready(row) for row in memory.rows["eval"]))
    metrics = tuple(json_ready(row) for row in memory.rows.get("metrics", ()))
    coverage = json_ready(memory.documents["coverage"]) if "coverage" in memory.documents else None
    adapt = steps["adapt"]
    summary = summarize(
        run,
        evaluations,
        metrics=metrics,
        coverage=coverage,
        env_steps=adapt,
        meta_env_steps=sum(steps.values()) - adapt,
        wall_seconds=seconds,
        run_dir="",
    )
    like, places = greedy_shape(experiment), memory.jobs["adapt"]
    known = {place.name: place for job in places for place in job.glob("*task-*")}
    lanes = [(task, repeat) for task in range(experiment.num_test_tasks) for repeat in range(experiment.num_repeats)]
    final, best = (
        {lane: jax.device_get(open_tree(known[named(*lane)]).restore(like)) for lane in lanes}
        for named in (policy_name, best_policy_name)
    )
    curves = curves_from_rows(run, evaluations)
    return Results(
        experiment, curves, evaluations, metrics, coverage, summary, final, best, _explorers(experiment, stages, memory)
    )


def _explorers(experiment: Experiment, stages: Sequence[Stage], memory: Memory) -> Explorers | None:
    """Those that the last stage with explorers among its products has left."""
    for stage in reversed(stages):
        if EXPLORERS in stage.products:
            place = memory.jobs[stage.name][0] / EXPLORERS
            kinds = tuple(kind for module in loaded_modules(experiment) for kind in named_in(module).values())
            return explorers_of(open_tree(place), place.path, kinds)
    return None
