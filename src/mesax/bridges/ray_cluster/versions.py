"""What must be the same on every node, so that a result does not depend on which of them computed it. Needs no JAX."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import mesax
from mesax.experiments.provenance import PACKAGES, versions

SOURCE = "source of mesax"


@cache
def identity() -> dict[str, str]:
    """Python, the packages that compute results, and the source of mesax itself: a version may be edited."""
    found = versions()
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: found[name] for name in PACKAGES},
        SOURCE: source_digest(Path(mesax.__file__).parent),
    }


def source_digest(package: Path) -> str:
    """Eight letters that change with any file of Python below a directory."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What `there` differs in, as words for one line; empty if in nothing."""
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return ", ".join(f"{name} {there.get(name, 'missing')} instead of {here.get(name, 'none')}" for name in names)
