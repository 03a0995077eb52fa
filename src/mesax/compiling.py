"""The only file that says `jax.jit`: everything else is a plain function until it comes here."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
from jax.stages import Wrapped


@lru_cache(maxsize=128)
def compiled(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Wrapped:
    """`jax.jit`, once per function value: equal frozen dataclasses share their program."""
    return jax.jit(function, donate_argnums=donate)
