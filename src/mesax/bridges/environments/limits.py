"""How long an environment of another library lets an episode last, as far as it says so itself."""

from __future__ import annotations

import operator

LIMITS = ("max_cycles", "max_episode_steps", "_max_episode_steps", "max_steps", "episode_length", "episode_limit")
"""Under these names environments keep the number of steps after which they end an episode themselves."""


def own_limit(env: object) -> int | None:
    """Steps after which an environment says that it ends an episode; None if it does not say."""
    for holder in (env, getattr(env, "spec", None), getattr(env, "unwrapped", None)):
        for name in LIMITS:
            limit = _whole(getattr(holder, name, None))
            if limit is not None:
                return limit
    return None


def _whole(value: object) -> int | None:
    """A positive whole number, of Python, NumPy or JAX."""
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return number if number > 0 else None
