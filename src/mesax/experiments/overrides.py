"""Frozen dataclasses as settings: shown, compared, hashed, documented, and changed from the command line.

A setting's path joins field names with dots and writes them with hyphens: `algorithm.actor-update.margin`.
Where a field may hold one of several dataclasses, its own path names the class: `algorithm.actor-update`.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import json
import math
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, TypeGuard, TypeVar, Union

from mesax.errors import UsageError, closest
from mesax.store.json_values import flatten
from mesax.store.modules import attribute_of, is_reference
from mesax.store.settings import hints_of, is_made_of_settings, is_setting, items, settings_in, to_plain

Value = TypeVar("Value")
SCALARS = (bool, int, float, str)
OFFERED = {
    "mesax.algorithms.base.Learner": ("mesax.algorithms", "mesax.baselines"),
    "mesax.algorithms.actor_updates.ActorUpdate": ("mesax.algorithms",),
    "mesax.nets.sequence.NetConfig": ("mesax.nets",),
    "mesax.rewards.base.ExplorersReward": ("mesax.mesa", "mesax.ours"),
    "mesax.rewards.base.RewardModel": ("mesax.rewards.base", "mesax.baselines"),
    "mesax.rewards.levels.HighReward": ("mesax.mesa", "mesax.ours"),
}
"""Contracts, and the packages whose classes keep them: these are chosen by name, others as `module:class`."""


@dataclass(frozen=True)
class Setting:
    """One line of help."""

    path: str
    value: object
    type: str
    doc: str
    choices: tuple[str, ...] = ()
    """All values, where these are few words or numbers."""


def to_text(value: object) -> str:
    """A setting's value as `apply_all` reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(to_text, value))
    return str(value)


def apply_all(value: Value, pairs: Iterable[tuple[str, str]]) -> Value:
    """`value` with many settings changed at once, so that only what comes out need be valid.

    A class is chosen before its fields are set, whatever the order; of equal paths the last counts.
    """
    paths = [(_printable(path.removeprefix("--").replace("_", "-")), text) for path, text in pairs]
    return _change(value, [_Change(path.split("."), text, path) for path, text in paths], value)


class UnknownSetting(UsageError):
    """A path that leads to no setting."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class ValueNeeded(UsageError):
    """A setting without a value; whether there is such a setting is not known yet."""

    def __init__(self, path: str, before: Sequence[tuple[str, str]]) -> None:
        super().__init__(f"--{_printable(path)} needs a value: --{_printable(path)} value")
        self.path, self.before = path, tuple(before)


def parse_arguments(arguments: list[str]) -> list[tuple[str, str]]:
    """`--a.b value` and `--a.b=value` as (path, text)."""
    pairs: list[tuple[str, str]] = []
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("--") or len(word) == 2 or word[2] in "-=.":
            raise UsageError(f"unexpected argument {word!r}; settings are written --name value")
        name, equals, text = word[2:].partition("=")
        if not equals:
            following = next(rest, None)
            if following is None or following.startswith("--"):
                raise ValueNeeded(name, pairs)
            text = following
        pairs.append((name, text))
    return pairs


def check_path(root: object, path: str) -> None:
    """Refuse the path of a setting that `root` does not have."""
    path, value = _printable(path.replace("_", "-")), root
    names = path.split(".")
    for number, name in enumerate(names):
        field = name.replace("-", "_")
        if not is_made_of_settings(value) or field not in _names(type(value)):
            raise UnknownSetting(_unknown(root, value, _Change(names[number:], "", path)), path)
        value = getattr(value, field)


def difference(left: object, right: object) -> list[tuple[str, object, object]]:
    """Settings that differ, as (path, left value, right value); None where one side has no such setting."""
    ours, theirs = flatten(to_plain(left, whole=True)), flatten(to_plain(right, whole=True))
    paths = list(ours) + [path for path in theirs if path not in ours]
    pairs = ((path, ours.get(path), theirs.get(path)) for path in paths)
    return [(path, one, other) for path, one, other in pairs if one != other]


def digest(value: object) -> str:
    """12 hexadecimal digits that stand for every setting in `value`."""
    return digest_of_plain(to_plain(value))


def digest_of_plain(plain: object) -> str:
    """The digest of settings that are JSON already."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def documented(value: object) -> list[Setting]:
    """Every setting with its type and the string under its field."""
    return list(_settings(value))


