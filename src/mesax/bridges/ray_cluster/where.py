"""Which cluster does the jobs, as asked for; what cannot be is refused before anything is begun. Needs no Ray."""

from __future__ import annotations

import importlib.util
import math
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from mesax.errors import UsageError

ADDRESS = "RAY_ADDRESS"
"""Ray's own variable, which `ray job submit` sets: the cluster to use if nothing else is said."""
ENCRYPTED = "RAY_USE_TLS"
"""Ray's own variable; what is encrypted cannot be asked for its protocol here."""
SECONDS_TO_ANSWER = 5.0
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first frame of either side in HTTP/2: a length, the kind 4, flags and a stream; here with nothing in it."""
ATTEMPTS = ".attempts"
"""Within a run directory that all nodes see: where attempts work."""


@dataclass(frozen=True)
class OnRay:
    """Where jobs are done: a Ray cluster."""

    address: str | None = None
    """HOST:PORT of a cluster, or `auto` for the one that this machine belongs to; None starts one here."""
    shared: bool = False
    """Whether every node sees the run directory under the same path; if not, files travel through Ray."""
    num_gpus: float = 0.0
    """GPUs that each job takes; a fraction lets several share one."""

    def __post_init__(self) -> None:
        """Refuse what no cluster can give."""
        if not (math.isfinite(self.num_gpus) and self.num_gpus >= 0.0):
            raise UsageError(f"--num-gpus must be a number from 0, not {self.num_gpus}")
        if self.num_gpus > 1.0 and self.num_gpus != int(self.num_gpus):
            raise UsageError(f"--num-gpus must be whole above 1, not {self.num_gpus}")
        if self.address is not None:
            _host_and_port(self.address)

    @property
    def words(self) -> tuple[str, ...]:
        """The options of the command line that say this."""
        address = ("--address", self.address) if self.address is not None else ()
        gpus = ("--num-gpus", f"{self.num_gpus:g}") if self.num_gpus else ()
        return ("--on", "ray", *address, *(("--shared",) if self.shared else ()), *gpus)

    @property
    def cluster(self) -> str | None:
        """The address to use: the one asked for, else that of the job that Ray runs us as; None starts Ray here."""
        return self.address or os.environ.get(ADDRESS) or None

    def check(self) -> None:
        """A `UsageError` if Ray is not installed, or no cluster answers at the address."""
        if importlib.util.find_spec("ray") is None:
            raise UsageError("Ray is not installed: pip install 'mesax[ray]'")
        place = _host_and_port(self.cluster) if self.cluster else None
        if place is None:
            return
        try:
            with socket.create_connection(place, SECONDS_TO_ANSWER) as line:
                understood = os.environ.get(ENCRYPTED) == "1" or _speaks_http_2(line)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise UsageError(f"no Ray cluster answers at {self.cluster}: {reason}") from error
        if not understood:
            raise UsageError(f"no Ray cluster answers at {self.cluster}: another program does")


def _speaks_http_2(line: socket.socket) -> bool:
    """Whether the other side greets as the head of a cluster does: Ray itself would wait for that without end."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
    greeting = b""
    while len(greeting) < len(SETTINGS) and (part := line.recv(len(SETTINGS) - len(greeting))):
        greeting += part
    return len(greeting) == len(SETTINGS) and greeting[3] == SETTINGS[3]


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Of HOST:PORT; None for `auto`."""
    if address == "auto":
        return None
    if "://" in address:
        raise UsageError(
            f"address '{address}' is one of Ray's client: use HOST:PORT on a machine of the cluster, or ray job submit"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"address '{address}' must be auto, or HOST:PORT of a Ray cluster such as 10.0.0.1:6379")
    return host.strip("[]"), int(port)


def forwarded(names: Iterable[str]) -> dict[str, str]:
    """Of the variables of this process, those that workers must see too: mesax's own, XLA's and JAX's."""
    return {name: os.environ[name] for name in names if name == "XLA_FLAGS" or name.startswith(("MESAX_", "JAX_"))}
