"""The run directory: atomic files, rows that survive crashes, one writer at a time."""

import errno
import fcntl
import json
import math
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from mesax.errors import StoreError, UsageError
from mesax.store import run_directory as store
from mesax.store.json_values import signed
from mesax.store.replacing import replace_directory
from mesax.store.run_directory import RunDirectory, find_runs

SOURCE = Path(store.__file__).parent.parent.parent


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs" / "one", {"id": "one", "seed": 3})


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_create_then_open(run: RunDirectory):
    assert names(run.path.parent) == ["one"]
    opened = RunDirectory.open(run.path)
    assert opened == run
    assert opened.run == signed({"id": "one", "seed": 3})
    assert opened.run is opened.run
    assert opened.status == "running"


def test_create_refuses_what_exists(run: RunDirectory, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (run.path, tmp_path / "empty", tmp_path / "file", tmp_path / "dangling"):
        before = names(tmp_path)
        go_on = f", or continue it: mesax resume {path}" if path == run.path else ""
        message = f"{path} exists already; choose another directory with --out{go_on}"
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            RunDirectory.create(path, {"id": "two"})
        assert names(tmp_path) == before
    assert RunDirectory.open(run.path).run["id"] == "one"
    assert (tmp_path / "file").read_text() == "mine"


def test_create_leaves_nothing_when_it_fails(tmp_path: Path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StoreError, match="new cannot be created: No space left on device"):
        RunDirectory.create(tmp_path / "new", {})
    assert names(tmp_path) == []


def at_once(number: int, do: Callable[[int], object]) -> list[object]:
    """What each of so many threads gets, or the error that it meets; all begin together."""
    barrier, found = threading.Barrier(number), [None] * number

    def one(index: int) -> None:
        barrier.wait()
        try:
            found[index] = do(index)
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_threads_in_one_place_one_creates_the_run(tmp_path: Path):
    for number in range(20):
        path = tmp_path / f"run-{number}"
        found = at_once(4, lambda index, path=path: RunDirectory.create(path, {"id": str(index)}))
        (won,) = (one for one in found if isinstance(one, RunDirectory))
        assert all(isinstance(one, UsageError) and "exists already" in str(one) for one in found if one is not won)
        assert RunDirectory.open(won.path).run["id"] == str(found.index(won)) and won.status == "running"
    assert names(tmp_path) == sorted(f"run-{number}" for number in range(20))


def test_threads_replace_a_directory_in_turn_or_say_so(tmp_path: Path):
    """What one is filling is no leftover to another."""

    def fill(index: int) -> None:
        def write(temporary: Path) -> None:
            for name in ("marker", *"abcd"):
                (temporary / name).write_text(str(index))
                time.sleep(0.002)

        replace_directory(tmp_path / "bundle", write, "marker")

    for _ in range(5):
        found = at_once(3, fill)
        assert None in found and all(one is None or isinstance(one, StoreError) for one in found)
        assert len({path.read_text() for path in (tmp_path / "bundle").iterdir()}) == 1
    assert names(tmp_path) == ["bundle"]


def test_what_a_process_of_before_left_is_cleared(tmp_path: Path):
    for name in (f".tmp-run-{os.getpid()}", f".tmp-run-{os.getpid()}-0123abcd", ".tmp-run-999999999-0123abcd"):
        (tmp_path / name).mkdir()
    (tmp_path / ".tmp-run-1-0123abcd").mkdir()
    RunDirectory.create(tmp_path / "run", {})
    assert names(tmp_path) == [".tmp-run-1-0123abcd", "run"]


def test_create_in_a_place_that_cannot_be(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="new cannot be created: Not a directory"):
        RunDirectory.create(tmp_path / "file" / "new", {})


def test_open_refuses_what_is_no_run(run: RunDirectory, tmp_path: Path):
    with pytest.raises(UsageError, match=f"^no run directory at {tmp_path / 'none'}$"):
        RunDirectory.open(tmp_path / "none")
    with pytest.raises(UsageError, match=f"^no run directory at {tmp_path}: it has no run.json$"):
        RunDirectory.open(tmp_path)
    (run.path / "run.json").write_text('{"id": ')
    with pytest.raises(StoreError, match=r"run\.json is not valid JSON"):
        RunDirectory.open(run.path)


def test_status(run: RunDirectory):
    run.set_status("done")
    assert (run.path / "STATUS").read_text() == "done\n"
    assert run.status == "done"
    with pytest.raises(ValueError, match="'finished' is none of running, done, failed, preempted"):
        run.set_status("finished")
    (run.path / "STATUS").unlink()
    assert run.status == "unknown"


def test_json_is_plain_and_readable(run: RunDirectory):
    value = {
        "b": math.nan,
        "a": (np.float32(0.5), np.int64(2)),
        "c": [math.inf, np.arange(2)],
        "d": Path("x/y"),
    }
    run.write_json("deep/er/value.json", value)
    text = (run.path / "deep/er/value.json").read_text()
    expected = {"b": None, "a": [0.5, 2], "c": [None, [0, 1]], "d": "x/y"}
    assert json.loads(text, parse_constant=pytest.fail) == expected == run.read_json("deep/er/value.json")
    assert list(run.read_json("deep/er/value.json")) == list("bacd")
    assert text.startswith('{\n  "b": null,\n') and text.endswith("}\n")


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b'{"a": 1'])
def test_json_that_is_none(run: RunDirectory, content: bytes):
    (run.path / "value.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"value\.json"):
        run.read_json("value.json")
    with pytest.raises(StoreError, match=r"missing\.json is missing"):
        run.read_json("missing.json")


@pytest.mark.parametrize("name", ["replace", "fsync", "write"])
def test_a_failed_write_keeps_the_old_file(run: RunDirectory, monkeypatch, name: str):
    run.write_json("value.json", {"a": 1})
    before = names(run.path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, full)
    with pytest.raises(StoreError, match=r"value\.json cannot be written: No space left on device"):
        run.write_json("value.json", {"a": 2})
    monkeypatch.undo()
    assert run.read_json("value.json") == {"a": 1}
    assert names(run.path) == before


def test_rows(run: RunDirectory):
    assert run.read_rows("eval.jsonl") == []
    run.append_rows("eval.jsonl", [{"step": 1, "return": 0.1, "groups": {"k=2": math.nan, "k=1": np.float64(1)}}])
    run.append_rows("eval.jsonl", [])
    run.append_rows("eval.jsonl", iter([{"step": 2, "return": 1e-17}, {"step": 3, "return": -math.inf}]))
    text = (run.path / "eval.jsonl").read_text()
    assert text == (
        '{"groups": {"k=1": 1.0, "k=2": null}, "return": 0.1, "step": 1}\n'
        '{"return": 1e-17, "step": 2}\n{"return": null, "step": 3}\n'
    )
    rows = run.read_rows("eval.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    run.write_rows("copy.jsonl", rows)
    assert (run.path / "copy.jsonl").read_text() == text
    run.write_rows("copy.jsonl", [])
    assert run.read_rows("copy.jsonl") == []


def test_a_row_that_is_no_json_writes_nothing(run: RunDirectory):
    run.append_rows("eval.jsonl", [{"step": 1}])
    with pytest.raises(TypeError, match="a object cannot be written as JSON"):
        run.append_rows("eval.jsonl", [{"step": 2}, {"step": object()}])
    assert run.read_rows("eval.jsonl") == [{"step": 1}]


ROWS = [{"step": 1, "note": "é"}, {"step": 22, "note": "x" * 70_000}, {"step": 333}]
WHOLE = "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in ROWS).encode()
CUTS = sorted({*range(40), *range(70_000, len(WHOLE) + 1)} & set(range(len(WHOLE) + 1)))


def test_a_crash_at_any_byte_costs_only_the_last_row(run: RunDirectory):
    path = run.path / "eval.jsonl"
    for cut in CUTS:
        path.write_bytes(WHOLE[:cut])
        kept = [row for end, row in zip(ends(), ROWS, strict=True) if end - 1 <= cut]
        assert run.read_rows("eval.jsonl") == kept, cut
        run.append_rows("eval.jsonl", [{"new": True}])
        assert run.read_rows("eval.jsonl") == [*kept, {"new": True}], cut
        assert path.read_bytes().count(b"\n") == len(kept) + 1


def ends() -> list[int]:
    return [index + 1 for index, byte in enumerate(WHOLE) if byte == ord("\n")]


@pytest.mark.parametrize("broken", ["{", "[1]", "\0\0\0", "null"])
def test_a_broken_row_in_the_middle_is_an_error(run: RunDirectory, broken: str):
    (run.path / "eval.jsonl").write_text(f'{{"a": 1}}\n{broken}\n{{"a": 2}}\n')
    with pytest.raises(StoreError, match=r"eval\.jsonl: line 2 is not (a JSON object|valid JSON: .*)$"):
        run.read_rows("eval.jsonl")


def test_a_full_disk_costs_no_rows(run: RunDirectory):
    run.append_rows("eval.jsonl", [{"step": 1}])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with pytest.raises(StoreError, match=r"eval\.jsonl cannot be written: File too large"):
            run.append_rows("eval.jsonl", [{"step": step} for step in range(10_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (run.path / "eval.jsonl").read_text() == '{"step": 1}\n'


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ROW = st.dictionaries(st.text(), VALUES | st.lists(VALUES, max_size=3), max_size=4)


@given(batches=st.lists(st.lists(ROW, max_size=3), max_size=3))
def test_any_rows_come_back(tmp_path_factory: pytest.TempPathFactory, batches):
    run = RunDirectory(tmp_path_factory.getbasetemp())
    run.write_rows("any.jsonl", [])
    for batch in batches:
        run.append_rows("any.jsonl", batch)
    expected = [row for batch in batches for row in batch]
    found = run.read_rows("any.jsonl")
    assert found == expected
    assert repr([sorted(row.items()) for row in found]) == repr([sorted(row.items()) for row in expected])


def test_jobs(run: RunDirectory):
    assert run.job_directory("adapt", 7) == run.path / "jobs" / "adapt" / "007"
    assert not run.job_done("adapt", 7)
    assert names(run.path) == ["STATUS", "run.json"]
    run.finish_job("adapt", 7, {"env_steps": 5, "loss": math.nan, "rows": {}, "trees": {}, "documents": {}})
    assert run.job_done("adapt", 7)
    assert not run.job_done("adapt", 8) and not run.job_done("explore", 7)
    facts = run.check_job(run.job_directory("adapt", 7))
    assert facts.items() >= {"phase": "adapt", "job": 7, "env_steps": 5, "loss": None}.items()


CODE = """
import sys
from pathlib import Path
from mesax.errors import UsageError
from mesax.store.run_directory import RunDirectory
try:
    with RunDirectory.open(Path(sys.argv[1])).lock():
        print("locked", flush=True)
        sys.stdin.read()
except UsageError as error:
    print(error)
"""


def locker(run: RunDirectory) -> subprocess.Popen:
    command = [sys.executable, "-c", CODE, str(run.path)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def test_a_second_process_is_refused(run: RunDirectory):
    with run.lock(), locker(run) as other:
        out, _ = other.communicate()
    assert out == f"{run.path} is in use by process {os.getpid()}\n"


def test_a_run_that_nobody_works_on_was_killed(run: RunDirectory):
    assert (run.status, run.state) == ("running", "killed")
    with run.lock():
        assert (run.status, run.state) == ("running", "running")
    with locker(run) as other:
        assert other.stdout is not None and other.stdout.readline() == "locked\n"
        assert run.state == "running"
        other.kill()
    assert run.state == "killed"
    run.set_status("failed")
    assert run.state == "failed"


def test_a_killed_process_gives_its_lock_back(run: RunDirectory):
    with locker(run) as other:
        assert other.stdout is not None and other.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match=f"is in use by process {other.pid}$"), run.lock():
            pytest.fail("two at once")
        other.kill()
    with run.lock():
        pass
    with pytest.raises(ZeroDivisionError), run.lock():
        _ = 1 / 0
    with run.lock(), pytest.raises(UsageError, match=f"process {os.getpid()}$"), run.lock():
        pytest.fail("two at once")


def test_a_full_disk_is_named_by_whoever_begins_to_work(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreError, match=r"/\.lock cannot be written: File too large"), run.lock():
            pytest.fail("nothing can be written")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with run.lock():
        pass
    monkeypatch.setattr(store, "open_regular_file", lambda *_: os.open(run.path / "missing" / "file", os.O_RDWR))
    with pytest.raises(StoreError, match=r"/\.workers cannot be opened: No such file"):
        run.attend()


def test_whoever_only_looks_keeps_nobody_out(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    """As `mesax status` does, which asks for an instant whether somebody is at work."""
    with run.lock():
        pass
    descriptor = os.open(run.path / ".lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    monkeypatch.setattr(store, "SECONDS_FOR_LOOKING", 0)
    with pytest.raises(UsageError, match="is in use by process unknown"), run.lock():
        pytest.fail("two at once")
    monkeypatch.undo()
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: (waited.append(seconds), os.close(descriptor)))
    with run.lock():
        assert len(waited) == 1


def test_find_runs(run: RunDirectory, tmp_path: Path):
    other = RunDirectory.create(tmp_path / "runs" / "deep" / "a", {})
    RunDirectory.create(tmp_path / "runs" / ".tmp-b-1", {})
    RunDirectory.create(run.path / "inside", {})
    assert find_runs(tmp_path) == [other, run]
    assert find_runs(run.path) == [run]
    assert find_runs(tmp_path / "none") == []


def test_the_store_needs_no_jax():
    code = (
        "import sys, mesax.store.run_directory, mesax.experiments.overrides;"
        "print(*{'jax', 'equinox', 'numpy', 'rich'} & set(sys.modules));"
        "import mesax.execution.progress;"
        "print(*{'jax', 'equinox', 'numpy'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
