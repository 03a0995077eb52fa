"""What an explorer is told of the reward: a player is shown exactly what the learner later learns from."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.envs.base import ActionRepeat
from mesax.errors import UsageError
from mesax.nets import Mlp
from mesax.ours.records import RecordReward, Told, ToldCoverage
from mesax.policy import Repeated
from mesax.rewards.features import ObsActionFeatures, SortedOccupancy
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.training.loop import LearningLoop, Start
from mesax.training.rollout import play_side_by_side
from mesax.training.schedule import Budget, Schedule
from mesax.types import Discrete, EnvSpec, Label, tree_index
from probes import Walk, WalkTask

ENV = Walk()
TASKS = WalkTask(jax.device_put(np.array([0.6, 1.0, 99.0], np.float32)))
WHERE = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
REWARDS = {
    "Eq. (6)": ToldCoverage(WHERE, 0.2, tell_demand=True),
    "Eq. (6), of actions too": ToldCoverage(ObsActionFeatures(1.0, 0.5), 0.4, tell_demand=True),
    "records": RecordReward(WHERE, 0.1, tell_demand=True),
    "Eq. (6) with wishes": ToldCoverage(WHERE, 0.2, num_clusters=2, tell_demand=True, wish_decay=0.5),
    "records with wishes": RecordReward(WHERE, 0.1, num_clusters=2, tell_demand=True, wish_decay=0.5),
    "records with wishes, the most wanted told": RecordReward(
        WHERE, 0.1, num_clusters=2, tell_demand=True, wish_decay=0.5, told="most wanted"
    ),
    "records with wishes in turn": RecordReward(
        WHERE, 0.1, num_clusters=2, tell_demand=True, wish_decay=0.5, told="most wanted", fulfilled=0.4
    ),
}


def state_for(reward) -> CoverageState:
    """Places where walkers come by, in three clusters, and a place for a fourth that is not there."""
    size, random = reward.feature_size(ENV.spec), np.random.default_rng(0)
    members = np.zeros((8, size), np.float32)
    members[:, :2] = [[0.2, 0.4], [0.4, 0.6], [0.1, 0.3], [0.7, 0.9], [0.5, 0.2], [0.9, 0.5], [0.0, 0.0], [0.0, 0.0]]
    cluster = np.array([0, 0, 0, 1, 2, 2, 0, 3], np.int32)
    centroids = random.normal(size=(4, size)).astype(np.float32)
    rewards = np.linspace(0.2, 1.0, 8, dtype=np.float32)
    parts = (members, rewards, np.arange(8) < 6, cluster, centroids, np.arange(4) < 3)
    return CoverageState(HighRewardSet(*jax.device_put(parts)), jax.device_put(np.array([0.5, 0, 2, 0], np.float32)))


class Recorder(eqx.Module):
    """Moves by all that it is shown, and writes it down: the notes are the latent of its label."""

    notes: jax.Array

    def start(self, key):
        return jnp.zeros((), jnp.int32), jax.random.uniform(key, (2, 1)), self.notes

    def act(self, memory, obs, key):
        del key
        count, phase, notes = memory
        shown = jnp.sum(obs, axis=1, keepdims=True)
        action = 0.25 * jnp.sin(7.0 * shown + 6.0 * phase) + 0.15
        return action, (count + 1, phase, notes.at[count].set(obs))

    def label(self, memory):
        return Label(jnp.zeros((), jnp.int32), memory[2].reshape(-1))


def recorder(reward) -> Recorder:
    return Recorder(jnp.zeros((ENV.horizon, ENV.num_agents, reward.learner_spec(ENV.spec).obs_size)))


def notes_of(env, task, policy, keys):
    """What the recorder inside `policy` has noted by the end of the episode that `play_side_by_side` plays."""
    state, obs = env.reset(task, keys[0, 0])

    def step(carry, keys):
        state, memory, obs = carry
        action, memory = policy.act(memory, obs, keys[1])
        state, outcome = env.step(task, state, action, keys[0])
        return (state, memory, outcome.obs), None

    (_, memory, _), _ = jax.lax.scan(step, (state, policy.start(keys[0, 1]), obs), keys[1:])
    latent = policy.label(memory).latent  # wishes, if there are any, are behind the notes
    steps = ENV.horizon * ENV.num_agents
    return latent[: latent.size // steps * steps].reshape(ENV.horizon, ENV.num_agents, -1)


def shown_and_learnt(reward, times: int = 1):
    """What is shown during play, the episodes as learnt from, and which observations were reached.

    With `times` above 1 the learner plays where actions are repeated, and what is shown is what it sees when it repeats
    its actions itself.
    """
    world = ActionRepeat(ENV, times)

    @jax.jit
    def run(state, key):
        policy = reward.equip(ENV.spec, state, recorder(reward))
        # The same key starts an episode in both: it decides how the recorder moves.
        keys = jax.random.split(key, (24, ENV.horizon + 1, 2))
        which = jnp.arange(24) % 3
        repeated = Repeated(policy, ENV.spec, times) if times > 1 else policy
        shown = jax.vmap(lambda i, k: notes_of(ENV, tree_index(TASKS, i), repeated, k))(which, keys)
        few = keys[:, : world.spec.horizon + 1]
        episodes = play_side_by_side(world, tree_index(TASKS, which), policy, few)
        return shown[:, : world.spec.horizon], reward.observe(world.spec, state, episodes, key)[1]

    shown, learnt = jax.tree.map(np.asarray, run(state_for(reward), jax.random.key(1)))
    # The observation after an episode's last step was reached, and so was all before it.
    return shown, learnt, np.concatenate([np.ones((24, 1), bool), learnt.mask[:, :-1]], axis=1)


@pytest.mark.parametrize("name", REWARDS)
def test_a_player_is_shown_what_is_learnt_from(name: str):
    reward = REWARDS[name]
    shown, learnt, reached = shown_and_learnt(reward)
    assert 0.3 < learnt.mask.mean() < 1.0, "some episodes end early, some do not"
    assert np.count_nonzero(learnt.reward) > 24, "and records were made"
    np.testing.assert_allclose(shown[reached], learnt.obs[:, :-1][reached], rtol=1e-5, atol=1e-5)
    wanted = learnt.obs[:, :, 0, 1 : 1 + reward.feature_size(ENV.spec)]
    for row, length in zip(wanted, learnt.mask.sum(axis=1), strict=True):
        assert np.all(row[length:] == row[length]), "what never happened was counted"
    told = learnt.obs[:, :-1, :, 1:][reached]
    assert len(np.unique(told.round(3), axis=0)) > 24, "what is told changes"


@pytest.mark.parametrize("name", ["Eq. (6)", "records"])
def test_deployed_at_its_pace_an_explorer_is_shown_what_it_learnt_from(name: str):
    """Trained where actions are repeated, then repeating its actions itself."""
    shown, learnt, reached = shown_and_learnt(REWARDS[name], times=2)
    # An end in the midst of a decision is seen at once by the learner, and never by the player.
    before_the_end = reached & learnt.mask
    assert before_the_end.sum() > 40
    np.testing.assert_allclose(shown[before_the_end], learnt.obs[:, :-1][before_the_end], rtol=1e-5, atol=1e-5)


def test_what_is_told_by_hand():
    """Two clusters with centroids (1, 0) and (0, 10); agents at (0, .25) go to (1, 1), then to (2, 2)."""
    reward = RecordReward(WHERE, 0.5, tell_demand=True)
    members, centroids = np.array([[1, 1], [9, 9]], np.float32), np.array([[1, 0], [0, 10]], np.float32)
    parts = (
        members,
        np.ones(2, np.float32),
        np.ones(2, bool),
        np.arange(2, dtype=np.int32),
        centroids,
        np.ones(2, bool),
    )
    state = CoverageState(HighRewardSet(*jax.device_put(parts)), jax.device_put(np.array([1, 0], np.float32)))
    policy = reward.equip(ENV.spec, state, Recorder(jax.device_put(np.zeros((3, 2, 5), np.float32))))
    assert isinstance(policy, Told)

    @jax.jit
    def noted(seen: jax.Array) -> jax.Array:
        memory = policy.start(jax.random.key(0))
        for obs in seen:
            _, memory = policy.act(memory, obs, jax.random.key(0))
        return policy.label(memory).latent

    latent = noted(np.array([[[0.0], [0.25]], [[1.0], [1.0]], [[2.0], [2.0]]], np.float32))
    # Cluster 0 has had a visit: G = 1 / 32. A step at its member is half a record: half of that is left.
    expected = [
        [[0.0, 1 / 32, 10.0, 0.0, 0.0], [0.25, 1 / 32, 10.0, 0.0, 0.0]],
        [[1.0, 1 / 64, 10.0, 1.0, 1.0]] * 2,
        [[2.0, 1 / 64, 10.0, 2.0, 2.0]] * 2,
    ]
    np.testing.assert_allclose(np.asarray(latent).reshape(3, 2, 5), expected, rtol=1e-5)


def test_the_most_wanted_is_told_by_its_center():
    reward = RecordReward(WHERE, 0.5, num_clusters=2, tell_demand=True, wish_decay=0.5, told="most wanted")
    state = state_for(reward)
    demand = np.array([[0.5, 0.2, 0.4, 0.0], [0.1, 0.2, 0.3, 0.0]], np.float32)
    centroids = np.asarray(state.subspace.centroids)
    np.testing.assert_array_equal(jax.jit(reward.wanted)(state, demand), centroids[[0, 2]])
    summed = jax.jit(replace(reward, told="all").wanted)(state, demand)
    np.testing.assert_allclose(summed, demand @ centroids, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [name for name, reward in REWARDS.items() if not reward.has_wishes])
def test_nothing_is_told_unless_asked_for(name: str):
    silent = replace(REWARDS[name], tell_demand=False)
    policy, state = Recorder(np.zeros((6, 2, 1), np.float32)), state_for(silent)
    assert silent.equip(ENV.spec, state, policy) is policy
    assert silent.learner_spec(ENV.spec) == ENV.spec
    shown, learnt, reached = shown_and_learnt(silent)
    np.testing.assert_array_equal(shown[reached], learnt.obs[:, :-1][reached])
    assert learnt.obs.shape[-1] == 1


@pytest.mark.parametrize(
    ("features", "size"),
    [
        (ObsActionFeatures(), 3 * 5),
        (ObsActionFeatures(1.0, 1.0), 3 * 10 + 3 * 5),
        (ObsActionFeatures(1.0, 0.0, obs_from=2, obs_to=6), 3 * 4),
        (SortedOccupancy(4), 3 * 4),
    ],
)
@pytest.mark.parametrize("kind", [ToldCoverage, RecordReward])
def test_sizes(kind, features, size: int):
    spec = EnvSpec(3, 10, Discrete(5), 7)
    reward = kind(features)
    assert reward.feature_size(spec) == size
    assert reward.learner_spec(spec) == spec
    assert replace(reward, tell_demand=True).learner_spec(spec) == replace(spec, obs_size=10 + 2 * size)


def test_both_loops_learn_from_what_is_told():
    """Shapes only: learners are built for, play on and learn from the longer observations."""
    reward = REWARDS["records"]
    net = Mlp((4,))
    off_policy = LearningLoop(
        ENV, Maddpg(net, net), Schedule(60, 2, warmup_steps=10, replay_capacity=8), reward_model=reward
    )
    on_policy = LearningLoop(ENV, Mappo(net, net), Budget(60, 2), reward_model=reward)
    for loop in (off_policy, on_policy):

        def run(key, loop=loop):
            state = loop.init(Start(), state_for(reward), key)
            state, _ = loop.warm_up(TASKS, state, key)
            return loop.advance(TASKS, None, state, key, 1)

        state, log = jax.eval_shape(run, jax.random.key(0))
        actors = state.learner.actors.net
        team = actors.team if loop is on_policy else actors
        assert team.nets.layers[0].weight.shape[-2] == 1 + 2 * 2 + (2 if loop is on_policy else 0)
        assert log.metrics["learnt_return"].shape == (1,)
    assert jax.eval_shape(
        lambda key: off_policy.init(Start(), state_for(reward), key), jax.random.key(0)
    ).replay.episodes.obs.shape == (8, 7, 2, 5)


WISHFUL = {name: reward for name, reward in REWARDS.items() if reward.has_wishes}


@pytest.mark.parametrize("name", WISHFUL)
def test_wishes_are_an_order_of_the_clusters_that_there_are(name: str):
    """Every order of three clusters is drawn; the fourth, which is not there, comes last."""
    reward = WISHFUL[name]
    state = state_for(reward)
    draws = jax.jit(lambda key: jax.vmap(partial(reward.draw_wish, state))(jax.random.split(key, 200)))
    wishes = np.asarray(draws(jax.random.key(0)))
    np.testing.assert_array_equal(np.sort(wishes, axis=1), np.tile([0.125, 0.25, 0.5, 1.0], (200, 1)))
    np.testing.assert_array_equal(wishes[:, 3], 0.125)
    orders, counts = np.unique(wishes, axis=0, return_counts=True)
    assert len(orders) == 6
    assert counts.min() > 15


def test_a_wish_is_paid_and_told_alike():
    """By hand: clusters at 0, 1 and 5, wishes 1, 1/2 and 1/4; a touch of cluster 1, then of cluster 2."""
    members, there = np.array([[0.0], [1.0], [5.0]], np.float32), np.ones(3, bool)
    parts = (members, np.ones(3, np.float32), there, np.arange(3, dtype=np.int32), members, there)
    state = CoverageState(HighRewardSet(*jax.device_put(parts)), jax.device_put(np.zeros(3, np.float32)))
    wish = np.array([1.0, 0.5, 0.25], np.float32)
    where = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
    touch = RecordReward(where, 0.1, num_clusters=2, tell_demand=True, wish_decay=0.5, width=0.1, stay=0.0)
    visit = ToldCoverage(where, 0.1, num_clusters=2, tell_demand=True, wish_decay=0.5)
    for reward, left in ((touch, [1.0, 0.0, 0.25]), (visit, [1.0, 0.5 / 32, 0.25])):

        @jax.jit
        def walk(wish: jax.Array, places: jax.Array, reward=reward) -> tuple[list[jax.Array], list[jax.Array]]:
            memory = reward.start(state)
            demands, paid = [reward.demand(state, wish, memory)], []
            for place in places:
                memory, pay = reward.step(state, wish, memory, reward.perceive(state.subspace, place))
                demands.append(reward.demand(state, wish, memory))
                paid.append(pay)
            return demands, paid

        demands, paid = walk(wish, np.array([[1.0], [5.0]], np.float32))
        assert [float(pay) for pay in paid] == pytest.approx([0.5, 0.25])
        np.testing.assert_allclose(demands[:2], [wish, left], atol=1e-6)


def test_wishes_in_turn():
    """By hand: records grow by half of what is missing. Only the wish whose turn it is pays; others grow unpaid."""
    members = jnp.array([[0.0], [1.0], [5.0]])
    subspace = HighRewardSet(members, jnp.ones(3), jnp.ones(3, bool), jnp.arange(3), members, jnp.ones(3, bool))
    state, wish = CoverageState(subspace, jnp.zeros(3)), jnp.array([0.5, 1.0, 0.25])
    where = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
    reward = RecordReward(
        where,
        0.1,
        num_clusters=2,
        tell_demand=True,
        wish_decay=0.5,
        width=0.1,
        stay=0.5,
        told="most wanted",
        fulfilled=0.7,
    )
    memory, told, paid = reward.start(state), [], []
    for place in (0.0, 1.0, 1.0, 5.0, 0.0, 0.0, 5.0):
        told.append(float(reward.wanted(state, reward.demand(state, wish, memory))[0]))
        memory, pay = reward.step(state, wish, memory, reward.perceive(subspace, jnp.array([place])))
        paid.append(float(pay))
    # The first step is half a record at 0, where it is not wanted yet: of that wish, another quarter is left to pay.
    assert told == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 5.0]
    np.testing.assert_allclose(paid, [0.0, 0.5, 0.25, 0.0, 0.03125, 0.234375, 0.0625], atol=1e-6)
    np.testing.assert_allclose(memory.best, [0.765625, 0.75, 0.5625], atol=1e-6)
    memory, pay = reward.step(state, wish, memory, reward.perceive(subspace, jnp.array([5.0])))
    assert float(pay) == pytest.approx(0.21875)
    # All are fulfilled: nothing is wanted, and nothing pays, though records could still grow.
    np.testing.assert_array_equal(reward.demand(state, wish, memory), np.zeros(3))
    assert float(reward.step(state, wish, memory, reward.perceive(subspace, jnp.array([0.0])))[1]) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fulfilled": 1.0}, "fulfilled must lie between 0 and 1, not 1.0"),
        ({"fulfilled": 0.0}, "fulfilled must lie between 0 and 1, not 0.0"),
        ({"fulfilled": 0.5, "wish_decay": 1.0}, "need wishes"),
        ({"fulfilled": 0.5, "told": "all"}, "told most wanted"),
    ],
)
def test_turns_that_cannot_be(settings: dict[str, float | str], message: str):
    reward = RecordReward(WHERE, num_clusters=2, tell_demand=True, wish_decay=0.5, told="most wanted")
    with pytest.raises(UsageError, match=message) as refusal:
        replace(reward, **settings)
    assert "\n" not in str(refusal.value)


def test_learners_of_explorers_keep_their_own_latents():
    """What stands in front of the wishes is the learner's; without wishes all of it is."""
    told = RecordReward(WHERE, 0.1, tell_demand=True)
    wishful = replace(told, wish_decay=0.5)
    label = Label(*jax.device_put((np.zeros(2, np.int32), np.arange(12, dtype=np.float32).reshape(2, 6))))
    np.testing.assert_array_equal(wishful.wishes_of(state_for(told), label), [[2, 3, 4, 5], [8, 9, 10, 11]])
    np.testing.assert_array_equal(wishful.without_wishes(state_for(told), label).latent, [[0, 1], [6, 7]])
    np.testing.assert_array_equal(told.without_wishes(state_for(told), label).latent, label.latent)
    np.testing.assert_array_equal(told.wishes_of(state_for(told), label), np.ones((2, 4)))


@pytest.mark.parametrize(("decay", "told", "message"), [(0.0, True, "wish-decay"), (0.5, False, "tell-demand")])
def test_wishes_that_cannot_be(decay: float, told: bool, message: str):
    with pytest.raises(UsageError, match=message):
        RecordReward(WHERE, wish_decay=decay, tell_demand=told)
