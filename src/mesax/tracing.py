"""What functions give back, seen without computing: what breaks on the way, or changes its form, is one line."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mesax.errors import UsageError

REAL = (jnp.floating, jnp.integer, jnp.bool_)
Result = TypeVar("Result")


def told(what: str, function: Callable[..., Result], *arguments: PyTree) -> Result:
    """What a user's function gives back; what it raises is one line that begins with `what`."""
    try:
        return function(*arguments)
    except UsageError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise UsageError(f"{what}: {type(error).__name__}: {lines[0]}") from error


def shapes(name: str, function: Callable[..., Result], *arguments: PyTree) -> Result:
    """What a user's function gives back, without the numbers; `name` is how a person knows the function."""
    return told(f"{name} cannot be traced by JAX", jax.eval_shape, function, *arguments)


def changed(step: Callable[..., PyTree], before: PyTree, after: PyTree, *others: PyTree) -> str | None:
    """How what `step(before, *others)` gives, `after`, differs in form from `before`, in words; None if it may.

    Where leaves differ a scan is asked, for it is a scan that will carry them: a plain number, for example, has no type
    of its own yet and may become a float32, but 0.0 cannot become an int32.
    """
    forms: set[Hashable] = {jax.tree.structure(tree) for tree in (before, after)}
    if len(forms) > 1:
        return " of another structure"
    differences = list(_differences(before, after))
    if not differences:
        return None

    def carried(carry: PyTree, *others: PyTree) -> PyTree:
        return jax.lax.scan(lambda one, _: (step(one, *others), None), carry, None, 1)

    try:
        jax.eval_shape(carried, before, *others)
    except TypeError:
        return differences[0]
    return None


def _differences(before: PyTree, after: PyTree) -> Iterator[str]:
    """The leaves that are of another type or shape."""
    for (path, one), other in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            yield f"{jax.tree_util.keystr(path)} as {shown(other)} where it was {shown(one)}"


def is_real(value: object) -> bool:
    """Whether it is an array of real numbers, or of truth values."""
    return isinstance(value, jax.ShapeDtypeStruct) and any(jnp.issubdtype(value.dtype, kind) for kind in REAL)


def shown(value: object) -> str:
    """Type and shape, as JAX writes them."""
    if isinstance(value, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}"
