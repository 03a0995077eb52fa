"""Many runs one after another: methods x families x seeds, each in a process of its own. Needs no JAX.

A run's directory is named after what it is, so a sweep that is started again skips what is finished and continues what
is not; a finished run next to it under another name serves too, and so does a result in a store.
A process per run gives all memory back, and keeps a run that dies from taking the others along.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Literal, get_args

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable

from mesax.errors import FAILED, PREEMPTED, WORKER_LOST, DamageError, StoreError, UsageError, plain
from mesax.execution.progress import is_terminal
from mesax.execution.status import RunStatus, fitted, shortened, status_of, status_table
from mesax.experiments.names import method_and_learner
from mesax.formatting import format_duration
from mesax.results.comparison import compare_directories, show_comparison
from mesax.results.evidence.kept import Kept, all_kept, keep, read_kept
from mesax.results.tables import to_rich
from mesax.store.files import held_alone, is_there, open_regular_file, store_errors
from mesax.store.modules import file_name
from mesax.store.run_directory import RunDirectory

State = Literal["new", "unfinished", "finished", "stored", "refused", "damaged"]
STATES: tuple[State, ...] = get_args(State)
Ending = Literal["done", "failed", "stopped", "left"]
Say = Callable[[str], None]
SECONDS_BETWEEN_LOOKS = 0.2
MOST_AT_ONCE = 8
"""Runs at a time on a cluster, unless told otherwise: each has a process on this machine."""
PROGRAM = (sys.executable, "-m", "mesax.cli")
OWN_OPTIONS = {
    "--seed": "--seeds",
    "--preset": "--preset NAME before --",
    "--num-test-tasks": "--num-test-tasks NUMBER before --",
    "--out": "--out DIR before --",
    "--reuse": "nothing: sweeps always do",
}
"""Options of `run` that a sweep sets itself, and what to use in their place."""


@dataclass(frozen=True)
class Grid:
    """What a sweep goes through; `extra` are further options of `mesax run`, passed on as they are."""

    methods: Sequence[str]
    """Names, each with a learner if wanted: `mesa+qmix`."""
    envs: Sequence[str]
    seeds: Sequence[int]
    preset: str = "quick"
    num_test_tasks: int | None = None
    extra: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse options that would make all runs one and the same, or be overruled by the sweep's own."""
        for number, word in enumerate(self.extra):
            if (name := word.partition("=")[0]) in OWN_OPTIONS:
                raise UsageError(f"{name} cannot be passed on to the runs of a sweep; use {OWN_OPTIONS[name]}")
            if name == "--learner":  # directories are named after methods: these would be those of other runs
                learner = word.partition("=")[2] or " ".join(self.extra[number + 1 : number + 2])
                named = dict.fromkeys(f"{method_and_learner(method)[0]}+{learner}" for method in self.methods)
                raise UsageError(f"--learner cannot be passed on to a sweep; write --methods {' '.join(named)}")


