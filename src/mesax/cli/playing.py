"""What plays saved policies: `mesax eval`, `mesax render`, the bundle of `mesax export`, episodes of a report."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from types import ModuleType

from mesax.cli.telling import stored_run
from mesax.errors import UsageError, plain
from mesax.execution import saved_policies
from mesax.execution.saved_policies import evaluate_run, render_run
from mesax.experiments.rebuild import ModuleNeeded, check_facts, experiment_of
from mesax.explorers.bundle import export_run
from mesax.methods.base import Experiment
from mesax.results.safe_drawing import attempt
from mesax.store.modules import load_modules
from mesax.store.run_directory import RunDirectory
from mesax.suites.registry import packages_of_suites


def evaluate(options: argparse.Namespace) -> int:
    """Play the saved policies again."""
    directory = stored_run(options.run)
    experiment = stored_experiment(directory, options)
    rows = evaluate_run(directory, experiment, options.episodes, options.seed, options.policy == "best")
    for row in rows:
        groups = "  ".join(f"{name} {value:.3f}" for name, value in row["groups"].items())
        who = f"task {row['task']:>2} run {row['repeat']}  {row['label']:<12}"
        print(plain(f"{who}  return {row['return']:.4f}  {groups}"))
    mean = sum(row["return"] for row in rows) / len(rows)
    print(f"mean return {mean:.4f} over {len(rows)} policies, {options.episodes} episodes each")
    if options.json:
        print(json.dumps({"mean_return": mean, "episodes": options.episodes, "per_task": rows}))
    return 0


def render(options: argparse.Namespace) -> int:
    """Draw an episode of a saved policy."""
    directory = stored_run(options.run)
    experiment, modules = stored_experiment(directory, options), modules_for(options)
    for path in render_run(directory, experiment, options.task, options.policy, options.gif, modules):
        print(f"drawn    {path}")
    return 0


def export_bundle(options: argparse.Namespace) -> int:
    """Write a run's exploration policies as a bundle."""
    print(f"written  {export_run(stored_run(options.run), options.out)}")
    return 0


def modules_for(options: argparse.Namespace) -> tuple[ModuleType, ...]:
    """The user's modules that `--load` names, and those of installed suites."""
    return (*load_modules(options.load), *packages_of_suites())


def stored_experiment(directory: RunDirectory, options: argparse.Namespace) -> Experiment:
    """The experiment of a run directory; says what to type if a module of the user's lacks."""
    try:
        experiment = experiment_of(directory.run, modules_for(options))
        check_facts(directory.run, experiment)
        return experiment
    except ModuleNeeded as error:
        missing = dict.fromkeys(module for module in error.modules if module not in options.load)
        loads = [word for module in missing for word in ("--load", module)]
        raise UsageError(f"{error}; type: {shlex.join(['mesax', *options.arguments, *loads])}") from error


def keep_episodes(directory: RunDirectory, options: argparse.Namespace) -> None:
    """Record episodes of a finished run for its report; what goes wrong is a line, and costs no result."""
    if not options.quiet:
        print(f"playing  episodes of {directory.path} for its report", file=sys.stderr, flush=True)

    def played() -> None:
        saved_policies.record_episodes(directory, stored_experiment(directory, options), modules_for(options))

    attempt(f"of episodes of {directory.path}", played)
