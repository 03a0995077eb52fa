"""MESA on a game so small that M_*, the clusters and what explorers visit are known exactly.

The learner is not MADDPG but independent Q-learning from `helpers`: MESA must run unchanged around any algorithm.
"""

import ast
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.base import Learner
from mesax.baselines.controls import Plain, Uniform
from mesax.envs.climb import ClimbFamily, ClimbTask
from mesax.errors import StoreError, TrainingError, UsageError
from mesax.explorers.recipe import save_explorers, saved_explorers
from mesax.mesa import method as mesa_module
from mesax.mesa.collect import Threshold
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.mesa.mixing import Mixing
from mesax.methods import harvest
from mesax.methods.adapt import policy_name
from mesax.methods.base import Experiment
from mesax.methods.harvest import load_pairs, put_episodes
from mesax.methods.trained import Trained
from mesax.methods.visits import CoverageReport, Survey
from mesax.ours.records import RecordReward
from mesax.ours.steady import SteadyMesa
from mesax.policy import EpsilonRandom, ExplorationPolicySet, Policy
from mesax.store.trees import load_tree, open_tree, read_manifest
from mesax.training.driver import Chunk, play_episodes
from mesax.types import Elapsed, EnvSpec, Linear, blank_episode, tree_index
from methods.helpers import (
    ONE_STEP,
    TINY,
    TINY_MADDPG,
    TWO_STAGE,
    IndependentQ,
    LinearPolicy,
    MemoryServices,
    announced_and_given,
    run,
    same_bits,
)

LEARNER = IndependentQ()
NEVER = Mixing(Linear(0.0, 0.0, 0.6))
LONG = replace(TINY, total_steps=4_000, num_evaluations=2, updates_per_round=4)
METHOD = Mesa(
    LEARNER,
    collect=TINY,
    explore=LONG,
    relabel_discount=0.0,
    reward=CoverageReward(num_clusters=4, capacity=8),
    num_explorers=4,
    coverage_episodes=20,
)
# With this seed the targets of the two training tasks are 0, 1 and 1, 2: three joint actions in four configurations.
EXPERIMENT = Experiment(
    METHOD, TWO_STAGE, LEARNER, TINY, seed=2, num_train_tasks=2, num_test_tasks=2, eval_episodes=2, lanes=2
)
DIAGONAL = {(0, 0), (1, 1), (2, 2)}
OPTIMA = {(0, 0, 0), (0, 1, 1), (1, 1, 1), (1, 2, 2)}
"""(stage, action, action)."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> MemoryServices:
    """What all three stages left behind."""
    return run(EXPERIMENT, tmp_path_factory.mktemp("mesa"))


def train_tasks() -> ClimbTask:
    return EXPERIMENT.family.split(EXPERIMENT.seed, EXPERIMENT.num_train_tasks, 0).train


def code(stage: int, first: int, second: int) -> int:
    return stage * 9 + first * 3 + second


def test_the_game_is_as_described():
    """The oracle of this file against the environment's own reward, by enumeration."""
    env, tasks = TWO_STAGE.env, train_tasks()
    found = {
        (stage, *joint)
        for index, stage in itertools.product(range(2), range(2))
        for joint in itertools.product(range(3), repeat=2)
        if float(env.reward(tasks.count[index, stage], tasks.special[index, stage], jnp.array(joint))) == 1.0
    }
    assert found == OPTIMA
    assert TWO_STAGE.rewarding_configurations(tasks).tolist() == sorted(code(*optimum) for optimum in OPTIMA)


def test_stage_1_finds_exactly_the_optimal_joint_actions(host: MemoryServices):
    pairs = load_pairs(host.outputs("collect"))
    assert pairs.configurations.tolist() == sorted(code(*optimum) for optimum in OPTIMA)
    found = {tuple(row.reshape(2, 3).argmax(axis=1).tolist()) for row in pairs.features}
    assert found == DIAGONAL
    assert set(pairs.features.reshape(-1).tolist()) == {0.0, 1.0}
    assert set(pairs.values.tolist()) == {1.0}


