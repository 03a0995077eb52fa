"""The arguments of the command line; JAX and all that is heavy waits for the verbs that compute, so help is instant."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from mesax import __version__
from mesax.cli import checking, looking, running, studying
from mesax.cli.telling import fail
from mesax.errors import (
    FAILED,
    IO_ERROR,
    USAGE,
    WORKER_LOST,
    EnvironmentFault,
    OneLineError,
    Preempted,
    StoreError,
    UsageError,
    WorkerLost,
    plain,
    says_out_of_memory,
)
from mesax.execution.leaving import OF_YOURS, no_silent_exit
from mesax.experiments.names import AROUND_ANY, ENVIRONMENTS, LEARNERS, METHODS, PRESETS
from mesax.tracking.sinks import TRACKERS

RUN_FLAGS = ("--json", "--quiet", "--reuse", "--shared", "--help")
"""The options of `run` that take no value."""
METHOD_HELP = f"{', '.join(METHODS)}; with a learner: mesa+qmix"
ENV_HELP = f"{', '.join(ENVIRONMENTS)}; or one of your own as MODULE:ATTRIBUTE"


TRACEBACK = "MESAX_TRACEBACK"
"""An environment variable: if it is set, unexpected errors and those of an environment's own code show where they come
from."""


def _path(text: str) -> Path:
    """A path of the command line."""
    if not text or plain(text) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file or directory")
    return Path(text)


class _WholeNames(argparse.HelpFormatter):
    """Help whose names are never broken at a hyphen: they are there to be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    """argparse, with one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; every expected failure is one line on stderr and an exit code."""
    _be_robust()
    try:
        with no_silent_exit(lambda code: fail(f"{OF_YOURS} called os._exit({code}), which ended this process", FAILED)):
            code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()  # here, so that a reader who has left is noticed below and not at exit
        return code
    except OneLineError as error:
        if os.environ.get(TRACEBACK) and _is_of_an_environment(error):
            raise
        return fail(str(error), _exit_code(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return fail(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}", IO_ERROR)
    except KeyboardInterrupt:
        return fail("stopped", 130)
    except Exception as error:
        if says_out_of_memory(type(error).__name__, str(error)):
            return fail(f"there is not enough memory{f': {error}' if str(error) else ''}", FAILED)
        if os.environ.get(TRACEBACK):
            raise
        text = f"{type(error).__name__}: {error}"
        return fail(f"{text}; this is unexpected: please report it with what ${TRACEBACK}=1 shows", FAILED)


def _is_of_an_environment(error: BaseException | None) -> bool:
    """Whether an error is that of an environment, or was made of one."""
    return error is not None and (isinstance(error, EnvironmentFault) or _is_of_an_environment(error.__cause__))


def _exit_code(error: OneLineError) -> int:
    codes = ((UsageError, USAGE), (StoreError, IO_ERROR), (WorkerLost, WORKER_LOST))
    return next((code for kind, code in codes if isinstance(error, kind)), FAILED)


def _be_robust() -> None:
    """Let no name cost a result that the terminal cannot show, nor a drawing backend that is not used.

    Standard streams that are closed are opened: a file of a run would take their place, and be told what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # No figure needs a backend, but matplotlib does not start under a name that it does not know.
    os.environ["MPLBACKEND"] = "agg"
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where it keeps its fonts is nobody's concern


def _dispatch(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.verb_function is None:
        _build_parser().print_help()
        return USAGE
    try:
        code: int = options.verb_function(options)
    except Preempted:
        raise
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # of rich, which ends a program whose reader has left
            raise error.__context__ from error
        # Not ours: of a module or an environment of the user's.
        raise UsageError(f"{OF_YOURS} called sys.exit({error.code!r})") from error
    return code


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments as options; settings of a run, which only it knows, are left in `rest`."""
    options, rest = _build_parser().parse_known_args(_with_joined_overrides(arguments))
    if options.verb is not None:
        _refuse_flags_of_other_verbs(options.verb, rest)
    if rest and not options.takes_overrides:
        raise UsageError(f"unexpected argument '{rest[0]}'; see mesax {options.verb} --help")
    options.arguments, options.rest = arguments, rest
    return options


def _refuse_flags_of_other_verbs(verb: str, rest: Sequence[str]) -> None:
    """Say whose flag it is that a verb does not know; a sweep passes those of `run` on."""
    known = _flags_of_verbs()
    passed_on = known["run"] if verb == "sweep" else frozenset()
    for flag in (word.partition("=")[0] for word in rest):
        verbs = [name for name, flags in known.items() if flag in flags and flag not in passed_on]
        if verbs:
            raise UsageError(f"{flag} belongs to {_and(verbs)}; see mesax {verb} --help")


@cache
def _flags_of_verbs() -> dict[str, frozenset[str]]:
    (verbs,) = (action for action in _build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return {name: frozenset(sub._option_string_actions) for name, sub in verbs.choices.items()}


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


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


@cache
def _build_parser() -> argparse.ArgumentParser:
    about = "MESA: cooperative meta-exploration, in JAX."
    parser = _Parser(prog="mesax", description=about, allow_abbrev=False, formatter_class=_WholeNames)
    parser.add_argument("--version", action="version", version=f"mesax {__version__}")
    parser.set_defaults(verb_function=None, takes_overrides=True)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")

    def verb(name: str, function: Callable[..., int], text: str, overrides: bool = False) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False, formatter_class=_WholeNames)
        sub.set_defaults(verb_function=function, takes_overrides=overrides)
        return sub

    def load_option(sub: argparse.ArgumentParser) -> None:
        text = "module (or script) with classes and functions of yours that the run is made of; may be repeated"
        sub.add_argument("--load", action="append", default=[], metavar="MODULE", help=text)

    def run_argument(sub: argparse.ArgumentParser, many: bool = False) -> None:
        sub.add_argument("runs" if many else "run", metavar="RUN_DIR", type=_path, nargs="+" if many else None)

    def track_option(sub: argparse.ArgumentParser) -> None:
        text = "tell every row to this tool too, while the run goes on; may be repeated"
        sub.add_argument("--track", action="append", default=[], choices=list(TRACKERS), help=text)

    def cluster_options(sub: argparse.ArgumentParser) -> None:
        group = sub.add_argument_group("on a cluster", "the same jobs on Ray's workers; never changes results")
        group.add_argument("--on", choices=["ray"], help="who does the jobs; without it, processes of this machine")
        text = "HOST:PORT of the cluster, or auto for the one that this machine belongs to; without it, Ray starts here"
        group.add_argument("--address", help=text)
        text = "every node sees the run directory under the same path; without it, files travel through Ray"
        group.add_argument("--shared", action="store_true", help=text)
        group.add_argument("--num-gpus", type=float, help="GPUs of each job; a fraction lets several share one")

    def at_once_option(sub: argparse.ArgumentParser) -> None:
        text = "runs at a time (default 1; on a cluster as many as it has CPUs, but no more than 8)"
        sub.add_argument("--at-once", type=int, help=text)

    sub = verb("list", looking.list_names, "methods, environments and presets; with METHOD and ENV, every setting")
    sub.add_argument("method", nargs="?")
    sub.add_argument("env", nargs="?")
    sub.add_argument("--preset", default="quick")
    sub.add_argument("--learner")
    sub.add_argument("--deviations", action="store_true", help="every difference from the paper, in a line each")

    sub = verb(
        "run", running.run, "meta-train if the method needs it, learn each unseen test task, save and summarize", True
    )
    sub.epilog = (
        "Any other setting is given as --path value, for example --schedule.total-steps 20000 or"
        " --algorithm.actor-update.margin 0.2; 'mesax list METHOD ENV' shows all of them."
    )
    sub.add_argument("method", metavar="METHOD", help=METHOD_HELP)
    sub.add_argument("env", metavar="ENV", help=ENV_HELP)
    sub.add_argument("--preset", default="quick", help=f"{', '.join(PRESETS)} (default quick)")
    sub.add_argument(
        "--learner",
        help=f"with {', '.join(AROUND_ANY)}: wrap this learner ({', '.join(LEARNERS)}; those that learn from their own"
        " episodes only, mappo and mappo-rnd, with plain, pretrain, goal and cbet), or one of your own, MODULE:CLASS",
    )
    sub.add_argument("--seed", type=int, default=0, help="determines tasks, nets, everything")
    sub.add_argument("--num-test-tasks", type=int, help="unseen tasks to learn")
    sub.add_argument("--out", type=_path, help="run directory (default runs/<id>)")
    sub.add_argument("--workers", type=int, help="processes (default: one per core); never changes results")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    sub.add_argument("--quiet", action="store_true", help="no progress")
    sub.add_argument("--reuse", action="store_true", help="if the directory holds this very run, use or continue it")
    track_option(sub)
    cluster_options(sub)

    sub = verb("resume", running.resume, "continue a stopped run where it was saved")
    run_argument(sub)
    load_option(sub)
    track_option(sub)
    sub.add_argument("--workers", type=int)
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--quiet", action="store_true")
    cluster_options(sub)

    sub = verb("eval", looking.evaluate, "play the saved policies again, greedily, with fresh randomness")
    run_argument(sub)
    load_option(sub)
    sub.add_argument("--episodes", type=int, default=100)
    sub.add_argument("--seed", type=int, default=0, help="of the episodes, not of the run")
    text = "that of the end, or that of the best evaluation (default final)"
    sub.add_argument("--policy", choices=["final", "best"], default="final", help=text)
    sub.add_argument("--json", action="store_true")

    sub = verb("render", looking.render, "draw an episode of a saved policy: a still, and a GIF")
    run_argument(sub)
    load_option(sub)
    sub.add_argument("--task", type=int, default=0, help="number of the test task")
    sub.add_argument("--policy", default="final", help="final, best, uniform, or explorer-1, explorer-2, ...")
    sub.add_argument("--gif", type=_path, help="where to write the GIF (default: figures/ in the run)")

    sub = verb("compare", looking.compare, "one table and one plot for several runs, or files of a store of results")
    run_argument(sub, many=True)
    sub.add_argument("--out", type=_path, help="where to draw (default: figures/ beside the first run)")
    sub.add_argument("--json", action="store_true")

    sub = verb(
        "sweep", running.sweep_runs, "methods x environments x seeds, one run after another; then compare them", True
    )
    sub.epilog = "Any other option is passed on to 'mesax run', for example --schedule.total-steps 20000."
    sub.add_argument("--methods", nargs="+", required=True, metavar="METHOD", help=METHOD_HELP)
    sub.add_argument("--envs", nargs="+", required=True, metavar="ENV", help=ENV_HELP)
    sub.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    sub.add_argument("--preset", default="quick", help=f"{', '.join(PRESETS)} (default quick)")
    sub.add_argument("--num-test-tasks", type=int, help="unseen tasks to learn in each run")
    sub.add_argument("--out", type=_path, default=Path("runs/sweep"), help="where the run directories go")
    sub.add_argument("--workers", type=int, help="processes of each run (default: one per core)")
    sub.add_argument("--plan", action="store_true", help="only say what would be done")
    text = "store of results: runs whose result is there are skipped, those that finish are kept there"
    sub.add_argument("--results", type=_path, metavar="DIR", help=text)
    track_option(sub)
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    sub.add_argument("--quiet", action="store_true", help="no progress")
    cluster_options(sub)
    at_once_option(sub)

    sub = verb("report", looking.report, "a self-contained HTML page about runs, or about all runs below a directory")
    run_argument(sub, many=True)
    load_option(sub)
    sub.add_argument("--out", type=_path, help="file to write (default: report.html in the first directory)")
    text = "do not play episodes that a run has not recorded"
    sub.add_argument("--no-episodes", dest="episodes", action="store_false", help=text)
    sub.add_argument("--quiet", action="store_true", help="no progress")

    sub = verb("theory", studying.theory, "the paper's lemmas and theorems, checked exactly; tables and a picture")
    sub.add_argument("--out", type=_path, default=Path("runs/theory"), help="where to write (default runs/theory)")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")

    text = "draw figures and tables of the paper from stored results; say what is missing and its cost, or run it"
    sub = verb("reproduce", studying.reproduce, text)
    sub.add_argument(
        "piece", metavar="NAME", help="figure-1, figure-3, figure-4, figure-6 to figure-9, table-2, theory, all"
    )
    one_of = sub.add_mutually_exclusive_group()
    text = "only say what is stored, what is missing and what that costs; of some methods or environments, all commands"
    one_of.add_argument("--plan", action="store_true", help=text)
    one_of.add_argument("--run", action="store_true", help="run what is missing, and keep it in the store")
    sub.add_argument("--methods", nargs="+", metavar="METHOD", help="only these (default: all that it needs)")
    sub.add_argument("--envs", nargs="+", metavar="ENV", help="only in these")
    text = "only runs of this preset (default: of all, but --run runs those of quick: paper takes up to hours)"
    sub.add_argument("--preset", choices=list(PRESETS), help=text)
    sub.add_argument("--all", action="store_true", help="show complete rows too, not only those that lack runs")
    sub.add_argument("--runs", type=_path, default=Path("runs"), help="where runs are (default runs)")
    text = "store of results (default results)"
    sub.add_argument("--results", type=_path, metavar="DIR", default=Path("results"), help=text)
    sub.add_argument("--out", type=_path, default=Path("runs/paper"), help="where to draw (default runs/paper)")
    sub.add_argument("--workers", type=int, help="processes of each run (default: one per core)")
    sub.add_argument("--quiet", action="store_true", help="no progress")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    at_once_option(sub)
    cluster_options(sub)

    text = "check every file of a run against its checksum; or a store of results, and the pages that quote it"
    sub = verb("verify", checking.verify, text)
    sub.add_argument("run", metavar="RUN_DIR|RESULTS", type=_path)
    text = "of a store of results: write what the README and docs/ beside it quote anew"
    sub.add_argument("--write", action="store_true", help=text)

    text = "write a run's exploration policies as a bundle that loads without a trainer, or its rows for another tool"
    sub = verb("export", looking.export, text)
    run_argument(sub)
    sub.add_argument("--to", choices=[looking.BUNDLE, *TRACKERS], default=looking.BUNDLE, help="default: bundle")
    sub.add_argument("--out", type=_path, help="directory to write (default: bundle/ or tracking/ in the run)")

    sub = verb("status", looking.status, "how the runs of a directory are doing: phase, speed, time to go, last return")
    sub.add_argument("directory", metavar="DIR", type=_path, nargs="?", default=Path("runs"), help="default: runs")
    sub.add_argument("--watch", action="store_true", help="keep the table up to date until no run is at work")
    sub.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")

    sub = verb("doctor", checking.doctor, "versions, devices, caches and a short self-test")
    sub.add_argument("--json", action="store_true")

    sub = verb(
        "env",
        checking.check_environment,
        "environments of your own: 'mesax env check MODULE:ATTRIBUTE' says whether one fits",
    )
    actions = sub.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    text = (
        "play an environment of PettingZoo, Gymnasium or JaxMARL, or a task family, at random and say in words what"
        " fits and what does not"
    )
    action = actions.add_parser("check", help=text, description=text, allow_abbrev=False, formatter_class=_WholeNames)
    action.add_argument(
        "factory", metavar="MODULE:ATTRIBUTE", help="a function from a seed to an environment, or a task family"
    )
    action.add_argument("--seeds", type=int, default=3, help="tasks to play (default 3)")
    action.add_argument("--steps", type=int, default=500, help="steps on each (default 500)")
    action.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
