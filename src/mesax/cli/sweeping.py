"""`mesax sweep`, and the runs that `mesax reproduce --run` starts the same way."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from mesax.bridges.ray_cluster import connection
from mesax.bridges.ray_cluster.where import OnRay
from mesax.bridges.tracking.sinks import check_trackers
from mesax.cli.cluster import cluster_asked_for, cluster_of, join, leave_cluster
from mesax.cli.parser import parse
from mesax.cli.running import request_of
from mesax.cli.telling import fail
from mesax.errors import PREEMPTED, UsageError
from mesax.execution.sweep import MOST_AT_ONCE, Grid, How, plan, show_plan, skip_stored, sweep
from mesax.experiments.overrides import digest
from mesax.methods.base import Experiment
from mesax.results.evidence.kept import Kept
from mesax.results.evidence.same_settings import is_of


def sweep_runs(options: argparse.Namespace) -> int:
    """Methods x environments x seeds, one run after another."""
    check_trackers(options.track)
    on = cluster_asked_for(options) if options.plan else cluster_of(options)
    if options.results is not None and not options.results.is_dir():  # mistyped, it would have everything run again
        raise UsageError(f"there is no store of results at {options.results}: name another, or make the directory")
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
    limit = _limit(options)
    if on is None:
        return How(limit, options.at_once or 1)
    own = on.cluster is None
    join(on, options)
    words = replace(on, address=connection.address() if own else on.address).words
    return How((*words, *(() if own else limit)), options.at_once or min(MOST_AT_ONCE, connection.cpus()))


def _limit(options: argparse.Namespace) -> tuple[str, ...]:
    """How many workers each run may have, as words of the command line."""
    return () if options.workers is None else ("--workers", str(options.workers))


def is_result_of(kept: Kept, words: Sequence[str]) -> bool:
    """Whether a result of the store is what arguments of `run` ask for."""
    return is_of(kept, request_of(parse(["run", *words])).experiment())


def digest_of_what_fits() -> Callable[[list[str]], str]:
    """From the arguments of `run` to the digest of what they ask for; what does not fit is refused."""
    fitting: set[Experiment] = set()

    def read(words: list[str]) -> str:
        experiment = request_of(parse(["run", *words])).experiment()
        if (like := replace(experiment, seed=0)) not in fitting:  # another seed fits as well
            experiment.check()
            fitting.add(like)
        return digest(experiment)

    return read
