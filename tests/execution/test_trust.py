"""An unfinished run under attack: whatever happens to one of its files, no wrong number comes with exit code 0."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from execution.test_resume import determined
from execution.test_runner import TINY, command_line, finished_run, only_line, resume, run_tiny, shared_run
from execution.test_runner import tiny as tiny  # noqa: PLC0414  (a fixture)
from mesax.errors import IO_ERROR, DamageError
from mesax.execution import runner
from mesax.execution.jobs import JobServices
from mesax.experiments.rebuild import experiment_of
from mesax.methods.base import Stage
from mesax.store.json_files import CHECKSUMS
from mesax.store.json_values import OWN_SUM, signed
from mesax.store.run_directory import KEPT_ONCE, MERGED, RunDirectory

JOB = Path("jobs", "adapt", "000")


def cut(path: Path) -> None:
    """Without its last line."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def flip(path: Path) -> None:
    """A digit becomes another."""
    data = bytearray(path.read_bytes())
    place = max(index for index, byte in enumerate(data) if chr(byte) in "2345678")
    data[place] ^= 1
    path.write_bytes(data)


def half_of(run: Path, path: Path) -> Path:
    """As a finished run was before its last job."""
    shutil.copytree(run, path)
    for name in (*MERGED, CHECKSUMS, "episodes.json"):
        if name not in KEPT_ONCE:
            (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "policies")
    shutil.rmtree(max((path / "jobs" / "adapt").iterdir()))
    RunDirectory(path).set_status("preempted")
    return path


