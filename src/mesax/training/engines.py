"""The two ways in which a loop is run: wholly in JAX, or with an environment that the host steps.

Both advance a state by a few rounds and hand back the log of these rounds; all compiled programs are put together here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mesax.compiling import compiled
from mesax.envs.base import Environment
from mesax.envs.host import HostEnvironment
from mesax.replay import Replay
from mesax.training.evaluate import evaluation_key, mean_rewards
from mesax.training.host_rollout import play_on_host
from mesax.training.off_policy import LoopState, OffPolicyLoop, round_keys, summarize
from mesax.training.on_policy import OnPolicyLoop
from mesax.types import EnvSpec, Episode, Key, blank_episode

Loop: TypeAlias = OffPolicyLoop | OnPolicyLoop
State: TypeAlias = Any
"""`LoopState` or `OnPolicyState`, as the loop has it."""
Log: TypeAlias = tuple[dict[str, np.ndarray], Episode | None]
"""Metrics `[lanes, rounds]`, and episodes `[lanes, rounds, envs, ...]` if they are kept."""


@dataclass(frozen=True)
class OnDevice:
    """A loop whose environment is JAX: a whole segment is one program."""

    loop: Loop
    eval_env: Environment
    eval_episodes: int

    def begin(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> tuple[State, Log]:
        """Fresh state after the warm-up."""
        state, *log = compiled(_Begin(self.loop))(tasks, reward_state, keys)
        return state, _on_host(log)

    def advance(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key, rounds: int) -> tuple[State, Log]:
        """A few rounds; `state` is used up."""
        state, *log = compiled(_Advance(self.loop, rounds), (2,))(tasks, explorer, state, keys)
        return state, _on_host(log)

    def evaluate(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> np.ndarray:
        """Mean rewards of the greedy policy, `[lanes, time]`."""
        program = compiled(_Evaluate(self.loop.algorithm, self.eval_env, self.eval_episodes))
        return np.asarray(program(tasks, learner, keys, step))


@dataclass(frozen=True)
class _Begin:
    loop: Loop

    def __call__(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> tuple[Any, ...]:
        def lane(tasks: PyTree, key: Key) -> tuple[Any, ...]:
            state: State = self.loop.init(reward_state, key)
            state, log = self.loop.warm_up(tasks, state, key)
            return state, log.metrics, log.episodes

        return jax.vmap(lane)(tasks, keys)


@dataclass(frozen=True)
class _Advance:
    loop: Loop
    rounds: int

    def __call__(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key) -> tuple[Any, ...]:
        def lane(tasks: PyTree, state: State, key: Key) -> tuple[Any, ...]:
            state, log = self.loop.advance(tasks, explorer, state, key, self.rounds)
            return state, log.metrics, log.episodes

        return jax.vmap(lane)(tasks, state, keys)


@dataclass(frozen=True)
class _Evaluate:
    algorithm: Any
    env: Environment
    num_episodes: int

    def __call__(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> jax.Array:
        def lane(tasks: PyTree, learner: PyTree, key: Key) -> jax.Array:
            policy = self.algorithm.greedy(self.env.spec, learner)
            return mean_rewards(self.env, tasks, policy, evaluation_key(key, step), self.num_episodes)

        return jax.vmap(lane)(tasks, learner, keys)


@dataclass(frozen=True)
class OnHost:
    """A loop whose environment is stepped by the host: round by round, and all but the playing is compiled."""

    loop: Any
    eval_env: HostEnvironment
    eval_episodes: int

    def begin(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> tuple[State, Log]:
        """Fresh state after the warm-up."""
        loop = self.loop
        state = compiled(_Init(loop))(reward_state, keys)
        logs = []
        for _ in range(loop.schedule.warmup_rounds(loop.env.spec.horizon)):
            played = play_on_host(
                loop.env, tasks, loop.newcomer(), compiled(_warmup_keys)(keys, state.round), loop.schedule.num_envs
            )
            state, metrics = compiled(_Store(loop), (0,))(state, played)
            logs.append((metrics, played))
        return state, self._gathered(logs)

    def advance(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key, rounds: int) -> tuple[State, Log]:
        """A few rounds; `state` is used up."""
        loop = self.loop
        logs = []
        for _ in range(rounds):
            policy, keys_play, keys_learn = compiled(_Player(loop))(
                state.learner, state.reward, state.round, explorer, keys
            )
            played = play_on_host(loop.env, tasks, policy, keys_play, loop.schedule.num_envs)
            state, metrics = compiled(_Learn(loop), (0,))(state, played, keys_learn)
            logs.append((metrics, played))
        return state, self._gathered(logs)

    def evaluate(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> np.ndarray:
        """Mean rewards of the greedy policy, `[lanes, time]`."""
        policy, keys = compiled(_Greedy(self.loop.algorithm, self.eval_env.spec))(learner, keys, step)
        return np.asarray(play_on_host(self.eval_env, tasks, policy, keys, self.eval_episodes).reward).mean(axis=1)

    def _gathered(self, logs: list[tuple[Any, Episode]]) -> Log:
        """All rounds side by side."""
        if not logs:
            return {}, None
        metrics = _stacked([metrics for metrics, _ in logs])
        return metrics, _stacked([played for _, played in logs]) if self.loop.keep_episodes else None


@dataclass(frozen=True)
class _Init:
    loop: Any

    def __call__(self, reward_state: PyTree, keys: Key) -> State:
        return jax.vmap(lambda key: self.loop.init(reward_state, key))(keys)


@dataclass(frozen=True)
class _Store:
    loop: Any

    def __call__(self, state: State, episodes: Episode) -> tuple[State, Any]:
        state, log = jax.vmap(self.loop.store)(state, episodes)
        return state, log.metrics


@dataclass(frozen=True)
class _Player:
    loop: Any

    def __call__(self, learner: PyTree, reward: PyTree, number: Any, explorer: PyTree, keys: Key) -> tuple[Any, ...]:
        def lane(learner: PyTree, reward: PyTree, number: jax.Array, key: Key) -> tuple[Any, ...]:
            return (self.loop.player(learner, reward, number, explorer), *round_keys(key, number))

        return jax.vmap(lane)(learner, reward, number, keys)


@dataclass(frozen=True)
class _Learn:
    loop: Any

    def __call__(self, state: State, episodes: Episode, keys: Key) -> tuple[State, Any]:
        state, log = jax.vmap(self.loop.learn)(state, episodes, keys)
        return state, log.metrics


@dataclass(frozen=True)
class _Greedy:
    algorithm: Any
    spec: EnvSpec

    def __call__(self, learner: PyTree, keys: Key, step: int) -> tuple[Any, Key]:
        policy = jax.vmap(lambda learner: self.algorithm.greedy(self.spec, learner))(learner)
        return policy, jax.vmap(lambda key: evaluation_key(key, step))(keys)


def _warmup_keys(keys: Key, number: jax.Array) -> Key:
    return jax.vmap(jax.random.fold_in)(keys, number)


def joined(logs: list[Log]) -> tuple[dict[str, np.ndarray], Episode | None]:
    """A chunk's segments together: means of the metrics `[lanes]`, and the episodes one after another."""
    metrics, episodes = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *logs)
    means = compiled(_summaries)(metrics) if metrics else {}
    return {name: np.asarray(value) for name, value in means.items()}, episodes


