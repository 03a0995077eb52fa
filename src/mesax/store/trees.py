"""Pytrees of arrays as directories that survive crashes, full disks and bit rot; nothing is ever unpickled.

    <directory>/arrays.safetensors   every leaf under its path in the tree
    <directory>/manifest.json        format, the caller's facts, leaves (path, shape, dtype), size and SHA-256 of files
    <directory>/<name>               texts beside them, if there are any

A directory is written under another name and renamed into place, so its name always means a whole tree. The
manifest carries a checksum of itself, because neither JSON nor safetensors notices a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from mesax.errors import DamageError, StoreError
from mesax.store.files import read_regular_file, store_errors, sync_directory

FORMAT = 1
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
LARGEST_MANIFEST = 8 * 2**20
NUMBERS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
KINDS = (jnp.number, jnp.bool_, jax.dtypes.prng_key)
NATIVE = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)) | {"bool"}
"""What safetensors and NumPy both know; other dtypes (bfloat16, ...) are stored as their bytes."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a manifest may call a file: no folders, nothing hidden."""
Manifest = dict[str, Any]


def save_tree(directory: Path, tree: PyTree, facts: dict[str, Any], texts: dict[str, str] | None = None) -> None:
    """Write `tree`, plain `facts` and `texts`, replacing what `directory` held only once all is safely on disk."""
    _save(directory, *_encode(tree), facts, texts or {})


def save_again(directory: Path, saved: SavedTree, facts: dict[str, Any], texts: dict[str, str]) -> None:
    """Write a saved tree to another place with other facts and texts; nobody has to know what it means."""
    _save(directory, list(saved._entries.values()), saved._arrays, facts, texts)


def copy_tree(source: Path, directory: Path) -> None:
    """Write a saved tree to another place as it is, once it was found intact."""
    saved = open_tree(source)
    save_again(directory, saved, saved.facts, {})


def _save(
    directory: Path, entries: list[Any], arrays: dict[str, np.ndarray], facts: dict[str, Any], texts: dict[str, str]
) -> None:
    # Through JSON and back: keys become text before they are sorted, arrays become lists.
    facts = json.loads(json.dumps(facts, default=_to_list, allow_nan=False))
    temporary = directory.parent / f".tmp-{directory.name}-{os.getpid()}"
    with store_errors(directory, "written", SafetensorError):
        directory.parent.mkdir(parents=True, exist_ok=True)
        _recover(directory)
        _refuse_others(directory)
        _sweep(directory)
        temporary.mkdir()
        try:
            _write(temporary, entries, arrays, facts, texts)
            _swap(temporary, directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def exists(directory: Path) -> bool:
    """Whether there is a saved tree under this name, complete or damaged."""
    return (_settled(directory) / MANIFEST).is_file()


def read_manifest(directory: Path) -> Manifest:
    """The manifest, checked against its own checksum; `["facts"]` are the caller's."""
    path = _settled(directory) / MANIFEST
    data = read_regular_file(path, LARGEST_MANIFEST)
    try:
        manifest = json.loads(data, parse_constant=_refuse_constant)
        intact = _manifest_bytes(manifest) == data
    except (ValueError, TypeError, AttributeError, RecursionError):
        intact = False
    if not intact:
        raise DamageError(f"{path} is damaged: its checksum does not match")
    if manifest.get("format") != FORMAT:
        raise StoreError(f"{path} has format {manifest.get('format')!r}; this version reads format {FORMAT}")
    if not _well_formed(manifest):
        raise DamageError(f"{path} does not describe a saved tree")
    return manifest


@dataclass(frozen=True)
class SavedTree:
    """A tree as it lies on disk, found intact; what it means is up to who asks for it."""

    directory: Path
    facts: dict[str, Any]
    _entries: dict[str, dict[str, Any]]
    _arrays: dict[str, np.ndarray]

    def restore(self, like: PyTree, part: str | None = None) -> PyTree:
        """The tree (or one entry of it, if it is a dict), if it has the structure, shapes and dtypes of `like`.

        Leaves of `like` may be arrays, typed keys, numbers or `jax.ShapeDtypeStruct`.
        """
        like = like if part is None else {part: like}
        paths, treedef = jax.tree_util.tree_flatten_with_path(like)
        wanted = {_name(path): leaf for path, leaf in paths}
        entries = self._entries
        if part is not None:
            entries = {name: entry for name, entry in entries.items() if name.startswith(f"[{part!r}]")}
        for kind, names in (("lacks", wanted.keys() - entries), ("has an unexpected", entries.keys() - wanted)):
            if names:
                raise StoreError(f"{self.directory} {kind} leaf {min(names)} ({len(names)} in all)")
        leaves = [_restore(self.directory, entries[name], self._arrays, leaf) for name, leaf in wanted.items()]
        tree = jax.tree.unflatten(treedef, leaves)
        return tree if part is None else tree[part]


def open_tree(directory: Path, largest: int | None = None) -> SavedTree:
    """A saved tree, read and checked once, to be restored as a whole or in parts; of at most `largest` bytes."""
    directory = _settled(directory)
    manifest = read_manifest(directory)
    if largest is not None and sum(file["bytes"] for file in manifest["files"].values()) > largest:
        raise StoreError(f"{directory} has files of more than {largest} bytes")
    arrays = _load_arrays(directory, manifest)
    return SavedTree(directory, manifest["facts"], {entry["path"]: entry for entry in manifest["leaves"]}, arrays)


def load_tree(directory: Path, like: PyTree) -> PyTree:
    """The saved tree, if it is intact and has the structure, shapes and dtypes of `like`."""
    return open_tree(directory).restore(like)


def verify(directory: Path) -> list[str]:
    """What is wrong with a saved tree, one line each; empty if nothing is."""
    directory = _settled(directory)
    try:
        manifest = read_manifest(directory)
        arrays = _load_arrays(directory, manifest)
    except StoreError as error:
        return [str(error)]
    problems = []
    for entry in manifest["leaves"]:
        try:
            _decode(directory, entry, arrays)
        except StoreError as error:
            problems.append(str(error))
    return problems


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path) or "."


