"""A run's bytes depend on its seed and configuration only; every way of stopping leaves a directory that goes on."""

import contextlib
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mesax.cli.parser import main
from mesax.errors import FAILED, PREEMPTED, USAGE, WORKER_LOST, EnvironmentFault, UsageError
from mesax.execution import processes, runner, workers
from mesax.execution.processes import Processes, _Worker
from mesax.execution.progress import Progress
from mesax.execution.worker import INTERRUPT, SECONDS_BETWEEN_SIGNALS, Leaving, Left, Served, _serve
from mesax.experiments.rebuild import experiment_of
from mesax.methods.base import Stage
from mesax.store.checkpoints import row_checksums
from mesax.store.run_directory import RunDirectory
from mesax.store.trees import load_tree
from mesax.training.driver import play_episodes
from mesax.types import tree_index

# Three jobs of one lane; the cheapest learner to compile.
TINY = ["vdn", "climb-one", "--preset", "smoke", "--lanes", "1", "--num-test-tasks", "3"]
SMOKE = ["mesa", "climb-one", "--preset", "smoke"]
DETERMINED = ("eval.jsonl", "metrics.jsonl")


def command_line(*arguments: object) -> int:
    """`mesax` in this process, with JAX as the command line has it rather than as strict as for other tests."""
    with jax.numpy_rank_promotion("allow"):
        return main([str(argument) for argument in arguments])


def shared_run(factory: pytest.TempPathFactory, name: str, *words: str) -> Path:
    """A run that is done once for all tests, in whichever test process needs it first; do not write to it.

    What it printed is in `<path>.txt`.
    """
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    path = base / name
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with open(f"{path}.txt", "w") as output, contextlib.redirect_stdout(output):
                command_line("run", *words, "--out", path, "--workers", 1, "--quiet")
    assert RunDirectory(path).status == "done"
    return path


def finished_run(factory: pytest.TempPathFactory) -> Path:
    """MESA's smoke run."""
    return shared_run(factory, "finished", *SMOKE, "--json")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_run(tmp_path_factory, "tiny", *TINY)


def run_tiny(path: Path, workers: int = 1, extra: tuple[str, ...] = ()) -> int:
    return command_line("run", *TINY, *extra, "--out", path, "--workers", workers, "--quiet")


def resume(path: Path, workers: int = 1) -> int:
    return command_line("resume", path, "--workers", workers, "--quiet")


def status(path: Path) -> str:
    return (path / "STATUS").read_text().strip()


def assert_same_bytes(one: Path, other: Path) -> None:
    for name in DETERMINED:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mesax: ")
    return line


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tiny, tmp_path):
    assert run_tiny(tmp_path / "again") == 0
    assert_same_bytes(tiny, tmp_path / "again")
    assert run_tiny(tmp_path / "other", extra=("--seed", "1")) == 0
    assert (tmp_path / "other" / "eval.jsonl").read_bytes() != (tiny / "eval.jsonl").read_bytes()


def test_rows_hold_no_clock_and_are_sorted(tiny):
    rows = RunDirectory(tiny).read_rows("eval.jsonl")
    places = [(row["task"], row["repeat"], row["step"]) for row in rows]
    assert places == sorted(places) and len({place[0] for place in places}) == 3
    assert set(rows[0]) == {"phase", "task", "repeat", "step", "return", "groups"}
    names = {name for name in RunDirectory(tiny).read_rows("metrics.jsonl")[-1] if "second" in name or "time" in name}
    assert names == set()


@contextlib.contextmanager
def sigterm_in_second_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal as soon as more than one job's steps are reported."""
    update, sent = Progress.update, []

    def interrupted(self: Progress, done_steps: int, note: str = "") -> None:
        update(self, done_steps, note)
        if done_steps > 1_200 and not sent:  # a second one would leave at once, and take the tests along
            sent.append(done_steps)
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", interrupted)
        yield


