"""`mesax status`: what is seen of runs from outside, at work, done, killed; and what a sweep shows."""

import fcntl
import json
from pathlib import Path

import pytest

from execution.test_runner import command_line
from fake_store import SMALL, write_run
from mesax.errors import USAGE
from mesax.execution import sweep
from mesax.execution.status import (
    PROGRESS,
    RunStatus,
    StatusFile,
    fitted,
    runs_below,
    shortened,
    status_of,
)
from mesax.execution.sweep import Planned, status_of_planned
from mesax.store.run_directory import RunDirectory

STAGES = ("collect", "explore", "adapt")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def at_work(tmp_path: Path):
    """A run in the middle of its last stage, whose lock somebody holds."""
    run = RunDirectory.create(tmp_path / "runs" / "b", {"id": "b"})
    clock = Clock()
    status = StatusFile(run.path, STAGES, clock, clock)
    status.phase("adapt", 200, 50)
    for done in (70, 90, 110):
        clock.now += 10
        status.update(done, "return 0.5")
    job = RunDirectory(run.job_directory("adapt", 0))
    job.append_rows(
        "eval.jsonl", [{"task": t, "repeat": 0, "step": s, "return": s / 10 + t} for s in (1, 2) for t in (0, 1)]
    )
    with run.lock():
        yield run, clock


def test_a_run_at_work(at_work):
    run, clock = at_work
    clock.now += 5
    found = status_of(run, "b", clock)
    assert found == RunStatus("b", "running", "adapt (3/3)", 0.55, 2.0, 40.0, pytest.approx(0.7)), (
        "90 of 2 a second, 5 ago"
    )
    assert found.cells() == ("b", "running", "adapt (3/3)", "55%", "2", "40s", "0.70")
    clock.now += 1_000
    assert status_of(run, "b", clock).speed is None, "nobody has said anything for long"


def test_a_clock_that_is_set_back_stops_no_news(at_work):
    run, clock = at_work
    clock.now -= 3_600
    assert status_of(run, "b", clock).left == 45.0, "as of the moment it was written"
    steady, of_the_wall = Clock(), Clock()
    status = StatusFile(run.path, STAGES, clock=steady, now=of_the_wall)
    status.phase("collect", 200, 0)
    of_the_wall.now -= 3_600
    steady.now += 2
    status.update(100, "")
    assert json.loads((run.path / PROGRESS).read_text())["done"] == 100


def test_status_is_written_seldom_and_removed_when_done(tmp_path):
    clock = Clock()
    status = StatusFile(tmp_path, STAGES, clock, clock)
    status.phase("collect", 200, 0)
    clock.now += 0.5
    status.update(100, "")
    assert json.loads((tmp_path / PROGRESS).read_text())["done"] == 0
    clock.now += 0.6
    status.update(150, "")
    assert json.loads((tmp_path / PROGRESS).read_text())["done"] == 150
    status.remove()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    StatusFile(tmp_path / "file", STAGES).phase("collect", 1, 0)  # cannot be written, and costs nothing


def test_the_table_of_a_directory(at_work, capsys):
    run, _ = at_work
    write_run(run.path.parent / "a", SMALL)
    killed = RunDirectory.create(run.path.parent / "deep" / "c", {"id": "c"})
    RunDirectory.create(run.path.parent / "d", {"id": "d"}).set_status("preempted")
    (killed.path / PROGRESS).write_text('{"phase": 3')
    found = runs_below(run.path.parent)
    assert [(one.name, one.state) for one in found] == [
        *(("a", "done"), ("b", "running"), ("d", "preempted"), ("deep/c", "killed"))
    ]
    assert command_line("status", run.path.parent, "--json") == 0
    shown = capsys.readouterr().out
    assert "1 done, 1 running, 1 preempted, 1 killed" in " ".join(shown.split())
    told = json.loads(shown.splitlines()[-1])["runs"]
    summary = json.loads((run.path.parent / "a" / "summary.json").read_text())
    assert told[0]["last_return"] == summary["mean_return"] and told[1]["phase"] == "adapt (3/3)"


def test_only_names_are_shortened_on_a_narrow_terminal(at_work, capsys, monkeypatch):
    run, _ = at_work
    long = run.path.parent / "mesa-climb-multi-quick-seed0-1f2e3d4c5b6a"
    run.path.rename(long)
    monkeypatch.setenv("COLUMNS", "80")
    assert command_line("status", long.parent, "--json") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if line.startswith("mesa")]
    assert row.split()[:4] == ["mesa-climb-multi-quick-seed0", "running", "adapt", "(3/3)"] and len(row) <= 80
    assert json.loads(last)["runs"][0]["name"] == long.name


def test_names_differ_after_they_are_shortened():
    def names(found: list[RunStatus], width: int) -> list[str]:
        return [one.name for one in fitted(found, width)]

    hashed = [RunStatus(f"plain-climb-one-quick-seed0-{hash}", "done") for hash in ("0123456789ab", "0123456789ac")]
    assert names(hashed, 120) == [one.name for one in hashed]
    assert names(hashed, 60) == ["plain-cl...56789ab", "plain-cl...56789ac"]
    assert names(hashed[:1], 70) == ["plain-climb-one-quick-seed0"]


def test_nothing_to_see_is_one_line(tmp_path, capsys):
    assert command_line("status", tmp_path / "nowhere") == USAGE
    assert command_line("status", tmp_path) == USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"mesax: no directory at {tmp_path / 'nowhere'}",
        f"mesax: there are no runs in {tmp_path}",
    ]


def test_watching_ends_when_nobody_is_at_work(tmp_path, capsys):
    write_run(tmp_path / "a", SMALL)
    assert command_line("status", tmp_path, "--watch") == 0
    assert "done" in capsys.readouterr().out


def test_looking_does_not_take_the_lock(at_work):
    run, _ = at_work
    assert status_of(run, "b").state == "running"
    with open(run.path / ".lock") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_of_many_runs_those_that_are_done_are_left_out_first():
    many = [RunStatus(str(n), state) for n, state in enumerate(["done"] * 5 + ["running"] + ["waiting"] * 4)]
    assert [one.name for one in shortened(many, 6)] == ["4", "5", "6", "7", "8", "9"]
    assert [one.state for one in shortened(many, 2)] == ["running", "waiting"]
    assert shortened(many, 99) == many


def test_a_run_of_a_sweep_that_has_not_begun_waits(tmp_path):
    planned = Planned("mesa", "climb-one", tmp_path / "later", (), "new")
    assert status_of_planned(planned) == RunStatus("later", "waiting")


def test_on_a_terminal_a_sweep_is_a_table(at_work, monkeypatch, capsys):
    run, _ = at_work
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sweep, "is_terminal", lambda stream: True)
    planned = [Planned("mesa", "climb-one", run.path.parent / name, (), "new") for name in ("b", "later")]
    with sweep._shown(planned, quiet=False) as say:
        say("[1/2] b: begun")
    shown = capsys.readouterr().err
    assert "[1/2] b: begun" in shown and "1 running, 1 waiting" in shown, "the last word, below the table"
    assert any(line.split()[:3] == ["b", "running", "adapt"] for line in shown.splitlines())
    with sweep._shown(planned, quiet=True) as say:
        say("nobody hears this")
    assert capsys.readouterr().err == ""
