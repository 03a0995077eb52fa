"""Frozen dataclasses as plain JSON, and back: nothing that is named in a file is ever imported.

Classes and functions of mesax go by their names alone; those of others as `module:name`, so that a reader of the file
knows which module to offer.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import os
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

from mesax import clone
from mesax.errors import MissingLibrary, StoreError, UsageError

Named: TypeAlias = Callable[..., object]
"""What a file may name: a setting's class, or a function that is a setting."""
Kinds: TypeAlias = Mapping[str, Named]
"""Classes and functions by the names that files use (`name_of`)."""
HOMES = clone.homes()
ADDED = "added"
"""Marks the fields that are `added`."""
RETIRED = "RETIRED"
"""The class attribute with settings that are gone."""
UNREADABLE = (Mapping, set, frozenset, Enum, os.PathLike)
"""What JSON can hold of such a field does not say what it was."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Limits:
    """How much a file may ask to be built."""

    depth: int
    """Settings within settings."""
    length: int
    """Entries of a list."""
    largest: int
    """The largest integer."""


FROM_STRANGERS = Limits(depth=16, length=64, largest=2**20)
"""For bundles, which come from anywhere."""
FROM_RUNS = Limits(depth=64, length=4096, largest=2**63)
"""For run directories: budgets are large numbers."""


_TAKEN: dict[type, tuple[dataclasses.Field[typing.Any], ...]] = {}


def _taken(kind: type) -> tuple[dataclasses.Field[typing.Any], ...]:
    """Fields that a dataclass's constructor takes, found once."""
    if kind not in _TAKEN:
        assert dataclasses.is_dataclass(kind)
        _TAKEN[kind] = tuple(field for field in dataclasses.fields(kind) if field.init)
    return _TAKEN[kind]


def is_made_of_settings(value: object) -> bool:
    """Whether a value is an object of a dataclass, and not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def items(value: object) -> Iterator[tuple[str, object]]:
    """Fields of a dataclass that its constructor takes, with their values."""
    return ((field.name, getattr(value, field.name)) for field in _taken(type(value)))


def added(value: Value) -> Value:
    """The default of a setting that files of earlier versions lack: at `value` all is as it was before.

    There it is left out of files and digests, so that earlier runs keep their names and can be resumed.
    """
    default: Value = dataclasses.field(default=value, metadata={ADDED: value})
    return default


def retired(kind: type) -> dict[str, object]:
    """Settings that a class had once, at the value that they all had: files and digests go on saying them."""
    return {name: value for base in kind.__mro__ for name, value in vars(base).get(RETIRED, {}).items()}


def said(value: object) -> Iterator[tuple[str, object]]:
    """The `items` that files have to say."""
    entries = ((field, getattr(value, field.name)) for field in _taken(type(value)))
    return (
        (field.name, entry) for field, entry in entries if ADDED not in field.metadata or entry != field.metadata[ADDED]
    )


def name_of(named: Named) -> str:
    """How files call a class or a function: mesax's own by name alone, others as module:name."""
    module = module_of(named)
    return named.__qualname__ if module.partition(".")[0] in HOMES else f"{module}:{named.__qualname__}"


def module_of(named: Named) -> str:
    """The module of a class or function; of a script that is being run, the name it would be imported by."""
    module = str(named.__module__)
    return script_name() or module if module == "__main__" else module


