"""Every baseline on a small game of its own paper: does it do there what its authors say, and do others not?

    python benchmarks/proofs.py [--games reversed-grid] [--learners emc vdn] [--seeds 0 1]

A learner has several attempts: runs with seeds from 0, or copies of the game that one run with seed 0 learns side by
side, each with nets and draws of its own. Printed is how many of these end with the game solved (by the mean
of the last five evaluations), beside what is asked. Run directories go to runs/proofs and are continued if they are
there; how the attempts ended is written to results/, which is committed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesax.cli.parser import main as mesax
from mesax.suites.registry import suite_of

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path("runs") / "proofs"


@dataclass(frozen=True)
class Proof:
    """A learner on a game, and how many of its attempts are to solve it."""

    game: str
    learner: str
    attempts: int
    least: int = 0
    most: int | None = None
    copies: bool = False
    """Whether attempts are copies in one run, which share a compiled program."""

    @property
    def asked(self) -> str:
        """In words."""
        if self.least == 0 and self.most is None:
            return "nothing"
        return f"at least {self.least}" if self.most is None else f"at most {self.most}"

    def met(self, solved: int) -> bool:
        """Whether so many are as expected."""
        return self.least <= solved <= (self.attempts if self.most is None else self.most)


PROOFS = (
    Proof("reversed-grid", "emc", 5, least=4),
    Proof("reversed-grid", "vdn", 5, most=1),
    Proof("reversed-grid", "qplex", 5, most=1),
    Proof("steps-matrix", "maven", 8, least=6, copies=True),
    Proof("steps-matrix", "qmix", 8, most=3, copies=True),
    Proof("qplex-matrix", "dmaq", 8, least=7, copies=True),
    Proof("qplex-matrix", "qplex", 8, copies=True),
    Proof("qplex-matrix", "qmix", 8, most=0, copies=True),
)


def run(proof: Proof, seed: int, copies: int = 1) -> list[dict[str, Any]]:
    """How the attempts of one run ended, from its directory, which is used if it is there."""
    directory = RUNS / f"{proof.learner}-{proof.game}-quick-seed{seed}"
    words = [
        "run",
        proof.learner,
        proof.game,
        "--num-test-tasks",
        str(copies),
        "--seed",
        str(seed),
        "--out",
        str(directory),
    ]
    with contextlib.redirect_stdout(io.StringIO()):  # its tables are for terminals
        code = mesax([*words, "--reuse", "--workers", "1", "--quiet"])
    if code:
        raise SystemExit(code)
    summary = json.loads((directory / "summary.json").read_text())
    facts = {"seed": seed, "env_steps": summary["env_steps"] // copies}
    return [
        facts | {name: task[name] for name in ("task", "final_return", "steps_to_optimal")}
        for task in summary["per_task"]
    ]


def main() -> None:
    """Run what is asked for, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=sorted({proof.game for proof in PROOFS}))
    parser.add_argument("--learners", nargs="+", default=sorted({proof.learner for proof in PROOFS}))
    parser.add_argument("--seeds", nargs="+", type=int, help="only these; nothing is written to results/")
    options = parser.parse_args()
    for proof in PROOFS:
        if proof.game not in options.games or proof.learner not in options.learners:
            continue
        copies = proof.attempts if proof.copies else 1
        seeds = options.seeds or range(proof.attempts // copies)
        attempts = [attempt for seed in seeds for attempt in run(proof, seed, copies)]
        threshold = suite_of(proof.game).family(proof.game).optimal_threshold
        solved = sum(attempt["final_return"] >= threshold for attempt in attempts)
        verdict = "" if options.seeds else f"{proof.asked}: {'met' if proof.met(solved) else 'MISSED'}"
        returns = ", ".join(f"{attempt['final_return']:.1f}" for attempt in attempts)
        print(f"{proof.game:<14} {proof.learner:<8} solved {solved} of {len(attempts)}  {verdict:<18}  {returns}")
        if not options.seeds:
            facts = {"game": proof.game, "learner": proof.learner, "solved": solved, "asked": proof.asked}
            path = ROOT / "results" / f"proof-{proof.game}-{proof.learner}.json"
            path.write_text(json.dumps({**facts, "attempts": attempts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
