"""Explorers among more agents than they know, and turned: what each agent sees and does, by hand."""

from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.mappo import Mappo
from mesax.envs.climb import ClimbGame
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily, ParticleState
from mesax.envs.particles import DIRECTIONS, SQUARE_TURNS, turned_actions
from mesax.errors import UsageError
from mesax.experiments.catalogue import experiment
from mesax.explorers.recipe import ExplorerRecipe, save_explorers
from mesax.methods.base import Experiment
from mesax.nets import Entities
from mesax.ours.records import RecordReward
from mesax.ours.transfer import Borrowed, Holding, SubTeams, Transfer, Turned, for_team, whole_team
from mesax.policy import Policy, UniformPolicy
from mesax.rewards.features import SortedOccupancy
from mesax.training.schedule import Budget
from mesax.types import Discrete, Label, Transition

TWO, THREE = ParticleClimb(2, 3, horizon=8), ParticleClimb(3, 3, horizon=8)
TASK = jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[0], ParticleClimbFamily(THREE).split(0, 0, 1).test))
NET = Entities(3, 1, told=2, hidden=4)
REWARD = RecordReward(SortedOccupancy(3), num_clusters=3, capacity=4, tell_demand=True, wish_decay=0.5)
RECIPE = ExplorerRecipe(TWO.spec, Mappo(NET, NET, values_of="own"), REWARD, action_repeat=2)


class Recorder(eqx.Module):
    """Acts by a formula of what it sees, and says who it is."""

    def start(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, memory, obs, key):
        return jnp.argmax(obs[:, :5], axis=1).astype(jnp.int32), memory + 1

    def label(self, memory):
        return Label.of(1)


@jax.jit
def drawn(seed: jax.Array) -> ParticleState:
    position, velocity = jax.random.uniform(jax.random.key(seed), (2, 3, 2), minval=-1.0)
    return ParticleState(position, velocity)


def state(seed: int = 0) -> ParticleState:
    """Three agents anywhere, moving."""
    return jax.tree.map(np.asarray, drawn(seed))


@jax.jit
def seen_by_three(now: ParticleState) -> jax.Array:
    return THREE.observe(TASK, now)


@jax.jit
def seen_by_two(position: jax.Array, velocity: jax.Array) -> jax.Array:
    return TWO.observe(TASK, ParticleState(position, velocity))


def seen(seed: int = 0) -> np.ndarray:
    """What the three see in that state."""
    return np.asarray(seen_by_three(state(seed)))


@jax.jit
def played(policy: Policy, obs: jax.Array, seed: jax.Array) -> tuple:
    """(memory at the start, action, memory after it, label) of a first step."""
    memory = policy.start(jax.random.key(seed))
    action, after = policy.act(memory, obs, jax.random.key(1))
    return memory, action, after, policy.label(after)


@dataclass(frozen=True)
class OwnOccupancy(SortedOccupancy):
    """A feature map of a user's own."""


