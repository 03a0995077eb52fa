"""Runs that were damaged: results of a finished one are merged again, jobs of an unfinished one are done again."""

from __future__ import annotations

from pathlib import Path

from mesax.errors import DamageError, StoreError
from mesax.execution.workers import warn
from mesax.store.files import store_errors
from mesax.store.run_directory import KEPT_ONCE, RunDirectory
from mesax.store.sums import DONE, Sums
from mesax.store.trees import MANIFEST, open_tree


def reopen(run: RunDirectory, damage: DamageError) -> None:
    """Make a finished run one that only has to merge its jobs again; a `DamageError` if these are not whole."""
    sums = _sums(run)
    try:
        run.check(*(name for name in sums if name in KEPT_ONCE or name.startswith("jobs/")))
        for done in _done(run):
            _check_whole(run, done.parent)
    except StoreError as error:
        other = "" if str(error) == str(damage) else f"{damage}; "
        raise DamageError(f"{other}{error}: it cannot be rebuilt") from error
    warn(f"{damage}; writing the results again from those of the jobs")
    run.unseal()
    run.set_status("failed")


def undo_damaged(run: RunDirectory) -> None:
    """Take the mark from jobs of an unfinished run that are not what they have written: they are done again."""
    for done in _done(run):
        try:
            _check_whole(run, done.parent)
        except DamageError as damage:
            warn(f"{damage}; the job is done again")
            with store_errors(done, "removed"):
                done.unlink()


def _done(run: RunDirectory) -> list[Path]:
    return sorted(run.path.glob(f"jobs/*/*/{DONE}"))


def _check_whole(run: RunDirectory, job: Path) -> None:
    """A `DamageError` if a finished job is not what it has written, to the last array."""
    run.check_job(job)
    for manifest in sorted(job.glob(f"[!.]*/{MANIFEST}")):
        open_tree(manifest.parent)


def _sums(run: RunDirectory) -> Sums:
    """What is known of the files; nothing if that is what is damaged."""
    try:
        return run.sums or {}
    except DamageError:
        return {}
