"""Verbs that run: `run`, `resume`, `sweep`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mesax.cli.telling import check_at_once, check_workers, fail, prepare_jax, stored_run, tell_names
from mesax.errors import PREEMPTED, DamageError, Preempted, UsageError
from mesax.experiments.names import method_and_learner
from mesax.tracking.sinks import check_trackers

if TYPE_CHECKING:
    from mesax.envs.base import TaskFamily
    from mesax.execution.ray_cluster.where import OnRay
    from mesax.execution.sweep import How
    from mesax.experiments.rebuild import ModuleNeeded
    from mesax.experiments.request import Request
    from mesax.methods.base import Experiment
    from mesax.results.evidence.kept import Kept
    from mesax.store.run_directory import RunDirectory


def run(options: argparse.Namespace) -> int:
    """Build what is asked for, give it a directory, and do it."""
    check_workers(options.workers)
    check_trackers(options.track)
    on = cluster_of(options)
    prepare_jax()
    from mesax.experiments.rebuild import check_found_again
    from mesax.experiments.request import run_json
    from mesax.store.modules import is_reference
    from mesax.store.run_directory import RunDirectory

    request = request_of(options)
    experiment = request.experiment()
    experiment.check()  # what does not fit is refused before there is a directory
    check_found_again(experiment)
    tell_names(_lenders(experiment))
    path = options.out or Path("runs") / request.run_id()
    if path.exists() and options.reuse:
        return _reuse(stored_run(path), experiment, options)
    if on is None:
        experiment.check_engine()
    join(on, options)
    directory = RunDirectory.create(path, run_json(request, experiment))
    if not options.quiet:
        if is_reference(options.env):
            _print_own(directory.run["paper_diff"], request, experiment.family)
        else:
            _print_difference(directory.run["paper_diff"])
    return _execute(directory, experiment, options)


def _lenders(experiment: Experiment) -> list[RunDirectory]:
    """The runs whose meta-training an experiment borrows, as far as they are there."""
    from mesax.store.reading import borrowed_from
    from mesax.store.settings import items
    from mesax.suites.renamed import open_run

    places = map(Path, borrowed_from(dict(items(experiment.method))).values())
    return [open_run(place) for place in places if (place / "run.json").is_file()]


def request_of(options: argparse.Namespace) -> Request:
    """What the arguments of `run` ask for."""
    from mesax.experiments.overrides import ValueNeeded, check_path, parse_arguments
    from mesax.experiments.request import Request

    method, learner = named_method(options)

    def with_settings(pairs: Sequence[tuple[str, str]]) -> Request:
        preset, seed, tasks = options.preset, options.seed, options.num_test_tasks
        return Request(method, options.env, preset, seed, tasks, tuple(pairs), learner)

    try:
        return with_settings(parse_arguments(options.rest))
    except ValueNeeded as error:
        check_path(with_settings(error.before).experiment(), error.path)  # a name that is wrong needs no value
        raise


def named_method(options: argparse.Namespace) -> tuple[str, str | None]:
    """The method and its learner, which `METHOD+LEARNER` names as `--learner` does."""
    method, learner = method_and_learner(options.method)
    if learner is not None and options.learner is not None:
        raise UsageError(f"'{options.method}' names a learner already: leave out --learner {options.learner}")
    return method, options.learner if learner is None else learner


def _reuse(directory: RunDirectory, experiment: Experiment, options: argparse.Namespace) -> int:
    """Continue or show a run that exists, if it is the one asked for."""
    from mesax.experiments.overrides import digest
    from mesax.experiments.rebuild import stored_difference

    if directory.run.get("config_hash") != digest(experiment):
        difference = f"{directory.run.get('id', 'unknown')}: {stored_difference(directory.run, experiment)}"
        raise UsageError(
            f"{directory.path} holds another configuration ({difference}); choose another directory with --out"
        )
    damage = _damage(directory)
    if directory.status == "done" and damage is None:
        return _show(directory.path, options, directory.read_json("summary.json"))
    return _continue(directory, experiment, options, damage)


def resume(options: argparse.Namespace) -> int:
    """Continue a stopped run where it was saved; merge the jobs of a finished one again if its results are damaged."""
    check_workers(options.workers)
    check_trackers(options.track)
    cluster_of(options)
    directory = stored_run(options.run)
    damage = _damage(directory)
    if directory.status == "done" and damage is None:
        return _show(directory.path, options, directory.read_json("summary.json"))
    prepare_jax()
    experiment, _ = stored_experiment(directory, options)
    return _continue(directory, experiment, options, damage)


def _continue(
    directory: RunDirectory, experiment: Experiment, options: argparse.Namespace, damage: DamageError | None
) -> int:
    """Do what is left of a run, or mend its results, which takes no engine."""
    if options.on is None and damage is None:
        experiment.check_engine()
    return _execute(directory, experiment, options, damage)


def _damage(directory: RunDirectory) -> DamageError | None:
    """The first thing that is wrong with the results of a finished run, if anything is."""
    if directory.status != "done":
        return None
    try:
        directory.check_results()
    except DamageError as damage:
        return damage
    return None


def stored_experiment(
    directory: RunDirectory, options: argparse.Namespace
) -> tuple[Experiment, tuple[ModuleType, ...]]:
    """The experiment of a run directory, and the user's modules that `--load` names; says what to type if one lacks."""
    from mesax.experiments.rebuild import ModuleNeeded, experiment_of
    from mesax.store.modules import load_modules
    from mesax.suites.registry import packages_of_suites

    modules = (*load_modules(options.load), *packages_of_suites())
    try:
        return experiment_of(directory.run, modules), modules
    except ModuleNeeded as error:
        command = shlex.join(["mesax", *options.arguments, *_loads(options.load, error)])
        raise UsageError(f"{error}; type: {command}") from error


