"""Runs a loop: where the host meets the device.

A run advances in chunks: the device plays and learns, then the host evaluates, checks that all is finite, and hands the
chunk to whoever wants it. Chunks are cut into segments of a few seconds: between them a run can be saved and stopped.
Lanes (tasks and repeats) share a program through `vmap`; a lane's numbers depend on its own task and key only.

One update, from here: `learn` -> `_OnDevice.advance` -> `LearningLoop.advance` -> `LearningLoop.learn` -> `update` of
the algorithm. If the host steps the environment, it plays, and calls `LearningLoop.learn` round by round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from mesax.compiling import compiled
from mesax.envs.base import AnyEnvironment, Environment, Guarded, HostEnvironment
from mesax.envs.host import EnvironmentFault
from mesax.errors import StoreError, TrainingError
from mesax.policy import Policy
from mesax.store.trees import SavedTree
from mesax.training.host_rollout import as_lane, play_on_host
from mesax.training.loop import (
    LearningLoop,
    LoopState,
    RoundLog,
    Start,
    mean_over_rounds,
    packed,
    shape_of_packed,
    struct_like,
    unpacked,
)
from mesax.training.rollout import draw_tasks, evaluation_key, mean_rewards, play
from mesax.training.schedule import round_keys
from mesax.types import (
    AnyArray,
    EnvSpec,
    Episode,
    Key,
    Keys,
    Metrics,
    Tree,
    leading_size,
    mapped,
    stacked_shape,
    to_host,
    tree_index,
)

Facts: TypeAlias = dict[str, int]
Log: TypeAlias = tuple[dict[str, np.ndarray], Episode | None]
"""Metrics `[lanes, rounds]`, and episodes `[lanes, rounds, envs, ...]` if they are kept."""
Evaluation: TypeAlias = tuple[np.ndarray, np.ndarray | None]
"""Mean rewards of the greedy policy `[lanes, time]`, and of every form it may take `[lanes, forms, time]` (or None)."""


@runtime_checkable
class Keeper(Protocol):
    """Who lets a run that was stopped go on where it was."""

    def left(self) -> SavedTree | None:
        """What the last attempt left of the loop, under `loop`; given once."""

    def pause(self, loop: Callable[[], tuple[PyTree, Facts]]) -> None:
        """A moment between rounds: save the loop, with facts, if it is time to; `Preempted` if the run is to stop."""


class LearningStopped(TrainingError):
    """Learning cannot go on; carries the last learner for which all was well."""

    def __init__(self, message: str, last_good: PyTree):
        super().__init__(message)
        self.last_good = last_good


class NotFiniteError(LearningStopped):
    """A metric is NaN or infinite."""


class BrokenEnvironmentError(LearningStopped, EnvironmentFault):
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
    policy: PyTree
    """The greedy policy as it plays in the environment itself."""
    compile_seconds: float
    """Time spent until the first step of this run was taken; 0 after the first chunk."""
    variants: np.ndarray | None = None
    """Rewards of every form that the greedy policy may take, `[lanes, forms, time]`; None if there is one only."""
    reward: PyTree = None
    """The state of the reward model."""


def learn(
    loop: LearningLoop,
    tasks: PyTree,
    keys: Keys,
    *,
    start: Start = Start(),
    reward_state: PyTree = (),
    eval_episodes: int = 8,
    eval_env: AnyEnvironment | None = None,
    keeper: Keeper | None = None,
) -> Iterator[Chunk]:
    """Run a loop on lanes of stacked tasks `[lanes, tasks, ...]`, yielding after the warm-up and after each chunk.

    Evaluation takes place in `eval_env` if that is another one (with longer episodes, say). With a `keeper`, what an
    earlier attempt left is continued: chunks that it has yielded do not come again.
    """
    clock = time.perf_counter()
    horizon, lanes = loop.env.spec.horizon, len(keys)
    loop.check_lanes(lanes)
    number, rounds = loop.schedule.chunks(horizon)
    segment = loop.schedule.segment(horizon, lanes)
    steps = loop.schedule.steps_per_round(horizon)
    step = loop.schedule.warmup_rounds(horizon) * steps
    eval_env = eval_env or loop.env
    side = _side(loop, eval_env, eval_episodes)

    def checked(values: dict[str, np.ndarray]) -> PyTree:
        learner = to_host(state.learner)
        _check_finite(values | {"the learner": _broken(learner)}, step, last_good, loop.env)
        return learner

    def chunk(logs: list[Log], seconds: float) -> Chunk:
        metrics, episodes = joined(logs)
        rewards, forms = side.evaluate(tasks, state, keys, step) if eval_episodes else (np.zeros((lanes, 0)), None)
        learner = checked(metrics | {"rewards": rewards})
        policy = _policies(loop, eval_env.spec, learner, state.reward, lanes)
        reward = to_host(state.reward)
        return Chunk(step, rewards, metrics, episodes, learner, policy, seconds, forms, reward)

    saved = None if keeper is None else keeper.left()
    if saved is None:
        first, (state, log) = 0, side.begin(tasks, start, reward_state, keys)
        logs = [log]
    else:
        first, state, logs = _continued(loop, start, reward_state, keys, segment, saved)
        saved = None  # a replay can be large
        step += ((first - 1) * rounds + len(logs) * segment) * steps
    last_good = to_host(state.learner)
    try:
        for index in range(first, number + 1):
            while index and len(logs) * segment < rounds:
                if keeper is not None:
                    keeper.pause(partial(_left_behind, state, logs, index))
                state, log = side.advance(tasks, start.explorer, state, keys, segment)
                logs.append(log)
                step += segment * steps
                last_good = checked(log[0])
            done = chunk(logs, time.perf_counter() - clock if index <= max(1, first) else 0.0)
            logs, last_good = [], done.learner
            yield done
    except EnvironmentFault as error:
        raise BrokenEnvironmentError(f"{error}; stopped by step {step}", last_good) from error


def prepare(
    loop: LearningLoop,
    tasks: PyTree,
    keys: Keys,
    *,
    start: Start = Start(),
    reward_state: PyTree = (),
    eval_episodes: int = 8,
    eval_env: AnyEnvironment | None = None,
) -> None:
    """Compile now what `learn` will need with arguments of the same shapes; shapes may stand for any of them."""
    loop.check_lanes(len(keys))
    segment = loop.schedule.segment(loop.env.spec.horizon, len(keys))
    _side(loop, eval_env or loop.env, eval_episodes).prepare(tasks, start, reward_state, keys, segment)


def _side(loop: LearningLoop, eval_env: AnyEnvironment, eval_episodes: int) -> _OnDevice | _OnHost:
    """What steps the loop: the device alone, or the host with it."""
    if isinstance(loop.env, HostEnvironment):
        assert isinstance(eval_env, HostEnvironment), "evaluation takes place where training does"
        return _OnHost(loop, loop.env, eval_env, eval_episodes)
    assert not isinstance(eval_env, HostEnvironment), "evaluation takes place where training does"
    return _OnDevice(loop, eval_env, eval_episodes)


def _policies(loop: LearningLoop, spec: EnvSpec, learner: PyTree, reward: PyTree, lanes: int) -> PyTree:
    """Greedy policies, lane by lane, as arrays on the host."""
    each = jax.vmap(lambda learner, reward: loop.greedy(spec, learner, reward), axis_size=lanes)
    return to_host(each(learner, reward))


def _left_behind(state: LoopState, logs: list[Log], chunk: int) -> tuple[PyTree, Facts]:
    """All that it takes to go on with this chunk."""
    state, filled = packed(state)
    return {"state": state, "logs": logs}, {"chunk": chunk, "segments": len(logs), "filled": filled}


def _continued(
    loop: LearningLoop, start: Start, reward_state: PyTree, keys: Keys, segment: int, saved: SavedTree
) -> tuple[int, LoopState, list[Log]]:
    """(next chunk, state, logs of its segments that are done) of an attempt that was stopped."""
    try:
        first, done, filled = (int(saved.facts["loop"][name]) for name in ("chunk", "segments", "filled"))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{saved.directory} does not say where the run stopped") from error
    state, log = shape_of(loop, start, reward_state, keys, segment)
    left = saved.restore({"state": shape_of_packed(state, filled), "logs": [log] * done}, "loop")
    return first, unpacked(left["state"], state), jax.tree.map(np.asarray, left["logs"])


@dataclass(frozen=True)
class _Play:
    env: Environment
    num_episodes: int

    def __call__(self, tasks: PyTree, policy: Policy, key: Key) -> Episode:
        return play(self.env, tasks, policy, key, self.num_episodes)


def play_episodes(env: AnyEnvironment, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Episode:
    """Episodes of one policy on stacked tasks, as arrays on the host."""
    if isinstance(env, HostEnvironment):
        played = play_on_host(env, as_lane(tasks), as_lane(policy), key[None], num_episodes)
        return tree_index(played, 0)
    episodes: Episode = jax.tree.map(np.asarray, compiled(_Play(env, num_episodes))(tasks, policy, key))
    if isinstance(env, Guarded) and not np.isfinite(episodes.reward).all():
        raise TrainingError(f"a reward is not finite: {env.reason}")
    return episodes


def tasks_played(tasks: PyTree, key: Key, num_episodes: int) -> tuple[np.ndarray, int]:
    """Which of the stacked tasks each episode of `play_episodes` with this key is on, and how many tasks there are."""
    number = leading_size(tasks)
    return np.asarray(compiled(_DrawTasks(num_episodes, number))(key)), number


@dataclass(frozen=True)
class _DrawTasks:
    num_episodes: int
    num_tasks: int

    def __call__(self, key: Key) -> Int[Array, " episodes"]:
        return draw_tasks(key, self.num_episodes, self.num_tasks, horizon=1)[0]  # tasks do not depend on the horizon


def _broken(learner: PyTree) -> np.ndarray:
    """Per lane: NaN if any number of the learner is; a gradient may overflow where the loss did not."""
    floats = [leaf for leaf in jax.tree.leaves(learner) if jnp.issubdtype(leaf.dtype, np.floating)]
    return np.where(np.any([np.isnan(leaf).reshape(len(leaf), -1).any(axis=1) for leaf in floats], axis=0), np.nan, 0.0)


def _check_finite(values: dict[str, np.ndarray], step: int, last_good: PyTree, env: AnyEnvironment) -> None:
    for name, value in values.items():
        if not np.all(np.isfinite(value)):
            lanes = sorted({int(index[0]) for index in np.argwhere(~np.isfinite(value))})
            text = f"{name} is not finite in lane {', '.join(map(str, lanes))} by step {step}; stopped"
            raise NotFiniteError(f"{text}: {env.reason}" if isinstance(env, Guarded) else text, last_good)


@dataclass(frozen=True)
class _OnDevice:
    """A loop whose environment is JAX: a whole segment is one program."""

    loop: LearningLoop
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


def _initial(
    loop: LearningLoop, learner: PyTree, episodes: Episode | None, reward_state: PyTree, key: Key
) -> LoopState:
    """A lane's state before the first round, of the very types that a round gives back.

    A number whose type is weak, as that of `jnp.full(3, 0.5)`, would have the first round compiled for itself alone.
    """

    def settled(leaf: AnyArray) -> Array:
        leaf = jnp.asarray(leaf)
        return jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf

    return jax.tree.map(settled, loop.init(Start(learner=learner, episodes=episodes), reward_state, key))


@dataclass(frozen=True)
class _Begin:
    loop: LearningLoop

    def __call__(self, tasks: PyTree, start: Start, reward_state: PyTree, keys: Keys) -> tuple[LoopState, RoundLog]:
        def lane(tasks: PyTree, episodes: Episode | None, key: Key) -> tuple[LoopState, RoundLog]:
            return self.loop.warm_up(tasks, _initial(self.loop, start.learner, episodes, reward_state, key), key)

        return mapped(lane)(tasks, start.episodes, keys)


@dataclass(frozen=True)
class _Advance:
    loop: LearningLoop
    rounds: int

    def __call__(self, tasks: PyTree, explorer: PyTree, state: LoopState, keys: Keys) -> tuple[LoopState, RoundLog]:
        def lane(tasks: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
            return self.loop.advance(tasks, explorer, state, key, self.rounds)

        return mapped(lane)(tasks, state, keys)


@dataclass(frozen=True)
class _Evaluate:
    loop: LearningLoop
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
class _OnHost:
    """A loop whose environment is stepped by the host: round by round, and all but the playing is compiled."""

    loop: LearningLoop
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
            state, metrics = compiled(_Take(self.loop, learns=False), (0,))(state, played, keys)
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
            state, metrics = compiled(_Take(self.loop), (0,))(state, played, keys)
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
    loop: LearningLoop

    def __call__(self, start: Start, reward_state: PyTree, keys: Keys) -> LoopState:
        def lane(episodes: Episode | None, key: Key) -> LoopState:
            return _initial(self.loop, start.learner, episodes, reward_state, key)

        return mapped(lane)(start.episodes, keys)


@dataclass(frozen=True)
class _WarmupPlayer:
    loop: LearningLoop

    def __call__(self, reward: PyTree, number: Int[Array, " lanes"], keys: Keys) -> tuple[PyTree, Keys]:
        policy = jax.vmap(lambda reward, _: self.loop.warmup_policy(reward))(reward, keys)
        return policy, jax.vmap(jax.random.fold_in)(keys, number)


@dataclass(frozen=True)
class _Take:
    loop: LearningLoop
    learns: bool = True

    def __call__(self, state: LoopState, episodes: Episode, keys: Keys) -> tuple[LoopState, Metrics]:
        state, log = mapped(self.loop.learn if self.learns else self.loop.store)(state, episodes, keys)
        return state, log.metrics


@dataclass(frozen=True)
class _Player:
    loop: LearningLoop

    def __call__(
        self, learner: PyTree, reward: PyTree, number: Int[Array, " lanes"], explorer: PyTree, keys: Keys
    ) -> tuple[PyTree, Keys]:
        def lane(learner: PyTree, reward: PyTree, number: Int[Array, ""], key: Key) -> tuple[PyTree, Key]:
            return self.loop.player(learner, reward, number, explorer), round_keys(key, number)[0]

        return mapped(lane)(learner, reward, number, keys)


@dataclass(frozen=True)
class _Greedy:
    loop: LearningLoop
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


def shape_of(
    loop: LearningLoop, start: Start, reward_state: PyTree, keys: Keys, rounds: int
) -> tuple[LoopState, PyTree]:
    """Shapes of the loop's state, and of the log of some rounds."""
    lanes, envs = len(keys), loop.schedule.num_envs
    state = jax.eval_shape(_Init(loop), start, reward_state, keys)
    reward = jax.eval_shape(lambda state: tree_index(state.reward, 0), state)
    episodes = stacked_shape(jax.eval_shape(loop.blank_episode, reward), lanes, envs)
    _, metrics = jax.eval_shape(_Take(loop), state, episodes, keys)
    metrics = {name: jax.ShapeDtypeStruct((lanes, rounds), value.dtype) for name, value in metrics.items()}
    episodes = jax.tree.map(lambda leaf: struct_like((lanes, rounds, *leaf.shape[1:]), leaf), episodes)
    return state, (metrics, episodes if loop.keep_episodes else None)


def _on_host(log: RoundLog) -> Log:
    metrics, episodes = jax.tree.map(np.asarray, (log.metrics, log.episodes))
    return metrics, episodes


def _stacked(rounds: list[Tree]) -> Tree:
    stacked: Tree = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *rounds)
    return stacked


def _means(metrics: Metrics) -> Metrics:
    return jax.vmap(mean_over_rounds)(metrics)
