"""Learning on training tasks first: what is kept, what starts anew, how long it takes, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from execution.test_resume import determined, do
from mesax.algorithms.base import Learner
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.baselines.counts import ActionKeys, CountReward
from mesax.baselines.guided import Guided, guided
from mesax.baselines.pretrain import PRETRAINED, CBet, Pretrain, Pretraining, goal
from mesax.envs.climb import SpecialAction
from mesax.errors import UsageError
from mesax.experiments.catalogue import experiment as named
from mesax.experiments.rebuild import experiment_of
from mesax.experiments.request import Request, run_json
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner
from mesax.nets import Mlp, PerAction
from mesax.store.trees import copy_tree, load_tree, read_manifest
from mesax.suites.registry import OF_THE_PAPER, suite_of
from mesax.training.schedule import Budget
from methods.helpers import ONE_STEP, TINY, TINY_MADDPG, MemoryServices, announced_and_given, run

MAPPO = Mappo(Mlp((4,)), Mlp((4,)), epochs=2)
SMALL = Pretraining(collect_steps=100, explore_steps=40, num_evaluations=2)
PRETRAIN = Experiment(
    Pretrain(SMALL), ONE_STEP, MAPPO, Budget(80, num_envs=4, num_evaluations=2), 0, 2, 1, eval_episodes=2, lanes=1
)
CBET = replace(
    PRETRAIN,
    algorithm=guided(MAPPO),
    method=CBet(SMALL, CountReward(ActionKeys(seen=1), buckets=64)),
)
SEVEN = [env for suite in OF_THE_PAPER for env in suite.environments if env not in ("wide-2a3l",)]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    return run(PRETRAIN, tmp_path_factory.mktemp("pretrain"))


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    return run(CBET, tmp_path_factory.mktemp("cbet"))


def saved_in(host: MemoryServices, stage: str = "pretrain"):
    like = jax.eval_shape(lambda key: MAPPO.init(ONE_STEP.env.spec, key), jax.random.key(0))
    return load_tree(host.outputs(stage)[0] / PRETRAINED, like)


def as_run(host: MemoryServices, path: Path) -> Path:
    """What a finished run keeps."""
    copy_tree(host.outputs("pretrain")[0] / PRETRAINED, path / "policies" / PRETRAINED)
    return path


def test_the_budget_is_mesa_s(pretrained: MemoryServices):
    first, adapt = PRETRAIN.method.stages(PRETRAIN)
    assert (first.name, adapt.name) == ("pretrain", "adapt")
    assert first.job_steps == (240,) and first.products == (PRETRAINED,)
    rows = pretrained.phase("pretrain")
    assert [row["step"] for row in rows] == [0, 120, 240]
    assert all(0.0 <= row["return"] <= 1.0 for row in rows)
    twice = replace(PRETRAIN, num_train_tasks=1)
    assert twice.method.stages(twice)[0].job_steps == (140,) or twice.method.stages(twice)[0].job_steps == (144,)


def test_test_tasks_begin_with_the_learned_nets_and_fresh_optimizers(pretrained: MemoryServices, monkeypatch):
    """The first evaluation is that of the saved policy, and is said to be zero-shot; no other is."""
    assert [row.get("zero_shot") for row in pretrained.eval] == [True, None, None]
    saved = saved_in(pretrained)
    assert int(jax.tree.leaves(saved.actors.optimizer_state)[0]) > 0, "counted while it was learned"
    seen = {}

    def spy(loop, tasks, keys, *, start, **rest):
        seen["start"] = start
        raise KeyboardInterrupt

    monkeypatch.setattr("mesax.methods.adapt.learn", spy)
    with pytest.raises(KeyboardInterrupt):
        PRETRAIN.method.stages(PRETRAIN)[1].run(0, replace(pretrained, stage="again"))
    learner = seen["start"].learner
    for ours, theirs in zip(jax.tree.leaves(learner.actors.net), jax.tree.leaves(saved.actors.net), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(*(jax.tree.leaves(state.norm)[0] for state in (learner, saved)))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(learner.actors.optimizer_state))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(learner.values.optimizer_state))


@pytest.mark.parametrize("which", ["pretrain", "cbet"])
def test_what_test_tasks_begin_with_is_as_announced(which: str, pretrained, explored, monkeypatch):
    experiment, host = {"pretrain": (PRETRAIN, pretrained), "cbet": (CBET, explored)}[which]
    announced, given = announced_and_given(experiment, host, monkeypatch)
    assert announced == given


def test_exploration_is_kept_beneath_a_fresh_learner(explored: MemoryServices):
    rows = explored.phase("pretrain")
    assert 0.0 < rows[-1]["state_occupancy"] < 1.0 and 0.0 < rows[-1]["change_repeats"] <= 1.0
    assert 0.0 < rows[-1]["learnt_return"] < rows[1]["learnt_return"] <= 0.5, "what is known pays less"
    assert [row.get("zero_shot") for row in explored.eval] == [True, None, None]
    final = CBET.algorithm.greedy(CBET.env.spec, CBET.algorithm.init(CBET.env.spec, jax.random.key(0)))
    policy = load_tree(explored.outputs("adapt")[0] / "task-00-run-00", jax.eval_shape(lambda: final))
    guide, saved = policy.actors.team.guide, saved_in(explored).actors.net.team
    for ours, theirs in zip(jax.tree.leaves(guide), jax.tree.leaves(saved), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("which", [pytest.param("pretrain", marks=pytest.mark.slow), "cbet"])
def test_a_stopped_run_goes_on_to_the_same_bytes(which: str, tmp_path: Path, monkeypatch):
    experiment = {"pretrain": PRETRAIN, "cbet": CBET}[which]
    monkeypatch.setattr("mesax.training.schedule.SEGMENT_TRANSITIONS", 200)
    assert do(experiment, tmp_path / "whole", monkeypatch) == 0
    assert do(experiment, tmp_path / "stopped", monkeypatch, stop_at=2) > 3
    whole = determined(tmp_path / "whole")
    assert any("pretrain" in name for name in whole)
    assert determined(tmp_path / "stopped") == whole


def test_a_policy_can_be_borrowed(pretrained: MemoryServices, tmp_path: Path):
    other = as_run(pretrained, tmp_path / "other")
    borrowing = replace(PRETRAIN, method=replace(PRETRAIN.method, pretrained_from=str(other)))
    borrowing.method.check(borrowing)
    first, _ = borrowing.method.stages(borrowing)
    assert (first.name, first.job_steps, first.products) == ("borrow", (0,), (PRETRAINED,))
    again = run(borrowing, tmp_path / "run")
    assert again.eval == pretrained.eval, "as if it had been learned here"


def test_what_does_not_fit_is_refused_before_anything_runs(pretrained, explored, tmp_path: Path):
    other, counted = as_run(pretrained, tmp_path / "other"), as_run(explored, tmp_path / "counted")

    def check(experiment: Experiment, run: Path) -> None:
        experiment = replace(experiment, method=replace(experiment.method, pretrained_from=str(run)))
        experiment.method.check(experiment)

    with pytest.raises(UsageError, match="has no pre-trained policy: name a finished run of the same method"):
        check(PRETRAIN, tmp_path)
    with pytest.raises(UsageError, match=r"does not fit: .*; name a finished run of the same method"):
        check(replace(PRETRAIN, algorithm=replace(MAPPO, actor_net=Mlp((5,)))), other)
    with pytest.raises(UsageError, match="does not fit"):
        check(replace(PRETRAIN, method=replace(PRETRAIN.method, goal=SpecialAction())), other)
    with pytest.raises(UsageError, match=r"trained otherwise \(paid by CountReward, here TaskReward\)"):
        check(PRETRAIN, counted)
    with pytest.raises(UsageError, match="for a guided learner only"):
        replace(CBET, algorithm=MAPPO).method.check(replace(CBET, algorithm=MAPPO))


@pytest.mark.slow
def test_a_learner_with_replay_serves_too(tmp_path: Path):
    experiment = replace(PRETRAIN, algorithm=TINY_MADDPG, schedule=replace(TINY, total_steps=400))
    host = run(experiment, tmp_path)
    assert [row.get("zero_shot") for row in host.eval][:2] == [True, None]
    assert host.eval[0]["step"] == 200, "after its random warm-up, before its first update"


@pytest.mark.parametrize("preset", ["smoke", "quick", "paper"])
@pytest.mark.parametrize("environment", SEVEN)
def test_every_world_of_the_paper_has_all_three_with_mesa_s_steps(environment: str, preset: str):
    def steps_before(method: str) -> int:
        experiment = named(method, environment, preset)
        return sum(sum(stage.job_steps) for stage in experiment.method.stages(experiment)[:-1])

    mesa = steps_before("mesa")
    for method in ("pretrain", "goal", "cbet"):
        assert steps_before(method) == pytest.approx(mesa, rel=0.05), method


def test_the_goal_is_a_privilege_and_a_learner_can_be_chosen():
    told = named("goal", "wide-2a5l", "quick")
    assert told.is_privileged and told.env.spec.obs_size == told.family.env.spec.obs_size + 5
    assert told.training_env == told.env
    assert not named("pretrain", "wide-2a5l", "quick").is_privileged
    assert (
        run_json(Request("goal", "climb-one", "smoke"), named("goal", "climb-one", "smoke"), ())["privileged"] is True
    )
    with_maddpg = named("goal", "climb-multi-mixed", "quick", "maddpg")
    assert with_maddpg.algorithm.needs_replay
    with_maddpg.method.check(with_maddpg)
    assert isinstance(named("cbet", "climb-one", "quick").algorithm, Guided)
    for refused, why in (
        (named("cbet", "climb-one", "quick", "maddpg"), "its learner is mappo or mappo-rnd"),
        (named("goal", "key-doors", "quick"), "the suite of KeyDoors does not say what that is: use 'pretrain'"),
    ):
        with pytest.raises(UsageError, match=why):
            refused.method.check(refused)


@pytest.mark.parametrize(
    ("learner", "told"),
    [
        (Maddpg(), Maddpg(PerAction())),
        (Mappo(), Mappo(PerAction())),
        (Normalized(Mappo()), Normalized(Mappo(PerAction()))),
        (ValueDecomposition(), ValueDecomposition()),  # no actors
        (Normalized(ValueDecomposition()), Normalized(ValueDecomposition())),
    ],
)
def test_actors_that_are_told_the_goal_make_the_most_of_it(learner: Learner, told: Learner):
    preset = suite_of("climb-one").preset("climb-one", "quick").around(NamedLearner(learner))
    assert preset.goal_net == PerAction() and goal(preset).algorithm == told


@pytest.mark.parametrize("method", ["pretrain", "goal", "cbet"])
def test_an_experiment_is_rebuilt_from_its_run_json(method: str):
    request = Request(method, "climb-one", "smoke")
    described = json.loads(json.dumps(run_json(request, request.experiment(), ()), default=str))
    assert experiment_of(described) == request.experiment()


def test_facts_say_how_it_was_trained(explored: MemoryServices):
    facts = read_manifest(explored.outputs("pretrain")[0] / PRETRAINED)["facts"]
    assert facts == {"paid_by": "CountReward", "goal": None, "step": 240}
