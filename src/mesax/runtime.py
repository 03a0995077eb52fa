"""How JAX is set up, before anything is computed: one thread, no asynchronous dispatch, a persistent compilation cache.

On CPUs XLA's thread pool can deadlock inside compiled loops (jax-ml/jax#25861; seen here on two cores with nested scans
under `vmap`), and small nets gain nothing from it: mesax uses cores by running processes side by side. One thread also
makes results independent of the number of cores.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from mesax.errors import UsageError

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false"
QUICK_COMPILE = "--xla_backend_optimization_level=1"
"""A third of the default's compile time at the same speed for small nets (docs/performance.md)."""


def cache_directory() -> Path:
    """Where compiled programs are kept: $MESAX_CACHE_DIR, else the user's cache directory."""
    chosen = os.environ.get("MESAX_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mesax"


THREADS = "MESAX_THREADS"
CHECKPOINT_SECONDS = "MESAX_CHECKPOINT_SECONDS"
GRACE_SECONDS = "MESAX_GRACE_SECONDS"
_threads = 1


def host_threads() -> int:
    """Threads that step host environments here: $MESAX_THREADS, else what is free; their number changes no result."""
    chosen = os.environ.get(THREADS)
    if not chosen:
        return _threads
    if not chosen.isdecimal() or int(chosen) < 1:
        raise UsageError(f"${THREADS} must be a whole number from 1, not {chosen!r}")
    return int(chosen)


def checkpoint_seconds() -> float:
    """Seconds between two checkpoints: $MESAX_CHECKPOINT_SECONDS, else one minute; `inf` saves only when stopped."""
    return _seconds(CHECKPOINT_SECONDS, 60.0)


def grace_seconds() -> float:
    """Seconds that a run which is asked to stop may take: $MESAX_GRACE_SECONDS, else 8; schedulers often give 10."""
    return _seconds(GRACE_SECONDS, 8.0)


def _seconds(name: str, default: float) -> float:
    chosen = os.environ.get(name)
    try:
        seconds = float(chosen) if chosen else default
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise UsageError(f"${name} must be a number of seconds from 0, not {chosen!r}")
    return seconds


def use_threads(number: int) -> None:
    """Say how many cores this process may use for host environments."""
    global _threads  # noqa: PLW0603  (a fact about the process, like its environment variables)
    _threads = max(1, number)


def configure() -> None:
    """Set JAX up; must run before JAX computes anything, and may run again."""
    host_threads()  # nonsense is refused before anything is begun
    checkpoint_seconds()
    grace_seconds()
    flags = os.environ.get("XLA_FLAGS", "").split()
    for flag in (SINGLE_THREAD, QUICK_COMPILE):
        if not any(given.startswith(flag.split("=")[0]) for given in flags):
            flags.append(flag)
    os.environ["XLA_FLAGS"] = " ".join(flags)
    import jax  # noqa: PLC0415  (the flags must be set first)

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
