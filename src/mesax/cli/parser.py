"""The command line. JAX and all that is heavy is imported only by the verbs that compute: `--help` is instant."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from mesax import __version__
from mesax.errors import (
    FAILED,
    IO_ERROR,
    PREEMPTED,
    USAGE,
    WORKER_LOST,
    Preempted,
    StoreError,
    TrainingError,
    UsageError,
    WorkerLost,
)
from mesax.experiments.names import ENVIRONMENTS, LEARNERS, METHODS, PRESETS, WRAPPERS

RUN_FLAGS = ("--json", "--quiet", "--reuse", "--help")
"""The options of `run` that take no value."""


class _Parser(argparse.ArgumentParser):
    """argparse, with one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; every expected failure is one line on stderr and an exit code."""
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()  # here, so that a reader who has left is noticed below and not at exit
        return code
    except UsageError as error:
        return _fail(str(error), USAGE)
    except StoreError as error:
        return _fail(str(error), IO_ERROR)
    except WorkerLost as error:
        return _fail(str(error), WORKER_LOST)
    except TrainingError as error:
        return _fail(str(error), FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}", IO_ERROR)
    except KeyboardInterrupt:
        return _fail("stopped", 130)


def _fail(message: str, code: int) -> int:
    print(f"mesax: {' '.join(message.split())}", file=sys.stderr)
    return code


def _dispatch(arguments: list[str]) -> int:
    options = _parse(arguments)
    if not hasattr(options, "verb_function"):
        _build_parser().print_help()
        return USAGE
    code: int = options.verb_function(options)
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    options, rest = _build_parser().parse_known_args(_with_joined_overrides(arguments))
    if rest and not getattr(options, "takes_overrides", True):
        raise UsageError(f"unexpected argument '{rest[0]}'; see mesax {options.verb} --help")
    options.arguments, options.rest = arguments, rest
    return options


def _with_joined_overrides(arguments: list[str]) -> list[str]:
    """`--name value` after `run` as `--name=value`, so that a setting's value cannot be taken for METHOD or ENV."""
    if arguments[:1] != ["run"]:
        return arguments
    joined: list[str] = []
    for word in arguments:
        before = joined[-1] if joined else ""
        waits = before.startswith("--") and "=" not in before and before not in (*RUN_FLAGS, "--")
        if waits and not word.startswith("--"):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mesax", description="MESA: cooperative meta-exploration, in JAX.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"mesax {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")

    def verb(name: str, function: Callable[..., int], text: str, overrides: bool = False) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(verb_function=function, takes_overrides=overrides)
        return sub

    def run_argument(sub: argparse.ArgumentParser, many: bool = False) -> None:
        sub.add_argument("runs" if many else "run", metavar="RUN_DIR", type=Path, nargs="+" if many else None)

    sub = verb("list", _list, "methods, environments and presets; with METHOD and ENV, every setting")
    sub.add_argument("method", nargs="?")
    sub.add_argument("env", nargs="?")
    sub.add_argument("--preset", default="quick")
    sub.add_argument("--learner")

    sub = verb("run", _run, "meta-train if the method needs it, learn each unseen test task, save and summarize", True)
    sub.epilog = (
        "Any other setting is given as --path value, for example --schedule.total-steps 20000 or"
        " --algorithm.actor-update.margin 0.2; 'mesax list METHOD ENV' shows all of them."
    )
    sub.add_argument("method", metavar="METHOD", help=", ".join(METHODS))
    sub.add_argument("env", metavar="ENV", help=", ".join(ENVIRONMENTS))
    sub.add_argument("--preset", default="quick", help=f"{', '.join(PRESETS)} (default quick)")
    sub.add_argument("--learner", help=f"with {', '.join(WRAPPERS)}: wrap this learner ({', '.join(LEARNERS)})")
    sub.add_argument("--seed", type=int, default=0, help="determines tasks, nets, everything")
    sub.add_argument("--num-test-tasks", type=int, help="unseen tasks to learn")
    sub.add_argument("--out", type=Path, help="run directory (default runs/<id>)")
    sub.add_argument("--workers", type=int, help="processes (default: one per core); never changes results")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    sub.add_argument("--quiet", action="store_true", help="no progress")
    sub.add_argument("--reuse", action="store_true", help="if the directory holds this very run, use or continue it")

    sub = verb("resume", _resume, "continue a stopped run where it was saved")
    run_argument(sub)
    sub.add_argument("--workers", type=int)
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--quiet", action="store_true")

    sub = verb("eval", _eval, "play the saved policies again, greedily, with fresh randomness")
    run_argument(sub)
    sub.add_argument("--episodes", type=int, default=100)
    sub.add_argument("--seed", type=int, default=0, help="of the episodes, not of the run")
    sub.add_argument("--json", action="store_true")

    sub = verb("render", _render, "draw an episode of a saved policy: a still, and a GIF")
    run_argument(sub)
    sub.add_argument("--task", type=int, default=0, help="number of the test task")
    sub.add_argument("--policy", default="final", help="final, uniform, or explorer-1, explorer-2, ...")
    sub.add_argument("--gif", type=Path, help="where to write the GIF (default: figures/ in the run)")

    sub = verb("compare", _compare, "one table and one plot for several runs")
    run_argument(sub, many=True)
    sub.add_argument("--out", type=Path, help="where to draw (default: figures/ beside the first run)")
    sub.add_argument("--json", action="store_true")

    sub = verb("sweep", _sweep, "methods x environments x seeds, one run after another; then compare them", True)
    sub.epilog = "Any other option is passed on to 'mesax run', for example --schedule.total-steps 20000."
    names = f"{', '.join(METHODS)}; with a learner: mesa+qmix"
    sub.add_argument("--methods", nargs="+", required=True, metavar="METHOD", help=names)
    sub.add_argument("--envs", nargs="+", required=True, metavar="ENV", help=", ".join(ENVIRONMENTS))
    sub.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    sub.add_argument("--preset", default="quick", help=f"{', '.join(PRESETS)} (default quick)")
    sub.add_argument("--num-test-tasks", type=int, help="unseen tasks to learn in each run")
    sub.add_argument("--out", type=Path, default=Path("runs/sweep"), help="where the run directories go")
    sub.add_argument("--workers", type=int, help="processes of each run (default: one per core)")
    sub.add_argument("--plan", action="store_true", help="only say what would be done")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    sub.add_argument("--quiet", action="store_true", help="no progress")

    sub = verb("report", _report, "a self-contained HTML page about one or several runs")
    run_argument(sub, many=True)
    sub.add_argument("--out", type=Path, help="file to write (default: report.html in the first run)")

    sub = verb("verify", _verify, "check every file of a run against its checksum")
    run_argument(sub)

    sub = verb("export", _export, "write a run's exploration policies as a bundle that loads without a trainer")
    run_argument(sub)
    sub.add_argument("--out", type=Path, help="directory to write (default: bundle/ in the run)")

    sub = verb("doctor", _doctor, "versions, devices, caches and a short self-test")
    sub.add_argument("--json", action="store_true")

    sub = verb("env", _env, "environments of your own: 'mesax env check MODULE:FACTORY' says whether one fits")
    actions = sub.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    text = "play an environment of PettingZoo or Gymnasium at random and say in words what fits and what does not"
    action = actions.add_parser("check", help=text, description=text, allow_abbrev=False)
    action.add_argument("factory", metavar="MODULE:FACTORY", help="a function from a seed to an environment")
    action.add_argument("--seeds", type=int, default=3, help="tasks to play (default 3)")
    action.add_argument("--steps", type=int, default=500, help="steps on each (default 500)")
    action.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    return parser


