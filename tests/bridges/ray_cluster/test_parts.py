"""The parts of running on a cluster that need no Ray: what is asked for, files that travel, attempts, the desk."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mesax.bridges.ray_cluster import connection, parcels, task, versions
from mesax.bridges.ray_cluster.desk import GO_ON, LEAVE, STOP, Desk
from mesax.bridges.ray_cluster.parcels import Parcel, accept, names_in, pack, stamps, unpack
from mesax.bridges.ray_cluster.pool import RayPool
from mesax.bridges.ray_cluster.pool import _Attempt as Tried
from mesax.bridges.ray_cluster.scratch import own_directory
from mesax.bridges.ray_cluster.where import OnRay, forwarded
from mesax.cli.cluster import cluster_of
from mesax.cli.parser import main, parse
from mesax.cli.sweeping import how_to_do
from mesax.errors import USAGE, DamageError, StoreError, TrainingError, UsageError
from mesax.execution.sweep import How
from mesax.execution.workers import how_to_continue
from mesax.methods.base import Stage
from mesax.runtime import heartbeat_seconds
from mesax.store.checkpoints import Checkpoints
from mesax.store.run_directory import RunDirectory
from mesax.training.host_rollout import running
from mesax.types import Discrete, EnvSpec

# What is asked for


@pytest.fixture
def closed_port() -> str:
    """An address at which nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("somewhere", "must be auto, or HOST:PORT"),
        ("host:", "must be auto, or HOST:PORT"),
        (":6379", "must be auto, or HOST:PORT"),
        ("host:70000", "must be auto, or HOST:PORT"),
        ("ray://host:10001", "is one of Ray's client"),
    ],
)
def test_addresses_that_cannot_be(address: str, told: str):
    with pytest.raises(UsageError, match=told):
        OnRay(address)


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf"), 1.5])
def test_gpus_that_cannot_be(number: float):
    with pytest.raises(UsageError, match="--num-gpus must be"):
        OnRay(num_gpus=number)


@pytest.mark.parametrize(
    "on", [OnRay(), OnRay("auto"), OnRay("10.0.0.1:6379", shared=True), OnRay("auto", True, 0.5), OnRay(num_gpus=2.0)]
)
def test_what_is_asked_for_can_be_typed_again(on: OnRay, monkeypatch):
    monkeypatch.setattr(OnRay, "check", lambda on: None)
    assert cluster_of(parse(["run", "plain", "climb-one", *on.words])) == on
    assert cluster_of(parse(["resume", "somewhere", *on.words])) == on


