"""Each file of a finished run, damaged in each way, before each verb that reads: a refusal, or the right numbers.

What takes time and cannot be damaged is left out: episodes are not played, but stand for the weights that would play
them, and pictures are not drawn.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from execution.test_runner import SMOKE, command_line, finished_run
from mesax.errors import IO_ERROR
from mesax.execution import saved_policies, sweep
from mesax.mesa.method import Mesa
from mesax.methods.adapt import greedy_shape
from mesax.results import drawing, report
from mesax.results.page import sections
from mesax.store import trees
from mesax.store.json_files import CHECKSUMS
from mesax.store.run_directory import RunDirectory

NAME = "mesa-climb-one-smoke-seed0"
SECONDS = 60
"""A verb that takes so long waits for something that never comes; the machine may be busy."""
CLOCKS = ("wall_seconds", "env_steps_per_second", "run_dir", "seconds", "written")
POLICY, EXPLORERS, JOB = "policies/task-00-run-00", "policies/explorers", "jobs/adapt/000"
MERGED_FROM_JOBS = ("eval.jsonl", "metrics.jsonl", "timing.jsonl", "summary.json")
TABLES, PLAYERS = {"compare", "report", "sweep"}, {"eval", "render", "export"}
# Which verbs must refuse a file that is not what was written; all others must go on with the right numbers.
READ_BY = {
    "run.json": {*TABLES, *PLAYERS, "resume", "verify"},
    "eval.jsonl": {"compare", "report", "verify"},
    "metrics.jsonl": {"compare", "report", "verify"},
    "timing.jsonl": {"verify"},
    "summary.json": {"compare", "report", "verify"},
    "coverage.json": {*TABLES, "export", "resume", "verify"},
    "clock.jsonl": {"resume", "sweep", "verify"},
    CHECKSUMS: {"compare", "report", *PLAYERS, "verify"},
    f"{POLICY}/manifest.json": {"eval", "render", "verify"},
    f"{POLICY}/arrays.safetensors": {"eval", "render", "verify"},
    f"{EXPLORERS}/manifest.json": {"export", "verify"},
    f"{EXPLORERS}/arrays.safetensors": {"export", "verify"},
    f"{JOB}/done.json": {"verify"},
    f"{JOB}/eval.jsonl": {"verify"},
    f"{JOB}/task-00-run-00/arrays.safetensors": {"verify"},
    "STATUS": set(),
    "figures/learning-curves.png": set(),
    ".lock": set(),
}
LOOKING = ("verify", "compare", "eval", "render", "report", "export")
"""These leave what they read as it is."""
VERBS = (*LOOKING, "resume", "sweep")
SHAPE_OF = functools.cache(greedy_shape)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither episodes nor pictures nor processes."""
    monkeypatch.setattr(saved_policies, "greedy_shape", SHAPE_OF)
    monkeypatch.setattr(Mesa, "check", lambda *_: None)  # whether its parts fit is no question of files
    monkeypatch.setattr(
        saved_policies, "play_episodes", lambda env, tasks, policy, *_: SimpleNamespace(reward=stands_for(policy))
    )
    monkeypatch.setattr(
        saved_policies,
        "_played",
        lambda run, experiment, task, name: saved_policies.named_policy(run, experiment, name, task),
    )
    monkeypatch.setattr(saved_policies, "_as_drawn", lambda run, experiment, policy, *_: stands_for(policy))
    monkeypatch.setattr(
        saved_policies, "draw_scene", lambda shown, title, base, gif: [hashlib.sha256(shown.tobytes()).hexdigest()]
    )
    monkeypatch.setattr(saved_policies, "_draw_film", lambda *_: [])
    monkeypatch.setattr(drawing, "_drawn", lambda *_: [])
    for module in (report, sections):
        monkeypatch.setattr(module, "picture", lambda *_: "")
    monkeypatch.setattr(
        sweep, "_attempt", lambda run, *_: (command_line(*run.command, "--workers", 1, "--quiet"), "told")
    )