OWN = replace(RECIPE, reward=replace(REWARD, features=OwnOccupancy(3)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two untrained explorers of two agents; under `own` the same with features of a user's."""

    def policies(key: jax.Array) -> list[Policy]:
        cover = RECIPE.empty_coverage()
        centroids = jnp.eye(6).reshape(3, 2, 6).sum(axis=1)  # cluster c: both agents on landmark c
        cover = eqx.tree_at(lambda c: c.subspace.centroids, cover, centroids)
        cover = eqx.tree_at(lambda c: c.subspace.cluster_valid, cover, jnp.ones(3, bool))
        spec = REWARD.learner_spec(TWO.spec)
        return [RECIPE.policy(cover, RECIPE.algorithm.init(spec, key)) for key in jax.random.split(key, 2)]

    directory = tmp_path_factory.mktemp("explorers")
    untrained = jax.jit(policies)(jax.random.key(0))
    save_explorers(RECIPE, untrained, directory / "policies" / "explorers")
    save_explorers(OWN, untrained, directory / "own" / "policies" / "explorers")
    return directory


@pytest.mark.parametrize("members", [(0, 1), (2, 0), (1, 2)])
def test_a_team_sees_what_it_would_see_alone_in_the_world(members):
    now, team = state(), np.array(members)
    view = jax.jit(THREE.team_view.of_team)(seen(), team)
    np.testing.assert_allclose(view, seen_by_two(now.position[team], now.velocity[team]), atol=1e-6)


def test_partners_stand_where_they_are_put():
    now, obs = state(), seen()
    landmark = np.asarray(TASK.landmarks)[1]
    offset = landmark - now.position[0]
    with_partner = jax.jit(THREE.team_view.with_partners, static_argnums=1)(obs[0], 2, offset)
    expected = seen_by_two(np.stack([now.position[0], landmark]), np.stack([now.velocity[0], np.zeros(2, np.float32)]))
    np.testing.assert_allclose(with_partner, expected, atol=1e-6)
    np.testing.assert_allclose(jax.jit(THREE.team_view.places)(obs[0])[1], offset, atol=1e-6)


def test_square_turns_and_the_actions_they_mean():
    assert len({turn.tobytes() for turn in SQUARE_TURNS}) == 8
    meant = turned_actions()
    np.testing.assert_array_equal(meant[0], np.arange(5))
    np.testing.assert_array_equal(meant[1], [0, 4, 3, 1, 2])  # a quarter turn: what looks like left is up
    for turn, actions in zip(SQUARE_TURNS, meant, strict=True):
        np.testing.assert_allclose(DIRECTIONS[actions] @ turn.T, DIRECTIONS, atol=1e-6)


def test_playing_in_the_turned_world_is_playing_in_the_world():
    """A step in the world by the action that is meant, seen turned, is the step in the turned world itself."""

    @jax.jit
    def step(landmarks: jax.Array, position: jax.Array, velocity: jax.Array, action: jax.Array) -> jax.Array:
        task = eqx.tree_at(lambda task: task.landmarks, TASK, landmarks)
        return THREE.step(task, ParticleState(position, velocity), action, jax.random.key(0))[1].obs

    now, landmarks, symmetries, action = state(), np.asarray(TASK.landmarks), THREE.symmetries, np.array([1, 4, 2])
    for turn, obs_map, meant in zip(SQUARE_TURNS, symmetries.obs, symmetries.actions, strict=True):
        there = step(landmarks @ turn.T, now.position @ turn.T, now.velocity @ turn.T, action)
        here = step(landmarks, now.position, now.velocity, np.asarray(meant)[action])
        np.testing.assert_allclose(there, np.asarray(here) @ np.asarray(obs_map).T, atol=1e-5)


def test_turned_policies_act_on_what_they_see_and_keep_their_turn():
    policy, obs, turns = Turned.by(THREE.symmetries, Recorder()), seen(), set()
    for seed in range(60):
        (which, _), action, (still, after), _ = played(policy, obs, seed)
        turned = obs @ np.asarray(THREE.symmetries.obs[int(which)]).T
        np.testing.assert_array_equal(action, THREE.symmetries.actions[int(which)][np.argmax(turned[:, :5], axis=1)])
        assert (int(still), int(after)) == (int(which), 1)
        turns.add(int(which))
    assert len(turns) == 8


def test_sub_teams_are_drawn_anew_and_everyone_acts():
    policy = SubTeams(Recorder(), UniformPolicy(Discrete(5)), THREE.team_view, 3, 2)
    obs, of_team, teams = seen(), jax.jit(THREE.team_view.of_team), set()
    for seed in range(30):
        memory, action, after, _ = played(policy, obs, seed)
        order = np.asarray(memory[0])
        teams.add(frozenset(order[:2].tolist()))
        assert action.shape == (3,)
        np.testing.assert_array_equal(np.asarray(action)[order[:2]], np.argmax(of_team(obs, order[:2])[:, :5], axis=1))
        np.testing.assert_array_equal(after[0], order)
    assert teams == {frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})}


def test_who_holds_wants_the_nearest_place_and_keeps_to_it(saved: Path):
    policy = Transfer(THREE, THREE.spec, "subteams", "hold", at_most=1).deployed(saved)
    assert isinstance(policy, SubTeams)
    holding = jax.tree.map(lambda leaf: np.asarray(leaf)[0], policy.rest.policy.policies)
    assert isinstance(holding, Holding)
    here, elsewhere = seen()[:1], seen(5)[:1]
    nearest = int(np.argmin(np.linalg.norm(jax.jit(THREE.team_view.places)(here[0]), axis=1)))
    _, _, memory, _ = played(holding, here, 0)
    assert int(memory[1]) == nearest
    _, memory = jax.jit(lambda policy, *args: policy.act(*args, jax.random.key(1)))(holding, memory, elsewhere)
    assert int(memory[1]) == nearest


