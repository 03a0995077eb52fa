"""Has a change of the code changed a result? Digests of every named configuration, and sums of three short runs' rows.

    python benchmarks/fingerprints.py            print them
    python benchmarks/fingerprints.py --check    compare them with results/fingerprints.json; 1 if any changed or went
    python benchmarks/fingerprints.py --write    accept them

A digest stands for all settings of a run and changes with their names; a sum stands for every evaluation of a climb
game, a particle world and the swimmer, so it changes when any number does. Sums depend on processor and versions:
compare two states of the code on one machine.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

STORED = Path(__file__).resolve().parent.parent / "results" / "fingerprints.json"
SMOKE_RUNS = (("mesa", "climb-multi-mixed"), ("mesa", "wide-3a5l"), ("mesa", "swimmer-wide"))
ROWS = ("eval.jsonl", "metrics.jsonl")


def digests() -> dict[str, str]:
    """Of every method, with every learner that it wraps, in every environment and preset."""
    from mesax.experiments.catalogue import experiment
    from mesax.experiments.names import AROUND_ANY, ENVIRONMENTS, PRESETS, WRAPPERS
    from mesax.experiments.overrides import digest
    from mesax.suites.registry import suite_of

    found = {}
    for environment, preset in product(ENVIRONMENTS, PRESETS):
        learners = suite_of(environment).preset(environment, preset).by_name
        wrapped = [name for name, entry in learners.items() if entry.algorithm.needs_replay]
        names = [(method, None) for method in (*WRAPPERS, *learners)] + list(product(AROUND_ANY, wrapped))
        for method, learner in names:
            name = method if learner is None else f"{method}+{learner}"
            found[f"{name} {environment} {preset}"] = digest(experiment(method, environment, preset, learner))
    return found


def sums() -> dict[str, str]:
    """SHA-256 of the rows that short runs write."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for method, environment in SMOKE_RUNS:
            run = Path(place) / environment
            command = [sys.executable, "-m", "mesax.cli", "run", method, environment, "--preset", "smoke", "--quiet"]
            subprocess.run([*command, "--out", str(run)], check=True, stdout=subprocess.DEVNULL)
            for name in ROWS:
                found[f"{method} {environment} smoke {name}"] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    return found


def main() -> int:
    """Print, compare or accept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {"digests": digests(), "sums": sums()}
    if options.write:
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not options.check:
        print(json.dumps(found, indent=1))
        return 0
    return 1 if differs(json.loads(STORED.read_text(encoding="utf-8")), found) else 0


def differs(stored: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> bool:
    """Whether anything stored has changed or is gone, with a line about each; what is new is printed and allowed."""
    lost = 0
    for kind, expected in stored.items():
        now = found[kind]
        changed = [name for name in expected if now.get(name) != expected[name]]
        print(f"{kind}: {len(expected) - len(changed)} of {len(expected)} as stored")
        for name in changed:
            print(f"  {name}: {expected[name]} stored, {now.get(name, 'absent')} now")
        for name in (name for name in now if name not in expected):
            print(f"  {name}: new")
        lost += len(changed)
    return lost > 0


if __name__ == "__main__":
    raise SystemExit(main())