def packed(state: State) -> tuple[State, int]:
    """The state without the part of its replay that was never written, and the episodes that are left of it."""
    if not isinstance(state, LoopState):
        return state, 0
    replay = state.replay
    filled = min(int(np.max(replay.added)), jax.tree.leaves(replay.episodes)[0].shape[1])
    episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled], replay.episodes)
    return LoopState(state.learner, Replay(episodes, replay.added), state.reward, state.round), filled


def unpacked(saved: State, like: State) -> State:
    """A state as it was before `packed`: what was never written is zero."""
    if not isinstance(saved, LoopState):
        return saved

    def whole(part: Any, like: Any) -> jax.Array:
        full = np.zeros(like.shape, like.dtype)
        full[:, : part.shape[1]] = part
        return jnp.array(full)

    episodes = jax.tree.map(whole, saved.replay.episodes, like.replay.episodes)
    return LoopState(saved.learner, Replay(episodes, saved.replay.added), saved.reward, saved.round)


def shape_of_packed(like: State, filled: int) -> State:
    """Shapes of what `packed` leaves of a state of shapes `like`."""
    if not isinstance(like, LoopState):
        return like
    short = jax.tree.map(lambda leaf: _struct((leaf.shape[0], filled, *leaf.shape[2:]), leaf), like.replay.episodes)
    return LoopState(like.learner, Replay(short, like.replay.added), like.reward, like.round)


def shape_of(loop: Loop, reward_state: PyTree, keys: Key, rounds: int) -> tuple[State, Log]:
    """Shapes of the loop's state, and of the log of some rounds."""
    lanes, envs = len(keys), loop.schedule.num_envs
    state = jax.eval_shape(_Init(loop), reward_state, keys)
    episodes = _widened(jax.eval_shape(lambda: blank_episode(loop.env.spec)), lanes, envs)
    _, metrics = jax.eval_shape(_Learn(loop), state, episodes, keys)
    metrics = {name: jax.ShapeDtypeStruct((lanes, rounds), value.dtype) for name, value in metrics.items()}
    episodes = jax.tree.map(lambda leaf: _struct((lanes, rounds, *leaf.shape[1:]), leaf), episodes)
    return state, (metrics, episodes if loop.keep_episodes else None)


def _widened(tree: PyTree, *axes: int) -> PyTree:
    return jax.tree.map(lambda leaf: _struct((*axes, *leaf.shape), leaf), tree)


def _struct(shape: tuple[int, ...], leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def _on_host(log: list[Any]) -> Log:
    metrics, episodes = jax.tree.map(np.asarray, log)
    return metrics, episodes


def _stacked(rounds: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: np.stack(parts, axis=1), *rounds)


def _summaries(metrics: Any) -> Any:
    return jax.vmap(summarize)(metrics)
