"""Sweeps with children that only pretend: what is skipped, continued, refused, tried again, reported and passed on."""

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_store import FakeRun, seal, write_run
from mesax.bridges.ray_cluster.where import OnRay
from mesax.cli.parser import main, parse
from mesax.errors import FAILED, PREEMPTED, USAGE, StoreError, UsageError
from mesax.execution import sweep
from mesax.execution.sweep import Grid, How, Outcome, Planned, do_all, plan
from mesax.runtime import QUICK_COMPILE
from mesax.store.run_directory import RunDirectory

# A child that behaves as its method says; `finished` is a directory of fake runs.
CHILD = """
import os, shutil, signal, sys, time
from pathlib import Path
finished, method, path = Path(sys.argv[1]), sys.argv[3], Path(sys.argv[sys.argv.index("--out") + 1])
with open(path.parent / "started.txt", "a") as file:
    print(*sys.argv[2:], file=file)
second = (path.parent / "once").exists()
(path.parent / "once").touch()
def stop(number, frame):
    print("mesax: stopped; finished jobs are saved", file=sys.stderr)
    raise SystemExit(75)
if method == "uniform":
    print("some progress\\nmesax: adapt job 0: critic_loss is not finite", file=sys.stderr)
    raise SystemExit(70)
if method == "mute":
    raise SystemExit(3)
if method == "dies" or (method == "dies-once" and not second):
    os.kill(os.getpid(), signal.SIGKILL)
while method == "waits" and not (path.parent / "go").exists():
    (path.parent / "waiting").touch()
    time.sleep(0.01)
if method == "slow":
    signal.signal(signal.SIGTERM, stop)
    (path.parent / "sleeping").touch()
    time.sleep(60)
shutil.copytree(finished / path.name, path, dirs_exist_ok=True)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """What the children pretend to have computed."""
    root = tmp_path_factory.mktemp("finished")
    for method in ("mesa", "plain", "dies-once", "waits"):
        for seed in (0, 1):
            fake = FakeRun(method, seed=seed, num_tasks=2, evaluations=8, num_actions=4, num_explorers=1)
            path = write_run(root / f"{method}-climb-one-quick-seed{seed}", fake)
            set_digest(path, f"{method} {seed}")
    return root


def digest_of(words: list[str]) -> str:
    return f"{words[0]} {words[words.index('--seed') + 1]}"


def set_digest(path: Path, digest: str) -> None:
    run = RunDirectory(path)
    run.write_json("run.json", run.run | {"config_hash": digest})
    seal(path)


@pytest.fixture
def out(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(sweep, "PROGRAM", (sys.executable, str(script), str(finished)))
    monkeypatch.setattr(sweep, "SECONDS_BETWEEN_LOOKS", 0.02)
    monkeypatch.setattr("mesax.results.drawing.draw_comparison", lambda families, directory: [])
    return tmp_path / "out"


def planned(out: Path, *methods: str, seeds: tuple[int, ...] = (0,), extra: tuple[str, ...] = ()) -> list[Planned]:
    return plan(Grid(methods, ["climb-one"], seeds, extra=extra), out, digest_of)


def started(out: Path) -> list[str]:
    """What the children were told."""
    path = out / "started.txt"
    return path.read_text().splitlines() if path.exists() else []


def endings(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.run.method: outcome.ending for outcome in outcomes}


# The plan


def test_every_cell_has_a_directory_and_the_arguments_of_a_run(out):
    read: list[list[str]] = []
    grid = Grid(["mesa", "plain"], ["climb-one", "swimmer-wide"], [0, 2, 0], "paper", 3, ["--lanes", "2"])
    runs = plan(grid, out, lambda words: read.append(words) or "")  # type: ignore[func-returns-value]
    assert [run.name for run in runs] == [
        f"{method}-{env}-paper-seed{seed}"
        for env in ("climb-one", "swimmer-wide")
        for method in ("mesa", "plain")
        for seed in (0, 2)
    ]
    first = ["mesa", "climb-one", "--lanes", "2", "--preset", "paper", "--seed", "0", "--num-test-tasks", "3"]
    assert read[0] == first == list(runs[0].arguments) and len(read) == 8
    assert runs[0].command == ("run", *first, "--out", str(out / runs[0].name), "--reuse")
    assert {run.state for run in runs} == {"new"} and not out.exists()


def test_a_method_may_name_its_learner(out):
    chosen, own = planned(out, "mesa+qmix", "mesa", extra=("--lanes", "2"))
    assert chosen.path == out / "mesa+qmix-climb-one-quick-seed0" and chosen.method == "mesa+qmix"
    assert chosen.arguments[:6] == ("mesa", "climb-one", "--learner", "qmix", "--lanes", "2")
    assert "--learner" not in own.arguments
    (run,) = planned(out, "plain+joint_q:JointQ")
    assert run.path == out / "plain+joint_q.JointQ-climb-one-quick-seed0"
    assert run.arguments[2:4] == ("--learner", "joint_q:JointQ")


def test_a_method_that_names_an_empty_learner_is_passed_on_to_be_refused(out):
    (run,) = planned(out, "mesa+")
    assert run.arguments[2:4] == ("--learner", "")


def test_a_sweep_into_a_file_is_refused(out):
    out.write_text("something")
    with pytest.raises(UsageError, match=f"--out {out} is not a directory"):
        planned(out, "mesa")


def test_what_a_directory_holds_decides(out, finished):
    for method in ("mesa", "plain", "uniform", "maddpg"):
        shutil.copytree(finished / "mesa-climb-one-quick-seed0", out / f"{method}-climb-one-quick-seed0")
        set_digest(out / f"{method}-climb-one-quick-seed0", f"{method} 0")
    RunDirectory(out / "plain-climb-one-quick-seed0").set_status("preempted")
    set_digest(out / "uniform-climb-one-quick-seed0", "0" * 12)
    (out / "maddpg-climb-one-quick-seed0" / "run.json").unlink()
    (out / "maddpg-climb-one-quick-seed0" / "checksums.json").unlink()
    runs = {run.method: run for run in planned(out, "mesa", "plain", "uniform", "maddpg", "new")}
    assert {name: run.state for name, run in runs.items()} == {
        "mesa": "finished",
        "plain": "unfinished",
        "uniform": "refused",
        "maddpg": "refused",
        "new": "new",
    }
    assert "holds another configuration (mesa-climb-one-quick-seed0)" in runs["uniform"].reason
    assert "no run.json" in runs["maddpg"].reason
    with pytest.raises(UsageError, match=r"holds another configuration .* \(and 1 more\); choose .* --out"):
        sweep.sweep(list(runs.values()), How(), True, False)
    assert started(out) == [], "nothing is begun if a directory cannot be used"


def test_options_that_a_sweep_sets_itself_are_refused():
    for word in ("--seed", "--out=there", "--reuse", "--preset", "--num-test-tasks=3"):
        with pytest.raises(UsageError, match="cannot be passed on"):
            Grid(["mesa"], ["climb-one"], [0], extra=["--lanes", "1", word])
    for words in (["--lanes", "1", "--learner", "vdn"], ["--learner=vdn"]):  # directories would be those of plain runs
        with pytest.raises(UsageError, match=r"cannot be passed on to a sweep; write --methods plain\+vdn mesa\+vdn$"):
            Grid(["plain", "mesa", "mesa+qmix"], ["climb-one"], [0], extra=words)


def test_a_finished_run_under_another_name_serves_one_cell(out, finished):
    for name in ("made-by-hand", "stopped"):
        shutil.copytree(finished / "mesa-climb-one-quick-seed0", out / name)
    RunDirectory(out / "stopped").set_status("preempted")
    shutil.copytree(finished / "plain-climb-one-quick-seed0", out / "plain-climb-one-quick-seed0")
    (out / "figures").mkdir()
    (out / "some.log").touch()
    mesa, later, plain = planned(out, "mesa", "mesa+qmix", "plain")
    assert (mesa.state, mesa.path) == ("finished", out / "made-by-hand")
    assert (later.state, later.name) == ("new", "mesa+qmix-climb-one-quick-seed0"), "of the same digest here, but taken"
    assert (plain.state, plain.name) == ("finished", "plain-climb-one-quick-seed0")
    shutil.copytree(finished / "mesa-climb-one-quick-seed0", out / "mesa-climb-one-quick-seed0")
    RunDirectory(out / "mesa-climb-one-quick-seed0").set_status("preempted")
    (mesa,) = planned(out, "mesa")
    assert (mesa.state, mesa.path) == ("finished", out / "made-by-hand"), "rather than go on with an unfinished one"
    assert endings(do_all([mesa], How(), lambda text: None)) == {"mesa": "done"} and started(out) == []


# Doing it


def test_finished_runs_are_skipped_and_the_others_done(out):
    said: list[str] = []
    outcomes = do_all(planned(out, "mesa", "plain", seeds=(0, 1)), How(("--workers", "3")), said.append)
    assert [outcome.ending for outcome in outcomes] == ["done"] * 4
    assert all(words.split()[-3:] == ["--reuse", "--workers", "3"] for words in started(out))
    assert [path.name for path in out.glob("*.log")] == []
    assert re.fullmatch(r"\[1/4\] mesa-climb-one-quick-seed0: done after [\d.]+s; 3 left, ETA [\dm.]+s", said[2])
    assert said[-1].startswith("[4/4] plain-climb-one-quick-seed1: done") and "left" not in said[-1]

    again = do_all(planned(out, "mesa", "plain", seeds=(0, 1)), How(("--workers", "3")), said.append)
    assert [outcome.ending for outcome in again] == ["done"] * 4 and len(started(out)) == 4
    assert said[-1] == "4 runs, 4 finished already"


def test_a_failure_is_reported_in_its_own_words_and_stops_nothing(out, capsys):
    runs = planned(out, "uniform", "mute", "mesa", "plain")
    assert sweep.sweep(runs, How(), quiet=True, as_json=True) == FAILED
    output = capsys.readouterr()
    *tables, last = output.out.splitlines()
    result = json.loads(last)
    assert [run["ending"] for run in result["runs"]] == ["failed", "failed", "done", "done"]
    assert "failed   uniform-climb-one-quick-seed0: adapt job 0: critic_loss is not finite" in output.err
    assert f"ended with code 3; see {out / 'mute-climb-one-quick-seed0.log'}" in output.err
    assert "some progress" in (out / "uniform-climb-one-quick-seed0.log").read_text()
    summary = RunDirectory(out / "mesa-climb-one-quick-seed0").read_json("summary.json")
    assert result["runs"][2]["mean_return"] == summary["mean_return"]
    (family,) = result["families"]
    assert [row["run"] for row in family["rows"]] == ["MESA", "learner alone"]
    assert "MESA against" in "\n".join(tables)


def test_what_is_finished_is_kept_before_the_next_run_begins(out, monkeypatch):
    happened: list[str] = []
    do = sweep._do
    monkeypatch.setattr(sweep, "keep", lambda path, store: happened.append(f"kept {path.name[:5]} in {store.name}"))
    monkeypatch.setattr(sweep, "_do", lambda run, *rest: happened.append(f"begun {run.method}") or do(run, *rest))
    do_all(planned(out, "mesa", "uniform", "plain"), How(), lambda text: None, out / "store")
    assert happened == ["begun mesa", "kept mesa- in store", "begun uniform", "begun plain", "kept plain in store"]


def test_a_sweep_without_any_result_has_nothing_to_compare(out, capsys):
    assert sweep.sweep(planned(out, "uniform"), How(), quiet=True, as_json=True) == FAILED
    assert json.loads(capsys.readouterr().out)["families"] == []


def test_a_killed_run_is_tried_once_more(out):
    said: list[str] = []
    (outcome,) = do_all(planned(out, "dies-once"), How(), said.append)
    assert outcome.ending == "done" and len(started(out)) == 2
    assert any("was killed by signal 9; once more" in line for line in said)
    (outcome,) = do_all(planned(out, "dies"), How(), said.append)
    assert (outcome.ending, outcome.reason) == ("failed", "was killed by signal 9") and len(started(out)) == 4


def test_a_log_that_cannot_be_written_is_named(out):
    (out / "mesa-climb-one-quick-seed0.log").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"mesa-climb-one-quick-seed0\.log is not a regular file"):
        do_all(planned(out, "mesa", "plain"), How(), lambda text: None)
    assert (out / "plain-climb-one-quick-seed0" / "summary.json").is_file()


def test_a_store_that_cannot_be_written_to_costs_no_comparison(out, tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        sweep.sweep(planned(out, "mesa", "plain"), How(), quiet=True, as_json=True, store=tmp_path / "file")
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["ending"] for run in result["runs"]] == ["done", "done"] and result["families"]


def test_two_sweeps_in_one_place_keep_off_each_others_logs(out):
    runs, first = planned(out, "waits", "plain"), []
    thread = threading.Thread(target=lambda: first.extend(do_all(runs, How(), lambda text: None)))
    thread.start()
    wait_for((out / "waiting").exists)
    log = out / f"{runs[0].name}.log"
    try:
        second = do_all(runs, How(), lambda text: None)
        assert log.exists(), "the first one's run is still at work"
    finally:
        (out / "go").touch()
        thread.join()
    assert endings(first) == {"waits": "done", "plain": "done"} and not log.exists()
    assert endings(second) == {"waits": "failed", "plain": "done"}
    assert second[0].reason == "another sweep is at work on it"


def wait_for(ready: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not ready() and time.monotonic() < limit:
        time.sleep(0.01)


def stop_when(ready: Callable[[], bool]) -> threading.Thread:
    """Send this process SIGTERM, but only while a sweep hears it: otherwise it would end all tests."""
    usual = signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        wait_for(ready)
        if signal.getsignal(signal.SIGTERM) is not usual:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def test_a_signal_goes_to_the_child_once_and_leaves_the_rest(out, capsys):
    handler = signal.getsignal(signal.SIGTERM)
    thread = stop_when((out / "sleeping").exists)
    code = sweep.sweep(planned(out, "mesa", "slow", "plain"), How(), quiet=False, as_json=True)
    thread.join()
    assert code == PREEMPTED and signal.getsignal(signal.SIGTERM) is handler
    output = capsys.readouterr()
    (line,) = output.out.splitlines()
    result = json.loads(line)
    assert [run["ending"] for run in result["runs"]] == ["done", "stopped", "left"]
    assert result["runs"][1]["reason"].startswith("stopped; finished jobs are saved"), "it was given time to save"
    assert "[2/3] slow-climb-one-quick-seed0: stopped after" in output.err and len(started(out)) == 2


def test_runs_at_once_are_all_done_and_all_told_to_stop(out, capsys):
    outcomes = do_all(planned(out, "mesa", "uniform", "plain", seeds=(0, 1)), How(at_once=3), lambda text: None)
    assert [outcome.ending for outcome in outcomes] == ["done", "done", "failed", "failed", "done", "done"]

    thread = stop_when(lambda: len(started(out)) >= 8)
    code = sweep.sweep(planned(out, "slow", seeds=(0, 1, 2)), How(at_once=2), quiet=True, as_json=True)
    thread.join()
    result = json.loads(capsys.readouterr().out)
    assert code == PREEMPTED and [run["ending"] for run in result["runs"]] == ["stopped", "stopped", "left"]


def test_time_left_goes_by_the_like():
    def run(method: str) -> Planned:
        return Planned(method, "climb-one", Path(method), (), "new")

    spent = [Outcome(run("mesa"), "done", seconds=100.0), Outcome(run("plain"), "done", seconds=10.0)]
    spent += [Outcome(run("plain"), "failed", seconds=1.0), Outcome(run("mesa"), "done")]
    assert sweep._time_left(spent, [run("plain"), run("mesa")], 1) == "; 2 left, ETA 1m50s"
    assert sweep._time_left(spent, [run("plain"), run("mesa")], 2) == "; 2 left, ETA 55s"
    assert sweep._time_left(spent, [run("other")], 1) == "; 1 left, ETA 55s"
    assert (sweep._time_left([], [run("mesa")], 1), sweep._time_left(spent, [], 1)) == ("; 1 left", "")


# Through the real entry point

# VDN is the cheapest learner to compile.
REAL = ["sweep", "--methods", "vdn", "--envs", "climb-one", "--preset", "smoke", "--num-test-tasks", "1"]
REAL += ["--", "--lanes", "1"]


def test_a_plan_shows_commands_and_begins_nothing(tmp_path, capsys):
    words = ["sweep", "--out", str(tmp_path / "out"), "--plan", "--json", *REAL[1:], "--num-repeats=2"]
    assert main(words) == 0
    line, count, last = capsys.readouterr().out.splitlines()
    assert line.startswith("new         mesax run vdn climb-one --lanes 1 ")
    assert count == "1 run: 1 new" and json.loads(last)["runs"][0]["command"] == line.split()[1:]
    assert not (tmp_path / "out").exists()


def test_a_plan_says_who_does_the_jobs(tmp_path, capsys, monkeypatch):
    """Neither Ray nor its cluster need be where a plan is made."""
    monkeypatch.setattr(OnRay, "check", lambda on: pytest.fail("a plan begins nothing"))
    who = ["--on", "ray", "--address", "10.0.0.1:6379", "--shared", "--num-gpus", "0.5", "--workers", "3"]
    assert main(["sweep", "--out", str(tmp_path / "out"), "--plan", "--json", *who, *REAL[1:]]) == 0
    line, _, last = capsys.readouterr().out.splitlines()
    assert line.split()[-len(who) :] == who and json.loads(last)["runs"][0]["command"] == line.split()[1:]
    options = parse(line.split()[2:])
    assert (options.on, options.address, options.shared, options.num_gpus) == ("ray", "10.0.0.1:6379", True, 0.5)
    assert options.workers == 3


def test_a_real_sweep_finishes_compares_and_is_not_repeated(tmp_path, capsys, monkeypatch):
    """Its run is compiled as for users, with the flags of `runtime.configure` instead of those of the tests."""
    monkeypatch.delenv("XLA_FLAGS")
    out = tmp_path / "out"
    words = [REAL[0], "--out", str(out), "--workers", "1", "--json", *REAL[1:]]
    assert main(words) == 0
    output = capsys.readouterr()
    path = out / "vdn-climb-one-smoke-seed0"
    assert "[1/1] vdn-climb-one-smoke-seed0: done" in output.err and RunDirectory(path).status == "done"
    assert (out / "figures" / "compare-curves.png").is_file()
    result = json.loads(output.out.splitlines()[-1])
    assert result["families"][0]["rows"][0]["mean_return"] == result["runs"][0]["mean_return"]
    assert QUICK_COMPILE in os.environ["XLA_FLAGS"].split()

    monkeypatch.setattr(sweep, "PROGRAM", ("false",))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"][0]["ending"] == "done"
    assert main([*words, "--num-repeats", "2"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds another configuration" in line and "--out" in line


NEEDS_DISCRETE = ["--algorithm.algorithm.actor-update", "ExpectedGradient"]


@pytest.mark.parametrize(
    ("env", "words", "message"),
    [
        ("swimmer-wide", NEEDS_DISCRETE, "needs discrete actions"),
        ("climb-one", ["--schedule.num-envs", "0"], "num-envs must be at least 1"),
        ("climb-one", ["--preset", "smoke"], "--preset cannot be passed on"),
        ("climb-one", ["--num-test-tasks", "1"], "--num-test-tasks cannot be passed on"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(env, words, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", "--methods", "plain", "--envs", env, "--out", str(out), "--plan", "--", *words]) == USAGE
    assert message in capsys.readouterr().err and not out.exists()


def test_a_stopped_sweep_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mesax.cli.sweeping.sweep", lambda *arguments: PREEMPTED)
    words = [REAL[0], "--out", str(tmp_path / "a b"), *REAL[1:]]
    assert main(words) == PREEMPTED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"continue with: mesax sweep --out '{tmp_path / 'a b'}' {' '.join(REAL[1:])}")
