"""What a worker of the cluster does: one attempt at one job, in a directory of its own.

All that it is given and gives back is plain: text, numbers, names and bytes. JAX is imported after the driver's
variables are set, and stays set up for the next job of the same run, whose programs are compiled already.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from mesax.bridges.ray_cluster import connection
from mesax.bridges.ray_cluster.desk import LEAVE, STOP
from mesax.bridges.ray_cluster.parcels import Files, Parcel, Stamps, names_in, pack, stamps, unpack
from mesax.bridges.ray_cluster.scratch import own_directory
from mesax.bridges.ray_cluster.versions import difference, identity
from mesax.bridges.ray_cluster.where import ATTEMPTS
from mesax.errors import Preempted, kind_of
from mesax.runtime import use_threads, with_jax
from mesax.store.files import write_file
from mesax.store.json_values import parse_object
from mesax.store.modules import load_modules
from mesax.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from mesax.methods.base import Stage

Ending: TypeAlias = dict[str, Any]
"""How an attempt ended: done, stopped, refused or error, and what belongs to it."""
SECONDS_BETWEEN_BEATS = 1.0


class Order(TypedDict):
    """What an attempt needs to know."""

    attempt: str
    run_json: str
    stage: str
    job: int
    shared: str | None
    """The run directory, if every node sees it."""
    environment: dict[str, str]
    identity: dict[str, str]
    modules: list[str]
    places: list[str]
    """Where the driver looks for these modules."""


@dataclass(frozen=True)
class Attempt(RunDirectory):
    """The run as one attempt sees it: it writes into a directory of its own, and reads what the jobs before it left."""

    origin: Path
    """The run directory that holds the earlier stages."""

    def job_directories(self, phase: str) -> list[Path]:
        """Those of the run."""
        return RunDirectory(self.origin).job_directories(phase)


def attempt_job(desk: Any, order: Order, earlier: Files, left: Files) -> Ending:
    """Do a job from where an earlier attempt was last saved; whatever happens is a value, unless the process dies.

    `earlier` are the outputs of the stages before, `left` what the job has already, both as files of the run directory.
    """
    node = socket.gethostname()
    if differs := difference(order["identity"], identity()):
        return {"kind": "refused", "message": f"node {node} has {differs}: install the same on all nodes"}
    os.environ.update(order["environment"])
    stop = threading.Event()
    with _Line(desk, order["attempt"], stop) as line:
        try:
            with _place(order, earlier, left) as attempt:
                _do(attempt, order, line, stop)
        except Preempted:
            return {"kind": "stopped"}
        except Exception as error:
            told = {"error": kind_of(error), "message": f"on node {node}: {error}", "trace": traceback.format_exc()}
            return {"kind": "error", **told}
    return {"kind": "done"}


@contextmanager
def _place(order: Order, earlier: Files, left: Files) -> Iterator[Attempt]:
    """A directory for this attempt alone, with all that is needed in it."""
    if order["shared"] is None:
        with own_directory(order["attempt"]) as home:
            unpack(home, earlier | left)
            write_file(home / "run.json", order["run_json"].encode())
            yield Attempt(home, home)
        return
    origin = Path(order["shared"])
    home = origin / ATTEMPTS / order["attempt"]
    write_file(home / "run.json", order["run_json"].encode())
    job = RunDirectory(origin).job_directory(order["stage"], order["job"])
    prefix = job.relative_to(origin)
    unpack(home / prefix, pack(job, names_in(job)))
    try:
        yield Attempt(home, origin)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _do(attempt: Attempt, order: Order, line: _Line, stop: threading.Event) -> None:
    jobs, running = with_jax("mesax.execution.jobs"), with_jax("mesax.training.host_rollout").running
    use_threads(1)
    stage = _stages(order["run_json"], tuple(order["modules"]), tuple(order["places"]))[order["stage"]]
    outbox = _Outbox(attempt, order, line)
    try:
        jobs.run_job(attempt, stage, order["job"], line.progress, line.warn, stop, outbox.send)
    except Exception:
        with contextlib.suppress(Exception):  # the last good state, and rows up to here; but the error says more
            outbox.send()
        raise
    else:
        outbox.send()
    finally:
        running.close()  # another job may never come, and Ray ends its processes without a word


@cache
def _stages(run_json: str, modules: tuple[str, ...], places: tuple[str, ...]) -> dict[str, Stage]:
    """The stages of a run, built once in a process."""
    sys.path += [place for place in places if place not in sys.path]
    rebuild = with_jax("mesax.experiments.rebuild")
    experiment = rebuild.experiment_of(parse_object(run_json.encode()), load_modules(modules))
    return {stage.name: stage for stage in experiment.method.stages(experiment)}


@dataclass
class _Outbox:
    """Sends what has changed since it last sent; the driver had whatever was there at first."""

    attempt: Attempt
    order: Order
    line: _Line
    _sent: Stamps = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sent = stamps(self.attempt.path, self._names())

    def send(self) -> None:
        """Wait until the driver has all files as they are now."""
        names = self._names()
        now = stamps(self.attempt.path, names)
        changed = [name for name in names if self._sent.get(name) != now[name]]
        files = pack(self.attempt.path, changed) if self.order["shared"] is None else {}
        self.line.deliver({"names": names, "changed": changed, "files": files})
        self._sent = now

    def _names(self) -> list[str]:
        """The files of the job, and the documents that it writes for the run."""
        job = self.attempt.job_directory(self.order["stage"], self.order["job"])
        own = job.relative_to(self.attempt.path).as_posix()
        documents = [path.name for path in sorted(self.attempt.path.glob("[!.]*.json")) if path.name != "run.json"]
        return [*(f"{own}/{name}" for name in names_in(job)), *documents]


@dataclass
class _Line:
    """The way to the driver's desk, and from it the word to stop or to leave."""

    desk: Any
    attempt: str
    stop: threading.Event
    _over: threading.Event = field(default_factory=threading.Event)
    # Not by the main thread: while that waits for Ray, Ray lends its CPU to another job.
    _caller: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __enter__(self) -> _Line:
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._caller.shutdown()

    def progress(self, done: int, note: str) -> None:
        """How far the job is."""
        self.desk.tell.remote(self.attempt, {"kind": "progress", "done": done, "note": note})

    def warn(self, message: str) -> None:
        """A line for the user."""
        self.desk.tell.remote(self.attempt, {"kind": "warning", "message": message})

    def deliver(self, parcel: Parcel) -> None:
        """Hand files over; returns when the driver has them, and ends the process if it does not want them."""
        if not self._caller.submit(_or_leave, lambda: self._delivered(parcel)).result():
            leave()

    def _delivered(self, parcel: Parcel) -> bool:
        ray = connection.ray()
        return bool(ray.get(self.desk.deliver.remote(self.attempt, [ray.put(parcel)])))

    def _beat(self) -> None:
        ray = connection.ray()
        while not self._over.wait(SECONDS_BETWEEN_BEATS):
            word = _or_leave(lambda: ray.get(self.desk.beat.remote(self.attempt)))
            if word == STOP:
                self.stop.set()
            elif word == LEAVE and not self._over.is_set():
                leave()


def _or_leave(call: Callable[[], Any]) -> Any:
    """The answer to a call; without one the run has ended, and so does this process."""
    try:
        return call()
    except connection.errors():
        traceback.print_exc()
        leave()


def leave() -> None:
    """End at once: the driver has given this attempt up."""
    os._exit(1)
