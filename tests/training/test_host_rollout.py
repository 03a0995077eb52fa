"""The host path: the same episodes and the same learning as the JAX path, early ends, faults that lose nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hosted import Hosted
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.envs.base import HostEnvironment
from mesax.envs.host import EnvironmentFault, repeating
from mesax.nets import Mlp
from mesax.policy import EXPLORER, ExploreOrExploit, UniformPolicy
from mesax.training.behavior import Mixing
from mesax.training.driver import BrokenEnvironmentError, learn, play_episodes
from mesax.training.host_rollout import as_lane, play_on_host, running
from mesax.training.learning_loop import LearningLoop
from mesax.training.loop import Start
from mesax.training.rollout import play
from mesax.training.schedule import Budget, Schedule
from mesax.types import Discrete, Linear, tree_index, tree_stack
from probes import PROBES, ContinuousGame, ContinuousTask, TabularGame, Walk, WalkTask

TABULAR = tree_stack([PROBES[name].task for name in ("early termination", "delayed reward", "truncation only")])
WALKS = WalkTask(jnp.array([0.5, 1.5, 9.0]))
GAMES = {
    "tabular": (TabularGame(), TABULAR),
    "walk": (Walk(), WALKS),
    "continuous": (ContinuousGame(), ContinuousTask(jnp.linspace(-1.0, 1.0, 12).reshape(3, 2, 2, 1))),
}


@pytest.mark.parametrize("name", GAMES)
def test_the_host_path_plays_the_same_episodes(name: str):
    """Tasks drawn, actions, observations, rewards, masks: whatever happened is the same; padding is silent."""
    env, tasks = GAMES[name]
    policy = ExploreOrExploit(
        UniformPolicy(env.spec.action_space), UniformPolicy(env.spec.action_space, EXPLORER), jnp.asarray(0.5)
    )
    key = jax.random.key(3)
    expected = jax.tree.map(np.asarray, jax.jit(lambda: play(env, tasks, policy, key, 40))())
    found = play_episodes(Hosted(env), tasks, policy, key, 40)
    np.testing.assert_array_equal(found.mask, expected.mask)
    np.testing.assert_array_equal(found.label.actor, expected.label.actor)
    happened = expected.mask
    for part in ("action", "reward", "terminated"):
        np.testing.assert_allclose(getattr(found, part)[happened], getattr(expected, part)[happened], atol=1e-6)
        assert getattr(found, part).dtype == getattr(expected, part).dtype
    np.testing.assert_allclose(found.obs[:, 1:][happened], expected.obs[:, 1:][happened], atol=1e-6)
    np.testing.assert_array_equal(found.obs[:, 0], expected.obs[:, 0])
    assert not np.any(found.reward[~happened]) and not np.any(found.obs == 77.0)


def test_lanes_share_a_batch_and_do_not_mix():
    """Each lane equals itself alone: its own tasks, policy and key."""
    env = Hosted(Walk())
    tasks = WalkTask(jnp.array([[0.5, 9.0], [1.5, 1.5]]))
    keys = jax.random.split(jax.random.key(1), 2)
    policy = UniformPolicy(env.spec.action_space)
    both = play_on_host(env, tasks, policy, keys, 5)
    assert both.reward.shape == (2, 5, 6)
    for lane in (0, 1):
        alone = play_on_host(env, as_lane(tree_index(tasks, lane)), policy, keys[lane][None], 5)
        jax.tree.map(np.testing.assert_array_equal, tree_index(both, lane), tree_index(alone, 0))


def test_every_episode_has_a_seed_of_its_own_and_keys_decide_it():
    env = Hosted(Walk(), truncate_at=6)
    policy = UniformPolicy(env.spec.action_space)
    for seed in (0, 0, 1):
        play_episodes(env, WALKS, policy, jax.random.key(seed), 7)
    first, again, other = running(env, 7, 1).resets[-3:]
    assert len(set(first.tolist())) == 7
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


def test_an_episode_cut_short_is_masked_and_not_terminated():
    env, far = Hosted(Walk(), truncate_at=3), tree_index(WALKS, slice(2, 3))
    cut = play_episodes(env, far, UniformPolicy(env.spec.action_space), jax.random.key(0), 4)
    np.testing.assert_array_equal(cut.mask, [[True] * 3 + [False] * 3] * 4)
    assert not cut.terminated.any()
    assert np.all(np.abs(cut.obs[:, 3]).sum(axis=(1, 2)) > 0), "the observation to bootstrap from is there"
    assert not cut.obs[:, 4:].any() and not cut.reward[:, 3:].any()


SCHEDULE = Schedule(96, 4, 2, warmup_steps=24, updates_per_round=2, batch_size=4, replay_capacity=32)
MADDPG = Maddpg(Mlp((8,)), Mlp((8,)), num_critics=2, exploration=Linear(0.3, 0.1, 1.0))
LANES = WalkTask(jnp.array([[0.5, 9.0], [1.5, 9.0]]))
KEYS = jax.random.split(jax.random.key(5), 2)
ON_POLICY = LearningLoop(Walk(), Mappo(Mlp((8,)), Mlp((8,)), epochs=2, minibatches=2), Budget(96, 4, 2))
LOOPS = {
    "off-policy": (LearningLoop(Walk(), MADDPG, SCHEDULE, keep_episodes=True), None),
    "with an explorer": (
        LearningLoop(Walk(), MADDPG, SCHEDULE, Mixing(Linear(0.7, 0.3, 1.0)), keep_episodes=True),
        UniformPolicy(Walk().spec.action_space, EXPLORER),
    ),
    "on-policy": (ON_POLICY, None),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_host_path_learns_the_same(name: str):
    """Chunk by chunk: steps, metrics, evaluation, learner; on programs cut differently, so to rounding."""
    loop, explorer = LOOPS[name]
    ours = learn(replace(loop, env=Hosted(loop.env)), LANES, KEYS, start=Start(explorer=explorer), eval_episodes=3)
    theirs = learn(loop, LANES, KEYS, start=Start(explorer=explorer), eval_episodes=3)
    for found, expected in zip(ours, theirs, strict=True):
        assert found.step == expected.step
        assert found.metrics.keys() == expected.metrics.keys()
        for metric, values in expected.metrics.items():
            np.testing.assert_allclose(found.metrics[metric], values, rtol=1e-3, atol=1e-4, err_msg=metric)
        np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-3, atol=1e-4)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), found.learner, expected.learner
        )
        if found.episodes is not None:
            assert found.episodes.reward.shape == expected.episodes.reward.shape
            np.testing.assert_array_equal(found.episodes.label.actor, expected.episodes.label.actor)


def test_evaluation_may_have_longer_episodes():
    loop = LearningLoop(Hosted(Walk(horizon=3)), MADDPG, SCHEDULE)
    chunk = next(iter(learn(loop, LANES, KEYS, eval_episodes=2, eval_env=Hosted(Walk(horizon=6)))))
    assert chunk.rewards.shape == (2, 6)


def test_cut_episodes_are_counted():
    loop = LearningLoop(Hosted(Walk(), truncate_at=2), MADDPG, SCHEDULE)
    far = WalkTask(jnp.full((2, 1), 99.0))
    chunks = list(learn(loop, far, KEYS, eval_episodes=1))
    assert [chunk.metrics["cut_short"].tolist() for chunk in chunks] == [[1.0, 1.0]] * len(chunks)


def test_a_broken_environment_keeps_what_was_learnt():
    """The fault arrives in the second chunk; the first chunk's learner travels with the error."""
    loop = LearningLoop(Hosted(Walk(), break_at=30), MADDPG, SCHEDULE)
    chunks = learn(loop, LANES, KEYS, eval_episodes=1)
    good = [next(chunks), next(chunks)]
    with pytest.raises(BrokenEnvironmentError, match="broken on purpose at step 30") as caught:
        list(chunks)
    jax.tree.map(np.testing.assert_array_equal, caught.value.last_good, good[-1].learner)


