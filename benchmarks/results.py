"""Runs every row of docs/results.md that is not there yet and prints the tables.

    python benchmarks/results.py --presets quick --seeds 0 1 2      what the quick rows say
    python benchmarks/results.py --presets paper --seeds 0          the paper's budgets
    python benchmarks/results.py --envs mpe-2a5l mpe-3a5l           particle worlds

Run directories go to runs/results; each run's summary, without its path, is copied to results/, which is committed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

from mesax.experiments.statistics import load_run
from mesax.experiments.tables import comparison_table, difference_table, pool_seeds, to_markdown

METHODS = {"quick": ("mesa", "uniform", "plain", "maddpg"), "paper": ("mesa", "uniform", "maddpg")}
TASKS = {"climb-one": 10, "climb-multi": 10, "mpe-2a5l": 5, "mpe-2a6l": 5, "mpe-3a5l": 5, "mpe-3a6l": 5, "swimmer": 6}
ROOT = Path(__file__).resolve().parent.parent


def run(method: str, env: str, preset: str, seed: int) -> Path:
    """One run, taken from the disk if it is there."""
    name = f"{method}-{env}-{preset}-seed{seed}"
    out = Path("runs") / "results" / name
    arguments = [method, env, "--preset", preset, "--num-test-tasks", str(TASKS[env]), "--seed", str(seed)]
    subprocess.run(
        [sys.executable, "-m", "mesax.cli", "run", *arguments, "--out", str(out), "--reuse", "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    summary = json.loads((out / "summary.json").read_text())
    summary.pop("run_dir")
    target = ROOT / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(summary, indent=2) + "\n")
    return out


def main() -> None:
    """Fill the table of every environment and preset asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=sorted(METHODS), default=["quick"])
    parser.add_argument("--envs", nargs="+", choices=list(TASKS), default=["climb-one", "climb-multi"])
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for preset, env in product(options.presets, options.envs):
        directories = [
            run(method, env, preset, seed) for method in options.methods or METHODS[preset] for seed in options.seeds
        ]
        runs = pool_seeds([load_run(directory) for directory in directories])
        print(to_markdown(comparison_table(runs)), "\n")
        print(to_markdown(difference_table(runs)), "\n", flush=True)


if __name__ == "__main__":
    main()
