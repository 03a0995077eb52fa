"""What checkpoints and checks cost, and how soon a run that is asked to stop has saved itself.

    python benchmarks/checkpoints.py cost         share of a run's time that went into saving, at the default interval
    python benchmarks/checkpoints.py sigterm      seconds from SIGTERM to exit code 75, once the replay has filled
    python benchmarks/checkpoints.py checks       share of a smoke run's time that goes into looking whether its files
                                                  are what it has written

The run is `plain` on `wide-3a6l` in preset `quick`, whose state is the largest of all families.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN = ["plain", "wide-3a6l", "--preset", "quick", "--num-test-tasks", "2", "--quiet"]
COST_BAR, STOP_BAR, CHECKS_BAR = 0.05, 10.0, 0.01


def start(run: Path) -> subprocess.Popen[bytes]:
    """The run, in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "mesax.cli", "run", *RUN, "--out", str(run)])


def size_of(directory: Path) -> float:
    """Megabytes below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def verdict(met: bool) -> str:
    """As in the other benchmarks."""
    return "met" if met else "MISSED"


def cost(out: Path, after: float) -> None:
    """A whole run."""
    del after
    assert start(out / "run").wait() == 0
    rows = [json.loads(line) for line in (out / "run" / "timing.jsonl").read_text().splitlines()]
    seconds, saving = (sum(row[name] for row in rows) for name in ("seconds", "saving_seconds"))
    share = saving / seconds
    print(f"saving took {saving:.1f} of {seconds:.0f} s of all jobs: {share:.2%}   bar <= {COST_BAR:.0%}", end="  ")
    print(verdict(share <= COST_BAR))


def sigterm(out: Path, after: float) -> None:
    """A run that is stopped `after` seconds; then its last checkpoints."""
    run = out / "run"
    process = start(run)
    time.sleep(after)
    asked, clock = time.monotonic(), time.time()
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    seconds = time.monotonic() - asked
    print(f"exit code {code} after {seconds:.1f} s   bar <= {STOP_BAR:.0f} s and 75", end="  ")
    print(verdict(code == 75 and seconds <= STOP_BAR))
    for job in sorted((run / "jobs" / "adapt").iterdir()):
        saved = sorted((job / "checkpoints").glob("0*"))
        newest = saved[-1].stat().st_mtime - clock if saved else float("-inf")
        when = f"{newest:+.1f} s" if saved else "never"
        print(f"  {job.name}: last checkpoint {when} from the signal, {size_of(saved[-1]) if saved else 0:.0f} MB")


def timed(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def checks(out: Path, after: float) -> None:
    """MESA's smoke run in this process, twice: once compiled, it is short, and checks weigh more."""
    del after
    from mesax.cli.parser import main as command_line
    from mesax.execution import jobs, runner
    from mesax.store.checkpoints import Checkpoints
    from mesax.store.run_directory import RunDirectory

    spent, depth = [0.0], [0]

    def counted(place: Any, name: str) -> None:
        check = getattr(place, name)

        def clocked(*args: Any, **options: Any) -> Any:
            depth[0] += 1
            begun = time.perf_counter()
            try:
                return check(*args, **options)
            finally:
                depth[0] -= 1
                spent[0] += (time.perf_counter() - begun) * (not depth[0])

        setattr(place, name, clocked)

    for place, name in (
        *((Checkpoints, name) for name in ("wrote", "rows")),
        (jobs, "tree_checksums"),
        (runner, "file_checksum"),
        *((RunDirectory, name) for name in ("check_job", "identity_of")),
        (runner, "undo_damaged"),
    ):
        counted(place, name)
    for number in range(3):
        spent[0] = 0.0
        words = ["run", "mesa", "climb-one", "--preset", "smoke", "--quiet", "--workers", "1"]
        seconds = timed(lambda: command_line([*words, "--out", str(out / f"run-{number}")]))  # noqa: B023
        share = spent[0] / seconds
        print(
            f"checks took {1000 * spent[0]:.1f} ms of {seconds:.1f} s: {share:.2%}   bar <= {CHECKS_BAR:.0%}", end="  "
        )
        print(verdict(share <= CHECKS_BAR))


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = {function.__name__: function for function in (cost, sigterm, checks)}
    parser.add_argument("what", choices=measures)
    parser.add_argument("--after", type=float, default=150.0, help="seconds until the signal (default 150)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        measures[options.what](Path(out), options.after)


if __name__ == "__main__":
    main()
