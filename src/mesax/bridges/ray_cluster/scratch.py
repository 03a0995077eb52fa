"""Where attempts at jobs work on a node: a directory each, which disappears with them. Needs no JAX.

A process that is killed leaves its directory behind; who begins next on that node finds its lock free, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mesax.errors import StoreError
from mesax.store.files import held_alone, open_regular_file, store_errors

SCRATCH = "MESAX_SCRATCH_DIR"
"""An environment variable: where attempts work that have no shared files."""


def scratch_root() -> Path:
    """A directory of this user's in $MESAX_SCRATCH_DIR, else among the temporary ones; nothing else lies in it."""
    return Path(os.environ.get(SCRATCH) or tempfile.gettempdir()) / f"mesax-{os.getuid()}"


@contextmanager
def own_directory(name: str) -> Iterator[Path]:
    """A directory for one attempt, which goes with it."""
    root = scratch_root()
    with store_errors(root, "created"):
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != os.getuid():  # a link may lead to what is not ours to remove
            raise StoreError(f"{root} is a link, or belongs to another user: set ${SCRATCH}")
        remove_abandoned(root)
        lock = root / f"{name}.lock"
        descriptor = open_regular_file(lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    path = root / name
    with held_alone(descriptor):
        try:
            with store_errors(path, "created"):
                path.mkdir()
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            lock.unlink(missing_ok=True)


def remove_abandoned(root: Path) -> None:
    """Remove directories whose processes have ended without doing so."""
    for lock in root.glob("*.lock"):
        with suppress(OSError, StoreError):
            descriptor = open_regular_file(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
