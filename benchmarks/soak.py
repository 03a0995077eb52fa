"""Kills runs at random moments, again and again, and checks that they go on to the same bytes.

    python benchmarks/soak.py --kills 30 --out soak

For each family: one run that nobody disturbs, then runs that are killed (kill -9, the whole process group) in each of
their stages, at random moments, and resumed until they end. After every kill all files must be readable, checkpoints
and policies intact. At the end the metrics must equal those of the undisturbed run, byte for byte. Then memory and
open files of a long run are watched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

RUNS = {
    "climb-one": ["mesa", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "wide-2a3l": ["mesa", "wide-2a3l", "--preset", "smoke", "--schedule.total-steps", "20000"],
    "swimmer-wide": ["mesa", "swimmer-wide", "--preset", "smoke", "--schedule.total-steps", "1600"],
    "pretrain": ["pretrain", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "cbet": ["cbet", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "goal": ["goal", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "maesn": ["maesn", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
    "plain": ["plain", "climb-one", "--preset", "smoke", "--schedule.total-steps", "3000"],
}
USUAL = ("climb-one", "wide-2a3l", "swimmer-wide")
"""Without being asked for others."""
LONG = ["plain", "climb-one", "--preset", "smoke", "--schedule.total-steps", "2000000"]
MEMORY_BAR, FILES_BAR = 5.0, 2
"""A long run may grow by so many MiB a minute and keep so many files open more, in its second half."""
STAGES = {
    "mesa": ("collect", "explore", "adapt"),
    **dict.fromkeys(("pretrain", "goal", "cbet"), ("pretrain", "adapt")),
    "maesn": ("meta", "adapt"),
    "plain": ("adapt",),
}
"""Of each method."""
PAGES = {"report": ("report.html", "episodes.json"), "compare": ("pages",)}
"""What verbs that look write into a run."""
DETERMINED = ("eval.jsonl", "metrics.jsonl", "coverage.json")


def start(arguments: list[str], workers: int | None, seconds: float, log: Path) -> subprocess.Popen[bytes]:
    """A process group of its own, so that nothing of it survives a kill; `workers` None: of a verb that has none."""
    own = [] if workers is None else ["--workers", str(workers), "--quiet"]
    command = [sys.executable, "-m", "mesax.cli", *arguments, *own]
    environment = os.environ | {"MESAX_CHECKPOINT_SECONDS": str(seconds)}
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stages_of(name: str) -> tuple[str, ...]:
    return STAGES[RUNS[name][0]]


def reaches(process: subprocess.Popen[bytes], run: Path, stage: str, later: tuple[str, ...], changes: int) -> bool:
    """Wait until a stage's files have changed so many times: moments in the work, however slow the machine is.

    Should the stage end before that, its end is the moment.
    """
    before: object = None
    while process.poll() is None:
        now = []
        with contextlib.suppress(OSError):  # files come and go
            now = [(path, path.stat().st_size) for path in sorted((run / "jobs" / stage).rglob("*"))]
        if now and before is not None and now != before:
            changes -= 1
        before = now
        if changes <= 0 or any((run / "jobs" / name).is_dir() for name in later):
            return True
        time.sleep(0.01)
    return False


def unreadable(run: Path) -> list[str]:
    """What a reader would stumble over."""
    from mesax.errors import StoreError
    from mesax.store.run_directory import RunDirectory
    from mesax.store.trees import verify

    problems = []
    for path in run.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(run).parts)
        if hidden or not path.is_file():
            continue
        try:
            if path.name == "manifest.json":
                problems += verify(path.parent)
            elif path.suffix == ".jsonl":
                RunDirectory(path.parent).read_rows(path.name)
            elif path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
        except (StoreError, ValueError) as error:
            problems.append(f"{path}: {error}")
    return problems


def place(run: Path, stages: tuple[str, ...]) -> str:
    """The stage that a run was in, and whether something was saved in the middle of it."""
    for stage in reversed(stages):
        if (run / "jobs" / stage).is_dir():
            saved = any((run / "jobs" / stage).glob("*/checkpoints/0*"))
            return f"{stage}{', saved' if saved else ''}"
    return "start"


def same(one: Path, other: Path) -> list[str]:
    there = [name for name in DETERMINED if (one / name).exists() or (other / name).exists()]
    return [name for name in there if (one / name).read_bytes() != (other / name).read_bytes()]


def written(run: Path, verb: str) -> dict[str, bytes]:
    """What a verb that looks has written, by name."""
    roots = [run / name for name in PAGES[verb]]
    files = [path for root in roots for path in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return {str(path.relative_to(run)): path.read_bytes() for path in files if path.is_file()}


def disturb_pages(run: Path, verb: str, log: Path, draw: random.Random) -> list[str]:
    """Kill a verb that looks at a random moment: what it had written is whole, and in the end it is the same."""
    words = [verb, str(run), *(["--out", str(run / "pages")] if verb == "compare" else [])]
    begun = time.monotonic()
    assert start(words, None, 60.0, log).wait() == 0, f"see {log}"
    seconds, expected = time.monotonic() - begun, written(run, verb)
    for name in PAGES[verb]:
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).unlink(missing_ok=True)
    process = start(words, None, 60.0, log)
    time.sleep(draw.uniform(0.3, 1.0) * seconds)
    kill(process)
    half = written(run, verb)
    assert start(words, None, 60.0, log).wait() == 0, f"see {log}"
    bad = [f"{verb} leaves half of {name}" for name, data in half.items() if data != expected.get(name)]
    return bad if written(run, verb) == expected else [*bad, f"{verb} does not end in the same"]


def disturb(
    name: str, kills: int, out: Path, workers: int, draw: random.Random, change: bool = False, pages: bool = False
) -> dict[str, object]:
    """Kill runs of one family, each once in every stage, until there were enough kills; then let them end.

    Every attempt may have another number of workers. Of runs that have ended, `report` and `compare` may be killed.
    """
    whole = out / f"{name}-whole"
    log = out / f"{name}.log"
    if not (whole / "checksums.json").is_file():
        shutil.rmtree(whole, ignore_errors=True)
        assert start(["run", *RUNS[name], "--out", str(whole)], workers, 60.0, log).wait() == 0, f"see {log}"
    done, places, problems, different, resumed, number = 0, [], [], [], 0, 0
    while done < kills:
        run = out / f"{name}-{number:02d}"
        number += 1
        shutil.rmtree(run, ignore_errors=True)
        arguments = ["run", *RUNS[name], "--out", str(run)]
        left = list(stages_of(name))
        while True:
            process = start(arguments, draw.randint(1, workers) if change else workers, 0.05, log)
            stage = left.pop(0) if left and done < kills else None
            if stage and reaches(process, run, stage, tuple(left), draw.randint(1, 8)):
                time.sleep(draw.uniform(0.0, 0.3))
                kill(process)
                done += 1
                places.append(place(run, stages_of(name)))
                problems += unreadable(run)
                print(f"{name}: kill {done} of {kills} in {places[-1]}", flush=True)
            else:
                assert process.wait() == 0, f"a run of {name} ended with {process.returncode}; see {log}"
                break
            resumed += (run / "run.json").is_file()
            arguments = ["resume", str(run)] if (run / "run.json").is_file() else arguments
        different += same(whole, run)
        for verb in PAGES if pages else ():
            if done < kills:
                different += disturb_pages(run, verb, log, draw)
                done += 1
                places.append(verb)
                print(f"{name}: kill {done} of {kills} in {verb}", flush=True)
    return {
        "kills": done,
        "resumed": resumed,
        "runs": number,
        "unreadable": problems,
        "different": different,
        "where": {place: places.count(place) for place in sorted(set(places))},
    }


def watch(out: Path) -> dict[str, float]:
    """Memory and open files of a long run, over its second half."""
    run = out / "long"
    shutil.rmtree(run, ignore_errors=True)
    process = start(["run", *LONG, "--out", str(run)], 1, 0.5, out / "long.log")
    samples = []
    while process.poll() is None:
        try:
            memory = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            samples.append((time.monotonic(), memory, len(os.listdir(f"/proc/{process.pid}/fd"))))
        except (OSError, IndexError):
            break
        time.sleep(0.25)
    assert process.wait() == 0
    half = samples[len(samples) // 2 :]
    minutes = (half[-1][0] - half[0][0]) / 60
    third = max(1, len(half) // 3)
    growth = sum(s[1] for s in half[-third:]) / third - sum(s[1] for s in half[:third]) / third
    return {
        "minutes": minutes,
        "memory_mib": half[-1][1],
        "memory_growth_mib_per_minute": growth / (minutes * 2 / 3),  # between the middles of its first and last third
        "open_files_growth": half[-1][2] - half[0][2],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="in all, over the families")
    parser.add_argument("--families", nargs="+", choices=RUNS, default=list(USUAL))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--change-workers", action="store_true", help="each attempt has another number, up to --workers"
    )
    parser.add_argument("--pages", action="store_true", help="kill `report` and `compare`, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--no-watch", action="store_true", help="leave the long run out")
    text = "random calls on damaged runs, with wrong words and worlds that misbehave, instead of kills (`hostile.py`)"
    parser.add_argument("--hostile", action="store_true", help=text)
    parser.add_argument("--calls", type=int, default=500, help="of --hostile")
    parser.add_argument("--damage", action="store_true", help="instead, every file of a run that is not finished")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="of --hostile: this call alone")
    options = parser.parse_args()
    if options.hostile:
        from hostile import attack

        return attack(options.out.resolve() / "hostile", options.calls, options.seed, options.only)
    if options.damage:
        from hostile import damage_unfinished

        return damage_unfinished(options.out.resolve() / "hostile", options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)
    share = -(-options.kills // len(options.families))
    found: dict[str, object] = {}
    for name in options.families:
        more = (options.change_workers, options.pages)
        found[name] = disturb(name, share, options.out, options.workers, draw, *more)
        print(json.dumps({name: found[name]}), flush=True)
    bad = [name for name in options.families if found[name]["unreadable"] or found[name]["different"]]  # type: ignore[index]
    leaks = False
    if not options.no_watch:
        found["long run"] = seen = watch(options.out)
        leaks = seen["memory_growth_mib_per_minute"] > MEMORY_BAR or seen["open_files_growth"] > FILES_BAR
    print(json.dumps(found, indent=1))
    print("all runs went on to the same bytes" if not bad else f"NOT THE SAME: {', '.join(bad)}")
    print("A LONG RUN GROWS" if leaks else "")
    return 1 if bad or leaks else 0


if __name__ == "__main__":
    raise SystemExit(main())
