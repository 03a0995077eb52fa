"""What the arguments of several verbs share: their types, and options that mean the same everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from mesax.bridges.tracking.sinks import TRACKERS
from mesax.errors import UsageError, plain
from mesax.experiments.names import ENVIRONMENTS, METHODS, PRESETS
from mesax.store.files import is_there

METHOD_HELP = f"{', '.join(METHODS)}; with a learner: mesa+qmix"
ENV_HELP = f"{', '.join(ENVIRONMENTS)}; or one of your own as MODULE:ATTRIBUTE"
RUN_DIR = "RUN_DIR"


def path(text: str) -> Path:
    """A path of the command line."""
    if not text or plain(text) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file or directory")
    return Path(text)


def directory(text: str) -> Path:
    """A directory to write to with --out, which may not be there yet."""
    place = path(text)
    if is_there(place) and not place.is_dir():
        raise UsageError(f"--out {place} is not a directory")
    return place


def number(name: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option whose value is a whole number with a bound."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None
        if value < least or (most is not None and value > most):
            upper = "" if most is None else f" and at most {most}"
            raise UsageError(f"{name} must be at least {least}{upper}, not {value}")
        return value

    return read


def runs(parser: argparse.ArgumentParser) -> None:
    """One run directory or several."""
    parser.add_argument("runs", metavar=RUN_DIR, type=path, nargs="+")


def run(parser: argparse.ArgumentParser) -> None:
    """One run directory."""
    parser.add_argument("run", metavar=RUN_DIR, type=path)


def load(parser: argparse.ArgumentParser) -> None:
    """Modules of the user's."""
    text = "module (or script) with classes and functions of yours that the run is made of; repeatable"
    parser.add_argument("--load", action="append", default=[], metavar="MODULE", help=text)


def json(parser: argparse.ArgumentParser) -> None:
    """The result for programs."""
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")


def quiet(parser: argparse.ArgumentParser) -> None:
    """Silence on stderr."""
    parser.add_argument("--quiet", action="store_true", help="no progress")


def preset(parser: argparse.ArgumentParser) -> None:
    """A preset by name."""
    parser.add_argument("--preset", default="quick", help=f"{', '.join(PRESETS)} (default quick)")


def test_tasks(parser: argparse.ArgumentParser) -> None:
    """The number of test tasks."""
    parser.add_argument("--num-test-tasks", type=int, help="unseen tasks to learn in a run")


def jobs(parser: argparse.ArgumentParser) -> None:
    """Where the jobs of a run are done, and how many at a time: never changes results."""
    text = "processes of a run (default: one per core); results do not depend on it"
    parser.add_argument("--workers", type=number("--workers", 1), help=text)
    group = parser.add_argument_group("on a cluster", "the same jobs on Ray's workers, with the same results")
    group.add_argument("--on", choices=["ray"], help="cluster for the jobs; without it, processes of this machine")
    text = "HOST:PORT of the cluster, or auto for the one that this machine belongs to; without it, Ray starts here"
    group.add_argument("--address", help=text)
    text = "run directory under the same path on every node; without it, files travel through Ray"
    group.add_argument("--shared", action="store_true", help=text)
    group.add_argument("--num-gpus", type=float, help="GPUs of each job; a fraction lets several share one")


def at_once(parser: argparse.ArgumentParser) -> None:
    """Runs side by side."""
    text = "runs at a time (default 1; on a cluster as many as it has CPUs, but no more than 8)"
    parser.add_argument("--at-once", type=number("--at-once", 1), help=text)


def track(parser: argparse.ArgumentParser) -> None:
    """Tools that follow a run."""
    text = "another tool that gets every row while the run goes on; repeatable"
    parser.add_argument("--track", action="append", default=[], choices=list(TRACKERS), help=text)
