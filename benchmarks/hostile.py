"""Random calls of the command line, by an attacker and by an unlucky user: `python benchmarks/soak.py --hostile`.

Each call is drawn from the seed and its number alone, so that it can be made again (`--only NUMBER`). It finds a place
with a finished run, one of another seed, one that was stopped, a store of results and a bundle, of which files may have
been cut, flipped, exchanged, removed, or replaced by a link or a pipe; its words may be wrong; its environment, too.
It must end in time, with one of the exit codes and no traceback; tell what is wrong in lines of its own; write nothing
outside; and show, where it ends with code 0, the numbers that were there before anything was damaged.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

SECONDS = 300
"""After which a call counts as one that never ends; the machine may be busy."""
FRESH = 0.05
"""Share of calls in a process of their own; the others share one, which saves loading JAX."""
CODES = (0, 1, 2, 70, 71, 74, 75, 130)
"""The last one where a world raises what Ctrl-C does."""
CLOCKS = ("wall_seconds", "env_steps_per_second", "run_dir", "seconds", "time", "cpu_seconds")
SMALL = ["--preset", "smoke", "--num-test-tasks", "2", "--quiet", "--workers", "1"]
RUN = ["mesa", "climb-one", *SMALL, "--schedule.total-steps", "4000"]
WORLD = """
import os
import gymnasium
import numpy as np
from gymnasium import spaces


class World(gymnasium.Env):
    max_steps = 5

    def __init__(self, seed, trick):
        self.observation_space = spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32),) * 2)
        self.action_space = spaces.Tuple((spaces.Discrete(3),) * 2)
        self.paid, self.trick, self.steps = seed % 3, trick, 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.seen(), {}

    def seen(self):
        return (np.full(2, self.time / 10, np.float32),) * 2

    def step(self, action):
        self.time, self.steps = self.time + 1, self.steps + 1
        reward = float(action[0] == self.paid)
        if self.steps == 37:
            if self.trick == "exit":
                raise SystemExit(3)
            if self.trick == "leave":
                os._exit(0)
            if self.trick == "raise":
                raise ValueError("\\x1b[31mred\\nand more")
            if self.trick == "interrupt":
                raise KeyboardInterrupt
            if self.trick == "nan":
                reward = float("nan")
            if self.trick == "text":
                reward = "much"
            if self.trick == "move":
                os.chdir("/")
            if self.trick == "shape":
                return (np.zeros(3, np.float32),) * 2, 0.0, False, False, {}
            if self.trick == "none":
                return None
        return self.seen(), reward, False, self.time >= self.max_steps, {}


def made(trick):
    def make(seed):
        return World(seed, trick)

    make.__qualname__ = make.__name__ = trick
    return make


TRICKS = ("fair", "exit", "leave", "raise", "interrupt", "nan", "text", "move", "shape", "none")
globals().update({trick: made(trick) for trick in TRICKS})
no_function, nothing = 3, None
"""
TRICKS = ("fair", "exit", "leave", "raise", "interrupt", "nan", "text", "move", "shape", "none", "no_function", "no")
JUNK = (
    *("", "-1", "0", "1", "3", "nan", "inf", "1e999", "9" * 400, "x" * 5_000, "None", "{}", "%s", "a b", "--", "-d2"),
    *("\x1b[31mred", "../..", "/dev/full", "/dev/null", "/proc/self/mem", "missing/deeper", "\N{FOX FACE}", "\udcff"),
    *(
        "--json",
        "--quiet",
        "--seed",
        "--out",
        "--workers",
        "--family.delta",
        "--algorithm",
        "--method.reward.decay-power",
    ),
)
ENVIRONMENT = {
    "MESAX_CHECKPOINT_SECONDS": ("0", "nan", "-1", "1e999", "soon"),
    "MESAX_GRACE_SECONDS": ("0", "never"),
    "MESAX_THREADS": ("0", "2", "many", "9" * 30),
    "COLUMNS": ("1", "0", "-5", "wide", "100000"),
    "TERM": ("dumb", "", "\x1b"),
    "NO_COLOR": ("1",),
    "MPLBACKEND": ("nonsense",),
}


def command(words: list[str], directory: Path, **options: Any) -> int:
    """`mesax` as a command of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mesax.cli", *words], cwd=directory, check=False, timeout=SECONDS, **options
    ).returncode


