"""The run directory: plain files that are written at once or not at all (`json_files` reads them). Needs no JAX."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path

from mesax.errors import DamageError, StoreError, UsageError
from mesax.store.files import (
    Checksum,
    checksum,
    held_alone,
    is_there,
    open_regular_file,
    store_errors,
    sync_directory,
    write_all,
    write_file,
)
from mesax.store.json_files import (
    CHECKSUMS,
    existing_run,
    read_json,
    read_rows,
    read_status,
    refuse_foreign_things,
)
from mesax.store.json_values import Json, json_ready, parse_object, signed
from mesax.store.replacing import new_directory_beside
from mesax.store.sums import DONE, Sums, check_job, check_sum, identity_of, read_sums, write_sums

PRODUCTS = "policies"
"""Folder of what the stages of a finished run have made."""
STATUSES = ("running", "done", "failed", "preempted")
COVERAGE = "coverage.json"
MERGED = ("run.json", "eval.jsonl", "metrics.jsonl", "timing.jsonl", COVERAGE, "summary.json", "clock.jsonl")
"""The results of a finished run; coverage.json is there only if explorers were trained."""
KEPT_ONCE = ("run.json", COVERAGE, "clock.jsonl")
"""Those of them that cannot be merged again from what the jobs wrote."""
SECONDS_FOR_LOOKING = 1
"""After which a lock that others share is refused."""
_lasting = ExitStack()
"""What is held until this process ends."""


@dataclass(frozen=True)
class RunDirectory:
    """One run on disk."""

    path: Path

    @staticmethod
    def create(path: Path, run_json: Mapping[str, object]) -> RunDirectory:
        """A new run directory with its run.json and status `running`; appears whole or not at all."""
        path = Path(path)
        _refuse_existing(path)
        with store_errors(path, "created"), new_directory_beside(path) as temporary:
            RunDirectory(temporary).write_json("run.json", signed(run_json))
            RunDirectory(temporary).set_status("running")
            _refuse_existing(path)
            try:
                os.rename(temporary, path)
            except OSError:  # another process was faster
                _refuse_existing(path)
                raise
            sync_directory(path.parent)
        return RunDirectory(path)

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run directory, in which there are only files and folders."""
        directory = RunDirectory(existing_run(Path(path)))
        refuse_foreign_things(directory.path)
        _ = directory.run
        return directory

    @cached_property
    def run(self) -> Json:
        """What run.json says: configuration, command, versions, tasks."""
        try:
            expected = self.expected("run.json")
        except DamageError:  # of the sums: a reader of a result finds it, and `resume` has to get past it
            expected = None
        return read_json(self.path / "run.json", expected)

    @property
    def status(self) -> str:
        """One word: running, done, failed, preempted; `unknown` if there is none."""
        return read_status(self.path)

    @property
    def state(self) -> str:
        """The status as it is: a run that says `running`, though no process is at work on it, was `killed`."""
        status = self.status
        return "killed" if status == "running" and not self.at_work else status

    @property
    def at_work(self) -> bool:
        """Whether a process holds the lock."""
        try:
            descriptor = open_regular_file(self.path / ".lock", os.O_RDONLY)
        except (OSError, StoreError):
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError:
            return True
        finally:
            os.close(descriptor)

    def set_status(self, word: str) -> None:
        """Replace the status."""
        if word not in STATUSES:
            raise ValueError(f"status {word!r} is none of {', '.join(STATUSES)}")
        write_file(self.path / "STATUS", f"{word}\n".encode())

    def write_json(self, name: str, value: object) -> Checksum:
        """Write a readable JSON file at once or not at all; what it is now."""
        data = (json.dumps(json_ready(value), indent=2, allow_nan=False) + "\n").encode()
        write_file(self.path / name, data)
        return checksum(data)

    def read_json(self, name: str) -> Json:
        """The object in a JSON file; in a finished run, it must be what was written."""
        return read_json(self.path / name, self.expected(name))

    def append_rows(self, name: str, rows: Iterable[Mapping[str, object]]) -> bytes:
        """Add rows to a JSONL file, durably; a line that a crash cut short is removed first. Returns what was added."""
        data = "".join(_line(row) for row in rows).encode()
        path = self.path / name
        with store_errors(path, "written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_regular_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            with FileIO(descriptor, "a+") as file:
                end, glue = _end_of_rows(file)
                file.truncate(end)
                try:
                    write_all(file.fileno(), glue + data)
                except OSError:
                    file.truncate(end)
                    raise
        return glue + data

    def write_rows(self, name: str, rows: Iterable[Mapping[str, object]]) -> Checksum:
        """Write a whole JSONL file at once or not at all; what it is now."""
        data = "".join(_line(row) for row in rows).encode()
        write_file(self.path / name, data)
        return checksum(data)

    def read_rows(self, name: str) -> list[Json]:
        """The rows of a JSONL file; none if there is no file, but in a finished run it must be what was written."""
        return read_rows(self.path / name, self.expected(name))

    @property
    def sums(self) -> Sums | None:
        """What the files of a finished run must be; None if it is not finished."""
        return read_sums(self.path)

    def expected(self, name: str) -> Checksum | None:
        """What a file must be if the run is finished; one that a finished run does not know is a `DamageError`."""
        sums = self.sums
        if sums is None:
            return None
        if name not in sums:
            raise DamageError(f"{self.path / name} does not belong to the finished run: {CHECKSUMS} does not name it")
        return sums[name]

    def has(self, name: str) -> bool:
        """Whether there is a file of that name, or should be."""
        sums = self.sums
        return is_there(self.path / name) or (sums is not None and name in sums)

    def check(self, *names: str) -> None:
        """A `DamageError` if one of these files is not what a finished run wrote."""
        for name in names:
            expected = self.expected(name)
            if expected is not None:
                check_sum(self.path / name, expected)

    def check_results(self) -> None:
        """A `DamageError` if a finished run lacks results, or one of them is not what was written."""
        self.check(*(name for name in MERGED if name != COVERAGE or self.has(name)))

    def can_be_mended(self) -> bool:
        """Whether all results that nothing else holds are what was written, as far as that is known."""
        try:
            sums = self.sums or {}
        except DamageError:  # of the sums themselves, which are written again
            return True
        try:
            self.check(*(name for name in sums if name in KEPT_ONCE))
        except StoreError:
            return False
        return True

    def seal(self, sums: Sums) -> None:
        """Write down what the files are: from now on, a file is checked whenever it is read."""
        write_sums(self.path, sums)

    def unseal(self) -> None:
        """The files are about to change."""
        with store_errors(self.path / CHECKSUMS, "removed"):
            (self.path / CHECKSUMS).unlink(missing_ok=True)

    def job_directory(self, phase: str, job: int) -> Path:
        """Where one job of a phase keeps its files; not created."""
        return self.path / "jobs" / phase / f"{job:03d}"

    def job_directories(self, phase: str) -> list[Path]:
        """Directories of all jobs of a phase, in order."""
        return sorted(path for path in (self.path / "jobs" / phase).iterdir() if path.is_dir())

    def job_done(self, phase: str, job: int) -> bool:
        """Whether a job has finished."""
        return (self.job_directory(phase, job) / DONE).is_file()

    def finish_job(self, phase: str, job: int, facts: Mapping[str, object]) -> None:
        """Mark a job as finished; the last thing a job does."""
        directory = self.job_directory(phase, job)
        self.write_json(self._name_of(directory / DONE), signed({**self.identity_of(directory), **facts}))

    def identity_of(self, job: Path) -> Json:
        """Whose the files of a job are."""
        return identity_of(job, self.run.get("config_hash"))

    def check_job(self, job: Path) -> Json:
        """What a finished job says of itself; a `DamageError` if what it has written is not its own."""
        return check_job(self.path, job, self.run.get("config_hash"))

    def _name_of(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing here; released by the system should this process die."""
        path = self.path / ".lock"
        with store_errors(path, "opened"):
            descriptor = open_regular_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        with held_alone(descriptor):
            try:
                _lock_alone(descriptor)
            except BlockingIOError as error:
                owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
                raise UsageError(f"{self.path} is in use by process {owner}") from error
            except OSError as error:
                raise StoreError(f"{path} cannot be locked: {error.strerror}") from error
            with store_errors(path, "written"):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
            self._await_stragglers()
            try:
                yield
            finally:
                os.truncate(descriptor, 0)
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def attend(self) -> None:
        """Say, for the life of this process, that a worker is at work here."""
        path = self.path / ".workers"
        with store_errors(path, "opened"):
            _lasting.enter_context(held_alone(descriptor := open_regular_file(path, os.O_RDWR | os.O_CREAT)))
            fcntl.flock(descriptor, fcntl.LOCK_SH)

    def _await_stragglers(self) -> None:
        """Workers leave when the process that started them is killed, but not in the same instant."""
        path = self.path / ".workers"
        if not is_there(path):
            return
        with store_errors(path, "opened"), FileIO(open_regular_file(path, os.O_RDWR), "r+") as file:
            for _ in range(100):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(0.1)
        raise UsageError(f"{self.path} is in use by a worker of a run that has ended; try again, or end it")


def product_in(run: Path, name: str) -> Path:
    """Where a finished run has a tree of arrays that one of its stages made: a policy, or a set of them."""
    return run / PRODUCTS / name


def find_runs(root: Path) -> list[RunDirectory]:
    """All run directories at or below `root`, by name; hidden directories are passed over."""
    found = []
    for folder, names, files in os.walk(root):
        names[:] = [] if "run.json" in files else sorted(name for name in names if not name.startswith("."))
        if "run.json" in files:
            found.append(RunDirectory(Path(folder)))
    return sorted(found, key=lambda run: run.path)


def _line(row: Mapping[str, object]) -> str:
    return json.dumps(json_ready(row), sort_keys=True, allow_nan=False) + "\n"


def _lock_alone(descriptor: int) -> None:
    """Take a lock, or raise `BlockingIOError` if another process has it.

    A process that asks if a run is at work shares the lock for an instant (`execution/status.py`): that is waited for.
    """
    for _ in range(SECONDS_FOR_LOOKING * 20):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # refused if another has it alone
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(0.05)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _end_of_rows(file: FileIO) -> tuple[int, bytes]:
    """Where the next row goes, and what must stand before it if the last newline is missing."""
    size = end = file.seek(0, os.SEEK_END)
    tail = b""
    while end and b"\n" not in tail:
        end = max(0, end - 65536)
        file.seek(end)
        tail = file.read(size - end)
    cut = tail.rfind(b"\n") + 1
    try:
        parse_object(tail[cut:])
    except ValueError:
        return end + cut, b""
    return size, b"\n"


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        go_on = f", or continue it: mesax resume {path}" if (path / "run.json").is_file() else ""
        raise UsageError(f"{path} exists already; choose another directory with --out{go_on}")
