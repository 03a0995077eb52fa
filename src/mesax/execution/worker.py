"""A worker process: reads jobs as JSON lines on stdin, does them, answers with JSON lines on stdout.

Plain text between processes, so nothing is ever unpickled. A worker ends as soon as its stdin closes, even in the
middle of a job, so it cannot outlive the run that started it and write into a directory that was resumed meanwhile. A
run that still lives asks its workers to leave, so that they can close environments, which may be processes themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias

from mesax.errors import Preempted, kind_of
from mesax.execution.signals import heard_elsewhere
from mesax.runtime import own_process, use_threads, with_jax
from mesax.store.modules import load_modules
from mesax.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from mesax.training.host_rollout import RunningCopies

Order: TypeAlias = dict[str, Any]
INTERRUPT = signal.SIGUSR1
"""How the thread that listens interrupts the one that works: a signal also ends a wait for another process."""
SECONDS_BETWEEN_SIGNALS = 0.05


class Served(NamedTuple):
    """What a worker can be asked for."""

    do_job: Callable[[str, int, Callable[[int, str], None], Callable[[str], None], threading.Event], None]
    """(stage, job, report, warn, stop)."""
    prepare: Callable[[str], None]
    """Compile what a stage will need."""


class Left(BaseException):
    """The worker was asked to leave; no `except Exception` of a job or of an environment takes it for its own."""


@dataclass
class Leaving:
    """The way out of a worker whose run needs it no more.

    With no environment open it ends at once, whatever it computes. Else the main thread, which alone may touch them, is
    interrupted to close them; should it be too busy to notice, its stdin closes before long.
    """

    copies: RunningCopies | None = None
    """Whatever may be open."""
    noticed: bool = False
    """Whether the main thread is on its way out."""

    def __call__(self) -> None:
        """To be called by the thread that listens."""
        if self.copies is None or not self.copies.some_open:
            os._exit(0)
        threading.Thread(target=self._insist, daemon=True).start()

    def _insist(self) -> None:
        """One signal may not do: a wait that the main thread was only about to begin goes on, and an environment may
        take what is raised for its own."""
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        while not self.noticed:
            signal.pthread_kill(main_thread, INTERRUPT)
            time.sleep(SECONDS_BETWEEN_SIGNALS)

    def interrupted(self, *_: object) -> None:
        """The signal's handler, which the main thread runs; it is not interrupted while it closes them."""
        if not self.noticed:
            raise Left


def main() -> None:
    """Serve jobs of a run directory, with the user's modules that its experiment is made of."""
    # They may reach the whole group; the run decides what they mean. Engines that environments start outlive Ctrl-C,
    # since they are needed until all is saved; SIGTERM is how environments end them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, heard_elsewhere)
    answers, told = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints, C libraries too, goes to the log
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # whatever else reads, engines too, takes no orders away
    orders: queue.Queue[Order] = queue.Queue()
    stop, leaving = threading.Event(), Leaving()
    signal.signal(INTERRUPT, leaving.interrupted)
    threading.Thread(target=listen, args=(told, orders, stop, leaving), daemon=True).start()
    own_process()
    try:
        served = _served(_arguments())
    except Exception as error:
        traceback.print_exc()
        say(answers, _told(error))
        raise SystemExit(1) from None
    running = with_jax("mesax.training.host_rollout").running
    say(answers, {"kind": "ready"})
    try:
        leaving.copies = running
        while True:
            _serve(served, orders.get(), answers, stop)
    except Left:
        leaving.noticed = True
    running.close()  # and not when Python ends: closing may take a thread, which cannot be started then


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A worker of a run; started by mesax itself.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--load", action="append", default=[], metavar="MODULE")
    return parser.parse_args()


def _served(options: argparse.Namespace) -> Served:
    """How to do a job of the run and to prepare a stage: its experiment is rebuilt, and its stages are built, once."""
    jobs, rebuild = with_jax("mesax.execution.jobs"), with_jax("mesax.experiments.rebuild")
    run = RunDirectory.open(options.run)
    run.attend()
    experiment = rebuild.experiment_of(run.run, load_modules(options.load))
    stages = {stage.name: stage for stage in experiment.method.stages(experiment)}

    def prepare(name: str) -> None:
        stage = stages[name]
        assert stage.prepare is not None
        stage.prepare()

    return Served(lambda stage, *order: jobs.run_job(run, stages[stage], *order), prepare)


def _serve(served: Served, order: Order, answers: TextIO, stop: threading.Event) -> None:
    """One job, and how it ended; or what a later stage needs, which its jobs do for themselves if it fails here."""
    if "prepare" in order:
        try:
            served.prepare(order["prepare"])
        except Exception:
            traceback.print_exc()
        else:
            say(answers, {"kind": "prepared"})
        return
    use_threads(order.get("threads", 1))
    try:
        served.do_job(
            order["stage"],
            order["job"],
            lambda done, note: say(answers, {"kind": "progress", "done": done, "note": note}),
            lambda message: say(answers, {"kind": "warning", "message": message}),
            stop,
        )
    except Preempted:
        say(answers, {"kind": "stopped"})
    except Exception as error:
        traceback.print_exc()
        say(answers, _told(error))
    else:
        say(answers, {"kind": "done"})


def _told(error: Exception) -> dict[str, str]:
    """An error for another process to raise."""
    trace = "".join(traceback.format_exception(error))
    return {"kind": "error", "error": kind_of(error), "message": str(error), "trace": trace}


def listen(told: TextIO, orders: queue.Queue[Order], stop: threading.Event, leave: Callable[[], None]) -> None:
    """Pass orders on, and the word to stop or to leave; end at once when there are no more to come."""
    for line in told:
        order = json.loads(line)
        if order.get("stop"):
            stop.set()
        elif order.get("leave"):
            leave()
        else:
            orders.put(order)
    os._exit(1)


def say(stream: TextIO, message: Mapping[str, object]) -> None:
    """One JSON line; a reader that has gone away ends the worker."""
    try:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
