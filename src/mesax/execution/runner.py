"""Does a run from its directory: stage by stage, job by job, skipping what is done; then merges and summarizes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mesax.bridges.ray_cluster.pool import RayPool
from mesax.bridges.ray_cluster.where import ATTEMPTS, OnRay
from mesax.bridges.tracking.follow import Follower, follower
from mesax.errors import FAILED, PREEMPTED, DamageError, Preempted, StoreError
from mesax.execution.leaving import OF_YOURS, leave_at_once, no_silent_exit
from mesax.execution.mending import undo_damaged
from mesax.execution.processes import Processes
from mesax.execution.progress import Progress
from mesax.execution.signals import stop_on_signal
from mesax.execution.status import StatusFile, kept_status
from mesax.execution.workers import InProcess, Workers, how_to_continue, warn
from mesax.experiments.borrowing import seen_in_training
from mesax.experiments.provenance import surroundings, versions
from mesax.experiments.rebuild import check_tasks
from mesax.methods.base import Experiment, Stage
from mesax.results.summary import summarize
from mesax.runtime import available_cores, numeric_settings
from mesax.store.files import Checksum, file_checksum, is_there, remove_tree
from mesax.store.json_files import read_json, read_rows
from mesax.store.json_values import Json
from mesax.store.modules import how_to_load
from mesax.store.reading import in_order
from mesax.store.run_directory import COVERAGE, RunDirectory, product_in
from mesax.store.sums import DONE, Sums
from mesax.store.trees import MANIFEST, copy_tree
from mesax.training.host_rollout import running


def execute(
    run: RunDirectory,
    experiment: Experiment,
    workers: int | None,
    quiet: bool = False,
    track: Sequence[str] = (),
    on: OnRay | None = None,
) -> dict[str, Any]:
    """Do what is left of a run and return its summary; the status file says how it ended.

    `workers` None means one per core. `track` names tools that are told every row (see `bridges.tracking`); `on` is a
    cluster that does the jobs in place of processes of this machine.
    """
    run = replace(run, path=Path(os.path.abspath(run.path)))  # wherever an environment may go meanwhile
    telling = follower(run, track, warn)
    run.set_status("running")
    run.unseal()
    remove_tree(run.path / ATTEMPTS)  # of a driver that was killed
    changed = changes(run)
    if changed:
        told = ", ".join(f"{name} {now} instead of {before}" for name, (before, now) in changed.items())
        warn(f"resumed under other conditions ({told}): results may differ in their last digits")
    if unusual := numeric_settings():
        told = ", ".join(f"{name} {value}" for name, value in unusual.items())
        warn(f"unusual settings of JAX ({told}): results differ from those of the usual ones")
    if seen := seen_in_training(experiment):
        warn(seen)
    try:
        with stop_on_signal(lambda: _leave(run, on)) as stop, no_silent_exit(lambda code: _ended(run, code)):
            stages = experiment.method.stages(experiment)
            undo_damaged(run)
            if any(_left(run, stage) for stage in stages):  # merging asks for no task
                check_tasks(run.run, experiment)
            pool = _workers(run, experiment, workers, stop, on)
            _do_stages(run, stages, pool, Watchers(quiet, telling), changed)
            summary = merge(run, stages)
    except Preempted:
        with suppress(StoreError):  # what was saved is saved, even if this word cannot be written
            run.set_status("preempted")
        raise
    except BaseException:  # whatever it was: the run is not at work any more
        with suppress(StoreError):  # the error under way says more than a full disk's second one
            run.set_status("failed")
        raise
    else:
        run.set_status("done")
    finally:
        running.close()  # of jobs that were done here; last, for environments may take their time
    return summary


def _leave(run: RunDirectory, on: OnRay | None) -> None:
    """Asked to stop, but in the middle of something long: what was saved last has to do."""
    try:
        run.set_status("preempted")
        warn(f"stopped at the last checkpoint; {how_to_continue(run, on.words if on else ())}")
    finally:
        leave_at_once(PREEMPTED)


def _ended(run: RunDirectory, code: int) -> int:
    """A user's code ends this process: what was saved last stays."""
    warn(f"{OF_YOURS} called os._exit({code}), which ended this process; {how_to_continue(run)}")
    with suppress(StoreError):
        run.set_status("failed")
    return FAILED


def changes(run: RunDirectory) -> dict[str, tuple[Any, Any]]:
    """What is not as it was when the run was created, of all that may change a result: before, now."""
    before = run.run.get("versions", {}) | run.run
    now = versions() | surroundings()
    names = [name for name in now if name in before and name not in ("versions", "machine")]
    return {name: (before[name], now[name]) for name in names if before[name] != now[name]}


class Watchers(NamedTuple):
    """Who is told how a run is doing, apart from its own files."""

    quiet: bool
    telling: Follower


def _do_stages(
    run: RunDirectory,
    stages: Sequence[Stage],
    pool: Workers,
    watchers: Watchers,
    changed: dict[str, Any],
) -> None:
    started, clock = time.time(), time.monotonic()
    title = f"{run.run['method']} on {run.run['env']}"
    try:
        names = [stage.name for stage in stages]
        with Progress(title, quiet=watchers.quiet) as progress, kept_status(run.path, names) as status:
            for number, stage in enumerate(stages):
                upcoming = next((later for later in stages[number + 1 :] if later.prepare is not None), None)
                _do_stage(run, stage, upcoming, pool, progress, status, watchers.telling)
    finally:
        pool.close()
        watchers.telling.close()
        with suppress(StoreError):  # a clock must not hide what went wrong
            row = {"started": started, "seconds": time.monotonic() - clock}
            run.append_rows("clock.jsonl", [row | ({"changed": changed} if changed else {})])


