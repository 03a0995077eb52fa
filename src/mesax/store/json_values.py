"""JSON as files hold it: what may be written, and what is accepted when it is read. Needs no JAX."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable

Json: TypeAlias = dict[str, Any]
"""A JSON object."""
DEEPEST = 64
"""Levels of nesting that are accepted: more would exhaust the stack of whatever walks through them."""


@runtime_checkable
class HasList(Protocol):
    """An array or a number of NumPy or JAX, which can say its content in Python's own numbers."""

    def tolist(self) -> object:
        """Nested lists of numbers, or a number."""


def json_ready(value: object) -> Any:
    """`value` as JSON can hold it: numbers that are not finite become null, arrays become lists."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, HasList):
        return json_ready(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


OWN_SUM = "sha256_of_the_rest"
"""An entry of a JSON object that says what all others must be."""


def signed(content: Mapping[str, object]) -> Json:
    """With a sum of all the rest, which tells a reader if that was changed by accident."""
    rest = {name: value for name, value in json_ready(content).items() if name != OWN_SUM}
    return rest | {OWN_SUM: hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def json_text(value: object) -> str:
    """JSON for files that people read: indented, but for lists of plain values, so a curve is a line."""
    text = json.dumps(json_ready(value), indent=1)
    rows = re.sub(
        r"\[\n[^\[\]{}]*\]",
        lambda found: re.sub(r"\n *", " ", found[0]).replace("[ ", "[").replace(" ]", "]"),
        text,
    )
    return rows + "\n"


def flatten(settings: Mapping[str, object], at: str = "") -> dict[str, object]:
    """Nested settings on one level, each under its path as the command line spells it.

    The type of a part stands under the path of the part itself: `{"net": {"type": "Mlp", "hidden": 8}}` becomes
    `{"net": "Mlp", "net.hidden": 8}`.
    """
    flat: dict[str, object] = {}
    for name, value in settings.items():
        path = at if at and name == "type" else ".".join(filter(None, (at, name.replace("_", "-"))))
        flat |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return flat


def parse_object(data: bytes) -> Json:
    """The JSON object that `data` is; a `ValueError` that begins with "is not" if it is none, or nested too deep."""
    try:
        text = data.decode()
        if _LARGE.search(text):  # only then is every number looked at
            value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_small)
        else:
            value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except _TooLarge:
        raise
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    if data.count(b"{") + data.count(b"[") > DEEPEST:  # only then can it be nested deeper
        _refuse_deep(value)
    return value


_MOST_DIGITS, _SHOWN_DIGITS = 300, 20
_LARGE = re.compile(r"\d[eE]\+?\d{3}|\d{100}")
"""What a number that is too large for a float has: an exponent of three digits, or a hundred digits."""
_TOO_DEEP = f"is not accepted: it is nested more than {DEEPEST} deep"


def _refuse_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and infinity; JSON has neither, and nothing here writes them."""
    raise ValueError(f"{name} is no JSON")


class _TooLarge(ValueError):
    """A number that no float can hold."""

    def __init__(self, digits: str) -> None:
        super().__init__(f"is not accepted: the number {digits[:_SHOWN_DIGITS]} in it is too large")


def _finite(digits: str) -> float:
    """Python's reader takes 1e999 for infinity."""
    if not math.isfinite(number := float(digits)):
        raise _TooLarge(digits)
    return number


def _small(digits: str) -> int:
    """What no float could hold would break calculations with it."""
    if len(digits) > _MOST_DIGITS:
        raise _TooLarge(digits)
    return int(digits)


def _refuse_deep(value: object) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [child for entry in level for child in _children(entry)]
        if not level:
            return
    if any(isinstance(entry, dict | list) for entry in level):
        raise ValueError(_TOO_DEEP)


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
