"""How JAX is set up, before anything is computed: one thread, no asynchronous dispatch, a persistent compilation cache.

On CPUs XLA's thread pool can deadlock inside compiled loops (jax-ml/jax#25861; seen here on two cores with nested scans
under `vmap`), and small nets gain nothing from it: mesax uses cores by running processes side by side. One thread also
makes results independent of how many processes there are, and of how many cores each may use.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import glob
import math
import os
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TextIO

from mesax.errors import UsageError

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false"
QUICK_COMPILE = "--xla_backend_optimization_level=1"
"""A third of the default's compile time at the same speed for small nets (docs/performance.md)."""


POOL = "NPROC"
"""How many threads XLA is to have; without it, as many as there are cores."""
CACHE = "MESAX_CACHE_DIR"
UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '([^'/]+)': ")
"""What JAX warns of when it cannot use a program that it has kept, with the name of that program."""
UNWRITABLE = "Error writing persistent compilation cache entry for "
"""What JAX warns of for every program that it cannot keep."""
ZSTD = b"\x28\xb5\x2f\xfd"
"""How what is compressed by zstd begins; JAX uses it where a module for it is installed, and else zlib."""
ZSTD_MODULES = ("compression.zstd", "zstandard")
TRIED = "MESAX_TRIED_XLA_FLAGS"
"""For processes that this one starts: flags that XLA has taken already, and that need not be tried again."""
NUMERIC_DEFAULTS = {
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
}
"""Settings of JAX that change results, and the values under which the results of this package were made."""
IMPOSSIBLE: dict[str, tuple[object, ...]] = {
    "jax_enable_x64": (True,),
    "jax_numpy_dtype_promotion": ("strict",),
    "jax_transfer_guard": ("disallow", "disallow_explicit"),
    "jax_transfer_guard_host_to_device": ("disallow", "disallow_explicit"),
}
"""Settings of JAX with values under which this package cannot work: what it saves has 32 bits, types are promoted, and
arrays are handed over."""


def cache_directory() -> Path:
    """Where compiled programs are kept: $MESAX_CACHE_DIR, else the user's cache directory."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mesax"
    except RuntimeError:  # no $HOME, and no user of this number in the list
        raise UsageError(f"there is no home directory to keep compiled programs in: set ${CACHE}") from None


CGROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Where a container finds how much memory it may have, by the second and by the first version of cgroups."""
MALLOC = {
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD
    -2: 2**26,  # M_TOP_PAD
    -3: 2**30,  # M_MMAP_THRESHOLD
}
"""What `mallopt` is told, in bytes."""
THREADS = "MESAX_THREADS"
CHECKPOINT_SECONDS = "MESAX_CHECKPOINT_SECONDS"
GRACE_SECONDS = "MESAX_GRACE_SECONDS"
HEARTBEAT_SECONDS = "MESAX_HEARTBEAT_SECONDS"
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


def heartbeat_seconds() -> float:
    """Seconds of silence after which a cluster's worker counts as lost: $MESAX_HEARTBEAT_SECONDS, else one minute."""
    return _seconds(HEARTBEAT_SECONDS, 60.0)


def _seconds(name: str, default: float) -> float:
    chosen = os.environ.get(name)
    try:
        seconds = float(chosen) if chosen else default
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise UsageError(f"${name} must be a number of seconds from 0, not {chosen!r}")
    return seconds


@contextmanager
def staying() -> Iterator[None]:
    """Go back to the working directory that this process has, wherever a user's code takes it meanwhile."""
    try:
        here = os.open(".", os.O_RDONLY)
    except OSError:  # it may not be read, and is perhaps gone
        yield
        return
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


@contextmanager
def one_process() -> Iterator[None]:
    """End the other process at once, should a user's code fork meanwhile and come back in both."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


def use_threads(number: int) -> None:
    """Say how many cores this process may use for host environments."""
    global _threads  # noqa: PLW0603  (a fact about the process, like its environment variables)
    _threads = max(1, number)


def own_process() -> None:
    """Set up a process of our own, which looks for garbage seldom: tracing makes many objects that are none.

    Nor does it look when it ends, as Python would: half a second, for memory that is given back anyway.
    """
    gc.set_threshold(2_000_000, 20, 20)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    _keep_freed_memory()
    configure()


def _keep_freed_memory() -> None:
    """Have glibc reuse the arrays of the last update for the next, instead of handing them back to the system.

    Otherwise every update waits for fresh pages, filled with zeros.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if adjust is not None:  # other C libraries have none
        for parameter, size in MALLOC.items():
            adjust(parameter, size)


def configure() -> None:
    """Set JAX up; must run before JAX computes anything, and may run again. What JAX refuses is a `UsageError`."""
    host_threads()  # nonsense is refused before anything is begun
    checkpoint_seconds()
    grace_seconds()
    heartbeat_seconds()
    _check_flags(os.environ.get("XLA_FLAGS", ""))
    flags = os.environ.get("XLA_FLAGS", "").split()
    for flag in (SINGLE_THREAD, QUICK_COMPILE):
        if not any(given.startswith(flag.split("=")[0]) for given in flags):
            flags.append(flag)
    os.environ["XLA_FLAGS"] = os.environ[TRIED] = " ".join(flags)
    try:
        _configure_jax()
    except (ValueError, TypeError, RuntimeError, AssertionError) as error:
        raise UsageError(_refusal(error)) from error


def with_jax(module: str) -> ModuleType:
    """A module that computes, imported once JAX is set up: the one way to what must not be imported earlier."""
    configure()
    return import_module(module)


