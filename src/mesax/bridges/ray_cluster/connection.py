"""The connection to a Ray cluster: all that is said to Ray itself, and what it answers when something is wrong."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mesax.bridges.ray_cluster.where import OnRay
from mesax.errors import UsageError
from mesax.execution.signals import SIGNALS

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what it would print of lost workers, on stdout; we say it in one line
}
"""Variables of Ray, where they are not set."""
TOO_SLOW = "timed out during startup"
"""What Ray says after half a minute, which a busy machine may need."""
_head: subprocess.Popen[str] | None = None
"""The cluster that this process has started."""
_ours = False
"""Whether this module has connected the process, and may disconnect it: a user's script may have done so itself."""


def ray() -> Any:
    """Ray, which takes a second to import."""
    import ray  # noqa: PLC0415

    return ray


def loaded() -> Any | None:
    """Ray, if this process is connected to a cluster."""
    found = sys.modules.get("ray")
    return found if found is not None and found.is_initialized() else None


def connect(on: OnRay, cpus: int | None) -> None:
    """Connect to the cluster, or start one on this machine; nothing to do if this process is connected already.

    What Ray says against it (another version there, no cluster) is a `UsageError`.
    """
    global _ours, _head  # noqa: PLW0603  (facts about the process: Ray has one connection)
    if loaded() is not None:
        return
    on.check()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if on.cluster is None:
        _head, place = _started(cpus)
    else:
        place = on.cluster
    try:
        with _put_aside_stderr() as said, _kept_signals():
            ray().init(address=place, log_to_driver=False, logging_level=logging.ERROR)
    except (Exception, SystemExit) as error:
        hint = ": it asks for a token; set RAY_AUTH_MODE=token" if "Unauthenticated" in "".join(said) else ""
        raise UsageError(f"the Ray cluster at {place} cannot be used: {one_line(error)}{hint}") from error
    _ours = True


@contextmanager
def _put_aside_stderr() -> Iterator[list[str]]:
    """Whatever is written to stderr, by C++ too, is in the list afterwards: Ray repeats itself while it connects."""
    said: list[str] = []
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            log.seek(0)
            said += log.readlines()


def _started(cpus: int | None, tries: int = 3) -> tuple[subprocess.Popen[str], str]:
    """A cluster on this machine, which ends when we do, and its address."""
    command = [sys.executable, "-m", "mesax.bridges.ray_cluster.head", *(() if cpus is None else (str(cpus),))]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        assert process.stdout
        if answer := process.stdout.readline():
            found = json.loads(answer)
            os.environ.update(found["environment"])
            return process, found["address"]
        process.wait()
        log.seek(0)
        said = [line.strip() for line in log if line.strip()]
        if tries > 1 and any(TOO_SLOW in line for line in said):
            return _started(cpus, tries - 1)
        raise UsageError(f"Ray cannot start here: {said[-1] if said else f'it ended with code {process.returncode}'}")


def disconnect() -> None:
    """Leave the cluster, if we joined it; one that was started by this process ends."""
    global _ours, _head  # noqa: PLW0603
    if not _ours:
        return
    _ours = False
    with _kept_signals():
        ray().shutdown()
    if _head is not None:
        _head.communicate()  # closes its stdin, and waits until all of it has ended
        _head = None


def address() -> str:
    """HOST:PORT of the cluster that this process is connected to."""
    return str(ray().get_runtime_context().gcs_address)


def cpus() -> int:
    """CPUs of the cluster, at this moment."""
    return int(ray().cluster_resources().get("CPU", 1))


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Ray sets handlers of its own, which would take a run's end out of its hands."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def on_this_node(kind: type) -> Any:
    """An actor that takes no CPU, on the node of this process."""
    strategies, node = ray().util.scheduling_strategies, ray().get_runtime_context().get_node_id()
    here = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray().remote(kind).options(num_cpus=0, scheduling_strategy=here).remote()


def as_task(function: Callable[..., object], num_gpus: float) -> Any:
    """A function as a task on one CPU; Ray itself tries nothing again."""
    options = {"num_cpus": 1, "num_gpus": num_gpus, "max_retries": 0, "scheduling_strategy": "SPREAD"}
    return ray().remote(function).options(**options)


def errors() -> tuple[type[Exception], ...]:
    """What Ray raises when a task, an actor, an object or a node is lost."""
    return (ray().exceptions.RayError,)


def cannot_begin(error: BaseException) -> bool:
    """Whether a worker could not even load what it was to do: our own tasks answer with values, whatever happens."""
    kinds = ray().exceptions
    begun = not isinstance(error, kinds.RayTaskError | kinds.RuntimeEnvSetupError)
    return not begun and not isinstance(error, kinds.TaskCancelledError)


def one_line(error: BaseException) -> str:
    """The gist of what Ray says, which is often a page: of a loss the first line, of a traceback the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, errors()):
        lines = lines[-1:] if cannot_begin(error) else lines[:1]
    return " ".join(lines)[:400] or type(error).__name__
