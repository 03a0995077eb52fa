"""How a run hears that it is to stop: the first SIGTERM or SIGINT asks, a second one leaves at once.

A thread listens, because Python's own handlers wait until the main thread is back from compiling or computing.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE = 8.0
"""Seconds for the work at hand and for saving it; schedulers often give ten before they kill."""


@contextmanager
def stop_on_signal(late: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first signal sets; `late` is called if the run has not ended some seconds after it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals belong to somebody else: leave them alone
        yield stop
        return
    heard, said = socket.socketpair()
    said.setblocking(False)
    listener = threading.Thread(target=_listen, args=(heard, stop, late), daemon=True)
    listener.start()
    handlers = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    before = signal.set_wakeup_fd(said.fileno(), warn_on_full_buffer=False)
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        said.close()
        listener.join()
        heard.close()


def _listen(heard: socket.socket, stop: threading.Event, late: Callable[[], None]) -> None:
    """Wait for numbers of signals until the other end is closed."""
    try:
        while number := heard.recv(1):
            if number[0] not in SIGNALS:
                continue
            if stop.is_set():
                os._exit(128 + number[0])
            stop.set()
            heard.settimeout(GRACE)
    except TimeoutError:
        late()
