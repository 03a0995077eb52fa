"""Play episodes of a host environment: the host steps all copies, a compiled policy answers for all of them at once.

Tasks, keys and what is stored are those of `rollout.play`, so a game gives the same episodes on either path. Lanes
(tasks and repeats that learn side by side) share one batch of copies, and one call of the policy.
"""

from __future__ import annotations

import atexit
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

from mesax.compiling import compiled
from mesax.envs.base import HostBatch, HostEnvironment, HostStep
from mesax.envs.host import EnvironmentFault
from mesax.errors import TrainingError
from mesax.nets import Memory
from mesax.policy import Policy
from mesax.runtime import host_threads, one_process, staying
from mesax.training.rollout import draw_tasks
from mesax.types import Actions, Box, EnvSpec, Episode, Key, Keys, Label

MOST_COPIES = 256
"""Copies that run side by side: more episodes than that are played part by part."""
MOST_ASKED = 2_048
"""Episodes up to which the policy is asked about all of them whichever part is played: a net may round otherwise in a
batch of another size. No stage of a preset plays more; beyond, where it would cost too much, last digits may differ."""
MOST_BATCHES, MOST_OPEN = 8, 2 * MOST_COPIES
"""Batches, and copies of all batches together, that stay open; environments that an adapter keeps for later come on top
(`IDLE_PER_COPY` in `bridges/environments/foreign.py`)."""
REAL = "fiub"
"""Kinds of NumPy's types that are numbers, or truth values."""


class Begun(NamedTuple):
    """What every episode starts with, by lane and episode."""

    memory: Memory
    """The policy's."""
    step_keys: Keys
    """Two for the start and two for every step."""
    which: Int[Array, "*lanes episodes"]
    """Of the tasks."""
    seeds: UInt32[Array, "*lanes episodes"]
    """The environment's."""


def play_on_host(env: HostEnvironment, tasks: PyTree, policy: Policy, keys: Keys, num_episodes: int) -> Episode:
    """Episodes `[lanes, num_episodes, ...]` on tasks `[lanes, tasks, ...]`, by a policy with a leading lane axis."""
    with staying(), one_process():
        return _played(env, tasks, policy, keys, num_episodes)