def _signature(name: str, leaf: Any) -> tuple[list[int], str]:
    """Shape and dtype of a leaf, as the manifest writes them."""
    if type(leaf) in NUMBERS:
        return [], NUMBERS[type(leaf)]
    if not hasattr(leaf, "shape") or not any(jnp.issubdtype(leaf.dtype, kind) for kind in KINDS):
        raise TypeError(f"leaf {name} is a {type(leaf).__name__}; only arrays, keys and numbers can be saved")
    return list(leaf.shape), leaf.dtype.name


def _encode(tree: PyTree) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The manifest's list of leaves, and what is stored of each."""
    entries, arrays = [], {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = _name(path)
        shape, dtype = _signature(name, leaf)
        entry: dict[str, Any] = {"path": name, "shape": shape, "dtype": dtype, "stored": "array"}
        if name in arrays:
            raise TypeError(f"two leaves are called {name}")
        if _is_key(leaf):
            entry |= {"stored": "key", "generator": str(jax.random.key_impl(leaf))}
        data = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        # C order, because safetensors writes the memory of other orders as if it were C.
        array = np.asarray(data, dtype=NUMBERS.get(type(leaf)), order="C")
        if array.dtype.name not in NATIVE:
            entry["stored"] = "bytes"
            array = array.reshape(-1).view(np.uint8)
        entries.append(entry)
        arrays[name] = array
    return entries, arrays


def _decode(directory: Path, entry: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray | jax.Array:
    """One leaf as it was saved: a NumPy array, or typed keys."""
    name, shape = entry["path"], tuple(entry["shape"])
    try:
        array = arrays[name]
        if entry["stored"] == "key":
            keys = jax.random.wrap_key_data(jnp.array(array), impl=entry["generator"])
            found = keys.shape, keys.dtype.name
        else:
            if entry["stored"] == "bytes":
                array = array.view(jnp.dtype(entry["dtype"])).reshape(shape)
            found = array.shape, array.dtype.name
    except (KeyError, ValueError, TypeError) as error:
        raise DamageError(f"{directory / ARRAYS} does not hold leaf {name} as the manifest says") from error
    if found != (shape, entry["dtype"]):
        raise DamageError(
            f"{directory / ARRAYS} holds leaf {name} as {found}, the manifest says {shape, entry['dtype']}"
        )
    return keys if entry["stored"] == "key" else array


def _restore(directory: Path, entry: dict[str, Any], arrays: dict[str, np.ndarray], like: Any) -> Any:
    """One leaf, of the type that `like` has."""
    shape, dtype = _signature(entry["path"], like)
    for what, expected, found in (("shape", shape, entry["shape"]), ("dtype", dtype, entry["dtype"])):
        if expected != found:
            raise StoreError(f"{directory} holds leaf {entry['path']} with {what} {found}, but {expected} is expected")
    value = _decode(directory, entry, arrays)
    if type(like) in NUMBERS:
        return np.asarray(value).item()
    if isinstance(like, np.generic):
        return np.asarray(value)[()]
    if isinstance(like, np.ndarray):
        return np.array(value)
    return value if _is_key(like) else jnp.array(value)


def _to_list(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be a fact: it is not JSON")


def _manifest_bytes(manifest: Manifest) -> bytes:
    """The one way to write a manifest: any other byte means damage."""
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "checksum": checksum}, indent=1, sort_keys=True) + "\n").encode()


