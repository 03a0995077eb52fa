"""Runs every row of docs/results.md that is not there yet and prints the tables.

    python benchmarks/results.py --presets quick --seeds 0 1 2      what the quick rows say
    python benchmarks/results.py --presets paper --seeds 0          the paper's budgets
    python benchmarks/results.py --envs mpe-2a5l mpe-3a5l           particle worlds
    python benchmarks/results.py --envs mpe-2a5l --methods mesa+qmix uniform+qmix
    python benchmarks/results.py --keep runs/*                      only copy finished runs to results/

Run directories go to runs/results; what each run found goes to results/, which is committed: its summary, its curves,
and the command, commit, versions and the hash of the configuration that it was made with.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from itertools import product
from pathlib import Path

import numpy as np

from mesax.cli.parser import main as mesax
from mesax.results.comparison import compare_directories
from mesax.results.summary import summarize
from mesax.results.tables import to_markdown
from mesax.store.reading import load_run
from mesax.store.run_directory import RunDirectory

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
    """Write what a run found, and what it was made with, to where it is committed: figures by today's statistics."""
    run = load_run(directory)
    costs = {name: run.summary[name] for name in ("env_steps", "meta_env_steps", "wall_seconds")}
    rows = RunDirectory.open(directory).read_rows("eval.jsonl")
    kept = summarize(run.run, rows, **costs, run_dir="")
    kept.pop("run_dir")
    if "explorers" in run.summary:
        kept["explorers"] = run.summary["explorers"]
    request = run.run["request"]
    words = ["mesax", "run", str(run.run["method"]), str(run.run["env"]), "--preset", str(run.run["preset"])]
    words += ["--learner", str(request["learner"])] if request.get("learner") else []
    words += ["--seed", str(run.run["seed"]), "--num-test-tasks", str(len(run.run["test_tasks"]))]
    kept["made_with"] = {"command": " ".join([*words, *request.get("overrides", [])])} | {
        name: run.run[name] for name in ("config_hash", "git_commit", "versions")
    }
    kept["curves"] = [
        {"task": curve.task, "repeat": curve.repeat, "steps": curve.steps.tolist(), "returns": _rounded(curve.returns)}
        for curve in run.curves
    ]
    learner = f"+{request['learner']}" if request.get("learner") else ""
    name = f"{run.run['method']}{learner}-{run.run['env']}-{run.run['preset']}-seed{run.run['seed']}.json"
    target = ROOT / "results" / name
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(kept, indent=1) + "\n")


def _rounded(returns: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in returns]


def main() -> None:
    """Fill the table of every environment and preset asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=sorted(METHODS), default=["quick"])
    parser.add_argument("--envs", nargs="+", choices=list(TASKS), default=["climb-one", "climb-multi"])
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--keep", nargs="+", type=Path, metavar="RUN_DIR", help="copy these, and run nothing")
    options = parser.parse_args()
    for directory in options.keep or ():
        keep_summary(directory)
    if options.keep:
        return
    for preset, env in product(options.presets, options.envs):
        directories = sweep(options.methods or list(METHODS[preset]), env, preset, options.seeds)
        for directory in directories:
            keep_summary(directory)
        for family in compare_directories(directories):
            print("\n".join(to_markdown(table) for table in family.tables), flush=True)


if __name__ == "__main__":
    main()
