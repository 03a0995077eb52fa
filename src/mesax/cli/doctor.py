"""`mesax doctor`: what this machine offers, what is missing, and whether a tiny program really compiles and runs."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mesax.algorithms.actor_updates import ExpectedGradient
from mesax.algorithms.maddpg import Maddpg
from mesax.compiling import compiled
from mesax.envs.climb import ClimbFamily
from mesax.experiments.provenance import PACKAGES
from mesax.formatting import format_bytes
from mesax.nets import Dense, Mlp, Products
from mesax.runtime import SINGLE_THREAD, available_cores, cache_directory, computing_platform, device_names
from mesax.training.driver import learn
from mesax.training.loop import LearningLoop
from mesax.training.schedule import Schedule
from mesax.types import as_one

GIGABYTE = 2**30
LARGE_CACHE = 10 * GIGABYTE
"""Size from which on it is worth a look."""
LEAST_PYTHON = (3, 11)
PRODUCTS = 20
"""Matrix products that are timed."""
WORTHWHILE = 1.3
"""How much faster products must be for a recurrent learner to notice: they are half of its work."""
FOR_PICTURES = ("matplotlib", "pillow", "rich")
OPTIONAL = {
    "mujoco": "runs the swimmer; pip install 'mesax[mujoco]'",
    "pettingzoo": "brings environments in and out; pip install 'mesax[envs]'",
    "jaxmarl": "brings its environments in; pip install 'mesax[jaxmarl]'",
    "ray": "runs on a cluster; pip install 'mesax[ray]'",
    "tensorboardX": "writes runs for TensorBoard; pip install 'mesax[tensorboard]'",
    "wandb": "writes runs for Weights & Biases; pip install 'mesax[wandb]'",
    "pytest": "runs the tests; pip install 'mesax[dev]'",
    "zensical": "builds the documentation; pip install 'mesax[docs]'",
}


@dataclass(frozen=True)
class Check:
    """One line of the examination."""

    state: Literal["ok", "warn", "fail"]
    name: str
    detail: str


def examine(as_json: bool) -> int:
    """Print all checks; 0 if none failed, else 1."""
    checks = []
    for part in (_versions, _devices, _flags, _cache, _machine, _disk, _optional, _products, _self_test):
        for check in _guarded(part):
            checks.append(check)
            print(f"{check.state:<5} {check.name:<14} {check.detail}", flush=True)
    failed, warned = (sum(check.state == state for check in checks) for state in ("fail", "warn"))
    if failed:
        print(f"{failed} of {len(checks)} checks failed")
    else:
        print("all is well" + (f", {warned} to look at" if warned else ""))
    if as_json:
        print(json.dumps({"ok": not failed, "checks": [asdict(check) for check in checks]}))
    return 1 if failed else 0


def _guarded(part: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The checks of a part; one that breaks is itself a finding."""
    try:
        yield from part()
    except Exception as error:
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        yield Check("fail", part.__name__.strip("_").replace("_", "-"), detail)


