"""Environments of a user's own, in worker processes or in one: all are closed, whether the run ends well or breaks."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SMALL = ["--preset", "smoke", "--lanes", "1", "--num-test-tasks", "2", "--algorithm.algorithm.agent-net.hidden", "8"]


def run_logged(path: Path, workers: int = 2, **environment: str) -> tuple[int, list[str], Counter[tuple[str, str]]]:
    """(exit code, lines on stderr, how often each process opened and closed something) of a run."""
    log = path.parent / "log"
    command = ["run", "vdn", "logged_ring:make", *SMALL, "--out", str(path), "--workers", str(workers), "--quiet"]
    with subprocess.Popen(
        [sys.executable, "-m", "mesax.cli", *command],
        cwd=HERE,
        env=os.environ | {"RING_LOG": str(log)} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, errors = process.communicate(timeout=200)
    said = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    assert len({pid for pid, _ in said}) == (1 if workers == 1 else 1 + workers)  # the run itself looks at one too
    return process.returncode, errors.splitlines(), said


def assert_all_closed(said: Counter[tuple[str, str]]) -> None:
    assert {pid: said[pid, "open"] for pid, _ in said} == {pid: said[pid, "close"] for pid, _ in said}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_ends_well_closes_them(tmp_path: Path, workers: int):
    code, errors, said = run_logged(tmp_path / "run", workers)
    assert (code, errors) == (0, [])
    assert_all_closed(said)


def test_a_run_that_breaks_closes_them_too(tmp_path: Path):
    """Those of the worker whose environment breaks, and those of the other, which is in the middle of a step."""
    code, errors, said = run_logged(tmp_path / "run", RING_MEETS=str(tmp_path), MESAX_TRACEBACK="1")
    assert code == 1
    assert_all_closed(said)
    told = re.search(r"adapt job \d: .* step raised IndexError: .* \(logged_ring\.py:(\d+)\).*; see (.*)$", errors[-1])
    assert told, errors[-3:]
    assert f'{HERE}/logged_ring.py", line {told[1]}, in meet' in "\n".join(errors), "the worker's own traceback"
    assert "IndexError" in Path(told[2]).read_text()