@dataclass(frozen=True)
class Planned:
    """One run of a sweep, and what its directory holds already."""

    method: str
    env: str
    path: Path
    arguments: tuple[str, ...]
    """Arguments of `mesax run`, without the directory."""
    state: State
    reason: str = ""
    """Why it is refused or damaged."""
    stale: Path | None = None
    """A result of the same command that was made with other settings."""

    @property
    def is_there(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in ("finished", "stored")

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.path.name

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of `mesax` that do, continue or show it."""
        return ("run", *self.arguments, "--out", str(self.path), "--reuse")


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended."""

    run: Planned
    ending: Ending
    reason: str = ""
    seconds: float = 0.0
    """Spent on it by this sweep."""


@dataclass(frozen=True)
class How:
    """How the runs of a sweep are done."""

    options: tuple[str, ...] = ()
    """Options of `mesax run` that say where its jobs are done."""
    at_once: int = 1
    """Runs at a time."""


def plan(grid: Grid, directory: Path, digest_of: Callable[[list[str]], str]) -> list[Planned]:
    """Every run of the grid, family by family; `digest_of` reads the arguments of `mesax run`, and refuses bad ones."""
    if is_there(directory) and not directory.is_dir():
        raise UsageError(f"--out {directory} is not a directory")
    cells = dict.fromkeys(product(grid.envs, grid.methods, grid.seeds))
    paths = {
        (env, method, seed): directory / file_name(f"{method}-{env}-{grid.preset}-seed{seed}")
        for env, method, seed in cells
    }
    others = _finished_runs(directory, set(paths.values()))
    planned = []
    for (env, method, seed), path in paths.items():
        name, learner = method_and_learner(method)
        chosen = [] if learner is None else ["--learner", learner]
        arguments = [name, env, *chosen, *grid.extra, "--preset", grid.preset, "--seed", str(seed)]
        if grid.num_test_tasks is not None:
            arguments += ["--num-test-tasks", str(grid.num_test_tasks)]
        digest = digest_of(arguments)
        run = Planned(method, env, path, tuple(arguments), *_state_of(path, digest))
        if run.state != "finished" and others.get(digest):
            run = replace(run, path=others[digest].pop(0), state="finished", reason="")
        planned.append(run)
    return planned


def planned_cells(
    cells: Sequence[tuple[str, str, Sequence[str]]], directory: Path, digest_of: Callable[[list[str]], str]
) -> list[Planned]:
    """Single runs instead of a grid: (method, environment, arguments of `mesax run`), in directories by their hash."""
    found = []
    for method, env, arguments in cells:
        digest = digest_of(list(arguments))
        path = directory / file_name(f"{method}-{env}-{digest}")
        found.append(Planned(method, env, path, tuple(arguments), *_state_of(path, digest)))
    return found


def skip_stored(planned: Sequence[Planned], store: Path, is_of: Callable[[Kept, Planned], bool]) -> list[Planned]:
    """The same runs; those whose result is kept in a store are `stored`, those kept with other settings say so."""
    known: dict[str, list[Kept]] = {}
    for one in all_kept(store):
        known.setdefault(file_name(f"{one.method}-{one.env}-{one.preset}-seed{one.seed}"), []).append(one)
    found = []
    for run in planned:
        like = [] if run.is_there else known.get(run.name, [])
        fitting = [one for one in like if is_of(one, run)]
        if fitting:
            found.append(replace(run, path=fitting[0].path, state="stored", reason=""))
        else:
            found.append(replace(run, stale=like[0].path if like else None))
    return found


def _finished_runs(directory: Path, known: set[Path]) -> dict[str, list[Path]]:
    """Finished runs directly below `directory`, by the digest of their configuration; without the `known` ones."""
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        with suppress(UsageError, StoreError):
            if path not in known and (run := RunDirectory.open(path)).status == "done":
                run.check_results()
                found.setdefault(str(run.run.get("config_hash")), []).append(path)
    return found


def _state_of(path: Path, digest: str) -> tuple[State, str]:
    if not path.exists():
        return "new", ""
    try:
        run = RunDirectory.open(path)
    except UsageError as error:
        return "refused", str(error)
    except StoreError as error:
        return "damaged", str(error)
    if run.run.get("config_hash") != digest:
        return "refused", f"{path} holds another configuration ({run.run.get('id', 'unknown')})"
    if run.status != "done":
        return "unfinished", ""
    try:
        run.check_results()
        return "finished", ""
    except StoreError as error:
        return ("unfinished", "") if run.can_be_mended() else ("damaged", str(error))


def show_plan(planned: Sequence[Planned], as_json: bool, options: Sequence[str] = ()) -> int:
    """Say what would be done, as commands that could also be run elsewhere; `options` say who does the jobs of each."""
    for run in planned:
        told = str(run.path) if run.state == "stored" else shlex.join(["mesax", *run.command, *options])
        stale = f"  # {run.stale} is stale: it was made with other settings" if run.stale else ""
        print(f"{run.state:<10}  {run.reason or told}{stale}")
    counts = {state: sum(run.state == state for run in planned) for state in STATES}
    print(f"{_runs(planned)}: " + ", ".join(f"{number} {state}" for state, number in counts.items() if number))
    if as_json:
        runs = [
            {"run": run.name, "run_dir": str(run.path), "state": run.state}
            | {"command": ["mesax", *run.command, *options]}
            | ({"stale": str(run.stale)} if run.stale else {})
            for run in planned
        ]
        print(json.dumps({"runs": runs, **counts}))
    return 0


def sweep(planned: Sequence[Planned], how: How, quiet: bool, as_json: bool, store: Path | None = None) -> int:
    """Do all runs, then compare them; returns the exit code. Nothing is begun if a directory cannot be used.

    What is finished is kept in the `store`, if there is one, run by run: whatever ends a sweep of hours, it is there.
    """
    for state, kind in (("damaged", DamageError), ("refused", UsageError)):
        reasons = [run.reason for run in planned if run.state == state]
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            raise kind(f"{reasons[0]}{more}; choose another directory with --out")
    with _shown(planned, quiet) as say:
        outcomes = do_all(planned, how, say, store)
    done = [outcome.run.path for outcome in outcomes if outcome.ending == "done"]
    unkept = [] if store is None else _keep_all([path for path in done if path.is_dir()], store)
    whole = not any(outcome.ending in ("stopped", "left") for outcome in outcomes)
    compared: dict[str, object] = {"families": [], "note": None}
    if done and whole:
        beside = next((path for path in done if path.is_dir()), Path("runs") / "stored")
        compared = show_comparison(compare_directories(done), beside.parent / "figures")
    failed = [outcome for outcome in outcomes if outcome.ending == "failed"]
    for outcome in failed:
        _say(f"failed   {outcome.run.name}: {outcome.reason}")
    if as_json:
        print(json.dumps({"runs": [_as_json(outcome) for outcome in outcomes], **compared}))
    for error in unkept:
        _say(f"not kept {error}")
    if not whole:
        return PREEMPTED
    if unkept:  # only now: a store that cannot be written to costs nothing else
        raise unkept[0]
    return FAILED if failed else 0


def _keep_all(paths: Sequence[Path], store: Path) -> list[StoreError]:
    """Write all results to the store; returns why some are not there."""
    refused = []
    for path in paths:
        try:
            _say(f"kept     {keep(path, store)}")
        except StoreError as error:
            refused.append(error)
    return refused


@contextmanager
def _shown(planned: Sequence[Planned], quiet: bool) -> Iterator[Say]:
    """How to say what happens: on a terminal as a table that is kept up to date, otherwise in lines."""
    if quiet or not is_terminal(sys.stderr):
        yield (lambda text: None) if quiet else _say
        return
    last = [""]
    console = Console(stderr=True)

    def table() -> RichTable:
        found = [status_of_planned(run) for run in planned]
        whole = status_table(found, "sweep")
        seen = fitted(shortened(found, max(5, console.height - 10)), console.width)
        rows = tuple(one.cells() for one in seen)
        return to_rich(replace(whole, rows=rows, note=f"{whole.note} {last[0]}"))

    with Live(get_renderable=table, console=console, refresh_per_second=1):
        yield lambda text: last.__setitem__(0, text)


def status_of_planned(run: Planned) -> RunStatus:
    """How a run of a sweep is doing; one that has no directory yet waits."""
    if run.state == "stored" or not (run.path / "run.json").is_file():
        return RunStatus(run.name, run.state if run.state == "stored" else "waiting")
    return status_of(RunDirectory(run.path), run.name)


def _as_json(outcome: Outcome) -> dict[str, object]:
    facts: dict[str, object] = {"run": outcome.run.name, "run_dir": str(outcome.run.path), "ending": outcome.ending}
    facts |= {"reason": outcome.reason or None, "seconds": round(outcome.seconds, 3)}
    if outcome.run.state == "stored":
        facts["mean_return"] = read_kept(outcome.run.path).facts["mean_return"]
    elif outcome.ending == "done":
        facts["mean_return"] = RunDirectory(outcome.run.path).read_json("summary.json").get("mean_return")
    return facts


def do_all(planned: Sequence[Planned], how: How, say: Say, store: Path | None = None) -> list[Outcome]:
    """Do what is not finished, whatever becomes of the others; a signal ends what is under way and leaves the rest."""
    waiting = [run for run in planned if not run.is_there]
    outcomes = {run: Outcome(run, "done") for run in planned if run.is_there}
    say(f"{_runs(planned)}, {len(outcomes)} finished already")
    with _received_signals() as received, ThreadPoolExecutor(how.at_once) as threads:

        def do(number: int, run: Planned) -> None:
            if received:
                outcomes[run] = Outcome(run, "left")
                return
            place = f"[{number + 1}/{len(waiting)}] {run.name}"
            say(f"{place}: {'begun' if run.state == 'new' else 'continued'}; see {_log(run)}")
            outcomes[run] = ended = _do(run, how, received, say)
            if store is not None and ended.ending == "done":
                with suppress(StoreError):  # tried again at the end, when it costs no other run
                    keep(run.path, store)
            left = _time_left(list(outcomes.values()), waiting[number + 1 :], how.at_once)
            say(f"{place}: {ended.ending} after {format_duration(ended.seconds)}{left}")

        for done in [threads.submit(do, number, run) for number, run in enumerate(waiting)]:
            done.result()
    return [outcomes[run] for run in planned]


def _do(run: Planned, how: How, received: list[int], say: Say) -> Outcome:
    """One run to its end; a second try if something killed it that was not us."""
    started = time.monotonic()
    with store_errors(run.path.parent, "created"):
        run.path.parent.mkdir(parents=True, exist_ok=True)
    with _own_log(run) as is_ours:
        if not is_ours:
            return Outcome(run, "failed", "another sweep is at work on it")
        code, reason = _attempt(run, how, received)
        if not received and (code < 0 or code == WORKER_LOST):
            say(f"{run.name}: {reason}; once more")
            code, reason = _attempt(run, how, received)
        seconds = time.monotonic() - started
        if code == 0:
            _log(run).unlink(missing_ok=True)
            return Outcome(run, "done", seconds=seconds)
        return Outcome(run, "stopped" if received else "failed", reason, seconds)


@contextmanager
def _own_log(run: Planned) -> Iterator[bool]:
    """Whether the log is ours alone meanwhile: two sweeps may go through the same runs."""
    descriptor = _locked(_log(run))
    with nullcontext() if descriptor is None else held_alone(descriptor):
        yield descriptor is not None


def _locked(path: Path) -> int | None:
    """A descriptor of a log that no other has locked; None if another sweep has."""
    while True:
        with store_errors(path, "written"):
            descriptor = open_regular_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another sweep has just finished the run, and removed its log


def _attempt(run: Planned, how: How, received: list[int]) -> tuple[int, str]:
    """(exit code, one line that says why) of a child that does the run; signals are handed on, each once."""
    command = [*PROGRAM, *run.command, *how.options]
    handed_on = 0  # one that came just now has not been handed on
    # Opened anew: the child must not have the lock, which would outlive this process with it.
    with store_errors(_log(run), "written"), open(_log(run), "w", encoding="utf-8") as log:
        # In a session of its own, or Ctrl-C would reach it twice, and a second signal means "at once, saving nothing".
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        while True:
            for number in received[handed_on:]:
                child.send_signal(number)
                handed_on += 1
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(SECONDS_BETWEEN_LOOKS)
                return code, _reason(run, code)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _reason(run: Planned, code: int) -> str:
    """What the child said last, if it said it the way that `mesax` does."""
    if code < 0:
        return f"was killed by signal {-code}"
    lines = _log(run).read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.removeprefix("mesax: ") for line in lines if line.startswith("mesax: ")]
    return told[-1] if told else f"ended with code {code}; see {_log(run)}"