def test_stage_1_logs_the_size_of_every_task(host: MemoryServices):
    rows = host.phase("collect")
    assert [row["task"] for row in rows] == [0, 1]
    for row in rows:
        assert row["step"] == TINY.steps(2) == 800
        assert row["high_reward_pairs"] > row["distinct_pairs"] == 2
        assert row["reward_threshold"] == 1.0


def explorers_of(host: MemoryServices) -> ExplorationPolicySet:
    return saved_explorers(METHOD.recipe(TWO_STAGE.env.spec), host.outputs("gather")[0] / "explorers")


def joints_of(host: MemoryServices, number: int, with_stage: bool = False) -> list[set[tuple[int, ...]]]:
    """Joint actions (behind their stage, if wanted) in each of some new episodes of one explorer."""
    policy = tree_index(explorers_of(host).policies, number)
    episodes = play_episodes(TWO_STAGE.env, train_tasks(), policy, jax.random.key(1), METHOD.coverage_episodes)
    return [
        {(stage, *action) if with_stage else tuple(action) for stage, action in enumerate(actions)}
        for actions in episodes.action.tolist()
    ]


def test_an_explorer_visits_different_clusters_in_an_episode(host: MemoryServices):
    """Action features ignore the stage: a second visit to a cluster would earn 1/32."""
    assert {len(joints & DIAGONAL) for joints in joints_of(host, 0)} == {2}


def test_the_next_explorer_goes_where_the_first_did_not(host: MemoryServices):
    (left,) = DIAGONAL - set.union(*joints_of(host, 0))
    assert all(left in joints for joints in joints_of(host, 1))


def test_the_union_is_logged_and_ends_the_search(host: MemoryServices):
    union = [row["union_coverage"] for row in host.phase("explore") if "union_coverage" in row]
    assert union == pytest.approx([2 / 3, 1.0])
    assert read_manifest(host.outputs("gather")[0] / "explorers")["facts"]["num_explorers"] == 2 < METHOD.num_explorers


