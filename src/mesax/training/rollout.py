"""Play episodes with a policy: one scan over time, environments side by side."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from mesax.envs.base import Environment
from mesax.policy import Policy
from mesax.training.schedule import EVALUATION_STREAM
from mesax.types import Episode, Key, Keys, leading_size, random_index, tree_index


def play_side_by_side(env: Environment, tasks: PyTree, policy: Policy, keys: Keys) -> Episode:
    """A whole episode on each of the stacked tasks, padded with zeros and masked after an early termination.

    Observations are handed on as float32, as those of the host are: an environment may see in whole numbers or truth
    values, but policies and distances calculate with them.

    `keys` holds, for each episode, two keys for the start and two for every step (all drawn at once: random draws are
    what is slow to compile). One scan whose body serves all episodes: to trace one episode's and vectorize it
    afterwards would take twice as long.
    """
    state, first_obs = jax.vmap(env.reset)(tasks, keys[:, 0, 0])
    first_obs = jnp.asarray(first_obs, jnp.float32)
    memory = jax.vmap(policy.start)(keys[:, 0, 1])

    def step(carry: PyTree, keys: Keys) -> tuple[PyTree, PyTree]:
        state, memory, obs, alive = carry
        action, memory = jax.vmap(policy.act)(memory, obs, keys[:, 1])
        state, outcome = jax.vmap(env.step)(tasks, state, action, keys[:, 0])
        # Beyond an end an environment may say anything, even NaN, and no mask would take that out of a loss again.
        obs = jnp.where(alive[:, None, None], jnp.asarray(outcome.obs, jnp.float32), 0.0)
        reward = jnp.where(alive, outcome.reward, 0.0)
        terminated = outcome.terminated & alive
        return (state, memory, obs, alive & ~terminated), (obs, action, reward, terminated, alive)

    carry = (state, memory, first_obs, jnp.ones(len(keys), bool))
    (_, memory, _, _), steps = jax.lax.scan(step, carry, jnp.swapaxes(keys[:, 1:], 0, 1))
    obs, action, reward, terminated, mask = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
    obs = jnp.concatenate([first_obs[:, None], obs], axis=1)
    return Episode(obs, action, reward, terminated, mask, jax.vmap(policy.label, axis_size=len(keys))(memory))


def draw_tasks(key: Key, num_episodes: int, num_tasks: int, horizon: int) -> tuple[Int[Array, " episodes"], Keys]:
    """(which task, keys of the start and of every step) for each of the episodes played side by side."""
    key_task, key_play = jax.random.split(key)
    keys = jax.random.split(key_play, (num_episodes, horizon + 1, 2))
    if num_tasks == 1:
        return jnp.zeros(num_episodes, jnp.int32), keys
    return random_index(key_task, (num_episodes,), num_tasks), keys


def play(env: Environment, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Episode:
    """`num_episodes` episodes side by side, each on a task drawn uniformly from the stacked `tasks`."""
    which, keys = draw_tasks(key, num_episodes, leading_size(tasks), env.spec.horizon)
    return play_side_by_side(env, tree_index(tasks, which), policy, keys)


def mean_rewards(env: Environment, tasks: PyTree, policy: Policy, key: Key, num_episodes: int) -> Float[Array, " time"]:
    """Reward at each step of an episode, averaged over episodes: returns and breakdowns follow from it."""
    return jnp.mean(play(env, tasks, policy, key, num_episodes).reward, axis=0)


def evaluation_key(key: Key, step: Int[Array, ""] | int) -> Key:
    """Evaluations draw from their own stream, so that evaluating more often changes nothing else."""
    return jax.random.fold_in(jax.random.fold_in(key, EVALUATION_STREAM), step)
