"""MESA in a small particle world: records, an on-policy explorer that is told what is left, explorers that travel."""

import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.errors import UsageError
from mesax.explorers.recipe import saved_explorers
from mesax.methods.base import Experiment
from mesax.methods.visits import leaks, visit_order
from mesax.nets import Entities, Mlp
from mesax.ours.records import RecordReward
from mesax.ours.steady import SteadyMesa
from mesax.ours.transfer import Borrowed
from mesax.policy import Repeated
from mesax.rewards.features import SortedOccupancy
from mesax.training.driver import play_episodes
from mesax.training.schedule import Budget, Schedule
from mesax.types import tree_index
from methods.helpers import MemoryServices, run

WORLD = ParticleClimb(2, 2, horizon=8, radius=0.4)
FAMILY = ParticleClimbFamily(WORLD)
NET = Entities(2, 1, told=2, hidden=4)
TINY = Schedule(640, num_envs=20, num_evaluations=1, warmup_steps=320, updates_per_round=1, batch_size=4)
METHOD = SteadyMesa(
    Mappo(NET, NET, values_of="own", epochs=1, minibatches=2),
    collect=TINY,
    explore=Budget(160, 8, 2),
    action_repeat=2,
    reward=RecordReward(SortedOccupancy(2, radius=0.4), 0.1, num_clusters=2, capacity=16, tell_demand=True, width=0.5),
    num_explorers=2,
    coverage_episodes=10,
    enough_coverage=2.0,
)
LEARNER = Maddpg(Mlp((4,)), Mlp((4,)))
EXPERIMENT = Experiment(METHOD, FAMILY, LEARNER, TINY, seed=3, num_train_tasks=6, num_test_tasks=2, lanes=1)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    """What all three stages left behind."""
    return run(EXPERIMENT, tmp_path_factory.mktemp("particles"))


def test_all_stages_run_and_steps_count_every_repetition(host: MemoryServices):
    explore = host.phase("explore")
    spec = WORLD.spec
    assert METHOD.explore_steps(EXPERIMENT) % 2 == 0
    assert [row["step"] for row in explore if "union_coverage" in row] == [METHOD.explore_steps(EXPERIMENT)] * 2
    rounds = METHOD.explore.rounds(spec.horizon // 2)
    assert METHOD.explore_steps(EXPERIMENT) == rounds * 8 * spec.horizon
    assert {row["policy"] for row in explore} == {0, 1}
    assert all(0.0 <= row["distinct_visits"] <= 2.0 for row in explore)
    assert {row["task"] for row in host.eval} == {0, 1}


def test_the_leak_check_is_logged_before_any_explorer(host: MemoryServices):
    phases = [row["phase"] for row in host.metrics]
    assert phases.index("leaks") < phases.index("explore")
    found = host.documents["coverage"]["leaks"]
    assert found["rewarding_steps"] > 0 and 0.0 <= found["precision"] <= 1.0 and 0.0 <= found["recall"] <= 1.0
    assert found["steps"] == 20 * METHOD.coverage_episodes * WORLD.horizon


def test_leaks_by_hand():
    distance = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.4])
    true = np.array([True, True, False, True, False, False])
    found = leaks(distance, true, 0.1)
    assert found["precision"] == 1.0  # 0.1 itself is not near
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["distance_at_recall_90"] == pytest.approx(0.17)
    assert found["precision_at_recall_90"] == pytest.approx(2 / 3)
    nothing = leaks(distance, np.zeros(6, bool), 0.1)
    assert (nothing["recall"], nothing["precision"], nothing["precision_at_recall_90"]) == (None, 0.0, None)


def test_orders_are_first_visits_to_what_pays():
    assert visit_order(np.array([-1, 2, 2, 0, 2, 1, 0]), np.array([0, 2])) == [2, 0]


def test_every_visitor_says_where_it_goes_first(host: MemoryServices):
    visitors = host.documents["coverage"]["visitors"]
    assert [visitor["name"] for visitor in visitors] == ["uniform", "explorer 1", "explorer 2", "all explorers"]
    assert all(set(order) <= {0, 1} for visitor in visitors for order in visitor["orders"])
    assert all(len(visitor["orders"]) == 4 for visitor in visitors)


def test_explorers_carry_what_they_know_and_keep_their_pace(host: MemoryServices):
    spec = WORLD.spec
    explorers = saved_explorers(METHOD.recipe(spec), host.outputs("gather")[0] / "explorers")
    assert bool(explorers.policies.state.subspace.valid.any())
    np.testing.assert_array_equal(explorers.policies.state.visits[0], 0.0)
    deployed = METHOD.recipe(spec).deployed(tree_index(explorers.policies, 0))
    assert isinstance(deployed, Repeated)
    tasks = FAMILY.split(0, 0, 1).test
    actions = play_episodes(WORLD, tasks, deployed, jax.random.key(0), 4).action
    np.testing.assert_array_equal(actions[:, ::2], actions[:, 1::2])


def test_borrowed_explorers_are_used_as_they_are(host: MemoryServices, tmp_path: Path):
    finished = tmp_path / "run"
    shutil.copytree(host.outputs("gather")[0] / "explorers", finished / "policies" / "explorers")
    borrowing = replace(EXPERIMENT, method=Borrowed(str(finished), 2, mixing=METHOD.mixing))
    borrowing.method.check(borrowing)
    assert [stage.name for stage in borrowing.method.stages(borrowing)] == ["borrow", "adapt"]
    again = run(borrowing, tmp_path / "again")
    assert again.eval == host.eval
    assert "action_repeat" not in vars(borrowing.method), "they are used as they were trained, whatever is asked here"


def test_nets_that_do_not_fit_are_refused_before_anything_runs():
    wider = replace(EXPERIMENT, family=ParticleClimbFamily(replace(WORLD, num_landmarks=3)))
    with pytest.raises(UsageError, match="needs"):
        wider.method.check(wider)
