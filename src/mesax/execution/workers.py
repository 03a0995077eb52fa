"""Who does a stage's jobs: this process, or several; results do not depend on which."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from mesax.errors import (
    FORESEEN,
    EnvironmentFault,
    Preempted,
    StoreError,
    TrainingError,
    kind_of,
    plain,
    says_out_of_memory,
)
from mesax.execution.jobs import run_job
from mesax.methods.base import Stage
from mesax.store.files import open_regular_file
from mesax.store.run_directory import RunDirectory

OnProgress: TypeAlias = Callable[[int, int, str], None]
"""(job, steps done, note)."""


class Workers(Protocol):
    """Who does the jobs of a run."""

    def do(self, stage: Stage, jobs: Sequence[int], on_progress: OnProgress, upcoming: Stage | None = None) -> None:
        """Do these jobs of a stage; raises `Preempted` if the run was asked to stop before all were done.

        Who has no job may prepare the stage that is `upcoming`.
        """

    def close(self) -> None:
        """End whatever was started."""


@dataclass
class InProcess:
    """One worker: this process."""

    run: RunDirectory
    stop: threading.Event

    def do(self, stage: Stage, jobs: Sequence[int], on_progress: OnProgress, upcoming: Stage | None = None) -> None:
        """Do the jobs one after another."""
        del upcoming  # compiled when its time has come: this worker is never free
        for job in jobs:
            if self.stop.is_set():
                raise Preempted
            self._do_one(stage, job, on_progress)

    def _do_one(self, stage: Stage, job: int, on_progress: OnProgress) -> None:
        try:
            run_job(
                self.run,
                stage,
                job,
                lambda done, note: on_progress(job, done, note),
                warn,
                self.stop,
            )
        except Exception as error:
            log = log_of(self.run, 0)
            # The disk may be full, or the log a link.
            with contextlib.suppress(OSError, StoreError), open(open_log(log), "a", encoding="utf-8") as file:
                file.write(traceback.format_exc())
            raise failure(f"{stage.name} job {job}", kind_of(error), str(error), log) from error

    def close(self) -> None:
        """Nothing to end; environments are closed when all is saved."""


def how_to_continue(run: RunDirectory, where: Sequence[str] = ()) -> str:
    """The command that continues a run; `where` are options that say who is to do the jobs."""
    loads = [word for module in run.run.get("modules", []) for word in ("--load", str(module))]
    command = shlex.join(["mesax", "resume", str(run.path), *loads, *where])
    if "request" in run.run:
        return f"continue with: {command}"
    return f"run the same script again to continue, or: {command}"


def warn(message: str) -> None:
    """A line on stderr while the run goes on; a reader that has gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(f"mesax: {plain(message)}", file=sys.stderr, flush=True)


def log_of(run: RunDirectory, number: int) -> Path:
    """Where a worker's warnings and tracebacks go."""
    return run.path / f"worker-{number}.log"


def open_log(path: Path) -> int:
    """A descriptor to add to a log."""
    return open_regular_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def failure(where: str, kind: str, message: str, log: Path) -> Exception:
    """A job's error as one line, with its kind if it was not foreseen.

    It says where the traceback is if that tells more: of what was not foreseen, or of an environment's own code.
    """
    if kind in FORESEEN:
        return FORESEEN[kind](f"{where}: {message}{f'; see {log}' if kind == EnvironmentFault.__name__ else ''}")
    if says_out_of_memory(kind, message):
        return TrainingError(f"{where}: there is not enough memory: {message}")
    return TrainingError(f"{where}: {kind}: {message}; see {log}")
