"""One job of a run: how a stage's work is kept, in the run directory or in memory."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import PyTree

from mesax.errors import Preempted
from mesax.methods.base import Row, Stage
from mesax.store.checkpoints import Checkpoints, tree_checksums
from mesax.store.files import Checksum, store_errors
from mesax.store.run_directory import RunDirectory
from mesax.store.trees import InMemory, Place, SavedTree, save_tree
from mesax.training import schedule

Report = Callable[[int, str], None]
Warn = Callable[[str], None]


@dataclass
class Job:
    """What a job says of itself, wherever its work is kept: half of `mesax.methods.base.Services`."""

    stage: str
    job: int
    on_report: Report
    stop: threading.Event
    """Set when the run is to end: the job saves all and leaves at its next pause."""
    compile_seconds: float = field(default=0.0, kw_only=True)
    done_steps: int | None = field(default=None, kw_only=True)
    """Environment steps taken, as the job last said; a stage may end before its budget does. None: it said nothing."""

    def report(self, done_steps: int, note: str = "") -> None:
        """Pass progress on."""
        self.done_steps = done_steps
        self.on_report(done_steps, note)

    def compiled(self, seconds: float) -> None:
        """Remember the longest wait for a first chunk: the one that compiled."""
        self.compile_seconds = max(self.compile_seconds, seconds)


@dataclass
class Memory:
    """What the jobs of an experiment leave if nothing is written."""

    trees: InMemory = field(default_factory=InMemory)
    jobs: dict[str, list[InMemory]] = field(default_factory=dict)
    """Of each stage, where its jobs have their trees."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    documents: dict[str, Row] = field(default_factory=dict)


@dataclass
class JobInMemory(Job):
    """A job whose work is kept in memory. It is done in one go: nothing is left to go on from."""

    memory: Memory

    def __post_init__(self) -> None:
        """Make room."""
        self.memory.jobs.setdefault(self.stage, []).append(self.directory)

    @property
    def directory(self) -> InMemory:
        """Where this job saves its outputs."""
        return self.memory.trees / self.stage / f"{self.job:03d}"

    @property
    def scratch(self) -> InMemory:
        """Where this job keeps what is of no use once it is done."""
        return self.directory / "scratch"

    def put_aside(self, name: str, tree: PyTree, facts: dict[str, object]) -> None:
        """Keep a piece there that will not change again."""
        save_tree(self.scratch / name, tree, facts)

    def outputs(self, stage: str) -> list[Place]:
        """Where an earlier stage's jobs saved theirs, in order."""
        return list(self.memory.jobs[stage])

    def rows(self, name: str, rows: Iterable[Row]) -> None:
        """Keep them in the order in which they come."""
        self.memory.rows.setdefault(name, []).extend(rows)

    def document(self, name: str, content: Row) -> None:
        """Keep what is said of the whole run."""
        self.memory.documents[name] = content

    def kept(self, like: Callable[[], PyTree]) -> None:
        """Nothing: every job starts anew."""

    def keep(self, state: PyTree) -> None:
        """Nothing to do: no job goes on from memory."""

    def left(self) -> None:
        """Nothing."""

    def pause(self, loop: Callable[[], tuple[PyTree, dict[str, int]]]) -> None:
        """Leave if all is to end."""
        if self.stop.is_set():
            raise Preempted


