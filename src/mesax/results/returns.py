"""Means of returns with their intervals, which know what the returns of a family of tasks can be."""

from __future__ import annotations

import numpy as np

from mesax.results.intervals import Interval, Levels, mean_band
from mesax.store.json_values import Json


def levels_of(family: Json) -> Levels | None:
    """The two returns that its tasks usually end with, if it names a safe one; 0 says that none is known."""
    safe, best = float(family["suboptimal_return"]), float(family["optimal_return"])
    return Levels(safe, best) if safe != 0 else None


def named_levels(family: Json) -> list[tuple[str, float]]:
    """The best return and the safe one, if that is known, by name: of scripted teams, if it says what these lose."""
    scripted = "scripted " if any(family.get("lost") or ()) else ""
    levels = levels_of(family)
    best = [(f"{scripted}optimum", float(family["optimal_return"]))]
    return best if levels is None else [*best, (f"{scripted}safe equilibrium", levels.safe)]


def lowest_return(family: Json) -> float | None:
    """What no return is below, if that is known; in results of before a delta says so: they pay 1, 1 - delta or 0."""
    known = family.get("lowest_return", 0.0 if "delta" in family else None)
    return None if known is None else float(known)


def returns_band(
    family: Json, returns: np.ndarray, tasks: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis with the ends of its interval, for each remaining position.

    No mean is above the best return or below the lowest one, where these are known.
    """
    levels, lowest = levels_of(family), lowest_return(family)
    value, low, high = mean_band(returns, tasks, seeds, levels)
    if levels is not None:
        high = np.maximum(value, np.minimum(high, levels.best))
    if lowest is not None:
        low = np.minimum(value, np.maximum(low, lowest))
    return value, low, high


def returns_interval(family: Json, returns: np.ndarray, tasks: np.ndarray, seeds: np.ndarray) -> Interval:
    """The same for one return per task run."""
    return Interval(*(float(number) for number in returns_band(family, returns, tasks, seeds)))
