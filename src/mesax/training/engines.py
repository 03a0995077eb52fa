"""The two ways in which a loop is run: wholly in JAX, or with an environment that the host steps.

Both advance a state by a few rounds and hand back the log of these rounds; all compiled programs are put together here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from mesax.compiling import compiled
from mesax.envs.base import Environment, HostEnvironment
from mesax.policy import Policy
from mesax.training.evaluate import evaluation_key, mean_rewards
from mesax.training.host_rollout import play_on_host
from mesax.training.loop import Loop, LoopState, RoundLog, Start, mean_over_rounds
from mesax.training.schedule import round_keys
from mesax.types import AnyArray, Episode, Key, Keys, Metrics, Tree, mapped, stacked_shape, tree_index

Log: TypeAlias = tuple[dict[str, np.ndarray], Episode | None]
"""Metrics `[lanes, rounds]`, and episodes `[lanes, rounds, envs, ...]` if they are kept."""
Evaluation: TypeAlias = tuple[np.ndarray, np.ndarray | None]
"""Mean rewards of the greedy policy `[lanes, time]`, and of every form it may take `[lanes, forms, time]` (or None)."""


@dataclass(frozen=True)
class OnDevice:
    """A loop whose environment is JAX: a whole segment is one program."""

    loop: Loop
    eval_env: Environment
    eval_episodes: int

    def prepare(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys, rounds: int) -> None:
        """Compile all that is below, from shapes alone."""
        begin = _Begin(self.loop)
        state, _ = jax.eval_shape(begin, tasks, start, reward_state, keys)
        compiled(begin).lower(tasks, start, reward_state, keys).compile()
        compiled(_Advance(self.loop, rounds), (2,)).lower(tasks, start.explorer, state, keys).compile()
        if self.eval_episodes:
            evaluate = _Evaluate(self.loop, self.eval_env, self.eval_episodes)
            compiled(evaluate).lower(tasks, state.learner, state.reward, keys, 0).compile()

    def begin(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys) -> tuple[LoopState, Log]:
        """State after the warm-up."""
        state, log = compiled(_Begin(self.loop))(tasks, start, reward_state, keys)
        return state, _on_host(log)

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: LoopState, keys: Keys, rounds: int
    ) -> tuple[LoopState, Log]:
        """A few rounds; `state` is used up."""
        state, log = compiled(_Advance(self.loop, rounds), (2,))(tasks, explorer, state, keys)
        return state, _on_host(log)

    def evaluate(self, tasks: PyTree, state: LoopState, keys: Keys, step: int) -> Evaluation:
        """The greedy policy, and its forms if it has several."""
        program = compiled(_Evaluate(self.loop, self.eval_env, self.eval_episodes))
        rewards, forms = program(tasks, state.learner, state.reward, keys, step)
        return np.asarray(rewards), None if forms is None else np.asarray(forms)


def _initial(loop: Loop, learner: PyTree, episodes: Episode | None, reward_state: PyTree, key: Key) -> LoopState:
    """A lane's state before the first round, of the very types that a round gives back.

    A number whose type is weak, as that of `jnp.full(3, 0.5)`, would have the first round compiled for itself alone.
    """

    def settled(leaf: AnyArray) -> Array:
        leaf = jnp.asarray(leaf)
        return jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf

    return jax.tree.map(settled, loop.init(Start(learner=learner, episodes=episodes), reward_state, key))


@dataclass(frozen=True)
class _Begin:
    loop: Loop

    def __call__(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys) -> tuple[LoopState, RoundLog]:
        def lane(tasks: PyTree, episodes: Episode | None, key: Key) -> tuple[LoopState, RoundLog]:
            return self.loop.warm_up(tasks, _initial(self.loop, start.learner, episodes, reward_state, key), key)

        return mapped(lane)(tasks, start.episodes, keys)


@dataclass(frozen=True)
class _Advance:
    loop: Loop
    rounds: int

    def __call__(self, tasks: PyTree, explorer: PyTree, state: LoopState, keys: Keys) -> tuple[LoopState, RoundLog]:
        def lane(tasks: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
            return self.loop.advance(tasks, explorer, state, key, self.rounds)

        return mapped(lane)(tasks, state, keys)


@dataclass(frozen=True)
class _Evaluate:
    loop: Loop
    env: Environment
    num_episodes: int

    def __call__(
        self, tasks: PyTree, learner: PyTree, reward: PyTree, keys: Keys, step: int | Int[Array, ""]
    ) -> tuple[Float[Array, "lanes time"], Float[Array, "lanes forms time"] | None]:
        def lane(
            tasks: PyTree, learner: PyTree, reward: PyTree, key: Key
        ) -> tuple[Float[Array, " time"], Float[Array, "forms time"] | None]:
            def rewards(policy: Policy) -> Float[Array, " time"]:
                return mean_rewards(self.env, tasks, policy, evaluation_key(key, step), self.num_episodes)

            forms = self.loop.variants(self.env.spec, learner, reward)
            own = rewards(self.loop.greedy(self.env.spec, learner, reward))
            return own, None if forms is None else jax.vmap(rewards)(forms)

        return mapped(lane)(tasks, learner, reward, keys)


@dataclass(frozen=True)
class OnHost:
    """A loop whose environment is stepped by the host: round by round, and all but the playing is compiled."""

    loop: Loop
    env: HostEnvironment
    """The loop's own."""
    eval_env: HostEnvironment
    eval_episodes: int

    def prepare(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys, rounds: int) -> None:
        """Nothing: a core that is free steps environments, and these programs are small."""

    def begin(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys) -> tuple[LoopState, Log]:
        """State after the warm-up."""
        schedule = self.loop.schedule
        state = compiled(_Init(self.loop))(start, reward_state, keys)
        logs = []
        for _ in range(schedule.warmup_rounds(self.env.spec.horizon)):
            policy, keys_play = compiled(_WarmupPlayer(self.loop))(state.reward, state.round, keys)
            played = play_on_host(self.env, tasks, policy, keys_play, schedule.num_envs)
            state, metrics = compiled(_Store(self.loop), (0,))(state, played, keys)
            logs.append((metrics, played))
        return state, self._gathered(logs)

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: LoopState, keys: Keys, rounds: int
    ) -> tuple[LoopState, Log]:
        """A few rounds; `state` is used up."""
        logs = []
        for _ in range(rounds):
            policy, keys_play = compiled(_Player(self.loop))(state.learner, state.reward, state.round, explorer, keys)
            played = play_on_host(self.env, tasks, policy, keys_play, self.loop.schedule.num_envs)
            state, metrics = compiled(_Learn(self.loop), (0,))(state, played, keys)
            logs.append((metrics, played))
        return state, self._gathered(logs)

    def evaluate(self, tasks: PyTree, state: LoopState, keys: Keys, step: int) -> Evaluation:
        """The greedy policy, and its forms if it has several."""
        policy, forms, keys = compiled(_Greedy(self.loop, self.eval_env))(state.learner, state.reward, keys, step)
        own = self._mean_rewards(tasks, policy, keys)
        if forms is None:
            return own, None
        lanes, number = jax.tree.leaves(forms)[0].shape[:2]
        side_by_side = jax.tree.map(lambda leaf: leaf.reshape(lanes * number, *leaf.shape[2:]), forms)
        repeated = jax.tree.map(lambda leaf: np.repeat(leaf, number, axis=0), tasks)
        rewards = self._mean_rewards(repeated, side_by_side, jnp.repeat(keys, number, axis=0))
        return own, rewards.reshape(lanes, number, -1)

    def _mean_rewards(self, tasks: PyTree, policy: Policy, keys: Keys) -> np.ndarray:
        return np.asarray(play_on_host(self.eval_env, tasks, policy, keys, self.eval_episodes).reward).mean(axis=1)

    def _gathered(self, logs: list[tuple[Metrics, Episode]]) -> Log:
        """All rounds side by side."""
        if not logs:
            return {}, None
        metrics = jax.tree.map(np.asarray, _stacked([metrics for metrics, _ in logs]))
        return metrics, _stacked([played for _, played in logs]) if self.loop.keep_episodes else None


