"""What `mesax env check` finds, and what rewards of random play say about stage 1, whichever way they were played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mesax.ours.threshold import RelativeThreshold
from mesax.suites.foreign.presets import THRESHOLD


@dataclass(frozen=True)
class Finding:
    """One line of the walk, and what to do about it."""

    state: Literal["ok", "note", "problem"]
    name: str
    detail: str
    advice: str = ""


def about_seeds(starts_vary: bool, tasks: int, tasks_differ: bool, seen: bool, advice: str) -> Iterator[Finding]:
    """Whether seeds make a difference: those of episodes at the start, those of tasks anywhere in random play."""
    yield Finding("ok", "episode seeds", "change how an episode starts" if starts_vary else "do not change the start")
    if tasks < 2:
        return
    if tasks_differ:
        text = "tasks differ, and agents see something of it from the start" if seen else "tasks differ"
        yield Finding("ok", "task seeds", text)
        return
    alike = f"{tasks} tasks look and pay the same in random play"
    yield Finding("note", "task seeds", alike, f"fine if what differs is hard to find by chance; {advice}")


def about_rewards(
    rewards: Sequence[np.ndarray], returns: Sequence[float], threshold: RelativeThreshold = THRESHOLD
) -> Iterator[Finding]:
    """How often random play is paid, and whether stage 1 would find anything; rewards are task by task."""
    every = np.concatenate(rewards)
    paid = np.count_nonzero(every) / len(every)
    if not paid:
        yield Finding("ok", "rewards", f"none in {len(every)} random steps")
    else:
        more = (
            f"; return of an episode {np.mean(returns):.4g} on average, {max(returns):.4g} at best" if returns else ""
        )
        yield Finding("ok", "rewards", f"in {paid:.1%} of random steps, at most {every.max():.4g}{more}")
    yield about_stage_one(rewards, threshold)


def about_stage_one(rewards: Sequence[np.ndarray], threshold: RelativeThreshold = THRESHOLD) -> Finding:
    """Whether MESA would find something to go for, by the threshold of the presets for such an environment."""
    total = sum(map(len, rewards))
    highs = [threshold.levels(own).high for own in rewards]
    found = [(own, high) for own, high in zip(rewards, highs, strict=True) if np.any(own >= high)]
    by_percentile = f"percentile {threshold.percentile:g}" if threshold.percentile is not None else None
    setting = f"method.threshold.{by_percentile or f'reward {threshold.reward:g}'}"
    if not found:
        values = sorted({float(own[0]) for own in rewards})
        paid = f"all pay {values[0]:.4g}" if len(values) == 1 else "all of a task pay the same"
        if by_percentile is None:
            paid = f"none pays {threshold.reward:.4g}"
        return Finding(
            "note",
            "stage 1",
            f"would find nothing to go for in {total} random steps: {paid} ({setting})",
            "look longer (--steps 20000); if that finds nothing either, let training tasks pay now and then by chance:"
            " a smaller map, more goals, a reward for a part of the way",
        )
    steps = sum(int(np.sum(own >= high)) for own, high in found)
    least, most = (f"{pick(high for _, high in found):.4g}" for pick in (min, max))
    level = f"{least} on" if least == most else f"{least} to {most} on, by task,"
    return Finding(
        "ok",
        "stage 1",
        f"would go for {steps} of {total} random steps, on {len(found)} of {len(rewards)} tasks:"
        f" rewards from {level} are high ({setting})",
    )
