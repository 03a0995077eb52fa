"""Random bits in tests are those that everybody has."""

import jax
import numpy as np
import pytest

from quick_random import PARITY


def rotated(x: np.ndarray, by: int) -> np.ndarray:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def by_numpy(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Threefry 2x32 with twenty rounds, as published, of one count after another."""
    keys = [key[:1], key[1:], key[:1] ^ key[1:] ^ np.uint32(PARITY)]  # arrays, which may overflow
    counts = np.arange(np.prod(shape, dtype=int), dtype=np.uint32)
    left, right = np.zeros_like(counts) + keys[0], counts + keys[1]
    for group in range(5):
        for by in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            left = left + right
            right = rotated(right, by) ^ left
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + np.uint32(group + 1)
    return np.stack([left, right], axis=-1).reshape(*shape, 2)


KEYS = jax.random.split(jax.random.key(7), 3)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)], ids=str)
def test_the_same_bits(shape: tuple[int, ...]):
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.random.bits(key, shape), jax.random.key_data(jax.random.split(key, shape))

    for bits, split in (jax.jit(draw)(KEYS[0]), jax.jit(jax.vmap(draw))(KEYS)):
        some = np.atleast_2d(jax.random.key_data(KEYS))[: 1 if bits.shape == shape else None]
        expected = np.stack([by_numpy(key, shape) for key in np.asarray(some)])
        np.testing.assert_array_equal(np.reshape(split, expected.shape), expected)
        np.testing.assert_array_equal(np.reshape(bits, expected.shape[:-1]), expected[..., 0] ^ expected[..., 1])