def _runs(planned: Sequence[Planned]) -> str:
    return f"{len(planned)} run" + "s" * (len(planned) != 1)


def _log(run: Planned) -> Path:
    """Where the child's progress goes; kept only if it fails."""
    return run.path.with_name(f"{run.name}.log")


def _time_left(outcomes: Sequence[Outcome], left: Sequence[Planned], at_once: int) -> str:
    """How many runs are left and how long they may take: the mean of their like, or else of all."""
    if not left:
        return ""
    spent = [outcome for outcome in outcomes if outcome.ending == "done" and outcome.seconds > 0]
    if not spent:
        return f"; {len(left)} left"
    mean = sum(outcome.seconds for outcome in spent) / len(spent)
    total = 0.0
    for run in left:
        like = [o.seconds for o in spent if (o.run.method, o.run.env) == (run.method, run.env)]
        total += sum(like) / len(like) if like else mean
    return f"; {len(left)} left, ETA {format_duration(total / at_once)}"


@contextmanager
def _received_signals() -> Iterator[list[int]]:
    """SIGTERM and SIGINT are only noted meanwhile; what waits for a child hands them on."""
    received: list[int] = []
    old: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
    with suppress(ValueError):  # not in the main thread: leave signals alone
        for kind in (signal.SIGTERM, signal.SIGINT):
            old[kind] = signal.signal(kind, lambda number, frame: received.append(number))
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # the reader may have gone
        print(plain(text), file=sys.stderr, flush=True)
