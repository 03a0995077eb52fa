"""Runs on a real Ray cluster of two nodes, which are killed, stopped, filled up and of another version."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.two_nodes import ADDRESS, Cluster, inner, kill, started, why_not

from mesax.cli.parser import main
from mesax.errors import FAILED, IO_ERROR, PREEMPTED, USAGE, WORKER_LOST
from mesax.store.run_directory import RunDirectory
from own import hostile_worlds

TESTS = Path(__file__).resolve().parents[2]
LONGEST = 600.0
"""A run takes less than a minute, but a machine may have much else to do."""
pytestmark = pytest.mark.timeout(3 * LONGEST)
SAME = ("eval.jsonl", "metrics.jsonl", "coverage.json")
SMOKE = ["--preset", "smoke", "--quiet"]
# The cheapest learner to compile.
QUICK = ["vdn", "climb-one"]
ON = ["--on", "ray", "--address", ADDRESS]
# The command line, on a node that may pretend to have another version.
DRIVER = """
import sys
from mesax.bridges.ray_cluster import versions
if sys.argv[1] == "pretend":
    del sys.argv[1]
    real = versions.identity()
    real["mesax"] = "0.0.1"
from mesax.cli.parser import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with started() as cluster:
        yield cluster


def begin(cluster: Cluster, words: list[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
    return cluster.popen([sys.executable, "-c", DRIVER, *words], log, {"MESAX_CHECKPOINT_SECONDS": "0.2", **variables})


def done(cluster: Cluster, words: list[str], log: Path, **variables: str) -> int:
    return begin(cluster, words, log, **variables).wait(LONGEST)


def until(condition, what: str, seconds: float = LONGEST) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.2)  # looking at the processes of a cluster costs time too


def saved(run: Path, stage: str) -> int:
    """Number of the last checkpoint that has come to the driver."""
    return max((int(path.name) for path in run.glob(f"jobs/{stage}/*/checkpoints/0*")), default=0)


def last_line(log: Path) -> str:
    return log.read_text().splitlines()[-1]


def whole(tmp_path_factory, words: list[str]) -> Path:
    """The same run in this process."""
    path = tmp_path_factory.mktemp("whole") / "run"
    assert main(["run", *words, *SMOKE, "--out", str(path), "--workers", "1"]) == 0
    return path


def assert_same(one: Path, other: Path) -> None:
    there = [name for name in SAME if (one / name).exists()]
    assert [name for name in there if (one / name).read_bytes() != (other / name).read_bytes()] == []
    assert names_of(one) == names_of(other)
    assert main(["verify", str(other)]) == 0


def names_of(run: Path) -> list[str]:
    """What the jobs have left."""
    return sorted(path.relative_to(run).as_posix() for path in (run / "jobs").rglob("*"))


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        ([*QUICK, "--schedule.total-steps", "50000", "--num-test-tasks", "1"], "adapt", "adapt"),
        pytest.param(["mesa", "climb-one"], "collect", "explore", marks=pytest.mark.slow),
    ],
    ids=["plain", "mesa"],
)
def test_a_killed_worker_and_a_stopped_driver_cost_nothing(
    cluster: Cluster, words: list[str], first: str, second: str, tmp_path, tmp_path_factory
):
    """Without shared files, a worker is killed, then the driver is told to stop; then it goes on with shared files."""
    undisturbed = whole(tmp_path_factory, words)
    run, log = tmp_path / "run", tmp_path / "log"
    driver = begin(cluster, ["run", *words, *SMOKE, "--out", str(run), *ON], log)
    until(lambda: saved(run, first) and cluster.workers(), "a checkpoint at the driver")
    kill(cluster.workers()[0])
    until(lambda: "once more" in log.read_text(), "the loss of a worker being noticed")
    before = saved(run, second)
    until(lambda: saved(run, second) > before, "the next attempt to go on")
    kill(inner(driver), signal.SIGTERM)
    assert driver.wait(LONGEST) == PREEMPTED and RunDirectory(run).status == "preempted"
    assert last_line(log).endswith(f"continue with: mesax resume {run} --on ray --address {ADDRESS}")
    assert all(line.startswith("mesax: ") for line in log.read_text().splitlines()), "Ray itself is not heard"
    assert saved(run, second) > before and cluster.await_nothing_but_nodes() == []
    assert done(cluster, ["resume", str(run), "--quiet", *ON, "--shared"], log) == 0, log.read_text()
    assert_same(undisturbed, run)
    assert not (run / ".attempts").exists() and cluster.await_nothing_but_nodes() == []


@pytest.mark.slow
def test_a_full_disk_and_another_version_are_one_line(cluster: Cluster, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)]
    # In each node's own mounts: they share those of the namespace.
    subprocess.run(cluster.command(mount), check=True)
    run, log = tmp_path / "run", tmp_path / "log"
    words = ["run", "plain", "climb-one", *SMOKE, "--out", str(run), *ON]
    assert done(cluster, words, log, MESAX_SCRATCH_DIR=str(full)) == IO_ERROR, log.read_text()
    assert last_line(log).startswith("mesax: adapt job 0: on node ")
    assert "No space left on device" in last_line(log) and RunDirectory(run).status == "failed"
    assert done(cluster, ["pretend", *words[: -len(ON)], "--reuse", *ON], log) == USAGE, log.read_text()
    assert "instead of 0.0.1: install the same on all nodes" in last_line(log)
    assert cluster.await_nothing_but_nodes() == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [["mesa", "climb-one"], ["mesa", "wide-2a3l"]], ids=["climb", "particles"])
