"""A run that is stopped anywhere goes on to the same bytes; a damaged checkpoint is named, and the one before used."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from execution.test_runner import command_line, only_line, run_tiny, status
from execution.test_runner import tiny as tiny  # noqa: PLC0414  (a fixture)
from mesax.errors import IO_ERROR, PREEMPTED, Preempted, UsageError
from mesax.execution import signals
from mesax.execution.jobs import JobServices, run_job
from mesax.experiments.catalogue import experiment
from mesax.methods.base import Experiment, Stage
from mesax.runtime import CHECKPOINT_SECONDS
from mesax.store import checkpoints as keeping
from mesax.store.run_directory import RunDirectory

DETERMINED = {"eval.jsonl", "metrics.jsonl", "coverage.json", "arrays.safetensors", "manifest.json"}


def determined(path: Path) -> dict[str, bytes]:
    """All files that seed and configuration determine."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.name in DETERMINED}


@contextmanager
def stopping_at(monkeypatch: pytest.MonkeyPatch, pause: int, often: bool = False) -> Iterator[None]:
    """Stop at that pause; with `often`, save at every pause before it too."""
    original, seen = JobServices.pause, [0]

    def counted(self: JobServices, loop) -> None:
        seen[0] += 1
        if seen[0] == pause:
            self.stop.set()
        original(self, loop)

    with monkeypatch.context() as patch:
        patch.setattr(JobServices, "pause", counted)
        if often:
            patch.setenv(CHECKPOINT_SECONDS, "0")
            patch.setattr(keeping, "LARGEST_SHARE", float("inf"))
        yield


