"""The data of a loop: what it may start from, its state, what a round logs; and the state as it is saved."""

from __future__ import annotations

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from mesax.errors import UsageError
from mesax.policy import LEARNER
from mesax.replay import Replay
from mesax.store.reading import COLUMNS
from mesax.types import AnyArray, Episode, Metrics


class Start(eqx.Module):
    """What meta-training hands to a test task; every part is optional."""

    explorer: PyTree = None
    """A policy that may play some episodes (MESA's explorers)."""
    learner: PyTree = None
    """A learner state to begin with instead of a fresh one, the same for all lanes."""
    episodes: Episode | None = None
    """Episodes `[lanes, episodes, ...]` that are in the replay before the first round."""


class LoopState(eqx.Module):
    """Everything that a round changes."""

    learner: PyTree
    replay: Replay | None
    """None for a learner that has none."""
    reward: PyTree
    round: Int[Array, "*lanes"]


class RoundLog(eqx.Module):
    """What a round leaves behind: metrics, and the episodes as played (with the task's own reward)."""

    metrics: Metrics
    episodes: Episode | None


OF_A_ROW = (*COLUMNS, "policy", "rewards")
OF_A_ROUND = ("train_return", "learnt_return", "intrinsic_return", "cut_short", "explorer_share", "explorer_return")
OF_VARIANTS = ("uniform_variant_return", "best_variant_return")


def check_names(learner: str, metrics: Iterable[str]) -> None:
    """Refuse metrics of a learner that would take the place of columns that rows have of their own."""
    taken = [name for name in metrics if name in (*OF_A_ROW, *OF_A_ROUND, *OF_VARIANTS)]
    if taken:
        raise UsageError(f"{learner} gives a metric the name {taken[0]!r}, which rows have already: choose another")


def returns_of(played: Episode, learned_from: Episode) -> Metrics:
    """What a round's episodes returned, in the task's reward and in the one that is learned from.

    `cut_short` is the share of episodes that the environment itself broke off.
    """
    explored = played.label.actor != LEARNER
    paid = learned_from.reward if learned_from.bonus is None else learned_from.reward + learned_from.bonus
    cut_short = ~played.mask[:, -1] & ~jnp.any(played.terminated & played.mask, axis=1)
    returns = jnp.sum(played.reward, axis=1)
    return {
        "train_return": jnp.mean(returns),
        "learnt_return": jnp.mean(jnp.sum(paid, axis=1)),
        "cut_short": jnp.mean(cut_short.astype(jnp.float32)),
        "explorer_share": jnp.mean(explored.astype(jnp.float32)),
        "explorer_return": jnp.mean(jnp.where(explored, returns, 0.0)),
    }


def mean_over_rounds(metrics: Metrics) -> Metrics:
    """Means over stacked rounds; the explorers' return becomes a mean over *their* episodes."""
    if not metrics:
        return {}
    means = jax.tree.map(jnp.mean, metrics)
    share = means["explorer_share"]
    return means | {"explorer_return": means["explorer_return"] / jnp.where(share > 0, share, 1.0)}


def packed(state: LoopState) -> tuple[LoopState, int]:
    """The state without the part of its replay that was never written, and the episodes that are left of it."""
    replay = state.replay
    if replay is None:
        return state, 0
    filled = min(int(np.max(replay.added)), jax.tree.leaves(replay.episodes)[0].shape[1])
    episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled], replay.episodes)
    return _with_replayed(state, episodes), filled


def unpacked(saved: LoopState, like: LoopState) -> LoopState:
    """A state as it was before `packed`: what was never written is zero."""
    if saved.replay is None or like.replay is None:
        return saved

    def whole(part: AnyArray, like: jax.ShapeDtypeStruct) -> jax.Array:
        full = np.zeros(like.shape, like.dtype)
        full[:, : part.shape[1]] = part
        return jax.device_put(full, may_alias=False)

    episodes = jax.tree.map(whole, saved.replay.episodes, like.replay.episodes)
    return _with_replayed(saved, episodes)


def shape_of_packed(like: LoopState, filled: int) -> LoopState:
    """Shapes of what `packed` leaves of a state of shapes `like`."""
    if like.replay is None:
        return like
    short = jax.tree.map(lambda leaf: struct_like((leaf.shape[0], filled, *leaf.shape[2:]), leaf), like.replay.episodes)
    return _with_replayed(like, short)


def _with_replayed(state: LoopState, episodes: Episode) -> LoopState:
    """The state, or its shapes, with other episodes in its replay."""
    changed: LoopState = eqx.tree_at(lambda state: state.replay.episodes, state, episodes)
    return changed


def struct_like(shape: tuple[int, ...], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Another shape of the same type."""
    return jax.ShapeDtypeStruct(shape, leaf.dtype)
