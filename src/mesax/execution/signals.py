"""How a run hears that it is to stop: the first SIGTERM or SIGINT asks, a second one leaves at once.

A thread listens, because Python's own handlers wait until the main thread is back from compiling or computing.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from mesax.execution.leaving import leave_at_once
from mesax.runtime import grace_seconds

SIGNALS = (signal.SIGTERM, signal.SIGINT)
TOGETHER = 1.0
"""Signals within so many seconds are one: a scheduler may tell every process, and a parent hands it on to its child."""


def heard_elsewhere(*_: object) -> None:
    """A handler of ours, which has nothing to do: a thread hears the signal, or another process decides what it means.

    Unlike a signal that is ignored, one that is handled ends whatever program is started from here.
    """


class _Forking(threading.local):
    """What a thread that forks has to remember meanwhile."""

    mask: Collection[int] | None = None


_forking = _Forking()


def _hold() -> None:
    """Before a fork: a signal that comes before the child has handlers of its own waits until it has."""
    if any(signal.getsignal(number) is heard_elsewhere for number in SIGNALS):
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # as it is
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # may run a handler that raises


def _let_go() -> None:
    mask, _forking.mask = _forking.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget() -> None:
    """In a process that an environment forks: SIGTERM ends it and tells the run nothing.

    Ctrl-C it survives, since it is needed until all is saved; a program that takes its place does not.
    """
    try:
        with suppress(ValueError):  # of an interpreter that has no signals
            if any(signal.getsignal(number) is heard_elsewhere for number in SIGNALS):
                signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) is heard_elsewhere:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
    finally:
        _let_go()


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)


@contextmanager
def stop_on_signal(late: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first signal sets; `late` is called if the run has not ended some seconds after it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread: leave them alone
        yield stop
        return
    heard, said = socket.socketpair()
    said.setblocking(False)
    listener = threading.Thread(target=_listen, args=(heard, stop, late, grace_seconds()), daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(said.fileno(), warn_on_full_buffer=False)  # first, or a signal might go unheard
    handlers = {number: signal.signal(number, heard_elsewhere) for number in SIGNALS}
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        said.close()
        listener.join()
        heard.close()


def _listen(heard: socket.socket, stop: threading.Event, late: Callable[[], None], grace: float) -> None:
    """Wait for numbers of signals until the other end is closed."""
    first = 0.0
    try:
        while number := heard.recv(1):
            if number[0] not in SIGNALS:
                continue
            if not stop.is_set():
                first = time.monotonic()
                stop.set()
            elif time.monotonic() - first > TOGETHER:
                leave_at_once(128 + number[0])
            heard.settimeout(None if math.isinf(grace) else max(0.01, first + grace - time.monotonic()))
    except TimeoutError:
        late()
