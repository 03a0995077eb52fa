"""Where rows go: each tool is a sink, and its package is imported only when the sink is opened."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TextIO

from mesax.bridges.tracking.rows import Entry
from mesax.errors import UsageError
from mesax.store.files import is_there, remove_tree, store_errors
from mesax.store.json_values import Json, flatten

FOLDER = "tracking"
"""Where sinks that write files keep them, inside a run directory."""


class Sink(Protocol):
    """Takes every row of a run once, in the order of steps within a series."""

    def log(self, entry: Entry) -> None:
        """One row."""

    def close(self) -> None:
        """All rows have been told."""


class CsvSink:
    """One table of all numbers: series, step, name, value."""

    def __init__(self, directory: Path, run: Json) -> None:
        del run
        path = directory / "rows.csv"
        with store_errors(path, "written"):
            self._file: TextIO = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115 (closed in close)
        self._table = csv.writer(self._file, lineterminator="\n")
        self._table.writerow(("series", "step", "name", "value"))

    def log(self, entry: Entry) -> None:
        """A line for each number."""
        self._table.writerows((entry.series, entry.step, name, value) for name, value in entry.values.items())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardSink:
    """Event files, a folder for each series, so that its curves lie over each other."""

    def __init__(self, directory: Path, run: Json) -> None:
        del run
        self._make: Callable[..., Any] = import_module("tensorboardX").SummaryWriter
        self._directory = directory
        self._writers: dict[str, Any] = {}

    def log(self, entry: Entry) -> None:
        """A scalar for each number."""
        if entry.series not in self._writers:
            self._writers[entry.series] = self._make(str(self._directory / entry.series), flush_secs=5)
        for name, value in entry.values.items():
            self._writers[entry.series].add_scalar(tag_of(name), value, entry.step)

    def close(self) -> None:
        """Write what is still in memory."""
        for writer in self._writers.values():
            writer.close()


def tag_of(name: str) -> str:
    """A name without characters that TensorBoard has no use for."""
    return re.sub(r"[^-/\w.]", "_", name)


class WandbSink:
    """A run of Weights & Biases for this attempt, under the mode that `$WANDB_MODE` says."""

    def __init__(self, directory: Path, run: Json) -> None:
        del directory  # it keeps its files where $WANDB_DIR says: they hold links, which run directories must not
        wandb = import_module("wandb")
        self._run: Any = wandb.init(
            project="mesax",
            name=str(run.get("id")),
            group=str(run.get("id")),
            config=flatten(run.get("config") or {}),
            tags=[str(run.get(key)) for key in ("method", "env", "preset")],
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="env_step")

    def log(self, entry: Entry) -> None:
        """One line of its history, with the step of the series."""
        self._run.log(
            {f"{entry.series}/{name}": value for name, value in entry.values.items()} | {"env_step": entry.step}
        )

    def close(self) -> None:
        """Finish its run."""
        self._run.finish()


@dataclass(frozen=True)
class Tracker:
    """One tool."""

    package: str | None
    """What it needs besides mesax; None: nothing."""
    open: Callable[[Path, Json], Sink]
    """From an empty folder and run.json to its sink."""


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker("tensorboardX", TensorBoardSink),
    "wandb": Tracker("wandb", WandbSink),
    "csv": Tracker(None, CsvSink),
}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tool that is not installed, before anything runs."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"unknown tracker '{name}'; choose one of {', '.join(TRACKERS)}")
        package = TRACKERS[name].package
        if package is not None and find_spec(package) is None:
            raise UsageError(
                f"the tracker '{name}' needs {package}, which is not installed: pip install 'mesax[{name}]'"
            )


def open_sink(name: str, directory: Path, run: Json) -> Sink:
    """A sink that begins anew: what an earlier attempt left in its folder is gone, and is told again.

    If the sink cannot be opened, all is as it was: it would not be told again.
    """
    check_trackers([name])
    with _put_aside(directory):
        with store_errors(directory, "created"):
            directory.mkdir(parents=True, exist_ok=True)
        return TRACKERS[name].open(directory, run)


@contextmanager
def _put_aside(directory: Path) -> Iterator[None]:
    """A directory is out of the way meanwhile, and gone afterwards; it comes back if something goes wrong."""
    aside = directory.parent / f".before-{directory.name}"
    there = is_there(directory)
    if there:
        remove_tree(aside)  # of an attempt that was killed in here
        with store_errors(directory, "put aside"):
            os.rename(directory, aside)
    try:
        yield
    except BaseException:
        if there:
            remove_tree(directory)
            with suppress(OSError):  # the error under way says more, and nothing is lost
                os.rename(aside, directory)
        raise
    remove_tree(aside)