@pytest.fixture
def half(tiny: Path, tmp_path: Path) -> Path:
    """A run with two of three jobs done."""
    return half_of(tiny, tmp_path / "half")


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with another seed."""
    return shared_run(tmp_path_factory, "tiny-other", *TINY, "--seed", "1")


@pytest.mark.parametrize("name", ["eval.jsonl", "metrics.jsonl"])
@pytest.mark.parametrize("damage", [Path.unlink, cut, flip])
def test_rows_of_a_running_job_are_what_it_has_written(tiny, tmp_path, monkeypatch, capsys, name, damage):
    path, report = tmp_path / "run", JobServices.report

    def report_and_damage(self: JobServices, done_steps: int, note: str = "") -> None:
        report(self, done_steps, note)
        if self.job == 0 and len(RunDirectory(self.directory).read_rows(name)) == 2:
            damage(self.directory / name)

    with monkeypatch.context() as patch:
        patch.setattr(JobServices, "report", report_and_damage)
        assert run_tiny(path) == IO_ERROR
    line = only_line(capsys)
    assert f"{path / JOB / name} is damaged: it is not what this job has written" in line
    assert resume(path) == 0
    assert determined(path) == determined(tiny)


FOREIGN = {
    "another run's": lambda half, other: (other / JOB, half / JOB),
    "another job's": lambda half, other: (half / JOB, half / JOB.parent / "001"),
    "another run's policy": lambda half, other: (other / JOB / "task-00-run-00", half / JOB / "task-00-run-00"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_finished_job_that_is_not_its_own_is_done_again(tiny, half, other, capsys, kind):
    source, target = FOREIGN[kind](half, other)
    shutil.rmtree(target)
    shutil.copytree(source, target)
    assert resume(half) == 0
    line = only_line(capsys)
    assert str(target) in line and line.endswith("; the job is done again")
    assert determined(half) == determined(tiny)


DAMAGED = {
    "done.json": flip,
    "eval.jsonl": cut,
    "metrics.jsonl": Path.unlink,
    "task-00-run-00/arrays.safetensors": flip,
    "best-task-00-run-00/manifest.json": Path.unlink,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_job_of_an_unfinished_run_is_done_again(tiny, half, capsys, name):
    DAMAGED[name](half / JOB / name)
    assert resume(half) == 0
    assert only_line(capsys).endswith("; the job is done again")
    assert determined(half) == determined(tiny)


def at_the_last_moment(monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]) -> None:
    """All jobs are done; now something happens, and they are merged."""
    merge = runner.merge

    def damage_and_merge(run: RunDirectory, stages: object) -> object:
        damage(run.path)
        return merge(run, stages)

    monkeypatch.setattr(runner, "merge", damage_and_merge)


LAST_MOMENT = {
    "another job's": lambda run, other: shutil.copytree(other / JOB, run / JOB, dirs_exist_ok=True),
    "a policy is gone": lambda run, other: shutil.rmtree(run / JOB / "best-task-00-run-00"),
    "another run's policy": lambda run, other: shutil.copytree(
        other / JOB / "task-00-run-00", run / JOB / "task-00-run-00", dirs_exist_ok=True
    ),
    "run.json is gone": lambda run, other: (run / "run.json").unlink(),
    "another run's run.json": lambda run, other: shutil.copy(other / "run.json", run / "run.json"),
    "coverage of nobody's": lambda run, other: (run / "coverage.json").write_text('{"visitors": []}'),
}


@pytest.mark.parametrize("kind", LAST_MOMENT)
def test_what_happens_before_the_jobs_are_merged_is_named(half, other, monkeypatch, capsys, kind):
    with monkeypatch.context() as patch:
        at_the_last_moment(patch, lambda run: LAST_MOMENT[kind](run, other))
        assert resume(half) == IO_ERROR
    assert str(half) in only_line(capsys) and not (half / "checksums.json").exists()


def test_what_no_job_wrote_is_not_merged(tiny, half, other):
    """Files that are there beside those of the jobs: of another run, under names that nobody else has."""
    strange = {
        "jobs/adapt/007": JOB,
        f"{JOB}/task-09-run-00": JOB / "task-00-run-00",
        "policies/task-08-run-00": JOB / "task-00-run-00",
    }
    for name, source in strange.items():
        shutil.copytree(other / source, half / name)
    assert resume(half) == 0
    sums = RunDirectory(half).sums
    assert sums is not None and sums.keys() == RunDirectory(tiny).sums.keys()


CHANGED = {
    "optimal return": lambda run: run["family"].update(optimal_return=99.0),
    "threshold": lambda run: run["family"].update(optimal_threshold=0.0),
    "label": lambda run: run["test_tasks"][0].update(label="k=9"),
    "method": lambda run: run.update(method="mesa"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_a_changed_word_in_run_json_of_an_unfinished_run_is_noticed(half, capsys, kind):
    run = json.loads((half / "run.json").read_text())
    CHANGED[kind](run)
    (half / "run.json").write_text(json.dumps(run, indent=2))
    for verb in ("resume", "eval", "render", "verify"):
        assert command_line(verb, half) == IO_ERROR
        shown = capsys.readouterr()
        assert f"{half / 'run.json'} is damaged: its checksum of itself does not match" in shown.err + shown.out


@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.parametrize("signs", [True, False], ids=["signed again", "without a sum"])
def test_what_follows_from_the_configuration_is_not_believed(half, capsys, kind, signs):
    """Nor where whoever has changed it made the sum anew, or where there is none, as in runs of before."""
    run = json.loads((half / "run.json").read_text())
    CHANGED[kind](run)
    del run[OWN_SUM]
    (half / "run.json").write_text(json.dumps(signed(run) if signs else run, indent=2))
    for words in (("resume", half), ("eval", half), ("render", half), ("run", *TINY, "--out", half, "--reuse")):
        assert command_line(*words) == IO_ERROR
        assert "was changed after it was written: its" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [Path.unlink, flip])
def test_a_damaged_document_of_an_unfinished_run_is_written_again(tmp_path_factory, tmp_path, capsys, damage):
    finished = finished_run(tmp_path_factory)
    half = half_of(finished, tmp_path / "half")
    damage(half / "coverage.json")
    assert resume(half) == 0
    assert "coverage.json" in (line := only_line(capsys)) and line.endswith("; the job is done again")
    assert determined(half) == determined(finished)


@pytest.fixture
def all_done(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> tuple[RunDirectory, tuple[Stage, ...]]:
    """A run whose jobs are done and not merged yet, and its stages."""
    path = tmp_path / "all-done"
    shutil.copytree(finished_run(tmp_path_factory), path)
    run = RunDirectory(path)
    run.unseal()
    run.set_status("running")
    experiment = experiment_of(run.run)
    return run, experiment.method.stages(experiment)


@pytest.mark.parametrize("damage", [Path.unlink, flip])
@pytest.mark.parametrize(
    ("name", "owner", "step"),
    [
        ("coverage.json", runner, "in_order"),
        ("coverage.json", runner, "summarize"),
        ("run.json", runner, "summarize"),
        ("eval.jsonl", runner, "summarize"),
        ("jobs/adapt/000/eval.jsonl", RunDirectory, "check_job"),
    ],
)
def test_what_changes_while_the_jobs_are_merged_is_not_sealed(all_done, monkeypatch, name, owner, step, damage):
    (run, stages), usual, damaged = all_done, getattr(owner, step), []

    def damaging(*words: object, **more: object) -> object:
        found = usual(*words, **more)
        if (run.path / name).is_file() and not damaged:
            damaged.append(damage(run.path / name))
        return found

    with monkeypatch.context() as patch, pytest.raises(DamageError, match=Path(name).name):
        patch.setattr(owner, step, damaging)
        runner.merge(run, stages)
        RunDirectory(run.path).check_results()
