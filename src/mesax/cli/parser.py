"""The command line: finds the verb that was typed, reads its arguments, does it, and turns errors into one line."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

from mesax import __version__, clone
from mesax.cli.telling import fail
from mesax.cli.verbs import module_of, verbs
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
    closest,
    says_out_of_memory,
    unknown_name,
)
from mesax.execution.leaving import OF_YOURS, no_silent_exit

TRACEBACK = "MESAX_TRACEBACK"
"""An environment variable: if it is set, unexpected errors and those of an environment's own code show where they come
from."""


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
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where it keeps its fonts concerns no user


def _dispatch(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.verb is None:
        _parser(None).print_help()
        return USAGE
    try:
        code: int = module_of(options.verb).main(options)
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
    if arguments and arguments[0] in clone.VERBS:
        clone.part("cli", f"mesax {arguments[0]}")  # refused in one line where it is not
    verb = arguments[0] if arguments and arguments[0] in verbs() else None
    if arguments and verb is None and not arguments[0].startswith("-"):
        raise unknown_name("unknown verb", arguments[0], verbs())
    parser = _parser(verb)
    options, rest = parser.parse_known_args(_with_joined_settings(verb, arguments))
    if verb is not None:
        _refuse_flags_of_other_verbs(verb, rest)
    flags = [] if verb is None else list(_options_of(verb))
    if rest and not _takes_settings(verb):
        near = closest(rest[0].partition("=")[0], flags)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(f"unexpected argument '{rest[0]}'; {meant}see mesax {verb} --help")
    options.arguments, options.rest, options.flags = arguments, rest, flags
    return options


@cache
def _parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of all verbs, of which this one has its arguments: modules of others are not imported."""
    about = "MESA: cooperative meta-exploration, in JAX."
    parser = _Parser(prog="mesax", description=about, allow_abbrev=False, formatter_class=_WholeNames)
    parser.add_argument("--version", action="version", version=f"mesax {__version__}")
    parsers = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for name, (_, text) in verbs().items():
        sub = parsers.add_parser(name, help=text, description=text, allow_abbrev=False, formatter_class=_WholeNames)
        if name == verb:
            module_of(name).arguments(sub)
    return parser


@cache
def actions_of(verb: str) -> tuple[argparse.Action, ...]:
    """The arguments of a verb."""
    parser = _Parser(prog=f"mesax {verb}", formatter_class=_WholeNames)
    module_of(verb).arguments(parser)
    return tuple(parser._actions)


def _options_of(verb: str) -> dict[str, argparse.Action]:
    """The options of a verb by name."""
    return {name: action for action in actions_of(verb) for name in action.option_strings}


def _takes_settings(verb: str | None) -> bool:
    """Whether a verb takes settings of a run, which no parser knows."""
    return verb is not None and "TAKES_SETTINGS" in vars(module_of(verb))


def _with_joined_settings(verb: str | None, arguments: list[str]) -> list[str]:
    """`--name value` after `run` as `--name=value`, so that a setting's value cannot be taken for METHOD or ENV."""
    if verb != "run":
        return arguments
    alone = {name for name, action in _options_of(verb).items() if action.nargs == 0}
    joined: list[str] = []
    for word in arguments:
        before = joined[-1] if joined else ""
        waits = before.startswith("--") and "=" not in before and before != "--" and before not in alone
        if waits and not word.startswith("--"):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _refuse_flags_of_other_verbs(verb: str, rest: Sequence[str]) -> None:
    """Say whose flag it is that a verb does not know; a sweep passes those of `run` on."""
    passed_on = _options_of("run") if verb == "sweep" else {}
    for flag in (word.partition("=")[0] for word in rest if word.startswith("--")):
        owners = [name for name in verbs() if flag in _options_of(name) and flag not in passed_on]
        if owners:
            raise UsageError(f"{flag} belongs to {_and(owners)}; see mesax {verb} --help")


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


if __name__ == "__main__":
    raise SystemExit(main())
