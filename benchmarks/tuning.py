"""What was tried to choose the quick settings of baselines and of the learner that MESA wraps (docs/tuning.md).

    python benchmarks/tuning.py [plain] [maddpg] [qmix] [maven] [emc] [mappo] [mappo-rnd] [goal] [--out DIR] [--show]

A trial is a learner with some settings changed, on unseen tasks of tuning seeds: 101 to 110, which no result reports.
Every learner gets the same small number of trials. Runs that are there are not run again; `--show` only prints them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mesax.results.tables import Table, to_markdown

SEEDS = range(101, 111)
SHORT = "--schedule.total-steps 1200000 --schedule.num-evaluations 10"
TWELVE, FIFTEEN = (f"--schedule.num-evaluations {number}" for number in (12, 15))


@dataclass(frozen=True)
class Trial:
    """A learner in a world, with settings that are written out even where they are the defaults of today."""

    name: str
    method: str
    env: str
    settings: str
    seed: int = 101
    tasks: int = 1

    def __post_init__(self) -> None:
        """No result may be chosen on the tasks that it is reported on."""
        assert self.seed in SEEDS, f"{self.seed} is no tuning seed"

    def command(self, out: Path) -> list[str]:
        """How it is run."""
        words = (
            f"run {self.method} {self.env} --seed {self.seed} --num-test-tasks {self.tasks} --lanes 1 {self.settings}"
        )
        return [sys.executable, "-m", "mesax.cli", *words.split(), "--out", str(self.directory(out)), "--reuse"]

    def directory(self, out: Path) -> Path:
        """Where it is run."""
        return out / re.sub(r"[^\w.-]+", "-", f"{self.method}-{self.env}-{self.name}-seed{self.seed}")


def returns(directory: Path) -> list[float]:
    """Final returns by task: the mean of the last five evaluations of each."""
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return [task["final_return"] for task in summary["per_task"]]


def earned(directory: Path) -> list[float]:
    """What episodes of the last chunk earned while learning, by task: it rises before greedy play does."""
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "train_return" in row]  # nobody has played yet where there is no warm-up
    last = {row["task"]: row["train_return"] for row in sorted(rows, key=lambda row: row["step"])}
    return [last[task] for task in sorted(last)]


def table(name: str, trials: tuple[Trial, ...], out: Path) -> Table:
    """A row for each trial that has ended."""

    def shown(values: list[float]) -> str:
        return ", ".join(f"{value:.1f}" for value in values)

    rows = tuple(
        (trial.name, trial.env, str(trial.seed), shown(returns(where)), shown(earned(where)))
        for trial, where in ((trial, trial.directory(out)) for trial in trials)
        if (where / "summary.json").is_file()
    )
    columns = ("trial", "world", "seed", "final return, by task", "return while learning, at the end")
    return Table(f"Trials of {name}", columns, rows, "")


HEAD = "--algorithm.critic-head-gain"
ENTROPY = "--algorithm.entropy-bonus"
FALLING = "--algorithm.exploration.start 1 --algorithm.exploration.fraction 0.33"
EARLIER = (
    "--algorithm.target-rate 0.005 --algorithm.discount 0.99"
    " --algorithm.actor-optimizer.learning-rate 7e-4 --algorithm.critic-optimizer.learning-rate 7e-4"
)
FASTER = (
    "--algorithm.target-rate 0.02 --algorithm.discount 0.97"
    " --algorithm.actor-optimizer.learning-rate 2e-3 --algorithm.critic-optimizer.learning-rate 2e-3"
)
RATES = "--algorithm.actor-optimizer.learning-rate {} --algorithm.critic-optimizer.learning-rate {}"
DISCOUNT = "--algorithm.discount"
OCTAVES = "--algorithm.actor-net.octaves {0} --algorithm.critic-net.octaves {0}"
SMOOTH = OCTAVES.format(0)
RATES_FALL = "--algorithm.actor-optimizer.falling 9360 --algorithm.critic-optimizer.falling 9360"
QUICKER = f"{DISCOUNT} 0.95 --algorithm.target-rate 0.05"
UPDATES = "--schedule.updates-per-round"
RANDOM = "--algorithm.exploration.steps"
OF_EMC = "--algorithm.control.exploration.steps"
AT_LEAST = "--algorithm.memory.at-least"
RATE_OF_EMC = "--algorithm.control.optimizer.learning-rate"
EPOCHS = "--algorithm.epochs"
DEVIATION = "--algorithm.least-deviation"
TELLING = "--algorithm.values.information-weight"
OF_BINNED = "--algorithm.algorithm.algorithm.values.information-weight {}"
WIDER = "--schedule.num-envs 64 --algorithm.optimizer.learning-rate 0.0014"
TRIALS = {
    "plain": (
        Trial("head 0.01, entropy 0.05", "plain", "wide-3a5l", f"{HEAD} 0.01 {ENTROPY} 0.05", tasks=2),
        Trial("head 0.01, entropy 0.01, 1.2M steps", "plain", "wide-3a5l", f"{HEAD} 0.01 {ENTROPY} 0.01 {SHORT}"),
        Trial("head 0.01, entropy 0.005, 1.2M steps", "plain", "wide-3a5l", f"{HEAD} 0.01 {ENTROPY} 0.005 {SHORT}"),
        Trial("head 0.01, entropy 0.001, 1.2M steps", "plain", "wide-3a5l", f"{HEAD} 0.01 {ENTROPY} 0.001 {SHORT}"),
        Trial("head 1, entropy 0.001, random falls", "plain", "wide-3a5l", f"{HEAD} 1 {ENTROPY} 0.001 {FALLING}"),
        Trial("head 0.01, entropy 0.001, random falls", "plain", "wide-3a5l", f"{HEAD} 0.01 {ENTROPY} 0.001 {FALLING}"),
    ),
    "maddpg": (
        Trial("as before", "maddpg", "wide-2a5l", f"{HEAD} 1 {EARLIER} {TWELVE}", 109),
        Trial("head 0.01", "maddpg", "wide-2a5l", f"{HEAD} 0.01 {EARLIER} {TWELVE}", 109),
        Trial("head 0.01, faster targets", "maddpg", "wide-2a5l", f"{HEAD} 0.01 {FASTER} {TWELVE}", 109),
        Trial("head 0.01, faster targets", "maddpg", "wide-3a5l", f"{HEAD} 0.01 {FASTER} {FIFTEEN}", 102),
        Trial(
            "rates 1e-3, discount 0.99",
            "maddpg",
            "swimmer-wide",
            f"{SMOOTH} {RATES.format('1e-3', '1e-3')} {DISCOUNT} 0.99",
            tasks=3,
        ),
        Trial(
            "rates 3e-4", "maddpg", "swimmer-wide", f"{SMOOTH} {RATES.format('3e-4', '3e-4')} {DISCOUNT} 0.99", tasks=3
        ),
        Trial(
            "discount 0.95",
            "maddpg",
            "swimmer-wide",
            f"{SMOOTH} {RATES.format('1e-3', '1e-3')} {DISCOUNT} 0.95",
            tasks=3,
        ),
        Trial(
            "actors 3e-4, 0.95",
            "maddpg",
            "swimmer-wide",
            f"{SMOOTH} {RATES.format('3e-4', '1e-3')} {DISCOUNT} 0.95",
            tasks=3,
        ),
        Trial("rates fall to a twentieth", "maddpg", "swimmer-wide", f"{SMOOTH} {RATES_FALL}", tasks=3),
        Trial("nets with four octaves", "maddpg", "swimmer-wide", OCTAVES.format(4), tasks=3),
        Trial(
            "four octaves, 0.95, target rate 0.05", "maddpg", "swimmer-wide", f"{OCTAVES.format(4)} {QUICKER}", tasks=3
        ),
    ),
    "qmix": (
        Trial("as it is", "qmix", "wide-2a5l", f"--algorithm.trace 0.8 {TWELVE}", tasks=5),
        Trial("24 updates a round", "qmix", "wide-2a5l", f"{UPDATES} 24 {TWELVE}", tasks=5),
        Trial("lambda 0", "qmix", "wide-2a5l", f"--algorithm.trace 0 {TWELVE}", tasks=5),
        Trial("random phase over 300,000 steps", "qmix", "wide-2a5l", f"{RANDOM} 300000 {TWELVE}", tasks=5),
        Trial("random phase over 600,000 steps", "qmix", "mpe-2a5l", f"{RANDOM} 600000", tasks=2),
        Trial("random phase over 100,000 steps", "qmix", "mpe-2a5l", f"{RANDOM} 100000", tasks=2),
    ),
    "emc": (
        Trial("as before, 12 updates a round", "emc", "wide-2a5l", f"{UPDATES} 12 {TWELVE}", tasks=5),
        Trial("24 updates a round", "emc", "wide-2a5l", f"{UPDATES} 24 {TWELVE}", tasks=5),
        Trial("random phase over 150,000 steps", "emc", "wide-2a5l", f"{UPDATES} 12 {OF_EMC} 150000 {TWELVE}", tasks=5),
        Trial("random phase over 600,000 steps", "emc", "wide-2a5l", f"{UPDATES} 12 {OF_EMC} 600000 {TWELVE}", tasks=5),
        Trial("12 updates a round", "emc", "wide-2a5l", f"{UPDATES} 12 {TWELVE}", 102, tasks=5),
        Trial("24 updates a round", "emc", "wide-2a5l", f"{UPDATES} 24 {TWELVE}", 102, tasks=5),
        Trial("rate 2e-3", "emc", "wide-3a5l", f"{RATE_OF_EMC} 0.002 {OF_EMC} 500000", tasks=2),
        Trial("rate 1e-3", "emc", "wide-3a5l", f"{RATE_OF_EMC} 0.001 {OF_EMC} 500000", tasks=2),
        Trial("1e-3, random phase over 1M steps", "emc", "wide-3a5l", f"{RATE_OF_EMC} 0.001 {OF_EMC} 1000000", tasks=2),
        Trial("as in wide-2a5l", "emc", "mpe-2a5l", f"{RATE_OF_EMC} 0.002 {AT_LEAST} true", tasks=3),
        Trial("rate 1e-3", "emc", "mpe-2a5l", f"{RATE_OF_EMC} 0.001 {AT_LEAST} true", tasks=3),
        Trial("1e-3, pulled from both sides", "emc", "mpe-2a5l", f"{RATE_OF_EMC} 0.001 {AT_LEAST} false", tasks=3),
        Trial("1e-3, pulled from both sides", "emc", "mpe-2a5l", f"{RATE_OF_EMC} 0.001 {AT_LEAST} false", 102, tasks=2),
    ),
    "maven": (
        Trial("weight of telling z 1", "maven", "wide-2a5l", f"{TELLING} 1 {UPDATES} 12 {TWELVE}", tasks=5),
        Trial("weight 0.01", "maven", "wide-2a5l", f"{TELLING} 0.01 {UPDATES} 12 {TWELVE}", tasks=5),
        Trial("weight 0.001", "maven", "wide-2a5l", f"{TELLING} 0.001 {UPDATES} 12 {TWELVE}", tasks=5),
        Trial("weight 0.01, 24 updates", "maven", "wide-2a5l", f"{TELLING} 0.01 {UPDATES} 24 {TWELVE}", tasks=5),
        Trial("weight 0.01, 24 updates", "maven", "wide-2a5l", f"{TELLING} 0.01 {UPDATES} 24 {TWELVE}", 102, tasks=5),
        Trial("weight of telling z 1", "maven", "swimmer-wide", OF_BINNED.format(1), tasks=3),
    ),
    "mappo": (
        Trial("10 epochs", "mappo", "wide-2a5l", f"{EPOCHS} 10 {TWELVE}", tasks=2),
        Trial("5 epochs", "mappo", "wide-2a5l", f"{EPOCHS} 5 {TWELVE}", tasks=2),
        Trial("5 epochs, entropy 0.03", "mappo", "wide-2a5l", f"{EPOCHS} 5 {ENTROPY} 0.03 {TWELVE}", tasks=2),
        Trial("5 epochs, 64 environments", "mappo", "wide-2a5l", f"{EPOCHS} 5 {WIDER} {TWELVE}", tasks=2),
        Trial("10 epochs", "mappo", "wide-3a5l", f"{EPOCHS} 10 {TWELVE}", 102, tasks=2),
        Trial("5 epochs", "mappo", "wide-3a5l", f"{EPOCHS} 5 {TWELVE}", 102, tasks=2),
    ),
    "mappo-rnd": (
        Trial("entropy 0.01", "mappo-rnd", "mpe-2a5l", f"{ENTROPY} 0.01", tasks=3),
        Trial("entropy 0.03", "mappo-rnd", "mpe-2a5l", f"{ENTROPY} 0.03", tasks=3),
    ),
    "goal": (
        Trial("least deviation 0", "goal", "wide-2a5l", f"{DEVIATION} 0", tasks=5),
        Trial("least deviation 0.03", "goal", "wide-2a5l", f"{DEVIATION} 0.03", tasks=5),
        Trial("least deviation 0.1", "goal", "wide-2a5l", f"{DEVIATION} 0.1", tasks=5),
    ),
}


def main() -> None:
    """Run what is missing of the learners that are named, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learners", nargs="*", choices=[*TRIALS, []], help="default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/tuning"), help="directory of the runs")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for name in options.learners or TRIALS:
        for trial in () if options.show else TRIALS[name]:
            subprocess.run([*trial.command(options.out), "--workers", str(options.workers), "--quiet"], check=True)
        print(to_markdown(table(name, TRIALS[name], options.out)), flush=True)


if __name__ == "__main__":
    main()