def _workers(
    run: RunDirectory, experiment: Experiment, number: int | None, stop: threading.Event, on: OnRay | None
) -> Workers:
    if on is not None:
        return RayPool(run, on, number, stop, how_to_load(experiment))
    number = available_cores() if number is None else number
    if number <= 1:
        return InProcess(run, stop)
    return Processes(run, number, stop, how_to_load(experiment))


def _left(run: RunDirectory, stage: Stage) -> list[int]:
    """The jobs of a stage that are still to be done."""
    return [job for job in range(len(stage.job_steps)) if not run.job_done(stage.name, job)]


def _do_stage(
    run: RunDirectory,
    stage: Stage,
    upcoming: Stage | None,
    pool: Workers,
    progress: Progress,
    status: StatusFile,
    telling: Follower,
) -> None:
    left = _left(run, stage)
    done = {job: steps for job, steps in enumerate(stage.job_steps) if job not in left}
    progress.phase(stage.name, sum(stage.job_steps), sum(done.values()))
    status.phase(stage.name, sum(stage.job_steps), sum(done.values()))
    for job in done:
        telling.follow(stage.name, job)

    def on_progress(job: int, steps: int, note: str) -> None:
        done[job] = steps
        progress.update(sum(done.values()), note)
        status.update(sum(done.values()), note)
        telling.follow(stage.name, job)

    pool.do(stage, left, on_progress, upcoming)
    for job in left:  # what came after its last word
        telling.follow(stage.name, job)


def merge(run: RunDirectory, stages: Sequence[Stage]) -> dict[str, Any]:
    """Gather the rows, policies and clocks of all jobs into the run directory, and summarize them.

    What is read is held against the sums that the jobs left, and these sums are sealed, so that a file which changes
    meanwhile is found out.
    """
    jobs = [_Gathered.of(run, stage, job) for stage in stages for job in range(len(stage.job_steps))]
    evaluations = in_order(row for job in jobs for row in job.evaluations)
    metrics, timing = [row for job in jobs for row in job.metrics], [job.timing for job in jobs]
    sums: dict[str, Checksum] = {}
    for job in jobs:
        sums |= job.sums
    if is_there(run.path / COVERAGE) and COVERAGE not in sums:
        raise DamageError(f"{run.path / COVERAGE} was not written by this run: remove it")
    coverage = read_json(run.path / COVERAGE, sums[COVERAGE]) if COVERAGE in sums else None
    for name, rows in (("eval.jsonl", evaluations), ("metrics.jsonl", metrics), ("timing.jsonl", timing)):
        sums[name] = run.write_rows(name, rows)
    adapt = sum(row["env_steps"] for row in timing if row["phase"] == "adapt")
    summary = summarize(
        run.run,
        evaluations,
        metrics=metrics,
        coverage=coverage,
        env_steps=adapt,
        meta_env_steps=sum(row["env_steps"] for row in timing) - adapt,
        wall_seconds=sum(row["seconds"] for row in run.read_rows("clock.jsonl")),
        run_dir=str(run.path),
    )
    sums["summary.json"] = run.write_json("summary.json", summary)
    sums |= {name: file_checksum(run.path / name) for name in ("run.json", "clock.jsonl")}
    run.seal(sums)
    try:
        if type(run)(run.path).run != run.run:  # by the names of today, if that is how it was read
            raise DamageError(f"{run.path / 'run.json'} is not what it was when the run began")
    except DamageError:
        run.unseal()
        raise
    return summary


class _Gathered(NamedTuple):
    """What a finished job has for the run."""

    evaluations: list[Json]
    metrics: list[Json]
    timing: Json
    sums: Sums
    """Of files in the run directory: the job's own word, the manifests of its products, its documents."""

    @staticmethod
    def of(run: RunDirectory, stage: Stage, job: int) -> _Gathered:
        """Checked, with copies of its products in the run directory."""
        directory = run.job_directory(stage.name, job)
        facts = run.check_job(directory)
        for name in ("checkpoints", "scratch"):  # of a job that was killed just after it was done
            remove_tree(directory / name)
        sums: dict[str, Checksum] = dict(facts["documents"])
        done = directory / DONE
        sums[done.relative_to(run.path).as_posix()] = file_checksum(done)
        for path in sorted(path for pattern in stage.products for path in directory.glob(pattern)):
            if path.name in facts["trees"]:
                product = product_in(run.path, path.name)
                copy_tree(path, product)
                sums[(product / MANIFEST).relative_to(run.path).as_posix()] = facts["trees"][path.name]
        evaluations, metrics = (
            read_rows(directory / name, facts["rows"][name]) if name in facts["rows"] else []
            for name in ("eval.jsonl", "metrics.jsonl")
        )
        numbers = {name: value for name, value in facts.items() if isinstance(value, int | float)}
        return _Gathered(evaluations, metrics, {"phase": stage.name, "job": job} | numbers, sums)