def _versions() -> Iterator[Check]:
    recent = sys.version_info >= LEAST_PYTHON
    least = ".".join(map(str, LEAST_PYTHON))
    older = "" if recent else f"; mesax needs {least} or newer"
    yield Check("ok" if recent else "fail", "python", f"{platform.python_version()} on {platform.platform()}{older}")
    for package in (*PACKAGES, *FOR_PICTURES):
        try:
            yield Check("ok", package, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Check("fail", package, f"not installed; pip install {package}")


def _devices() -> Iterator[Check]:
    on_cpu = computing_platform() == "cpu"
    yield Check("ok", "platform", f"{computing_platform()}: what JAX computes on")
    idle = shutil.which("nvidia-smi") is not None and on_cpu
    advice = "; an NVIDIA GPU is here but JAX does not see it: pip install 'mesax[cuda13]' or 'mesax[cuda12]'"
    yield Check("warn" if idle else "ok", "devices", ", ".join(device_names()) + (advice if idle else ""))


def _flags() -> Iterator[Check]:
    given = os.environ.get("XLA_FLAGS", "")
    single = SINGLE_THREAD in given.split()
    advice = "" if single else f"; compiled loops may hang: remove the flag from XLA_FLAGS, or set {SINGLE_THREAD}"
    yield Check("ok" if single else "warn", "threads", f"{'one' if single else 'several'} per process{advice}")
    late = jax.config.values.get("jax_cpu_enable_async_dispatch")
    yield Check("warn" if late else "ok", "dispatch", "asynchronous" if late else "synchronous")
    yield Check("ok", "XLA_FLAGS", given or "none")


def _cache() -> Iterator[Check]:
    directory = cache_directory()
    files = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    size = f"{len(files)} files, {format_bytes(sum(files))}"
    if _can_write(directory):
        # JAX can keep it below a size, but then reads all of its entries' times for each new one, and stores nothing
        # where there are older entries without.
        large = sum(files) >= LARGE_CACHE
        emptying = f"to empty it: rm -r {shlex.quote(str(directory / 'xla'))}"
        yield Check("warn" if large else "ok", "cache", f"{directory} ({size}); it only grows, {emptying}")
    else:
        advice = "every start compiles anew; set MESAX_CACHE_DIR to a directory you may write"
        yield Check("warn", "cache", f"{directory} is not writable ({size}); {advice}")


def _machine() -> Iterator[Check]:
    yield Check("ok", "cores", f"{available_cores()} usable of {os.cpu_count()}; one worker process each by default")
    total, free = _memory()
    if total is None or free is None:
        yield Check("ok", "memory", "unknown on this system")
        return
    scarce = free < 2 * GIGABYTE
    advice = "; a worker needs about 1 GB: use --workers 1" if scarce else ""
    yield Check("warn" if scarce else "ok", "memory", f"{format_bytes(free)} free of {format_bytes(total)}{advice}")


def _memory() -> tuple[int | None, int | None]:
    """Bytes of memory in all and free; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        facts = {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":", 1) for line in lines)}
        return facts["MemTotal"], facts["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None, None


def _disk() -> Iterator[Check]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not _can_write(here):
        yield Check("warn", "disk", f"{here} is not writable; name a directory with --out")
    elif free < GIGABYTE:
        yield Check("warn", "disk", f"{format_bytes(free)} free in {here}; name another place with --out")
    else:
        yield Check("ok", "disk", f"{format_bytes(free)} free in {here}")


def _optional() -> Iterator[Check]:
    for package, use in OPTIONAL.items():
        try:
            yield Check("ok", package, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Check("ok", package, f"not installed, optional: {use}")
    there = shutil.which("git") is not None
    yield Check("ok", "git", "there" if there else "not installed, optional: runs record the commit they came from")


def _products() -> Iterator[Check]:
    """Whether recurrent nets would gain from rounded factors here: a product of a usual size, both ways."""
    x, weight = jnp.ones((2048, 128)), jnp.ones((128, 384))

    def seconds(products: Products) -> float:
        layer, best = Dense(weight, jnp.zeros(384), products), float("inf")
        times = compiled(layer.__call__)
        jax.block_until_ready(times(x))
        for _ in range(PRODUCTS):
            started = time.process_time()
            jax.block_until_ready(times(x))
            best = min(best, time.process_time() - started)
        return best

    ratio = seconds("float32") / seconds("bfloat16")
    yield Check("ok", "products", _advice(ratio))


def _advice(ratio: float) -> str:
    """What to do about products, by how much rounded factors gain."""
    gain = "wide recurrent nets may gain (setting: products bfloat16)"
    advice = gain if ratio >= WORTHWHILE else "leave the setting products at float32"
    return f"bfloat16 matrix products are {ratio:.2f} times as fast as float32: {advice}"


def _self_test() -> Iterator[Check]:
    """Learn a tiny climb game twice through the driver: the second time needs no compiling and must agree."""
    seconds, results = [], []
    for _ in range(2):
        started = time.perf_counter()
        results.append(_learn_a_little())
        seconds.append(time.perf_counter() - started)
    detail = f"compiled and ran a tiny learner in {seconds[0]:.1f} s, again in {seconds[1]:.2f} s"
    if not np.array_equal(results[0], results[1]):
        yield Check("fail", "self-test", f"{detail}; the two runs disagree: {results[0]} and {results[1]}")
    else:
        yield Check("ok", "self-test", detail)


def _learn_a_little() -> np.ndarray:
    """Losses of a few updates of a small MADDPG on a small game."""
    family = ClimbFamily(num_actions=3)
    algorithm = Maddpg(Mlp((8,)), Mlp((8,)), actor_update=ExpectedGradient("policy"))
    schedule = Schedule(60, warmup_steps=20, num_envs=10, batch_size=4, replay_capacity=60, num_evaluations=1)
    tasks = as_one(family.split(0, 1, 0).train)
    keys = jnp.stack([jax.random.key(0)])
    *_, last = learn(LearningLoop(family.env, algorithm, schedule), tasks, keys)
    return np.concatenate([last.rewards.ravel(), *(last.metrics[name] for name in sorted(last.metrics))])


def _can_write(directory: Path) -> bool:
    """Whether files can be made there, found out by making one."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False