@dataclass
class JobServices(Job):
    """A job whose work is kept in a run directory, from which it can go on."""

    run: RunDirectory
    warn: Warn
    on_saved: Callable[[], None] = lambda: None
    """Called whenever the job can go on from what is in its directory."""
    documents: dict[str, Checksum] = field(default_factory=dict)
    """Those that the job has written."""
    _state: PyTree = None
    _saved: SavedTree | None = None
    _loop_left: bool = False
    _earlier: float = 0.0
    _earlier_cpu: float = 0.0
    _started: float = field(default_factory=time.perf_counter)
    _started_cpu: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        """Continue from the last good checkpoint, or begin with an empty directory."""
        self.checkpoints = Checkpoints(self.directory, self.warn, on_saved=self.on_saved)
        self._saved = self.checkpoints.newest(self.identity)
        self._loop_left = self._saved is not None
        if self._saved is None:
            shutil.rmtree(self.directory, ignore_errors=True)
            with store_errors(self.directory, "created"):
                self.directory.mkdir(parents=True)
        else:
            self._earlier = float(self._saved.facts["seconds"])
            self._earlier_cpu = float(self._saved.facts.get("cpu_seconds", self._earlier))
            self.checkpoints.seconds = float(self._saved.facts["saving_seconds"])
            self.done_steps = self._saved.facts.get("done_steps")
            self.documents = self._saved.facts.get("documents", {})

    @property
    def identity(self) -> dict[str, object]:
        """What a checkpoint must have in common with this attempt to be continued by it."""
        return self.run.identity_of(self.directory) | {"segment_transitions": schedule.SEGMENT_TRANSITIONS}

    @property
    def directory(self) -> Path:
        """Where this job writes."""
        return self.run.job_directory(self.stage, self.job)

    @property
    def scratch(self) -> Path:
        """Where this job keeps what is of no use once it is done."""
        return self.checkpoints.scratch

    def put_aside(self, name: str, tree: PyTree, facts: dict[str, object]) -> None:
        """Keep a piece there that will not change again."""
        self.checkpoints.put_aside(name, tree, facts)

    @property
    def seconds(self) -> float:
        """Time spent on this job, earlier attempts included as far as they were saved."""
        return self._earlier + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the same: other work on the machine adds to the seconds, and hardly to these."""
        return self._earlier_cpu + time.process_time() - self._started_cpu

    def outputs(self, stage: str) -> list[Place]:
        """Directories of an earlier stage's jobs, in order."""
        return list(self.run.job_directories(stage))

    def rows(self, name: str, rows: Iterable[Row]) -> None:
        """Append to this job's own file; the runner merges the files of all jobs."""
        file = f"{name}.jsonl"
        self.checkpoints.wrote(file, RunDirectory(self.directory).append_rows(file, rows))

    def document(self, name: str, content: Row) -> None:
        """Write a JSON file for the whole run."""
        file = f"{name}.json"
        self.documents[file] = self.run.write_json(file, content)

    def kept(self, like: Callable[[], PyTree]) -> PyTree | None:
        """What the job kept when it was last saved; None if it starts anew."""
        if self._saved is None:
            return None
        self._state = self._saved.restore(like(), "job")  # until the job says something newer
        return self._state

    def keep(self, state: PyTree) -> None:
        """What the job needs to go on from here, apart from its loop."""
        self._state = state

    def left(self) -> SavedTree | None:
        """What the interrupted loop left, for the first loop that asks: it is the one that was interrupted."""
        left, self._loop_left = self._saved if self._loop_left else None, False
        self._saved = None  # a replay can be large
        return left

    def pause(self, loop: Callable[[], tuple[PyTree, dict[str, int]]]) -> None:
        """Save if it is time to; leave if the run is to end."""
        stopping = self.stop.is_set()
        if stopping or self.checkpoints.due():
            tree, facts = loop()
            clocks = {
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "saving_seconds": self.checkpoints.seconds,
                "done_steps": self.done_steps,
                "documents": self.documents,
            }
            self.checkpoints.save({"loop": tree, "job": self._state}, self.identity | clocks | {"loop": facts})
        if stopping:
            raise Preempted


def run_job(
    run: RunDirectory,
    stage: Stage,
    job: int,
    on_report: Report,
    warn: Warn = print,
    stop: threading.Event | None = None,
    on_saved: Callable[[], None] = lambda: None,
) -> None:
    """Do one job, from where an interrupted attempt was last saved."""
    services = JobServices(stage.name, job, on_report, stop or threading.Event(), run, warn, on_saved)
    stage.run(job, services)
    run.finish_job(
        stage.name,
        job,
        {
            "seconds": services.seconds,
            "cpu_seconds": services.cpu_seconds,
            "first_chunk_seconds": services.compile_seconds,
            "saving_seconds": services.checkpoints.seconds,
            "env_steps": stage.job_steps[job] if services.done_steps is None else services.done_steps,
            "rows": services.checkpoints.rows(),
            "trees": tree_checksums(services.directory),
            "documents": services.documents,
        },
    )
    # Only now: until the job is marked as done, it may have to go on from them.
    services.checkpoints.clear()