def test_same_bytes_with_and_without_shared_files(cluster: Cluster, words, tmp_path, tmp_path_factory):
    undisturbed = whole(tmp_path_factory, words)
    for more in ([], ["--shared"]):
        run, log = tmp_path / f"run{len(more)}", tmp_path / "log"
        assert done(cluster, ["run", *words, *SMOKE, "--out", str(run), *ON, *more], log) == 0, log.read_text()
        assert_same(undisturbed, run)


@pytest.mark.slow
def test_ray_starts_by_itself_and_ends_with_its_driver(cluster: Cluster, tmp_path):
    """A sweep of two runs at once shares one; of a driver that is killed nothing is left."""
    out, log = tmp_path / "sweep", tmp_path / "log"
    words = ["sweep", "--methods", "plain", "uniform", "--envs", "climb-one", "--preset", "smoke", "--out", str(out)]
    assert done(cluster, [*words, "--on", "ray", "--workers", "2"], log) == 0, log.read_text()
    assert {path.parent.name.partition("-")[0] for path in out.glob("*/checksums.json")} == {"plain", "uniform"}
    before = len(cluster.processes())
    run = tmp_path / "run"
    driver = begin(cluster, ["run", "plain", "climb-one", *SMOKE, "--out", str(run), "--on", "ray"], log)
    until(lambda: run.is_dir() and len(cluster.processes()) > before + 4, "a cluster of its own")
    kill(inner(driver))
    driver.wait()
    until(lambda: len(cluster.processes()) <= before, "all of it to end", 60)
    assert done(cluster, ["resume", str(run), "--quiet", "--on", "ray"], log) == 0, log.read_text()


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up(cluster: Cluster, tmp_path, tmp_path_factory):
    undisturbed = whole(tmp_path_factory, ["plain", "climb-one"])
    run, log = tmp_path / "run", tmp_path / "log"
    words = ["run", "plain", "climb-one", *SMOKE, "--out", str(run), *ON]
    driver = begin(cluster, words, log, MESAX_HEARTBEAT_SECONDS="10")
    until(lambda: saved(run, "adapt") and cluster.workers(), "a checkpoint at the driver")
    kill(cluster.workers()[0], signal.SIGSTOP)
    assert driver.wait(LONGEST) == 0, log.read_text()
    assert "was silent for 10 seconds: once more" in log.read_text()
    assert_same(undisturbed, run)
    assert cluster.await_nothing_but_nodes() == []


WORLDS = {
    "leaves": (WORKER_LOST, "4 times in a row; continue with: mesax resume"),
    "shouts": (FAILED, r"step raised RuntimeError: \x1b[31mred"),
    "moves": (0, ""),
    "forks": (0, ""),
    "stays": (0, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("more", [[], ["--shared"]], ids=["files travel", "shared"])
def test_what_a_world_does_on_a_node(cluster: Cluster, tmp_path, tmp_path_factory, world, more):
    """It leaves, it shouts, it goes elsewhere, it forks: the run ends in the usual bytes, or says what has happened."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    own = ["--num-test-tasks", "2", "--lanes", "1", "--schedule.total-steps", "400"]
    words = ["vdn", f"own.hostile_worlds:{world}", *own]
    variables = {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        hostile_worlds.AT: "150",
        hostile_worlds.ELSEWHERE: str(elsewhere),
    }
    run, log = tmp_path / "run", tmp_path / "log"
    code, told = WORLDS[world]
    assert done(cluster, ["run", *words, *SMOKE, "--out", str(run), *ON, *more], log, **variables) == code, (
        log.read_text()
    )
    assert told in last_line(log) if told else True
    assert not any(elsewhere.iterdir()) and cluster.await_nothing_but_nodes() == []
    if code:
        variables[hostile_worlds.AT] = "0"
        words = ["resume", str(run), "--load", "own.hostile_worlds", "--quiet", *ON, *more]
        assert done(cluster, words, log, **variables) == 0, log.read_text()
    assert_same(whole(tmp_path_factory, ["vdn", "own.hostile_worlds:leaves", *own]), run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eval.jsonl", "metrics.jsonl"])
@pytest.mark.parametrize("more", [[], ["--shared"]], ids=["files travel", "shared"])
def test_rows_of_a_node_are_what_it_has_written(cluster: Cluster, tmp_path, tmp_path_factory, name, more):
    """Whoever cuts them while the run goes on, at the driver or where the attempt is at work."""
    words = [*QUICK, "--schedule.total-steps", "50000", "--num-test-tasks", "1"]
    run, log = tmp_path / "run", tmp_path / "log"
    driver = begin(cluster, ["run", *words, *SMOKE, "--out", str(run), *ON, *more], log)

    def rows() -> list[Path]:
        return [path for path in run.rglob(name) if path.stat().st_size and path.parent.name == "000"]

    until(rows, "rows")
    for path in rows():
        os.truncate(path, path.stat().st_size // 2)
    code = driver.wait(LONGEST)
    assert code in (0, IO_ERROR), log.read_text()
    if code:
        assert name in last_line(log)
        assert done(cluster, ["resume", str(run), "--quiet", *ON, *more], log) == 0, log.read_text()
    assert_same(whole(tmp_path_factory, words), run)