def _loads(given: Sequence[str], error: ModuleNeeded) -> list[str]:
    """What to add so that the modules that are needed and were not given are loaded, too."""
    missing = dict.fromkeys(module for module in error.modules if module not in given)
    return [word for module in missing for word in ("--load", module)]


def _execute(
    directory: RunDirectory, experiment: Experiment, options: argparse.Namespace, damage: DamageError | None = None
) -> int:
    from mesax.execution.mending import reopen
    from mesax.execution.runner import execute
    from mesax.execution.workers import how_to_continue

    on = cluster_of(options)
    join(on, options)
    try:
        with directory.lock():
            if damage is not None:
                reopen(directory, damage)
            summary = execute(directory, experiment, options.workers, options.quiet, options.track, on)
    except Preempted:
        return fail(f"stopped and saved; {how_to_continue(directory, on.words if on else ())}", PREEMPTED)
    return _show(directory.path, options, summary)


def cluster_of(options: argparse.Namespace) -> OnRay | None:
    """The cluster that is to do the jobs, if one is asked for and could be used."""
    on = cluster_asked_for(options)
    if on is not None:
        on.check()
    return on


def cluster_asked_for(options: argparse.Namespace) -> OnRay | None:
    """The same by its options alone: whoever only plans may sit where neither Ray nor the cluster is."""
    from mesax.execution.ray_cluster.where import OnRay

    if options.on is None:
        given = ("--address", options.address), ("--shared", options.shared), ("--num-gpus", options.num_gpus)
        for name, value in given:
            if value:
                raise UsageError(f"{name} belongs to a cluster: say --on ray, too")
        return None
    return OnRay(options.address, options.shared, options.num_gpus or 0.0)


def join(on: OnRay | None, options: argparse.Namespace) -> None:
    """Connect to the cluster now: what is wrong with it is said before anything is begun."""
    if on is None:
        return
    from mesax.execution.ray_cluster import connection

    if on.cluster is None and not options.quiet and connection.loaded() is None:
        print("starting Ray on this machine", file=sys.stderr, flush=True)
    connection.connect(on, options.workers)


def leave_cluster(on: OnRay | None) -> None:
    """Disconnect; a cluster that was started here ends."""
    if on is not None:
        from mesax.execution.ray_cluster import connection

        connection.disconnect()


def _show(path: Path, options: argparse.Namespace, summary: Mapping[str, object]) -> int:
    """Table, figures and files of a finished run."""
    from mesax.results.safe_drawing import draw_run_safely
    from mesax.results.summary import signs
    from mesax.results.tables import comparison_table, print_table, task_table
    from mesax.suites.renamed import load_run

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


def keep_episodes(path: Path, load: Sequence[str], quiet: bool = False) -> None:
    """Record episodes of a finished run that has none yet; what goes wrong is a line, and costs no result."""
    from mesax.rendering.recorded import has_episodes
    from mesax.suites.renamed import open_run

    directory = open_run(path)
    if directory.status != "done" or has_episodes(path):
        return
    prepare_jax()
    from mesax.experiments.rebuild import ModuleNeeded, experiment_of
    from mesax.results.safe_drawing import attempt
    from mesax.store.modules import load_modules
    from mesax.suites.registry import packages_of_suites

    def rebuilt_and_played() -> None:
        modules = (*load_modules(load), *packages_of_suites())
        try:
            experiment = experiment_of(directory.run, modules)
        except ModuleNeeded as error:
            raise UsageError(f"{error}; add {shlex.join(_loads(load, error))}") from error
        _record(directory, experiment, modules, quiet)

    attempt(f"of episodes of {path}", rebuilt_and_played)


