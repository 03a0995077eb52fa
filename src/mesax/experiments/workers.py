"""Hands a stage's jobs to worker processes, or does them here; results do not depend on which."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mesax.errors import TrainingError
from mesax.experiments.store import RunDirectory
from mesax.methods.base import Experiment

OnProgress = Callable[[int, int, str], None]
"""(job, steps done, note)."""


@dataclass
class InProcess:
    """One worker: this process."""

    run: RunDirectory
    experiment: Experiment

    def do(self, stage: str, jobs: list[int], on_progress: OnProgress) -> None:
        """Do the jobs one after another."""
        from mesax.experiments.jobs import run_job  # noqa: PLC0415

        for job in jobs:
            run_job(
                self.run,
                self.experiment,
                stage,
                job,
                lambda done, note, job=job: on_progress(job, done, note),  # type: ignore[misc]
            )

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    number: int
    job: int | None = None


@dataclass
class Pool:
    """Several worker processes that live as long as the run, so that each compiles a program only once."""

    run: RunDirectory
    size: int
    _workers: list[_Worker] = field(default_factory=list)
    _events: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = field(default_factory=queue.Queue)

    def do(self, stage: str, jobs: list[int], on_progress: OnProgress) -> None:
        """Do the jobs, each by the next free worker."""
        waiting, running = deque(jobs), 0
        while len(self._workers) < min(self.size, len(jobs)):
            self._start()
        for worker in self._workers:
            running += self._give(worker, stage, waiting)
        while running:
            worker, event = self._events.get()
            if event is None:
                raise TrainingError(self._obituary(worker, stage))
            if event["kind"] == "progress" and worker.job is not None:
                on_progress(worker.job, event["done"], event["note"])
            elif event["kind"] == "error":
                raise TrainingError(f"{stage} job {worker.job}: {event['message'] or event['error']}")
            elif event["kind"] == "done":
                worker.job = None
                running += self._give(worker, stage, waiting) - 1

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            try:
                worker.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.process.kill()

    def _start(self) -> None:
        number = len(self._workers)
        process = subprocess.Popen(
            [sys.executable, "-m", "mesax.experiments.worker", str(self.run.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.run.path / f"worker-{number}.log", "a", encoding="utf-8"),  # noqa: SIM115
            text=True,
        )
        worker = _Worker(process, number)
        self._workers.append(worker)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout
        for line in worker.process.stdout:
            self._events.put((worker, json.loads(line)))
        worker.process.wait()
        self._events.put((worker, None))

    def _give(self, worker: _Worker, stage: str, waiting: deque[int]) -> int:
        if not waiting:
            return 0
        worker.job = waiting.popleft()
        assert worker.process.stdin
        worker.process.stdin.write(json.dumps({"stage": stage, "job": worker.job}) + "\n")
        worker.process.stdin.flush()
        return 1

    def _obituary(self, worker: _Worker, stage: str) -> str:
        code = worker.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        log = self.run.path / f"worker-{worker.number}.log"
        return f"the worker of {stage} job {worker.job} {how}; see {log}, and continue with mesax resume"
