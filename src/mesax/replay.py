"""Replay of whole episodes: a ring that lives in the scan carry and is written in place.

    draw      every episode alike, or in proportion to priority^exponent if episodes have priorities
    add       new episodes get the priority `first`, so that they are soon seen
    rated     the learner of drawn episodes says what their priorities are now

Own code rather than flashbax: its last release is old, and an episode ring of forty lines needs no dependency.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.types import Episode, Key, leading_size, random_index, tree_index

LEAST = 1e-6
"""Priority that every episode keeps."""


class Replay(eqx.Module):
    """The last `capacity` episodes, oldest overwritten first."""

    episodes: Episode
    """Stacked over `capacity`."""
    added: Int[Array, "*lanes"]
    """Episodes ever added; the next one goes to `added % capacity`."""
    priority: Float[Array, "*lanes capacity"] | None = None
    """Priority of every episode, 0 where there is none yet; None: all alike."""

    @staticmethod
    def create(example: Episode, capacity: int, *, prioritized: bool = False) -> Replay:
        """An empty ring for episodes shaped like `example`."""
        empty = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
        return Replay(empty, jnp.zeros((), jnp.int32), jnp.zeros(capacity) if prioritized else None)

    @property
    def capacity(self) -> int:
        """Episodes that fit."""
        return leading_size(self.episodes)

    @property
    def size(self) -> Int[Array, "*lanes"]:
        """Episodes held now."""
        return jnp.minimum(self.added, self.capacity)

    def add(self, episodes: Episode, first: float = 1.0) -> Replay:
        """Append a batch of at most `capacity` episodes, in order; `first` is their priority, if they have one."""
        count = leading_size(episodes)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} episodes to a replay of {self.capacity}")
        slots = (self.added + jnp.arange(count)) % self.capacity
        data = jax.tree.map(lambda ring, new: ring.at[slots].set(new, unique_indices=True), self.episodes, episodes)
        priority = None if self.priority is None else self.priority.at[slots].set(first, unique_indices=True)
        return Replay(data, self.added + count, priority)

    def sample(self, key: Key, batch_size: int) -> Episode:
        """Draw episodes uniformly with replacement; the ring must not be empty."""
        return tree_index(self.episodes, random_index(key, (batch_size,), self.size))

    def sample_by_priority(self, key: Key, batch_size: int, exponent: float) -> tuple[Episode, Int[Array, " batch"]]:
        """Draw episodes with replacement, likely in proportion to priority^exponent: (episodes, where they are)."""
        assert self.priority is not None, "this replay has no priorities"
        # With an exponent of 0 empty places, whose priority is 0, would count like the others.
        shares = jnp.cumsum(jnp.where(jnp.arange(self.capacity) < self.size, self.priority**exponent, 0.0))
        drawn = jax.random.uniform(key, (batch_size,)) * shares[-1]
        # Rounding must not lead beyond the last episode there is.
        slots = jnp.minimum(jnp.searchsorted(shares, drawn, side="right"), self.size - 1)
        return tree_index(self.episodes, slots), slots

    def rated(self, slots: Int[Array, " batch"], priority: Float[Array, " batch"]) -> Replay:
        """With new priorities of some episodes; none falls to 0, or it would never be drawn again."""
        assert self.priority is not None, "this replay has no priorities"
        return Replay(self.episodes, self.added, self.priority.at[slots].set(jnp.maximum(priority, LEAST)))
