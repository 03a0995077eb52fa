"""A finished run whose results were damaged: what its jobs wrote is still there, so that they can be merged again."""

from __future__ import annotations

from mesax.errors import DamageError, StoreError
from mesax.execution.workers import warn
from mesax.store.run_directory import KEPT_ONCE, RunDirectory
from mesax.store.sums import Sums, check_job
from mesax.store.trees import MANIFEST, open_tree


def reopen(run: RunDirectory, damage: DamageError) -> None:
    """Make a finished run one that only has to merge its jobs again; a `DamageError` if these are not whole."""
    sums = _sums(run)
    try:
        run.check(*(name for name in sums if name in KEPT_ONCE or name.startswith("jobs/")))
        for done in run.path.glob("jobs/*/*/done.json"):
            check_job(done.parent)
        for manifest in run.path.glob(f"jobs/*/*/[!.]*/{MANIFEST}"):
            open_tree(manifest.parent)
    except StoreError as error:
        other = "" if str(error) == str(damage) else f"{damage}; "
        raise DamageError(f"{other}{error}: it cannot be rebuilt") from error
    warn(f"{damage}; writing the results again from those of the jobs")
    run.unseal()
    run.set_status("failed")


def _sums(run: RunDirectory) -> Sums:
    """What is known of the files; nothing if that is what is damaged."""
    try:
        return run.sums or {}
    except DamageError:
        return {}