def _list(options: argparse.Namespace) -> int:
    if options.method is not None:
        return _list_settings(options)
    for title, names in (
        ("Methods", METHODS),
        ("Learners", LEARNERS),
        ("Environments", ENVIRONMENTS),
        ("Presets", PRESETS),
    ):
        print(title)
        for name, text in names.items():
            print(f"  {name:<12} {text}")
    print("\n'mesax list METHOD ENV [--preset P]' shows every setting of a run and how to change it.")
    return 0


def _list_settings(options: argparse.Namespace) -> int:
    if options.method not in METHODS:
        raise UsageError(f"unknown method '{options.method}'; choose one of {', '.join(METHODS)}")
    if options.env is None:
        raise UsageError(f"name an environment too: {', '.join(ENVIRONMENTS)}")
    _compute()
    from mesax.experiments.catalogue import experiment
    from mesax.experiments.overrides import documented

    settings = documented(experiment(options.method, options.env, options.preset, options.learner))
    width = max(len(setting.path) for setting in settings) + 2
    for setting in settings:
        print(f"--{setting.path:<{width}} {setting.value!s:<18} {setting.doc}".rstrip())
    return 0


def _run(options: argparse.Namespace) -> int:
    _check_workers(options.workers)
    _compute()
    from mesax.experiments.request import run_json
    from mesax.store.run_directory import RunDirectory

    request = _request(options)
    experiment = request.experiment()
    experiment.method.check(experiment)  # what does not fit is refused before there is a directory
    path = options.out or Path("runs") / request.run_id()
    if path.exists() and options.reuse:
        return _reuse(RunDirectory.open(path), request, options)
    run = RunDirectory.create(path, run_json(request, experiment))
    if not options.quiet:
        _print_difference(run.run["paper_diff"])
    return _execute(run, experiment, options)