def test_a_broken_warm_up_is_a_plain_fault():
    loop = LearningLoop(Hosted(Walk(), break_at=2), MADDPG, SCHEDULE)
    with pytest.raises(EnvironmentFault, match="step 2"):
        list(learn(loop, LANES, KEYS))


def test_actions_are_repeated_until_the_end():
    """Two steps a decision: rewards add up, and an episode that ends within a decision is not stepped on."""
    env = repeating(Hosted(Walk()), 2)
    assert isinstance(env, HostEnvironment) and env.spec.horizon == 3
    policy, key = UniformPolicy(env.spec.action_space), jax.random.key(2)
    expected = play_episodes(repeating(Walk(), 2), WALKS, policy, key, 30)
    found = play_episodes(env, WALKS, policy, key, 30)
    np.testing.assert_array_equal(found.mask, expected.mask)
    np.testing.assert_allclose(found.reward, expected.reward, atol=1e-5)
    happened = np.asarray(expected.mask)
    np.testing.assert_allclose(found.obs[:, 1:][happened], np.asarray(expected.obs)[:, 1:][happened], atol=1e-5)


def test_discrete_actions_are_integers():
    env, tasks = GAMES["tabular"]
    assert isinstance(env.spec.action_space, Discrete)
    assert play_episodes(
        Hosted(env), tasks, UniformPolicy(env.spec.action_space), jax.random.key(0), 2
    ).action.dtype == (np.int32)