def test_lucky_visits_are_no_coverage(host: MemoryServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Uniform play touches everything in many episodes; a search that it ends would end with any first policy."""
    aimless = IndependentQ(exploration=Linear(1.0, 1.0, 1.0))

    def learn_nothing(loop, tasks, keys, **_):
        learner = jax.tree.map(lambda leaf: leaf[None], aimless.init(loop.env.spec, keys[0]))
        yield Chunk(0, np.zeros((1, 2)), {"learnt_return": np.zeros(1)}, None, learner, (), 1.0)

    monkeypatch.setattr(mesa_module, "learn", learn_nothing)
    (tmp_path / "collect").symlink_to(host.root / "collect")
    method = replace(METHOD, explorer=aimless, num_explorers=2)
    found = run(replace(EXPERIMENT, method=method), tmp_path, "explore")
    union = [row["union_coverage"] for row in found.metrics if "union_coverage" in row]
    assert len(union) == 2
    assert union[0] < 0.6


@pytest.mark.parametrize("snapshot", ["last", "fairest"])
def test_which_explorer_of_a_training_is_kept(
    host: MemoryServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: str
):
    """Training that finds a good policy and loses it again: what is saved, and what is said of it."""
    good = tree_index(explorers_of(host).policies, 0).policy.weight
    learnt = [0.0 * good, good, 0.0 * good]

    def learn_and_forget(loop, tasks, keys, **_):
        state = LEARNER.init(loop.env.spec, keys[0])
        for step, weight in enumerate(learnt):
            learner = jax.tree.map(lambda leaf: leaf[None], state | {"weight": weight})
            yield Chunk(step, np.zeros((1, 2)), {"learnt_return": np.zeros(1)}, None, learner, (), 1.0)

    monkeypatch.setattr(mesa_module, "learn", learn_and_forget)
    worst = iter([0.1, 2.0, 1.7])
    counted = Survey.of
    monkeypatch.setattr(Survey, "of", lambda *told: replace(counted(*told), worst_steps=next(worst)))
    (tmp_path / "collect").symlink_to(host.root / "collect")
    method = SteadyMesa(**{**vars(METHOD), "num_explorers": 1}, snapshot=snapshot)
    found = run(replace(EXPERIMENT, method=method), tmp_path, "explore")
    *rows, summary = [row["coverage_return"] for row in found.phase("explore")]
    assert rows[0] == rows[2] < rows[1]
    assert summary == (rows[2] if snapshot == "last" else rows[1])
    saved = saved_explorers(METHOD.recipe(TWO_STAGE.env.spec), tmp_path / "explore" / "000" / "explorers")
    np.testing.assert_array_equal(saved.policies.policy.weight[0], learnt[2 if snapshot == "last" else 1])


def test_what_explorers_reach_is_told_while_they_are_trained():
    report = replace(CoverageReport.blank(2), distinct_visits=0.8, clusters_visited=1.5)
    assert report.note() == "0.80 distinct rewarding places per episode, 0.0 steps on the least visited"
    unknown = replace(report, distinct_visits=float("nan"))
    assert unknown.note().startswith("1.50 clusters per episode (distinct rewarding places not measured), ")


def test_the_fairest_explorer_is_the_last_that_leaves_hardly_more_out_than_any_before():
    """A slow decline is not followed: each is compared with the fairest of all, not with the one that is kept."""
    fairest = SteadyMesa(**vars(METHOD), snapshot="fairest")
    best = None
    for worst, kept in ((3.0, 3.0), (2.8, 2.8), (2.6, 2.8), (2.4, 2.8), (2.71, 2.71), (9.0, 9.0)):
        best = fairest.chosen(best, Trained((), replace(CoverageReport.blank(2), worst_steps=worst)))
        assert best.report.worst_steps == kept


def test_wishes_that_features_cannot_tell_are_refused():
    """Six features (two agents, three actions each) cannot tell orders of sixteen clusters apart."""
    method = replace(METHOD, reward=RecordReward(num_clusters=16, tell_demand=True, wish_decay=0.5))
    with pytest.raises(UsageError, match="wishes over 16 clusters cannot be told in"):
        method.check(replace(EXPERIMENT, method=method))


def test_wishes_need_something_to_choose_from():
    with pytest.raises(UsageError, match="at least 2 clusters"):
        RecordReward(num_clusters=1, tell_demand=True, wish_decay=0.5)


@pytest.mark.parametrize("name", ["capacity", "num_clusters"])
def test_sets_that_hold_nothing_are_refused(name: str):
    with pytest.raises(UsageError, match=f"{name.replace('_', '-')} .*0"):
        CoverageReward(**{name: 0})


def test_explorers_without_a_common_count_are_jobs_of_their_own(host: MemoryServices, tmp_path: Path):
    """Two jobs, each with an explorer of its own key; gathered in order, whoever was done first."""
    (tmp_path / "collect").symlink_to(host.root / "collect")
    method = replace(METHOD, num_explorers=2, global_count="none", explore=replace(TINY, total_steps=400))
    found = run(replace(EXPERIMENT, method=method), tmp_path, "explore", "gather")
    first, second = (path / "explorers" for path in found.outputs("explore"))
    gathered = saved_explorers(METHOD.recipe(TWO_STAGE.env.spec), found.outputs("gather")[0] / "explorers").policies
    for index, directory in enumerate((first, second)):
        alone = saved_explorers(METHOD.recipe(TWO_STAGE.env.spec), directory).policies
        np.testing.assert_array_equal(gathered.policy.weight[index], alone.policy.weight[0])
    assert np.any(gathered.policy.weight[0] != gathered.policy.weight[1])
    assert [row["policy"] for row in found.metrics if "union_coverage" in row] == [0, 1]
    assert sum(row["phase"] == "leaks" for row in found.metrics) == 1
    names = [visitor["name"] for visitor in found.documents["coverage"]["visitors"]]
    assert names == ["uniform", "explorer 1", "explorer 2", "all explorers"]


def test_true_distinct_visits_are_counted_by_hand(host: MemoryServices):
    """A survey against loops over the very episodes it played."""
    key, number = jax.random.key(3), METHOD.coverage_episodes
    policy = EpsilonRandom(LinearPolicy(jnp.zeros((2, 8, 3))), jnp.ones(()), TWO_STAGE.env.spec.action_space)
    pairs = load_pairs(host.outputs("collect"))
    reward = METHOD.reward
    state = reward.subspace(TWO_STAGE.env.spec, pairs.features, pairs.values, 0)
    report = Survey(EXPERIMENT, reward, number, state, 1.0).of(policy, train_tasks(), key)

    episodes = play_episodes(TWO_STAGE.env, train_tasks(), policy, key, number)
    centroids = np.asarray(state.subspace.centroids)[np.asarray(state.subspace.cluster_valid)]
    visits, distinct = np.zeros((number, 4)), []
    for index, actions in enumerate(episodes.action.tolist()):
        distinct.append({(stage, *action) for stage, action in enumerate(actions)} & OPTIMA)
        for action in actions:
            if tuple(action) in DIAGONAL:
                features = np.eye(3)[action].reshape(-1)
                visits[index, np.square(centroids - features).sum(axis=1).argmin()] += 1
    assert 0 < report.distinct_visits == pytest.approx(np.mean([len(found) for found in distinct]))
    assert report.distinct_union == len(set.union(*distinct))
    assert report.high_reward_steps == pytest.approx((episodes.reward == 1.0).sum(axis=1).mean())
    paid = reward.observe(TWO_STAGE.env.spec, state, jax.tree.map(jnp.asarray, episodes), key)[1].reward
    assert report.coverage_return == pytest.approx(float(paid.sum(axis=1).mean()), rel=1e-5)
    assert report.clusters_visited == pytest.approx((visits > 0).sum(axis=1).mean())
    np.testing.assert_allclose(report.mean_visits, visits.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(report.visit_chance, (visits > 0).mean(axis=0), rtol=1e-6)


def test_intrinsic_return_and_true_visits_are_logged_together(host: MemoryServices):
    rows = [row for row in host.phase("explore") if "intrinsic_return" in row]
    assert [(row["policy"], row["step"]) for row in rows] == [(p, s) for p in (0, 1) for s in (200, 2100, 4000)]
    first, second = rows[2], rows[5]
    assert first["clusters_visited"] == 2
    assert first["intrinsic_return"] == pytest.approx(2.0, abs=0.3), "two first visits"
    assert second["intrinsic_return"] == pytest.approx(1.0, abs=0.2), "one first visit is left"
    for number, row in enumerate((first, second)):
        truly = {frozenset(joints & OPTIMA) for joints in joints_of(host, number, with_stage=True)}
        assert truly == {frozenset().union(*truly)}, "this explorer does not vary"
        assert row["distinct_visits"] == row["distinct_union"] == len(truly.pop())


def test_the_coverage_document_shows_what_everybody_visits(host: MemoryServices):
    document = host.documents["coverage"]
    names = ["uniform", "explorer 1", "explorer 2", "all explorers"]
    assert [visitor["name"] for visitor in document["visitors"]] == names
    assert (document["num_stages"], document["shape"]) == (2, [3, 3])
    assert (document["dataset_size"], document["clusters"]) == (3, 3)
    dataset, uniform, first, second, union = map(
        np.array, [document["dataset"], *(visitor["frequency"] for visitor in document["visitors"])]
    )
    assert set(map(tuple, np.argwhere(dataset).tolist())) == OPTIMA
    np.testing.assert_allclose(uniform, 1 / 9, atol=0.08)
    np.testing.assert_allclose(first.sum(axis=(1, 2)), 1.0)
    np.testing.assert_allclose(union, (first + second) / 2, atol=0.15)


def test_progress_ends_at_the_budget_unless_the_search_ends_early(host: MemoryServices):
    steps = {stage.name: stage.job_steps for stage in METHOD.stages(EXPERIMENT)}
    assert {name: len(jobs) for name, jobs in steps.items()} == {"collect": 1, "explore": 1, "gather": 1, "adapt": 1}
    for name, share in (("collect", 1), ("adapt", 1), ("explore", 2 / METHOD.num_explorers)):
        done = [report[2] for report in host.reports if report[0] == name]
        assert done == sorted(done)
        assert done[-1] == share * steps[name][0]


def test_stage_3_mixes_explorers_in_and_lets_go_of_them(host: MemoryServices):
    rows = [row for row in host.phase("adapt") if row["task"] == 0]
    shares = [row["explorer_share"] for row in rows]
    assert shares[0] == 0.0, "the warm-up is uniformly random"
    assert shares[1] == pytest.approx(0.6, abs=0.15)
    assert shares[-1] == 0.0
    assert [(row["task"], row["step"]) for row in host.eval] == [(t, s) for s in (200, 400, 600, 800) for t in (0, 1)]


def policies_of(host: MemoryServices, algorithm: Learner, spec: EnvSpec) -> list[Policy]:
    """The final policies of the test tasks."""
    like = jax.eval_shape(lambda key: algorithm.greedy(spec, algorithm.init(spec, key)), jax.random.key(0))
    return [load_tree(host.outputs("adapt")[0] / policy_name(task, 0), like) for task in (0, 1)]


def without_explorers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not key.startswith("explorer_")} for row in rows]


def test_what_test_tasks_begin_with_is_as_announced(host: MemoryServices, monkeypatch: pytest.MonkeyPatch):
    """If no search ended early: then there are fewer explorers, and nothing is lost but a compilation."""
    found = read_manifest(host.outputs("gather")[0] / "explorers")["facts"]["num_explorers"]
    as_found = replace(EXPERIMENT, method=replace(METHOD, num_explorers=found))
    announced, given = announced_and_given(as_found, host, monkeypatch)
    assert announced == given


def test_never_exploring_equals_the_plain_learner_bit_for_bit(tmp_path: Path):
    algorithm, spec = TINY_MADDPG, ONE_STEP.env.spec
    plain = replace(EXPERIMENT, family=ONE_STEP, algorithm=algorithm, method=Plain(), num_train_tasks=1)
    never = replace(plain, method=replace(METHOD, mixing=NEVER))
    explorers = [LEARNER.behavior(spec, LEARNER.init(spec, jax.random.key(e)), Elapsed.end()) for e in range(2)]
    save_explorers(METHOD.recipe(TWO_STAGE.env.spec), explorers, tmp_path / "never" / "gather" / "000" / "explorers")
    alone, mixed = run(plain, tmp_path / "plain"), run(never, tmp_path / "never", "adapt")
    assert {(row["task"], row["repeat"]) for row in alone.eval} == {(0, 0), (1, 0)}
    assert mixed.eval == alone.eval
    assert without_explorers(mixed.metrics) == without_explorers(alone.metrics)
    assert same_bits(policies_of(mixed, algorithm, spec), policies_of(alone, algorithm, spec))


def test_uniform_exploration_is_neither_none_nor_learned(host: MemoryServices, tmp_path: Path):
    alone = run(replace(EXPERIMENT, method=Plain()), tmp_path / "plain").metrics
    uniform = run(replace(EXPERIMENT, method=Uniform(METHOD.mixing)), tmp_path / "uniform").metrics
    learned = host.phase("adapt")
    warmup, after = slice(2), slice(2, None)
    assert without_explorers(uniform[warmup]) == without_explorers(alone[warmup]) == without_explorers(learned[warmup])
    assert [row["explorer_share"] for row in uniform] == [row["explorer_share"] for row in learned]
    assert all(row["explorer_share"] == 0.0 for row in alone)
    assert without_explorers(uniform[after]) != without_explorers(alone[after])
    assert without_explorers(uniform[after]) != without_explorers(learned[after])


def test_the_same_seed_gives_the_same_meta_training(host: MemoryServices, tmp_path: Path):
    again = run(EXPERIMENT, tmp_path, "collect", "explore", "gather")
    assert again.metrics == [row for row in host.metrics if row["phase"] != "adapt"]
    assert again.documents == host.documents
    assert same_bits(explorers_of(again), explorers_of(host))


def test_saved_explorers_act_as_before(tmp_path: Path):
    """Noise, weights and all: the same key gives the same episodes."""
    noisy = IndependentQ(exploration=Linear(1.0, 0.3, 0.5))
    spec = TWO_STAGE.env.spec
    policies = [noisy.behavior(spec, noisy.init(spec, jax.random.key(seed)), Elapsed.end()) for seed in range(3)]
    save_explorers(METHOD.recipe(spec), policies, tmp_path / "explorers")
    loaded = saved_explorers(replace(METHOD, explorer=noisy).recipe(spec), tmp_path / "explorers")
    for number, policy in enumerate(policies):
        before, after = (
            play_episodes(TWO_STAGE.env, train_tasks(), one, jax.random.key(8), METHOD.coverage_episodes)
            for one in (policy, tree_index(loaded.policies, number))
        )
        assert same_bits(before, after)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ClimbFamily(2, 4, 2).env.spec, [2, 2, 10, 4]),
        (ClimbFamily(3, 3, 2).env.spec, [2, 3, 11, 3]),
        (ONE_STEP.env.spec, [2, 2, 1, 3]),
    ],
    ids=["more actions", "more agents", "fewer stages"],
)
def test_explorers_of_another_game_are_refused(host: MemoryServices, spec: EnvSpec, expected: list[int]):
    reason = f"with shape [2, 2, 8, 3], but {expected} is expected"
    with pytest.raises(StoreError, match=re.escape(reason)) as error:
        saved_explorers(METHOD.recipe(spec), host.outputs("gather")[0] / "explorers")
    assert "\n" not in str(error.value)


def test_explorers_of_another_algorithm_are_refused(host: MemoryServices):
    with pytest.raises(StoreError, match="leaf"):
        method = replace(METHOD, explorer=TINY_MADDPG)
        saved_explorers(method.recipe(TWO_STAGE.env.spec), host.outputs("gather")[0] / "explorers")


def test_a_threshold_that_nothing_reaches_is_a_clear_error(tmp_path: Path):
    """A task without a single pair is no failure; only an empty union is one."""
    hopeless = replace(EXPERIMENT, method=replace(METHOD, threshold=Threshold(2.0)))
    found = run(hopeless, tmp_path, "collect")
    assert [(row["high_reward_pairs"], row["distinct_pairs"]) for row in found.metrics] == [(0, 0), (0, 0)]
    with pytest.raises(
        TrainingError, match=r"method.threshold.reward is 2, and the best reward of .* steps on 2 training tasks was 1:"
    ):
        run(hopeless, tmp_path, "explore")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_explorers", 0),
        ("coverage_episodes", 0),
        ("relabel_discount", 1.5),
    ],
)
def test_impossible_settings_are_refused(name: str, value: float):
    with pytest.raises(UsageError, match=f"{name.replace('_', '-')} .*{value}"):
        replace(METHOD, **{name: value})


def test_mesa_names_no_concrete_algorithm():
    tree = ast.parse(Path(mesa_module.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in imported if "algorithms" in name} == {"mesax.algorithms.base"}


def test_what_lanes_have_played_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lanes share their files: two chunks of three lanes, of which the last only fills up."""
    host = MemoryServices(tmp_path, "collect")
    blank = jax.tree.map(np.asarray, blank_episode(TWO_STAGE.env.spec))
    chunks = [
        jax.tree.map(lambda leaf, rounds=rounds: np.zeros((3, rounds, 4, *leaf.shape), leaf.dtype), blank)
        for rounds in (1, 2)
    ]
    for number, episodes in enumerate(chunks):
        episodes.reward[...] = np.arange(episodes.reward.size).reshape(episodes.reward.shape)
        put_episodes(host, Chunk(number, np.zeros((3, 0)), {}, episodes, None, None, 0.0))
    read: list[Path] = []
    monkeypatch.setattr(harvest, "open_tree", lambda path: read.append(path) or open_tree(path))
    found = harvest.all_episodes(host, blank, 2)
    assert [path.name for path in read] == ["episodes-000000000000", "episodes-000000000001"]
    assert [[part.obs.shape[0] for part in lane] for lane in found] == [[4, 8], [4, 8]]
    for lane, parts in enumerate(found):
        for part, episodes in zip(parts, chunks, strict=True):
            np.testing.assert_array_equal(part.reward, np.concatenate(episodes.reward[lane]))
