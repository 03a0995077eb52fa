"""Runs every row of docs/results.md that is not there yet and prints the tables.

    python benchmarks/results.py --presets quick --seeds 0 1 2      what the quick rows say
    python benchmarks/results.py --presets paper --seeds 0          the paper's budgets
    python benchmarks/results.py --envs mpe-2a5l mpe-3a5l           particle worlds
    python benchmarks/results.py --envs mpe-2a5l --methods mesa+qmix uniform+qmix

Run directories go to runs/results; each run's summary, without its path, is copied to results/, which is committed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from itertools import product
from pathlib import Path

from mesax.cli.parser import main as mesax
from mesax.results.comparison import compare_directories
from mesax.results.tables import to_markdown

METHODS = {
    "quick": ("mesa", "uniform", "plain", "maddpg", "qmix", "mappo", "mappo-rnd"),
    "paper": ("mesa", "uniform", "maddpg"),
}
TASKS = {"climb-one": 10, "climb-multi": 10, "mpe-2a5l": 5, "mpe-2a6l": 5, "mpe-3a5l": 5, "mpe-3a6l": 5, "swimmer": 6}
ROOT = Path(__file__).resolve().parent.parent
RUNS = Path("runs") / "results"


def sweep(methods: list[str], env: str, preset: str, seeds: list[int]) -> list[Path]:
    """Run directories of one environment and preset, as `mesax sweep` leaves them."""
    words = ["--methods", *methods, "--envs", env, "--seeds", *map(str, seeds), "--preset", preset]
    with contextlib.redirect_stdout(io.StringIO()):  # its tables are for terminals
        code = mesax(["sweep", *words, "--num-test-tasks", str(TASKS[env]), "--out", str(RUNS)])
    if code:
        raise SystemExit(code)
    return [RUNS / f"{method}-{env}-{preset}-seed{seed}" for method, seed in product(methods, seeds)]


def keep_summary(directory: Path) -> None:
    """Copy a run's summary to where it is committed."""
    summary = json.loads((directory / "summary.json").read_text())
    summary.pop("run_dir")
    target = ROOT / "results" / f"{directory.name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(summary, indent=2) + "\n")


def main() -> None:
    """Fill the table of every environment and preset asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=sorted(METHODS), default=["quick"])
    parser.add_argument("--envs", nargs="+", choices=list(TASKS), default=["climb-one", "climb-multi"])
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for preset, env in product(options.presets, options.envs):
        directories = sweep(options.methods or list(METHODS[preset]), env, preset, options.seeds)
        for directory in directories:
            keep_summary(directory)
        for family in compare_directories(directories):
            print("\n".join(to_markdown(table) for table in family.tables), flush=True)


if __name__ == "__main__":
    main()
