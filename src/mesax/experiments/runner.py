"""Does a run from its directory: stage by stage, job by job, skipping what is done; then merges and summarizes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from typing import Any

from mesax.errors import PREEMPTED, Preempted
from mesax.experiments.keeping import sum_of
from mesax.experiments.progress import Progress
from mesax.experiments.statistics import explorer_figures, summarize
from mesax.experiments.stopping import stop_on_signal
from mesax.experiments.store import RunDirectory
from mesax.experiments.workers import InProcess, Pool
from mesax.methods.base import Experiment, Stage

CHECKSUMS = "checksums.json"
MERGED = ("run.json", "eval.jsonl", "metrics.jsonl", "timing.jsonl", "coverage.json", "summary.json")


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(run: RunDirectory, experiment: Experiment, workers: int, quiet: bool = False) -> dict[str, Any]:
    """Do what is left of a run and return its summary; the status file says how it ended."""
    run.set_status("running")
    try:
        with stop_on_signal(lambda: _leave(run)) as stop:
            _do_stages(run, experiment, workers, quiet, stop)
            summary = merge(run, experiment)
    except Preempted:
        run.set_status("preempted")
        raise
    except BaseException:  # whatever it was: nobody works on this run any more
        run.set_status("failed")
        raise
    run.set_status("done")
    return summary


def _leave(run: RunDirectory) -> None:
    """Asked to stop, but in the middle of something long: what was saved last has to do."""
    run.set_status("preempted")
    print(f"mesax: stopped at the last checkpoint; continue with: mesax resume {run.path}", file=sys.stderr, flush=True)
    os._exit(PREEMPTED)


def _do_stages(run: RunDirectory, experiment: Experiment, workers: int, quiet: bool, stop: threading.Event) -> None:
    started = time.time()
    title = f"{run.run['method']} on {run.run['env']}"
    pool = InProcess(run, experiment, stop) if workers <= 1 else Pool(run, workers, stop)
    try:
        with Progress(title, quiet=quiet) as progress:
            for stage in experiment.method.stages(experiment):
                _do_stage(run, stage, pool, progress)
    finally:
        pool.close()
        run.append_rows("clock.jsonl", [{"started": started, "seconds": time.time() - started}])


def _do_stage(run: RunDirectory, stage: Stage, pool: InProcess | Pool, progress: Progress) -> None:
    done = {job: steps for job, steps in enumerate(stage.job_steps) if run.job_done(stage.name, job)}
    left = [job for job in range(len(stage.job_steps)) if job not in done]
    progress.phase(stage.name, sum(stage.job_steps), sum(done.values()))

    def on_progress(job: int, steps: int, note: str) -> None:
        done[job] = steps
        progress.update(sum(done.values()), note)

    pool.do(stage.name, left, on_progress)


def merge(run: RunDirectory, experiment: Experiment) -> dict[str, Any]:
    """Gather the rows, policies and clocks of all jobs into the run directory, and summarize them."""
    evaluations: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    timing: list[dict[str, Any]] = []
    for stage in experiment.method.stages(experiment):
        for job in range(len(stage.job_steps)):
            directory = RunDirectory(run.job_directory(stage.name, job))
            evaluations += directory.read_rows("eval.jsonl")
            metrics += directory.read_rows("metrics.jsonl")
            timing.append({"phase": stage.name, "job": job} | run.job_facts(stage.name, job))
            for name in ("checkpoints", "scratch"):  # of a job that was killed just after it was done
                shutil.rmtree(directory.path / name, ignore_errors=True)
            for saved in sorted(directory.path.glob("*/manifest.json")):
                if saved.parent.name.startswith(("task-", "best-", "explorers")):
                    shutil.copytree(saved.parent, run.path / "policies" / saved.parent.name, dirs_exist_ok=True)
    evaluations.sort(key=lambda row: (row["task"], row["repeat"], row["step"]))
    run.write_rows("eval.jsonl", evaluations)
    run.write_rows("metrics.jsonl", metrics)
    run.write_rows("timing.jsonl", timing)
    adapt = sum(row["env_steps"] for row in timing if row["phase"] == "adapt")
    summary = summarize(
        run.run,
        evaluations,
        env_steps=adapt,
        meta_env_steps=sum(row["env_steps"] for row in timing) - adapt,
        wall_seconds=sum(row["seconds"] for row in run.read_rows("clock.jsonl")),
        run_dir=str(run.path),
    )
    cut_short = max((row.get("cut_short", 0.0) for row in metrics), default=0.0)
    if cut_short > 0:  # counted, not hidden: an engine that diverges, or a time limit of the environment's own
        summary["largest_cut_short"] = cut_short
    coverage = run.path / "coverage.json"
    if coverage.is_file():
        summary["explorers"] = explorer_figures(json.loads(coverage.read_text(encoding="utf-8")))
    run.write_json("summary.json", summary)
    run.write_json(CHECKSUMS, {name: sum_of(run.path / name) for name in MERGED if (run.path / name).is_file()})
    return summary
