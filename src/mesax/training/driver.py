"""Where a run's programs are put together, and the host meets the device.

A run advances in chunks: the device plays and learns, then the host evaluates, checks that all is finite, and hands the
chunk to whoever wants it. Lanes (tasks and repeats) share a program through `vmap`; a lane's numbers depend on its own
task and key only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.envs.base import Environment
from mesax.envs.host import EnvironmentFault, HostEnvironment
from mesax.errors import TrainingError
from mesax.policy import Policy
from mesax.training.compiling import compiled
from mesax.training.evaluate import evaluation_key, mean_rewards
from mesax.training.host_rollout import as_lane, play_on_host
from mesax.training.off_policy import OffPolicyLoop, round_keys, summarize
from mesax.training.on_policy import OnPolicyLoop
from mesax.training.rollout import play
from mesax.types import EnvSpec, Episode, Key, tree_index

Loop: TypeAlias = OffPolicyLoop | OnPolicyLoop
State: TypeAlias = Any
"""`LoopState` or `OnPolicyState`, as the loop has it."""
Progress: TypeAlias = tuple[Any, dict[str, jax.Array], Episode | None]
"""State, metrics, episodes (if kept), with a leading lane axis each."""


class LearningStopped(TrainingError):
    """Learning cannot go on; carries the last learner for which all was well."""

    def __init__(self, message: str, last_good: PyTree):
        super().__init__(message)
        self.last_good = last_good


class NotFiniteError(LearningStopped):
    """A metric is NaN or infinite."""


class BrokenEnvironmentError(LearningStopped):
    """The environment broke its contract."""


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


@dataclass(frozen=True)
class _OnDevice:
    """A loop whose environment is JAX: a whole chunk is one program."""

    loop: Loop
    eval_env: Environment
    eval_episodes: int

    def begin(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> Progress:
        """Fresh state after the warm-up."""
        return compiled(_Begin(self.loop))(tasks, reward_state, keys)

    def advance(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key) -> Progress:
        """One chunk of rounds."""
        return compiled(_Advance(self.loop), (2,))(tasks, explorer, state, keys)

    def evaluate(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> np.ndarray:
        """Mean rewards of the greedy policy, `[lanes, time]`."""
        program = compiled(_Evaluate(self.loop.algorithm, self.eval_env, self.eval_episodes))
        return np.asarray(program(tasks, learner, keys, step))


@dataclass(frozen=True)
class _Begin:
    loop: Loop

    def __call__(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> Progress:
        def lane(tasks: PyTree, key: Key) -> Progress:
            state: State = self.loop.init(reward_state, key)
            state, log = self.loop.warm_up(tasks, state, key)
            return state, summarize(log.metrics), log.episodes

        return jax.vmap(lane)(tasks, keys)


@dataclass(frozen=True)
class _Advance:
    loop: Loop

    def __call__(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key) -> Progress:
        _, rounds = self.loop.schedule.chunks(self.loop.env.spec.horizon)

        def lane(tasks: PyTree, state: State, key: Key) -> Progress:
            state, log = self.loop.advance(tasks, explorer, state, key, rounds)
            return state, summarize(log.metrics), log.episodes

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
class _OnHost:
    """A loop whose environment is stepped by the host: round by round, and all but the playing is compiled."""

    loop: Any
    eval_env: HostEnvironment
    eval_episodes: int

    def begin(self, tasks: PyTree, reward_state: PyTree, keys: Key) -> Progress:
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
        return (state, *self._gathered(logs))

    def advance(self, tasks: PyTree, explorer: PyTree, state: State, keys: Key) -> Progress:
        """One chunk of rounds."""
        loop = self.loop
        logs = []
        for _ in range(loop.schedule.chunks(loop.env.spec.horizon)[1]):
            policy, keys_play, keys_learn = compiled(_Player(loop))(
                state.learner, state.reward, state.round, explorer, keys
            )
            played = play_on_host(loop.env, tasks, policy, keys_play, loop.schedule.num_envs)
            state, metrics = compiled(_Learn(loop), (0,))(state, played, keys_learn)
            logs.append((metrics, played))
        return (state, *self._gathered(logs))

    def evaluate(self, tasks: PyTree, learner: PyTree, keys: Key, step: int) -> np.ndarray:
        """Mean rewards of the greedy policy, `[lanes, time]`."""
        policy, keys = compiled(_Greedy(self.loop.algorithm, self.eval_env.spec))(learner, keys, step)
        return np.asarray(play_on_host(self.eval_env, tasks, policy, keys, self.eval_episodes).reward).mean(axis=1)

    def _gathered(self, logs: list[tuple[Any, Episode]]) -> tuple[dict[str, jax.Array], Episode | None]:
        """Summary of all rounds, and their episodes `[lanes, rounds, envs, ...]` if wanted."""
        if not logs:
            return {}, None
        metrics = jax.tree.map(lambda *rounds: np.stack(rounds, axis=1), *[metrics for metrics, _ in logs])
        episodes = None
        if self.loop.keep_episodes:
            episodes = jax.tree.map(lambda *rounds: np.stack(rounds, axis=1), *[played for _, played in logs])
        return compiled(_summaries)(metrics), episodes


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


def _summaries(metrics: Any) -> Any:
    return jax.vmap(summarize)(metrics)


def _warmup_keys(keys: Key, number: jax.Array) -> Key:
    return jax.vmap(jax.random.fold_in)(keys, number)


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
    eval_env: Any = None,
) -> Iterator[Chunk]:
    """Run a loop on lanes of stacked tasks `[lanes, tasks, ...]`, yielding after the warm-up and after each chunk.

    Evaluation takes place in `eval_env` if that is another one (with longer episodes, say).
    """
    started = time.perf_counter()
    horizon = loop.env.spec.horizon
    number, rounds = loop.schedule.chunks(horizon)
    step = loop.schedule.warmup_rounds(horizon) * loop.schedule.steps_per_round(horizon)
    where: Any = _OnHost if isinstance(loop.env, HostEnvironment) else _OnDevice
    engine = where(loop, eval_env or loop.env, eval_episodes)

    state, metrics, episodes = engine.begin(tasks, reward_state, keys)
    last_good = jax.tree.map(np.asarray, state.learner)
    for index in range(number + 1):
        try:
            if index:
                state, metrics, episodes = engine.advance(tasks, explorer, state, keys)
                step += rounds * loop.schedule.steps_per_round(horizon)
            nothing = np.zeros((len(keys), 0))
            rewards = engine.evaluate(tasks, state.learner, keys, step) if eval_episodes else nothing
        except EnvironmentFault as error:
            raise BrokenEnvironmentError(f"{error}; stopped by step {step}", last_good) from error
        host_metrics = {name: np.asarray(value) for name, value in metrics.items()}
        learner = jax.tree.map(np.asarray, state.learner)
        _check_finite(host_metrics | {"rewards": rewards, "the learner": _broken(learner)}, step, last_good)
        last_good = learner
        seconds = time.perf_counter() - started if index <= 1 else 0.0
        yield Chunk(step, rewards, host_metrics, episodes, last_good, seconds)


def play_episodes(env: Any, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Episode:
    """Episodes of one policy on stacked tasks, as arrays on the host."""
    if isinstance(env, HostEnvironment):
        played = play_on_host(env, as_lane(tasks), as_lane(policy), key[None], num_episodes)
        return tree_index(played, 0)
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
