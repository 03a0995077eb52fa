"""Whose meta-training an experiment uses, if it is another run's, and what that run has seen of its test tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mesax.errors import StoreError
from mesax.experiments.overrides import digest, digest_of_plain
from mesax.experiments.request import described
from mesax.methods.base import Experiment
from mesax.store.json_values import Json, json_ready
from mesax.store.reading import borrowed_from
from mesax.store.run_directory import RunDirectory
from mesax.store.settings import items

MOST_LENDERS = 16
"""That are followed, each of which has borrowed from the next."""


def seen_in_training(experiment: Experiment) -> str | None:
    """A warning if test tasks are among those that borrowed meta-training was trained on; else None.

    No reason to refuse them: how well a policy does on tasks that it was trained on may be what is asked.
    """
    trainer = _trainer({"method": dict(items(experiment.method))})
    if trainer is None or digest_of_plain(trainer["config"]["family"]) != digest(experiment.family):
        return None  # nothing is borrowed, or of another world, whose tasks are others
    trained, test = trainer["train_tasks"], json_ready(described(experiment.family, experiment.split.test))
    number = sum(task in trained for task in test)
    if not number:
        return None
    return (
        f"{number} of {len(test)} test tasks are among the training tasks of {trainer['id']}, whose meta-training is"
        " borrowed: they are not unseen, whatever tables and pictures call them"
        f" (others: --seed {trainer['seed']} --num-train-tasks {len(trained)}, as there)"
    )


def _trainer(config: Mapping[str, object]) -> Json | None:
    """What run.json says of the run that was trained itself; None if nothing is borrowed, or it is there no more."""
    run: Json | None = None
    for _ in range(MOST_LENDERS):
        lenders = borrowed_from(config.get("method"))
        if not lenders:
            return run
        try:
            run = RunDirectory(Path(next(iter(lenders.values())))).run
        except StoreError:
            return None
        if not {"id", "seed", "config", "train_tasks"} <= run.keys():
            return None
        config = run["config"]
    return None