def test_a_stopped_run_resumes_to_the_same_bytes(tiny, tmp_path, capsys, monkeypatch):
    path, handler = tmp_path / "stopped", signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    with sigterm_in_second_job(monkeypatch):
        assert run_tiny(path) == PREEMPTED == 75
    assert f"mesax resume {path}" in only_line(capsys)
    assert status(path) == "preempted" and signal.getsignal(signal.SIGTERM) is handler
    assert not (path / "eval.jsonl").exists() and not (path / "summary.json").exists()
    done = path / "jobs" / "adapt" / "000" / "done.json"
    before = done.stat().st_mtime_ns
    begun = RunDirectory(path / "jobs" / "adapt" / "001").read_rows("eval.jsonl")
    assert begun and not (path / "jobs" / "adapt" / "001" / "done.json").exists()

    assert resume(path) == 0
    assert status(path) == "done"
    assert done.stat().st_mtime_ns == before, "a finished job must not run again"
    assert_same_bytes(tiny, path)
    assert len(RunDirectory(path).read_rows("clock.jsonl")) == 2


def test_a_clock_that_is_set_back_takes_no_time_away(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", {"method": "vdn", "env": "climb-one"})
    times = iter([5_000.0, 1_400.0])
    monkeypatch.setattr(runner, "time", SimpleNamespace(time=lambda: next(times), monotonic=time.monotonic))
    closes = SimpleNamespace(close=lambda: None)
    runner._do_stages(run, [], closes, runner.Watchers(True, closes), {})
    (row,) = run.read_rows("clock.jsonl")
    assert row["started"] == 5_000.0 and 0.0 <= row["seconds"] < 60.0


def wait_for(condition, seconds: float = 240.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def test_sigterm_ends_a_process_with_two_workers_and_two_others_complete_it(tiny, tmp_path, capsys):
    """To the same bytes as one worker that nobody stopped."""
    path = tmp_path / "terminated"
    command = [sys.executable, "-m", "mesax.cli", "run", *TINY, "--out", str(path), "--workers", "2", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (path / "jobs" / "adapt" / "000").is_dir() or process.poll() is not None)
        assert resume(path) == USAGE
        assert f"in use by process {process.pid}" in only_line(capsys)
        assert status(path) == "running"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == PREEMPTED
    assert errors.splitlines() == [f"mesax: stopped and saved; continue with: mesax resume {path}"]
    assert status(path) == "preempted"
    assert resume(path, workers=2) == 0
    assert_same_bytes(tiny, path)
    timing = RunDirectory(path).read_rows("timing.jsonl")
    assert [row["job"] for row in timing] == [0, 1, 2]


def test_nan_stops_the_run_and_keeps_the_last_good_policy(tmp_path, capsys):
    path = tmp_path / "nan"
    assert run_tiny(path, extra=("--algorithm.optimizer.learning-rate", "1e30")) == FAILED
    line = only_line(capsys)
    assert "adapt job 0" in line and "is not finite in lane 0 by step" in line
    assert status(path) == "failed"
    assert FAILED not in (0, USAGE, PREEMPTED)

    experiment = experiment_of(RunDirectory(path).run)
    spec, algorithm = experiment.family.env.spec, experiment.algorithm
    keys = jax.random.split(jax.random.key(0), experiment.lanes)
    like = jax.eval_shape(jax.vmap(lambda key: algorithm.init(spec, key)), keys)
    learners = load_tree(path / "jobs" / "adapt" / "000" / "last-good", like)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(learners))
    policy = algorithm.greedy(spec, tree_index(learners, 0))
    tasks = experiment.family.split(0, 4, 1).test
    assert play_episodes(experiment.family.env, tasks, policy, jax.random.key(0), 2).reward.shape == (2, 1)


@pytest.mark.parametrize("moment", ["before its order", "after its order"])
def test_a_killed_worker_is_one_clear_line(tmp_path, capsys, monkeypatch, moment):
    give = processes.Processes._give

    def give_and_kill(self, worker, stage, waiting, threads):
        if moment == "after its order":
            given = give(self, worker, stage, waiting, threads)
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        return given if moment == "after its order" else give(self, worker, stage, waiting, threads)

    monkeypatch.setattr(processes.Processes, "_give", give_and_kill)
    path = tmp_path / "killed"
    assert run_tiny(path, workers=2) == WORKER_LOST
    line = only_line(capsys)
    assert "adapt job" in line and "was killed by signal 9" in line and "mesax resume" in line
    assert str(path / "worker-") in line
    assert status(path) == "failed"


def test_a_worker_ends_with_the_process_that_gave_it_work(tiny, tmp_path):
    path = tmp_path / "orphan"
    shutil.copytree(tiny, path)
    shutil.rmtree(path / "jobs")
    command = [sys.executable, "-m", "mesax.execution.worker", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert json.loads(process.stdout.readline()) == {"kind": "ready"}
        process.stdin.write(json.dumps({"stage": "adapt", "job": 0}) + "\n")
        process.stdin.close()
        assert process.wait(timeout=30) == 1
    assert not (path / "jobs" / "adapt" / "000" / "done.json").exists()


@pytest.mark.parametrize("error, code", [(ZeroDivisionError("by zero"), FAILED), (UsageError("no such net"), USAGE)])
def test_an_error_in_a_job_is_one_line_and_the_run_failed(tmp_path, capsys, monkeypatch, error, code):
    def broken(*arguments):
        raise error

    monkeypatch.setattr(workers, "run_job", broken)
    path = tmp_path / "broken"
    assert run_tiny(path) == code
    line = only_line(capsys)
    assert f"adapt job 0: {'ZeroDivisionError: ' if code == FAILED else ''}{error}" in line
    assert type(error).__name__ in (path / "worker-0.log").read_text()
    assert status(path) == "failed"


def test_an_error_of_an_environment_says_where_its_traceback_is_and_can_show_it(tmp_path, capsys, monkeypatch):
    def broken(*arguments):
        try:
            raise IndexError("no such cell")
        except IndexError as error:
            raise EnvironmentFault("step raised IndexError: no such cell (ring.py:13)") from error

    monkeypatch.setattr(workers, "run_job", broken)
    monkeypatch.delenv("MESAX_TRACEBACK", raising=False)
    log = tmp_path / "told" / "worker-0.log"
    assert run_tiny(tmp_path / "told") == FAILED
    assert only_line(capsys).endswith(f"adapt job 0: step raised IndexError: no such cell (ring.py:13); see {log}")
    assert "IndexError: no such cell\n" in log.read_text()
    monkeypatch.setenv("MESAX_TRACEBACK", "1")
    with pytest.raises(EnvironmentFault) as caught:
        run_tiny(tmp_path / "shown")
    assert caught.value.__cause__ is not None and isinstance(caught.value.__cause__.__cause__, IndexError)


def test_a_failed_merge_is_not_a_finished_run(tmp_path, capsys, monkeypatch):
    def broken(*arguments):
        raise MemoryError

    monkeypatch.setattr(runner, "merge", broken)
    monkeypatch.setattr(workers, "run_job", lambda *arguments: None)
    assert run_tiny(tmp_path / "unmerged") == FAILED
    assert only_line(capsys) == "mesax: there is not enough memory"
    assert status(tmp_path / "unmerged") == "failed"


def test_a_locked_run_is_left_alone(tiny, tmp_path, capsys):
    path = tmp_path / "locked"
    shutil.copytree(tiny, path)
    run = RunDirectory.open(path)
    run.set_status("preempted")
    with run.lock():
        assert resume(path) == USAGE
        assert f"in use by process {os.getpid()}" in only_line(capsys)
    assert status(path) == "preempted"
    assert resume(path) == 0


def test_episodes_cut_short_are_not_hidden(tiny, tmp_path, capsys):
    """In the summary and in one line; a run without any says nothing."""
    path = tmp_path / "cut"
    shutil.copytree(tiny, path)
    assert "largest_cut_short" not in RunDirectory.open(path).read_json("summary.json")
    rows = path / "jobs" / "adapt" / "000" / "metrics.jsonl"
    first = json.loads(rows.read_text().splitlines()[0])
    with rows.open("a") as file:
        file.write(json.dumps(first | {"cut_short": 0.25}) + "\n")
    run = RunDirectory.open(path)
    run.set_status("preempted")
    run.unseal()
    run.finish_job("adapt", 0, run.read_json("jobs/adapt/000/done.json") | {"rows": row_checksums(rows.parent)})
    assert resume(path) == 0
    assert "cut episodes short: up to 25.0% of a chunk" in capsys.readouterr().out
    assert RunDirectory.open(path).read_json("summary.json")["largest_cut_short"] == 0.25


def waiting_worker(number: int, job: int | None = None) -> _Worker:
    """One whose orders can be read."""
    return _Worker(SimpleNamespace(stdin=io.StringIO()), number, job)  # type: ignore[arg-type]


SAYS_READY = """printf '{"kind": "ready"}\\n'; """


@pytest.mark.parametrize(
    "words",
    [f"sleep 10 & {SAYS_READY} kill -9 $$", f"""{SAYS_READY} printf '{{"kind": "err'; kill -9 $$"""],
    ids=["while a process of an environment's holds its pipe", "in the middle of a word"],
)
def test_the_end_of_a_worker_is_noticed(tmp_path, monkeypatch, words):
    start = subprocess.Popen

    def shell(command: list[str], **options: object) -> subprocess.Popen[str]:
        return start(["/bin/sh", "-c", words], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", shell)
    pool = Processes(RunDirectory(tmp_path), 1, threading.Event())
    pool._start()
    assert pool._next_event()[1] == {"kind": "ready"}
    worker, event = pool._next_event()
    assert event is None and worker.process.returncode == -9
    pool.close()


def test_orders_reach_a_worker_and_nobody_that_it_starts(tmp_path):
    """A program that an environment starts would read the worker's own standard input."""
    code = """
import os, subprocess, sys
import mesax.execution.worker as worker
def served(options):
    print(subprocess.run(["cat"], capture_output=True).stdout, file=sys.stderr)
    raise ValueError("nothing to serve")
worker._served = served
worker.main()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b'{"prepare": "adapt"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["message"] == "nothing to serve"
        assert b"b''" in process.stderr.read()


def test_one_worker_without_a_job_is_told_to_prepare_what_is_next(tmp_path):
    pool = Processes(RunDirectory(tmp_path), 3, threading.Event())
    pool._workers += [waiting_worker(0, job=5), waiting_worker(1), waiting_worker(2)]
    upcoming = Stage("adapt", (1,), lambda job, services: None, prepare=lambda: None)
    for stage in (replace(upcoming, prepare=None), upcoming, upcoming):
        pool._prepare(stage)
    orders = [worker.process.stdin.getvalue() for worker in pool._workers]
    assert orders == ["", '{"prepare": "adapt"}\n', ""]


def test_a_worker_prepares_a_stage_and_what_fails_there_is_left_to_its_jobs(capsys):
    told, answers = [], io.StringIO()

    def prepare(stage: str) -> None:
        told.append(stage)
        if stage == "broken":
            raise ValueError("no such program")

    served = Served(lambda *order: told.append("job"), prepare)
    for stage in ("adapt", "broken"):
        _serve(served, {"prepare": stage}, answers, threading.Event())
    assert told == ["adapt", "broken"] and answers.getvalue() == '{"kind": "prepared"}\n'
    assert "no such program" in capsys.readouterr().err


def test_a_worker_leaves_though_the_first_signals_do_not_wake_it(monkeypatch: pytest.MonkeyPatch):
    """One that comes when a wait is only about to begin does not end it, and an environment may swallow another."""
    begun, swallowed, send = threading.Event(), threading.Event(), signal.pthread_kill

    def lossy(thread: int, number: int) -> None:
        if begun.is_set():
            send(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", lossy)
    leaving = Leaving(SimpleNamespace(some_open=True))
    before = signal.signal(INTERRUPT, leaving.interrupted)
    try:
        leaving()
        time.sleep(3 * SECONDS_BETWEEN_SIGNALS)  # the first ones are lost
        try:
            try:
                begun.set()
                time.sleep(60)
            except Left:  # an environment that takes everything for its own
                swallowed.set()
            time.sleep(60)
        except Left:
            leaving.noticed = True
        assert swallowed.is_set() and leaving.noticed
        leaving.interrupted()  # a signal on its way must not disturb the closing
        time.sleep(3 * SECONDS_BETWEEN_SIGNALS)  # none is sent any more
    finally:
        signal.signal(INTERRUPT, before)
