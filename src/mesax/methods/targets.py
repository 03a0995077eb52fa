"""What decides on a test task: how often explorers stand where it pays, target by target.

An unseen task pays for one target in one layout. Means over tasks and targets hide the pair that explorers leave out,
and that task stays at its safe equilibrium; so pairs are counted apart, and the worst of them is what to look at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_PAIRS = 400
"""Pairs that a document lists one by one."""
WORST_SHARE = 0.1


@dataclass(frozen=True)
class TargetVisits:
    """Visits to each target on each task; arrays are `[tasks, targets]`, NaN where a task was not played."""

    targets: np.ndarray
    """Their numbers."""
    steps: np.ndarray
    """Steps per episode on the target."""
    chance: np.ndarray
    """Share of episodes with any."""
    stay: np.ndarray
    """Longest unbroken stay, as a mean over the episodes with any; 0 if there is none."""

    @property
    def worst_tenth(self) -> float:
        """The mean over the worst tenth of the pairs: as a rule steadier than the worst of many small samples."""
        if not self._measured:
            return np.nan
        lowest = np.sort(self.steps[np.isfinite(self.steps)])
        return float(np.mean(lowest[: max(1, round(WORST_SHARE * len(lowest)))]))

    @property
    def _measured(self) -> bool:
        return bool(np.isfinite(self.steps).any())

    def document(self) -> dict[str, object] | None:
        """Plain numbers for coverage.json; None where nothing could be measured."""
        if not self._measured:
            return None
        task, target = np.unravel_index(np.nanargmin(self.steps), self.steps.shape)
        worst: dict[str, float] = {"task": int(task), "target": int(self.targets[target])}
        worst |= {name: _rounded(getattr(self, name)[task, target]) for name in ("steps", "chance", "stay")}
        document: dict[str, object] = {
            "worst": worst,
            "mean_steps": _rounded(np.nanmean(self.steps)),
            "pairs": int(np.isfinite(self.steps).sum()),
        }
        if self.steps.size <= MOST_PAIRS:
            document["numbers"] = [int(number) for number in self.targets]
            document |= {name: _table(getattr(self, name)) for name in ("steps", "chance", "stay")}
        return document


def count_targets(task: np.ndarray, on_target: np.ndarray, targets: np.ndarray, num_tasks: int) -> TargetVisits:
    """Count visits from the task of each episode, and which targets each step is on, `[episodes, time, targets]`."""
    steps, stays = on_target.sum(axis=1), longest_stays(on_target)
    any_visit = (steps > 0).astype(float)

    def per_task(values: np.ndarray, weights: np.ndarray, empty: float) -> np.ndarray:
        total, weight = np.zeros((2, num_tasks, len(targets)))
        np.add.at(total, task, values * weights)
        np.add.at(weight, task, weights)
        return np.divide(total, weight, out=np.full_like(total, empty), where=weight > 0)

    every = np.ones(steps.shape)
    played = np.isin(np.arange(num_tasks), task)[:, None]
    stay = np.where(played, per_task(stays, any_visit, 0.0), np.nan)
    return TargetVisits(targets, per_task(steps, every, np.nan), per_task(any_visit, every, np.nan), stay)


def longest_stays(on_target: np.ndarray) -> np.ndarray:
    """Longest run of consecutive steps on each target, `[episodes, targets]`."""
    run = np.zeros((on_target.shape[0], on_target.shape[2]))
    longest = run.copy()
    for step in range(on_target.shape[1]):
        run = (run + 1.0) * on_target[:, step]
        longest = np.maximum(longest, run)
    return longest


def _rounded(value: float | np.floating) -> float:
    return round(float(value), 4)


def _table(values: np.ndarray) -> list[list[float | None]]:
    return [[_rounded(value) if np.isfinite(value) else None for value in row] for row in values]
