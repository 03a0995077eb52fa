"""Environment variables, terminals and names of all kinds: one line and a documented exit code, or the right result."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from jax.errors import JaxRuntimeError as XlaRuntimeError

from cli.test_tamper import device
from execution.test_runner import command_line, finished_run
from explorers.test_hostile import rewrite_arrays, weights
from fake_store import SMALL, write_run
from mesax import runtime
from mesax.cli.parser import main
from mesax.errors import FAILED, IO_ERROR, USAGE, UsageError
from mesax.execution import runner
from mesax.execution.workers import failure
from mesax.experiments.provenance import surroundings
from mesax.results import drawing
from mesax.results.page import sections
from mesax.store.run_directory import RunDirectory

SETTINGS = ("list", "mesa", "climb-one")
"""The cheapest verb that sets JAX up."""


def in_a_process(variables: dict[str, str | None], *words: str | Path) -> tuple[int, str, list[str]]:
    """(exit code, standard output, lines on standard error) of a verb under these variables; None removes one."""
    merged = {**os.environ, **variables}
    kept = {name: value for name, value in merged.items() if value is not None}
    command = [sys.executable, "-m", "mesax.cli", *words]
    done = subprocess.run(command, env=kept, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mesax: ")
    return line


HARMLESS: dict[str, str | None] = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONIOENCODING": "ascii",
    "LANG": "C",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",
    "TERM": "banana",
    "COLUMNS": "0",
    "LINES": "-1",
    "NO_COLOR": "",
    "FORCE_COLOR": "0",
    "TMPDIR": "nowhere",
    "HOME": None,
    "XDG_CACHE_HOME": os.devnull,
    "MPLCONFIGDIR": os.devnull,
    "MATPLOTLIBRC": "nowhere",
    "PYTHONHASHSEED": "7",
    "PYTHONWARNINGS": "error",
    "OMP_NUM_THREADS": "banana",
    "OPENBLAS_NUM_THREADS": "0",
    "JAX_ENABLE_X64": "banana",
    "JAX_PLATFORMS": "cuda",
    "XLA_FLAGS": "--xla_banana",
    "MESAX_THREADS": "banana",
    "MESAX_CACHE_DIR": os.devnull,
}
"""Of no concern to a verb that only looks at results; all at once, for every process costs seconds."""


def test_looking_at_results_depends_on_no_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nor on names: these two are in the tables and pictures, and are neither UTF-8 nor in any font."""
    runs = [write_run(tmp_path / os.fsdecode(name), SMALL) for name in (b"\xff\xfe", "漢字 \U0001f600 $x$".encode())]
    code, output, errors = in_a_process(HARMLESS, "compare", *runs, "--json")
    assert (code, errors) == (0, []) and "95%" in output
    assert len(list((tmp_path / "figures").glob("compare-*.png"))) == 3
    assert main(["compare", *map(str, runs), "--json"]) == 0
    assert figures(output) == figures(capsys.readouterr().out)


def figures(output: str) -> list[dict[str, object]]:
    """What `compare --json` says, but for names, which are spelled as the locale has them."""
    (family,) = json.loads(output.splitlines()[-1])["families"]
    return [{name: value for name, value in row.items() if name != "run"} for row in family["rows"]]


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("JAX_PLATFORMS", "cuda", "JAX finds no device ($JAX_PLATFORMS is 'cuda')"),
        ("JAX_ENABLE_X64", "banana", "JAX cannot start: invalid truth value 'banana'"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "banana", "of its environment variables, these are set:"),
        ("JAX_NUM_CPU_DEVICES", "x", "JAX_NUM_CPU_DEVICES=x"),
    ],
)
def test_what_jax_refuses_is_one_line(name: str, value: str, told: str):
    code, output, errors = in_a_process({name: value}, *SETTINGS)
    assert (code, output, len(errors)) == (USAGE, "", 1) and told in errors[0]


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("XLA_FLAGS", "--xla_banana=1", "is refused by XLA: Unknown flag in XLA_FLAGS: --xla_banana=1"),
        ("XLA_FLAGS", "flags.txt", "must be flags, not the name of a file"),
        ("MESAX_THREADS", "banana", "must be a whole number from 1, not 'banana'"),
        ("MESAX_GRACE_SECONDS", "nan", "must be a number of seconds from 0, not 'nan'"),
        ("MESAX_CACHE_DIR", os.devnull, "cannot be used: Not a directory"),
    ],
)
def test_what_cannot_be_meant_is_one_line(monkeypatch, capsys, name: str, value: str, told: str):
    monkeypatch.setenv(name, value)
    assert main([*SETTINGS]) == USAGE
    line = only_line(capsys)
    assert f"${name}" in line and told in line