def script_name() -> str | None:
    """The name by which the running script could be imported; None in a notebook or at a prompt."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    path = script_path()
    return path.stem if path is not None else None


def script_path() -> Path | None:
    """The running script, if it is a file."""
    path = vars(sys.modules["__main__"]).get("__file__")
    return Path(path) if path is not None else None


def is_setting(kind: object) -> bool:
    """Whether a class is a setting: a frozen dataclass that is compared by value."""
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        return False
    parameters = vars(kind).get("__dataclass_params__")  # its own: a subclass need not be one
    return parameters is not None and parameters.frozen and parameters.eq


def settings_in(*names: str) -> dict[str, Named]:
    """The public classes of settings that modules define, by name; of a package, all that is in it.

    Two of one name are refused: a file that says the name would be read as either.
    """
    found: dict[str, Named] = {}
    for module in (module for name in names for module in _modules_in(name)):
        for kind in vars(module).values():
            if not is_setting(kind) or kind.__module__ != module.__name__ or kind.__name__.startswith("_"):
                continue
            other = found.setdefault(name_of(kind), kind)
            if other is not kind:
                raise TypeError(f"two settings are called {name_of(kind)}: in {other.__module__} and {module.__name__}")
    return found


def _modules_in(name: str) -> Iterator[types.ModuleType]:
    """A module and, if it is a package, all that is in it."""
    root = importlib.import_module(name)
    yield root
    for place in vars(root).get("__path__", ()):
        for entry in pkgutil.walk_packages([place], f"{name}."):
            try:
                module = importlib.import_module(entry.name)
            except MissingLibrary:  # an extra that is not installed: nothing of that module is in use here
                continue
            yield module


def to_plain(value: object, *, whole: bool = False) -> typing.Any:
    """`value` as JSON can hold it; a dataclass becomes an object that names its type.

    `whole` says every setting, also those that were `added` and leave all as it was. A field that `from_plain` could
    not read back is a `TypeError`: else a run would go well, and could not be looked at afterwards.
    """
    return _plain(value, whole, "")


def _plain(value: object, whole: bool, place: str) -> typing.Any:
    """`place` is the field that the value is in; empty outside of dataclasses, where nothing is read back."""
    if place and _is_unreadable(value):
        raise _no_setting(value, place)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_made_of_settings(value):
        kind, chosen = type(value), items(value) if whole else said(value)
        parts = {name: _plain(entry, whole, f"{kind.__name__}.{name}") for name, entry in chosen}
        return {"type": name_of(kind), **retired(kind), **parts}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, whole, place) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, whole, place) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(entry, whole, place) for entry in value), key=str)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return _plain(value.tolist(), whole, place)
    if callable(value) and hasattr(value, "__qualname__"):
        return name_of(value)
    raise _no_setting(value, place)


def _is_unreadable(value: object) -> bool:
    is_array = hasattr(value, "tolist") and not isinstance(value, type) and getattr(value, "ndim", 0) > 0
    return is_array or isinstance(value, UNREADABLE)


def _no_setting(value: object, place: str) -> TypeError:
    return TypeError(f"a {type(value).__name__} cannot be a setting" + (f" ({place})" if place else ""))


def nameless(value: object) -> Iterator[str]:
    """Fields with functions and classes that a name does not tell from others: made in a function, bound to an object.

    What one function makes goes by one name, whatever it was made with.
    """
    return (place for place, named in _named_in(value) if not _known_by_name(named))


def _known_by_name(named: Named) -> bool:
    owner = getattr(named, "__self__", None)  # of a built-in function, its module; of a class method, the class
    if owner is not None and not isinstance(owner, type | types.ModuleType):
        return False
    encloses = getattr(named, "__closure__", None) is not None  # as what a decorator makes does, too
    return "<" not in named.__qualname__ and (not encloses or _found_under_its_name(named))


def _found_under_its_name(named: Named) -> bool:
    """Whether a name leads to this very object: that of what a function made may be another's (`functools.wraps`)."""
    place: object = sys.modules.get(named.__module__)
    for part in named.__qualname__.split("."):
        place = getattr(place, part, None)
    return place is named


def foreign_modules(value: object) -> tuple[str, ...]:
    """Modules outside mesax whose classes and functions are among the settings, in the order in which they appear."""
    modules = dict.fromkeys(module_of(named) for _, named in _named_in(value))
    return tuple(module for module in modules if module.partition(".")[0] not in HOMES)


