"""A worker process: reads jobs as JSON lines on stdin, does them, answers with JSON lines on stdout.

Plain text between processes, so nothing is ever unpickled. A worker ends as soon as its stdin closes, even in the
middle of a job, so it cannot outlive the run that started it and write into a directory that was resumed meanwhile.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

from mesax.errors import Preempted, kind_of
from mesax.runtime import configure, use_threads


def main() -> None:
    """Serve jobs of the run directory named by the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group; the run decides what they mean
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints, C libraries too, goes to the log
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=listen, args=(orders, stop), daemon=True).start()
    configure()
    from mesax.execution.jobs import run_job  # noqa: PLC0415  (JAX must be configured first)
    from mesax.experiments.request import Request  # noqa: PLC0415
    from mesax.store.run_directory import RunDirectory  # noqa: PLC0415

    run = RunDirectory.open(Path(sys.argv[1]))
    run.attend()
    experiment = Request.of_run(run.run).experiment()
    stages = {stage.name: stage for stage in experiment.method.stages(experiment)}
    say(answers, {"kind": "ready"})
    while True:
        order = orders.get()
        use_threads(order.get("threads", 1))
        try:
            run_job(
                run,
                stages[order["stage"]],
                order["job"],
                lambda done, note: say(answers, {"kind": "progress", "done": done, "note": note}),
                lambda message: say(answers, {"kind": "warning", "message": message}),
                stop,
            )
        except Preempted:
            say(answers, {"kind": "stopped"})
        except Exception as error:
            traceback.print_exc()
            say(answers, {"kind": "error", "error": kind_of(error), "message": str(error)})
        else:
            say(answers, {"kind": "done"})


def listen(orders: queue.Queue[dict[str, Any]], stop: threading.Event) -> None:
    """Pass orders on; leave at once when there are no more to come."""
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("stop"):
            stop.set()
        else:
            orders.put(order)
    os._exit(1)


def say(stream: TextIO, message: dict[str, Any]) -> None:
    """One JSON line; a reader that has gone away ends the worker."""
    try:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