def test_a_whole_team_is_told_extremes_and_keeps_its_weights():
    whole = whole_team(RECIPE, THREE.spec)
    assert whole.reward.features == replace(REWARD.features, extremes=True)
    assert whole.algorithm.actor_net == replace(NET, num_others=2, ranks=2)
    shapes = [jax.tree.map(lambda leaf: leaf.shape, recipe.shape(2)) for recipe in (RECIPE, whole)]
    assert jax.tree.leaves(shapes[0]) == jax.tree.leaves(shapes[1])
    assert for_team(REWARD, 5).features.extremes

    @jax.jit
    def features(obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        transition = Transition(obs, jnp.zeros(3, jnp.int32), obs)
        return SortedOccupancy(3)(THREE.spec, transition), SortedOccupancy(3, extremes=True)(THREE.spec, transition)

    every, extremes = map(np.asarray, features(seen()))
    np.testing.assert_array_equal(extremes.reshape(3, 2), every.reshape(3, 3)[:, [0, 2]])


@pytest.mark.parametrize("how, rest", [("whole", "hold"), ("subteams", "tour"), ("subteams", "uniform")])
def test_transferred_explorers_play(saved: Path, how, rest):
    policy = Transfer(THREE, THREE.spec, how, rest, turn=True).deployed(saved)
    _, action, _, label = played(policy, seen(), 0)
    action = np.asarray(action)
    assert action.shape == (3,) and action.min() >= 0 and action.max() < 5
    assert int(label.actor) in (1, 2)


@pytest.mark.parametrize("how", ["whole", "subteams"])
def test_explorers_may_be_made_of_classes_that_the_experiment_uses(saved: Path, how):
    """Nothing is imported because a file names it; what the experiment itself is made of has been loaded."""
    source = saved / "own" / "policies" / "explorers"

    def of(reward: RecordReward) -> Experiment:
        method = Borrowed(str(source), transfer=how, rest="uniform")
        family = ParticleClimbFamily(THREE)
        made_of = {"reward_model": reward, "num_train_tasks": 1, "num_test_tasks": 1}
        return Experiment(method, family, RECIPE.algorithm, Budget(80), **made_of)

    own, ours = of(OWN.reward), of(REWARD)
    assert isinstance(own.method.borrowed(own, source), SubTeams if how == "subteams" else Policy)
    with pytest.raises(UsageError, match="OwnOccupancy', and this experiment uses nothing of that module"):
        ours.method.borrowed(ours, source)


@dataclass(frozen=True)
class Shapeless:
    """A world that says nothing of itself."""


@pytest.mark.parametrize(
    "transfer, message",
    [
        (Transfer(ParticleClimb(1, 3), ParticleClimb(1, 3).spec), "need 2 agents, and this world has 1"),
        (Transfer(THREE, replace(THREE.spec, action_space=Discrete(4))), "choose among Discrete"),
        (Transfer(ParticleClimb(3, 4), ParticleClimb(3, 4).spec), "another kind of world"),
        (
            Transfer(Shapeless(), replace(TWO.spec, obs_size=3)),
            "observe 3 numbers each in this world",
        ),
        (Transfer(Shapeless(), THREE.spec), "Shapeless does not say how its observations are made of agents"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(saved: Path, transfer: Transfer, message: str):
    with pytest.raises(UsageError, match=message) as refused:
        transfer.deployed(saved)
    assert "\n" not in str(refused.value)


def test_a_world_without_symmetries_cannot_be_turned():
    game = ClimbGame()
    with pytest.raises(UsageError, match="ClimbGame declares no symmetries"):
        Transfer(game, game.spec, turn=True).turned(UniformPolicy(game.spec.action_space))


def test_whose_explorers_must_be_said():
    with pytest.raises(UsageError, match=r"whose explorers\? say it with --method.explorers-from RUN_DIR"):
        experiment("transfer", "wide-3a5l", "smoke").check()


def test_as_many_agents_need_no_word_about_teams(saved: Path):
    """In a world of the same sizes they play as they were trained, whatever it says of itself."""
    policy = Transfer(Shapeless(), TWO.spec, at_most=1).deployed(saved)
    _, action, _, label = played(policy, seen_by_two(state().position[:2], state().velocity[:2]), 0)
    assert action.shape == (2,) and int(label.actor) == 1
