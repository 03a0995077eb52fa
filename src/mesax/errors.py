"""Errors that a person sees as one line; kept apart so that the command line needs no JAX to report them."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

USAGE, FAILED, WORKER_LOST, IO_ERROR, PREEMPTED = 2, 70, 71, 74, 75
"""Exit codes: wrong usage, a failure, a worker that was killed, files that cannot be read or written, stopped by a
signal after saving."""


MOST_LETTERS = 2_000
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal may obey instead of showing it."""


def plain(text: str) -> str:
    """Text for a terminal: names of files and words of a user's environment may hold anything."""
    return COMMANDS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class OneLineError(Exception):
    """An error whose message is one line, whatever it was made of: compilers, for example, write pages."""

    def __init__(self, message: str = "") -> None:
        line = plain(" ".join(part.strip() for part in message.splitlines()) if "\n" in message else message)
        super().__init__(line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}...")


class UsageError(OneLineError):
    """A mistake in what the user asked for; shown as one line, exit code 2."""


def closest(name: str, known: Iterable[str], least: float = 0.6) -> list[str]:
    """Known names that a mistyped one may mean, the likeliest first; `least` is how alike they must be, up to 1."""
    return get_close_matches(name.lower(), list(known), n=3, cutoff=least)


def unknown_name(what: str, name: str, known: Iterable[str], more: str = "") -> UsageError:
    """A name that exists nowhere: those that may be meant, then all."""
    names = list(known)
    near = closest(name, names)
    meant = f"did you mean {' or '.join(near)}? choose" if near else "choose"
    return UsageError(f"{what} '{name}'; {meant} one of {', '.join(names)}{more}")


class MissingLibrary(UsageError):
    """A module of mesax needs a library that is not installed; all others do without it."""


class TrainingError(OneLineError):
    """Training cannot go on (for example a loss is not finite); shown as one line, the last good state is kept."""


class EnvironmentFault(TrainingError):
    """An environment broke its contract: raised in a step, returned NaN or the wrong shape."""


class WorkerLost(TrainingError):
    """A worker process has died, by no fault of its job's: the same may succeed when it is tried again."""


class WorkerTraceback(Exception):
    """The cause of an error that another process has told of: where it came from there, as text."""

    def __str__(self) -> str:
        """Begins on a line of its own, as a traceback does."""
        return f"\n{super().__str__()}"


class StoreError(OneLineError):
    """A file that cannot be read or written; shown as one line."""


class DamageError(StoreError):
    """A file that can be read, but is not what was written."""


class Preempted(SystemExit):
    """The run was asked to stop, and all that it needs to go on is saved; a script that lets it pass exits with 75."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED)


OUT_OF_MEMORY = ("MemoryError", "RESOURCE_EXHAUSTED")
"""What Python and XLA call it: the kind of an error, or how its message begins."""


def says_out_of_memory(kind: str, message: str) -> bool:
    """Whether an error of this kind, with this message, means that memory did not suffice."""
    return kind in OUT_OF_MEMORY or message.startswith(OUT_OF_MEMORY)


FORESEEN = {kind.__name__: kind for kind in (UsageError, EnvironmentFault, TrainingError, StoreError)}
"""By name; a kind comes before what it is a kind of."""


def kind_of(error: Exception) -> str:
    """Name of the expected kind an error belongs to, else of its own class: how it travels between processes."""
    return next((name for name, kind in FORESEEN.items() if isinstance(error, kind)), type(error).__name__)
