"""Settings out of range are refused in one line, with their names as the command line has them.

A name may be a path, as in `exploration.start`. None stands for "not set" and passes; NaN is in no range.
"""

from __future__ import annotations

from operator import attrgetter

from mesax.errors import UsageError


def at_least(settings: object, least: float, *names: str) -> None:
    """Refuse less."""
    for name in names:
        if not ((value := attrgetter(name)(settings)) is None or value >= least):
            raise UsageError(f"{_spoken(name)} must be at least {least}, not {value}")


def each_at_least(settings: object, least: float, *names: str) -> None:
    """The same of every one of several numbers, such as the widths of layers."""
    for name in names:
        values = attrgetter(name)(settings)
        if not all(value >= least for value in values):
            raise UsageError(f"every one of {_spoken(name)} must be at least {least}, not {values}")


def at_most(settings: object, most: float, *names: str) -> None:
    """Refuse more."""
    for name in names:
        if not ((value := attrgetter(name)(settings)) is None or value <= most):
            raise UsageError(f"{_spoken(name)} must be at most {most}, not {value}")


def above(settings: object, limit: float, *names: str) -> None:
    """Refuse the limit itself, too."""
    for name in names:
        if not ((value := attrgetter(name)(settings)) is None or value > limit):
            raise UsageError(f"{_spoken(name)} must be above {limit}, not {value}")


def between(settings: object, least: float, most: float, *names: str) -> None:
    """Refuse less and more; both ends are allowed."""
    for name in names:
        if not ((value := attrgetter(name)(settings)) is None or least <= value <= most):
            raise UsageError(f"{_spoken(name)} must lie between {least} and {most}, not {value}")


def _spoken(name: str) -> str:
    return name.replace("_", "-")
