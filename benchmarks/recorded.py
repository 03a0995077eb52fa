"""What the paper and its authors' public run logs say of baselines, beside what preset `paper` comes to here.

    python benchmarks/recorded.py --plan                             what there is to do, and what it costs
    python benchmarks/recorded.py                                    all of it: days on two cores
    python benchmarks/recorded.py --rows 2a4l --seeds 0 --workers 2

Every row is a sweep: what is finished is used, what was begun goes on. Each has a folder of run directories in --out;
results go to results/recorded, which is committed, and can be given to `mesax verify results`. Where a logged run had
other settings than the preset, so has its row.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mesax.cli.parser import main as mesax
from mesax.results.evidence.kept import Kept, read_kept
from mesax.results.tables import Table, to_markdown

STORE = Path(__file__).resolve().parent.parent / "results" / "recorded"
# As in nearly all logged runs of particle worlds: VDN, a nearer horizon, no memory, replay by priority.
BY_SUM = (
    *("--algorithm.control.mixer", "Sum"),
    *("--algorithm.control.discount", "0.9"),
    *("--algorithm.memory", "none"),
    *("--schedule", "Prioritized"),
)
SHARED = ("--algorithm.control.share-agents", "true")
AS_IN_GAMES = (
    *("--algorithm.curiosity.scale.start", "0.2"),
    *("--algorithm.curiosity.scale.steps", "5000"),
    *("--algorithm.curiosity.scale.floor", "0.01"),
    *("--schedule.updates-per-round", "1"),
)


@dataclass(frozen=True)
class Row:
    """A learner in a world, and how it ended elsewhere."""

    name: str
    method: str
    env: str
    recorded: str
    """Final returns: of single runs in logs, or mean and deviation in the paper's table."""
    levels: tuple[tuple[float, float], ...]
    """(return, tolerance) at which runs are to end, one or the other."""
    core_hours: float
    """Of a seed on a core that does nothing else."""
    seeds: int = 1
    tasks: int = 1
    """Test tasks of a seed."""
    settings: tuple[str, ...] = ()
    """What the recorded runs had besides preset `paper`."""

    def sweep(self, seeds: Sequence[int], out: Path, steps: int | None = None) -> list[str]:
        """Arguments of `mesax`; a shorter run is evaluated as often."""
        words = ["sweep", "--methods", self.method, "--envs", self.env, "--seeds", *map(str, seeds)]
        words += ["--preset", "paper", "--num-test-tasks", str(self.tasks)]
        if steps is not None:
            words += ["--schedule.total-steps", str(steps), "--schedule.num-evaluations", str(steps // TEST_EVERY)]
            out = out / f"{steps}-steps"
        return [*words, "--out", str(out / self.name), "--results", str(STORE), *self.settings]

    def met(self, final: float) -> bool:
        """Whether a run ended where it was to."""
        return any(abs(final - level) <= tolerance for level, tolerance in self.levels)


TEST_EVERY = 10_000
"""Steps, outside of climb games."""
HALF = ((0.5, 0.02),)
SAFE, OPTIMUM, NOTHING = (36.5, 1.5), (71.5, 2.0), (0.0, 1.0)
FOUR = "36.4, 36.5, 36.7, 71.5, 72.2, 72.4"
"""Of their runs with nets of their own that came to an end."""
ROWS = (
    Row("climb-emc", "emc", "climb-multi", ".5 (ten of ten)", HALF, 0.04, seeds=10),
    Row("climb-qmix", "qmix", "climb-multi", ".50 ± .00", HALF, 0.06, seeds=3, tasks=5),
    Row("climb-maven", "maven", "climb-multi", ".50 ± .00", HALF, 0.06, seeds=3, tasks=5),
    Row("climb-maddpg", "maddpg", "climb-multi", ".50 ± .00", HALF, 0.03, seeds=3, tasks=5),
    Row("climb-mappo", "mappo", "climb-multi", ".54 ± .05", ((0.54, 0.05),), 0.03, seeds=3, tasks=5),
    Row("2a4l", "emc", "mpe-2a4l", FOUR, (SAFE, OPTIMUM), 1.2, seeds=4),
    Row("2a4l-sum", "emc", "mpe-2a4l", FOUR, (SAFE, OPTIMUM), 1.2, seeds=4, settings=BY_SUM),
    Row("2a5l", "emc", "mpe-2a5l", "50.49 ± 17.26", (SAFE, OPTIMUM), 1.2, seeds=3),
    Row("2a5l-shared", "emc", "mpe-2a5l", "36.3", (SAFE, OPTIMUM), 1.1, settings=(*BY_SUM, *SHARED)),
    Row(
        "3a4l-games",
        "emc",
        "mpe-3a4l",
        "34.3",
        ((34.3, 3.0), (67.3, 4.0)),
        0.8,
        settings=(*BY_SUM, *SHARED, *AS_IN_GAMES),
    ),
    Row("3a5l", "emc", "mpe-3a5l", "36.63 ± .11", (SAFE, OPTIMUM), 1.7, seeds=3),
    Row(
        "2a3l-qmix",
        "qmix",
        "mpe-2a3l",
        ".01",
        (NOTHING,),
        0.15,
        settings=("--algorithm.share-agents", "true", "--schedule.total-steps", "1500000"),
    ),
    Row("2a5l-qmix", "qmix", "mpe-2a5l", ".21 ± .04", (NOTHING,), 0.3, seeds=3),
    Row("2a5l-maven", "maven", "mpe-2a5l", ".06 ± .03", (NOTHING,), 0.4, seeds=3),
    Row("swimmer-emc", "emc", "swimmer", "499.9, 499.7, 499.7, 499.5, 499.3", ((500.0, 5.0),), 2.0, seeds=5),
)


def planned(words: list[str]) -> list[dict[str, Any]]:
    """The runs of a sweep, and what there is of them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = mesax([*words, "--plan", "--json"])
    if code:
        raise SystemExit(code)
    runs: list[dict[str, Any]] = json.loads(printed.getvalue().splitlines()[-1])["runs"]
    return runs


def results_of(row: Row, seeds: Sequence[int] | None, steps: int | None) -> list[Kept]:
    """What the store has of a row, by its settings, whatever run directories there are."""
    with tempfile.TemporaryDirectory() as nothing:
        runs = planned(row.sweep(seeds or range(row.seeds), Path(nothing), steps))
    return [read_kept(Path(run["run_dir"])) for run in runs if run["state"] == "stored"]


def endings(kept: Kept) -> list[float]:
    """Final return of every task: the mean of the last five tests, as in the logs."""
    return [float(task["final_return"]) for task in kept.facts["per_task"]]


def beside(row: Row, results: Sequence[Kept]) -> tuple[str, ...]:
    """A line of the table."""
    found = np.array([final for kept in results for final in endings(kept)])
    if not found.size:
        return (row.name, f"{row.method} {row.env}", row.recorded, "", "", "")
    hours = sum(kept.core_seconds or 0.0 for kept in results) / 3600
    met = sum(map(row.met, found))
    shown = ", ".join(f"{final:.3g}" for final in found)
    cost = f"{hours / len(results):.2g} h"
    return (row.name, f"{row.method} {row.env}", row.recorded, shown, f"{met} of {found.size}", cost)


def main() -> None:
    """Say what is to be done, do it, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--seeds", nargs="+", type=int, help="only these of each row")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, a core each")
    parser.add_argument("--out", type=Path, default=Path("runs") / "recorded", help="where run directories go")
    parser.add_argument("--steps", type=int, help="only so many steps of each run: the first of a longer one")
    parser.add_argument("--plan", action="store_true", help="only say what there is to do, and compare what is there")
    options = parser.parse_args()
    sweeps = {
        row: row.sweep(options.seeds or range(row.seeds), options.out, options.steps)
        for row in ROWS
        if row.name in options.rows
    }
    total = 0.0
    for row, words in sweeps.items():
        left = sum(run["state"] not in ("finished", "stored") for run in planned(words))
        total += left * row.core_hours
        print(f"{row.name:<12} {left} runs to do, {left * row.core_hours:.2g} core hours", flush=True)
    print(f"{'in all':<12} {total:.2g} core hours", flush=True)
    for words in () if options.plan else sweeps.values():
        code = mesax([*words, "--at-once", str(options.workers), "--workers", "1", "--quiet"])
        if code:
            raise SystemExit(code)
    rows = [beside(row, results_of(row, options.seeds, options.steps)) for row in sweeps]
    columns = ("row", "run", "recorded", "here", "at a recorded level", "core time of a seed")
    note = "Final returns: the mean of the last five tests. Several tasks of a seed are shown one by one."
    print(to_markdown(Table("Recorded outcomes", columns, tuple(rows), note)))


if __name__ == "__main__":
    main()
