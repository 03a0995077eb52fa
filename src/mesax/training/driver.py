"""Where programs are compiled and the host meets the device; the only file that says `jax.jit`.

A run advances in chunks: the device plays and learns, then the host evaluates, checks that all is finite, and hands the
chunk to whoever wants it. Lanes (tasks and repeats) share a program through `vmap`; a lane's numbers depend on its own
task and key only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.envs.base import Environment
from mesax.errors import TrainingError
from mesax.policy import Policy
from mesax.training.evaluate import evaluation_key, mean_rewards
from mesax.training.off_policy import OffPolicyLoop, summarize
from mesax.training.on_policy import OnPolicyLoop
from mesax.training.rollout import play
from mesax.types import Episode, Key

Loop: TypeAlias = OffPolicyLoop | OnPolicyLoop
State: TypeAlias = Any
"""`LoopState` or `OnPolicyState`, as the loop has it."""


class NotFiniteError(TrainingError):
    """A metric is NaN or infinite; carries the last learner for which all was finite."""

    def __init__(self, message: str, last_good: PyTree):
        super().__init__(message)
        self.last_good = last_good


@dataclass(frozen=True)
class Chunk:
    """What the host sees after a chunk; arrays have a leading lane axis."""

    step: int
    """Environment steps per lane so far."""
    rewards: np.ndarray
    """Greedy policy's reward at each step of an episode, `[lanes, time]`; no time if nothing is evaluated."""
    metrics: dict[str, np.ndarray]
    """Means over the chunk's rounds, `[lanes]`."""
    episodes: Episode | None
    """`[lanes, rounds, envs, ...]` as played, if the loop keeps them."""
    learner: PyTree
    compile_seconds: float
    """Time spent until the first step of this run was taken; 0 after the first chunk."""


@lru_cache(maxsize=64)
def compiled(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """`jax.jit`, once per function value: equal frozen dataclasses share their program."""
    return jax.jit(function, donate_argnums=donate)


@dataclass(frozen=True)
class _Begin:
    loop: Loop

    def __call__(
        self, tasks: PyTree, reward_state: PyTree, keys: Key
    ) -> tuple[State, dict[str, jax.Array], Episode | None]:
        def lane(tasks: PyTree, key: Key) -> tuple[State, dict[str, jax.Array], Episode | None]:
            state: State = self.loop.init(tasks, reward_state, key)
            state, log = self.loop.warm_up(tasks, state, key)
            return state, summarize(log.metrics), log.episodes

        return jax.vmap(lane)(tasks, keys)


@dataclass(frozen=True)
class _Advance:
    loop: Loop

    def __call__(
        self, tasks: PyTree, explorer: PyTree, state: State, keys: Key
    ) -> tuple[State, dict[str, jax.Array], Episode | None]:
        _, rounds = self.loop.schedule.chunks(self.loop.env.spec.horizon)

        def lane(tasks: PyTree, state: State, key: Key) -> tuple[State, dict[str, jax.Array], Episode | None]:
            state, log = self.loop.advance(tasks, explorer, state, key, rounds)
            return state, summarize(log.metrics), log.episodes

        return jax.vmap(lane)(tasks, state, keys)


@dataclass(frozen=True)
class _Evaluate:
    loop: Loop
    num_episodes: int

    def __call__(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> jax.Array:
        def lane(tasks: PyTree, learner: PyTree, key: Key) -> jax.Array:
            policy = self.loop.algorithm.greedy(self.loop.env.spec, learner)
            return mean_rewards(self.loop.env, tasks, policy, evaluation_key(key, step), self.num_episodes)

        return jax.vmap(lane)(tasks, learner, keys)


@dataclass(frozen=True)
class _Play:
    env: Environment
    num_episodes: int

    def __call__(self, tasks: PyTree, policy: Policy, key: Key) -> Episode:
        return play(self.env, tasks, policy, key, self.num_episodes)


def learn(
    loop: Loop,
    tasks: PyTree,
    keys: Key,
    *,
    explorer: PyTree = None,
    reward_state: PyTree = (),
    eval_episodes: int = 8,
) -> Iterator[Chunk]:
    """Run a loop on lanes of stacked tasks `[lanes, tasks, ...]`, yielding after the warm-up and after each chunk."""
    started = time.perf_counter()
    horizon = loop.env.spec.horizon
    number, rounds = loop.schedule.chunks(horizon)
    step = loop.schedule.warmup_rounds(horizon) * loop.schedule.steps_per_round(horizon)
    evaluate = compiled(_Evaluate(loop, eval_episodes))
    advance = compiled(_Advance(loop), (2,))

    state, metrics, episodes = compiled(_Begin(loop))(tasks, reward_state, keys)
    last_good = jax.tree.map(np.asarray, state.learner)
    for index in range(number + 1):
        if index:
            state, metrics, episodes = advance(tasks, explorer, state, keys)
            step += rounds * loop.schedule.steps_per_round(horizon)
        rewards = np.asarray(evaluate(tasks, state.learner, keys, step)) if eval_episodes else np.zeros((len(keys), 0))
        host_metrics = {name: np.asarray(value) for name, value in metrics.items()}
        learner = jax.tree.map(np.asarray, state.learner)
        _check_finite(host_metrics | {"rewards": rewards, "the learner": _broken(learner)}, step, last_good)
        last_good = learner
        seconds = time.perf_counter() - started if index <= 1 else 0.0
        yield Chunk(step, rewards, host_metrics, episodes, last_good, seconds)


def play_episodes(env: Environment, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Episode:
    """Episodes of one policy on stacked tasks, as arrays on the host."""
    episodes: Episode = jax.tree.map(np.asarray, compiled(_Play(env, num_episodes))(tasks, policy, key))
    return episodes


def _broken(learner: PyTree) -> np.ndarray:
    """Per lane: NaN if any number of the learner is; a gradient may overflow where the loss did not."""
    floats = [leaf for leaf in jax.tree.leaves(learner) if np.issubdtype(leaf.dtype, np.floating)]
    return np.where(np.any([np.isnan(leaf).reshape(len(leaf), -1).any(axis=1) for leaf in floats], axis=0), np.nan, 0.0)


def _check_finite(values: dict[str, np.ndarray], step: int, last_good: PyTree) -> None:
    for name, value in values.items():
        if not np.all(np.isfinite(value)):
            lanes = sorted({int(index[0]) for index in np.argwhere(~np.isfinite(value))})
            raise NotFiniteError(
                f"{name} is not finite in lane {', '.join(map(str, lanes))} by step {step}; stopped", last_good
            )