def _record(
    directory: RunDirectory, experiment: Experiment, modules: Sequence[ModuleType], quiet: bool = False
) -> None:
    """Play episodes for the report."""
    from mesax.execution import recording

    if not quiet:
        print(f"playing  episodes of {directory.path} for its report", file=sys.stderr, flush=True)
    recording.record_episodes(directory, experiment, modules)


def sweep_runs(options: argparse.Namespace) -> int:
    """Methods x environments x seeds, one run after another."""
    check_workers(options.workers)
    check_trackers(options.track)
    check_at_once(options.at_once)
    on = cluster_asked_for(options) if options.plan else cluster_of(options)
    prepare_jax()
    from mesax.execution.sweep import Grid, plan, show_plan, skip_stored, sweep

    extra = [word for word in options.rest if word != "--"]
    extra += [word for name in options.track for word in ("--track", name)]
    grid = Grid(options.methods, options.envs, options.seeds, options.preset, options.num_test_tasks, extra)
    planned = plan(grid, options.out, digest_of_what_fits())
    if options.results is not None:
        planned = skip_stored(planned, options.results, lambda kept, run: is_result_of(kept, run.arguments))
    if options.plan:
        return show_plan(planned, options.json, (*(on.words if on else ()), *_limit(options)))
    how = how_to_do(on, options)
    try:
        code = sweep(planned, how, options.quiet, options.json, options.results)
    finally:
        leave_cluster(on)
    if code == PREEMPTED:
        return fail(f"stopped; what is done is kept, continue with: mesax {shlex.join(options.arguments)}", code)
    return code


def how_to_do(on: OnRay | None, options: argparse.Namespace) -> How:
    """How the runs of a sweep are done; on a cluster they share it, and one that starts here starts once."""
    from mesax.execution.sweep import MOST_AT_ONCE, How

    limit = _limit(options)
    if on is None:
        return How(limit, options.at_once or 1)
    from mesax.execution.ray_cluster import connection

    own = on.cluster is None
    join(on, options)
    words = replace(on, address=connection.address() if own else on.address).words
    return How((*words, *(() if own else limit)), options.at_once or min(MOST_AT_ONCE, connection.cpus()))


def _limit(options: argparse.Namespace) -> tuple[str, ...]:
    """How many workers each run may have, as words of the command line."""
    return () if options.workers is None else ("--workers", str(options.workers))


def is_result_of(kept: Kept, words: Sequence[str]) -> bool:
    """Whether a result of the store is what arguments of `run` ask for."""
    from mesax.cli.parser import parse
    from mesax.results.evidence.freshness import is_of

    return is_of(kept, request_of(parse(["run", *words])).experiment())


def digest_of_what_fits() -> Callable[[list[str]], str]:
    """From the arguments of `run` to the digest of what they ask for; what does not fit is refused."""
    from mesax.cli.parser import parse
    from mesax.experiments.overrides import digest

    fitting: set[Experiment] = set()

    def read(words: list[str]) -> str:
        experiment = request_of(parse(["run", *words])).experiment()
        if (like := replace(experiment, seed=0)) not in fitting:  # another seed fits as well
            experiment.check()
            fitting.add(like)
        return digest(experiment)

    return read


def _print_difference(differences: Sequence[Sequence[object]]) -> None:
    """How this run differs from the paper's, on stderr."""
    if not differences:
        print(
            "same settings as preset paper (where that differs from the paper itself: mesax list --deviations)",
            file=sys.stderr,
        )
        return
    paths = {str(path) for path, _, _ in differences}
    print("settings that differ from preset paper (full list in run.json and mesax report):", file=sys.stderr)
    for path, paper, ours in differences:
        if str(path).rpartition(".")[0] not in paths:  # the parts of a class that was exchanged say nothing more
            print(f"  {path}: {_short(ours)} (paper preset: {_short(paper)})", file=sys.stderr)
    print("where every preset differs from the paper itself: mesax list --deviations", file=sys.stderr)


def _print_own(differences: Sequence[Sequence[object]], request: Request, family: TaskFamily) -> None:
    """The same for a world that the paper does not have, and what was found out or guessed of it."""
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


def _short(value: object) -> str:
    return "none" if value is None else str(value)
