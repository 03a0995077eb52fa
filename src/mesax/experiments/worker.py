"""A worker process: reads jobs as JSON lines on stdin, does them, answers with JSON lines on stdout.

Plain text between processes, so nothing is ever unpickled; a worker ends when its stdin closes, so it cannot outlive
the run that started it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from mesax.runtime import configure


def main() -> None:
    """Serve jobs of the run directory named by the first argument."""
    answers, sys.stdout = sys.stdout, sys.stderr
    configure()
    from mesax.experiments.jobs import run_job  # noqa: PLC0415  (JAX must be configured first)
    from mesax.experiments.request import Request  # noqa: PLC0415
    from mesax.experiments.store import RunDirectory  # noqa: PLC0415

    run = RunDirectory.open(Path(sys.argv[1]))
    experiment = Request.of_run(run.run).experiment()
    say(answers, {"kind": "ready"})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            run_job(
                run,
                experiment,
                order["stage"],
                order["job"],
                lambda done, note: say(answers, {"kind": "progress", "done": done, "note": note}),
            )
        except Exception as error:
            traceback.print_exc()
            say(answers, {"kind": "error", "error": type(error).__name__, "message": str(error)})
        else:
            say(answers, {"kind": "done"})


def say(stream: TextIO, message: dict[str, Any]) -> None:
    """One JSON line; a reader that has gone away ends the worker."""
    try:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise SystemExit(1) from None


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
