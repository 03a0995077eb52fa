"""Pytrees of arrays as directories that survive crashes, full disks and bit rot; nothing is ever unpickled.

    <directory>/arrays.safetensors   every leaf under its path in the tree
    <directory>/manifest.json        format, the caller's facts, leaves (path, shape, dtype), size and SHA-256 of files
    <directory>/<name>               texts next to them, if there are any

A tree may be kept in memory just as well: `save_tree` and `open_tree` take a `Place`, a directory or an `InMemory`.

A directory is written under another name and renamed into place (`replacing`), so its name always means a whole tree.
The manifest carries a checksum of itself, because neither JSON nor safetensors notices a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import NotRequired, Protocol, TypedDict, cast, runtime_checkable

import jax
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from mesax.errors import DamageError, StoreError
from mesax.store.files import Checksum, check_contents, checksum, file_checksum, is_checksum, read_regular_file
from mesax.store.json_values import HasList, Json, parse_object
from mesax.store.leaves import Arrays, Entry, as_kind_of, check_like, decode, encode, is_finite, named_leaves
from mesax.store.replacing import replace_directory, settled

FORMAT = 1
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
LARGEST_MANIFEST = 8 * 2**20
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a manifest may call a file: no folders, nothing hidden."""


class Manifest(TypedDict):
    """What a saved tree says of itself."""

    format: int
    facts: Json
    leaves: list[Entry]
    files: dict[str, Checksum]
    checksum: NotRequired[str]
    """SHA-256 of all the rest."""


@runtime_checkable
class Place(Protocol):
    """Where a tree is saved, or several below it under their names: a directory, or memory."""

    @property
    def name(self) -> str:
        """What it is called where it lies."""

    def __truediv__(self, name: str, /) -> Place:
        """A place below this one."""

    def glob(self, pattern: str, /) -> Iterable[Place]:
        """Places right below this one that match a pattern and hold something."""

    def is_dir(self) -> bool:
        """Whether there is anything."""


@dataclass(frozen=True)
class InMemory:
    """A place in memory; all places that were made from one share what they hold."""

    path: PurePath = PurePath()
    _trees: dict[PurePath, SavedTree] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    def __truediv__(self, name: str, /) -> InMemory:
        """A place below this one."""
        return InMemory(self.path / name, self._trees)

    def glob(self, pattern: str, /) -> list[InMemory]:
        """Trees right below this one whose names match."""
        return [
            InMemory(path, self._trees)
            for path in self._trees
            if path.parent == self.path and fnmatchcase(path.name, pattern)
        ]

    def is_dir(self) -> bool:
        """Whether a tree is here, or below."""
        return any(path.is_relative_to(self.path) for path in self._trees)

    def forget(self) -> None:
        """Let go of all trees below."""
        for path in [path for path in self._trees if path.is_relative_to(self.path)]:
            del self._trees[path]

    def keep(self, saved: SavedTree) -> None:
        """Take over a tree as it is."""
        self._trees[self.path] = saved

    @property
    def saved(self) -> SavedTree:
        """The tree that is here."""
        if self.path not in self._trees:
            raise StoreError(f"no tree was saved under {self.path}")
        return self._trees[self.path]


def save_tree(
    directory: Place, tree: PyTree, facts: Mapping[str, object], texts: Mapping[str, str] | None = None
) -> None:
    """Write `tree`, plain `facts` and `texts`, replacing what `directory` held only once all is safely on disk."""
    _save(directory, *encode(tree), facts, texts or {})


def save_again(directory: Place, saved: SavedTree, facts: Mapping[str, object], texts: Mapping[str, str]) -> None:
    """Write a saved tree to another place with other facts and texts; without knowing what it means."""
    _save(directory, list(saved._entries.values()), saved._arrays, facts, texts)


def copy_tree(source: Path, directory: Place) -> None:
    """Write a saved tree to another place as it is, once it was found intact."""
    saved = open_tree(source)
    save_again(directory, saved, saved.facts, {})


def trees_in(place: Place, pattern: str) -> list[Place]:
    """The trees right below a place whose names match, in the order of their names."""
    return sorted(place.glob(pattern), key=lambda one: one.name)


def read_manifest(directory: Path) -> Manifest:
    """The manifest, checked against its own checksum; `["facts"]` are the caller's."""
    path = settled(directory) / MANIFEST
    data = read_regular_file(path, LARGEST_MANIFEST)
    try:
        manifest = parse_object(data)
        intact = _manifest_bytes(manifest) == data
    except ValueError:
        intact = False
    if not intact:
        raise DamageError(f"{path} is damaged: its checksum does not match")
    if manifest.get("format") != FORMAT:
        raise StoreError(f"{path} has format {manifest.get('format')!r}; this version reads format {FORMAT}")
    if not _well_formed(manifest):
        raise DamageError(f"{path} does not describe a saved tree")
    return cast("Manifest", manifest)


