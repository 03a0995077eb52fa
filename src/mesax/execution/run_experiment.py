"""Runs an experiment that was built in code: what `mesax run` does, as a function."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mesax.errors import DamageError, Preempted, UsageError
from mesax.execution.mending import reopen
from mesax.execution.ray_cluster.where import OnRay
from mesax.execution.runner import execute
from mesax.execution.workers import how_to_continue, warn
from mesax.experiments.catalogue import method_name
from mesax.experiments.names import OWN_PRESET
from mesax.experiments.overrides import digest
from mesax.experiments.rebuild import check_found_again, stored_difference
from mesax.experiments.request import facts_of
from mesax.methods.base import Experiment
from mesax.runtime import configure
from mesax.store.modules import refuse_while_loading
from mesax.store.run_directory import RunDirectory
from mesax.store.settings import nameless
from mesax.tracking.sinks import check_trackers


def run_experiment(
    experiment: Experiment,
    path: Path | str,
    method: str | None = None,
    env: str = "own",
    workers: int | None = None,
    quiet: bool = False,
    track: Sequence[str] = (),
    on: OnRay | None = None,
) -> dict[str, Any]:
    """Do all stages of an experiment, keep everything in the run directory `path`, and return its summary.

    A directory that holds the same experiment is continued, or its summary returned if it is done; one that holds
    another is refused. Functions and classes among the settings count by their names: what they do may change
    unnoticed, and with one whose name others may have (a lambda, say) nothing is continued. More than one worker is a
    process each, which loads the modules of these functions and classes again, or the script; so what a script does
    belongs under `if __name__ == "__main__":`. Asked to stop by a signal, it saves everything, and the script exits
    with code 75. `method` and `env` are names for tables and figures; if it is not given, a method has the name that
    `mesax run` knows it by, and one of your own that of its class. `track` names tools that are told every row:
    tensorboard, wandb, csv. `on` is a Ray cluster that does the jobs, as many at a time as it has CPUs, or as
    `workers` says; without a cluster, one worker is the default.
    """
    refuse_while_loading("run_experiment was called")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers}")
    check_trackers(track)
    if on is not None:
        if not isinstance(on, OnRay):  # Python does not ask what it is
            raise UsageError(f"on must be mesax.OnRay(...), not {on!r}")
        on.check()
    configure()
    expected = _digest(experiment)
    experiment.check()  # what does not fit is refused before there is a directory
    if on is None:
        workers = workers or 1
    if on is not None or workers != 1:
        check_found_again(experiment)
    path = Path(path)
    if path.exists():
        run = RunDirectory.open(path)
        if run.run.get("config_hash") != expected:
            difference = stored_difference(run.run, experiment)
            raise UsageError(f"{path} holds another experiment ({difference}); remove it or choose another directory")
        _check_names(path, experiment)
        if run.status == "done":
            try:
                run.check_results()
                return run.read_json("summary.json")
            except DamageError as damage:
                with run.lock():
                    reopen(run, damage)
        elif on is None:
            experiment.check_engine()
    else:
        if on is None:
            experiment.check_engine()
        run = RunDirectory.create(
            path, _run_json(experiment, path, method_name(experiment) if method is None else method, env)
        )
    with run.lock():
        try:
            return execute(run, experiment, workers, quiet, track, on)
        except Preempted:
            warn(f"stopped and saved; {how_to_continue(run, on.words if on else ())}")
            raise


def _check_names(path: Path, experiment: Experiment) -> None:
    """Refuse to take what is there for this experiment if names alone do not say so."""
    places = list(dict.fromkeys(nameless(experiment)))
    if places:
        raise UsageError(
            f"whether {path} holds this experiment cannot be known: {', '.join(places)} goes by a name that others may"
            " have (a lambda, made inside a function, or bound to an object); define it at the top of a module, or"
            " remove the directory or choose another"
        )


def _digest(experiment: Experiment) -> str:
    try:
        return digest(experiment)
    except TypeError as error:
        raise UsageError(f"{error}: use numbers, text, frozen dataclasses and named functions") from error


def _run_json(experiment: Experiment, path: Path, method: str, env: str) -> dict[str, object]:
    names = {"id": path.name, "method": method, "env": env, "preset": OWN_PRESET, "seed": experiment.seed}
    return names | {"paper_diff": None, "command": shlex.join(["python", *sys.argv])} | facts_of(experiment, env)
