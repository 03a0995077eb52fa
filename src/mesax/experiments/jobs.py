"""One job of a run: how a stage's work meets the run directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesax.experiments.store import RunDirectory
from mesax.methods.base import Experiment, Stage

Report = Callable[[int, str], None]


@dataclass
class JobHost:
    """What a job may ask for (see `mesax.methods.base.Host`), on top of a run directory."""

    run: RunDirectory
    stage: str
    job: int
    on_report: Report
    compile_seconds: float = field(default=0.0)

    @property
    def directory(self) -> Path:
        """Where this job writes."""
        return self.run.job_directory(self.stage, self.job)

    def outputs(self, stage: str) -> list[Path]:
        """Directories of an earlier stage's jobs, in order."""
        return sorted(path for path in (self.run.path / "jobs" / stage).iterdir() if path.is_dir())

    def rows(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Append to this job's own file; the runner merges the files of all jobs."""
        RunDirectory(self.directory).append_rows(f"{name}.jsonl", rows)

    def document(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file for the whole run."""
        self.run.write_json(f"{name}.json", content)

    def report(self, done_steps: int, note: str = "") -> None:
        """Pass progress on."""
        self.on_report(done_steps, note)

    def compiled(self, seconds: float) -> None:
        """Remember the longest wait for a first chunk: the one that compiled."""
        self.compile_seconds = max(self.compile_seconds, seconds)


def run_job(run: RunDirectory, experiment: Experiment, stage_name: str, job: int, on_report: Report) -> None:
    """Do one job from the start; what an interrupted attempt left behind is removed."""
    stage = find_stage(experiment, stage_name)
    host = JobHost(run, stage_name, job, on_report)
    shutil.rmtree(host.directory, ignore_errors=True)
    host.directory.mkdir(parents=True)
    started = time.perf_counter()
    stage.run(job, host)
    run.finish_job(
        stage_name,
        job,
        {
            "seconds": time.perf_counter() - started,
            "first_chunk_seconds": host.compile_seconds,
            "env_steps": stage.job_steps[job],
        },
    )


def find_stage(experiment: Experiment, name: str) -> Stage:
    """The experiment's stage of that name."""
    return next(stage for stage in experiment.method.stages(experiment) if stage.name == name)
