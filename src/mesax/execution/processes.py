"""Worker processes: each rebuilds the experiment from run.json and does jobs as JSON lines tell it to."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mesax.errors import Preempted, WorkerLost, WorkerTraceback
from mesax.execution.workers import OnProgress, failure, how_to_continue, log_of, open_log, warn
from mesax.methods.base import Stage
from mesax.store.files import store_errors
from mesax.store.modules import search_path
from mesax.store.run_directory import RunDirectory

Event: TypeAlias = dict[str, Any]
"""What a worker says: a kind, and what belongs to it."""
SECONDS_TO_LEAVE = 5.0
"""For all workers together to close their environments; a stopped run has not much more than that."""
SECONDS_TO_HEAR = 2.0
"""For what a worker has said before its end."""


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    number: int
    job: int | None = None
    told: bool = False
    """That the run is to stop."""


@dataclass
class Processes:
    """Several worker processes, each for the whole run, so that each compiles a program only once."""

    run: RunDirectory
    size: int
    stop: threading.Event
    modules: Sequence[str] = ()
    """Modules of the user's that workers load to rebuild the experiment, as `--load` takes them."""
    _workers: list[_Worker] = field(default_factory=list)
    _prepared: set[str] = field(default_factory=set)
    _events: queue.Queue[tuple[_Worker, Event | None]] = field(default_factory=queue.Queue)

    def do(self, stage: Stage, jobs: Sequence[int], on_progress: OnProgress, upcoming: Stage | None = None) -> None:
        """Do the jobs, each by the next free worker; one that finds none prepares what is `upcoming`."""
        waiting, running, stopped = deque(jobs), 0, False
        threads = max(1, self.size // max(1, len(jobs)))  # cores that no job wants may step host environments
        while len(self._workers) < min(self.size, len(jobs)):
            self._start()
        for worker in self._workers:
            running += self._give(worker, stage.name, waiting, threads)
        if running and upcoming is not None:
            self._prepare(upcoming)
        while running:
            worker, event = self._next_event()
            if event is None:
                raise WorkerLost(self._how_it_ended(worker, stage.name))
            kind = event["kind"]
            if kind == "progress" and worker.job is not None:
                on_progress(worker.job, event["done"], event["note"])
            elif kind == "warning":
                warn(event["message"])
            elif kind == "error":
                log = log_of(self.run, worker.number)
                error = failure(f"{stage.name} job {worker.job}", event["error"], event["message"], log)
                raise error from WorkerTraceback(event["trace"])
            elif kind in ("done", "stopped"):
                worker.job, stopped = None, stopped or kind == "stopped"
                running += self._give(worker, stage.name, waiting, threads) - 1
        if waiting or stopped:
            raise Preempted

    def _next_event(self) -> tuple[_Worker, Event | None]:
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
        """End all workers: they leave when asked to, or else when there is nothing more to read."""
        for worker in self._workers:
            self._order(worker, {"leave": True})
        limit = time.monotonic() + SECONDS_TO_LEAVE
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(timeout=max(0.0, limit - time.monotonic()))
        for worker in self._workers:
            assert worker.process.stdin
            with contextlib.suppress(OSError):  # it has ended already
                worker.process.stdin.close()
        for worker in self._workers:
            try:
                worker.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _start(self) -> None:
        number = len(self._workers)
        path = log_of(self.run, number)
        loads = [word for module in self.modules for word in ("--load", module)]
        # A user's modules are found where this process found them.
        places = {"PYTHONPATH": os.pathsep.join(search_path())} if self.modules else {}
        with store_errors(path, "written"), open(open_log(path), "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mesax.execution.worker", str(self.run.path), *loads],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | places,
            )
        worker = _Worker(process, number)
        self._workers.append(worker)
        listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        listener.start()
        threading.Thread(target=self._await_end, args=(worker, listener), daemon=True).start()

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout
        with worker.process.stdout as answers:
            for line in answers:
                try:
                    event = json.loads(line)
                except ValueError:  # it was killed in the middle of a word
                    return
                self._events.put((worker, event))

    def _await_end(self, worker: _Worker, listener: threading.Thread) -> None:
        """An end without a last word is news too, even if a process of an environment's holds the pipe open."""
        worker.process.wait()
        listener.join(SECONDS_TO_HEAR)
        self._events.put((worker, None))

    def _give(self, worker: _Worker, stage: str, waiting: deque[int], threads: int) -> int:
        if not waiting or self.stop.is_set():
            return 0
        worker.job = waiting.popleft()
        self._order(worker, {"stage": stage, "job": worker.job, "threads": threads})
        return 1

    def _prepare(self, stage: Stage) -> None:
        """Have one worker compile what a later stage needs, if one has nothing to do and none has done so.

        The others then find it in the cache. A job that it is given meanwhile is done next: that waits for no more than
        what it would have compiled itself.
        """
        if stage.prepare is None or stage.name in self._prepared:
            return
        if all(worker.job is not None for worker in self._workers) and len(self._workers) < self.size:
            self._start()
        for worker in self._workers:
            if worker.job is None:
                self._prepared.add(stage.name)
                self._order(worker, {"prepare": stage.name})
                return

    def _order(self, worker: _Worker, order: Mapping[str, object]) -> None:
        assert worker.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died, and its end is the next event
            worker.process.stdin.write(json.dumps(order) + "\n")
            worker.process.stdin.flush()

    def _how_it_ended(self, worker: _Worker, stage: str) -> str:
        code = worker.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        log = log_of(self.run, worker.number)
        whose = "a worker without a job" if worker.job is None else f"the worker of {stage} job {worker.job}"
        return f"{whose} {how}; see {log}; {how_to_continue(self.run)}"
