"""Explorers in a foreign loop: they load from a run, act on NumPy arrays as they did in training, and are mixed in."""

import json
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mesax
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.errors import StoreError, UsageError
from mesax.explorers.foreign_loop import KINDS, EpisodeMixer, Explorers, load_explorers
from mesax.explorers.recipe import ExplorerRecipe, save_explorers
from mesax.mesa.coverage import CoverageReward
from mesax.nets import Mlp
from mesax.ours.records import RecordReward
from mesax.policy import Bounded, Policy, Repeated
from mesax.rewards.features import ObsActionFeatures
from mesax.store.settings import from_plain, to_plain
from mesax.types import Box, Discrete, EnvSpec, Linear, tree_index

SPEC = EnvSpec(2, 3, Discrete(4), 10)
RECIPE = ExplorerRecipe(
    SPEC,
    Mappo(Mlp((8,)), Mlp((8,))),
    RecordReward(ObsActionFeatures(obs_weight=1.0), num_clusters=2, capacity=4, tell_demand=True),
    action_repeat=2,
)
BOX = ExplorerRecipe(
    replace(SPEC, action_space=Box(2)), Maddpg(Mlp((8,)), Mlp((8,))), CoverageReward(num_clusters=2, capacity=4)
)


@cache
def policies_of(recipe: ExplorerRecipe) -> list:
    """Three policies with weights of their own, and something in M_*."""

    def policy(seed: jax.Array) -> Policy:
        learner = recipe.algorithm.init(recipe.reward.learner_spec(recipe.spec), jax.random.key(seed))
        learner = jax.tree.map(lambda leaf: leaf * 30.0 if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, learner)
        return recipe.policy(recipe.empty_coverage(), learner)

    compiled = jax.jit(policy)
    return [jax.device_get(compiled(seed)) for seed in range(3)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_explorers(RECIPE, policies_of(RECIPE), tmp_path / "run" / "policies" / "explorers")
    return tmp_path / "run"


def test_a_run_and_its_directory_of_explorers_are_both_good(saved: Path):
    for path in (saved, str(saved), saved / "policies" / "explorers"):
        explorers = load_explorers(path)
        assert (len(explorers), explorers.spec) == (3, SPEC)
    assert mesax.load_explorers is load_explorers
    assert mesax.EpisodeMixer is EpisodeMixer


def test_explorers_act_as_the_policy_they_are(saved: Path):
    """Step by step against the policy itself, with the same keys; actions are held for two steps."""
    explorers = load_explorers(saved)
    policy = Repeated(policies_of(RECIPE)[1], SPEC, 2)
    start = jax.jit(lambda policy, key: policy.start(jax.random.fold_in(key, 0)))
    act = jax.jit(lambda policy, memory, obs, key, step: policy.act(memory, obs, jax.random.fold_in(key, step)))
    key = jax.random.key(9)
    memory = start(policy, key)
    player = explorers.start(9, which=2)
    assert player.number == 2
    played = []
    for step in range(1, 7):
        obs = np.random.default_rng(step).normal(size=(2, 3))
        expected, memory = act(policy, memory, obs.astype(np.float32), key, step)
        action = player.act(obs)
        assert action.dtype == np.int32
        np.testing.assert_array_equal(action, expected)
        played.append(tuple(action.tolist()))
    assert played[0::2] == played[1::2]
    assert len(set(played)) > 1


def test_the_same_seed_plays_the_same(saved: Path):
    explorers = load_explorers(saved)
    obs = np.random.default_rng(0).normal(size=(30, 2, 3))

    def play(seed: int) -> tuple[int, list]:
        player = explorers.start(seed)
        return player.number, [player.act(row).tolist() for row in obs]

    assert play(4) == play(4)
    drawn = [explorers.start(seed).number for seed in range(60)]
    assert set(drawn) == {1, 2, 3}
    assert any(play(seed)[1] != play(4)[1] for seed in range(5, 9))


def test_copies_play_side_by_side_with_randomness_of_their_own(saved: Path):
    player = load_explorers(saved).start(0, which=1, copies=40)
    actions = player.act(np.zeros((40, 2, 3)))
    assert actions.shape == (40, 2)
    assert len({tuple(row) for row in actions.tolist()}) > 1
    with pytest.raises(UsageError, match=r"have shape \(2, 3\), and this policy expects \(40, 2, 3\)"):
        player.act(np.zeros((2, 3)))


def test_continuous_actions_stay_in_their_box(tmp_path: Path):
    save_explorers(BOX, policies_of(BOX), tmp_path / "explorers")
    action = load_explorers(tmp_path / "explorers").start(1).act(np.full((2, 3), 50.0))
    assert action.shape == (2, 2)
    assert np.all(np.abs(action) <= 1.0)
    assert isinstance(BOX.deployed(policies_of(BOX)[0]), Bounded)  # for mesax's own learners too


def test_wrong_observations_and_numbers_are_refused(saved: Path):
    explorers = load_explorers(saved)
    with pytest.raises(UsageError, match=r"have shape \(2, 5\), and this policy expects \(2, 3\)"):
        explorers.start(0).act(np.zeros((2, 5)))
    for unlike in ([np.zeros(3), np.zeros(2)], [np.zeros(3), {"own": np.zeros(3)}]):
        with pytest.raises(UsageError, match=r"no array of numbers .*fill it up with zeros to 3 numbers"):
            explorers.start(0).act(unlike)
    with pytest.raises(UsageError, match="no explorer 4; there are 1 to 3"):
        explorers.start(0, which=4)


def test_directories_without_explorers_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no directory with explorers"):
        load_explorers(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no finished run of mesa"):
        load_explorers(tmp_path)


def rewrite(directory: Path, change) -> Path:
    """The saved explorers with another recipe, and checksums that fit: a forgery."""
    from mesax.store.trees import load_tree, read_manifest, save_tree

    facts = read_manifest(directory)["facts"]
    tree = load_tree(directory, RECIPE.shape(3))
    change(facts)
    shutil.rmtree(directory)
    save_tree(directory, tree, facts)
    return directory


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda facts: facts.pop("recipe"), "older version"),
        (lambda facts: facts["recipe"].update(type="subprocess.Popen"), "unknown type 'subprocess.Popen'"),
        (lambda facts: facts["recipe"]["algorithm"].update(type="Thief"), "unknown type 'Thief'"),
        (lambda facts: facts["recipe"]["algorithm"].update(colour=1), "Mappo has no setting 'colour'"),
        (lambda facts: facts["recipe"]["algorithm"].update(epochs=-1), "Mappo cannot be built: epochs must be"),
        (lambda facts: facts.update(recipe=to_plain(SPEC)), "describes no explorers"),
        (lambda facts: facts["recipe"]["reward"].update(capacity=5), "shape"),
        (lambda facts: facts.update(num_explorers=0), "holds no explorers"),
    ],
)
def test_forged_recipes_are_refused(saved: Path, change, message: str):
    directory = rewrite(saved / "policies" / "explorers", change)
    with pytest.raises(StoreError, match=message):
        load_explorers(directory)


