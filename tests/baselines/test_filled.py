"""The ablation: which episodes fill the replay, what they are labeled with, and that learning starts from them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.baselines.filled import Filled, in_turn
from mesax.envs.climb import ClimbGame, ClimbTask
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.errors import UsageError
from mesax.methods.base import Experiment
from mesax.types import Transition
from methods.helpers import ONE_STEP, TINY, TINY_MADDPG, MemoryServices, run

EXPERIMENT = Experiment(Filled(TINY), ONE_STEP, TINY_MADDPG, TINY, num_train_tasks=2, num_test_tasks=1, lanes=1)


def test_parts_are_taken_in_turn():
    np.testing.assert_array_equal(in_turn([2, 1, 3]), [1, 2, 5, 0, 4, 3])


def test_what_a_task_would_pay_for_steps_of_another():
    game = ClimbGame(2, 3, 2)
    task = ClimbTask(count=jnp.array([2, 1]), special=jnp.array([0, 2]))
    obs = [jnp.broadcast_to(jnp.eye(2)[stage], (2, 2)) for stage in (0, 1)]
    obs = [jnp.concatenate([one, jnp.zeros((2, game.spec.obs_size - 2))], axis=1) for one in obs]
    expected = {(0, 0, 0): 1.0, (0, 1, 1): 0.5, (0, 0, 1): 0.0, (1, 0, 0): 0.5, (1, 2, 0): 1.0, (1, 2, 2): 0.0}
    for (stage, *actions), paid in expected.items():
        assert game.would_pay(task, Transition(obs[stage], jnp.array(actions), obs[stage])) == paid


def test_particles_pay_by_the_number_of_the_target_in_any_layout():
    world = ParticleClimb(2, 3)
    family = ParticleClimbFamily(world)
    tasks = family.split(0, 0, 2).test
    here, other = (jax.tree.map(lambda leaf, i=i: leaf[i], tasks) for i in (0, 1))
    meeting = world.reset(here, jax.random.key(0))[0]
    meeting = type(meeting)(jnp.broadcast_to(here.landmarks[other.target], (2, 2)), meeting.velocity)
    obs = world.observe(here, meeting)
    step = Transition(obs, jnp.zeros(2, jnp.int32), obs)
    assert world.would_pay(other, step) == 1.0
    assert world.would_pay(here, step) == (1.0 if int(here.target) == int(other.target) else 0.5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    return run(EXPERIMENT, tmp_path_factory.mktemp("filled"))


def test_the_replay_starts_with_high_rewards_under_either_label(finished: MemoryServices):
    method = EXPERIMENT.method
    assert isinstance(method, Filled)
    directories = finished.outputs("collect")
    episodes = method._episodes(EXPERIMENT, directories)
    assert len(episodes.reward) <= 0.2 * TINY.replay_capacity
    assert np.all(episodes.reward.max(axis=1) == 1.0)
    test = ONE_STEP.split(EXPERIMENT.seed, 2, 1).test
    tasks = jax.tree.map(lambda leaf: leaf[:, None], test)
    own = method._labeled(EXPERIMENT, episodes, tasks)
    np.testing.assert_array_equal(own.reward[0], episodes.reward)
    relabeled = replace(method, labels="test")._labeled(EXPERIMENT, episodes, tasks)
    by_hand = [
        ONE_STEP.env.reward(test.count[0, 0], test.special[0, 0], jnp.asarray(action[0])) for action in episodes.action
    ]
    np.testing.assert_array_equal(relabeled.reward[0, :, 0], by_hand)
    assert relabeled.reward.max() < 1.0  # the optimum of an unseen task is in no training task


def test_all_stages_run(finished: MemoryServices):
    assert {row["task"] for row in finished.eval} == {0}
    assert {row["phase"] for row in finished.metrics} == {"collect", "adapt"}


def test_what_cannot_be_filled_is_refused():
    with pytest.raises(UsageError, match="share must be above 0"):
        Filled(share=0.0)
