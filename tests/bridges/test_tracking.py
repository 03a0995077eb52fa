"""Trackers: every row once, whatever happens to the run; a tool that is missing or fails costs nothing."""

import csv
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from execution.test_resume import stopping_at
from execution.test_runner import assert_same_bytes, command_line, run_tiny
from execution.test_runner import tiny as tiny  # noqa: PLC0414  (a fixture)
from fake_store import SMALL, write_run
from mesax.bridges.tracking import sinks
from mesax.bridges.tracking.follow import Follower, export_rows, follower
from mesax.bridges.tracking.rows import KINDS, Entry, entry_of
from mesax.errors import PREEMPTED, USAGE, UsageError
from mesax.store.run_directory import RunDirectory

Told = dict[tuple[str, str, int], float]


def test_a_row_becomes_an_entry():
    row = {"phase": "adapt", "task": 3, "repeat": 1, "step": 500, "return": 0.5, "groups": {"k=1": 1.0, "k=2": None}}
    assert entry_of("eval", row) == Entry("adapt-task-03-run-01", 500, {"eval/return": 0.5, "eval/groups/k=1": 1.0})
    row = {
        "phase": "explore",
        "policy": 0,
        "step": 7,
        "loss": 2,
        "worst": None,
        "fine": True,
        "note": "x",
        "odd": 1e999,
    }
    assert entry_of("metrics", row) == Entry("explore-policy-00", 7, {"explore/loss": 2.0})
    assert sinks.tag_of("eval/groups/k=1") == "eval/groups/k_1"


def expected(run: RunDirectory) -> Told:
    """What a tool must have been told of a run, by its merged rows."""
    entries = [entry_of(kind, row) for kind in KINDS for row in run.read_rows(f"{kind}.jsonl")]
    return {(e.series, sinks.tag_of(name), e.step): np.float32(v) for e in entries for name, v in e.values.items()}


def told_to_tensorboard(directory: Path) -> Told:
    """What its event files hold; the same twice is a mistake."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found: Told = {}
    for path in sorted(directory.rglob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            for value in event.summary.value:
                key = (path.parent.name, value.tag, event.step)
                assert key not in found, f"{key} was told twice"
                found[key] = np.float32(value.simple_value)
    return found


@pytest.mark.parametrize("stop_at", [2, 4])
def test_tensorboard_has_every_row_once_after_stops(tiny, tmp_path, monkeypatch, stop_at):
    """Rows after the last checkpoint are cut off when a run goes on, and come again."""
    pytest.importorskip("tensorboardX")
    path = tmp_path / "run"
    with stopping_at(monkeypatch, stop_at):
        assert run_tiny(path, extra=("--track", "tensorboard", "--track", "csv")) == PREEMPTED
    half = told_to_tensorboard(path / "tracking" / "tensorboard")
    # As if it had been killed later: rows that no checkpoint knows, and that the tools were told of already.
    for rows in path.glob("jobs/adapt/*/metrics.jsonl"):
        if (rows.parent / "done.json").exists():
            continue
        with rows.open("a") as file:
            file.write('{"phase": "adapt", "task": 0, "repeat": 0, "step": 999999, "loss": 1.0}\n{"cut sh')
    assert command_line("resume", path, "--workers", 1, "--quiet") == 0
    assert_same_bytes(path, tiny)
    run = RunDirectory.open(path)
    found = told_to_tensorboard(path / "tracking" / "tensorboard")
    assert found == expected(run) and half.items() <= found.items()
    with (path / "tracking" / "csv" / "rows.csv").open(newline="") as file:
        lines = [(line["series"], sinks.tag_of(line["name"]), int(line["step"])) for line in csv.DictReader(file)]
    assert sorted(lines) == sorted(found)
    assert command_line("verify", path) == 0


class Listening:
    """A sink that remembers, and fails when told to."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.broken = self.closed = False

    def log(self, entry: Entry) -> None:
        if self.broken:
            raise OSError("no space left")
        self.entries.append(entry)

    def close(self) -> None:
        self.closed = True


def test_rows_are_followed_as_they_are_written(tmp_path):
    run, warnings, sink = RunDirectory(tmp_path), [], Listening()
    job = RunDirectory(run.job_directory("adapt", 0))
    following = Follower(run, {"mine": sink}, warnings.append)
    following.follow("adapt", 0)
    assert sink.entries == [], "there is no file yet"
    row = {"phase": "adapt", "task": 0, "repeat": 0, "loss": 1.5}
    job.append_rows("metrics.jsonl", [row | {"step": 1}, row | {"step": 2}])
    following.follow("adapt", 0)
    with (job.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row | {"step": 3})[:-4])
    following.follow("adapt", 0)
    assert [entry.step for entry in sink.entries] == [1, 2], "half a line is none"
    job.append_rows("metrics.jsonl", [row | {"step": 3}])
    following.follow("adapt", 0)
    following.follow("adapt", 0)
    assert [entry.step for entry in sink.entries] == [1, 2, 3]
    sink.broken = True
    job.append_rows("metrics.jsonl", [row | {"step": 4}])
    following.follow("adapt", 0)
    assert warnings == ["the tracker 'mine' is told nothing more: OSError: no space left"]
    following.follow("adapt", 0)
    following.close()
    assert len(warnings) == 1 and not sink.closed