def test_the_cluster_of_a_submitted_job_is_used(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert OnRay().cluster is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert (OnRay().cluster, OnRay("auto").cluster) == ("10.0.0.7:6379", "auto")


def refused(words: list[str], capsys) -> str:
    """The one line that a command is refused with."""
    assert main(words) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_mistakes_are_one_line_and_leave_nothing(tmp_path, capsys, closed_port, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    run = ["run", "plain", "climb-one", "--preset", "smoke", "--out", str(tmp_path / "run")]
    assert f"no Ray cluster answers at {closed_port}" in refused(
        [*run, "--on", "ray", "--address", closed_port], capsys
    )
    assert "--address belongs to a cluster" in refused([*run, "--address", "auto"], capsys)
    assert "--shared belongs to a cluster" in refused([*run, "--shared"], capsys)
    sweep = ["sweep", "--methods", "plain", "--envs", "climb-one", "--out", str(tmp_path / "sweep")]
    assert "no Ray cluster answers" in refused([*sweep, "--on", "ray", "--address", closed_port], capsys)
    assert "--at-once must be at least 1" in refused([*sweep, "--at-once", "0"], capsys)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "Ray is not installed: pip install 'mesax[ray]'" in refused([*run, "--on", "ray"], capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("greeting", "told"),
    [(None, "timed out"), (b"", "another program does"), (b"HTTP/1.1 400 Bad Request\r\n", "another program does")],
    ids=["silent", "closes", "web"],
)
def test_somebody_else_at_the_address_is_one_line(greeting: bytes | None, told: str, monkeypatch):
    """Ray itself would wait for minutes."""
    if greeting is None:
        monkeypatch.setattr("mesax.bridges.ray_cluster.where.SECONDS_TO_ANSWER", 0.2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with (
        answering(greeting) as address,
        pytest.raises(UsageError, match=f"no Ray cluster answers at {address}: {told}"),
    ):
        OnRay(address).check()


def test_who_greets_as_a_cluster_does_is_one(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with answering(bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + b"\0\5\0\0@\0") as address:
        OnRay(address).check()


@contextmanager
def answering(greeting: bytes | None) -> Iterator[str]:
    """The address of somebody who says this and goes, or says nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as line:
                line.recv(100)
                if greeting is not None:
                    line.sendall(greeting)
                else:
                    line.recv(100)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(5)


def test_runs_of_a_sweep_on_this_machine_are_told_of_their_workers():
    words = ["sweep", "--methods", "plain", "--envs", "climb-one"]
    assert how_to_do(None, parse(words)) == How()
    assert how_to_do(None, parse([*words, "--workers", "3", "--at-once", "2"])) == How(("--workers", "3"), 2)


def test_variables_of_mesax_jax_and_xla_are_forwarded(monkeypatch):
    monkeypatch.setenv("MESAX_X", "1")
    monkeypatch.setenv("JAX_Y", "2")
    monkeypatch.setenv("XLA_FLAGS", "--z")
    monkeypatch.setenv("OTHER_JAX_", "3")
    found = forwarded(os.environ)
    assert {"MESAX_X": "1", "JAX_Y": "2", "XLA_FLAGS": "--z"}.items() <= found.items() and "OTHER_JAX_" not in found


def test_who_stopped_it_is_told_how_it_goes_on_there(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"request": {}})
    assert how_to_continue(run, OnRay("auto", True).words).endswith(f"{run.path} --on ray --address auto --shared")


# Versions


def test_every_change_of_the_source_is_another_mesax(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("x = 1\n")
    before = versions.source_digest(tmp_path)
    assert before == versions.source_digest(tmp_path)
    (tmp_path / "inner" / "a.py").write_text("x = 2\n")
    assert versions.source_digest(tmp_path) != before


def test_what_differs_is_named():
    here = {"Python": "3.11", "mesax": "1.0", "jax": "0.9"}
    assert versions.difference(here, dict(here)) == ""
    told = versions.difference(here, {"Python": "3.12", "mesax": "1.0"})
    assert told == "Python 3.12 instead of 3.11, jax missing instead of 0.9"


def order_of(run: RunDirectory, **changes: object) -> task.Order:
    whole = {
        "attempt": "collect-000-abcd",
        "run_json": (run.path / "run.json").read_text(),
        "stage": "adapt",
        "job": 0,
        "shared": None,
        "environment": {},
        "identity": versions.identity(),
        "modules": [],
        "places": [],
    }
    return {**whole, **changes}  # type: ignore[typeddict-item, return-value]


def test_a_worker_of_another_version_refuses(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"id": "x"})
    order = order_of(run, identity=versions.identity() | {"mesax": "0.0.1"}, environment={"MESAX_X": "1"})
    ending = task.attempt_job(None, order, {}, {})
    assert ending["kind"] == "refused" and "instead of 0.0.1: install the same" in ending["message"]
    assert "MESAX_X" not in os.environ


@pytest.mark.parametrize("error", [None, TrainingError("broken")])
def test_what_an_attempt_opens_is_closed_once_its_files_are_on_their_way(tmp_path, monkeypatch, error):
    """Ray ends a process when it likes to, and asks nobody."""
    told: list[str] = []

    def run_job(*_: object) -> None:
        running.batch(Told(told), 1, 1)
        if error is not None:
            raise error

    monkeypatch.setattr("mesax.execution.jobs.run_job", run_job)
    monkeypatch.setattr(task, "_stages", lambda *_: {"adapt": None})
    run = RunDirectory.create(tmp_path / "run", {"id": "x"})
    line = SimpleNamespace(deliver=lambda parcel: told.append("delivered"), progress=None, warn=None)
    with pytest.raises(TrainingError) if error else nullcontext():
        task._do(task.Attempt(run.path, run.path), order_of(run), line, threading.Event())  # type: ignore[arg-type]
    assert told == ["delivered", "closed"]


@dataclass(frozen=True)
class Told:
    """An environment, and its own copies, that says when they are closed."""

    told: list[str] = field(compare=False)
    spec: EnvSpec = EnvSpec(1, 1, Discrete(2), 1)

    def batch(self, copies: int, threads: int) -> "Told":
        return self

    def reset(self, tasks: object, seeds: object) -> None:
        """Nobody plays it."""

    step = reset

    def close(self) -> None:
        self.told.append("closed")


# Files that travel


def checkpoint(job: Path, value: int) -> None:
    """Rows and a checkpoint, as a job writes them."""
    checkpoints = Checkpoints(job, lambda text: None)
    checkpoints.newest({})
    checkpoints.wrote("metrics.jsonl", RunDirectory(job).append_rows("metrics.jsonl", [{"step": value}]))
    checkpoints.put_aside(f"piece-{value}", {"x": np.full(3, value)}, {"piece": value})
    checkpoints.save({"x": np.full(4, value)}, {"value": value})


def newest(job: Path) -> int:
    """What a job would go on from; rows that came after it are cut off."""
    told: list[str] = []
    saved = Checkpoints(job, told.append).newest({})
    assert not told and saved is not None
    return int(saved.facts["value"])


def parcel_of(home: Path, job: Path, before: parcels.Stamps) -> Parcel:
    own = job.relative_to(home).as_posix()
    names = [f"{own}/{name}" for name in names_in(job)] + [path.name for path in home.glob("*.json")]
    now = stamps(home, names)
    changed = [name for name in names if before.get(name) != now[name]]
    return {"names": names, "changed": changed, "files": pack(home, changed)}


def places(tmp_path: Path) -> tuple[Path, Path, Path, Path]:
    here, there = tmp_path / "here", tmp_path / "there"
    return here, here / "jobs/adapt/000", there, there / "jobs/adapt/000"


def test_a_parcel_makes_both_sides_the_same_and_has_only_what_changed(tmp_path):
    here, job, there, other = places(tmp_path)
    before: parcels.Stamps = {}
    for value in (1, 2, 3):
        checkpoint(other, value)
        parcel = parcel_of(there, other, before)
        accept(here, job, parcel, parcel["files"].__getitem__)
        before = stamps(there, parcel["names"])
        assert pack(here, names_in(here)) == pack(there, names_in(there)) and newest(job) == value
    assert "jobs/adapt/000/checkpoints/000002/manifest.json" not in parcel["changed"]
    assert not (job / "checkpoints/000001").exists()
    Checkpoints(other, print).clear()
    RunDirectory(there).write_json("jobs/adapt/000/done.json", {"rows": {}})
    RunDirectory(there).write_json("coverage.json", {"a": 1})
    parcel = parcel_of(there, other, before)
    assert sorted(parcel["changed"]) == ["coverage.json", "jobs/adapt/000/done.json"]
    accept(here, job, parcel, parcel["files"].__getitem__)
    assert names_in(here) == ["coverage.json", "jobs/adapt/000/done.json", "jobs/adapt/000/metrics.jsonl"]


def test_wherever_it_is_killed_while_it_accepts_the_job_can_go_on(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    here, job, there, other = places(tmp_path)
    checkpoint(other, 1)
    first = parcel_of(there, other, {})
    before = stamps(there, first["names"])
    checkpoint(other, 2)
    second = parcel_of(there, other, before)
    seen = set()
    for moment in range(100):
        left = moment

        def read(name: str) -> bytes:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return second["files"][name]

        accept(here, job, first, first["files"].__getitem__)
        try:
            accept(here, job, second, read)
            break
        except Killed:
            seen.add(newest(job))
        (job / "metrics.jsonl").unlink()
    assert seen == {1} and newest(job) == 2 and moment == len(second["changed"]) > 4


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "run.json", "jobs/adapt/001/x", "jobs/adapt/000/../001/x", "STATUS", "jobs/adapt/000/a\0b", ""],
)
def test_files_that_are_not_of_the_job_are_refused(tmp_path, name: str):
    here, job, _, _ = places(tmp_path)
    for parcel in (Parcel(names=[name], changed=[], files={}), Parcel(names=[], changed=[name], files={name: b""})):
        with pytest.raises(DamageError, match=r"not of its job|leads elsewhere"):
            accept(here, job, parcel, parcel["files"].__getitem__)
    with pytest.raises(DamageError, match="leads elsewhere"):
        unpack(here, {"../x": b""})
    assert not here.exists() and not (tmp_path / "x").exists()


def test_what_is_being_written_does_not_travel(tmp_path):
    unpack(tmp_path, {"a/b": b"1", ".tmp-x/c": b"2", "checkpoints/000001/d": b"3"})
    assert names_in(tmp_path) == ["a/b", "checkpoints/000001/d"]
    assert names_in(tmp_path, parcels.PASSING) == ["a/b"] and names_in(tmp_path / "none") == []


# Directories of attempts


def test_directories_of_attempts_disappear_with_them(tmp_path, monkeypatch):
    monkeypatch.setenv("MESAX_SCRATCH_DIR", str(tmp_path / "scratch"))
    code = """
import os
from mesax.bridges.ray_cluster.scratch import own_directory
with own_directory("killed") as path:
    (path / "file").write_text("x")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    own = tmp_path / "scratch" / f"mesax-{os.getuid()}"
    assert (own / "killed/file").is_file()
    with own_directory("one") as one, own_directory("two") as two:
        assert one.is_dir() and two.is_dir() and not (own / "killed").exists()
    assert list(own.iterdir()) == []


def test_what_else_lies_in_a_scratch_directory_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MESAX_SCRATCH_DIR", str(tmp_path))
    unpack(tmp_path, {"data/precious": b"1", "data.lock": b"", "uv.lock": b"2"})
    with own_directory("one"):
        pass
    assert (tmp_path / "data/precious").read_bytes() == b"1" and (tmp_path / "uv.lock").read_bytes() == b"2"


def test_a_link_in_place_of_a_scratch_directory_is_refused(tmp_path, monkeypatch):
    """Among the temporary files, somebody else may have put it there."""
    monkeypatch.setenv("MESAX_SCRATCH_DIR", str(tmp_path))
    unpack(tmp_path, {"mine/data/precious": b"1", "mine/data.lock": b""})
    (tmp_path / f"mesax-{os.getuid()}").symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="is a link"), own_directory("one"):
        pass
    assert (tmp_path / "mine/data/precious").is_file()


def test_a_scratch_directory_that_cannot_be_made_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESAX_SCRATCH_DIR", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="cannot be created"), own_directory("x"):
        pass


# The desk


def test_the_desk_passes_words_on_until_an_attempt_is_dismissed():
    async def meet() -> None:
        desk = Desk()
        assert await desk.news(0.0) == []
        assert await desk.beat("a") == GO_ON, "the driver, who began it, may be heard after it"
        waiting = asyncio.create_task(desk.deliver("a", [2]))
        await asyncio.sleep(0)
        assert await desk.news(0.0) == [("a", {"kind": "alive"}), ("a", {"kind": "parcel", "parcel": [2]})]
        assert not waiting.done(), "it waits until the driver has it"
        await desk.answer("a", True)
        assert await waiting
        await desk.stop()
        assert await desk.beat("a") == STOP
        assert await desk.news(0.0) == [("a", {"kind": "alive"})]
        waiting = asyncio.create_task(desk.deliver("a", [3]))
        await asyncio.sleep(0)
        await desk.dismiss("a")
        assert not await waiting and await desk.beat("a") == LEAVE and not await desk.deliver("a", [4])
        await desk.tell("a", {"kind": "progress"})
        assert await desk.news(0.0) == [("a", {"kind": "parcel", "parcel": [3]})], "nobody listens to it any more"

    asyncio.run(meet())


# How attempts end


@pytest.fixture
def pool(tmp_path) -> RayPool:
    return RayPool(RunDirectory.create(tmp_path / "run", {"request": {}}), OnRay("auto"), None, threading.Event())


STAGE = Stage("adapt", (10, 10), lambda job, services: None)


def conclude(pool: RayPool, ending: dict[str, str]) -> bool:
    return pool._conclude(STAGE, Tried("x", 1), ending, deque(), lambda *progress: None)


def test_a_full_disk_on_a_worker_is_an_error_of_files(pool: RayPool):
    full = {
        "kind": "error",
        "error": "StoreError",
        "message": "on node n: x cannot be written: No space left on device",
    }
    with pytest.raises(StoreError, match=r"adapt job 1: on node n: .* No space left on device") as raised:
        conclude(pool, full | {"trace": "Traceback"})
    assert not isinstance(raised.value, DamageError)
    assert (pool.run.path / "worker-0.log").read_text() == "Traceback"


def test_endings_of_attempts(pool: RayPool):
    with pytest.raises(UsageError, match="node n has mesax 1"):
        conclude(pool, {"kind": "refused", "message": "node n has mesax 1"})
    with pytest.raises(TrainingError, match="its files did not come"):
        conclude(pool, {"kind": "done"})
    assert conclude(pool, {"kind": "stopped"})
    pool.run.job_directory("adapt", 1).mkdir(parents=True)
    pool.run.finish_job("adapt", 1, {})
    assert not conclude(pool, {"kind": "done"})


# Job arrays


def test_lines_of_a_job_array_are_the_runs_that_are_left(tmp_path, capsys):
    """As docs/cluster.md says: a plan through its `sed`, and one line of it through the shell of one element."""
    page = (Path(__file__).parents[3] / "docs/cluster.md").read_text(encoding="utf-8")
    filters = page[page.index("sed -n -E ") :].partition(" > cells.txt")[0]
    element = "\n".join(line for line in page.splitlines() if line.startswith(("cores=", "srun ")))
    out = tmp_path / "it's here"
    words = ["sweep", "--methods", "plain", "uniform", "--envs", "climb-one", "--seeds", "0", "1", "--preset", "smoke"]
    assert main([*words, "--out", str(out), "--plan"]) == 0
    plan = capsys.readouterr().out
    cells = subprocess.run(["sh", "-c", filters], input=plan, capture_output=True, text=True, check=True).stdout
    (tmp_path / "cells.txt").write_text(cells)
    assert len(cells.splitlines()) == 4
    told = '[ "$1" = --cpus-per-task=8 ] || exit 1'  # srun takes no --cpus-per-task from sbatch
    shell = f'srun() {{ {told}; shift; "$@"; }}\nPATH="$PWD:$PATH"\n{element}\n'
    fake = tmp_path / "mesax"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 75\n')
    fake.chmod(0o755)
    slurm = {**os.environ, "SLURM_ARRAY_TASK_ID": "3", "SLURM_CPUS_PER_TASK": "8"}
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=slurm, capture_output=True, text=True, check=False)
    assert done.returncode == 75, "what the run says is what the element says"
    options = parse(done.stdout.splitlines())
    assert (options.verb, options.method, options.seed, options.reuse) == ("run", "uniform", 0, True)
    assert options.workers == 8
    assert options.out == out / "uniform-climb-one-smoke-seed0"


def test_who_was_not_listened_to_is_not_silent(pool, monkeypatch):
    """While a large parcel is taken nobody is heard; only silence up to then counts."""
    cancelled = []
    ray = SimpleNamespace(cancel=lambda reference, force: cancelled.append(reference))
    monkeypatch.setattr(connection, "ray", lambda: ray)
    monkeypatch.setattr(connection, "errors", lambda: (RuntimeError,))
    now, silence = time.monotonic(), heartbeat_seconds()
    pool._running = {"reference": Tried("one", 0, heard=now - 2 * silence)}
    pool._listened = now - 1.5 * silence
    assert pool._overdue() == [] and cancelled == []
    pool._listened = now
    assert [attempt.name for attempt in pool._overdue()] == ["one"] and cancelled == ["reference"]
