"""Frozen dataclasses as plain JSON, and back: nothing that is named in a file is ever imported."""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from mesax.errors import StoreError, UsageError

DEEPEST, LONGEST, LARGEST = 16, 64, 2**20
"""Limits for settings that are read from a file: depth, entries of a list, numbers."""


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """Fields of a dataclass that its constructor takes, with their values."""
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init)


def to_plain(value: Any) -> Any:
    """`value` as JSON can hold it; a dataclass becomes an object that names its type."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **{name: to_plain(entry) for name, entry in items(value)}}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_plain, value), key=str)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    raise TypeError(f"a {type(value).__name__} cannot be a setting")


def from_plain(plain: Any, kinds: Mapping[str, type], depth: int = 0) -> Any:
    """What `to_plain` was given, if all its types are among `kinds`; whatever does not fit is a `StoreError`.

    Numbers, lists and depth are limited: what is built may come from a stranger.
    """
    if depth > DEEPEST:
        raise StoreError(f"settings are nested more than {DEEPEST} deep")
    if isinstance(plain, list):
        if len(plain) > LONGEST:
            raise StoreError(f"a setting has {len(plain)} entries, more than {LONGEST}")
        return tuple(from_plain(entry, kinds, depth + 1) for entry in plain)
    if isinstance(plain, int) and abs(plain) > LARGEST:
        raise StoreError(f"a setting is a number of {len(str(abs(plain)))} digits, more than {LARGEST}")
    if not isinstance(plain, dict):
        return plain
    name = plain.get("type")
    if not isinstance(name, str) or name not in kinds:
        raise StoreError(f"a setting is of the unknown type {name!r}; known are {', '.join(sorted(kinds))}")
    kind = kinds[name]
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    given = {key: from_plain(entry, kinds, depth + 1) for key, entry in plain.items() if key != "type"}
    if given.keys() - fields:
        raise StoreError(f"{name} has no setting {min(given.keys() - fields)!r}")
    hints = typing.get_type_hints(kind)
    for key, entry in given.items():
        if isinstance(entry, str) and hints.get(key) is float:  # how JSON holds what is infinite
            given[key] = _number(name, key, entry)
        if not _fits(given[key], hints.get(key, Any)):
            raise StoreError(f"{name}.{key} cannot be {type(given[key]).__name__} {str(given[key])[:40]!r}")
    try:
        return kind(**given)
    except (TypeError, ValueError, ArithmeticError, AttributeError, UsageError) as error:
        raise StoreError(f"{name} cannot be built: {error}") from error


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may stand where `hint` is asked for; what is neither plain nor a choice must be a dataclass."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, member) for member in members)
    if origin is typing.Literal:
        return any(type(value) is type(member) and value == member for member in members)
    if origin is tuple or hint is tuple:
        if not isinstance(value, tuple):
            return False
        if not members or members[-1] is Ellipsis:
            return all(_fits(entry, members[0] if members else Any) for entry in value)
        return len(value) == len(members) and all(map(_fits, value, members))
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, bool, str, type(None)):
        return type(value) is hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return isinstance(value, hint)
    return hint is Any or dataclasses.is_dataclass(value)


def _number(name: str, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise StoreError(f"{name}.{key} must be a number, not {text[:40]!r}")
    return number
