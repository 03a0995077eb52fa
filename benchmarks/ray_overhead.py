"""What Ray costs on one machine: a sweep of quick climb runs by the built-in pool, and by a Ray of the same cores.

    python benchmarks/ray_overhead.py --out runs/ray-overhead

One run comes first and counts for nothing: it compiles. Then both sweeps, one after the other, in one go; Ray's time
includes its start. With `--rounds 2` they take turns, and the ratio is that of the sums.

By itself, a sweep of the built-in pool does one run at a time with a worker for each core, and one on Ray as many runs
as there are CPUs. `--pool-at-once 2` compares with a pool that does two runs at a time, which keeps two cores busy too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

BAR = 1.15


def sweep(out: Path, options: argparse.Namespace, seeds: list[str], workers: int, more: list[str]) -> float:
    """Seconds that a sweep takes."""
    shutil.rmtree(out, ignore_errors=True)
    what = ["--methods", options.method, "--envs", "climb-one", "--seeds", *seeds, "--preset", options.preset]
    what += ["--num-test-tasks", str(options.num_test_tasks), "--out", str(out), "--quiet"]
    command = [sys.executable, "-m", "mesax.cli", "sweep", *what, "--workers", str(workers), *more]
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    return time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="plain")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--num-test-tasks", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="cores of both")
    parser.add_argument("--pool-at-once", type=int, default=1, help="runs at a time of the built-in pool")
    parser.add_argument("--results", type=Path, help="a file for what was measured")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/ray-overhead"))
    options = parser.parse_args()
    seeds = [str(seed) for seed in range(options.runs)]
    sweep(options.out / "warm", options, seeds[:1], options.workers, [])
    at_once = ["--at-once", str(options.pool_at_once)]
    pool = ray = 0.0
    for _ in range(options.rounds):
        pool += sweep(options.out / "pool", options, seeds, max(1, options.workers // options.pool_at_once), at_once)
        ray += sweep(options.out / "ray", options, seeds, options.workers, ["--on", "ray"])
    different = [
        path.relative_to(options.out / "pool").as_posix()
        for path in sorted((options.out / "pool").glob("*/*.jsonl"))
        if path.name in ("eval.jsonl", "metrics.jsonl")
        and path.read_bytes() != (options.out / "ray" / path.parent.name / path.name).read_bytes()
    ]
    ratio = ray / pool
    told = {
        "command": f"python benchmarks/ray_overhead.py --rounds {options.rounds} --pool-at-once {options.pool_at_once}",
        "runs": options.runs,
        "pool_seconds": round(pool, 1),
        "ray_seconds": round(ray, 1),
        "ratio": round(ratio, 3),
        "load": [round(value, 1) for value in os.getloadavg()],
        "different": different,
    }
    print(json.dumps(told))
    if options.results is not None:
        options.results.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"Ray takes {ratio:.2f} times as long as the built-in pool (bar {BAR})")
    return 0 if ratio <= BAR and not different else 1


if __name__ == "__main__":
    raise SystemExit(main())
