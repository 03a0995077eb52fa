"""Kills workers, nodes and drivers of runs on a two-node Ray cluster, and checks that they end in the same bytes.

    python benchmarks/ray_soak.py --kills 12 --out runs/ray-soak
    python benchmarks/ray_soak.py --kills 30 --kinds worker node driver --results results/ray-soak.json

For each family: one run in one process that nobody disturbs, then runs on the cluster, with and without shared files in
turn. Each is disturbed once in every stage, at a random moment of its work: a worker is killed (kill -9), a node with
all that belongs to it, the driver (which is then resumed), or a worker is halted (SIGSTOP), which only a heartbeat
notices. Kinds come in a random order, all equally often. At the end the results must equal those of the undisturbed run
byte for byte, and of each run nothing may be left: no process, no attempt's directory. The cluster lives in namespaces
of its own (benchmarks/two_nodes.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import two_nodes
from two_nodes import ADDRESS, Cluster, inner, kill

RUNS = {
    "climb-one": ["mesa", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "wide-2a3l": ["mesa", "wide-2a3l", "--preset", "smoke", "--schedule.total-steps", "20000"],
}
STAGES = ("collect", "explore", "adapt")
KINDS = ("worker", "node", "driver", "halt")
DETERMINED = ("eval.jsonl", "metrics.jsonl", "coverage.json")
OFTEN = {"MESAX_CHECKPOINT_SECONDS": "0.2", "MESAX_HEARTBEAT_SECONDS": "30"}
PROGRAM = [sys.executable, "-m", "mesax.cli"]
LONGEST = 1800.0


def begin(cluster: Cluster, arguments: list[str], out: Path) -> subprocess.Popen[bytes]:
    return cluster.popen([*PROGRAM, *arguments, "--quiet"], out / "driver.log", OFTEN)


def at_work(run: Path, stage: str) -> bool:
    """Whether something of a stage has come to the driver: it is being done, and was saved at least once."""
    return any((run / "jobs" / stage).glob("*/*")) if (run / "jobs" / stage).is_dir() else False


def reaches(driver: subprocess.Popen[bytes], cluster: Cluster, run: Path, stage: str) -> bool:
    """Wait until a stage is at work; False if the run ends before."""
    while driver.poll() is None:
        if at_work(run, stage) and cluster.workers():
            return True
        time.sleep(0.02)
    return False


def strike(kind: str, cluster: Cluster, driver: subprocess.Popen[bytes], draw: random.Random) -> bool:
    """Do the harm; False if there is nobody to do it to."""
    if kind == "driver":
        kill(inner(driver))
        driver.wait()
        return True
    if kind == "node":
        cluster.kill_node(1)
        del cluster.nodes[1]
        cluster.add_node()
        return True
    workers = cluster.workers()
    if workers:
        kill(draw.choice(workers), signal.SIGKILL if kind == "worker" else signal.SIGSTOP)
    return bool(workers)


def disturbed(
    name: str, shared: bool, kinds: list[str], cluster: Cluster, out: Path, draw: random.Random
) -> tuple[list[str], list[str]]:
    """A run that is struck once in each stage: (what was done to it where, what is wrong with it)."""
    run = out / f"{name}-{'shared' if shared else 'store'}-{draw.randrange(10**6)}"
    shutil.rmtree(run, ignore_errors=True)
    where = ["--on", "ray", "--address", ADDRESS, *(["--shared"] if shared else [])]
    driver = begin(cluster, ["run", *RUNS[name], "--out", str(run), *where], out)
    struck = []
    for stage, kind in zip(STAGES, kinds, strict=False):
        if not reaches(driver, cluster, run, stage):
            break
        time.sleep(draw.uniform(0.0, 0.5))
        if driver.poll() is None and strike(kind, cluster, driver, draw):
            struck.append(f"{kind} in {stage}")
            print(f"{run.name}: {struck[-1]}", flush=True)
        if kind == "driver":
            left = cluster.await_nothing_but_nodes()
            if left:
                return struck, [f"left after the driver was killed: {left}"]
            driver = begin(cluster, ["resume", str(run), *where], out)
    code = driver.wait(LONGEST)
    wrong = [f"ended with {code}; see {out / 'driver.log'}"] if code else []
    whole = out / f"{name}-whole"
    if not code:
        there = [file for file in DETERMINED if (whole / file).exists() or (run / file).exists()]
        wrong += [f"{file} differs" for file in there if (whole / file).read_bytes() != (run / file).read_bytes()]
    wrong += [f"left running: {name}" for name in cluster.await_nothing_but_nodes()]
    wrong += [f"left: {path}" for path in (run / ".attempts",) if path.exists()]
    return struck, wrong


def next_kinds(kinds: list[str], done: list[str], draw: random.Random) -> list[str]:
    """What is done in each stage of the next run: the kinds that were done least often, in a random order."""
    often = Counter(kind_of(text) for text in done)
    chosen = sorted(kinds, key=lambda kind: (often[kind], draw.random()))
    chosen = [chosen[index % len(chosen)] for index in range(len(STAGES))]
    draw.shuffle(chosen)
    return chosen


def kind_of(text: str) -> str:
    """`worker` of "worker in collect"."""
    return text.partition(" ")[0]


def command_of(options: argparse.Namespace) -> str:
    """What to type for the same again."""
    words = ["--kills", str(options.kills), "--kinds", *options.kinds, "--families", *options.families]
    return " ".join(["python benchmarks/ray_soak.py", *words, "--seed", str(options.seed)])


def summary(done: list[str], runs: int, good: int, problems: list[str]) -> dict[str, object]:
    """What was done and seen, for people and for pages that quote it."""
    return {
        "kills": dict(sorted(Counter(kind_of(text) for text in done).items())),
        "where": dict(sorted(Counter(done).items())),
        "runs": runs,
        "same_bytes": good,
        "problems": problems,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12, help="in all, over families and kinds")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--families", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/ray-soak"))
    parser.add_argument("--results", type=Path, help="a file for what was done and seen")
    options = parser.parse_args()
    if reason := two_nodes.why_not():
        print(f"cannot be done here: {reason}", file=sys.stderr)
        return 2
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)
    for name in options.families:
        whole = options.out / f"{name}-whole"
        if not (whole / "checksums.json").is_file():
            shutil.rmtree(whole, ignore_errors=True)
            command = [*PROGRAM, "run", *RUNS[name], "--out", str(whole), "--workers", "1", "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    done: list[str] = []
    problems: list[str] = []
    runs = good = 0
    with two_nodes.started() as cluster:
        while len(done) < options.kills and len(problems) < 3:
            name, shared = options.families[runs % len(options.families)], runs // len(options.families) % 2 == 1
            kinds = next_kinds(options.kinds, done, draw)[: options.kills - len(done)]
            struck, wrong = disturbed(name, shared, kinds, cluster, options.out, draw)
            runs, good = runs + 1, good + (not wrong)
            done += struck
            problems += [f"{name}: {text}" for text in wrong]
            print(f"{name}, {'shared files' if shared else 'object store'}: {struck}, wrong: {wrong}", flush=True)
            if not struck:
                break
    told = {"command": command_of(options)} | summary(done, runs, good, problems)
    print(json.dumps(told, indent=1))
    if options.results is not None:
        options.results.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{len(done)} kills in {runs} runs: {good} of {runs} runs ended in the same bytes, nothing left running")
    return 1 if problems or len(done) < options.kills else 0


if __name__ == "__main__":
    raise SystemExit(main())
