"""Where a result comes from: versions, commit and machine. Needs no JAX."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from mesax.runtime import computing_platform, device_names, numeric_settings

PACKAGES = ("mesax", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-learn", "safetensors")
ENGINES = ("mujoco", "pettingzoo", "gymnasium", "jaxmarl")
"""What environments may run on; recorded if it is there."""


def surroundings() -> dict[str, object]:
    """What else may change a result: versions, commit, machine, devices, compiler flags, unusual settings of JAX."""
    return {
        "versions": versions(),
        "git_commit": git_commit(),
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "system_version": platform.platform(),
            "devices": device_names(),
        },
        "platform": computing_platform(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "jax_settings": numeric_settings(),
    }


def versions() -> dict[str, str]:
    """Versions of what computes the results."""
    found = {}
    for package in (*PACKAGES, *ENGINES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            if package in PACKAGES:
                found[package] = "not installed"
    return found


@cache
def git_commit() -> str | None:
    """Commit of the source tree, if mesax runs from one; asked for once in a process."""
    return commit_of(Path(__file__).parents[1])


def commit_of(package: Path) -> str | None:
    """Commit that a package is of, "-dirty" if its own files are not those of the commit; None if it is of none.

    A package that is installed below another tree is of no commit of that tree. Results and notes next to the
    package make no difference to what it computes.
    """
    if not _git(package, "ls-files", "."):
        return None
    commit, changed = _git(package, "rev-parse", "--short=12", "HEAD"), _git(package, "status", "--porcelain", ".")
    return commit if commit is None or changed == "" else f"{commit}-dirty"


def _git(directory: Path, *words: str) -> str | None:
    """What git says there; None if there is no git, or it refuses."""
    try:
        answer = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
