"""Hands a stage's jobs to worker processes, or does them here; results do not depend on which."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesax.errors import FORESEEN, Preempted, TrainingError, WorkerLost, kind_of
from mesax.methods.base import Stage
from mesax.store.files import store_errors
from mesax.store.run_directory import RunDirectory

OnProgress = Callable[[int, int, str], None]
"""(job, steps done, note)."""


@dataclass
class InProcess:
    """One worker: this process."""

    run: RunDirectory
    stop: threading.Event

    def do(self, stage: Stage, jobs: list[int], on_progress: OnProgress) -> None:
        """Do the jobs one after another."""
        from mesax.execution.jobs import run_job  # noqa: PLC0415

        for job in jobs:
            if self.stop.is_set():
                raise Preempted
            try:
                run_job(
                    self.run,
                    stage,
                    job,
                    lambda done, note, job=job: on_progress(job, done, note),  # type: ignore[misc]
                    _warn,
                    self.stop,
                )
            except Exception as error:
                log = _log(self.run, 0)
                with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:  # the disk may be full
                    file.write(traceback.format_exc())
                raise _failure(stage.name, job, kind_of(error), str(error), log) from error

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    number: int
    job: int | None = None
    told: bool = False
    """That the run is to stop."""


@dataclass
class Pool:
    """Several worker processes that live as long as the run, so that each compiles a program only once."""

    run: RunDirectory
    size: int
    stop: threading.Event
    _workers: list[_Worker] = field(default_factory=list)
    _events: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = field(default_factory=queue.Queue)

    def do(self, stage: Stage, jobs: list[int], on_progress: OnProgress) -> None:
        """Do the jobs, each by the next free worker."""
        waiting, running, stopped = deque(jobs), 0, False
        threads = max(1, self.size // max(1, len(jobs)))  # cores that no job wants may step host environments
        while len(self._workers) < min(self.size, len(jobs)):
            self._start()
        for worker in self._workers:
            running += self._give(worker, stage.name, waiting, threads)
        while running:
            worker, event = self._next_event()
            if event is None:
                raise WorkerLost(self._obituary(worker, stage.name))
            kind = event["kind"]
            if kind == "progress" and worker.job is not None:
                on_progress(worker.job, event["done"], event["note"])
            elif kind == "warning":
                _warn(event["message"])
            elif kind == "error":
                log = _log(self.run, worker.number)
                raise _failure(stage.name, worker.job, event["error"], event["message"], log)
            elif kind in ("done", "stopped"):
                worker.job, stopped = None, stopped or kind == "stopped"
                running += self._give(worker, stage.name, waiting, threads) - 1
        if waiting or stopped:
            raise Preempted

    def _next_event(self) -> tuple[_Worker, dict[str, Any] | None]:
        """What a worker says next; when the run is to stop, they are told so."""
        while True:
            if self.stop.is_set():
                for worker in self._workers:
                    if not worker.told:
                        worker.told = True
                        self._order(worker, {"stop": True})
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=0.2)

    def close(self) -> None:
        """End all workers: they leave when there is nothing more to read."""
        for worker in self._workers:
            assert worker.process.stdin
            with contextlib.suppress(OSError):  # what was left to say is of no use to the dead
                worker.process.stdin.close()
        for worker in self._workers:
            try:
                worker.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _start(self) -> None:
        number = len(self._workers)
        path = _log(self.run, number)
        with store_errors(path, "written"), open(path, "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mesax.execution.worker", str(self.run.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        worker = _Worker(process, number)
        self._workers.append(worker)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout
        with worker.process.stdout as answers:
            for line in answers:
                self._events.put((worker, json.loads(line)))
        worker.process.wait()
        self._events.put((worker, None))

    def _give(self, worker: _Worker, stage: str, waiting: deque[int], threads: int) -> int:
        if not waiting or self.stop.is_set():
            return 0
        worker.job = waiting.popleft()
        self._order(worker, {"stage": stage, "job": worker.job, "threads": threads})
        return 1

    def _order(self, worker: _Worker, order: dict[str, Any]) -> None:
        assert worker.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died, and its end is the next event
            worker.process.stdin.write(json.dumps(order) + "\n")
            worker.process.stdin.flush()

    def _obituary(self, worker: _Worker, stage: str) -> str:
        code = worker.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        log = _log(self.run, worker.number)
        return f"the worker of {stage} job {worker.job} {how}; see {log}, and continue with mesax resume"


def _warn(message: str) -> None:
    print(f"mesax: {message}", file=sys.stderr, flush=True)


def _log(run: RunDirectory, number: int) -> Path:
    """Where a worker's warnings and tracebacks go."""
    return run.path / f"worker-{number}.log"


def _failure(stage: str, job: int | None, kind: str, message: str, log: Path) -> Exception:
    """A job's error as one line; what nobody foresaw also says its kind and where its traceback is."""
    if kind in FORESEEN:
        return FORESEEN[kind](f"{stage} job {job}: {message}")
    return TrainingError(f"{stage} job {job}: {kind}: {message}; see {log}")
