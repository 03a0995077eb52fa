"""Annotations as facts: jaxtyping with beartype on every part of mesax that holds arrays."""

import dataclasses
import functools
import importlib.util
import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import beartype
import jaxtyping
from beartype.roar import BeartypeCallHintViolation

SOURCE = Path(str(importlib.util.find_spec("mesax").origin)).parent
PARTS = (
    *("mesax.types", "mesax.policy", "mesax.replay", "mesax.moments", "mesax.nets", "mesax.algorithms"),
    *("mesax.rewards", "mesax.explorers", "mesax.training", "mesax.methods"),
    *("mesax.mesa", "mesax.ours", "mesax.baselines"),
    *(f"mesax.envs.{path.stem}" for path in sorted((SOURCE / "envs").glob("[a-z]*.py"))),
    "paper.envs",
)
"""What they take and give back is held to its annotations, shapes included.

Adapters are left out: they hold other people's objects, and check at every step what these really say.
"""
ON = os.environ.get("MESAX_TYPECHECK") != "0"
"""Can be left out, to debug without it."""


INTEGERS_ARE_NUMBERS = beartype.BeartypeConf(is_pep484_tower=True)
"""As everywhere in Python's typing, where a float is asked for an int will do."""
_jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """Check all parts that are imported from here on."""
    if ON:
        jaxtyping.jaxtyped = _jaxtyped_when_called
        jaxtyping.install_import_hook(PARTS, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")


def _jaxtyped_when_called(function: Any = None, **settings: Any) -> Any:
    """As jaxtyping's own decorator, which writes and compiles a checker: here for the first call, and not on import."""
    again = functools.partial(_jaxtyped_when_called, **settings)
    if function is None:
        return again
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not _is_checked(function.__init__):
            function.__init__ = again(function.__init__)
        return function
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(again(function.__func__))
    if isinstance(function, property):
        return property(*(part and again(part) for part in (function.fget, function.fset, function.fdel)))
    quick: Callable[..., Any] | None = None

    @functools.wraps(function)
    def run(*values: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        nonlocal quick
        if jaxtyping.config.jaxtyping_disable:
            return function(*values, **named)
        quick = quick or _quick(function) or _jaxtyped(function, **settings)
        try:
            return quick(*values, **named)
        except BeartypeCallHintViolation:
            pass
        return _jaxtyped(function, **settings)(*values, **named)

    return run


def _quick(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The same check, of parameters once instead of twice, but without a good message; None if a hint is unknown."""
    try:
        function.__annotations__ = typing.get_type_hints(function, include_extras=True)
    except Exception:
        return None
    return _jaxtyped(beartype.beartype(conf=INTEGERS_ARE_NUMBERS)(function), typechecker=None)


def _is_checked(function: Any) -> bool:
    return getattr(function, "__globals__", {}).get("__name__") == __name__
