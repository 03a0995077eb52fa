"""Errors that a person sees as one line; kept apart so that the command line needs no JAX to report them."""

USAGE, FAILED, PREEMPTED, IO_ERROR = 2, 70, 75, 74
"""Exit codes: wrong usage, a failure, stopped by a signal after saving, files that cannot be read or written."""


class UsageError(Exception):
    """A mistake in what the user asked for; shown as one line, exit code 2."""


class TrainingError(Exception):
    """Training cannot go on (for example a loss is not finite); shown as one line, the last good state is kept."""


class StoreError(Exception):
    """A file that cannot be read or written; shown as one line."""


class Preempted(BaseException):
    """The run was asked to stop, and all that it needs to go on is saved."""


FORESEEN = {kind.__name__: kind for kind in (UsageError, TrainingError, StoreError)}


def kind_of(error: Exception) -> str:
    """Name of the expected kind an error belongs to, else of its own class: how it travels between processes."""
    return next((name for name, kind in FORESEEN.items() if isinstance(error, kind)), type(error).__name__)
