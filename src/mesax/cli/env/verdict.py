"""Whether explorers will help in a world, before any run: random steps on training tasks, and the fit of what pays."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mesax.cli.env.findings import Finding
from mesax.errors import TrainingError, UsageError
from mesax.execution.jobs import JobInMemory, Memory
from mesax.experiments.catalogue import experiment
from mesax.methods.base import Experiment, Services
from mesax.ours.learned import LearnedMesa
from mesax.store.json_values import Json
from mesax.training.host_rollout import running

STAGES = ("collect", "fit")


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit has left behind."""

    services: Services
    """Where its outputs are."""
    rows: tuple[Json, ...]
    seconds: float
    """Processor time of the fit itself."""

    @property
    def verdict(self) -> Json:
        """The row that says what it is worth."""
        (row,) = (row for row in self.rows if row["phase"] == "verdict")
        return row


def fitted(learned: Experiment) -> Fitted:
    """Stage 1 and the fit, in memory."""
    memory = Memory()
    try:
        for stage in learned.method.stages(learned):
            if stage.name not in STAGES:
                continue
            for job in range(len(stage.job_steps)):
                services = JobInMemory(stage.name, job, lambda steps, note: None, threading.Event(), memory)
                started = time.process_time()
                stage.run(job, services)
    finally:
        running.close()
    return Fitted(services, tuple(dict(row) for row in memory.rows["metrics"]), time.process_time() - started)


def probe(learned: Experiment, steps: int) -> Experiment:
    """The same with so many random steps on each training task."""
    assert isinstance(learned.method, LearnedMesa)
    collect = replace(learned.method.collect, total_steps=steps, warmup_steps=steps, num_evaluations=1)
    return replace(learned, method=replace(learned.method, collect=collect))


def about_verdict(reference: str, steps: int) -> Iterator[Finding]:
    """What a run of `learned` would say before it trains explorers."""
    try:
        learned = experiment("learned", reference, "quick")
        learned.check()
        assert isinstance(learned.method, LearnedMesa)
        spec = learned.family.env.spec
        if not learned.method.reward.declared(spec).is_declared(spec):
            advice = "give the environment an attribute entities = mesax.DeclaredEntities(...)"
            yield Finding("note", "verdict", "none: the environment does not say which numbers are about what", advice)
            return
        row = fitted(probe(learned, steps)).verdict
    except (TrainingError, UsageError) as error:
        yield Finding("note", "verdict", f"explorers cannot be trained: {error}")
        return
    played = f"{steps:,} random steps on each of {learned.num_train_tasks} training tasks"
    yield Finding("ok" if row["helps"] else "note", "verdict", f"{row['verdict']} ({played})")
