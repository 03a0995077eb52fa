"""Frozen dataclasses as plain JSON, and back: nothing that is named in a file is ever imported."""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from mesax.errors import StoreError, UsageError


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


def from_plain(plain: Any, kinds: Mapping[str, type]) -> Any:
    """What `to_plain` was given, if all its types are among `kinds`; whatever does not fit is a `StoreError`."""
    if isinstance(plain, list):
        return tuple(from_plain(entry, kinds) for entry in plain)
    if not isinstance(plain, dict):
        return plain
    name = plain.get("type")
    if not isinstance(name, str) or name not in kinds:
        raise StoreError(f"a setting is of the unknown type {name!r}; known are {', '.join(sorted(kinds))}")
    kind = kinds[name]
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    given = {key: from_plain(entry, kinds) for key, entry in plain.items() if key != "type"}
    if given.keys() - fields:
        raise StoreError(f"{name} has no setting {min(given.keys() - fields)!r}")
    hints = typing.get_type_hints(kind)
    for key, entry in given.items():
        if isinstance(entry, str) and hints.get(key) is float:  # how JSON holds what is infinite
            given[key] = _number(name, key, entry)
    try:
        return kind(**given)
    except (TypeError, UsageError) as error:
        raise StoreError(f"{name} cannot be built: {error}") from error


def _number(name: str, key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise StoreError(f"{name}.{key} must be a number, not {text!r}") from None