def do(experiment: Experiment, path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> int:
    """All jobs, stopped and continued at every pause number `stop_at`; how often that was."""
    run = RunDirectory.create(path, {"config_hash": "one"})
    stops = 0
    for stage in experiment.method.stages(experiment):
        for job in range(len(stage.job_steps)):
            while True:
                stop = threading.Event()
                try:
                    with stopping_at(monkeypatch, stop_at or 0):
                        run_job(run, stage, job, lambda *_: None, print, stop)
                    break
                except Preempted:
                    stops += 1
    return stops


def stop_tiny(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A run of three jobs that was stopped in the last chunk of the first; its two checkpoints."""
    with stopping_at(monkeypatch, 3, often=True):
        assert run_tiny(path) == PREEMPTED
    assert status(path) == "preempted"
    return sorted((path / "jobs" / "adapt" / "000" / "checkpoints").iterdir())


def go_on(path: Path) -> int:
    return command_line("resume", path, "--workers", 1, "--quiet")


def flip(path: Path, draw: random.Random) -> None:
    """Change one bit."""
    data = path.read_bytes()
    place = draw.randrange(len(data))
    path.write_bytes(data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :])


def test_damage_is_named_and_the_checkpoint_before_is_used(tiny, tmp_path, monkeypatch, capsys):
    path = tmp_path / "stopped"
    before, last = stop_tiny(path, monkeypatch)
    assert (before.name, last.name) == ("000002", "000003"), "the first is gone: disk use is bounded"
    shutil.copytree(path, tmp_path / "worse")
    flip(last / "arrays.safetensors", random.Random(0))
    capsys.readouterr()
    assert command_line("verify", path) == IO_ERROR
    shown = capsys.readouterr()
    assert str(last) in shown.out and "1 problem in " in shown.err
    assert go_on(path) == 0
    assert str(last) in only_line(capsys)
    assert determined(path) == determined(tiny)
    assert command_line("verify", path) == 0

    path = tmp_path / "worse"
    for saved in (path / "jobs" / "adapt" / "000" / "checkpoints").iterdir():
        flip(saved / "manifest.json", random.Random(1))
    capsys.readouterr()
    assert go_on(path) == 0
    assert len(capsys.readouterr().err.splitlines()) == 2, "both are named"
    assert determined(path) == determined(tiny)


def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_noticed(tiny, tmp_path, monkeypatch):
    """100 bits at random, in arrays, manifest and the rows that belong to them."""
    path = tmp_path / "stopped"
    stop_tiny(path, monkeypatch)
    job, draw = path / "jobs" / "adapt" / "000", random.Random(0)
    identity = JobServices("adapt", 0, print, threading.Event(), RunDirectory(path), print).identity
    last = job / "checkpoints" / "000003"
    files = [last / "arrays.safetensors", last / "manifest.json", job / "eval.jsonl", job / "metrics.jsonl"]
    whole = {file: file.read_bytes() for file in files}
    for _ in range(100):
        file = draw.choice(files)
        flip(file, draw)
        warnings: list[str] = []
        used = keeping.Checkpoints(job, warnings.append).newest(identity)
        for aside in (job / "checkpoints").glob(".damaged-*"):
            aside.rename(aside.with_name(aside.name.split("-")[1]))
        for damaged, data in whole.items():  # going back cuts the rows, too
            damaged.write_bytes(data)
        assert warnings and str(file) in warnings[0]
        assert used is None or used.directory.name == "000002"
    assert keeping.Checkpoints(job, warnings.append).newest(identity).directory == last


@pytest.mark.parametrize("call", ["open", "truncate"])
def test_a_checkpoint_that_cannot_be_read_just_now_is_not_lost(tiny, tmp_path, monkeypatch, capsys, call):
    """A disk that answers with errors is no damage: the run stops with one line, and goes on when the disk is back."""
    path = tmp_path / "stopped"
    stop_tiny(path, monkeypatch)
    capsys.readouterr()
    original = getattr(os, call)

    def failing(where, *arguments, **more):
        if "adapt/000" in str(where) or call == "truncate":  # which is given a descriptor
            raise OSError(errno.EIO, "Input/output error", str(where))
        return original(where, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        assert go_on(path) == IO_ERROR
    assert "Input/output error" in only_line(capsys)
    assert go_on(path) == 0 and capsys.readouterr().err == ""
    assert determined(path) == determined(tiny)


def test_a_full_disk_loses_nothing_that_was_saved(tiny, tmp_path, monkeypatch, capsys):
    path = tmp_path / "full"
    _, last = stop_tiny(path, monkeypatch)
    saved = {file.name: file.read_bytes() for file in last.iterdir()}
    capsys.readouterr()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(saved["arrays.safetensors"]) // 2, limits[1]))
    try:
        with stopping_at(monkeypatch, 0, often=True):
            assert go_on(path) == IO_ERROR
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    line = only_line(capsys)
    assert "adapt job 0" in line and "checkpoints/000004 cannot be written" in line and "too large" in line.lower()
    assert status(path) == "failed"
    assert {file.name: file.read_bytes() for file in last.iterdir()} == saved
    assert go_on(path) == 0
    assert determined(path) == determined(tiny)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "stopped"
    with stopping_at(monkeypatch, 1):
        assert run_tiny(path) == PREEMPTED
    shutil.rmtree(path / "jobs")
    (path / "jobs").write_text("not a directory")
    capsys.readouterr()
    assert go_on(path) == IO_ERROR
    assert "jobs/adapt/000 cannot be created" in only_line(capsys)


def test_a_stage_that_ends_early_has_taken_the_steps_that_it_says(tmp_path):
    """Also if it was stopped after its last word; one that says nothing has taken those that were planned."""
    run = RunDirectory.create(tmp_path / "run", {"config_hash": "one"})

    def early(job: int, services: JobServices) -> None:
        if services.kept(lambda: {"told": 0}) is None:
            services.report(30)
            services.keep({"told": 1})
            services.pause(lambda: ((), {}))

    stop = threading.Event()
    stop.set()
    with pytest.raises(Preempted):
        run_job(run, Stage("explore", (100,), early), 0, lambda *_: None, print, stop)
    run_job(run, Stage("explore", (100,), early), 0, lambda *_: None)
    run_job(run, Stage("silent", (100,), lambda *_: None), 0, lambda *_: None)
    assert [run.check_job(run.job_directory(stage, 0))["env_steps"] for stage in ("explore", "silent")] == [30, 100]


def test_stragglers_of_a_killed_run_are_awaited(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"config_hash": "one"})
    code = "import sys, time; from pathlib import Path; from mesax.store.run_directory import RunDirectory"
    code += "; RunDirectory(Path(sys.argv[1])).attend(); print('here', flush=True); time.sleep(1)"
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout and worker.stdout.readline() == b"here\n"
        with run.lock():
            assert worker.wait(timeout=5) == 0
        with pytest.raises(UsageError, match="in use by process"), run.lock(), run.lock():
            pass


SLEEPER = """
import os, sys, time
from mesax.execution import signals as stopping
stopping.TOGETHER = float(sys.argv[3])
os.environ["MESAX_GRACE_SECONDS"] = sys.argv[1]
with stopping.stop_on_signal(lambda: os._exit(75)) as stop:
    print("here", flush=True)
    stop.wait()
    print("asked", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "grace, rest, second, together, code",
    [(20, 20, True, 0, 128 + 15), (20, 1, True, 20, 0), (0.2, 20, False, 0, 75), (20, 0, False, 0, 0)],
    ids=[
        "a second signal leaves at once",
        "two signals at a time are one",
        "what takes too long is left",
        "what ends in time ends as it likes",
    ],
)
def test_signals(grace, rest, second, together, code):
    command = [sys.executable, "-c", SLEEPER, str(grace), str(rest), str(together)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"here\n"
        process.terminate()
        assert process.stdout.readline() == b"asked\n"
        started = time.monotonic()
        if second:
            process.terminate()
        assert process.wait(timeout=15) == code
        assert time.monotonic() - started < 10


FORKING = """
import multiprocessing, os, signal, time
from mesax.execution.signals import heard_elsewhere, stop_on_signal
fork = multiprocessing.get_context("fork")
def ended(engine):
    engine.start(), engine.terminate(), engine.join(20)
    return engine.exitcode
with stop_on_signal(lambda: None) as stop:
    code = ended(fork.Process(target=time.sleep, args=(60,)))
    print(code, stop.wait(0.5), signal.getsignal(signal.SIGTERM) is heard_elsewhere)
signal.signal(signal.SIGTERM, heard_elsewhere)
signal.signal(signal.SIGINT, heard_elsewhere)
import subprocess
for how in ({}, {"preexec_fn": os.getpid}):
    for number in (signal.SIGTERM, signal.SIGINT):
        program = subprocess.Popen(["sleep", "60"], **how)
        program.send_signal(number)
        print(program.wait(20))
"""


def test_an_environment_can_end_processes_of_its_own():
    """Forked or started anew; SIGTERM ends them and does not reach the run by the way that they have inherited."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert result.stdout.split() == ["-15", "False", "True", *("-15", "-2") * 2], result.stderr


def test_signals_are_heard_after_a_fork_that_was_interrupted(monkeypatch):
    """Blocking a signal may run a handler, and that may raise, which leaves signals blocked."""
    block, calls = signal.pthread_sigmask, []

    def interrupted(how: int, numbers: Iterable[int]) -> set[int]:
        calls.append(numbers)
        mask = block(how, numbers)
        if len(calls) == 2:
            raise RuntimeError("of a handler")
        return mask

    before, mask = signal.signal(signal.SIGTERM, signals.heard_elsewhere), block(signal.SIG_BLOCK, ())
    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    try:
        with pytest.raises(RuntimeError):
            signals._hold()
        signals._let_go()
        assert block(signal.SIG_BLOCK, ()) == mask and len(calls) == 3
    finally:
        block(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTERM, before)


def test_endless_patience_is_no_error():
    command = [sys.executable, "-c", SLEEPER, "inf", "0.5", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"here\n"
        process.terminate()
        assert process.wait(timeout=15) == 0 and process.stderr and process.stderr.read() == b""


def test_what_was_put_aside_belongs_to_the_checkpoint(tmp_path):
    """A piece that is gone, damaged or another one: the checkpoint that counts on it is not used."""
    kept, later = {"a": np.arange(3)}, {"a": np.arange(4)}
    for change, names in {
        "none": [],
        "gone": ["piece is missing"],
        "damaged": ["arrays.safetensors is damaged"],
        "another": ["piece is not what was put aside"],
    }.items():
        job = tmp_path / change
        checkpoints = keeping.Checkpoints(job, print)
        checkpoints.save(kept, {"config": 1})
        checkpoints.put_aside("piece", kept, {})
        checkpoints.save(later, {"config": 1})
        if change == "gone":
            shutil.rmtree(job / "scratch" / "piece")
        elif change == "damaged":
            flip(job / "scratch" / "piece" / "arrays.safetensors", random.Random(0))
        elif change == "another":
            checkpoints.put_aside("piece", later, {})
        warnings: list[str] = []
        saved = keeping.Checkpoints(job, warnings.append).newest({"config": 1})
        assert saved is not None and len(warnings) == len(names)
        assert saved.directory.name == ("000001" if names else "000002")
        assert all(name.split()[-1] in line for name, line in zip(names, warnings, strict=True)), warnings
        assert keeping.Checkpoints(job, warnings.append).newest({"config": 2}) is None
        checkpoints.clear()
        assert list(job.iterdir()) == []


def test_an_on_policy_learner_with_a_bonus_that_is_stopped_ends_in_the_same_bytes(tmp_path, monkeypatch):
    rival = experiment("mappo-rnd", "climb-one", "smoke")
    rival = replace(
        rival, num_test_tasks=1, lanes=1, schedule=replace(rival.schedule, total_steps=960, num_evaluations=2)
    )
    do(rival, tmp_path / "whole", monkeypatch)
    assert do(rival, tmp_path / "stopped", monkeypatch, stop_at=2) >= 1
    whole = determined(tmp_path / "whole")
    assert whole == determined(tmp_path / "stopped") and len(whole) > 4


def test_results_that_cannot_be_gathered_are_one_line_and_gathered_later(tiny, tmp_path, monkeypatch, capsys):
    path = tmp_path / "full"
    shutil.copytree(tiny, path)
    shutil.rmtree(path / "policies")
    RunDirectory(path).set_status("failed")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        assert go_on(path) == IO_ERROR
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written" in only_line(capsys) and status(path) == "failed"
    assert not list((path / "policies").glob("[!.]*")), "no policy is there in part"
    assert go_on(path) == 0
    assert determined(path) == determined(tiny)


def test_verify_names_what_is_missing(tiny, tmp_path, capsys):
    path = tmp_path / "robbed"
    shutil.copytree(tiny, path)
    shutil.rmtree(path / "policies")
    shutil.rmtree(path / "jobs" / "adapt" / "000")
    (path / "STATUS").write_text("dond\n")
    assert command_line("verify", path) == IO_ERROR
    shown = capsys.readouterr().out
    assert "policies/task-00-run-00/manifest.json is missing" in shown
    assert "jobs/adapt/000/done.json is missing" in shown
    assert "says 'dond'" in shown


def test_a_run_that_is_resumed_under_other_conditions_says_so(tiny, tmp_path, monkeypatch, capsys):
    path = tmp_path / "moved"
    stop_tiny(path, monkeypatch)
    capsys.readouterr()
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_fast_min_max=false")
    assert go_on(path) == 0
    assert "resumed under other conditions (xla_flags" in only_line(capsys)
    (changed,) = [row["changed"] for row in RunDirectory(path).read_rows("clock.jsonl") if "changed" in row]
    assert list(changed) == ["xla_flags"]