def prepared(out: Path) -> Path:
    """What every call finds a copy of."""
    material = out / "material"
    if (material / "complete").is_file():
        return material
    shutil.rmtree(material, ignore_errors=True)
    material.mkdir(parents=True)
    (material / "world.py").write_text(WORLD)
    for name, seed in (("finished", "0"), ("other", "1")):
        assert command(["run", *RUN, "--seed", seed, "--out", name], material, stdout=subprocess.DEVNULL) == 0
    for name, seed in (("stopped", "0"), ("stopped-other", "1")):
        words = [sys.executable, "-m", "mesax.cli", "run", *RUN, "--seed", seed, "--out", name]
        frequent = os.environ | {"MESAX_CHECKPOINT_SECONDS": "0"}
        with subprocess.Popen(words, cwd=material, env=frequent, stdout=subprocess.DEVNULL) as process:
            while not any((material / name / "jobs" / "adapt").glob("*/checkpoints/00000[2-9]")):
                assert process.poll() is None, "the run was to be stopped before its end"
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 75, "the run was to be stopped before its end"
    (material / "results").mkdir()
    subprocess.run([sys.executable, "-c", KEEP, "finished", "results"], cwd=material, check=True)
    assert command(["export", "finished", "--out", "bundle"], material, stdout=subprocess.DEVNULL) == 0
    (material / "complete").touch()
    return material


KEEP = """
import sys
from pathlib import Path
from mesax.results.evidence.kept import keep
keep(*map(Path, sys.argv[1:]))
"""
PLACES = ("finished", "other", "stopped", "results", "bundle", "missing", "world.py", ".")


def drawn_words(draw: random.Random) -> list[str]:
    """What somebody types: right in most of its parts."""
    run = draw.choices(PLACES, [20, 4, 14, 1, 1, 1, 1, 1])[0]
    another = draw.choices(PLACES, [6, 6, 2, 2, 1, 1, 1, 1])[0]
    world = f"world:{draw.choice(TRICKS)}"
    env = draw.choice(["climb-one", "climb-one", world, "swimmer", "climb", "wide-2a3l", "mpe-9a9l"])
    method = draw.choice(["mesa", "vdn", "plain", "mesa+qmix", "meza", "uniform", "mappo"])
    number = draw.choice(["0", "1", "2", "7", "-1", "1000000"])
    words = {
        "list": ["list", *draw.choice([[], [method], [method, env], ["--deviations"]])],
        "run": ["run", "vdn", world, *SMALL, "--schedule.total-steps", "200", "--lanes", "1", "--out", "new"],
        "reuse": ["run", *RUN, "--out", run, "--reuse", "--json"],
        "refused": ["run", method, env, "--preset", "smoke", "--schedule.total-steps", draw.choice(JUNK), "--out", run],
        "resume": ["resume", run, "--json", "--quiet", "--workers", "1"],
        "eval": ["eval", run, "--episodes", draw.choice(["2", number]), "--json"],
        "render": ["render", run, "--task", number, "--policy", draw.choice(["final", "best", "explorer-1", "nobody"])],
        "compare": ["compare", run, another, "--json"],
        "report": ["report", run, "--no-episodes", "--out", draw.choice(["page.html", "deeper/page.html", run])],
        "export": ["export", run, "--to", draw.choice(["bundle", "csv"]), "--out", draw.choice(["new", another])],
        "status": ["status", draw.choice([run, "."]), "--json"],
        "verify": ["verify", run],
        "check": ["env", "check", world, "--seeds", draw.choice(["2", number]), "--steps", "20"],
        "plan": ["sweep", "--methods", method, "vdn", "--envs", env, "--preset", "smoke", "--plan", "--out", run],
        "store": ["sweep", "--methods", "mesa", "--envs", "climb-one", "--plan", "--results", run, "--json"],
        "reproduce": ["reproduce", draw.choice(["table-2", "figure-4", "figure-5", "all"]), "--plan", "--results", run],
    }
    weights = [1, 3, 3, 3, 6, 4, 3, 5, 4, 3, 4, 5, 3, 3, 2, 1]
    return words[draw.choices(list(words), weights)[0]]


def mutated(words: list[str], draw: random.Random) -> list[str]:
    """The same with a few mistakes."""
    words = list(words)
    for _ in range(draw.choices([0, 1, 2, 4], [20, 3, 2, 1])[0]):
        place = draw.randrange(len(words) + 1)
        change = draw.choice(["drop", "twice", "junk", "more", "swap"])
        if change == "more" or place == len(words):
            words.insert(place, draw.choice(JUNK))
        elif change == "drop" and len(words) > 1:
            del words[place]
        elif change == "twice":
            words.insert(place, words[place])
        elif change == "swap":
            other = draw.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        else:
            words[place] = draw.choice(JUNK)
    return [word for word in words if word not in ("--watch", "doctor", "theory", "--run", "--on")]


