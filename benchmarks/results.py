"""Runs every row of docs/results.md that is not there yet and prints the tables.

    python benchmarks/results.py --presets quick --seeds 0 1 2      what the quick rows say
    python benchmarks/results.py --presets paper --seeds 0          the paper's budgets
    python benchmarks/results.py --envs wide-2a5l wide-3a5l           particle worlds
    python benchmarks/results.py --envs wide-2a5l --methods mesa+qmix uniform+qmix
    python benchmarks/results.py --keep runs/*                      only copy finished runs to results/

Run directories go to runs/results; what each run found goes to results/, which is committed: figures, curves, settings
with their hash, command, commit, versions and clocks (mesax/results/evidence/kept.py).
"""

from __future__ import annotations

import argparse
import contextlib
import io
from itertools import product
from pathlib import Path

from mesax.cli.parser import main as mesax
from mesax.results.comparison import compare_directories
from mesax.results.evidence.kept import keep
from mesax.results.tables import to_markdown

METHODS = {
    "quick": ("mesa", "uniform", "plain", "maddpg", "qmix", "mappo", "mappo-rnd"),
    "paper": ("mesa", "uniform", "maddpg"),
}
TASKS = {
    "climb-one": 10,
    "climb-multi-mixed": 10,
    "wide-2a5l": 5,
    "wide-2a6l": 5,
    "wide-3a5l": 5,
    "wide-3a6l": 5,
    "swimmer-wide": 6,
}
RESULTS = Path(__file__).resolve().parent.parent / "results"
RUNS = Path("runs") / "results"


def sweep(methods: list[str], env: str, preset: str, seeds: list[int]) -> list[Path]:
    """Run directories of one environment and preset, as `mesax sweep` leaves them."""
    words = ["--methods", *methods, "--envs", env, "--seeds", *map(str, seeds), "--preset", preset]
    with contextlib.redirect_stdout(io.StringIO()):  # its tables are for terminals
        code = mesax(["sweep", *words, "--num-test-tasks", str(TASKS[env]), "--out", str(RUNS)])
    if code:
        raise SystemExit(code)
    return [RUNS / f"{method}-{env}-{preset}-seed{seed}" for method, seed in product(methods, seeds)]


def main() -> None:
    """Fill the table of every environment and preset asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=sorted(METHODS), default=["quick"])
    parser.add_argument("--envs", nargs="+", choices=list(TASKS), default=["climb-one", "climb-multi-mixed"])
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--keep", nargs="+", type=Path, metavar="RUN_DIR", help="copy these, and run nothing")
    options = parser.parse_args()
    for directory in options.keep or ():
        print(keep(directory, RESULTS))
    if options.keep:
        return
    for preset, env in product(options.presets, options.envs):
        directories = sweep(options.methods or list(METHODS[preset]), env, preset, options.seeds)
        for directory in directories:
            keep(directory, RESULTS)
        for family in compare_directories(directories):
            print("\n".join(to_markdown(table) for table in family.tables), flush=True)


if __name__ == "__main__":
    main()
