"""Numbers outside of compiled programs are moved by NumPy.

JAX compiles every operation outside of `jit` anew for every shape, 20 ms each: thousands of times in the tests, where
such operations make inputs and look at outputs. Those below move, compare, add or multiply numbers, which NumPy does to
the same bits. Inside of compiled programs nothing changes. Where another JAX has no such seam, it compiles as ever.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax.extend.core import primitives

Compute = Callable[..., Any]
PLAIN = (np.dtype(bool), np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.float32))
NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}


def install() -> None:
    """Replace how these operations are computed; must come before the first of them."""
    for name, compute in OPERATIONS.items():
        if (primitive := getattr(primitives, name, None) or getattr(core, name, None)) is not None:
            primitive.def_impl(_instead_of(primitive.impl, compute))


def _instead_of(original: Compute, compute: Compute) -> Compute:
    """By NumPy if all is plain: neither keys nor numbers without a dtype of their own, which would lose that."""

    def run(*values: Any, **settings: Any) -> Any:
        plain = [_as_plain(value) for value in values]
        given = settings.get("weak_type") or settings.get("sharding") is not None
        with np.errstate(all="ignore"):
            result = None if given or any(value is None for value in plain) else compute(*plain, **settings)
        # A copy: what is given away later must not share its memory with what is kept.
        return original(*values, **settings) if result is None else jax.device_put(result, may_alias=False)

    return run


def _as_plain(value: Any) -> np.ndarray | None:
    """With 32 bits, as everywhere in JAX; None if it is something else."""
    if isinstance(value, jax.Array) and (value.dtype not in PLAIN or value.aval.weak_type):
        return None
    if not isinstance(value, (jax.Array, np.ndarray)):
        return None
    plain = np.asarray(value)
    plain = plain.astype(NARROW.get(plain.dtype, plain.dtype))
    return plain if plain.dtype in PLAIN else None


def _convert(value: np.ndarray, new_dtype: Any, **_: Any) -> np.ndarray | None:
    new = np.dtype(new_dtype)
    exact = new in PLAIN and value.dtype in (new, np.dtype(bool))
    return value.astype(new) if exact else None


def _broadcast(value: np.ndarray, *sizes: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> np.ndarray | None:
    if sizes:
        return None
    kept = dict(zip(broadcast_dimensions, value.shape, strict=True))
    return np.broadcast_to(value.reshape([kept.get(axis, 1) for axis in range(len(shape))]), shape)


def _slice(value: np.ndarray, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * value.ndim
    return value[tuple(map(slice, start_indices, limit_indices, steps))]


def _dynamic_slice(value: np.ndarray, *starts: np.ndarray, slice_sizes: Sequence[int]) -> np.ndarray | None:
    if len(starts) != value.ndim:
        return None
    first = [
        min(max(int(start), 0), size - taken)
        for start, size, taken in zip(starts, value.shape, slice_sizes, strict=True)
    ]
    return value[tuple(slice(start, start + taken) for start, taken in zip(first, slice_sizes, strict=True))]


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray | None:
    return np.where(which, cases[1], cases[0]) if which.dtype == bool and len(cases) == 2 else None


def _same_shapes(function: Compute) -> Compute:
    return lambda left, right, **_: function(left, right) if left.shape == right.shape else None


OPERATIONS: dict[str, Compute] = {
    "stage_p": lambda value, **_: value,
    "convert_element_type_p": _convert,
    "broadcast_in_dim_p": _broadcast,
    "reshape_p": lambda value, *sizes, new_sizes, dimensions, **_: (
        None if sizes or dimensions is not None else value.reshape(new_sizes)
    ),
    "squeeze_p": lambda value, dimensions: np.squeeze(value, tuple(dimensions)),
    "expand_dims_p": lambda value, dimensions: np.expand_dims(value, tuple(dimensions)),
    "transpose_p": lambda value, permutation, **_: np.transpose(value, permutation),
    "slice_p": _slice,
    "dynamic_slice_p": _dynamic_slice,
    "concatenate_p": lambda *values, dimension: np.concatenate(values, dimension),
    "select_n_p": _select,
    "clamp_p": lambda least, value, most: np.minimum(np.maximum(value, least), most),
    "iota_p": lambda *sizes, dtype, shape, dimension, **_: (
        None
        if sizes or np.dtype(dtype) not in PLAIN
        else np.moveaxis(
            np.broadcast_to(
                np.arange(shape[dimension], dtype=dtype),
                (*shape[:dimension], *shape[dimension + 1 :], shape[dimension]),
            ),
            -1,
            dimension,
        )
    ),
    "not_p": lambda value, **_: ~value,
    "neg_p": lambda value, **_: -value,
    "abs_p": lambda value, **_: np.abs(value),
    "floor_p": lambda value, **_: np.floor(value),
    "sqrt_p": lambda value, **_: np.sqrt(value),
    "square_p": lambda value, **_: value * value,
    "copy_p": lambda value, **_: value,
    **{
        f"{name}_p": _same_shapes(function)
        for name, function in {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": lambda left, right: left / right if left.dtype == np.float32 else None,
            "max": np.maximum,
            "min": np.minimum,
            "eq": np.equal,
            "ne": np.not_equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
        }.items()
    },
}
