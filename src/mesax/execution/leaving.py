"""Ends of this process that Python knows nothing of: those of our own, and those that a user's code brings about."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

OF_YOURS = "a module or environment of yours"
leave_at_once = os._exit
"""For our own use, wherever all is said."""


@contextmanager
def no_silent_exit(told: Callable[[int], int]) -> Iterator[None]:
    """Have it `told` if a user's code calls `os._exit` here, which says what code to end with.

    Processes that such code has forked may end as they like.
    """
    process, before = os.getpid(), os._exit

    def leave(code: int) -> NoReturn:
        leave_at_once(told(code) if os.getpid() == process else code)

    os._exit = leave  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = before


def leave_quickly(ended: Sequence[int]) -> None:
    """Once this process ends with a code, skip what Python does last: it takes all objects apart, a third of a second.

    To be called first: what is registered earlier is done later, so that all others have come to their end by then.
    """

    def leave() -> None:
        for code in ended:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            leave_at_once(code)

    atexit.register(leave)