def _request(options: argparse.Namespace) -> Any:
    """What the arguments of `run` ask for."""
    from mesax.experiments.overrides import parse_arguments
    from mesax.experiments.request import Request

    return Request(
        options.method,
        options.env,
        options.preset,
        options.seed,
        options.num_test_tasks,
        tuple(parse_arguments(options.rest)),
        options.learner,
    )


def _reuse(run: Any, request: Any, options: argparse.Namespace) -> int:
    """Continue or show a run that exists, if it is the one asked for."""
    from mesax.experiments.overrides import digest
    from mesax.experiments.request import stored_difference

    experiment = request.experiment()
    if run.run.get("config_hash") != digest(experiment):
        difference = f"{run.run.get('id', 'unknown')}: {stored_difference(run.run, experiment)}"
        raise UsageError(f"{run.path} holds another configuration ({difference}); choose another directory with --out")
    if run.status == "done":
        return _show(run.path, options, run.read_json("summary.json"))
    return _execute(run, experiment, options)


def _resume(options: argparse.Namespace) -> int:
    _check_workers(options.workers)
    from mesax.store.run_directory import RunDirectory

    run = RunDirectory.open(options.run)
    if run.status == "done":
        return _show(run.path, options, run.read_json("summary.json"))
    _compute()
    from mesax.experiments.request import Request

    return _execute(run, Request.of_run(run.run).experiment(), options)


def _execute(run: Any, experiment: Any, options: argparse.Namespace) -> int:
    from mesax.execution.runner import available_cores, execute, how_to_continue

    workers = available_cores() if options.workers is None else options.workers
    try:
        with run.lock():
            summary = execute(run, experiment, workers, quiet=options.quiet)
    except Preempted:
        return _fail(f"stopped and saved; {how_to_continue(run)}", PREEMPTED)
    return _show(run.path, options, summary)


def _show(path: Path, options: argparse.Namespace, summary: dict[str, Any]) -> int:
    """Table, figures and files of a finished run."""
    from mesax.results.drawing import draw_run
    from mesax.results.tables import comparison_table, print_table, task_table
    from mesax.store.reading import load_run

    result = load_run(path)
    print_table(task_table(result))
    print_table(comparison_table([result]))
    if "largest_cut_short" in summary:
        share = summary["largest_cut_short"]
        print(f"note     the environment cut episodes short: up to {share:.1%} of a chunk (cut_short in metrics.jsonl)")
    for picture in draw_run(path):
        print(f"drawn    {picture}")
    print(f"saved    {path}")
    if options.json:
        print(json.dumps(summary))
    return 0