@dataclass(frozen=True)
class Own:
    """A feature map of a user's own."""

    weight: float = 2.0

    def __call__(self, spec, transition):
        return self.weight * transition.next_obs.reshape(-1)


def test_a_users_own_classes_are_named_by_the_user(tmp_path: Path):
    recipe = replace(RECIPE, reward=CoverageReward(Own(3.0), num_clusters=2, capacity=4))
    save_explorers(recipe, policies_of(recipe), tmp_path / "explorers")
    with pytest.raises(UsageError, match=r"use '[\w.]+:Own', .*: import Own from [\w.]+ and .*, kinds=\[Own\]\)$"):
        load_explorers(tmp_path / "explorers")
    loaded = load_explorers(tmp_path / "explorers", kinds=[Own])
    assert loaded.recipe == recipe


@pytest.mark.parametrize("recipe", [RECIPE, BOX])
def test_a_recipe_survives_json(recipe: ExplorerRecipe):
    assert from_plain(json.loads(json.dumps(to_plain(recipe))), KINDS) == recipe


def test_the_mixer_anneals_and_counts(saved: Path):
    mixer = EpisodeMixer(load_explorers(saved), total_steps=1_000, probability=Linear(1.0, 0.0, 0.5), seed=3)
    early = [mixer.choose(0) for _ in range(20)]
    assert all(player is not None for player in early)
    middle = [mixer.choose(250) is not None for _ in range(200)]
    assert 0.35 < np.mean(middle) < 0.65
    assert [mixer.choose(step) for step in (500, 700, 1_000, 5_000)] == [None] * 4
    assert mixer.episodes == 224
    assert mixer.explored == 20 + sum(middle)


def test_the_mixer_is_determined_by_its_seed(saved: Path):
    def choices(seed: int) -> list:
        mixer = EpisodeMixer(load_explorers(saved), total_steps=100, probability=Linear(0.5, 0.5, 1.0), seed=seed)
        return [None if player is None else player.number for player in (mixer.choose(0) for _ in range(40))]

    assert choices(1) == choices(1) != choices(2)


def test_a_mixer_without_sense_is_refused(saved: Path):
    explorers = load_explorers(saved)
    with pytest.raises(UsageError, match="total-steps"):
        EpisodeMixer(explorers, total_steps=0)
    with pytest.raises(UsageError, match="between 0 and 1"):
        EpisodeMixer(explorers, total_steps=10, probability=Linear(1.5, 0.0, 0.5))


def test_stacked_explorers_are_not_mixed_up(saved: Path):
    explorers = load_explorers(saved)
    assert isinstance(explorers, Explorers)
    stacked = jax.device_get(explorers.policies)
    for number, policy in enumerate(policies_of(RECIPE)):
        jax.tree.map(np.testing.assert_array_equal, tree_index(stacked, number), policy)