def test_a_tool_that_is_not_installed_is_one_line_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    line = (
        "mesax: the tracker 'tensorboard' needs tensorboardX, which is not installed: pip install 'mesax[tensorboard]'"
    )
    for verb in (
        ("run", "plain", "climb-one", "--out", tmp_path / "run", "--track", "tensorboard"),
        ("sweep", "--methods", "plain", "--envs", "climb-one", "--out", tmp_path / "run", "--track", "tensorboard"),
        ("resume", tmp_path / "run", "--track", "tensorboard"),
        ("export", tmp_path / "run", "--to", "tensorboard"),
    ):
        assert command_line(*verb) == USAGE
        assert capsys.readouterr().err.splitlines() == [line]
    assert not (tmp_path / "run").exists()
    assert command_line("run", "plain", "climb-one", "--track", "paper") == USAGE
    assert "invalid choice: 'paper'" in capsys.readouterr().err


def test_finished_runs_are_exported(tmp_path, capsys):
    path = write_run(tmp_path / "run", SMALL)
    run = RunDirectory.open(path)
    assert command_line("export", path, "--to", "csv") == 0
    where = path / "tracking" / "csv"
    assert capsys.readouterr().out == f"written  {where}\n"
    with (where / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(expected(run))
    first = next(row for row in rows if row["name"] == "eval/return")
    assert (first["series"], first["step"]) == ("adapt-task-00-run-00", "1000")
    before = (where / "rows.csv").read_bytes()
    assert command_line("export", path, "--to", "csv") == 0 and (where / "rows.csv").read_bytes() == before
    with pytest.raises(UsageError, match="exists already"):
        export_rows(run, "csv", tmp_path)
    if sinks.find_spec("tensorboardX"):
        assert told_to_tensorboard(export_rows(run, "tensorboard", tmp_path / "board")) == expected(run)


def test_what_was_told_before_is_told_again(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"id": "x"})
    assert follower(run, (), print).sinks == {}
    following = follower(run, ("csv",), print)
    following.close()
    again = follower(run, (), print)
    assert list(again.sinks) == ["csv"]
    again.close()


def test_a_tool_that_cannot_be_opened_costs_no_run(tmp_path, monkeypatch):
    """One of an earlier attempt that is not installed here, and one that fails: a line each, and its files stay."""
    run, warnings = RunDirectory.create(tmp_path / "run", {"id": "x"}), []
    left = run.path / "tracking" / "wandb" / "left"
    left.mkdir(parents=True)

    def fails(directory: Path, run: object) -> sinks.Sink:
        raise ConnectionError("no answer\nfrom the server")

    monkeypatch.setitem(sinks.TRACKERS, "csv", sinks.Tracker(None, fails))
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    assert follower(run, ("csv",), warnings.append).sinks == {}
    assert warnings == [
        "the tracker 'csv' is told nothing: ConnectionError: no answer from the server",
        "the tracker 'wandb' is told nothing: the tracker 'wandb' needs wandb, which is not installed:"
        " pip install 'mesax[wandb]'",
    ]
    assert left.is_dir()
    with pytest.raises(UsageError, match="needs wandb"):  # asked for now
        follower(run, ("wandb",), warnings.append)


def test_a_tool_that_cannot_be_opened_again_keeps_what_it_was_told(tmp_path, monkeypatch):
    """Even if it has begun to write before it fails; the next attempt that can open it begins anew."""
    run, warnings = RunDirectory.create(tmp_path / "run", {"id": "x"}), []
    table = run.path / "tracking" / "csv" / "rows.csv"
    following = follower(run, ("csv",), warnings.append)
    following._log(Entry("adapt", 1, {"loss": 2.0}))
    following.close()
    told = table.read_text()

    def fails(directory: Path, run: object) -> sinks.Sink:
        sinks.CsvSink(directory, {}).close()
        raise ConnectionError("no answer")

    with monkeypatch.context() as patch:
        patch.setitem(sinks.TRACKERS, "csv", sinks.Tracker(None, fails))
        for _ in range(2):
            assert follower(run, (), warnings.append).sinks == {}
            assert table.read_text() == told and "adapt,1,loss,2.0" in told
    assert warnings == ["the tracker 'csv' is told nothing: ConnectionError: no answer"] * 2
    follower(run, (), warnings.append).close()
    assert "loss" not in table.read_text()
    assert [path.name for path in table.parent.parent.iterdir()] == ["csv"]


def test_a_run_at_work_is_exported_elsewhere(tmp_path, capsys):
    """Its own tracker may be writing where an export would begin anew."""
    path = write_run(tmp_path / "run", SMALL)
    live = path / "tracking" / "csv" / "rows.csv"
    live.parent.mkdir(parents=True)
    live.write_text("of the run at work")
    with RunDirectory.open(path).lock():
        assert command_line("export", path, "--to", "csv") == USAGE
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{path} is in use by process" in line and "choose another directory with --out" in line
        assert live.read_text() == "of the run at work"
        assert command_line("export", path, "--to", "csv", "--out", tmp_path / "table") == 0
    assert (tmp_path / "table" / "rows.csv").stat().st_size > 100


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "wandb"))
    (tmp_path / "wandb").mkdir()
    run = RunDirectory.open(write_run(tmp_path / "run", SMALL))
    logged = []
    original = wandb.sdk.wandb_run.Run.log
    monkeypatch.setattr(wandb.sdk.wandb_run.Run, "log", lambda self, row: (logged.append(row), original(self, row)))
    export_rows(run, "wandb")
    assert sum(len(row) - 1 for row in logged) == len(expected(run))
    assert list((tmp_path / "wandb").rglob("*.wandb")), "to be synchronized later"
    RunDirectory.open(run.path)  # nothing in it is a link
