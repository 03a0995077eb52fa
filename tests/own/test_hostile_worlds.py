"""What a world of a user's own may do to the process that plays it, and what becomes of the run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from execution.test_runner import command_line, only_line
from mesax.errors import FAILED
from mesax.store.run_directory import RunDirectory
from own import hostile_worlds

TESTS = Path(__file__).resolve().parents[1]
SMALL = ["--preset", "smoke", "--num-test-tasks", "2", "--lanes", "1", "--schedule.total-steps", "400", "--quiet"]


def words(world: str, path: object, *more: object) -> list[str]:
    return [str(word) for word in ("run", "vdn", f"own.hostile_worlds:{world}", *SMALL, "--out", path, *more)]


def command(at: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`mesax` as a command of its own, in which a world does what it does in step number `at`."""
    return subprocess.run(
        [sys.executable, "-m", "mesax.cli", *map(str, arguments)],
        cwd=TESTS,
        env=os.environ | {hostile_worlds.AT: str(at)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "run"
    assert command_line(*words("leaves", path, "--workers", 1)) == 0
    return path


def rows(path: Path) -> list[bytes]:
    return [(path / name).read_bytes() for name in ("eval.jsonl", "metrics.jsonl")]


def test_a_world_that_ends_the_process_is_told_of_and_costs_no_more_than_that(undisturbed, tmp_path):
    path = tmp_path / "run"
    ended = command(150, *words("leaves", path, "--workers", 1))
    assert ended.returncode == FAILED and not ended.stdout
    (line,) = ended.stderr.splitlines()
    assert line.startswith("mesax: a module or environment of yours called os._exit(0), which ended this process")
    assert f"mesax resume {path} --load own.hostile_worlds" in line and RunDirectory(path).state == "failed"
    assert command(0, "resume", path, "--load", "own.hostile_worlds", "--workers", 1, "--quiet").returncode == 0
    assert rows(path) == rows(undisturbed)


def test_a_world_that_ends_the_process_before_there_is_a_run(tmp_path):
    ended = command(7, "env", "check", "own.hostile_worlds:leaves")
    assert ended.returncode == FAILED
    assert "mesax: a module or environment of yours called os._exit(0)" in ended.stderr


@pytest.mark.parametrize(("place", "threads"), [("run", "1"), ("./runs/../run", "2")])
def test_a_world_that_goes_elsewhere_scatters_nothing(undisturbed, tmp_path, monkeypatch, place, threads):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    (here / "runs").mkdir()
    monkeypatch.setenv(hostile_worlds.ELSEWHERE, str(elsewhere))
    monkeypatch.setenv(hostile_worlds.AT, "150")
    monkeypatch.setenv("MESAX_THREADS", threads)
    monkeypatch.setattr(hostile_worlds, "COUNT", [0])
    assert command_line(*words("moves", place, "--workers", 1)) == 0
    assert hostile_worlds.COUNT[0] > 150 and Path.cwd() == here and not any(elsewhere.iterdir())
    assert rows(here / "run") == rows(undisturbed) and command_line("verify", "run") == 0
    assert command_line("eval", "run", "--load", "own.hostile_worlds", "--episodes", 3) == 0


def test_a_world_that_forks_and_comes_back_twice_plays_on_in_one_process(undisturbed, tmp_path):
    path = tmp_path / "run"
    assert command(150, *words("forks", path, "--workers", 1)).returncode == 0
    assert rows(path) == rows(undisturbed)


HOLDS = """
import os, sys, time
from pathlib import Path
from mesax.store.run_directory import RunDirectory
run = RunDirectory(Path(sys.argv[1]))
with run.lock():
    run.attend()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(told, 1)  # it is at work
    print(child, flush=True)
    os._exit(9)
"""


def test_what_a_world_has_forked_does_not_hold_the_run(undisturbed):
    """It outlives a run that is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, undisturbed], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.wait()
        try:
            started = time.monotonic()
            with RunDirectory(undisturbed).lock():
                assert time.monotonic() - started < 5.0
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_words_of_a_world_are_shown_and_not_obeyed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(hostile_worlds.AT, "150")
    monkeypatch.setattr(hostile_worlds, "COUNT", [0])
    assert command_line(*words("shouts", tmp_path / "run", "--workers", 1)) == FAILED
    assert r"step raised RuntimeError: \x1b[31mred\x1b]0;title\x07 (hostile_worlds.py" in only_line(capsys)
