"""Where the host meets the device.

A run advances in chunks: the device plays and learns, then the host evaluates, checks that all is finite, and hands the
chunk to whoever wants it. Chunks are cut into segments of a few seconds: between them a run can be saved and stopped.
Lanes (tasks and repeats) share a program through `vmap`; a lane's numbers depend on its own task and key only.
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
from jaxtyping import Array, Int, PyTree

from mesax.compiling import compiled
from mesax.envs.base import AnyEnvironment, Environment, Guarded, HostEnvironment
from mesax.envs.host import EnvironmentFault
from mesax.errors import StoreError, TrainingError
from mesax.policy import Policy
from mesax.store.trees import SavedTree
from mesax.training.engines import Log, OnDevice, OnHost, joined, packed, shape_of, shape_of_packed, unpacked
from mesax.training.host_rollout import as_lane, play_on_host
from mesax.training.loop import Loop, LoopState, Start
from mesax.training.rollout import draw_tasks, play
from mesax.types import EnvSpec, Episode, Key, Keys, leading_size, to_host, tree_index

Facts: TypeAlias = dict[str, int]


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
    loop: Loop,
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
    engine = _engine(loop, eval_env, eval_episodes)

    def checked(values: dict[str, np.ndarray]) -> PyTree:
        learner = to_host(state.learner)
        _check_finite(values | {"the learner": _broken(learner)}, step, last_good, loop.env)
        return learner

    def chunk(logs: list[Log], seconds: float) -> Chunk:
        metrics, episodes = joined(logs)
        rewards, forms = engine.evaluate(tasks, state, keys, step) if eval_episodes else (np.zeros((lanes, 0)), None)
        learner = checked(metrics | {"rewards": rewards})
        policy = _policies(loop, eval_env.spec, learner, state.reward, lanes)
        reward = to_host(state.reward)
        return Chunk(step, rewards, metrics, episodes, learner, policy, seconds, forms, reward)

    saved = None if keeper is None else keeper.left()
    if saved is None:
        first, (state, log) = 0, engine.begin(tasks, start, reward_state, keys)
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
                state, log = engine.advance(tasks, start.explorer, state, keys, segment)
                logs.append(log)
                step += segment * steps
                last_good = checked(log[0])
            done = chunk(logs, time.perf_counter() - clock if index <= max(1, first) else 0.0)
            logs, last_good = [], done.learner
            yield done
    except EnvironmentFault as error:
        raise BrokenEnvironmentError(f"{error}; stopped by step {step}", last_good) from error


def prepare(
    loop: Loop,
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
    _engine(loop, eval_env or loop.env, eval_episodes).prepare(tasks, start, reward_state, keys, segment)


def _engine(loop: Loop, eval_env: AnyEnvironment, eval_episodes: int) -> OnDevice | OnHost:
    """What steps the loop: the device alone, or the host with it."""
    if isinstance(loop.env, HostEnvironment):
        assert isinstance(eval_env, HostEnvironment), "evaluation takes place where training does"
        return OnHost(loop, loop.env, eval_env, eval_episodes)
    assert not isinstance(eval_env, HostEnvironment), "evaluation takes place where training does"
    return OnDevice(loop, eval_env, eval_episodes)


def _policies(loop: Loop, spec: EnvSpec, learner: PyTree, reward: PyTree, lanes: int) -> PyTree:
    """Greedy policies, lane by lane, as arrays on the host."""
    each = jax.vmap(lambda learner, reward: loop.greedy(spec, learner, reward), axis_size=lanes)
    return to_host(each(learner, reward))


def _left_behind(state: LoopState, logs: list[Log], chunk: int) -> tuple[PyTree, Facts]:
    """All that it takes to go on with this chunk."""
    state, filled = packed(state)
    return {"state": state, "logs": logs}, {"chunk": chunk, "segments": len(logs), "filled": filled}


def _continued(
    loop: Loop, start: Start, reward_state: PyTree, keys: Keys, segment: int, saved: SavedTree
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
