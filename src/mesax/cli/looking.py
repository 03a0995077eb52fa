"""Verbs that look at what runs have left, without JAX: `compare`, `report`, `status`, rows of `export`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from mesax.bridges.tracking import follow
from mesax.bridges.tracking.sinks import check_trackers
from mesax.cli.telling import stored_run, with_jax
from mesax.execution.status import fitted, runs_below, status_table, terminal_width, watch
from mesax.rendering.recorded import has_episodes
from mesax.results.comparison import by_family, show_comparison
from mesax.results.evidence.kept import load_results
from mesax.results.report import REPORT, check_page, load_evaluated, shown_players, write_page
from mesax.results.tables import print_table
from mesax.store.reading import NOT_EVALUATED, RunResults
from mesax.suites.renamed import names_of_before, open_run


def compare(options: argparse.Namespace) -> int:
    """One table and one plot for several runs."""
    runs, left_out = load_evaluated(options.runs, lambda path, _: load_results(path))
    first = next((run.directory for run in runs if run.directory.is_dir()), Path("runs") / "stored")
    directory = options.out or first.parent / "figures"
    for reason in left_out:
        print(f"note     left out: {reason}")
    result = show_comparison(by_family(runs), directory)
    if options.json:
        print(json.dumps(result))
    return 0


def report(options: argparse.Namespace) -> int:
    """A self-contained HTML page; episodes that a finished run has not recorded yet are played first."""
    target = options.out or options.runs[0] / REPORT
    runs, left_out = load_evaluated(options.runs)
    check_page(target)
    if options.episodes:
        for run in shown_players(runs):
            directory = open_run(run.directory)
            if directory.status == "done" and not has_episodes(directory.path):
                with_jax("mesax.cli.playing").keep_episodes(directory, options)
    path = write_page(runs, target, left_out)
    for line in (*unfinished(runs), *names_of_before((run.directory, run.run) for run in runs)):
        print(f"note     {line}")
    print(f"written  {path}")
    return 0


def unfinished(runs: Sequence[RunResults]) -> Iterator[str]:
    """Why some of these runs are shown in part only, in a line each."""
    for run in runs:
        if (why := NOT_EVALUATED.get(open_run(run.directory).state)) is not None:
            yield f"{run.directory} is shown as far as it is: {why}"


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