def damage(place: Path, draw: random.Random) -> str:
    """Do something to a file; says what."""
    tree = place / draw.choices(["finished", "stopped", "results", "bundle"], [5, 5, 1, 1])[0]
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    path = draw.choice(files)
    data = path.read_bytes()
    how = draw.choice(["cut", "flip", "gone", "exchanged", "link", "pipe", "folder", "number", "red", "deep", "empty"])
    if how == "cut":
        path.write_bytes(data[: draw.randrange(len(data) + 1)])
    elif how == "flip" and data:
        where = draw.randrange(len(data))
        path.write_bytes(data[:where] + bytes([data[where] ^ (1 << draw.randrange(8))]) + data[where + 1 :])
    elif how == "exchanged":
        path.write_bytes(draw.choice(files).read_bytes())
    elif how == "number":
        path.write_bytes(data.replace(b": 0", b": 1e999", 1).replace(b"1", b"7" * draw.choice([1, 400]), 1))
    elif how == "red":
        path.write_bytes(data.replace(b'"', b'"\\u001b[31m', draw.randrange(9)))
        path.with_name("\x1b[31mred").touch()
    elif how == "deep":
        path.write_bytes(b'{"a":' * 100_000)
    elif how == "empty":
        path.write_bytes(b"")
    elif how in ("gone", "link", "pipe", "folder"):
        path.unlink()
        make = {"link": lambda: path.symlink_to("/etc/passwd"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
        make.get(how, lambda: None)()
    return f"{path.relative_to(place)}: {how}"


class Server:
    """A process that does calls one after another."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def call(self, words: list[str], directory: Path, environment: dict[str, str]) -> int | str:
        """The exit code, or what happened instead."""
        if self.process is None:
            command = [sys.executable, __file__, "--serve"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self.process.stdin and self.process.stdout
        order = {"words": words, "directory": str(directory), "environment": environment}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            return int(answer)
        code = self.process.poll() if ready else None
        self.close()
        if ready:  # it ended: that is told by its last words
            return self.ended if code is None else code
        return "HANGS"

    def close(self) -> None:
        """End it, whatever it does."""
        self.ended: int | str = "DIED"
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.ended = self.process.wait(timeout=2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None


def serve() -> None:
    """Do calls that are read from standard input."""
    from mesax.cli.parser import main

    orders, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    usual, path, at_home = dict(os.environ), list(sys.path), os.getcwd()
    for line in orders:
        order = json.loads(line)
        os.chdir(order["directory"])
        os.environ.update(order["environment"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"../{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        try:
            code = main(order["words"])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(at_home)
        os.environ.clear()
        os.environ.update(usual)
        sys.path[:] = path
        sys.modules.pop("world", None)
        answers.write(f"{code}\n")
        answers.flush()


def fresh(words: list[str], directory: Path, environment: dict[str, str]) -> int | str:
    """The same in a process of its own."""
    with open(directory.parent / "out", "wb") as out, open(directory.parent / "err", "wb") as err:
        try:
            return command(words, directory, env=os.environ | environment, stdout=out, stderr=err)
        except subprocess.TimeoutExpired:
            return "HANGS"


def without_clocks(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_clocks(entry) for name, entry in value.items() if name not in CLOCKS}
    return [without_clocks(entry) for entry in value] if isinstance(value, list) else value


def numbers(text: str) -> object:
    """What a call with `--json` has found out, without clocks; None if it says nothing."""
    lines = text.strip().splitlines()
    with contextlib.suppress(ValueError, IndexError):
        return without_clocks(json.loads(lines[-1]))
    return None


def listing(place: Path) -> list[tuple[str, int]]:
    """Every file, with its time."""
    return sorted((str(path), path.lstat().st_mtime_ns) for path in place.rglob("*"))


def wrong(code: int | str, out: str, err: str, words: list[str]) -> list[str]:
    """What no call may do."""
    found = [] if code in CODES else [f"ends with {code}"]
    found += [f"says {word!r}" for word in ("Traceback (most recent", "this is unexpected") if word in out + err]
    found += ["writes letters that a terminal obeys"] if set("\x1b\x07") & set(out + err) else []
    said = "mesax: " in err or (words[:1] in (["verify"], ["env"]) and out) or not words
    return found + ([] if code == 0 or said else ["does not say why"])


def attack(out: Path, calls: int, seed: int, only: int | None) -> int:
    """Make the calls, and say which of them did what none may do."""
    material, place = prepared(out), out / "call" / "here"
    before, server, failures = listing(material), Server(), 0
    ends: Counter[str] = Counter()
    truth: dict[tuple[str, ...], object] = {}
    started = time.monotonic()
    for number in range(calls) if only is None else [only]:
        draw = random.Random(f"{seed} {number}")
        words = drawn_words(draw)
        typed = mutated(words, draw)
        environment = {
            name: draw.choice(values) for name, values in ENVIRONMENT.items() if draw.random() < 0.5 / len(ENVIRONMENT)
        }
        harm = draw.choices([0, 1, 3], [3, 5, 1])[0]
        is_judged = typed == words and words[0] in ("eval", "compare", "resume", "run") and "--json" in words
        if is_judged and harm and tuple(words) not in truth:
            copied(material, place)
            code = server.call(words, place, {})
            truth[tuple(words)] = numbers((place.parent / "out").read_text(errors="replace")) if code == 0 else code
        copied(material, place)
        harmed = [damage(place, draw) for _ in range(harm)]
        do = fresh if draw.random() < FRESH else server.call
        clock = time.monotonic()
        code = do(typed, place, environment)
        seconds = time.monotonic() - clock
        shown, told = ((place.parent / name).read_text(errors="replace") for name in ("out", "err"))
        bad = wrong(code, shown, told, typed)
        if is_judged and harm and code == 0 and numbers(shown) != truth[tuple(words)]:
            bad.append("shows another number with code 0")
        if listing(material) != before:
            bad.append("writes outside")
        ends[f"{words[0]} {code}"] += 1
        if bad or only is not None:
            failures += bool(bad)
            print(f"call {number}: {json.dumps(typed)} {environment} [{'; '.join(harmed)}] {code}, {seconds:.1f} s")
            print(f"  {'; '.join(bad) or 'as it must be'}\n  {told[-600:]}", flush=True)
        elif number % 50 == 49:
            print(f"{number + 1} calls, {failures} failures, {time.monotonic() - started:.0f} s", flush=True)
    server.close()
    print(json.dumps({"calls": sum(ends.values()), "seed": seed, "codes": dict(ends), "failures": failures}))
    return 1 if failures else 0


DETERMINED = ("eval.jsonl", "metrics.jsonl", "coverage.json")
HOWS = ("cut", "flipped", "another run's", "deleted")
WHEN = ("at rest", "while it runs", "while it runs")


def damage_unfinished(out: Path, seed: int) -> int:
    """Every kind of file of a run that was stopped, in every way, before and while it goes on: none gives a wrong
    number with code 0."""
    material, place, server = prepared(out), out / "call" / "here", Server()
    expected = [(material / "finished" / name).read_bytes() for name in DETERMINED]
    draw, wrongs, ends, started = random.Random(seed), 0, Counter[str](), time.monotonic()
    stopped = material / "stopped"
    files = sorted(path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file())
    kinds = {re.sub(r"\d+", "N", str(name)): name for name in files}
    copied(material, place)
    assert server.call(["resume", "stopped", "--quiet", "--workers", "1"], place, {}) == 0
    begun = time.monotonic()
    copied(material, place)
    assert server.call(["resume", "stopped", "--quiet", "--workers", "1"], place, {}) == 0
    usual = time.monotonic() - begun
    for name in kinds.values():
        for how in HOWS:
            for when in WHEN:
                copied(material, place)
                run = place / "stopped"
                harm = threading.Timer(draw.uniform(0.0, usual) * (when != "at rest"), spoil, (run, name, how, draw))
                harm.start()
                if when == "at rest":
                    harm.join()
                code = server.call(["resume", "stopped", "--quiet", "--workers", "1"], place, {})
                harm.cancel()
                harm.join()
                told = (place.parent / "err").read_text(errors="replace")
                found = [(run / name).read_bytes() if (run / name).is_file() else b"" for name in DETERMINED]
                is_right = code == 0 and found == expected
                if code == 0 and not is_right and server.call(["verify", "stopped"], place, {}) == 74:
                    code, told = 74, "mesax: "  # it came after the end, and every reader is told
                ends[f"{when}: {'the same bytes' if is_right else code}"] += 1
                if not is_right and (code not in (2, 74) or wrong(code, "", told, ["resume"])):
                    wrongs += 1
                    print(f"{name} {how} {when}: {code} {told[-400:]}", flush=True)
    server.close()
    print(f"{len(kinds)} kinds of files x {len(HOWS)} ways x {len(WHEN)} times: {dict(ends)}, {wrongs} wrong", end="; ")
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if wrongs else 0


def spoil(run: Path, name: Path, how: str, draw: random.Random) -> None:
    """Do that to a file, if it is there at this moment."""
    path = run / name
    others = [run.parent / other / name for other in ("stopped-other", "other")]
    with contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
        if how == "deleted":
            path.unlink()
        elif how == "cut":
            os.truncate(path, draw.randrange(len(data) + 1))
        elif how == "flipped" and data:
            where = draw.randrange(len(data))
            path.write_bytes(data[:where] + bytes([data[where] ^ (1 << draw.randrange(8))]) + data[where + 1 :])
        elif how == "another run's":
            path.write_bytes(next((other.read_bytes() for other in others if other.is_file()), b""))


def copied(material: Path, place: Path) -> None:
    """A fresh place."""
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(material, place)


if __name__ == "__main__":
    assert sys.argv[1:] == ["--serve"], "python benchmarks/soak.py --hostile"
    serve()