def _jax() -> ModuleType:
    """JAX; to import it before the flags are set would be too early."""
    import jax  # noqa: PLC0415

    return jax


def _configure_jax() -> None:
    jax = _jax()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_compilation_cache_dir", directory := _usable_cache())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if directory is not None:
        _mend_cache(Path(directory))
    for name, values in IMPOSSIBLE.items():
        if (value := jax.config.values.get(name)) in values:
            raise UsageError(f"mesax cannot work with {name} = {value} (${name.upper()}): leave it as it is by default")
    try:
        with _one_worker():
            jax.devices()  # a platform that is not there is refused now, and not in the middle of something
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS")
        reason = f"{error}" or "there is none here"
        raise UsageError(f"JAX finds no device ($JAX_PLATFORMS is {platforms!r}): {reason}") from error


@contextmanager
def _one_worker() -> Iterator[None]:
    """XLA's pool, which is made with the first device, has one thread: with as many as cores, sums are cut in other
    places on a machine with other cores, and two processes on two cores get into each other's way."""
    before = os.environ.get(POOL)
    os.environ[POOL] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[POOL]
        else:
            os.environ[POOL] = before


def numeric_settings() -> dict[str, object]:
    """Settings of JAX that change results and are not as usual: under them, the same run has other numbers."""
    values = _jax().config.values
    return {name: values[name] for name, usual in NUMERIC_DEFAULTS.items() if values.get(name, usual) != usual}


def physical_memory(cgroups: Path = CGROUPS) -> int | None:
    """Bytes of this machine, or of this container, if that may have fewer; None where the system does not say."""
    found = [_container_memory(cgroups / name) for name in LIMITS]
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min((size for size in found if size is not None), default=None)


def _container_memory(limit: Path) -> int | None:
    """What a file of a limit says; None if there is none, or it sets none."""
    try:
        return int(limit.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def computing_platform() -> str:
    """What JAX computes on: cpu, gpu or tpu. Between these, the same run has other numbers."""
    return str(_jax().default_backend())


def device_names() -> list[str]:
    """Every device that JAX sees: its platform, number and kind."""
    return [f"{device.platform}:{device.id} {device.device_kind}".strip() for device in _jax().devices()]


def _usable_cache() -> str | None:
    """Where JAX keeps compiled programs; None, which only costs time, if the usual place cannot be made."""
    directory = cache_directory() / "xla"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if os.environ.get(CACHE):
            raise UsageError(f"${CACHE} {cache_directory()} cannot be used: {error.strerror}") from error
        return None
    return str(directory)


def _mend_cache(directory: Path) -> None:
    """From now on, a kept program that JAX warns it cannot read is removed if it is cut short or damaged.

    JAX writes programs in place (a killed process or a full disk leaves a part), and never writes one that is there: it
    would warn and compile again in every process. The warning comes before it compiles, so what is gone is kept anew.
    """
    if not isinstance(warnings.showwarning, _MendsCache):
        warnings.showwarning = _MendsCache(directory, warnings.showwarning)


@dataclass
class _MendsCache:
    """Shows warnings, but for those of programs that are kept anew; that programs cannot be kept is told once."""

    directory: Path
    usual: Callable[[Warning | str, type[Warning], str, int, TextIO | None, str | None], object]
    told: bool = False
    """That programs cannot be kept."""

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """As Python calls it."""
        if str(message).startswith(UNWRITABLE):
            if self.told:
                return
            self.told = True
        found = UNREADABLE.match(str(message))
        if found is None or not _remove_damaged(self.directory, found[1]):
            self.usual(message, category, filename, lineno, file, line)


def _remove_damaged(directory: Path, program: str) -> bool:
    """Remove the kept programs of this name that are not whole; whether there were any, and they are gone."""
    try:
        kept = directory.glob(f"{glob.escape(program)}-*-cache")
        damaged = [path for path in kept if not _is_whole(path.read_bytes())]
        for path in damaged:
            path.unlink(missing_ok=True)  # another process may have done so
    except OSError:
        return False
    return bool(damaged)


def _is_whole(compressed: bytes) -> bool:
    """Whether a kept program can be decompressed; one that cannot be decompressed here counts as whole."""
    try:
        if not compressed.startswith(ZSTD):
            zlib.decompress(compressed)
            return True
        for name in ZSTD_MODULES:
            with suppress(ImportError):
                import_module(name).decompress(compressed)
                return True
    except Exception:  # each module has errors of its own
        return False
    return True


def _check_flags(flags: str) -> None:
    """A `UsageError` if XLA refuses the user's flags: it would end this process at once, so another one tries."""
    if not set(flags.split()) - {SINGLE_THREAD, QUICK_COMPILE} or flags == os.environ.get(TRIED):
        return
    if not flags.lstrip().startswith("-"):
        raise UsageError(f"$XLA_FLAGS {flags!r} must be flags, not the name of a file: mesax adds flags of its own")
    trial = "from jaxlib import xla_client; xla_client.make_cpu_client()"
    tried = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False, timeout=120)
    if tried.returncode != 0:
        last = tried.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        reason = last.rpartition("] ")[2] or f"it ended with code {tried.returncode}"
        raise UsageError(f"$XLA_FLAGS {flags!r} is refused by XLA: {reason}")


def _refusal(error: Exception) -> str:
    given = " ".join(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("JAX_"))
    reason = f"{error}".splitlines()[:1] or [type(error).__name__]
    return f"JAX cannot start: {reason[0]}; of its environment variables, these are set: {given or 'none'}"


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
