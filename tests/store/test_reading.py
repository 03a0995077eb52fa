"""Run directories whole, unfinished, cut and broken: one reader, one kind of error for each."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fake_store import SMALL, eval_row, run_json, seal, write_run
from mesax.errors import DamageError, StoreError, UsageError
from mesax.store.json_files import CHECKSUMS, read_json, read_rows
from mesax.store.reading import borrowed_from, curves_from_rows, final_return, final_window, load_run


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "small", SMALL)


def rewrite(run_dir: Path, path: Path, name: str, change, status: str = "done") -> Path:
    """A copy of a run directory in which one file is another, as if the run had written it so."""
    path.mkdir()
    for file in run_dir.iterdir():
        path.joinpath(file.name).write_text(file.read_text())
    changed = change((run_dir / name).read_text())
    if changed is None:
        (path / name).unlink()
    else:
        (path / name).write_text(changed)
    if name != "STATUS":
        (path / "STATUS").write_text(status)
    if status == "done":
        return seal(path)
    (path / CHECKSUMS).unlink()
    return path


@pytest.mark.parametrize(
    ("method", "lenders"),
    [
        ({"type": "Borrowed", "explorers_from": "runs/a", "num_explorers": 2}, {"explorers_from": "runs/a"}),
        ({"type": "CBet", "pretrained_from": "runs/b"}, {"pretrained_from": "runs/b"}),
        ({"type": "Maesn", "pretrained_from": None}, {}),
        ({"type": "Plain"}, {}),
        (None, {}),
    ],
)
def test_whose_meta_training_is_borrowed(method, lenders):
    assert borrowed_from(method) == lenders


def test_load_run_reads_everything(small):
    run = load_run(small)
    assert (run.status, run.run["method"], len(run.curves)) == ("done", "mesa", 4)
    assert run.curves[1].label == "k=2 u=0" and run.curves[1].steps.tolist()[:2] == [1000, 2000]
    assert run.coverage is not None and run.coverage["dataset_size"] > 0
    assert {row["phase"] for row in run.metrics} == {"collect", "explore"}
    np.testing.assert_allclose(run.final_returns.mean(), run.summary["mean_return"])


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "coverage.json", "STATUS"])
def test_optional_files_may_be_missing(small, tmp_path, name):
    run = load_run(rewrite(small, tmp_path / "run", name, lambda text: None, "running"))
    empty = {"metrics.jsonl": run.metrics == (), "summary.json": run.summary == {}}
    empty |= {"coverage.json": run.coverage is None, "STATUS": run.status == "unknown"}
    assert empty[name] and len(run.curves) == 4


def test_a_last_line_cut_in_two_is_left_out(small, tmp_path):
    whole = load_run(small)
    cut = load_run(rewrite(small, tmp_path / "run", "eval.jsonl", lambda text: text[:-20], "running"))
    assert cut.curves[-1].steps.tolist() == whole.curves[-1].steps.tolist()[:-1]
    assert cut.curves[0].steps.tolist() == whole.curves[0].steps.tolist()


def test_only_line_breaks_separate_rows(small, tmp_path):
    row = '{"phase": "explore", "policy": 0, "note": "a\u2028b"}\n'
    run = load_run(rewrite(small, tmp_path / "run", "metrics.jsonl", lambda text: row))
    assert [one["note"] for one in run.metrics] == ["a\u2028b"]


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


DAMAGED = [
    ("run.json", lambda text: text[:-30], "run.json is not valid JSON: "),
    ("run.json", lambda text: "", "run.json is not valid JSON: "),
    ("run.json", lambda text: "[1]", "run.json is not a JSON object"),
    ("run.json", lambda text: deep(100_000), "run.json is not accepted: it is nested more than 64 deep"),
    ("run.json", lambda text: deep(65), "run.json is not accepted: it is nested more than 64 deep"),
    ("run.json", lambda text: deep(64), "run.json lacks method, env, preset, seed, family, test_tasks"),
    ("run.json", lambda text: text.replace('"method"', '"meth"'), "run.json lacks method"),
    ("run.json", lambda text: text.replace('"optimal_threshold"', '"x"'), "lacks optimal_threshold"),
    ("run.json", lambda text: text.replace('"optimal_return": ', '"optimal_return": "a", "x": '), "is not a number"),
    ("run.json", lambda text: text.replace('"label"', '"x"'), "run.json lacks label"),
    ("run.json", lambda text: text.replace('"test_tasks": ', '"test_tasks": {}, "x": '), "test_tasks is not a list"),
    ("eval.jsonl", lambda text: None, "eval.jsonl does not belong to the finished run: checksums.json does not name"),
    ("eval.jsonl", lambda text: "", "eval.jsonl holds no evaluations of test tasks, but the run is done"),
    ("eval.jsonl", lambda text: "{oops\n" + text, "eval.jsonl: line 1 is not valid JSON: "),
    ("eval.jsonl", lambda text: text + "3\n", "is not a JSON object"),
    ("eval.jsonl", lambda text: deep(100_000) + "\n" + text, "eval.jsonl: line 1 is not accepted: it is nested"),
    ("eval.jsonl", lambda text: text.replace('"return"', '"value"'), "KeyError: 'return'"),
    ("eval.jsonl", lambda text: text.replace('"task": 0', '"task": 99'), "does not hold evaluations"),
    ("eval.jsonl", lambda text: text.replace('"task": 0', '"task": -1'), "does not hold evaluations"),
    ("eval.jsonl", lambda text: text.replace('"task": 0', '"task": 1e999'), "number 1e999 in it is too large"),
    ("eval.jsonl", lambda text: text.replace('"return": 1.0', '"return": NaN'), "NaN is no JSON"),
    ("eval.jsonl", lambda text: text.replace('"return": 1.0', '"return": 1e999'), "number 1e999 in it is too large"),
    ("metrics.jsonl", lambda text: text.replace(":", ': 1e999, "more":', 1), "number 1e999 in it is too large"),
    ("summary.json", lambda text: text.replace(":", ": 1" + "0" * 400 + ', "more":', 1), "in it is too large"),
    ("summary.json", lambda text: text.replace('"env_steps"', '"x"'), "summary.json lacks env_steps"),
    ("summary.json", lambda text: '{"wall_seconds": "1", "env_steps": 1, "meta_env_steps": 1}', "is not a number"),
    ("coverage.json", lambda text: text[:40], "coverage.json is not valid JSON: "),
    ("coverage.json", lambda text: text.replace('"visitors"', '"x"'), "coverage.json lacks visitors"),
    ("coverage.json", lambda text: '{"visitors": 3}', "coverage.json: visitors is not a list"),
    ("coverage.json", lambda text: text.replace('"distinct_visits"', '"x"'), "coverage.json lacks distinct_visits"),
]


@pytest.mark.parametrize(("name", "change", "message"), DAMAGED)
def test_a_damaged_run_directory_is_one_clear_line(small, tmp_path, name, change, message):
    with pytest.raises(DamageError) as error:
        load_run(rewrite(small, tmp_path / "run", name, change))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value).replace(str(tmp_path), "")) < 160


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("running", "it was killed, and can go on (mesax resume)"),
        ("failed", "it has failed"),
        ("preempted", "it was stopped and saved"),
        ("confused", "its status is 'confused'"),
    ],
)
@pytest.mark.parametrize("evaluations", [None, "", '{"task'])
def test_a_run_without_evaluations_says_why(small, tmp_path, status, why, evaluations):
    path = rewrite(small, tmp_path / "run", "eval.jsonl", lambda text: evaluations, status)
    with pytest.raises(UsageError) as error:
        load_run(path)
    assert str(error.value) == f"{path} has no evaluations of test tasks yet: {why}"


def test_a_path_that_is_no_run_directory(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(UsageError, match=f"^no run directory at {path}$"):
            load_run(path)
    with pytest.raises(UsageError, match=f"^no run directory at {tmp_path}: it has no run.json$"):
        load_run(str(tmp_path))


def test_only_regular_files_are_read(small, tmp_path):
    """A link might lead anywhere, and a pipe would never end."""
    for name in ("run.json", "eval.jsonl", "metrics.jsonl", "summary.json", "coverage.json"):
        path = rewrite(small, tmp_path / name.replace(".", "-"), name, lambda text: None, "running")
        for make in (lambda file: file.symlink_to(small / file.name), os.mkfifo, Path.mkdir):
            make(path / name)
            with pytest.raises(DamageError, match=f"{name} (is not a regular file|is a link, pipe or)"):
                load_run(path)
            if (path / name).is_dir() and not (path / name).is_symlink():
                (path / name).rmdir()
            else:
                (path / name).unlink()


def test_a_status_is_one_word_in_a_regular_file(small, tmp_path):
    for number, content in enumerate([b"\xff", b"x" * 1_000, b""]):
        path = rewrite(small, tmp_path / str(number), "STATUS", lambda text: None)
        (path / "STATUS").write_bytes(content)
        assert load_run(path).status == "unknown"


def test_files_beyond_any_use_are_refused(tmp_path):
    """Before a byte of them is read: these are holes."""
    for name, read, largest in (("a.json", read_json, 64 * 2**20), ("a.jsonl", read_rows, 2**30)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(largest + 1)
        with pytest.raises(DamageError, match=f"{name} has {largest + 1} bytes, but at most {largest} are expected"):
            read(tmp_path / name)


def test_what_may_not_be_read_is_no_damage(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("{}")

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=r"a\.json cannot be read: Permission denied") as error:
        read_json(tmp_path / "a.json")
    assert not isinstance(error.value, DamageError)
    monkeypatch.undo()
    with pytest.raises(DamageError, match=r"none\.json is missing$"):
        read_json(tmp_path / "none.json")
    assert read_rows(tmp_path / "none.jsonl") == []


def test_of_two_rows_for_one_step_the_last_counts():
    rows = [eval_row(0, 20, 0.1), eval_row(0, 10, 0.3), eval_row(0, 20, 0.9)]
    (only,) = curves_from_rows(run_json(), rows)
    assert (only.steps.tolist(), only.returns.tolist()) == ([10, 20], [0.3, 0.9])


def test_a_task_with_a_group_counts_for_it_without_group_rows():
    run = run_json()
    run["test_tasks"][0]["group"] = "k=2"
    (only,) = curves_from_rows(run, [eval_row(0, 10, 0.3)])
    assert {name: values.tolist() for name, values in only.groups.items()} == {"k=2": [0.3]}


@pytest.mark.parametrize("evaluations, window", [(1, 1), (2, 1), (5, 1), (6, 2), (14, 4), (15, 5), (16, 5), (51, 5)])
def test_a_final_return_is_about_the_end(evaluations: int, window: int):
    """What a short run had not learned at first is no part of how it ends."""
    returns = np.arange(evaluations, dtype=float)
    assert final_window(evaluations) == window
    assert final_return(returns) == pytest.approx(np.mean(np.arange(evaluations - window, evaluations)))
