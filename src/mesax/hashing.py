"""Numbers that look random and are not: where a table keeps what belongs to a key."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, UInt32


def scrambled(number: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Every bit of the result depends on every bit of the number (a finalizer of MurmurHash3)."""
    number = (number ^ (number >> 16)) * jnp.uint32(0x85EBCA6B)
    number = (number ^ (number >> 13)) * jnp.uint32(0xC2B2AE35)
    return number ^ (number >> 16)
