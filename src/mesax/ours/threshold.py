"""R* for worlds whose rewards come in any size and sign: a percentile, or a number that may be 0 or less.

The paper's worlds pay 0 where nothing happens. Others charge every step, or always pay less than 0: there rewards count
by their height above what a step usually pays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mesax.errors import UsageError
from mesax.mesa.collect import Threshold
from mesax.rewards.levels import Collected, Levels

MOST_LEVELS = 10
"""Different rewards of a task up to which each counts as a level of its own."""


@dataclass(frozen=True)
class RelativeThreshold(Threshold):
    """A percentile of all rewards collected on the task, or an absolute reward of any sign."""

    reward: float = 1.0
    """Rewards from here on are high (used if percentile is None)."""
    percentile: float | None = 99.0
    """For example 99: the top hundredth of the collected rewards is high, whatever their sign and size. Where rewards
    have levels (at most 10 different ones), the highest is."""

    def __post_init__(self) -> None:
        """Refuse percentiles that are none."""
        if self.percentile is not None and not 0.0 <= self.percentile <= 100.0:
            raise UsageError(f"percentile must lie between 0 and 100, not {self.percentile}")

    def levels(self, rewards: np.ndarray) -> Levels:
        """What is high on a task whose collected rewards are given; never what a step usually pays."""
        if self.percentile is None and self.reward > 0:
            return Levels(self.reward)
        lower = rewards[rewards < (rewards.max() if self.percentile is not None else self.reward)]
        if not lower.size:
            return Levels(np.inf)
        usual = usual_reward(lower)
        if self.percentile is None:
            return Levels(self.reward, usual)
        if len(np.unique(rewards)) <= MOST_LEVELS:  # the safe level may pay in fewer steps than a percentile leaves
            high = float(rewards.max())
        else:
            high = max(float(np.percentile(rewards, self.percentile)), float(np.min(rewards[rewards > usual])))
        return Levels(high, usual, high - usual)

    def nothing_found(self, collected: Collected) -> str:
        """No reward stood out."""
        if self.percentile is None:
            return collected.nothing_found(f"reward is {self.reward:g}", "--method.threshold.percentile 99")
        return collected.nothing_found(f"percentile is {self.percentile:g}", "--method.threshold.percentile 99")


def usual_reward(lower: np.ndarray) -> float:
    """What a step pays if nothing happens, from all rewards below the high ones: 0 if that is among them.

    Else what at least half of them are (a cost of every step, say); else the lowest, for then every step pays apart.
    """
    if np.any(lower == 0):
        return 0.0
    values, counts = np.unique(lower, return_counts=True)
    most = int(np.argmax(counts))
    return float(values[most] if 2 * counts[most] >= len(lower) else values[0])
