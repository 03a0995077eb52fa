"""Verbs that look at what runs have left, without JAX: `compare`, `report`, `status`, rows of `export`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from mesax.cli.telling import stored_run, tell_names, with_jax
from mesax.errors import UsageError
from mesax.execution.status import fitted, runs_below, status_table, terminal_width, watch
from mesax.rendering.recorded import has_episodes
from mesax.results.comparison import compare_directories, show_comparison
from mesax.results.report import REPORT, check_page, load_evaluated, run_directories, shown_players, write_report
from mesax.results.tables import print_table
from mesax.suites.renamed import load_run, open_run
from mesax.tracking import follow
from mesax.tracking.sinks import check_trackers


def compare(options: argparse.Namespace) -> int:
    """One table and one plot for several runs."""
    paths, left_out = _evaluated(options.runs)
    first = next((path for path in paths if path.is_dir()), Path("runs") / "stored")
    directory = options.out or first.parent / "figures"
    for reason in left_out:
        print(f"note     left out: {reason}")
    result = show_comparison(compare_directories(paths), directory)
    if options.json:
        print(json.dumps(result))
    return 0


def _evaluated(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """What is named, and all evaluated runs below a directory that is no run; and why others there are left out."""
    there: list[Path] = []
    left_out: list[str] = []
    for path in paths:
        directories, found = ([path], set()) if path.is_file() else run_directories([path])
        for directory in directories:
            if directory in found:
                try:
                    load_run(directory)
                except UsageError as error:
                    left_out.append(str(error))
                    continue
            there.append(directory)
    if not there:
        raise UsageError(left_out[0])
    return there, left_out


def report(options: argparse.Namespace) -> int:
    """A self-contained HTML page; episodes that a finished run has not recorded yet are played first."""
    target = options.out or options.runs[0] / REPORT
    if options.episodes:
        runs, _ = load_evaluated(options.runs)
        check_page(target)
        for run in shown_players(runs):
            directory = open_run(run.directory)
            if directory.status == "done" and not has_episodes(directory.path):
                with_jax("cli.playing").keep_episodes(directory, options)
    path = write_report(options.runs, target)
    tell_names(map(open_run, run_directories(options.runs)[0]))
    print(f"written  {path}")
    return 0


def status(options: argparse.Namespace) -> int:
    """How the runs of a directory are doing."""
    if options.watch:
        watch(lambda: runs_below(options.directory), str(options.directory))
        return 0
    found = runs_below(options.directory)
    print_table(status_table(fitted(found, terminal_width()), str(options.directory)))
    if options.json:
        print(json.dumps({"runs": [vars(run) for run in found]}))
    return 0


def export_rows(options: argparse.Namespace) -> int:
    """Write a run's rows for another tool."""
    check_trackers([options.to])
    where = follow.export_rows(stored_run(options.run), options.to, options.out)
    print(f"told     {options.to}" if options.to == "wandb" else f"written  {where}")
    return 0
