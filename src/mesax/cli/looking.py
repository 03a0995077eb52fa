"""Verbs that look: `list`, `status`, `eval`, `render`, `compare`, `report`, `export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mesax.cli.running import keep_episodes, named_method, stored_experiment
from mesax.cli.telling import check_directory, prepare_jax, stored_run
from mesax.errors import UsageError
from mesax.experiments.names import LEARNERS, METHODS, PRESETS, refuse_reference
from mesax.suites.deviations import DEVIATIONS
from mesax.suites.registry import environments, patterns

MOST_EPISODES = 100_000
"""All of them are held in memory: more would ask for more than there is before they tell more."""


BUNDLE = "bundle"
"""What `export` writes unless it is told otherwise."""


def list_names(options: argparse.Namespace) -> int:
    """All names, or every setting of one run, or every difference from the paper."""
    if options.deviations:
        return _list_deviations()
    if options.method is not None:
        return _list_settings(options)
    methods = {name: text for name, text in METHODS.items() if name not in LEARNERS}
    tables = {
        "Methods": methods,
        "Learners (also methods by themselves)": LEARNERS,
        "Environments": environments(),
        "Presets": PRESETS,
    }
    width = max(len(name) for names in tables.values() for name in names)
    for title, names in tables.items():
        print(title)
        for name, text in names.items():
            print(f"  {name:<{width}}  {text}")
    print(f"\nEnvironments of any size: {', '.join(patterns())}.")
    print("An environment of your own is named MODULE:ATTRIBUTE; 'mesax env check MODULE:ATTRIBUTE' says if it fits.")
    print("'mesax list METHOD ENV [--preset P]' shows every setting of a run and how to change it.")
    return 0


def _list_deviations() -> int:
    width = max(len(name) for entries in DEVIATIONS.values() for name in entries)
    for title, entries in DEVIATIONS.items():
        print(title)
        for name, text in entries.items():
            print(f"  {name:<{width}}  {text}")
    print("\nWhat the paper has, why, and how to switch it: docs/deviations.md, under these names.")
    print("In which settings a run differs from preset paper is printed when it starts, and in its report.")
    return 0


def _list_settings(options: argparse.Namespace) -> int:
    method, learner = named_method(options)
    refuse_reference(method)
    if method not in METHODS:
        raise UsageError(f"unknown method '{method}'; choose one of {', '.join(METHODS)}")
    if options.env is None:
        raise UsageError(f"name an environment too: {', '.join(environments())}, or MODULE:ATTRIBUTE")
    prepare_jax()
    from mesax.experiments.catalogue import experiment
    from mesax.experiments.overrides import documented

    settings = documented(experiment(method, options.env, options.preset, learner))
    width = max(len(setting.path) for setting in settings) + 2
    label = method if learner is None else f"{method}+{learner}"
    print(f"Settings of {label} on {options.env}, preset {options.preset}")
    for setting in settings:
        choices = f"One of: {', '.join(setting.choices)}." if setting.choices else ""
        print(f"--{setting.path:<{width}} {setting.value!s:<18} {setting.doc} {choices}".rstrip())
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """Play the saved policies again."""
    if not 1 <= options.episodes <= MOST_EPISODES:
        raise UsageError(f"--episodes must be at least 1 and at most {MOST_EPISODES}, not {options.episodes}")
    if not 0 <= options.seed < 2**32:
        raise UsageError(f"--seed must lie between 0 and {2**32 - 1}, not {options.seed}")
    directory = stored_run(options.run)
    prepare_jax()
    from mesax.execution.saved_policies import evaluate_run

    experiment, _ = stored_experiment(directory, options)
    rows = evaluate_run(directory, experiment, options.episodes, options.seed, options.policy == "best")
    for row in rows:
        groups = "  ".join(f"{name} {value:.3f}" for name, value in row["groups"].items())
        print(f"task {row['task']:>2} run {row['repeat']}  {row['label']:<12}  return {row['return']:.4f}  {groups}")
    mean = sum(row["return"] for row in rows) / len(rows)
    print(f"mean return {mean:.4f} over {len(rows)} policies, {options.episodes} episodes each")
    if options.json:
        print(json.dumps({"mean_return": mean, "episodes": options.episodes, "per_task": rows}))
    return 0


def render(options: argparse.Namespace) -> int:
    """Draw an episode of a saved policy."""
    directory = stored_run(options.run)
    prepare_jax()
    from mesax.execution.saved_policies import render_run

    experiment, modules = stored_experiment(directory, options)
    for path in render_run(directory, experiment, options.task, options.policy, options.gif, modules):
        print(f"drawn    {path}")
    return 0


def compare(options: argparse.Namespace) -> int:
    """One table and one plot for several runs."""
    from mesax.results.comparison import by_family, show_comparison
    from mesax.results.evidence.kept import load_results
    from mesax.results.report import load_evaluated

    runs, left_out = load_evaluated(options.runs, load_results)
    beside = next((run.directory for run in runs if run.directory.is_dir()), Path("runs") / "stored")
    directory = options.out or beside.parent / "figures"
    check_directory(directory)
    for reason in left_out:
        print(f"note     left out: {reason}")
    result = show_comparison(by_family(runs), directory)
    if options.json:
        print(json.dumps(result))
    return 0


def report(options: argparse.Namespace) -> int:
    """A self-contained HTML page; episodes that a finished run has not recorded yet are played first."""
    from mesax.results.report import REPORT, check_page, load_evaluated, shown_players, write_page
    from mesax.suites.renamed import names_of_before

    target = options.out or options.runs[0] / REPORT
    runs, left_out = load_evaluated(options.runs)
    check_page(target)
    if options.episodes:
        for run in shown_players(runs):
            keep_episodes(run.directory, options.load, options.quiet)
    path = write_page(runs, target, left_out)
    for line in names_of_before((run.directory, run.run) for run in runs):
        print(f"note     {line}")
    print(f"written  {path}")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write a run's exploration policies as a bundle, or its rows for another tool."""
    if options.to == BUNDLE:
        prepare_jax()
        from mesax.explorers.bundle import export_run

        print(f"written  {export_run(stored_run(options.run), options.out)}")
        return 0
    from mesax.tracking.follow import export_rows
    from mesax.tracking.sinks import check_trackers

    check_trackers([options.to])
    where = export_rows(stored_run(options.run), options.to, options.out)
    print(f"told     {options.to}" if options.to == "wandb" else f"written  {where}")
    return 0


def status(options: argparse.Namespace) -> int:
    """How the runs of a directory are doing."""
    from mesax.execution.status import fitted, runs_below, status_table, terminal_width, watch
    from mesax.results.tables import print_table

    if options.watch:
        watch(lambda: runs_below(options.directory), str(options.directory))
        return 0
    found = runs_below(options.directory)
    print_table(status_table(fitted(found, terminal_width()), str(options.directory)))
    if options.json:
        print(json.dumps({"runs": [vars(run) for run in found]}))
    return 0
