"""The fit of a reward model as a job: chunk by chunk, so that it can be stopped, and judged on layouts left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from mesax.compiling import compiled
from mesax.errors import TrainingError
from mesax.methods.base import Services
from mesax.nets import Trainable
from mesax.ours.learned_reward import (
    UNPAID,
    Advance,
    Given,
    Head,
    HeldOut,
    PaidSteps,
    PayModel,
    RewardFit,
    StepPool,
    decided,
    judged,
    likelihoods,
    logits_of,
    softened,
)
from mesax.types import Key

CHUNK = 250
"""Updates after which w is reckoned anew, hard steps are chosen, and a fit can be stopped."""
MOST_SUSPECTS = 2**16
"""Unpaid steps among which hard ones are looked for: those that the anchor takes for high ones most."""


class Chunk(NamedTuple):
    """One chunk of updates of the whole fit."""

    head: Head
    first: int
    number: int
    total: int
    fold: int | None = None
    """Which of the folds is left out; None: none is."""

    @property
    def begins(self) -> bool:
        """Whether its optimizer starts anew."""
        return self.first == 0

    @property
    def done(self) -> int:
        """Updates of its part when it is done."""
        return self.first + self.number

    @property
    def ends(self) -> bool:
        """Whether it is the last one of its part."""
        return self.done == self.total

    @property
    def part(self) -> str:
        """A name for rows."""
        return self.head if self.fold is None else f"without fold {self.fold}"

    @property
    def stream(self) -> int:
        """Random numbers of its part."""
        return 2 + self.fold if self.fold is not None else int(self.head == "full")


def chunks(head: Head, total: int, fold: int | None = None) -> Iterator[Chunk]:
    """One part of the fit."""
    for first in range(0, total, CHUNK):
        yield Chunk(head, first, min(CHUNK, total - first), total, fold)


class FitState(eqx.Module):
    """A fit so far."""

    done: np.ndarray
    """Chunks."""
    learner: Trainable[PayModel]
    model: PayModel
    """Fitted to all layouts."""
    weights: np.ndarray
    """w: which entity counts in each task, `[tasks, entities]`."""
    suspects: np.ndarray
    """Unpaid steps among which hard ones are looked for."""
    hard: np.ndarray
    anchor_loss: np.ndarray
    loss: np.ndarray
    """Of the full head."""
    judged: np.ndarray
    """A `HeldOut` for each fold; NaN where there was nothing to judge by."""

    @property
    def held_out(self) -> list[HeldOut]:
        """What is known of layouts that were left out."""
        return [HeldOut(*map(float, row)) for row in self.judged if np.isfinite(row).all()]


@dataclass(frozen=True, eq=False)
class Fitting:
    """The whole fit: anchor, full head, and full heads of models that have not seen some of the layouts."""

    fit: RewardFit
    steps: PaidSteps
    layouts: np.ndarray
    """The layout of each training task."""
    fresh: PayModel

    @property
    def shared(self) -> bool:
        """Whether any two training tasks share a layout."""
        return len(np.unique(self.layouts)) < len(self.layouts)

    @property
    def num_folds(self) -> int:
        """At most one for each layout."""
        return min(self.fit.folds, len(np.unique(self.layouts)))

    @property
    def plan(self) -> list[Chunk]:
        """All chunks in order."""
        parts = [chunks("anchor", self.fit.anchor_updates), chunks("full", self.fit.full_updates)]
        parts += [chunks("full", self.fit.held_out_updates, fold) for fold in range(self.num_folds)]
        return [chunk for part in parts for chunk in part]

    def start(self) -> FitState:
        """All that is known before the first chunk."""
        tasks, entities = self.steps.num_tasks, self.steps.seen.shape[2]
        return FitState(
            done=np.array(0, np.int32),
            learner=Trainable.create(self.fresh, self.fit.optimizer),
            model=self.fresh,
            weights=np.full((tasks, entities), 1.0 / entities, np.float32),
            suspects=self._some_unpaid(MOST_SUSPECTS),
            hard=self._some_unpaid(self.fit.hard_steps),
            anchor_loss=np.array(0.0, np.float32),
            loss=np.array(0.0, np.float32),
            judged=np.full((self.num_folds, len(HeldOut._fields)), np.nan, np.float32),
        )

    def finished(self, services: Services, key: Key) -> FitState:
        """All chunks that are still to be done."""
        fresh = jax.tree.map(np.asarray, self.start())
        kept: FitState | None = services.kept(lambda: fresh)
        state: FitState = fresh if kept is None else jax.tree.map(np.asarray, kept)
        plan, pool = self.plan, self.steps.pool()
        for chunk in plan[int(state.done) :]:
            services.pause(lambda: ((), {}))
            after = self._after(chunk, state, pool, key, services)
            state = jax.tree.map(np.asarray, replace(after, done=np.array(state.done + 1, np.int32)))
            services.keep(state)
        return state

    def tasks_of(self, fold: int) -> np.ndarray:
        """Tasks on the layouts that a fold leaves out."""
        _, layout = np.unique(self.layouts, return_inverse=True)
        return np.flatnonzero(layout % self.num_folds == fold)

    def _after(self, chunk: Chunk, state: FitState, pool: StepPool, key: Key, services: Services) -> FitState:
        """One chunk, and what follows from it."""
        learner = state.learner
        if chunk.begins:
            learner = Trainable.create(learner.net if chunk.fold is None else self.fresh, self.fit.optimizer)
        used = np.ones(self.steps.num_tasks, np.float32)
        if chunk.fold is not None:
            used[self.tasks_of(chunk.fold)] = 0.0
        given = Given(pool, *jax.device_put((state.weights, used, state.hard)))
        first, total = np.int32(chunk.first), np.int32(chunk.total)
        advance = compiled(Advance(self.fit, chunk.head, chunk.number))
        learner, loss = advance(learner, given, jax.random.fold_in(key, chunk.stream), first, total)
        if not np.isfinite(loss):
            raise TrainingError(f"the fit of the reward model: its loss is not finite ({chunk.part}); stopped")
        services.rows("metrics", [{"phase": "fit", "part": chunk.part, "step": chunk.done, "loss": float(loss)}])
        services.report(0, f"{chunk.part}: loss {float(loss):.4f}")
        state = replace(state, learner=learner)
        if chunk.head == "anchor":
            return self._after_anchor(chunk, replace(state, anchor_loss=np.asarray(loss)))
        if chunk.fold is None:
            state = replace(state, loss=np.asarray(loss))
            return replace(state, model=learner.net) if chunk.ends else self._with_hard(state, "full")
        return self._after_fold(chunk.fold, state, services) if chunk.ends else state

    def _after_anchor(self, chunk: Chunk, state: FitState) -> FitState:
        """w: at first as it was, then what is likely, in the end what is likeliest, and the suspects in that light."""
        if chunk.begins and not chunk.ends:
            return state
        paid = self.steps.only(self.steps.kind != UNPAID)
        scores = likelihoods(logits_of(state.learner.net, paid.seen, "anchor"), paid)
        if not chunk.ends:
            return replace(state, weights=softened(scores))
        state = replace(state, weights=decided(scores))
        everyone = self.steps.first[UNPAID] + np.arange(self.steps.number[UNPAID])
        return self._with_hard(
            replace(state, suspects=self._hardest(state, "anchor", everyone, MOST_SUSPECTS)), "anchor"
        )

    def _after_fold(self, fold: int, state: FitState, services: Services) -> FitState:
        """The model without these layouts, judged on them."""
        found = judged(state.learner.net, self.steps, self.tasks_of(fold).tolist())
        if found is None:
            return state
        services.rows("metrics", [{"phase": "held-out", "step": 0, "fold": fold} | found.row()])
        table = np.array(state.judged)
        table[fold] = found
        return replace(state, judged=table)

    def _with_hard(self, state: FitState, head: Head) -> FitState:
        """Look again which suspects are hard."""
        return replace(state, hard=self._hardest(state, head, np.unique(state.suspects), self.fit.hard_steps))

    def _hardest(self, state: FitState, head: Head, among: np.ndarray, number: int) -> np.ndarray:
        """The steps that look most as if they paid high, each in its own task."""
        if not self.steps.number[UNPAID]:
            return np.zeros(number, np.int32)
        logits = logits_of(state.learner.net, self.steps.seen[among], head)
        score = np.sum(state.weights[self.steps.task[among]] * logits, axis=1)
        chosen = among[np.argsort(-score, kind="stable")[:number]]
        return np.resize(chosen, number).astype(np.int32)

    def _some_unpaid(self, number: int) -> np.ndarray:
        """So many unpaid steps, from first to last."""
        last = max(int(self.steps.number[UNPAID]) - 1, 0)
        return (self.steps.first[UNPAID] + np.linspace(0, last, number)).astype(np.int32)
