"""MESA with a learned reward: the fit as a stage, what it says, and explorers that are paid for what it found."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from execution.test_resume import determined, do
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.cli.env.verdict import fitted, probe
from mesax.envs.particle_climb import JammedFamily, ParticleClimb, ParticleClimbFamily
from mesax.envs.structure import layouts_of
from mesax.errors import TrainingError, UsageError
from mesax.experiments.catalogue import experiment
from mesax.experiments.rebuild import check_found_again
from mesax.explorers.foreign_loop import load_explorers
from mesax.methods.base import Experiment
from mesax.nets import Mlp
from mesax.ours.entities import Block, DeclaredEntities
from mesax.ours.learned import LearnedMesa, load_steps
from mesax.ours.learned_records import LearnedRecords, LearnedState
from mesax.ours.learned_reward import HIGH, UNPAID, PaidSteps, PayModel, RewardFit
from mesax.ours.reward_fit import Fitting
from mesax.ours.verdict import overall, verdict
from mesax.store.trees import load_tree
from mesax.training.schedule import Budget, Schedule
from mesax.types import Transition
from methods.helpers import MemoryServices, run

WORLD = ParticleClimb(2, 2, horizon=8, radius=0.4)
FAMILY = ParticleClimbFamily(WORLD, targets_each=2)
DECLARED = DeclaredEntities.of(WORLD, WORLD.spec)
NET = replace(DECLARED.net(WORLD.spec), hidden=4)
TINY = Schedule(640, num_envs=20, num_evaluations=1, warmup_steps=320, updates_per_round=1, batch_size=4)
METHOD = LearnedMesa(
    Mappo(NET, NET, values_of="own", epochs=1, minibatches=2),
    collect=TINY,
    explore=Budget(160, 8, 2),
    reward=replace(LearnedRecords(hidden=8), wish_decay=0.5).for_world(DECLARED),
    fit=RewardFit(500, 10, 5, 2, 12, hard_steps=16),
    num_explorers=1,
    coverage_episodes=10,
    enough_coverage=2.0,
)
LEARNER = Maddpg(Mlp((4,)), Mlp((4,)))
EXPERIMENT = Experiment(METHOD, FAMILY, LEARNER, TINY, seed=3, num_train_tasks=6, num_test_tasks=2, lanes=1)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    """What all stages left behind."""
    return run(EXPERIMENT, tmp_path_factory.mktemp("learned"))


def test_the_fit_says_what_it_believes_and_how_it_was_judged(host: MemoryServices):
    rows = host.phase("fit")
    assert [row["part"] for row in rows] == ["anchor", "anchor", "full", "without fold 0", "without fold 1"]
    assert all(np.isfinite(row["loss"]) for row in rows)
    beliefs, (verdict_row,) = host.phase("assignment"), host.phase("verdict")
    assert [row["layout"] for row in beliefs] == [0, 0, 1, 1, 2, 2] and {row["entity"] for row in beliefs} <= {0, 1}
    assert sum(row["high_steps"] for row in beliefs) == verdict_row["high_steps"] > 0
    assert host.phase("held-out") and 0.0 <= verdict_row["held_out_precision_at_recall_90"] <= 1.0
    said = [note for stage, _, _, note in host.reports if stage == "fit"]
    assert said[-1] == verdict_row["verdict"]


def test_a_probe_gives_the_verdict_of_a_run(host: MemoryServices):
    done = fitted(EXPERIMENT)
    assert done.verdict == host.phase("verdict")[0] and done.seconds > 0
    assert probe(EXPERIMENT, 640).method.collect.warmup_steps == 640


def test_stage_one_keeps_what_paid_and_how_much_else_stands_for(host: MemoryServices):
    steps = load_steps(host.outputs("collect"), 6)
    assert np.all(np.diff(steps.kind) >= 0)
    unpaid = steps.kind == UNPAID
    np.testing.assert_array_equal(steps.weight[~unpaid], 1.0)
    played = sum(row["step"] for row in host.phase("collect"))
    assert steps.weight.sum() == pytest.approx(played)
    assert steps.seen.shape[1:] == (2, 2, 2)


def test_explorers_are_paid_by_the_model_that_was_fitted(host: MemoryServices):
    recipe = METHOD.recipe(WORLD.spec)
    state = load_tree(host.outputs("fit")[0] / "model", jax.eval_shape(recipe.empty_coverage))
    assert isinstance(state, LearnedState)
    carried = load_explorers(host.outputs("gather")[0] / "explorers").policies.state
    assert jax.tree.all(jax.tree.map(lambda one, other: np.array_equal(one, other[0]), state, carried))
    assert host.phase("explore")[-1]["coverage_return"] >= 0.0


def test_nearness_is_the_models_own_value():
    reward = replace(METHOD.reward, distance_threshold=1.0, width=2.0)
    spec = WORLD.spec
    model = PayModel.create(2, 8, jax.random.key(0))
    state = reward.state_of(spec, model, 3.0, np.array([True, False]))
    obs = jax.random.normal(jax.random.key(1), (2, spec.obs_size))
    logits = model.logits(DECLARED.seen(obs))
    kappa = reward.sense(spec, state, Transition(obs, jnp.zeros(2, jnp.int32), obs))
    beyond = np.maximum(3.0 - logits - 1.0, 0.0)
    np.testing.assert_allclose(kappa, 1.0 / (1.0 + beyond / 2.0), rtol=1e-5)


def stopped_at(pause: int | None, path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    stages = EXPERIMENT.method.stages(EXPERIMENT)[:2]
    with monkeypatch.context() as patch:
        patch.setattr(LearnedMesa, "stages", lambda method, experiment: stages)
        stops = do(EXPERIMENT, path, monkeypatch, pause)
    assert (stops > 0) == (pause is not None)
    return determined(path)


def test_a_fit_that_is_stopped_anywhere_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = stopped_at(None, tmp_path / "whole", monkeypatch)
    again = stopped_at(2, tmp_path / "stopped", monkeypatch)
    assert whole == again


def synthetic(num_tasks: int, random: np.random.Generator, follows_a_rule: bool) -> PaidSteps:
    """Two agents among three entities; both at the entity of the task pay high, both at another one less."""
    parts = []
    for task in range(num_tasks):
        agents = random.uniform(-1, 1, (4_000, 2, 1, 2))
        layout = np.random.default_rng(task // 3).uniform(-0.8, 0.8, (1, 1, 3, 2))
        seen = layout - agents
        both = np.all(np.linalg.norm(seen, axis=-1) < 0.45, axis=1)
        target = task % 3
        high, less = both[:, target], np.delete(both, target, axis=1).any(axis=1)
        if not follows_a_rule:  # what pays has nothing to do with what is seen
            high, less = random.random(4_000) < 0.02, random.random(4_000) < 0.04
        parts.append((seen, np.where(high, HIGH, np.where(less, 1, UNPAID)), np.full(4_000, task)))
    seen, kind, task = (np.concatenate(column) for column in zip(*parts, strict=True))
    return PaidSteps.gathered(seen, kind, task, np.ones(len(task)), num_tasks)


@pytest.mark.parametrize("follows_a_rule", [True, False])
def test_the_fit_finds_the_entity_of_each_task_or_says_that_there_is_nothing(follows_a_rule: bool, tmp_path: Path):
    """MESA is told where it cannot help."""
    steps = synthetic(9, np.random.default_rng(5), follows_a_rule)
    fit = RewardFit(750, 500, 250, 3, 192, hard_steps=512)
    fitting = Fitting(fit, steps, np.arange(9) // 3, PayModel.create(2, 16, jax.random.key(0)))
    state = fitting.finished(MemoryServices(tmp_path, "fit"), jax.random.key(1))
    together = overall(state.held_out)
    assert together is not None
    if follows_a_rule:
        np.testing.assert_array_equal(np.argmax(state.weights, axis=1), np.arange(9) % 3)
        assert together.precision > 0.3 and together.log_likelihood > together.by_chance
        assert "explorers will work" in verdict(together, True, True)
    else:
        assert together.precision < 0.05
        assert "MESA will not help here" in verdict(together, True, True)


def test_layouts_that_tasks_share():
    np.testing.assert_array_equal(layouts_of(FAMILY, 5), [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(layouts_of(JammedFamily(), 7), [0, 0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(layouts_of(object(), 3), [0, 1, 2])
    train = FAMILY.split(1, 4, 2).train
    np.testing.assert_array_equal(train.landmarks[0], train.landmarks[1])
    assert not np.array_equal(train.landmarks[1], train.landmarks[2]) and train.target[0] != train.target[1]
    alone, shared = replace(FAMILY, targets_each=1).split(1, 4, 2), FAMILY.split(1, 4, 2)
    np.testing.assert_array_equal(alone.test.landmarks, shared.test.landmarks)


def test_bad_input_is_one_line(host: MemoryServices):
    with pytest.raises(UsageError, match=r"1 training task is on a single one: raise --num-train-tasks"):
        METHOD.check(replace(EXPERIMENT, num_train_tasks=1))
    with pytest.raises(UsageError, match="2 training tasks are on a single one"):
        METHOD.check(replace(EXPERIMENT, num_train_tasks=2))
    with pytest.raises(UsageError, match=r"--method.reward.capacity 2 --method.reward.num-clusters 2"):
        replace(METHOD, reward=replace(METHOD.reward, num_clusters=3)).check(EXPERIMENT)
    wrong = replace(METHOD.reward, entities=DeclaredEntities(Block(4, 4)))
    with pytest.raises(UsageError, match=r"which has 8 numbers: declare the blocks again"):
        replace(METHOD, reward=wrong).check(EXPERIMENT)
    unpaid = replace(METHOD, threshold=replace(METHOD.threshold, reward=2.0))
    services = replace(host, root=host.root / "unpaid")
    out_of_reach = replace(EXPERIMENT, method=unpaid)
    with pytest.raises(TrainingError, match=r"method.threshold.reward is 2, and the best reward"):
        run(out_of_reach, services.root, "collect", "fit")


def test_the_named_method_declares_what_the_world_says():
    named = experiment("learned", "mpe-3a6l", "quick")
    assert isinstance(named.method, LearnedMesa) and named.method.reward.entities == DeclaredEntities(
        Block(0, 6, 2), Block(12, 2, 2)
    )
    named.check()
    check_found_again(named)