def _eval(options: argparse.Namespace) -> int:
    if options.episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {options.episodes}")
    if not 0 <= options.seed < 2**32:
        raise UsageError(f"--seed must lie between 0 and {2**32 - 1}, not {options.seed}")
    from mesax.store.run_directory import RunDirectory

    run = RunDirectory.open(options.run)
    _compute()
    from mesax.execution.saved_policies import evaluate_run

    rows = evaluate_run(run, options.episodes, options.seed)
    for row in rows:
        groups = "  ".join(f"{name} {value:.3f}" for name, value in row["groups"].items())
        print(f"task {row['task']:>2} run {row['repeat']}  {row['label']:<12}  return {row['return']:.4f}  {groups}")
    mean = sum(row["return"] for row in rows) / len(rows)
    print(f"mean return {mean:.4f} over {len(rows)} policies, {options.episodes} episodes each")
    if options.json:
        print(json.dumps({"mean_return": mean, "episodes": options.episodes, "per_task": rows}))
    return 0


def _render(options: argparse.Namespace) -> int:
    from mesax.store.run_directory import RunDirectory

    run = RunDirectory.open(options.run)
    _compute()
    from mesax.execution.saved_policies import render_run

    for path in render_run(run, options.task, options.policy, options.gif):
        print(f"drawn    {path}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from mesax.results.comparison import compare_directories, show_comparison

    result = show_comparison(compare_directories(options.runs), options.out or options.runs[0].parent / "figures")
    if options.json:
        print(json.dumps(result))
    return 0


def _sweep(options: argparse.Namespace) -> int:
    _check_workers(options.workers)
    _compute()
    from mesax.execution.sweep import Grid, plan, show_plan, sweep

    extra = [word for word in options.rest if word != "--"]
    grid = Grid(options.methods, options.envs, options.seeds, options.preset, options.num_test_tasks, extra)
    planned = plan(grid, options.out, _digest_of_what_fits())
    if options.plan:
        return show_plan(planned, options.json)
    code = sweep(planned, options.workers, options.quiet, options.json)
    if code == PREEMPTED:
        return _fail(f"stopped; what is done is kept, continue with: mesax {shlex.join(options.arguments)}", code)
    return code


def _digest_of_what_fits() -> Callable[[list[str]], str]:
    """From the arguments of `run` to the digest of what they ask for; what does not fit is refused."""
    from mesax.experiments.overrides import digest

    fitting: set[Any] = set()

    def read(words: list[str]) -> str:
        experiment = _request(_parse(["run", *words])).experiment()
        if (like := replace(experiment, seed=0)) not in fitting:  # another seed fits as well
            experiment.method.check(experiment)
            fitting.add(like)
        return digest(experiment)

    return read


def _report(options: argparse.Namespace) -> int:
    from mesax.results.report import write_report

    path = write_report(options.runs, options.out or options.runs[0] / "report.html")
    print(f"written  {path}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from mesax.store.run_directory import RunDirectory
    from mesax.store.verify import verify_run

    found = verify_run(RunDirectory.open(options.run))
    for problem in found.problems:
        print(f"damaged  {problem}")
    print(f"checked  {found.checked} files of {options.run}, status '{found.status}'")
    return _fail(f"{len(found.problems)} problems in {options.run}", IO_ERROR) if found.problems else 0


def _export(options: argparse.Namespace) -> int:
    from mesax.explorers.bundle import export_run
    from mesax.store.run_directory import RunDirectory

    print(f"written  {export_run(RunDirectory.open(options.run), options.out)}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    _compute()
    from mesax.cli.doctor import examine

    return examine(as_json=options.json)


def _env(options: argparse.Namespace) -> int:
    _compute()
    from mesax.cli.env_check import check

    return check(options.factory, options.seeds, options.steps, options.json)


def _compute() -> None:
    """Set JAX up before anything imports it for computing."""
    from mesax.runtime import configure

    configure()


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")


def _print_difference(differences: list[list[Any]]) -> None:
    """How this run differs from the paper's, on stderr."""
    if not differences:
        print("same settings as the paper preset", file=sys.stderr)
        return
    paths = {path for path, _, _ in differences}
    print("differs from the paper preset (all of it: run.json, mesax report):", file=sys.stderr)
    for path, paper, ours in differences:
        if path.rpartition(".")[0] not in paths:  # the parts of a class that was exchanged say nothing more
            print(f"  {path}: {_short(ours)} (paper preset {_short(paper)})", file=sys.stderr)


def _short(value: Any) -> str:
    return "-" if value is None else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
