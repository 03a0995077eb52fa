"""The driver's side: gives jobs to Ray, watches the attempts, takes what they send, tries again what was lost."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mesax.bridges.ray_cluster import connection, parcels
from mesax.bridges.ray_cluster.desk import Desk, Event, News
from mesax.bridges.ray_cluster.task import Ending, Order, attempt_job
from mesax.bridges.ray_cluster.versions import identity
from mesax.bridges.ray_cluster.where import ATTEMPTS, OnRay, forwarded
from mesax.errors import Preempted, StoreError, TrainingError, UsageError, WorkerLost, WorkerTraceback
from mesax.execution.workers import InProcess, OnProgress, failure, how_to_continue, log_of, open_log, warn
from mesax.methods.base import Stage
from mesax.runtime import heartbeat_seconds
from mesax.store.files import read_regular_file, remove_tree
from mesax.store.modules import search_path
from mesax.store.run_directory import RunDirectory

Reference: TypeAlias = Any
"""Of Ray: something that is, or will be, in its object store."""
MOST_LOSSES = 3
"""Attempts at one job that may be lost in a row, with nothing saved in between."""
SECONDS_TO_LISTEN = 0.2
PATIENCE = 10
"""Files may be on their way so many times as long as a worker may be silent."""


@dataclass
class _Attempt:
    name: str
    job: int
    heard: float | None = None
    """When it last gave a sign of life; None while it waits for a CPU."""


@dataclass
class RayPool:
    """Jobs as tasks of Ray; each attempt has a directory of its own, and the driver takes files from one at a time."""

    run: RunDirectory
    on: OnRay
    size: int | None
    """Jobs at a time; None leaves it to Ray. A cluster that is started here has so many CPUs."""
    stop: threading.Event
    modules: Sequence[str] = ()
    """Modules of the user's that workers load to rebuild the experiment, as `--load` takes them."""
    _running: dict[Reference, _Attempt] = field(default_factory=dict)
    _losses: Counter[int] = field(default_factory=Counter)
    _desk: Any = None
    _told: bool = False
    """That the run is to stop."""
    _listened: float = 0.0
    """When workers were last listened to: who spoke after that has not been heard yet, but is not silent."""

    def do(self, stage: Stage, jobs: Sequence[int], on_progress: OnProgress, upcoming: Stage | None = None) -> None:
        """Do the jobs on the cluster, but here those that train nothing: they may read files of this machine."""
        del upcoming  # a job's process ends with it
        InProcess(self.run, self.stop).do(stage, [job for job in jobs if not stage.job_steps[job]], on_progress)
        waiting, stopped = deque(job for job in jobs if stage.job_steps[job]), False
        if not waiting:
            return
        self._begin()
        self._losses.clear()
        earlier = self._earlier(stage)
        while (waiting and not self.stop.is_set()) or self._running:
            while waiting and not self.stop.is_set() and (self.size is None or len(self._running) < self.size):
                self._submit(stage, waiting.popleft(), earlier)
            if self.stop.is_set():
                self._tell_to_stop()
            for name, event in self._news(stage, waiting):
                self._hear(stage, name, event, on_progress)
            for attempt, ending in self._ended():
                stopped = self._conclude(stage, attempt, ending, waiting, on_progress) or stopped
            for attempt in self._overdue():
                self._lost(stage, attempt, f"was silent for {heartbeat_seconds():.0f} seconds", waiting)
        if waiting or stopped:
            raise Preempted

    def close(self) -> None:
        """End whatever is still under way, and leave the cluster; one that was started for this run ends with it."""
        ray = connection.loaded()
        if ray is not None and self._desk is not None:
            with contextlib.suppress(Exception):  # the cluster may be gone
                for reference in self._running:
                    ray.cancel(reference, force=True)
                ray.kill(self._desk)
        self._running, self._desk = {}, None
        connection.disconnect()
        remove_tree(self.run.path / ATTEMPTS)

    def _begin(self) -> None:
        """Connect, if this has not happened yet."""
        if self._desk is not None:
            return
        connection.connect(self.on, self.size)
        self._desk = connection.on_this_node(Desk)

    def _earlier(self, stage: Stage) -> Reference:
        """What the stages before have left, in the object store once for all jobs."""
        folder = self.run.path / "jobs"
        names = [] if self.on.shared else parcels.names_in(folder, parcels.PASSING)
        others = [f"jobs/{name}" for name in names if not name.startswith(f"{stage.name}/")]
        return connection.ray().put(parcels.pack(self.run.path, others))

    def _submit(self, stage: Stage, job: int, earlier: Reference) -> None:
        attempt = _Attempt(f"{stage.name}-{job:03d}-{secrets.token_hex(4)}", job)
        own = self.run.job_directory(stage.name, job)
        prefix = own.relative_to(self.run.path).as_posix()
        names = [] if self.on.shared else [f"{prefix}/{name}" for name in parcels.names_in(own)]
        order = Order(
            attempt=attempt.name,
            run_json=(self.run.path / "run.json").read_text(encoding="utf-8"),
            stage=stage.name,
            job=job,
            shared=str(self.run.path.resolve()) if self.on.shared else None,
            environment=forwarded(os.environ),
            identity=identity(),
            modules=[os.path.abspath(name) if name.endswith(".py") else name for name in self.modules],
            places=list(search_path()) if self.modules else [],
        )
        task = connection.as_task(attempt_job, self.on.num_gpus)
        reference = task.remote(self._desk, order, earlier, parcels.pack(self.run.path, names))
        self._running[reference] = attempt

    def _news(self, stage: Stage, waiting: deque[int]) -> News:
        """What workers have told; if the desk is gone, there is a new one, and all attempts are made again."""
        self._listened = time.monotonic()
        try:
            return connection.ray().get(self._desk.news.remote(SECONDS_TO_LISTEN))
        except connection.errors() as error:
            reason = connection.one_line(error)
        try:
            self._desk = connection.on_this_node(Desk)
            connection.ray().get(self._desk.news.remote(0.0), timeout=heartbeat_seconds())
        except connection.errors() as error:
            raise WorkerLost(
                f"the Ray cluster is gone ({reason}); {how_to_continue(self.run, self.on.words)}"
            ) from error
        for reference, attempt in self._running.items():
            connection.ray().cancel(reference, force=True)
            self._lost(stage, attempt, "cannot be heard any more", waiting)
        self._running.clear()
        return []

    def _hear(self, stage: Stage, name: str, event: Event, on_progress: OnProgress) -> None:
        attempt = next((attempt for attempt in self._running.values() if attempt.name == name), None)
        if attempt is None:
            return
        attempt.heard = time.monotonic()
        if event["kind"] == "progress":
            on_progress(attempt.job, event["done"], event["note"])
        elif event["kind"] == "warning":
            warn(event["message"])
        elif event["kind"] == "parcel":
            self._take(stage, attempt, event["parcel"][0])

    def _take(self, stage: Stage, attempt: _Attempt, reference: Reference) -> None:
        """Files of a job: what this attempt loses from now on, the next one need not do again."""
        ray = connection.ray()
        try:
            parcel: parcels.Parcel = ray.get(reference, timeout=PATIENCE * heartbeat_seconds())
        except connection.errors():  # it has died or hangs, or its node does; should it live after all, it leaves
            self._desk.answer.remote(attempt.name, False)
            return
        home = self.run.path / ATTEMPTS / attempt.name
        read = self._shared_reader(home) if self.on.shared else parcel["files"].__getitem__
        parcels.accept(self.run.path, self.run.job_directory(stage.name, attempt.job), parcel, read)
        self._losses[attempt.job] = 0
        attempt.heard = time.monotonic()
        self._desk.answer.remote(attempt.name, True)

    @staticmethod
    def _shared_reader(home: Path) -> parcels.Read:
        return lambda name: read_regular_file(home / name, parcels.LARGEST)

    def _ended(self) -> list[tuple[_Attempt, Ending | Exception]]:
        """Attempts that have ended, each with its word, or with what Ray says happened to it."""
        ray = connection.ray()
        ended: list[tuple[_Attempt, Ending | Exception]] = []
        if not self._running:
            return ended
        ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for reference in ready:
            attempt = self._running.pop(reference)
            try:
                ended.append((attempt, ray.get(reference)))
            except connection.errors() as error:
                ended.append((attempt, error))
        return ended

    def _conclude(
        self,
        stage: Stage,
        attempt: _Attempt,
        ending: Ending | Exception,
        waiting: deque[int],
        on_progress: OnProgress,
    ) -> bool:
        """What an attempt's end means; True if it stopped because it was asked to."""
        where = f"{stage.name} job {attempt.job}"
        if self.run.job_done(stage.name, attempt.job):  # even if it died on its way home
            on_progress(attempt.job, stage.job_steps[attempt.job], "")
            return False
        if isinstance(ending, Exception):
            if connection.cannot_begin(ending):
                raise UsageError(f"{where}: a worker cannot load mesax: {connection.one_line(ending)}")
            if self.stop.is_set():  # it had not begun, or was lost at the end: what was saved has to do
                return True
            self._lost(stage, attempt, f"was lost ({connection.one_line(ending)})", waiting)
            return False
        if ending["kind"] == "refused":
            raise UsageError(ending["message"])
        if ending["kind"] == "error":
            log = log_of(self.run, 0)
            with contextlib.suppress(OSError, StoreError), open(open_log(log), "a", encoding="utf-8") as file:
                file.write(ending["trace"])
            raise failure(where, ending["error"], ending["message"], log) from WorkerTraceback(ending["trace"])
        if ending["kind"] != "stopped":
            raise TrainingError(f"{where} says that it is {ending['kind']}, but its files did not come")
        return True

    def _overdue(self) -> list[_Attempt]:
        """Attempts that have begun and are silent: their nodes may hang, which Ray notices late."""
        limit = self._listened - heartbeat_seconds()
        late = {
            reference: attempt
            for reference, attempt in self._running.items()
            if attempt.heard is not None and attempt.heard < limit
        }
        for reference in late:
            del self._running[reference]
            with contextlib.suppress(*connection.errors()):
                connection.ray().cancel(reference, force=True)
        return list(late.values())

    def _lost(self, stage: Stage, attempt: _Attempt, how: str, waiting: deque[int]) -> None:
        """Try again, from the last files that came; but not forever."""
        self._desk.dismiss.remote(attempt.name)
        self._losses[attempt.job] += 1
        told = f"the worker of {stage.name} job {attempt.job} {how}"
        if self._losses[attempt.job] > MOST_LOSSES:
            raise WorkerLost(
                f"{told}, {self._losses[attempt.job]} times in a row; {how_to_continue(self.run, self.on.words)}"
            )
        warn(f"{told}: once more")
        waiting.appendleft(attempt.job)

    def _tell_to_stop(self) -> None:
        """Once: who is at work saves; who waits for a CPU need not begin."""
        if self._told:
            return
        self._told = True
        self._desk.stop.remote()
        for reference, attempt in self._running.items():
            if attempt.heard is None:
                connection.ray().cancel(reference)
