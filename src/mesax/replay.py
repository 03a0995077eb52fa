"""Replay of whole episodes: a ring that lives in the scan carry and is written in place.

Own code rather than flashbax: its last release is old, and an episode ring of forty lines needs no dependency.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from mesax.types import Episode, Key, leading_size, random_index, tree_index


class Replay(eqx.Module):
    """The last `capacity` episodes, oldest overwritten first."""

    episodes: Episode
    """Stacked over `capacity`."""
    added: Int[Array, "*lanes"]
    """Episodes ever added; the next one goes to `added % capacity`."""

    @staticmethod
    def create(example: Episode, capacity: int) -> Replay:
        """An empty ring for episodes shaped like `example`."""
        empty = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
        return Replay(empty, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """Episodes that fit."""
        return leading_size(self.episodes)

    @property
    def size(self) -> Int[Array, "*lanes"]:
        """Episodes held now."""
        return jnp.minimum(self.added, self.capacity)

    def add(self, episodes: Episode) -> Replay:
        """Append a batch of at most `capacity` episodes, in order."""
        count = leading_size(episodes)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} episodes to a replay of {self.capacity}")
        slots = (self.added + jnp.arange(count)) % self.capacity
        data = jax.tree.map(lambda ring, new: ring.at[slots].set(new, unique_indices=True), self.episodes, episodes)
        return Replay(data, self.added + count)

    def sample(self, key: Key, batch_size: int) -> Episode:
        """Draw episodes uniformly with replacement; the ring must not be empty."""
        return tree_index(self.episodes, random_index(key, (batch_size,), self.size))