@dataclass(frozen=True)
class _Init:
    loop: Loop

    def __call__(self, start: Start, reward_state: PyTree, keys: Keys) -> LoopState:
        def lane(episodes: Episode | None, key: Key) -> LoopState:
            return _initial(self.loop, start.learner, episodes, reward_state, key)

        return mapped(lane)(start.episodes, keys)


@dataclass(frozen=True)
class _WarmupPlayer:
    loop: Loop

    def __call__(self, reward: PyTree, number: Int[Array, " lanes"], keys: Keys) -> tuple[PyTree, Keys]:
        policy = jax.vmap(lambda reward, _: self.loop.warmup_policy(reward))(reward, keys)
        return policy, jax.vmap(jax.random.fold_in)(keys, number)


@dataclass(frozen=True)
class _Store:
    loop: Loop

    def __call__(self, state: LoopState, episodes: Episode, keys: Keys) -> tuple[LoopState, Metrics]:
        state, log = mapped(self.loop.store)(state, episodes, keys)
        return state, log.metrics


@dataclass(frozen=True)
class _Player:
    loop: Loop

    def __call__(
        self, learner: PyTree, reward: PyTree, number: Int[Array, " lanes"], explorer: PyTree, keys: Keys
    ) -> tuple[PyTree, Keys]:
        def lane(learner: PyTree, reward: PyTree, number: Int[Array, ""], key: Key) -> tuple[PyTree, Key]:
            return self.loop.player(learner, reward, number, explorer), round_keys(key, number)[0]

        return mapped(lane)(learner, reward, number, keys)