def _well_formed(manifest: Manifest) -> bool:
    """Whether every part is there and of the right kind; a checksum says nothing about a forgery."""

    def is_size(value: Any) -> bool:
        return type(value) is int and value >= 0

    try:
        files = manifest["files"]
        sound = ARRAYS in files and MANIFEST not in files and isinstance(manifest["facts"], dict)
        sound = sound and all(
            PLAIN_NAME.fullmatch(name) and is_size(file["bytes"]) and isinstance(file["sha256"], str)
            for name, file in files.items()
        )
        return sound and all(
            all(isinstance(entry[key], str) for key in ("path", "dtype", "stored"))
            and isinstance(entry["shape"], list)
            and all(map(is_size, entry["shape"]))
            for entry in manifest["leaves"]
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _write(
    directory: Path, entries: list[Any], arrays: dict[str, np.ndarray], facts: dict[str, Any], texts: dict[str, str]
) -> None:
    safetensors_numpy.save_file(arrays, directory / ARRAYS)
    for name, text in texts.items():
        (directory / name).write_bytes(text.encode())
    files = {name: _made_durable(directory / name) for name in (ARRAYS, *texts)}
    manifest = {"format": FORMAT, "facts": facts, "leaves": entries, "files": files}
    with open(directory / MANIFEST, "wb") as file:
        file.write(_manifest_bytes(manifest))
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)


def _made_durable(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file that is safely on disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return {
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            "bytes": os.fstat(file.fileno()).st_size,
        }


def _aside(directory: Path) -> Path:
    return directory.parent / f".old-{directory.name}"


def _swap(new: Path, directory: Path) -> None:
    """Rename `new` into place; what was there is put aside first and deleted last."""
    aside = _aside(directory)
    replaces = os.path.lexists(directory)
    if replaces:
        os.replace(directory, aside)
    try:
        os.replace(new, directory)
    except BaseException:
        if replaces:
            os.replace(aside, directory)
        raise
    sync_directory(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _settled(directory: Path) -> Path:
    """Where the tree is: a crash between the two renames of a replacement leaves it put aside."""
    aside = _aside(directory)
    return aside if not os.path.lexists(directory) and aside.is_dir() else directory


def _recover(directory: Path) -> None:
    """Undo or finish a replacement that a crash interrupted."""
    aside = _aside(directory)
    if os.path.lexists(directory):
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.is_dir():
        os.replace(aside, directory)


def _refuse_others(directory: Path) -> None:
    """Replace nothing but a saved tree: a mistaken path must not cost anybody their files."""
    if not os.path.lexists(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        raise StoreError(f"{directory} cannot be written: it is not a directory")
    if any(directory.iterdir()) and not (directory / MANIFEST).exists():
        raise StoreError(f"{directory} cannot be written: it holds something else than a saved tree")


def _sweep(directory: Path) -> None:
    """Remove what processes that are no more left half written."""
    pattern = re.compile(re.escape(f".tmp-{directory.name}-") + r"(\d+)")
    for path in directory.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _load_arrays(directory: Path, manifest: Manifest) -> dict[str, np.ndarray]:
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


def _checked(path: Path, expected: dict[str, Any]) -> bytes:
    """The contents of a file, if they are what the manifest says."""
    data = read_regular_file(path, expected["bytes"])
    if len(data) != expected["bytes"]:
        raise DamageError(f"{path} has {len(data)} bytes, but {expected['bytes']} are expected")
    found = hashlib.sha256(data).hexdigest()
    if found != expected["sha256"]:
        raise DamageError(f"{path} is damaged: SHA-256 {found[:12]}..., but {expected['sha256'][:12]}... is expected")
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
