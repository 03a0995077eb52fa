"""Play episodes of a host environment: the host steps all copies, a compiled policy answers for all of them at once.

Tasks, keys and what is stored are those of `rollout.play`, so a game gives the same episodes on either path. Lanes
(tasks and repeats that learn side by side) share one batch of copies, and one call of the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

from mesax.compiling import compiled
from mesax.envs.base import HostBatch, HostEnvironment
from mesax.envs.host import EnvironmentFault
from mesax.nets import Memory
from mesax.policy import Policy
from mesax.runtime import host_threads
from mesax.training.rollout import draw_tasks
from mesax.types import Actions, Box, EnvSpec, Episode, Key, Keys, Label


def play_on_host(env: HostEnvironment, tasks: PyTree, policy: Policy, keys: Keys, num_episodes: int) -> Episode:
    """Episodes `[lanes, num_episodes, ...]` on tasks `[lanes, tasks, ...]`, by a policy with a leading lane axis."""
    spec, lanes = env.spec, len(keys)
    copies, time = lanes * num_episodes, spec.horizon
    tasks = jax.tree.map(np.asarray, tasks)
    batch = running(env, copies, host_threads())  # type: ignore[arg-type]
    num_tasks = jax.tree.leaves(tasks)[0].shape[1]
    memory, step_keys, which, seeds = compiled(_Start(time, num_episodes, num_tasks))(policy, keys)
    chosen = jax.tree.map(lambda leaf: leaf[np.arange(lanes)[:, None], np.asarray(which)], tasks)
    flat = jax.tree.map(lambda leaf: leaf.reshape(copies, *leaf.shape[2:]), chosen)

    obs = np.zeros((copies, time + 1, spec.num_agents, spec.obs_size), np.float32)
    action: np.ndarray = np.zeros((copies, time, spec.num_agents, *_action_shape(spec)), _action_dtype(spec))
    reward = np.zeros((copies, time), np.float32)
    terminated, mask = np.zeros((copies, time), bool), np.zeros((copies, time), bool)
    alive = np.ones(copies, bool)
    act = compiled(_act)
    obs[:, 0] = _checked(batch.reset(flat, np.asarray(seeds).reshape(-1)), (copies, *obs.shape[2:]))
    for step in range(time):
        if not alive.any():
            break
        seen = obs[:, step].reshape(lanes, num_episodes, *obs.shape[2:])
        chosen_action, memory = act(policy, memory, seen, step_keys, np.int32(step))
        action[:, step] = np.asarray(chosen_action).reshape(copies, *action.shape[2:])
        outcome = batch.step(action[:, step], alive)
        obs[alive, step + 1] = outcome.obs[alive]
        reward[alive, step] = outcome.reward[alive]
        terminated[alive, step] = outcome.terminated[alive]
        mask[:, step] = alive
        alive = alive & ~outcome.terminated & ~outcome.truncated
    label: Label = jax.tree.map(np.asarray, compiled(_label)(policy, memory, which))

    def by_lane(leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(lanes, num_episodes, *leaf.shape[1:])

    played = Episode(obs, action, reward, terminated, mask, jax.tree.map(np.concatenate, label))  # type: ignore[arg-type]
    return jax.tree.map(by_lane, played)


@lru_cache(maxsize=8)
def running(env: HostEnvironment, copies: int, threads: int) -> HostBatch:
    """Copies that stay open from round to round: opening them may take longer than an episode."""
    return env.batch(copies, threads)


@dataclass(frozen=True)
class _Start:
    horizon: int
    num_episodes: int
    num_tasks: int

    def __call__(
        self, policy: Policy, keys: Keys
    ) -> tuple[Memory, Keys, Int[Array, "lanes episodes"], UInt32[Array, "lanes episodes"]]:
        """(policy's memory, keys of every step, which task, the environment's seed) for every episode."""

        def lane(policy: Policy, key: Key) -> tuple[Memory, Keys, jax.Array, jax.Array]:
            which, step_keys = draw_tasks(key, self.num_episodes, self.num_tasks, self.horizon)
            memory = jax.vmap(policy.start)(step_keys[:, 0, 1])
            return memory, step_keys, which, _seeds(step_keys)

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


def _checked(obs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if obs.shape != shape:
        raise EnvironmentFault(f"the environment's first observations have shape {obs.shape}, but {shape} is expected")
    return obs


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
