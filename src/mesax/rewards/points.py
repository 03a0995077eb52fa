"""Sets of points in feature space: distances, distinct ones, thinned ones, ones that are spread out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def squared_distances(
    point: Float[Array, " features"], others: Float[Array, "others features"]
) -> Float[Array, " others"]:
    """Squared L2 distances of one point to many; under `vmap` the products become one matrix product."""
    origin = others[0]  # far from zero, |a|^2 - 2ab + |b|^2 would drown small distances in rounding
    point, others = point - origin, others - origin[None]
    squares = jnp.sum(jnp.square(point)) + jnp.sum(jnp.square(others), axis=1)
    return jnp.maximum(squares - 2.0 * (others @ point), 0.0)


def deduplicate(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct points (to 1e-5), each with its highest value, in a canonical order."""
    _, first, inverse = np.unique(np.round(points, 5), axis=0, return_index=True, return_inverse=True)
    best = np.zeros(len(first), np.float32)
    np.maximum.at(best, inverse.reshape(-1), values.astype(np.float32))
    return points[first].astype(np.float32), best


def balanced_subset(labels: np.ndarray, capacity: int, random: np.random.Generator) -> np.ndarray:
    """Indices of at most `capacity` items, taking from every cluster in turn so that small ones keep all they have."""
    if len(labels) <= capacity:
        return np.arange(len(labels))
    order = random.permutation(len(labels))
    rank = np.empty(len(labels), int)
    for label in np.unique(labels):
        of_label = order[labels[order] == label]
        rank[of_label] = np.arange(len(of_label))
    chosen = order[np.lexsort((labels[order], rank[order]))][:capacity]
    return np.sort(chosen)


def spread_out(points: np.ndarray, number: int) -> np.ndarray:
    """Indices of at most `number` points: the one farthest from the mean, then always the one farthest from all chosen.

    Every point is then at most twice as far from a chosen one as the best choice could make it (Gonzalez 1985), however
    often each place was seen.
    """
    points = points.astype(np.float64)
    distance = np.linalg.norm(points - points.mean(axis=0), axis=1)
    chosen = [int(np.argmax(distance))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < min(number, len(points)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return np.array(chosen)


def nearest(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number of the center nearest to each point."""
    apart = np.linalg.norm(points.astype(np.float64)[:, None] - centers.astype(np.float64)[None], axis=-1)
    return np.argmin(apart, axis=1)


def padded(rows: np.ndarray, number: int) -> np.ndarray:
    """Rows of zeros behind those that there are."""
    return np.concatenate([rows, np.zeros((number - len(rows), *rows.shape[1:]), rows.dtype)])