def _played(env: HostEnvironment, tasks: PyTree, policy: Policy, keys: Keys, num_episodes: int) -> Episode:
    lanes = len(keys)
    tasks = jax.tree.map(np.asarray, tasks)
    num_tasks = jax.tree.leaves(tasks)[0].shape[1]
    # Drawn for all episodes at once, so that an episode is the same whatever part it is played in.
    begun = compiled(_Start(env.spec.horizon, num_episodes, num_tasks))(policy, keys)
    width, beginnings = parts_of(num_episodes, MOST_COPIES // lanes)
    all_asked = lanes * num_episodes <= MOST_ASKED
    whole: Episode | None = None
    for begin in beginnings:
        if all_asked:
            part = _play_part(env, tasks, policy, begun, begin, width)
        else:
            part = _play_part(env, tasks, policy, compiled(_Part(width))(begun, np.int32(begin)), 0, width)
        if whole is None:
            whole = jax.tree.map(lambda leaf: np.zeros((lanes, num_episodes, *leaf.shape[2:]), leaf.dtype), part)
        for target, played in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
            target[:, begin : begin + width] = played
    assert whole is not None
    return whole


def parts_of(number: int, most: int) -> tuple[int, list[int]]:
    """(size of every part, where each begins): as few parts as will do; the last may share some with that before."""
    parts = -(-number // max(1, most))
    width = -(-number // parts)
    return width, [min(begin, number - width) for begin in range(0, number, width)]


def _play_part(env: HostEnvironment, tasks: PyTree, policy: Policy, begun: Begun, begin: int, width: int) -> Episode:
    """The `width` episodes of each lane from number `begin` on; the policy is asked about all that have `begun`."""
    spec, memory, part = env.spec, begun.memory, slice(begin, begin + width)
    (lanes, asked), time = begun.which.shape, spec.horizon
    copies = lanes * width
    batch = running.batch(env, copies, host_threads())
    chosen = jax.tree.map(lambda leaf: leaf[np.arange(lanes)[:, None], np.asarray(begun.which)[:, part]], tasks)
    flat = jax.tree.map(lambda leaf: leaf.reshape(copies, *leaf.shape[2:]), chosen)

    obs = np.zeros((copies, time + 1, spec.num_agents, spec.obs_size), np.float32)
    action: np.ndarray = np.zeros((copies, time, spec.num_agents, *_action_shape(spec)), _action_dtype(spec))
    reward = np.zeros((copies, time), np.float32)
    terminated, mask = np.zeros((copies, time), bool), np.zeros((copies, time), bool)
    alive = np.ones(copies, bool)
    act = compiled(_act)
    first = batch.reset(flat, np.asarray(begun.seeds)[:, part].reshape(-1))
    _check("first observations", first, (copies, *obs.shape[2:]), alive)
    obs[:, 0] = first
    for step in range(time):
        if not alive.any():
            break
        seen = np.zeros((lanes, asked, *obs.shape[2:]), np.float32)
        seen[:, part] = obs[:, step].reshape(lanes, width, *obs.shape[2:])
        chosen_action, memory = act(policy, memory, seen, begun.step_keys, np.int32(step))
        action[:, step] = np.asarray(chosen_action)[:, part].reshape(copies, *action.shape[2:])
        if not spec.action_space.contains(action[alive, step]):
            raise TrainingError(f"the policy plays what is none of {spec.action_space}, in step {step + 1}")
        outcome = batch.step(spec.action_space.held(action[:, step]), alive)
        _check_step(outcome, step + 1, obs.shape[2:], alive)
        obs[alive, step + 1] = outcome.obs[alive]
        reward[alive, step] = outcome.reward[alive]
        terminated[alive, step] = outcome.terminated[alive]
        mask[:, step] = alive
        alive = alive & ~outcome.terminated & ~outcome.truncated
    label: Label = jax.tree.map(lambda leaf: np.asarray(leaf)[:, part], compiled(_label)(policy, memory, begun.which))

    def by_lane(leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(lanes, width, *leaf.shape[1:])

    played = Episode(obs, action, reward, terminated, mask, jax.tree.map(np.concatenate, label))  # type: ignore[arg-type]
    return jax.tree.map(by_lane, played)


class RunningCopies:
    """Copies that stay open from round to round: opening them may take longer than an episode.

    Those that were not used for longest are closed when there are too many, and all of them when the process ends.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[HostEnvironment, int, int], HostBatch] = OrderedDict()
        atexit.register(self.close)

    def batch(self, env: HostEnvironment, copies: int, threads: int) -> HostBatch:
        """A batch of so many copies, stepped by so many threads."""
        asked = (env, copies, threads)
        if asked not in self._open:
            self._make_room(copies)
            self._open[asked] = env.batch(copies, threads)
        self._open.move_to_end(asked)
        return self._open[asked]

    def _make_room(self, copies: int) -> None:
        while len(self._open) >= MOST_BATCHES or sum(held for _, held, _ in self._open) > max(0, MOST_OPEN - copies):
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, batch = self._open.popitem(last=False)
        with (
            staying(),
            suppress(Exception, SystemExit),
        ):  # of a batch that nobody needs any more: no result depends on it
            batch.close()

    @property
    def some_open(self) -> bool:
        """Whether there is anything to close."""
        return bool(self._open)

    def close(self) -> None:
        """End all of them."""
        while self._open:
            self._close_oldest()


running = RunningCopies()


@dataclass(frozen=True)
class _Part:
    """Some of the episodes: which ones is an argument, so that all parts share a program."""

    width: int

    def __call__(self, begun: Begun, first: Int[Array, ""]) -> Begun:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, self.width, axis=1), begun)


@dataclass(frozen=True)
class _Start:
    horizon: int
    num_episodes: int
    num_tasks: int

    def __call__(self, policy: Policy, keys: Keys) -> Begun:
        def lane(policy: Policy, key: Key) -> Begun:
            which, step_keys = draw_tasks(key, self.num_episodes, self.num_tasks, self.horizon)
            memory = jax.vmap(policy.start)(step_keys[:, 0, 1])
            return Begun(memory, step_keys, which, _seeds(step_keys))

        return jax.vmap(lane)(policy, keys)


def _act(
    policy: Policy,
    memory: Memory,
    obs: Float[Array, "lanes episodes agents obs"],
    step_keys: Keys,
    step: Int[Array, ""],
) -> tuple[Actions, Memory]:
    one_lane = jax.vmap(lambda policy, *episode: policy.act(*episode), in_axes=(None, 0, 0, 0))
    return jax.vmap(one_lane)(policy, memory, obs, step_keys[:, :, step + 1, 1])


def _label(policy: Policy, memory: Memory, which: Int[Array, "lanes episodes"]) -> Label:
    one_lane = jax.vmap(lambda policy, memory, _: policy.label(memory), in_axes=(None, 0, 0))
    return jax.vmap(one_lane)(policy, memory, which)  # `which` has the axes even if policy and memory are empty


def _action_shape(spec: EnvSpec) -> tuple[int, ...]:
    return (spec.action_space.size,) if isinstance(spec.action_space, Box) else ()


def _action_dtype(spec: EnvSpec) -> type:
    return np.float32 if isinstance(spec.action_space, Box) else np.int32


def _check_step(outcome: HostStep, step: int, one: tuple[int, ...], alive: np.ndarray) -> None:
    """Refuse what is no step of all copies; `one` is the shape of a copy's observations."""
    missing = [name for name in HostStep._fields if getattr(outcome, name, None) is None]
    if missing:
        kind = type(outcome).__name__
        raise EnvironmentFault(f"the environment's step {step} gives a {kind} without {', '.join(missing)}")
    copies = (len(alive),)
    _check(f"observations of step {step}", outcome.obs, (*copies, *one), alive)
    _check(f"rewards of step {step}", outcome.reward, copies, alive)
    for name in ("terminated", "truncated"):
        flags = getattr(outcome, name)
        if _form(flags) != (copies, "b"):
            raise EnvironmentFault(f"the environment's {name} of step {step} {_told(flags)}, not bool{copies}")


def _check(what: str, values: np.ndarray, shape: tuple[int, ...], alive: np.ndarray) -> None:
    """Refuse other shapes, what is no number, and, of copies that are alive, what is not finite in float32."""
    if _form(values) not in [(shape, kind) for kind in REAL]:
        raise EnvironmentFault(f"the environment's {what} {_told(values)}, not float32{shape}")
    with np.errstate(over="ignore"):  # found below, with a better message
        finite = np.isfinite(np.asarray(values, np.float32))
    if finite.all() or finite[alive].all():
        return
    copy = int(np.flatnonzero(alive & ~finite.reshape(len(alive), -1).all(axis=1))[0])
    found = np.asarray(values)[copy][~finite[copy]].ravel()[0]
    precision = " in float32" if np.isfinite(found) else ""
    raise EnvironmentFault(f"the environment's {what} are not finite{precision}: {found} in copy {copy}")


def _form(values: object) -> tuple[tuple[int, ...], str] | None:
    """Shape and kind of an array; None of anything else."""
    return (values.shape, values.dtype.kind) if isinstance(values, np.ndarray | jax.Array) else None


def _told(values: object) -> str:
    """What is there, in words."""
    if isinstance(values, np.ndarray | jax.Array):
        return f"are {values.dtype}{values.shape}"
    return f"are a {type(values).__name__}"


def episode_seeds(key: Key, num_episodes: int, num_tasks: int, horizon: int) -> np.ndarray:
    """What the episodes that `key` stands for are reset with."""
    _, step_keys = draw_tasks(key, num_episodes, num_tasks, horizon)
    return np.asarray(_seeds(step_keys))


def _seeds(step_keys: Keys) -> UInt32[Array, " episodes"]:
    """The environment's seed of every episode, from the keys of its steps."""
    return jax.vmap(jax.random.bits)(step_keys[:, 0, 0])


def as_lane(tree: PyTree) -> PyTree:
    """A leading lane axis of one."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