@dataclass(frozen=True)
class SavedTree:
    """A tree as it was saved, found intact; what it means is up to who asks for it."""

    directory: PurePath
    facts: Json
    _entries: dict[str, Entry]
    _arrays: Arrays

    def restore(self, like: PyTree, part: str | None = None) -> PyTree:
        """The tree (or one entry of it, if it is a dict), if it has the structure, shapes and dtypes of `like`.

        Leaves of `like` may be arrays, typed keys, numbers or `jax.ShapeDtypeStruct`.
        """
        wanted, structure = named_leaves(like if part is None else {part: like})
        entries = self._entries
        if part is not None:
            entries = {name: entry for name, entry in entries.items() if name.startswith(f"[{part!r}]")}
        for kind, names in (("lacks", wanted.keys() - entries), ("has an unexpected", entries.keys() - wanted)):
            if names:
                raise StoreError(f"{self.directory} {kind} leaf {min(names)} ({len(names)} in all)")
        tree = jax.tree.unflatten(structure, [self._restored(entries[name], leaf) for name, leaf in wanted.items()])
        return tree if part is None else tree[part]

    def check_finite(self, but: tuple[str, ...] = ()) -> None:
        """A `DamageError` if a number in it is infinite or none at all: no training ends in such weights.

        Leaves whose paths end in one of `but` may be anything.
        """
        for entry in self._entries.values():
            leaf = decode(entry, self._arrays, self.directory / ARRAYS)
            if not entry["path"].endswith(but) and not is_finite(leaf):
                raise DamageError(f"{self.directory / ARRAYS}: leaf {entry['path']} has numbers that are not finite")

    def _restored(self, entry: Entry, like: object) -> object:
        check_like(entry, like, self.directory)
        return as_kind_of(decode(entry, self._arrays, self.directory / ARRAYS), like)


def open_tree(directory: Place, largest: int | None = None) -> SavedTree:
    """A saved tree, read and checked once, to be restored as a whole or in parts; of at most `largest` bytes."""
    if isinstance(directory, InMemory):
        return directory.saved
    directory = settled(_on_disk(directory))
    manifest = read_manifest(directory)
    if largest is not None and sum(file["bytes"] for file in manifest["files"].values()) > largest:
        raise StoreError(f"{directory} has files of more than {largest} bytes")
    arrays = _load_arrays(directory, manifest)
    return SavedTree(directory, manifest["facts"], {entry["path"]: entry for entry in manifest["leaves"]}, arrays)


def load_tree(directory: Place, like: PyTree) -> PyTree:
    """The saved tree, if it is intact and has the structure, shapes and dtypes of `like`."""
    return open_tree(directory).restore(like)


def verify(directory: Path) -> list[str]:
    """What is wrong with a saved tree, one line each; empty if nothing is."""
    directory = settled(directory)
    try:
        manifest = read_manifest(directory)
        arrays = _load_arrays(directory, manifest)
    except StoreError as error:
        return [str(error)]
    problems = []
    for entry in manifest["leaves"]:
        try:
            decode(entry, arrays, directory / ARRAYS)
        except StoreError as error:
            problems.append(str(error))
    return problems


def _on_disk(place: Place) -> Path:
    if not isinstance(place, Path):
        raise TypeError(f"{type(place).__name__} is neither a directory nor memory")
    return place


def _save(
    directory: Place, entries: list[Entry], arrays: Arrays, facts: Mapping[str, object], texts: Mapping[str, str]
) -> None:
    # Through JSON and back: keys become text before they are sorted, arrays become lists.
    plain_facts = json.loads(json.dumps(facts, default=_to_list, allow_nan=False))
    if isinstance(directory, InMemory):
        own = {name: array.copy() for name, array in arrays.items()}  # the caller may use them up
        directory.keep(SavedTree(directory.path, plain_facts, {entry["path"]: entry for entry in entries}, own))
        return

    def write(place: Path) -> None:
        safetensors_numpy.save_file(arrays, place / ARRAYS)
        for name, text in texts.items():
            (place / name).write_bytes(text.encode())
        files = {name: _made_durable(place / name) for name in (ARRAYS, *texts)}
        manifest = {"format": FORMAT, "facts": plain_facts, "leaves": entries, "files": files}
        with open(place / MANIFEST, "wb") as file:
            file.write(_manifest_bytes(manifest))
            file.flush()
            os.fsync(file.fileno())

    replace_directory(_on_disk(directory), write, MANIFEST, SafetensorError)


def _to_list(value: object) -> object:
    if isinstance(value, HasList):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be a fact: it is not JSON")


def _manifest_bytes(manifest: Json) -> bytes:
    """The one way to write a manifest: any other byte means damage."""
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    own = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "checksum": own}, indent=1, sort_keys=True) + "\n").encode()


def _well_formed(manifest: Json) -> bool:
    """Whether every part is there and of the right kind; a checksum says nothing about a forgery."""
    try:
        files = manifest["files"]
        sound = ARRAYS in files and MANIFEST not in files and isinstance(manifest["facts"], dict)
        sound = sound and all(PLAIN_NAME.fullmatch(name) and is_checksum(file) for name, file in files.items())
        return sound and all(
            all(isinstance(entry[key], str) for key in ("path", "dtype", "stored"))
            and isinstance(entry["shape"], list)
            and all(map(_is_size, entry["shape"]))
            for entry in manifest["leaves"]
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _made_durable(path: Path) -> Checksum:
    """Size and SHA-256 of a file, once it is safely on disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return file_checksum(path)


def _load_arrays(directory: Path, manifest: Manifest) -> Arrays:
    """All stored arrays, after checking size and checksum of every file; one read serves both."""
    path = directory / ARRAYS
    contents = {name: _checked(directory / name, expected) for name, expected in manifest["files"].items()}
    try:
        arrays = safetensors_numpy.load(contents[ARRAYS])
    except SafetensorError as error:
        raise DamageError(f"{path} cannot be read: {error}") from error
    if arrays.keys() != {entry["path"] for entry in manifest["leaves"]}:
        raise DamageError(f"{path} does not hold the leaves that the manifest names")
    return arrays


def _checked(path: Path, expected: Checksum) -> bytes:
    """The contents of a file, if they are what the manifest says."""
    data = read_regular_file(path, expected["bytes"])
    check_contents(path, checksum(data), expected)
    return data
