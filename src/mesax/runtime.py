"""How JAX is set up, before anything is computed: one thread, no asynchronous dispatch, a persistent compilation cache.

On CPUs XLA's thread pool can deadlock inside compiled loops (jax-ml/jax#25861; seen here on two cores with nested scans
under `vmap`), and small nets gain nothing from it: mesax uses cores by running processes side by side. One thread also
makes results independent of the number of cores.
"""

from __future__ import annotations

import os
from pathlib import Path

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false"
QUICK_COMPILE = "--xla_backend_optimization_level=1"
"""A third of the default's compile time at the same speed for small nets (docs/performance.md)."""


def cache_directory() -> Path:
    """Where compiled programs are kept: $MESAX_CACHE_DIR, else the user's cache directory."""
    chosen = os.environ.get("MESAX_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mesax"


_threads = 1


def host_threads() -> int:
    """Threads that step host environments here: $MESAX_THREADS, else what is free; their number changes no result."""
    chosen = os.environ.get("MESAX_THREADS", "")
    return max(1, int(chosen)) if chosen.isdigit() else _threads


def use_threads(number: int) -> None:
    """Say how many cores this process may use for host environments."""
    global _threads  # noqa: PLW0603  (a fact about the process, like its environment variables)
    _threads = max(1, number)


def configure() -> None:
    """Set JAX up; must run before JAX computes anything, and may run again."""
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
