"""What a learner takes from training tasks to a test task: nets, and nothing that it remembers of a task."""

import jax
import numpy as np
import pytest

from mesax.algorithms.coordinated import Elites
from mesax.baselines.emc import EMPTY, BestReturns, Emc, EpisodicMemory
from mesax.baselines.maesn.learner import LatentPolicyGradient
from mesax.baselines.maven import Choice, Recent
from mesax.errors import UsageError
from mesax.nets import Trainable, for_another_task
from mesax.types import Discrete, EnvSpec
from probes import put

USED = Trainable({"w": put([1.0, 2.0])}, {"moment": put([3.0, 4.0])})


def test_an_episodic_memory_is_emptied_and_projects_as_before():
    memory = EpisodicMemory(
        put([[1.0], [2.0]]), put([7, EMPTY], np.uint32), put([5.0, 0.0]), put(np.float32(0.5)), put(np.float32(0.5))
    )
    fresh = for_another_task({"memory": memory})["memory"]
    np.testing.assert_array_equal(fresh.projection, memory.projection)
    assert np.asarray(fresh.tag).tolist() == [EMPTY, EMPTY] and not np.asarray(fresh.value).any()
    assert fresh.tag.dtype == memory.tag.dtype and float(fresh.known) == float(fresh.occupancy) == 0.0


def test_elites_are_of_one_task():
    fresh = for_another_task((Elites(put(np.ones((3, 2, 4), np.float32)), put([1.0, 2.0, 3.0])),))[0]
    assert fresh.features.shape == (3, 2, 4) and not np.asarray(fresh.features).any()
    assert np.all(np.asarray(fresh.score) == -np.inf)


def test_the_policy_over_latents_stays_and_the_episodes_behind_it_do_not():
    ones = put(np.ones(5, np.float32))
    recent = Recent(put(np.ones((5, 3), np.float32)), put(np.ones((5, 2), np.float32)), ones, ones)
    fresh = for_another_task([Choice(USED, recent, put(9, np.int32), put(4, np.int32))])[0]
    np.testing.assert_array_equal(fresh.net.net["w"], USED.net["w"])
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves((fresh.net.optimizer_state, fresh.recent)))
    assert int(fresh.added) == int(fresh.updates) == 0, "a warm-up comes first again"


@pytest.mark.parametrize("learner", [Emc(memory=BestReturns(capacity=16)), LatentPolicyGradient()])
def test_learners_with_one_value_refuse_a_bonus_that_is_valued_apart(learner):
    with pytest.raises(UsageError, match="has one value for all that is paid"):
        learner.check(EnvSpec(2, 3, Discrete(2), 4, bonus_discount=0.9), 8)
