"""MAESN on goals of the half-circle that it has not seen: what twenty episodes are worth, with and without latents.

    python benchmarks/half_circle.py [--seeds 0 1 2 3 4] [--arms maesn maml scratch]

`maml` is the same code without latents, whose adaptation moves the weights; `scratch` the same policy gradient without
meta-training. All are evaluated after every round of twenty episodes, on twenty test tasks per seed. Printed are mean
returns with 95% intervals over seeds and tasks, and differences from `maesn` task by task. Run directories go to
runs/half-circle and are continued if they are there; the table of the usual seeds goes to results/half-circle.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from mesax.cli.parser import main as mesax
from mesax.results.intervals import mean_interval

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path("runs") / "half-circle"
SEEDS = [0, 1, 2, 3, 4]
WITHOUT_LATENTS = ("--algorithm.adapts", "weights", "--algorithm.latent-size", "0")
ARMS: dict[str, tuple[str, ...]] = {
    "maesn": (),
    "maml": (*WITHOUT_LATENTS, "--algorithm.step-size", "0.1"),
    "scratch": (*WITHOUT_LATENTS, "--algorithm.adapt-rounds", "0", "--method.steps", "0"),
}


def curves(arm: str, seed: int) -> np.ndarray:
    """Greedy returns of one run, `[evaluations, tasks]`."""
    run = RUNS / f"{arm}-seed{seed}"
    words = ["run", "maesn", "half-circle", "--seed", str(seed), *ARMS[arm]]
    code = mesax([*words, "--out", str(run), "--reuse", "--workers", "1", "--quiet"])
    if code:
        raise SystemExit(code)
    rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    steps = sorted({row["step"] for row in rows})
    tasks = max(row["task"] for row in rows) + 1
    table = np.zeros((len(steps), tasks))
    for row in rows:
        table[steps.index(row["step"]), row["task"]] = row["return"]
    return table


def main() -> None:
    """Run what is asked for, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    options = parser.parse_args()
    returns = {arm: np.stack([curves(arm, seed) for seed in options.seeds]) for arm in options.arms}
    seeds = np.repeat(options.seeds, next(iter(returns.values())).shape[-1])
    found: dict[str, object] = {"seeds": options.seeds}
    for arm, table in returns.items():
        for moment, index in (("before any episode", 0), ("after 20 episodes", 1), ("after 180 episodes", -1)):
            value = mean_interval(table[:, index].reshape(-1), seeds=seeds)
            by_seed = table[:, index].mean(axis=-1)
            one: dict[str, object] = {
                "mean": value.value,
                "interval": [value.low, value.high],
                "by_seed": list(by_seed),
            }
            line = f"{arm:<8} {moment:<19} {value.value:6.2f}  [{value.low:.2f}, {value.high:.2f}]"
            against = ""
            if arm != "maesn" and "maesn" in returns:
                ahead = mean_interval((returns["maesn"] - table)[:, index].reshape(-1), seeds=seeds)
                against = f"  maesn is ahead by {ahead.value:.2f} [{ahead.low:.2f}, {ahead.high:.2f}]"
                one["maesn_ahead"] = {"mean": ahead.value, "interval": [ahead.low, ahead.high]}
            print(f"{line}  by seed {', '.join(f'{number:.2f}' for number in by_seed)}{against}")
            found[f"{arm} {moment}"] = one
    if list(returns) == list(ARMS) and options.seeds == SEEDS:
        (ROOT / "results" / "half-circle.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
