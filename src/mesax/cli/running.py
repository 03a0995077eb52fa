"""`mesax run` and `mesax resume`, once they are chosen; and the names and settings that `mesax list` explains."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mesax.bridges.ray_cluster.where import OnRay
from mesax.bridges.tracking.sinks import check_trackers
from mesax.cli.cluster import cluster_of, join
from mesax.cli.playing import stored_experiment
from mesax.cli.telling import fail, stored_run, tell_names
from mesax.errors import PREEMPTED, DamageError, Preempted, UsageError, closest
from mesax.execution.mending import reopen
from mesax.execution.runner import execute
from mesax.execution.workers import how_to_continue
from mesax.experiments.catalogue import experiment as named_experiment
from mesax.experiments.names import method_and_learner
from mesax.experiments.overrides import UnknownSetting, ValueNeeded, check_path, digest, documented, parse_arguments
from mesax.experiments.rebuild import check_facts, check_found_again, stored_difference
from mesax.experiments.request import Request, run_json
from mesax.methods.base import Experiment
from mesax.results.safe_drawing import draw_run_safely
from mesax.results.summary import signs
from mesax.results.tables import comparison_table, print_table, task_table
from mesax.store.modules import is_reference
from mesax.store.reading import borrowed_from
from mesax.store.run_directory import RunDirectory
from mesax.store.settings import items
from mesax.suites.foreign.suite import ForeignSuite
from mesax.suites.registry import suite_of
from mesax.suites.renamed import load_run, open_run

THAT_MATTER = (
    *("method.num-explorers", "method.reward", "method.mixing.probability", "method.explore.total-steps"),
    *("method.collect.total-steps", "algorithm", "algorithm.actor-update", "algorithm.discount", "reward-model"),
    *("algorithm.optimizer.learning-rate", "algorithm.actor-optimizer.learning-rate", "family", "family.num-actions"),
    *("schedule.total-steps", "schedule.num-envs", "schedule.batch-size", "seed", "lanes"),
    *("num-train-tasks", "num-test-tasks", "num-repeats"),
)
"""Settings that `mesax list METHOD ENV` shows, of those that a run has."""


def run(options: argparse.Namespace) -> int:
    """Build what is asked for, give it a directory, and do it."""
    check_trackers(options.track)
    on = cluster_of(options)
    request = request_of(options)
    experiment = built(request, options)
    experiment.check()  # what does not fit is refused before there is a directory
    check_found_again(experiment)
    tell_names(_lenders(experiment))
    path = options.out or Path("runs") / request.run_id(experiment)
    if path.exists() and options.reuse:
        return _reuse(stored_run(path), experiment, options, on)
    if on is None:
        experiment.check_engine()
    join(on, options)
    directory = RunDirectory.create(path, run_json(request, experiment, options.arguments))
    if not options.quiet:
        if is_reference(options.env):
            _print_own(directory.run["paper_diff"], request, experiment)
        else:
            _print_difference(directory.run["paper_diff"], options.explain)
    return _execute(directory, experiment, options, on)


def list_settings(options: argparse.Namespace) -> int:
    """The settings of a run, for `mesax list METHOD ENV`."""
    method, learner = named_method(options)
    settings = documented(named_experiment(method, options.env, options.preset, learner))
    label = method if learner is None else f"{method}+{learner}"
    print(f"Settings of {label} on {options.env}, preset {options.preset}")
    shown = settings
    if options.grep is not None:
        word = options.grep.lower()
        shown = [setting for setting in settings if word in f"{setting.path} {setting.doc}".lower()]
    elif not options.all:
        shown = [setting for setting in settings if setting.path in THAT_MATTER]
    width = max((len(setting.path) for setting in shown), default=0) + 2
    for setting in shown:
        choices = f"One of: {', '.join(setting.choices)}." if setting.choices else ""
        print(f"--{setting.path:<{width}} {setting.value!s:<18} {setting.doc} {choices}".rstrip())
    if len(shown) < len(settings):
        print(f"{len(shown)} of {len(settings)} settings; --all shows every one, --grep WORD those that mention a word")
    return 0


def _lenders(experiment: Experiment) -> list[RunDirectory]:
    """The runs whose meta-training an experiment borrows, as far as they are there."""
    places = map(Path, borrowed_from(dict(items(experiment.method))).values())
    return [open_run(place) for place in places if (place / "run.json").is_file()]


def request_of(options: argparse.Namespace) -> Request:
    """What the arguments of `run` ask for."""
    method, learner = named_method(options)

    def with_settings(pairs: Sequence[tuple[str, str]]) -> Request:
        preset, seed, tasks = options.preset, options.seed, options.num_test_tasks
        return Request(method, options.env, preset, seed, tasks, tuple(pairs), learner)

    try:
        return with_settings(parse_arguments(options.rest))
    except ValueNeeded as error:
        check_path(with_settings(error.before).experiment(), error.path)  # a name that is wrong needs no value
        raise


def built(request: Request, options: argparse.Namespace) -> Experiment:
    """The experiment that is asked for; what is no setting of it may be a mistyped option."""
    try:
        return request.experiment()
    except UnknownSetting as error:
        if near := closest(f"--{error.path}", options.flags, 0.8):
            raise UsageError(f"unknown setting --{error.path}; did you mean the option {near[0]}?") from error
        raise


def named_method(options: argparse.Namespace) -> tuple[str, str | None]:
    """The method and its learner, which `METHOD+LEARNER` names as `--learner` does."""
    method, learner = method_and_learner(options.method)
    if learner is not None and options.learner is not None:
        raise UsageError(f"'{options.method}' names a learner already: leave out --learner {options.learner}")
    return method, options.learner if learner is None else learner


def _reuse(directory: RunDirectory, experiment: Experiment, options: argparse.Namespace, on: OnRay | None) -> int:
    """Continue or show a run that exists, if it is the one asked for."""
    if directory.run.get("config_hash") != digest(experiment):
        difference = f"{directory.run.get('id', 'unknown')}: {stored_difference(directory.run, experiment)}"
        raise UsageError(
            f"{directory.path} holds another configuration ({difference}); choose another directory with --out"
        )
    check_facts(directory.run, experiment)
    return _continue(directory, lambda: experiment, options, on)


def resume(options: argparse.Namespace) -> int:
    """Continue a stopped run where it was saved; merge the jobs of a finished one again if its results are damaged."""
    check_trackers(options.track)
    on = cluster_of(options)
    directory = stored_run(options.run)
    return _continue(directory, lambda: stored_experiment(directory, options), options, on)


def _continue(
    directory: RunDirectory, built: Callable[[], Experiment], options: argparse.Namespace, on: OnRay | None
) -> int:
    """Show a run, do what is left of it, or mend its results, which takes no engine."""
    damage = _damage(directory)
    if directory.status == "done" and damage is None:
        return _show(directory.path, options, directory.read_json("summary.json"))
    experiment = built()
    if on is None and damage is None:
        experiment.check_engine()
    return _execute(directory, experiment, options, on, damage)


def _damage(directory: RunDirectory) -> DamageError | None:
    """The first thing that is wrong with the results of a finished run, if anything is."""
    if directory.status != "done":
        return None
    try:
        directory.check_results()
    except DamageError as damage:
        return damage
    return None


def _execute(
    directory: RunDirectory,
    experiment: Experiment,
    options: argparse.Namespace,
    on: OnRay | None,
    damage: DamageError | None = None,
) -> int:
    join(on, options)
    try:
        with directory.lock():
            if damage is not None:
                reopen(directory, damage)
            summary = execute(directory, experiment, options.workers, options.quiet, options.track, on)
    except Preempted:
        return fail(f"stopped and saved; {how_to_continue(directory, on.words if on else ())}", PREEMPTED)
    return _show(directory.path, options, summary)


def _show(path: Path, options: argparse.Namespace, summary: Mapping[str, object]) -> int:
    """Table, figures and files of a finished run."""
    result = load_run(path)
    print_table(task_table(result))
    print_table(comparison_table([result]))
    if "largest_cut_short" in summary:
        share = summary["largest_cut_short"]
        print(f"note     the environment cut episodes short: up to {share:.1%} of a chunk (cut_short in metrics.jsonl)")
    for sign in signs(result):
        print(f"note     {sign}")
    for picture in draw_run_safely(result):
        print(f"drawn    {picture}")
    print(f"saved    {path}")
    if options.json:
        print(json.dumps(summary))
    return 0


def _print_difference(differences: Sequence[Sequence[object]], explains: bool) -> None:
    """How this run differs from the paper's, on stderr: in one line, or setting by setting."""
    paths = {str(path) for path, _, _ in differences}
    # The parts of a class that was exchanged say nothing more.
    told = [row for row in differences if str(row[0]).rpartition(".")[0] not in paths]
    number = f"{len(told)} settings differ from" if told else "same settings as"
    more = "" if explains or not told else "; --explain shows them"
    print(f"{number} preset paper{more} (mesax list --deviations: where that differs from the paper)", file=sys.stderr)
    for path, paper, ours in told if explains else ():
        print(f"  {path}: {_short(ours)} (paper preset: {_short(paper)})", file=sys.stderr)


def _print_own(differences: Sequence[Sequence[object]], request: Request, experiment: Experiment) -> None:
    """The same for a world that the paper does not have, and what was found out or guessed of it."""
    family, suite = experiment.family, suite_of(request.env)
    print(
        f"episodes of {request.env} are cut after {family.env.spec.horizon} steps; {len(differences)} settings differ"
        " from preset paper (run.json, mesax report)",
        file=sys.stderr,
    )
    if request.guesses_best:
        best = family.optimal_return
        print(
            f"solved is a return from {family.optimal_threshold:g} on, for the best is taken to be"
            f" {best:g}: a reward of 1 at each of {best:g} steps (--family.optimal-return says better)",
            file=sys.stderr,
        )
    if isinstance(suite, ForeignSuite) and request.preset != "smoke":  # whose budgets are fixed
        for line in suite.budgets(experiment):
            print(line, file=sys.stderr)


def _short(value: object) -> str:
    return "none" if value is None else str(value)