def stands_for(policy: object) -> np.ndarray:
    """A reward that another weight would change."""
    total = sum(float(np.sum(np.asarray(leaf, float))) for leaf in jax.tree.leaves(policy))
    return np.full((1, 1), total)


def command_of(verb: str, run: Path) -> tuple[object, ...]:
    if verb == "sweep":
        method, env, *rest = SMOKE
        return (
            "sweep",
            "--methods",
            method,
            "--envs",
            env,
            *rest,
            "--out",
            run.parent,
            "--workers",
            1,
            "--quiet",
            "--json",
        )
    more = {
        "compare": ("--json",),
        "resume": ("--json", "--quiet", "--workers", 1),
        "eval": ("--episodes", 1, "--json"),
    }
    return (verb, run, *more.get(verb, ()))


def numbers(verb: str, run: Path, output: str) -> object:
    """What a verb has found out, without clocks and paths."""
    if verb == "export":
        return (run / "bundle" / "arrays.safetensors").read_bytes()
    if verb == "report":
        return [
            line
            for line in (run / "report.html").read_text().split("<h3>Provenance")[0].splitlines()
            if "<td>" in line and ":" not in line
        ]
    if verb in ("render", "verify"):
        return output.splitlines()[0].partition(" of ")[0]
    return without_clocks(json.loads(output.splitlines()[-1]))