def test_flags_that_xla_has_taken_are_tried_once(monkeypatch):
    """Not in every worker, nor when JAX is set up again."""
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: pytest.fail("tried again"))
    assert set(os.environ["XLA_FLAGS"].split()) - {runtime.SINGLE_THREAD, runtime.QUICK_COMPILE}
    runtime.configure()


def test_without_a_home_the_cache_needs_a_name(monkeypatch):
    for name in (runtime.CACHE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(UsageError, match=r"set \$MESAX_CACHE_DIR"):
        runtime.cache_directory()


@pytest.fixture
def set_jax(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Change a setting of JAX for one test."""

    def change(name: str, value: object) -> None:
        before = jax.config.values[name]
        request.addfinalizer(lambda: jax.config.update(name, before))
        jax.config.update(name, value)

    return change


@pytest.mark.parametrize(
    "name, value",
    [
        ("jax_enable_x64", True),
        ("jax_numpy_dtype_promotion", "strict"),
        ("jax_transfer_guard_host_to_device", "disallow"),
    ],
)
def test_settings_of_jax_under_which_nothing_works_are_refused(set_jax, capsys, name: str, value: object):
    set_jax(name, value)
    assert main([*SETTINGS]) == USAGE
    assert f"cannot work with {name} = {value} (${name.upper()})" in only_line(capsys)


@dataclass(frozen=True)
class NothingLeft:
    """A method whose every job is done."""

    def stages(self, experiment: object) -> list[object]:
        del experiment
        return []


def test_settings_of_jax_that_change_results_are_recorded_and_said(finished, tmp_path, set_jax, capsys, monkeypatch):
    """At the start of a run, and when it goes on under others."""
    assert surroundings()["jax_settings"] == {}
    set_jax("jax_default_matmul_precision", "highest")
    assert surroundings()["jax_settings"] == {"jax_default_matmul_precision": "highest"}
    run = copy_of(finished, tmp_path)
    run.unseal()
    run.set_status("preempted")
    monkeypatch.setattr(runner, "merge", lambda *_: {})
    runner.execute(run, SimpleNamespace(method=NothingLeft()), 1, quiet=True)
    changed, unusual = capsys.readouterr().err.splitlines()
    assert changed.startswith("mesax: resumed under other conditions (") and "jax_settings" in changed
    assert unusual.startswith("mesax: unusual settings of JAX (jax_default_matmul_precision highest): results differ")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


def copy_of(finished: Path, place: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(finished, place / "run")))


def cannot_draw(*_: object) -> None:
    raise RuntimeError("no\nfonts")


@pytest.mark.parametrize("breaks", ["a picture", "drawing at all"])
def test_a_picture_that_cannot_be_drawn_costs_no_result(finished, capsys, monkeypatch, breaks: str):
    before = json.loads((finished / "summary.json").read_text())
    if breaks == "a picture":
        monkeypatch.setattr(drawing, "save", cannot_draw)
        told = "mesax: the picture learning-curves cannot be drawn: RuntimeError: no fonts"
    else:
        monkeypatch.setitem(sys.modules, "mesax.results.drawing", None)
        told = "mesax: the picture of the run cannot be drawn: ModuleNotFoundError: "
    assert command_line("resume", finished, "--json") == 0
    output, errors = capsys.readouterr()
    assert json.loads(output.splitlines()[-1]) == before
    assert errors.splitlines()[0].startswith(told)
    assert all(line.startswith("mesax: the picture ") for line in errors.splitlines())


def test_a_report_without_its_pictures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sections, "_svg", cannot_draw)
    run = write_run(tmp_path / "run", SMALL)
    assert main(["report", str(run)]) == 0
    assert "This figure could not be drawn." in (run / "report.html").read_text()
    assert "mesax: the picture curves cannot be drawn: RuntimeError: no fonts" in capsys.readouterr().err.splitlines()


def test_weights_that_are_no_numbers_are_refused(finished, tmp_path, capsys):
    """Even if every checksum is right, as in a run that is not finished."""
    run = copy_of(finished, tmp_path)
    run.unseal()
    run.set_status("preempted")
    for name, words in (("task-00-run-00", ["eval"]), ("explorers", ["export"])):
        saved = run.path / "policies" / name
        rewrite_arrays(saved, weights(saved, b"\0\0\xc0\x7f"))
        assert command_line(*words, run.path) == IO_ERROR
        assert f"policies/{name}/arrays.safetensors: leaf " in (line := only_line(capsys))
        assert line.endswith(" has numbers that are not finite")


def test_what_nobody_foresaw_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("mesax.cli.listing.METHODS", None)
    monkeypatch.delenv("MESAX_TRACEBACK", raising=False)
    assert main([*SETTINGS]) == FAILED
    assert "TypeError: " in only_line(capsys)
    monkeypatch.setenv("MESAX_TRACEBACK", "1")
    with pytest.raises(TypeError):
        main([*SETTINGS])


@pytest.mark.parametrize(
    "words, told",
    [
        (
            ("run", "plain", "climb-one", "--preset", "smoke", "--seed", str(2**40)),
            "seed must be at least 0 and at most",
        ),
        (
            ("run", "plain", "climb-one", "--preset", "smoke", "--schedule.total-steps", "1e30"),
            "total-steps must be at most 2147483647",
        ),
        (("run", "plain", "climb-one", "--out", ""), "'' is not the name of a file or directory"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_begins(tmp_path, capsys, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == USAGE
    assert told in only_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_removed_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert main(["run", "plain", "my_module:make", "--out", str(tmp_path / "run")]) == IO_ERROR
    assert "the current directory is gone: start from another one" in only_line(capsys)


def test_small_things(tmp_path, capsys, monkeypatch):
    """A run that is named twice is one; a page that cannot be written leaves nothing."""
    monkeypatch.setattr(drawing, "_drawn", lambda *_: [])
    run = write_run(tmp_path / "run", SMALL)
    assert main(["compare", str(run), str(tmp_path / "." / "run"), "--json"]) == 0
    assert len(figures(capsys.readouterr().out)) == 1
    (tmp_path / "pages").mkdir()
    assert main(["report", str(run), "--out", str(tmp_path / "pages")]) == USAGE
    assert "is a directory; name the file to write" in only_line(capsys)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "pages"}


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_only_files_are_replaced(tmp_path, capsys, kind: str):
    """Though somebody, perhaps the superuser, names it: nobody wants to lose /dev/null."""
    run, page, elsewhere = write_run(tmp_path / "run", SMALL), tmp_path / "page.html", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    {"pipe": os.mkfifo, "link": lambda path: path.symlink_to(elsewhere), "device": device}[kind](page)
    before = page.lstat()
    assert main(["report", str(run), "--out", str(page)]) == IO_ERROR
    assert only_line(capsys).endswith("it is there already, and is not a regular file")
    assert (page.lstat().st_ino, elsewhere.read_text()) == (before.st_ino, "mine")


def test_a_mistaken_name_costs_no_results(tmp_path, capsys):
    """What is asked for must look like what is written."""
    run = write_run(tmp_path / "run", SMALL)
    before = (run / "eval.jsonl").read_bytes()
    assert main(["report", str(run), "--out", str(run / "eval.jsonl")]) == USAGE
    assert "eval.jsonl is not the name of a file that ends in .html" in only_line(capsys)
    assert main(["compare", str(run), "--out", str(run / "eval.jsonl")]) == USAGE
    assert only_line(capsys).endswith("eval.jsonl is not a directory")
    assert (run / "eval.jsonl").read_bytes() == before


def test_more_episodes_than_fit_are_refused(tmp_path, capsys):
    assert main(["eval", str(tmp_path), "--episodes", "999999999999"]) == USAGE
    assert "--episodes must be at least 1 and at most 100000, not 999999999999" in only_line(capsys)


@pytest.mark.parametrize("error", [MemoryError("12 GiB"), XlaRuntimeError("RESOURCE_EXHAUSTED: 12 GiB")])
def test_memory_that_does_not_suffice_is_said(tmp_path, capsys, monkeypatch, error: Exception):
    """By a verb, and by a job: it is no fault that somebody should report."""

    def exhaust(*_: object) -> None:
        raise error

    monkeypatch.setattr("mesax.cli.looking.by_family", exhaust)
    assert main(["compare", str(write_run(tmp_path / "run", SMALL))]) == FAILED
    assert (line := only_line(capsys)).startswith("mesax: there is not enough memory") and line.endswith("12 GiB")
    told = str(failure("adapt job 0", type(error).__name__, str(error), tmp_path))
    assert told.startswith("adapt job 0: there is not enough memory: ") and str(tmp_path) not in told
