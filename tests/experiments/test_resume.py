"""A run that is stopped anywhere goes on to the same bytes; a damaged checkpoint is named, and the one before used."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.test_runner import command_line, finished_run, status
from mesax.cli import PREEMPTED
from mesax.experiments import keeping
from mesax.experiments.jobs import JobHost
from mesax.experiments.store import RunDirectory

DETERMINED = {"eval.jsonl", "metrics.jsonl", "coverage.json", "arrays.safetensors", "manifest.json"}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


def determined(path: Path) -> dict[str, bytes]:
    """All files that seed and configuration determine."""
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.name in DETERMINED}
    assert any("best-task" in name for name in found) and any("explorers" in name for name in found)
    return found


@contextmanager
def saving_at(monkeypatch: pytest.MonkeyPatch, often: bool, stop_after: int | None) -> Iterator[None]:
    """Checkpoints at every pause or only on stopping; stop at pause number `stop_after`."""
    pause, seen = JobHost.pause, [0]

    def counted(self, loop, facts):
        seen[0] += 1
        if stop_after is not None and seen[0] >= stop_after:
            self.stop.set()
        pause(self, loop, facts)

    with monkeypatch.context() as patch:
        patch.setattr(JobHost, "pause", counted)
        if often:
            patch.setenv(keeping.SECONDS, "0")
            patch.setattr(keeping, "LARGEST_SHARE", float("inf"))
        yield


def begin(finished: Path, path: Path) -> None:
    """The same run before anything was done."""
    path.mkdir()
    shutil.copy(finished / "run.json", path)
    RunDirectory(path).set_status("preempted")


def go_on(path: Path) -> int:
    return command_line("resume", path, "--workers", 1, "--quiet")


def test_a_run_stopped_at_every_pause_ends_in_the_same_bytes(finished, tmp_path, monkeypatch, capsys):
    """Once in every segment of every job: collecting, both explorers, adapting."""
    path = tmp_path / "run"
    begin(finished, path)
    stops = 0
    while True:
        with saving_at(monkeypatch, often=False, stop_after=2):
            code = go_on(path)
        if code != PREEMPTED:
            break
        stops += 1
        assert status(path) == "preempted"
    assert code == 0 and stops == 14
    assert determined(path) == determined(finished)
    assert not list(path.rglob("checkpoints")) and not list(path.rglob("scratch"))