def without_clocks(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_clocks(entry) for name, entry in value.items() if name not in CLOCKS}
    return [without_clocks(entry) for entry in value] if isinstance(value, list) else value


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def truth(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Filled by the first test."""
    return {}


def copy_of(finished: Path, place: Path) -> Path:
    path = place / "runs" / NAME
    shutil.rmtree(path.parent, ignore_errors=True)
    shutil.copytree(finished, path)
    return path


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"\1"


def edit(name: str, data: bytes) -> bytes:
    """Other contents that could have been written."""
    if name == "STATUS":
        return b"running\n"
    if name.endswith("manifest.json"):
        manifest = json.loads(data)
        manifest["facts"]["edited"] = True
        return trees._manifest_bytes(manifest)
    if name.endswith(".json"):
        content = json.loads(data)
        first = next(key for key, value in content.items() if isinstance(value, int | float | str | dict | list))
        return json.dumps({**content, first: 7}, indent=2).encode()
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in data.splitlines()]
        changed = [
            {key: value / 2 if isinstance(value, float) else value for key, value in row.items()} for row in rows
        ]
        return b"".join(json.dumps(row, sort_keys=True).encode() + b"\n" for row in changed)
    return data[:-1] + bytes([data[-1] ^ 128]) if data else b"1\n"


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except OSError:  # only for the superuser, and not everywhere
        path.symlink_to("/dev/zero")


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"
TAMPERINGS: dict[str, Callable[[Path, str, Path], object]] = {
    "deleted": lambda path, name, outside: path.unlink(),
    "truncated": lambda path, name, outside: os.truncate(path, path.stat().st_size * 2 // 3),
    "flipped": lambda path, name, outside: path.write_bytes(flip(path.read_bytes())),
    "link": lambda path, name, outside: replaced(path, lambda path: path.symlink_to(outside)),
    "pipe": lambda path, name, outside: replaced(path, os.mkfifo),
    "device": lambda path, name, outside: replaced(path, device),
    "deep": lambda path, name, outside: path.write_bytes(DEEP),
    "edited": lambda path, name, outside: path.write_bytes(edit(name, path.read_bytes())),
}
SPECIAL = ("link", "pipe", "device")


@pytest.mark.parametrize("tampering", TAMPERINGS)
@pytest.mark.parametrize("name", READ_BY)
def test_a_damaged_file_is_named_or_changes_no_number(finished, truth, tmp_path, capsys, name, tampering):
    if not truth:
        for verb in VERBS:
            run = copy_of(finished, tmp_path)
            assert command_line(*command_of(verb, run)) == 0
            truth[verb] = numbers(verb, run, capsys.readouterr().out)
    outside = tmp_path / "outside"
    before = (finished / name).read_bytes()
    outside.write_bytes(before)  # a link to it would even hold the right contents
    for verb in VERBS:
        if verb not in LOOKING[1:]:
            run = copy_of(finished, tmp_path)
            TAMPERINGS[tampering](run / name, name, outside)
        changed = not (run / name).is_file() or (run / name).read_bytes() != (finished / name).read_bytes()
        with within(SECONDS):
            code = command_line(*command_of(verb, run))
        output, errors = capsys.readouterr()
        told = f"{verb}: {code} {errors}"
        assert outside.read_bytes() == before and {path.name for path in tmp_path.iterdir()} == {"outside", "runs"}, (
            told
        )
        assert code in (0, IO_ERROR) and "Traceback" not in errors, told
        if tampering in SPECIAL or (changed and verb in READ_BY[name]):
            assert code == IO_ERROR, told
        if code == IO_ERROR:
            assert verb == "verify" or name in errors or CHECKSUMS in errors, told
            assert verb == "verify" or len(errors.splitlines()) == 1, told
        elif verb != "verify":
            assert numbers(verb, run, output) == truth[verb], told
            assert verb != "resume" or name not in (*MERGED_FROM_JOBS, CHECKSUMS) or whole(run), "it is mended"


def test_the_matrix_has_every_kind_of_file(finished):
    """A kind: the name without numbers, and what jobs and policies hold is alike."""
    files = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    missing = {kind_of(name) for name in files} - {kind_of(name) for name in READ_BY}
    print(f"{len(READ_BY)} files x {len(TAMPERINGS)} ways x {len(VERBS)} verbs")
    assert not missing


def kind_of(name: str) -> str:
    folder, _, own = name.rpartition("/")
    if own in ("manifest.json", "arrays.safetensors") and folder.startswith("jobs/"):
        return "jobs/*/arrays or their manifest"  # checked together, by `reopen` and `verify` alone
    if folder.startswith(("jobs/", "figures")):
        return f"{folder.partition('/')[0]}/*{Path(own).suffix}".replace(".svg", ".png")
    return re.sub(r"best-|\d+", "", name)


PLANTED = ("report.html", "report.html.part", "figures", "bundle", "policies/explorers.part", ".tmp-report.html")


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_written_through_a_planted_link(finished, tmp_path, capsys, name):
    """By any verb, be it one that writes there; `verify` names it."""
    run, outside = copy_of(finished, tmp_path), tmp_path / "outside"
    if (run / name).is_dir():
        shutil.move(run / name, outside)
    else:
        outside.mkdir()
    before = {path.name: path.stat().st_mtime_ns for path in outside.iterdir()}
    (run / name).symlink_to(outside)
    for verb in VERBS:
        assert command_line(*command_of(verb, run)) == IO_ERROR, verb
        output, errors = capsys.readouterr()
        assert name in (output if verb == "verify" else errors), verb
    assert before == {path.name: path.stat().st_mtime_ns for path in outside.iterdir()}


def test_what_does_not_belong_is_listed(finished, tmp_path, capsys):
    """At the top and among the policies; it damages nothing."""
    run = copy_of(finished, tmp_path)
    (run / "notes.txt").write_text("mine")
    (run / "policies" / "compare-curves.png").write_text("mine")
    shutil.copytree(run / POLICY, run / "policies" / "task-07-run-00")
    assert command_line("verify", run) == 0
    unknown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unknown ")]
    names = ("notes.txt", "policies/compare-curves.png", "policies/task-07-run-00")
    assert unknown == [f"unknown  {run / name} was not written by this run" for name in names]


def whole(run: Path) -> bool:
    RunDirectory(run).check_results()
    return RunDirectory(run).status == "done"


def test_sums_of_an_older_version_are_written_again(finished, tmp_path, capsys):
    run = copy_of(finished, tmp_path)
    older = json.loads((run / CHECKSUMS).read_text())
    del older[CHECKSUMS]
    (run / CHECKSUMS).write_text(json.dumps(older, indent=2) + "\n")
    assert command_line("compare", run) == IO_ERROR
    assert "as older versions wrote it: mesax resume writes it again" in capsys.readouterr().err
    assert command_line("resume", run, "--quiet") == 0
    assert whole(run) and command_line("compare", run) == 0
