"""Leaves of a tree as named NumPy arrays, and back: numbers, arrays of any dtype, typed keys."""

from __future__ import annotations

from typing import NotRequired, Protocol, TypedDict, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mesax.errors import DamageError, StoreError

NUMBERS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
KINDS = (jnp.number, jnp.bool_, jax.dtypes.prng_key)
NATIVE = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)) | {"bool"}
"""What safetensors and NumPy both know; other dtypes (bfloat16, ...) are stored as their bytes."""
Arrays = dict[str, np.ndarray]
"""What is stored of each leaf, under its name."""


class Entry(TypedDict):
    """What a manifest says of one leaf."""

    path: str
    shape: list[int]
    dtype: str
    stored: str
    """As an "array", as its "bytes", or as the data of a "key"."""
    generator: NotRequired[str]
    """Of a key."""


@runtime_checkable
class HasShape(Protocol):
    """An array of NumPy or JAX, typed keys, or a `jax.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def dtype(self) -> np.dtype:
        """Kind of the entries."""


def named_leaves(tree: PyTree) -> tuple[dict[str, object], jax.tree_util.PyTreeDef]:
    """The leaves of a tree by their path in it, and its structure."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves: dict[str, object] = {}
    for path, leaf in paths:
        name = jax.tree_util.keystr(path) or "."
        if name in leaves:
            raise TypeError(f"two leaves are called {name}")
        leaves[name] = leaf
    return leaves, structure


def encode(tree: PyTree) -> tuple[list[Entry], Arrays]:
    """What a manifest says of each leaf, and what is stored of it."""
    entries: list[Entry] = []
    arrays: Arrays = {}
    for name, leaf in named_leaves(tree)[0].items():
        shape, dtype = _signature(name, leaf)
        entry: Entry = {"path": name, "shape": shape, "dtype": dtype, "stored": "array"}
        data = leaf
        if is_key(leaf):
            entry |= {"stored": "key", "generator": str(jax.random.key_impl(leaf))}
            data = jax.random.key_data(leaf)
        # C order, because safetensors writes the memory of other orders as if it were C.
        array = np.asarray(data, dtype=NUMBERS.get(type(leaf)), order="C")
        if array.dtype.name not in NATIVE:
            entry["stored"] = "bytes"
            array = array.reshape(-1).view(np.uint8)
        entries.append(entry)
        arrays[name] = array
    return entries, arrays


def decode(entry: Entry, arrays: Arrays, source: object) -> np.ndarray | jax.Array:
    """One leaf as it was saved: a NumPy array, or typed keys; `source` is named should it not be there."""
    name, shape = entry["path"], tuple(entry["shape"])
    leaf: np.ndarray | jax.Array
    try:
        leaf = arrays[name]
        if entry["stored"] == "key":
            leaf = jax.random.wrap_key_data(jnp.array(leaf), impl=entry["generator"])
        elif entry["stored"] == "bytes":
            leaf = leaf.view(jnp.dtype(entry["dtype"])).reshape(shape)
    except (KeyError, ValueError, TypeError) as error:
        raise DamageError(f"{source} does not hold leaf {name} as the manifest says") from error
    found = leaf.shape, leaf.dtype.name
    if found != (shape, entry["dtype"]):
        raise DamageError(f"{source} holds leaf {name} as {found}, the manifest says {shape, entry['dtype']}")
    return leaf


def check_like(entry: Entry, like: object, source: object) -> None:
    """A `StoreError` unless the leaf has the shape and dtype of `like`."""
    shape, dtype = _signature(entry["path"], like)
    for what, expected, found in (("shape", shape, entry["shape"]), ("dtype", dtype, entry["dtype"])):
        if expected != found:
            raise StoreError(f"{source} holds leaf {entry['path']} with {what} {found}, but {expected} is expected")


def as_kind_of(value: np.ndarray | jax.Array, like: object) -> object:
    """A leaf as the type that `like` has: a number, an array of NumPy or of JAX, keys."""
    if type(like) in NUMBERS:
        return np.asarray(value).item()
    if isinstance(like, np.generic):
        return np.asarray(value)[()]
    if isinstance(like, np.ndarray):
        return np.array(value)
    # Not `jnp.array`, which compiles a program for every shape. A copy: the loop that goes on uses its state up.
    return value if is_key(like) else jax.device_put(value, may_alias=False)


def is_finite(leaf: np.ndarray | jax.Array) -> bool:
    """Whether a leaf has no infinite number and no NaN."""
    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(np.isfinite(np.asarray(leaf)).all())


def is_key(leaf: object) -> TypeGuard[jax.Array]:
    """Whether a leaf is typed keys, or their shape."""
    return isinstance(leaf, HasShape) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _signature(name: str, leaf: object) -> tuple[list[int], str]:
    """Shape and dtype of a leaf, as the manifest writes them."""
    if type(leaf) in NUMBERS:
        return [], NUMBERS[type(leaf)]
    if not isinstance(leaf, HasShape) or not any(jnp.issubdtype(leaf.dtype, kind) for kind in KINDS):
        raise TypeError(f"leaf {name} is a {type(leaf).__name__}; only arrays, keys and numbers can be saved")
    return list(leaf.shape), leaf.dtype.name
