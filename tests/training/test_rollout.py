"""Rollouts: what is stored at each step, tasks drawn evenly, and episodes that end early."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mesax.envs.climb import ClimbGame, ClimbTask
from mesax.policy import UniformPolicy
from mesax.training.rollout import evaluation_key, mean_rewards, play
from mesax.types import Discrete, Label, tree_stack
from probes import HORIZON, POISON, PROBES, TabularGame

GAME = ClimbGame(num_agents=2, num_actions=3, num_stages=3)
TASKS = ClimbTask(jnp.array([[1, 2, 1], [2, 2, 2]]), jnp.array([[0, 1, 2], [2, 1, 0]]))


class Scripted(eqx.Module):
    """Plays a written sequence, by counting its steps in its memory; also notes what it observes."""

    script: jax.Array

    def start(self, key):
        del key
        return jnp.zeros((), jnp.int32)

    def act(self, memory, obs, key):
        del obs, key
        return self.script[memory], memory + 1

    def label(self, memory):
        del memory
        return Label.of(3)


class Echo(eqx.Module):
    """Plays what it sees: the number of the stage that its observation shows."""

    def start(self, key):
        del key
        return ()

    def act(self, memory, obs, key):
        del key
        return jnp.argmax(obs[:, :3], axis=1), memory

    def label(self, memory):
        del memory
        return Label.of(0)


def rollout(env, tasks, policy, number: int, seed: int = 0):
    episodes = jax.jit(lambda tasks, policy, key: play(env, tasks, policy, key, number))(
        tasks, policy, jax.random.key(seed)
    )
    return jax.tree.map(np.asarray, episodes)


def test_an_episode_holds_what_happened():
    script = jnp.array([[0, 1], [1, 1], [2, 2]])
    task = jax.tree.map(lambda leaf: leaf[:1], TASKS)
    episode = jax.tree.map(lambda leaf: leaf[0], rollout(GAME, task, Scripted(script), 2))
    np.testing.assert_array_equal(episode.action, script)
    np.testing.assert_array_equal(episode.reward, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(episode.terminated, [False, False, True])
    np.testing.assert_array_equal(episode.mask, [True, True, True])
    assert episode.label.actor == 3
    assert episode.obs.shape == (4, 2, 3 + 2 * 2 * 3)
    np.testing.assert_array_equal(episode.obs[:3, 0, :3], np.eye(3))
    np.testing.assert_array_equal(episode.obs[2, 1, 3:].reshape(2, 2, 3), np.eye(3)[np.asarray(script[:2])])


def test_a_policy_acts_on_the_observation_of_its_step():
    episodes = rollout(GAME, TASKS, Echo(), 3)
    np.testing.assert_array_equal(episodes.action, np.broadcast_to([[0, 0], [1, 1], [2, 2]], (3, 3, 2)))


def test_tasks_are_drawn_evenly():
    # Both agents play 0 throughout: the last stage pays 1 in the second task, the safe reward in the first.
    episodes = rollout(GAME, TASKS, Scripted(jnp.zeros((3, 2), jnp.int32)), 2_000)
    second = episodes.reward[:, 2] == 1.0
    np.testing.assert_array_equal(episodes.reward[second], np.tile([0.5, 0.5, 1.0], (second.sum(), 1)))
    np.testing.assert_array_equal(episodes.reward[~second], np.tile([0.0, 0.5, 0.5], ((~second).sum(), 1)))
    assert abs(second.mean() - 0.5) < 0.05


def test_an_early_end_is_masked():
    task = tree_stack([PROBES["early termination"].task])
    ends_at = [0, 1, None]
    for end in ends_at:
        script = np.ones((HORIZON, 2), np.int32)
        if end is not None:
            script[end, 0] = 0
        episode = jax.tree.map(lambda leaf: leaf[0], rollout(TabularGame(), task, Scripted(jnp.asarray(script)), 1))
        steps = HORIZON if end is None else end + 1
        np.testing.assert_array_equal(episode.mask, np.arange(HORIZON) < steps)
        np.testing.assert_array_equal(episode.reward, (np.arange(HORIZON) == end).astype(np.float32))
        np.testing.assert_array_equal(episode.terminated, np.arange(HORIZON) == end)
        assert (episode.obs[steps] == POISON).all() == (end is not None), "the last observation is the environment's"
        assert not episode.obs[steps + 1 :].any(), "and whatever it says beyond its end is not kept"


def test_episodes_differ_and_the_key_decides():
    policy = UniformPolicy(Discrete(3))
    first, again, other = (rollout(GAME, TASKS, policy, 64, seed) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert np.any(first.action != other.action)
    assert len({row.tobytes() for row in first.action}) > 50
    joint = np.bincount((first.action @ [3, 1]).ravel(), minlength=9)
    assert joint.min() > 0  # agents and steps draw independently


def test_mean_rewards():
    task = jax.tree.map(lambda leaf: leaf[:1], TASKS)
    policy = Scripted(jnp.array([[0, 1], [0, 0], [2, 2]]))
    rewards = jax.jit(lambda key: mean_rewards(GAME, task, policy, key, 4))(jax.random.key(0))
    np.testing.assert_array_equal(rewards, [1.0, 0.5, 0.0])


def test_evaluations_have_their_own_stream():
    key = jax.random.key(0)
    drawn = [evaluation_key(key, step) for step in (0, 1, 1_000)] + [jax.random.fold_in(key, r) for r in range(100)]
    assert len({jax.random.key_data(k).tobytes() for k in drawn}) == len(drawn)