def _named_in(value: object, place: str = "") -> Iterator[tuple[str, Named]]:
    """Every class and function among the settings, with the field that it is in."""
    if is_made_of_settings(value):
        kind = type(value)
        yield place or kind.__name__, kind
        for name, entry in items(value):
            yield from _named_in(entry, f"{kind.__name__}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for entry in value:
            yield from _named_in(entry, place)
    elif callable(value) and hasattr(value, "__qualname__"):
        yield place, value


class UnknownName(StoreError):
    """A file names a class or a function that is not offered."""

    def __init__(self, name: str, known: Iterable[str], *fields: str) -> None:
        super().__init__(f"a setting is of the unknown type {name!r}; known are {', '.join(sorted(known))}")
        self.name = name
        self.fields = list(fields)

    @property
    def place(self) -> str:
        """Path of the setting, as it is typed."""
        return ".".join(self.fields).replace("_", "-")


def from_plain(plain: object, kinds: Kinds, limits: Limits = FROM_STRANGERS) -> typing.Any:
    """What `to_plain` was given, if all that it names is among `kinds`; whatever does not fit is a `StoreError`."""
    return _Reader(kinds, limits).read(plain, 0)


@dataclass(frozen=True)
class _Reader:
    kinds: Kinds
    limits: Limits

    def read(self, plain: object, depth: int) -> object:
        if depth > self.limits.depth:
            raise StoreError(f"settings are nested more than {self.limits.depth} deep")
        if isinstance(plain, list):
            if len(plain) > self.limits.length:
                raise StoreError(f"a setting has {len(plain)} entries, more than {self.limits.length}")
            return tuple(self.read(entry, depth + 1) for entry in plain)
        if isinstance(plain, int) and abs(plain) > self.limits.largest:
            raise StoreError(f"a setting is a number of {len(str(abs(plain)))} digits, more than {self.limits.largest}")
        return self._built(plain, depth) if isinstance(plain, dict) else plain

    def _built(self, plain: dict[str, object], depth: int) -> object:
        name = plain.get("type")
        if not isinstance(name, str) or not is_setting(self.kinds.get(name)):
            raise UnknownName(str(name), (name for name, kind in self.kinds.items() if is_setting(kind)))
        kind = self.kinds[name]
        assert isinstance(kind, type) and dataclasses.is_dataclass(kind)
        fields = {field.name for field in _taken(kind)}
        gone = {"type": name, **retired(kind)}
        given = {key: self._within(key, entry, depth) for key, entry in plain.items() if gone.get(key, ...) != entry}
        if given.keys() - fields:
            raise StoreError(f"{name} has no setting {min(given.keys() - fields)!r}")
        hints = hints_of(kind)
        given = {key: self._fitting(name, key, entry, hints.get(key, object)) for key, entry in given.items()}
        try:
            return kind(**given)
        except (TypeError, ValueError, ArithmeticError, AttributeError, UsageError) as error:
            raise StoreError(f"{name} cannot be built: {error}") from error

    def _within(self, key: str, entry: object, depth: int) -> object:
        try:
            return self.read(entry, depth + 1)
        except UnknownName as error:
            error.fields.insert(0, key)
            raise

    def _fitting(self, name: str, key: str, entry: object, hint: object) -> object:
        """A field's value as its annotation wants it: JSON holds infinite numbers and functions as text."""
        if isinstance(entry, str) and (_is_open(hint) or not _fits(entry, hint)):
            if entry in self.kinds:
                return self.kinds[entry]
            if _fits(0.0, hint) and not _is_open(hint):
                return _number(name, key, entry)
            if _takes_functions(hint):
                raise UnknownName(entry, self.kinds, key)
        if not _fits(entry, hint):
            raise StoreError(f"{name}.{key} cannot be {type(entry).__name__} {str(entry)[:40]!r}")
        return entry


@functools.cache
def hints_of(kind: type) -> dict[str, object]:
    """Annotations of a class, found once: as text they must be compiled to be read."""
    return typing.get_type_hints(kind)


def _is_open(hint: object) -> bool:
    """Whether an annotation says nothing."""
    return hint in (object, typing.Any) or isinstance(hint, typing.TypeVar)


def _alternatives(hint: object) -> tuple[object, ...]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _takes_functions(hint: object) -> bool:
    return any(typing.get_origin(member) is Callable or member is Callable for member in _alternatives(hint))


def _fits(value: object, hint: object) -> bool:
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
            return all(_fits(entry, members[0] if members else object) for entry in value)
        return len(value) == len(members) and all(map(_fits, value, members))
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, bool, str, type(None)):
        return type(value) is hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return isinstance(value, hint)
    return _is_open(hint) or dataclasses.is_dataclass(value)


def _number(name: str, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise StoreError(f"{name}.{key} must be a number, not {text[:40]!r}")
    return number
