"""Speed on the one-step climb game: time to the first step with a cold and a warm cache, then steps a second.

Prints one line per figure with its bar. Everything goes through the command line, as users meet it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = ("run", "mesa", "climb-one", "--preset", "quick", "--num-test-tasks", "10", "--num-repeats", "3", "--quiet")


def timed_run(out: Path, cache: Path, arguments: tuple[str, ...]) -> dict[str, float]:
    """Wall-clock seconds from launch to the first rows of a phase and to the end."""
    environment = os.environ | {"MESAX_CACHE_DIR": str(cache)}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "mesax.cli", *arguments, "--out", str(out)], env=environment, stdout=subprocess.DEVNULL
    )
    first = None
    while process.poll() is None:
        if first is None and any(out.glob("jobs/*/*/*.jsonl")):
            first = time.perf_counter() - started
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"the benchmark run failed with code {process.returncode}")
    return {"first_rows": first or float("nan"), "total": time.perf_counter() - started}


def throughput(out: Path, workers: int) -> tuple[float, float]:
    """(environment steps a second on the test tasks once compiled, longest wait for a first chunk)."""
    rows = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["phase"] == "adapt"]
    steps = sum(row["env_steps"] for row in rows)
    busy = sum(row["seconds"] - row["first_chunk_seconds"] for row in rows)
    return steps * workers / busy, max(row["first_chunk_seconds"] for row in rows)


def line(what: str, value: str, bar: str, met: bool) -> None:
    """One figure against its bar."""
    print(f"{what:<58} {value:>12}   bar {bar:<16} {'met' if met else 'MISSED'}", flush=True)


def main() -> None:
    """Run the benchmark twice in one temporary directory, cold and warm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    plain = ("run", "plain", *RUN[2:])
    workers = ("--workers", str(options.workers))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        timed_run(root / "cold", root / "cache", (*plain, *workers))
        _, first_chunk = throughput(root / "cold", options.workers)
        line("plain, empty cache: compile until the first chunk", f"{first_chunk:.1f} s", "<= 20 s", first_chunk <= 20)
        warm = timed_run(root / "warm", root / "cache", (*plain, *workers))
        line(
            "plain, second start: launch to first steps",
            f"{warm['first_rows']:.1f} s",
            "<= 5 s",
            warm["first_rows"] <= 5,
        )
        for name, arguments in (("plain", plain), ("mesa", RUN)):
            out = root / f"speed-{name}"
            timed_run(out, root / "cache", (*arguments, *workers))
            speed, _ = throughput(out, options.workers)
            line(
                f"{name}, 30 runs x 50k steps on {options.workers} workers",
                f"{speed:,.0f}/s",
                ">= 60,000/s",
                speed >= 60_000,
            )


if __name__ == "__main__":
    main()