def _printable(text: str) -> str:
    """`text` on one line, whatever is in it."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _replaced(value: Value, changed: dict[str, object]) -> Value:
    """A dataclass with some fields changed."""
    assert dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.replace(value, **changed)


def _names(owner: type) -> list[str]:
    return [field.name for field in dataclasses.fields(owner) if field.init]


def _settings(value: object, prefix: str = "", inherited: str = "") -> Iterator[Setting]:
    kind: object = type(value)
    docs = _docs(kind)
    for name, entry in items(value):
        path = prefix + name.replace("_", "-")
        hint, doc = _hint(value, name), docs.get(name) or inherited
        if not is_made_of_settings(entry):
            yield Setting(path, _leaf(entry), type_text(hint), doc, _choices(hint))
            continue
        alone = hint is type(entry)
        if not alone:
            yield Setting(path, type(entry).__name__, type_text(hint), doc)
        # A field that can hold one class only has no line of its own: its parts speak for it.
        yield from _settings(entry, path + ".", doc if alone else "")


def _leaf(value: object) -> object:
    simple = value is None or isinstance(value, SCALARS)
    row = isinstance(value, tuple) and all(entry is None or isinstance(entry, SCALARS) for entry in value)
    return value if simple or row else to_plain(value)


def _hint(owner: object, name: str) -> object:
    """The annotation of a field; the type of its value where the annotation says nothing."""
    kind: object = type(owner)
    hint = hints_of(kind)[name]
    hint = getattr(hint, "__value__", hint)
    value = getattr(owner, name)
    return type(value) if (hint in (Any, object) or isinstance(hint, TypeVar)) and isinstance(value, SCALARS) else hint


def _members(hint: object) -> tuple[object, ...]:
    """The alternatives of a union; an annotation that is none is its own only alternative."""
    hint = getattr(hint, "__value__", hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        return tuple(inner for member in typing.get_args(hint) for inner in _members(member))
    return (hint,)


def _choices(hint: object) -> tuple[str, ...]:
    """All texts that a setting takes, if it takes but some; none if anything else fits too."""
    members = _members(hint)
    if not any(typing.get_origin(member) is Literal for member in members):
        return ()
    closed = all(typing.get_origin(member) is Literal or member is type(None) for member in members)
    return tuple(type_text(hint).split(" | ")) if closed else ()


def _variants(hint: object) -> list[type]:
    return [kind for kind in _kinds(hint) if isinstance(kind, type) and dataclasses.is_dataclass(kind)]


def _kinds(hint: object) -> list[object]:
    """What a setting may be: the alternatives of its annotation, and of a contract those that keep it."""
    return [kind for member in _members(hint) for kind in (_keepers(member) if _is_contract(member) else [member])]


def _is_contract(hint: object) -> TypeGuard[type]:
    return isinstance(hint, type) and f"{hint.__module__}.{hint.__qualname__}" in OFFERED


def _keepers(contract: type) -> list[object]:
    """Classes of mesax that keep a contract, each of which can be made from its name alone."""
    kinds = settings_in(*OFFERED[f"{contract.__module__}.{contract.__qualname__}"]).values()
    return [kind for kind in kinds if _is_buildable(kind) and isinstance(kind(), contract)]


@dataclass(frozen=True)
class _Change:
    """What is left to walk of a path, its text, and the whole path."""

    names: list[str]
    text: str
    path: str


def _change(value: Value, changes: list[_Change], root: object) -> Value:
    fields: dict[str, list[_Change]] = {}
    for change in changes:
        field = change.names[0].replace("-", "_")
        if not is_made_of_settings(value) or field not in _names(type(value)):
            raise UnknownSetting(_unknown(root, value, change), change.path)
        fields.setdefault(field, []).append(change)
    new = {}
    for field, parts in fields.items():
        new[field] = getattr(value, field)
        for change in parts:
            if len(change.names) == 1:
                new[field] = _parse(change.text, _hint(value, field), new[field], change.path)
        deeper = [dataclasses.replace(change, names=change.names[1:]) for change in parts if change.names[1:]]
        if deeper:
            new[field] = _change(new[field], deeper, root)
    try:
        return _replaced(value, new)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--{changes[-1].path}: cannot use {changes[-1].text!r}: {error}") from error


def _unknown(root: object, value: object, change: _Change) -> str:
    """What to say about a path that does not exist: the class that has it, else the closest paths."""
    path, name = change.path, change.names[0]
    parent = path.split(".")[: -len(change.names)]
    classes = [kind.__name__ for kind in _variants(_hint_at(root, parent)) if name.replace("-", "_") in _names(kind)]
    if classes:
        holder, held = ".".join(parent), type(value).__name__ if is_made_of_settings(value) else to_text(value)
        return f"unknown setting --{path}: --{holder} is {held}; choose --{holder} {_either(classes)} first"
    here = [".".join([*parent, setting.path]) for setting in _settings(value)] if is_made_of_settings(value) else []
    known = list(dict.fromkeys([*here, *(setting.path for setting in _settings(root))]))
    ends = [entry for entry in known if entry.endswith(f".{path}")]
    close = closest(path, known)
    nearest = list(dict.fromkeys(ends + close))[:3]
    if nearest:
        return f"unknown setting --{path}; closest: {', '.join(f'--{entry}' for entry in nearest)}"
    heads = dict.fromkeys(entry.split(".")[0] for entry in known)
    return f"unknown setting --{path}; settings begin with {', '.join(f'--{head}' for head in heads)}"


def _hint_at(root: object, names: list[str]) -> object:
    """The annotation of the field at a path, as far as `root` has it."""
    value, hint = root, None
    for name in names:
        field = name.replace("-", "_")
        if not is_made_of_settings(value) or field not in _names(type(value)):
            return None
        value, hint = getattr(value, field), _hint(value, field)
    return hint


class _Refused(Exception):
    """Text that is no value of the wanted type."""


def _parse(text: str, hint: object, current: object, path: str) -> object:
    members, contracts = [kind for kind in _kinds(hint) if _expected(kind)], list(filter(_is_contract, _members(hint)))
    if not members or (hint is type(current) and is_made_of_settings(current)):
        names = _names(type(current)) if is_made_of_settings(current) else []
        parts = ", ".join(f"--{path}.{name.replace('_', '-')}" for name in names)
        raise UsageError(f"--{path} cannot be set as a whole" + (f"; set its parts: {parts}" if parts else ""))
    if contracts and is_reference(text):
        return _inheriting(_of_a_user(text, contracts[0], path), current)
    try:
        return _inheriting(_read_any(text.strip(), members), current)
    except _Refused as error:
        expected = _either([*map(_expected, members), *("MODULE:CLASS of your own" for _ in contracts)])
        raise UsageError(f"--{path}: cannot use {text!r}; expected {expected}") from error


def _of_a_user(reference: str, contract: type, path: str) -> object:
    """What `module:attribute` names: a class with its defaults, or an instance of one."""
    found = attribute_of(reference)
    try:
        value = found() if isinstance(found, type) else found
    except TypeError as error:
        raise UsageError(f"--{path}: '{reference}' cannot be built by its name: {error}") from error
    asked = {name for kind in contract.__mro__ if kind.__module__ != "typing" for name in vars(kind)}
    missing = [name for name in sorted(asked - {*dir(value)}) if not name.startswith("_")]
    if missing:
        raise UsageError(f"--{path}: '{reference}' is no {contract.__name__}: it has no {', '.join(missing)}")
    if not is_setting(type(value)):
        raise UsageError(f"--{path}: '{reference}' is no setting: make {type(value).__name__} a frozen dataclass")
    return value


def _inheriting(chosen: object, current: object) -> object:
    """Another kind of the same base keeps the settings of that base: only what differs starts from its defaults."""
    if not (is_made_of_settings(chosen) and is_made_of_settings(current)):
        return chosen
    shared = [kind for kind in type(chosen).__mro__ if kind in type(current).__mro__ and dataclasses.is_dataclass(kind)]
    names = [field.name for field in dataclasses.fields(shared[0])] if shared else []
    return _replaced(chosen, {name: getattr(current, name) for name in names})


def _read_any(text: str, members: Iterable[object]) -> object:
    # Text is the last resort, because every text is one.
    for member in sorted(members, key=lambda member: member is str):
        try:
            return _read(text, member)
        except _Refused:
            continue
    raise _Refused


def _either(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _expected(kind: object) -> str:
    """What texts stand for a type; empty for a type that no text stands for."""
    named = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "none"}
    if kind in named:
        return named[kind]
    if typing.get_origin(kind) is Literal:
        return _either([str(choice) for choice in typing.get_args(kind)])
    if typing.get_origin(kind) in (tuple, list):
        entries = [entry for entry in typing.get_args(kind) if entry is not ...]
        each = [_either([_expected(member) for member in _members(entry)]) for entry in entries]
        number = "values" if _is_open(kind) else f"{len(entries)} values"
        return f"{number} separated by commas, each {_either(list(dict.fromkeys(each)))}" if all(each) else ""
    return kind.__name__ if _is_buildable(kind) else ""


def _is_open(kind: object) -> bool:
    """Whether a row may have any number of entries."""
    return typing.get_origin(kind) is list or typing.get_args(kind)[1:] == (...,)


def _read(text: str, kind: object) -> object:
    if typing.get_origin(kind) is Literal:
        return _pick(text, {str(choice): choice for choice in typing.get_args(kind)})
    if typing.get_origin(kind) in (tuple, list):
        row = _read_row(text, kind)
        return row if typing.get_origin(kind) is list else tuple(row)
    if kind is type(None):
        return _pick(text.lower(), {"none": None, "null": None})
    if kind is bool:
        return _pick(text.lower(), {"true": True, "false": False})
    if kind is int:
        return _read_integer(text)
    if kind is float:
        return _read_number(text)
    if kind is str:
        return text
    return _build(text, kind)


def _pick(text: str, choices: dict[str, object]) -> object:
    if text not in choices:
        raise _Refused
    return choices[text]


def _read_integer(text: str) -> int:
    """Also 50_000 and 5e4, without rounding."""
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise _Refused from error
    if not number.is_finite() or abs(number.adjusted()) > 30 or number != number.to_integral_value():
        raise _Refused
    return int(number)


def _read_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise _Refused from error
    if math.isnan(number):
        raise _Refused
    return number


def _read_row(text: str, kind: object) -> list[object]:
    arguments = typing.get_args(kind)
    inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
    words = [word.strip() for word in inner.strip().removesuffix(",").split(",")] if inner.strip() else []
    if _is_open(kind):
        arguments = (arguments[0],) * len(words)
    if len(words) != len(arguments):
        raise _Refused
    return [_read_any(word, _members(hint)) for word, hint in zip(words, arguments, strict=True)]


def _is_buildable(kind: object) -> TypeGuard[type]:
    """Whether a dataclass can be made from its name alone."""
    return (
        isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and not inspect.isabstract(kind)
        and not any(
            field.default is field.default_factory is dataclasses.MISSING
            for field in dataclasses.fields(kind)
            if field.init
        )
    )


def _build(text: str, kind: object) -> object:
    """A dataclass by its name, with its defaults."""
    if not _is_buildable(kind) or text.replace("-", "").lower() != kind.__name__.lower():
        raise _Refused
    return kind()


def type_text(hint: object) -> str:
    """An annotation as help shows it."""
    parts = []
    for member in _members(hint):
        if typing.get_origin(member) is Literal:
            parts += [str(choice) for choice in typing.get_args(member)]
        elif typing.get_origin(member) in (tuple, list):
            inner = ["..." if entry is ... else type_text(entry) for entry in typing.get_args(member)]
            parts.append(",".join(inner))
        elif member is type(None):
            parts.append("none")
        elif _is_contract(member):
            parts += [*(getattr(kind, "__name__", "") for kind in _keepers(member)), "MODULE:CLASS"]
        else:
            parts.append(getattr(member, "__name__", str(member)))
    return " | ".join(parts)


@cache
def _docs(owner: type) -> dict[str, str]:
    """The string under each field in the class's source, as one line; inherited fields included."""
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        body = getattr(tree, "body", [])
        for field, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = after.value.value if is_text else ""
                paragraph = inspect.cleandoc(text).split("\n\n")[0] if isinstance(text, str) else ""
                found[field.target.id] = " ".join(paragraph.split())
    return found