@dataclass(frozen=True)
class _Learn:
    loop: Loop

    def __call__(self, state: LoopState, episodes: Episode, keys: Keys) -> tuple[LoopState, Metrics]:
        state, log = mapped(self.loop.learn)(state, episodes, keys)
        return state, log.metrics


@dataclass(frozen=True)
class _Greedy:
    loop: Loop
    env: HostEnvironment

    def __call__(
        self, learner: PyTree, reward: PyTree, keys: Keys, step: int | Int[Array, ""]
    ) -> tuple[Policy, Policy | None, Keys]:
        """(the policies, every form of each, keys)."""

        def lane(learner: PyTree, reward: PyTree, key: Key) -> tuple[Policy, Policy | None]:
            del key  # has the lanes, even if learner and reward are empty
            spec = self.env.spec
            return self.loop.greedy(spec, learner, reward), self.loop.variants(spec, learner, reward)

        return *mapped(lane)(learner, reward, keys), jax.vmap(lambda key: evaluation_key(key, step))(keys)


def joined(logs: list[Log]) -> tuple[dict[str, np.ndarray], Episode | None]:
    """A chunk's segments together: means of the metrics `[lanes]`, and the episodes one after another."""
    metrics, episodes = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *logs)
    means = compiled(_means)(metrics) if metrics else {}
    return {name: np.asarray(value) for name, value in means.items()}, episodes


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
    short = jax.tree.map(lambda leaf: _struct((leaf.shape[0], filled, *leaf.shape[2:]), leaf), like.replay.episodes)
    return _with_replayed(like, short)


def _with_replayed(state: LoopState, episodes: Episode) -> LoopState:
    """The state, or its shapes, with other episodes in its replay."""
    changed: LoopState = eqx.tree_at(lambda state: state.replay.episodes, state, episodes)
    return changed


def shape_of(loop: Loop, start: Start, reward_state: PyTree, keys: Keys, rounds: int) -> tuple[LoopState, PyTree]:
    """Shapes of the loop's state, and of the log of some rounds."""
    lanes, envs = len(keys), loop.schedule.num_envs
    state = jax.eval_shape(_Init(loop), start, reward_state, keys)
    reward = jax.eval_shape(lambda state: tree_index(state.reward, 0), state)
    episodes = stacked_shape(jax.eval_shape(loop.blank_episode, reward), lanes, envs)
    _, metrics = jax.eval_shape(_Learn(loop), state, episodes, keys)
    metrics = {name: jax.ShapeDtypeStruct((lanes, rounds), value.dtype) for name, value in metrics.items()}
    episodes = jax.tree.map(lambda leaf: _struct((lanes, rounds, *leaf.shape[1:]), leaf), episodes)
    return state, (metrics, episodes if loop.keep_episodes else None)


def _struct(shape: tuple[int, ...], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def _on_host(log: RoundLog) -> Log:
    metrics, episodes = jax.tree.map(np.asarray, (log.metrics, log.episodes))
    return metrics, episodes


def _stacked(rounds: list[Tree]) -> Tree:
    stacked: Tree = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *rounds)
    return stacked


def _means(metrics: Metrics) -> Metrics:
    return jax.vmap(mean_over_rounds)(metrics)
