"""What the driver runs: a loop of rounds over a state, as pure functions, and what a test task may start from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from mesax.envs.base import AnyEnvironment
from mesax.errors import UsageError
from mesax.policy import LEARNER, Policy
from mesax.replay import Replay
from mesax.training.schedule import Budget
from mesax.types import EnvSpec, Episode, Key, Metrics


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


@runtime_checkable
class Loop(Protocol):
    """A frozen dataclass, so it names its compiled program; functions are written for one lane."""

    @property
    def env(self) -> AnyEnvironment:
        """Where episodes are played."""

    @property
    def schedule(self) -> Budget:
        """How many rounds there are."""

    @property
    def keep_episodes(self) -> bool:
        """Whether the collected episodes are handed back to the host."""

    def check_lanes(self, lanes: int) -> None:
        """A `UsageError` if so many cannot learn side by side here."""

    def blank_episode(self, reward: PyTree) -> Episode:
        """An episode of the shapes that players of this loop leave, with nothing in it."""

    def init(self, start: Start, reward_state: PyTree, key: Key) -> LoopState:
        """State before the first round."""

    def warm_up(self, tasks: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
        """The rounds before the first update, in JAX."""

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: LoopState, key: Key, num_rounds: int
    ) -> tuple[LoopState, RoundLog]:
        """`num_rounds` rounds of playing and learning, in JAX."""

    def warmup_policy(self, reward: PyTree) -> Policy:
        """Who plays the warm-up."""

    def player(self, learner: PyTree, reward: PyTree, number: Int[Array, ""], explorer: PyTree) -> Policy:
        """Who plays round `number`."""

    def store(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """Take a round's episodes in, without learning from them."""

    def learn(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """Take a round's episodes in and learn; `key` is the lane's own."""

    def greedy(self, spec: EnvSpec, learner: PyTree, reward: PyTree) -> Policy:
        """The learned policy as it plays in an environment of these sizes: for evaluation and to be saved."""

    def variants(self, spec: EnvSpec, learner: PyTree, reward: PyTree) -> Policy | None:
        """Every form that it may take in an episode, stacked; None if there is one only."""


OF_A_ROW = ("phase", "task", "repeat", "policy", "step", "return", "groups", "zero_shot", "rewards")
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
