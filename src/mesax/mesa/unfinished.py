"""What MESA's jobs put aside while they run, so that a job that was stopped can go on: episodes, finished explorers.

Pieces are written once and never change: a job that goes on from an earlier moment writes the same ones again.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.explorers.recipe import ExplorerRecipe
from mesax.methods.base import Services
from mesax.ours.coverage import CoverageReport
from mesax.store.trees import load_tree, open_tree, trees_in
from mesax.training.driver import Chunk
from mesax.types import Episode, stacked_shape, tree_index


def put_episodes(services: Services, chunk: Chunk) -> None:
    """Put a chunk's episodes aside."""
    assert chunk.episodes is not None
    axes = list(chunk.episodes.reward.shape[:-1])
    services.put_aside(f"episodes-{chunk.step:012d}", chunk.episodes, {"axes": axes})


def all_episodes(services: Services, blank: Episode, lanes: int) -> list[list[Episode]]:
    """What each of the first lanes has played, chunk by chunk, `[rounds * envs, ...]` each; every file is read once.

    `blank` has the shapes of one episode.
    """
    parts: list[list[Episode]] = [[] for _ in range(lanes)]
    for saved in map(open_tree, trees_in(services.scratch, "episodes-*")):
        axes = tuple(saved.facts["axes"])
        like = stacked_shape(blank, *axes)
        played: Episode = jax.tree.map(np.asarray, saved.restore(like))
        for lane, chunks in enumerate(parts):
            chunks.append(_flatten_rounds(tree_index(played, lane)))
    return parts


def _flatten_rounds(episodes: Episode) -> Episode:
    return jax.tree.map(lambda leaf: np.concatenate(np.asarray(leaf)), episodes)


def put_explorer(services: Services, number: int, explorer: tuple[PyTree, CoverageReport]) -> None:
    """Put a finished explorer aside, with what it visits."""
    services.put_aside(f"explorer-{number:02d}", explorer, {})


def get_explorer(services: Services, number: int, recipe: ExplorerRecipe) -> tuple[PyTree, CoverageReport]:
    """An explorer that is done."""
    policy, report = load_tree(services.scratch / f"explorer-{number:02d}", explorer_like(recipe))
    return policy, report


def explorer_like(recipe: ExplorerRecipe) -> PyTree:
    """Shapes of an explorer and of its report."""
    policy = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), recipe.shape(1))
    return policy, CoverageReport.blank(recipe.num_clusters)
