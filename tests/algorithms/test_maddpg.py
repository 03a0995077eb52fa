"""MADDPG by hand: targets and losses of a two-step episode with linear nets, padding, elites, a larger game."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient, Replayed
from mesax.algorithms.coordinated import Elites, ImmediateElites, JointImprovement
from mesax.algorithms.maddpg import Maddpg, MaddpgState, unlikeness
from mesax.errors import UsageError
from mesax.nets import Adam, Additive, Dense, Ensemble, FeedForward, Gru, Mlp, StepByStep, Team, unroll
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Episode, Label, Linear, random_index, tree_index, tree_stack
from probes import Summing, put, stacked, untrained

SPEC = EnvSpec(num_agents=2, obs_size=1, action_space=Discrete(2), horizon=2)
SAMPLED = JointImprovement(enumerate_up_to=0, num_replay=4, num_explorer=2, num_elite=2, num_policy=1, num_uniform=1)
UPDATES = {
    "Gumbel": GumbelGradient("policy"),
    "expected": ExpectedGradient("buffer"),
    "joint": JointImprovement(),
    "joint, sampled": SAMPLED,
}


class LeakyCritic(StepByStep):
    """Linear and recurrent: its value is its memory, h = h / 2 + weight . (obs, action)."""

    weight: jax.Array

    def start(self):
        return jnp.zeros(())

    def step(self, memory, x):
        memory = 0.5 * memory + self.weight @ (jnp.concatenate(x) if isinstance(x, tuple) else x)
        return memory, memory[None]


# Joint input: both observations, then each agent's one-hot action.
CRITIC = np.array([1.0, 10.0, 0.1, 0.2, 0.3, 0.4], np.float32)


def linear_state(algorithm: Maddpg, critics: list[np.ndarray] | None = None) -> MaddpgState:
    """Agents play action 1 while the sum of their observations is positive; online and target nets are equal."""
    actors = Team(Summing(put([[[0.0, 1.0]], [[0.0, 1.0]]])), 2, shared=False)
    ensemble = Ensemble(LeakyCritic(put(np.stack(critics or [CRITIC]))))
    own = algorithm.actor_update
    return MaddpgState(
        untrained(actors, algorithm.actor_optimizer),
        untrained(ensemble, algorithm.critic_optimizer),
        actors,
        ensemble,
        no_elites(own.num_elite, 2) if isinstance(own, JointImprovement) else (),
    )


def no_elites(number: int, actions: int) -> Elites:
    return Elites(put(np.zeros((number, 2, actions)), np.float32), put(np.full(number, -np.inf), np.float32))


def label(*actors: int) -> Label:
    """Who played which episode."""
    return Label(put(actors, np.int32), put(np.zeros((len(actors), 0)), np.float32))


update = jax.jit(
    lambda algorithm, spec, state, batch, elapsed: algorithm.update(spec, state, batch, elapsed, jax.random.key(0)),
    static_argnums=(0, 1),
)


def of_one(algorithm: Maddpg, state: MaddpgState, given: Episode) -> jax.Array:
    """Targets of an episode among others, which must not matter to it."""
    other = replace(given, obs=-2.0 * given.obs, action=1 - given.action, reward=given.reward + 5.0)
    batch = tree_stack([other, given, other])
    return algorithm.targets(SPEC, state, batch, SPEC.action_space.encode(batch.action))[1]


targets = jax.jit(of_one, static_argnums=0)


def episode(terminated: tuple[bool, bool] = (False, False)) -> Episode:
    """The target actors' actions are (1, 1) at time 1 and (1, 0) at time 2; other ones were played."""
    return Episode(
        obs=put([[[1.0], [2.0]], [[-0.5], [0.5]], [[3.0], [-4.0]]]),
        action=put([[0, 1], [1, 0]]),
        reward=put([1.0, 2.0]),
        terminated=put(terminated),
        mask=put([True, not terminated[0]]),
        label=tree_index(jax.device_get(label(0)), 0),
    )


def targets_of(given: Episode, critics: list[np.ndarray] | None = None) -> np.ndarray:
    algorithm = Maddpg(discount=0.9)
    return np.asarray(targets(algorithm, linear_state(algorithm, critics), given))


# The critic's memory after each played pair: 1 + 20 + .1 + .4, then half of it + (-.5 + 5) + .2 + .3.
PLAYED = [21.5, 15.75]
# Its values at the next observation with the target actors' actions: half the memory + observations + actions.
NEXT = [0.5 * 21.5 + 4.5 + 0.2 + 0.4, 0.5 * 15.75 - 37.0 + 0.2 + 0.3]


def test_memory_advances_with_the_actions_played():
    """With the target actors' own (1, 1) at time 0, the first memory would be 21.6 and the target .045 more."""
    np.testing.assert_allclose(targets_of(episode()), [1 + 0.9 * NEXT[0], 2 + 0.9 * NEXT[1]], rtol=1e-5)


def test_termination_kills_the_bootstrap_and_truncation_does_not():
    ended = targets_of(episode(terminated=(False, True)))
    np.testing.assert_allclose(ended, [1 + 0.9 * NEXT[0], 2.0], rtol=1e-5)
    np.testing.assert_allclose(targets_of(episode(terminated=(True, False)))[0], 1.0, rtol=1e-6)


def test_twin_critics_bootstrap_from_the_smaller_value():
    twins = targets_of(episode(), [CRITIC, 2 * CRITIC])
    np.testing.assert_allclose(twins, [1 + 0.9 * NEXT[0], 2 + 0.9 * 2 * NEXT[1]], rtol=1e-5)


def test_losses_and_targets_of_an_update_by_hand():
    algorithm = Maddpg(discount=0.9, target_rate=0.25, logit_penalty=0.1, entropy_bonus=0.5)
    state = linear_state(algorithm, [CRITIC, 2 * CRITIC])
    batch = stacked([episode(), episode(terminated=(True, False))])
    new, metrics = jax.device_get(update(algorithm, SPEC, state, batch, Elapsed.end()))
    targets = np.array([1 + 0.9 * NEXT[0], 2 + 0.9 * 2 * NEXT[1], 1.0])
    values = np.array([[21.5, 43.0], [15.75, 31.5], [21.5, 43.0]])
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-5)
    np.testing.assert_allclose(
        metrics["critic_loss"], np.square(values - targets[:, None]).sum(axis=1).mean(), rtol=1e-5
    )
    sums = np.array([[1.0, 2.0], [0.5, 2.5], [1.0, 2.0]])  # logits are (0, sum)
    chance = 1 / (1 + np.exp(-sums))
    entropies = -(chance * np.log(chance) + (1 - chance) * np.log(1 - chance))
    np.testing.assert_allclose(metrics["entropy"], entropies.mean(), rtol=1e-5)
    for online, target, old in [
        (new.actors.net, new.target_actors, jax.device_get(state.target_actors)),
        (new.critics.net, new.target_critics, jax.device_get(state.target_critics)),
    ]:
        jax.tree.map(
            lambda o, t, before: np.testing.assert_allclose(t, 0.75 * before + 0.25 * o, rtol=1e-5),
            online,
            target,
            old,
        )
        assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(online), jax.tree.leaves(old), strict=True))


# V and the two agents' advantages of their two actions, linear in the two observations.
ADDITIVE = np.array([[1.0, 0.5, 2.0, -1.0, 0.3], [10.0, -0.2, 0.1, 0.7, 4.0]], np.float32)
BIAS = np.array([0.5, -1.0, 1.0, 2.0, -2.0], np.float32)


def additive_targets(given: Episode, trace: float, scales: tuple[float, ...] = (1.0,)) -> np.ndarray:
    """Targets with critics that are multiples of the additive one."""
    algorithm = Maddpg(discount=0.9, trace=trace, additive_critic=True, num_critics=len(scales))
    layers = [Dense(put(scale * ADDITIVE), put(scale * BIAS)) for scale in scales]
    critics = Ensemble(Additive(FeedForward((), stacked(layers))))
    return np.asarray(targets(algorithm, replace(linear_state(algorithm), target_critics=critics), given))


def expected_value(time: int) -> float:
    """Over both target actors' softmax of (0, sum of observations), by enumeration of the joint actions."""
    obs = np.asarray(episode().obs)[..., 0]
    parts = obs[time] @ ADDITIVE + BIAS
    chance = 1 / (1 + np.exp(-obs[: time + 1].sum(axis=0)))
    value = 0.0
    for first, second in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        weight = (chance[0] if first else 1 - chance[0]) * (chance[1] if second else 1 - chance[1])
        value += weight * (parts[0] + parts[1 + first] + parts[3 + second])
    return float(value)


def test_additive_targets_take_the_expectation_over_the_target_actors():
    """With a trace of .5, half of what follows the first step is the second one's target."""
    first, second = expected_value(1), expected_value(2)
    last = 2 + 0.9 * second
    np.testing.assert_allclose(additive_targets(episode(), 0.0), [1 + 0.9 * first, last], rtol=1e-5)
    np.testing.assert_allclose(additive_targets(episode(), 0.5), [1 + 0.45 * (first + last), last], rtol=1e-5)
    np.testing.assert_allclose(additive_targets(episode(), 1.0), [1 + 0.9 * last, last], rtol=1e-5)


def test_traces_end_where_the_task_does():
    ended = additive_targets(episode(terminated=(False, True)), 0.5)
    np.testing.assert_allclose(ended, [1 + 0.45 * (expected_value(1) + 2.0), 2.0], rtol=1e-5)
    assert additive_targets(episode(terminated=(True, False)), 0.5)[0] == 1.0


def test_additive_twins_bootstrap_from_the_smaller_expectation():
    """Twice a positive value is the larger one, twice a negative value the smaller."""
    first, second = expected_value(1), expected_value(2)
    assert first > 0 > second
    twins = additive_targets(episode(), 0.0, (1.0, 2.0))
    np.testing.assert_allclose(twins, [1 + 0.9 * first, 2 + 0.9 * 2 * second], rtol=1e-5)


def test_logit_penalty_and_entropy_bonus_by_hand():
    """With a critic that is blind and stays so, these two are all there is to the actors' loss."""
    algorithm = Maddpg(logit_penalty=0.1, entropy_bonus=0.5, critic_optimizer=Adam(learning_rate=0.0))
    state = linear_state(algorithm, [0 * CRITIC])
    batch = stacked([episode(), episode(terminated=(True, False))])
    metrics = jax.device_get(update(algorithm, SPEC, state, batch, Elapsed.end())[1])
    squares = np.mean([np.mean([0, 1.0, 0, 4.0]), np.mean([0, 0.25, 0, 6.25]), np.mean([0, 1.0, 0, 4.0])])
    np.testing.assert_allclose(metrics["actor_loss"], 0.1 * squares - 0.5 * metrics["entropy"], rtol=1e-5)


def test_imitation_by_hand():
    """Of an explorer's episode only, and of the steps that happened; the weight is that of the moment."""
    algorithm = Maddpg(
        logit_penalty=0.0, critic_optimizer=Adam(learning_rate=0.0), imitation=Linear(0.8, 0.0, fraction=0.5)
    )
    state = linear_state(algorithm, [0 * CRITIC])
    shown = replace(episode(terminated=(True, False)), label=tree_index(jax.device_get(label(1)), 0))

    def updated(*episodes: Episode, at: float):
        return jax.device_get(update(algorithm, SPEC, state, stacked(list(episodes)), Elapsed.at(at)))

    # The logits of action 1 are 1 and 2, those of action 0 are 0; what was played is (0, 1).
    unlike = np.mean([np.log1p(np.exp(1.0)), np.log1p(np.exp(2.0)) - 2.0])
    new, metrics = updated(episode(), shown, at=0.25)
    np.testing.assert_allclose([metrics["imitation_loss"], metrics["actor_loss"]], [unlike, 0.4 * unlike], rtol=1e-5)
    before, after = (np.asarray(nets.actors.net.nets.weight)[:, 0] for nets in (state, new))
    assert after[0, 0] > before[0, 0] and after[1, 1] > before[1, 1]  # towards what was shown
    _, metrics = updated(episode(), shown, at=0.6)
    assert metrics["imitation_loss"] > 0 and metrics["actor_loss"] == 0  # it has faded
    _, metrics = updated(episode(), episode(), at=0.0)
    assert metrics["imitation_loss"] == metrics["actor_loss"] == 0  # nobody has shown anything


@pytest.mark.parametrize(
    "weight, message",
    [(Linear(-1.0, 0.0, 0.5), "imitation.start must be at least 0"), (Linear(1.0, 0.0, 0.0), "fraction")],
)
def test_imitation_that_would_do_nothing_or_harm_is_refused(weight: Linear, message: str):
    with pytest.raises(UsageError, match=message):
        Maddpg(imitation=weight)


def test_imitation_of_continuous_actions_by_hand():
    outputs = put([[[[0.0], [np.arctanh(0.5)]]]])
    unlike = jax.jit(lambda outputs, played: unlikeness(outputs, played, Box(1)))(outputs, put([[[[1.0], [0.25]]]]))
    np.testing.assert_allclose(unlike, [[[1.0, 0.0625]]], rtol=1e-5)


def batch_with_padding(seed: int, horizon: int = 3, actions: int = 2, actor: int = 0) -> Episode:
    """Eight episodes that end after one or two steps; `seed` decides nothing but what follows their end."""
    steps, junk = np.random.default_rng(0), np.random.default_rng(seed)
    length = np.arange(8) % 2 + 1
    time = np.arange(horizon)
    after = time[None] >= length[:, None]

    def fill(real, noise, where):
        return put(np.where(where.reshape(*where.shape, *(1,) * (real.ndim - 2)), noise, real))

    later = np.arange(horizon + 1)[None] > length[:, None]
    shape = (8, horizon, 2)
    return Episode(
        obs=fill(
            steps.normal(size=(8, horizon + 1, 2, 1)).astype(np.float32),
            50 * junk.normal(size=(8, horizon + 1, 2, 1)).astype(np.float32),
            later,
        ),
        action=fill(steps.integers(0, actions, shape), junk.integers(0, actions, shape), after),
        reward=fill(
            steps.normal(size=shape[:2]).astype(np.float32), 100 * junk.normal(size=shape[:2]).astype(np.float32), after
        ),
        terminated=fill(time[None] == length[:, None] - 1, junk.random(shape[:2]) < 0.5, after),
        mask=put(~after),
        label=label(*[actor] * 8),
    )


@pytest.mark.parametrize("name", UPDATES)
def test_padding_has_no_influence(name: str):
    algorithm = Maddpg(actor_update=UPDATES[name], actor_batch_size=6)
    state, spec = linear_state(algorithm, [CRITIC, -CRITIC]), replace(SPEC, horizon=3)
    left, right = (update(algorithm, spec, state, batch_with_padding(seed), Elapsed.end()) for seed in (1, 2))
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert all(np.all(np.isfinite(value)) for value in left[1].values())


def test_padding_has_no_influence_on_traces():
    algorithm = Maddpg(Mlp((4,)), Mlp((4,)), additive_critic=True, trace=0.8, actor_update=ExpectedGradient())
    spec = replace(SPEC, horizon=3)
    run = jax.jit(
        lambda batch: algorithm.update(
            spec, algorithm.init(spec, jax.random.key(1)), batch, Elapsed.end(), jax.random.key(0)
        )
    )
    left, right = run(batch_with_padding(1)), run(batch_with_padding(2))
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert all(np.all(np.isfinite(value)) for value in left[1].values())


def test_partners_from_the_buffer_keep_agents_apart():
    algorithm = Maddpg(actor_update=GumbelGradient("buffer"))
    state = linear_state(algorithm)
    moved = np.asarray(state.actors.net.nets.weight) + np.array([0.0, 0.7], np.float32)[:, None, None]
    other = eqx.tree_at(lambda s: s.actors.net.nets.weight, state, put(moved))
    batch = stacked([episode()] * 2)
    before, after = (
        np.asarray(update(algorithm, SPEC, learner, batch, Elapsed.end())[0].actors.net.nets.weight)
        for learner in (state, other)
    )
    np.testing.assert_array_equal(before[0], after[0])


observe = jax.jit(Elites.observe)


def elites_after(*batches: tuple[list[tuple[int, int]], list[float]], size: int = 3) -> Elites:
    elites = no_elites(size, 3)
    for joint, scores in batches:
        elites = observe(elites, np.eye(3)[joint], np.array(scores))
    return jax.device_get(elites)


def joint_of(elites: Elites) -> list[tuple[int, ...]]:
    return [tuple(row) for row in elites.features.argmax(axis=-1).tolist()]


def test_elites_are_the_best_distinct_joint_actions():
    elites = elites_after(
        ([(0, 0), (1, 1), (0, 0), (2, 2)], [0.1, 0.5, 0.3, 0.2]),
        ([(1, 1), (0, 2), (1, 0), (1, 1)], [0.4, 0.9, -1.0, 0.45]),
    )
    assert joint_of(elites) == [(0, 2), (1, 1), (0, 0)]
    np.testing.assert_allclose(elites.score, [0.9, 0.999 * 0.5, 0.999 * 0.3], rtol=1e-5)


def test_what_elites_are_remembered_by():
    """The last step's optimum has the highest reward, and the first step the highest target."""
    rewards, targets = put([0.5, 0.5, 1.0]), put([2.0, 1.5, 1.0])
    assert int(np.argmax(JointImprovement().elite_scores(rewards, targets))) == 0
    assert int(np.argmax(ImmediateElites().elite_scores(rewards, targets))) == 2


def test_old_elites_fade():
    elites = elites_after(([(1, 1)], [1.0]), *[([(0, 0)], [0.99])] * 20, size=1)
    assert joint_of(elites) == [(0, 0)]


def test_old_elites_fade_below_zero_too():
    elites = elites_after(([(1, 1)], [-1.0]), *[([(0, 0)], [-1.01])] * 20, size=1)
    assert joint_of(elites) == [(0, 0)]


def pool_of(update: JointImprovement, batch: Episode, number: int) -> list[tuple[int, ...]]:
    """The candidates that the first batch offers at every state, when targets are rewards."""
    spec = EnvSpec(2, 1, Discrete(number), batch.action.shape[1])

    @jax.jit
    def candidates(batch):
        replayed = Replayed(batch, spec.action_space.encode(batch.action), batch.reward)
        return update.observe(spec, update.begin(spec), replayed, jax.random.key(1))[1]

    pool = np.asarray(candidates(batch))
    np.testing.assert_array_equal(pool.sum(axis=-1), np.ones(pool.shape[:2]), "a candidate is not an action")
    return [tuple(row) for row in pool.argmax(axis=-1).tolist()]


def joint_actions(batch: Episode, allowed: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(row) for row in np.asarray(batch.action)[allowed].tolist()}


def test_pool_holds_replay_explorers_and_elites():
    batch = batch_with_padding(1, actions=30)
    batch = replace(batch, label=label(0, 0, 1, 0, 0, 0, 2, 0))
    update = replace(SAMPLED, num_replay=40, num_explorer=10, num_elite=4)
    pool = pool_of(update, batch, 30)
    mask, explored = np.asarray(batch.mask), np.asarray(batch.label.actor) > 0
    assert len(pool) == 54
    assert set(pool[:40]) <= joint_actions(batch, mask) and len(set(pool[:40])) > 4
    assert set(pool[40:50]) == joint_actions(batch, mask & explored[:, None])
    rewards = np.where(mask, batch.reward, -np.inf)
    best = [
        tuple(np.asarray(batch.action).reshape(-1, 2)[index].tolist()) for index in np.argsort(-rewards.ravel())[:4]
    ]
    assert pool[50:] == best


def test_without_explorers_their_share_comes_from_the_replay():
    batch = batch_with_padding(1, actions=30)
    update = replace(SAMPLED, num_explorer=20)
    pool = pool_of(update, batch, 30)
    assert set(pool) <= joint_actions(batch, np.asarray(batch.mask))


def test_only_joint_actions_that_were_played_are_candidates():
    """Twelve steps happened, so twenty places among the elites cannot all be taken."""
    batch = batch_with_padding(1, actions=30)
    update = replace(SAMPLED, num_elite=20)
    pool = pool_of(update, batch, 30)
    assert set(pool) <= joint_actions(batch, np.asarray(batch.mask))


@pytest.mark.parametrize("net", [Mlp((4,)), Gru(4, num_layers=1)], ids=["mlp", "gru"])
@pytest.mark.parametrize("space", [Discrete(3), Box(2)], ids=["discrete", "box"])
def test_init(net, space):
    algorithm = Maddpg(actor_net=net, critic_net=net, num_critics=2, actor_update=JointImprovement(num_elite=5))
    spec = EnvSpec(2, 4, space, 3)
    state = jax.eval_shape(lambda key: algorithm.init(spec, key), jax.random.key(0))
    assert jax.tree.structure(state.target_actors) == jax.tree.structure(state.actors.net)
    assert state.critics.net.nets.head.weight.shape == (2, 4, 1)
    assert state.actors.net.nets.head.weight.shape == (2, 4, space.feature_size)
    assert state.update.features.shape == (5, 2, space.feature_size)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(state))


def test_targets_start_equal_to_what_they_follow():
    algorithm = Maddpg(actor_net=Mlp((4,)), critic_net=Mlp((4,)))
    state = jax.jit(lambda key: algorithm.init(SPEC, key))(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, state.target_actors, state.actors.net)
    jax.tree.map(np.testing.assert_array_equal, state.target_critics, state.critics.net)


@pytest.mark.parametrize("additive", [False, True], ids=["joint", "additive"])
def test_critics_begin_at_the_scale_of_their_head(additive: bool):
    """Ten times the gain is ten times the values; without any, targets are the rewards, whatever comes next."""

    def values(gain: float, given: Episode) -> tuple[jax.Array, jax.Array]:
        algorithm = Maddpg(Mlp(()), Mlp((4,)), critic_head_gain=gain, additive_critic=additive, discount=0.9)
        state = algorithm.init(SPEC, jax.random.key(0))
        played = SPEC.action_space.encode(given.action)
        joint = played.reshape(2, -1)
        rated = unroll(state.critics.net, (given.obs[:-1].reshape(2, -1), joint))
        return rated, of_one(algorithm, state, given)

    at = jax.device_get(jax.jit(lambda given: [values(gain, given) for gain in (1.0, 0.1, 0.0)])(episode()))
    reward = np.asarray(episode().reward)
    np.testing.assert_allclose(at[1][0], 0.1 * at[0][0], rtol=1e-5)
    assert np.any(np.abs(at[0][0]) > 0.01) and np.all(np.asarray(at[2][0]) == 0.0)
    np.testing.assert_allclose(at[1][1] - reward, 0.1 * (at[0][1] - reward), rtol=1e-4)
    np.testing.assert_array_equal(at[2][1], reward)


@pytest.mark.parametrize("gain", [-0.1, float("nan")])
def test_a_head_gain_is_a_scale(gain: float):
    with pytest.raises(UsageError, match="critic-head-gain must be at least 0, not"):
        Maddpg(critic_head_gain=gain)


def test_init_refuses_what_it_cannot_serve():
    with pytest.raises(UsageError, match="ExpectedGradient needs discrete actions"):
        Maddpg(actor_update=ExpectedGradient()).init(EnvSpec(2, 1, Box(1), 1), jax.random.key(0))


@jax.jit
def first_actions(policy, obs, keys) -> jax.Array:
    def first(key):
        key_start, key_act = jax.random.split(key)
        return policy.act(policy.start(key_start), obs, key_act)[0]

    return jax.vmap(first)(keys)


def acts(policy, obs, episodes: int = 4_000) -> np.ndarray:
    return np.asarray(first_actions(policy, obs, jax.random.split(jax.random.key(0), episodes)))


def test_behavior_samples_and_slips_and_greedy_does_neither():
    algorithm = Maddpg(exploration=Linear(1.0, 0.2, 0.5))
    state, obs = linear_state(algorithm), put([[1.0], [-2.0]])
    chance = 1 / (1 + np.exp([-1.0, 2.0]))  # of action 1, by each agent's softmax over (0, its observation)
    for progress, epsilon in [(0.0, 1.0), (0.25, 0.6), (0.9, 0.2)]:
        played = acts(algorithm.behavior(SPEC, state, Elapsed.at(progress)), obs)
        np.testing.assert_allclose(played.mean(axis=0), epsilon / 2 + (1 - epsilon) * chance, atol=0.03)
    np.testing.assert_array_equal(np.unique(acts(algorithm.greedy(SPEC, state), obs), axis=0), [[1, 0]])


def test_continuous_behavior_is_noisy_and_stays_in_the_box():
    algorithm = Maddpg(exploration=Linear(0.5, 0.0, 1.0))
    spec, obs = replace(SPEC, action_space=Box(2)), put([[1.0], [-2.0]])
    state = linear_state(algorithm)
    means = np.tanh([[0.0, 1.0], [0.0, -2.0]])
    greedy = acts(algorithm.greedy(spec, state), obs)
    np.testing.assert_allclose(greedy, np.broadcast_to(means, greedy.shape), rtol=1e-5)
    noisy = acts(algorithm.behavior(spec, state, Elapsed.at(0.5)), obs)
    assert noisy.min() >= -1 and noisy.max() <= 1
    np.testing.assert_allclose(noisy[:, :, 0].std(axis=0), [0.25, 0.25], atol=0.02)


def test_joint_improvement_finds_the_optimum_of_a_larger_game():
    """Thirty actions each, nine hundred joint ones: too many to enumerate, and the best was seen three times."""
    number, episodes, special = 30, 600, 23
    joint = np.random.default_rng(special).integers(0, number, (episodes, 2))
    joint[[10, 200, 400]] = special
    players = (joint == special).sum(axis=1)
    data = Episode(
        obs=put(np.ones((episodes, 2, 2, 1)), np.float32),
        action=put(joint[:, None], np.int32),
        reward=put(np.choose(players, [0.5, 0.0, 1.0])[:, None], np.float32),
        terminated=put(np.ones((episodes, 1), bool)),
        mask=put(np.ones((episodes, 1), bool)),
        label=label(*[0] * episodes),
    )
    greedy = larger_game(data)
    assert greedy.tolist() == [special, special]


@jax.jit
def larger_game(data: Episode) -> jax.Array:
    """Greedy joint action after learning from the episodes."""
    spec = EnvSpec(2, 1, Discrete(30), 1)
    algorithm = Maddpg(
        actor_net=Mlp((16,)),
        critic_net=Mlp((32,)),
        actor_update=JointImprovement(enumerate_up_to=0, num_explorer=0),
        actor_optimizer=Adam(1e-2),
        critic_optimizer=Adam(1e-2),
    )

    def learn(state, key):
        key_sample, key_update = jax.random.split(key)
        batch = tree_index(data, random_index(key_sample, (32,), 600))
        return algorithm.update(spec, state, batch, Elapsed.end(), key_update)[0], None

    keys = jax.random.split(jax.random.key(1), 400)
    state, _ = jax.lax.scan(learn, algorithm.init(spec, jax.random.key(0)), keys)
    policy = algorithm.greedy(spec, state)
    return policy.act(policy.start(jax.random.key(0)), jnp.ones((2, 1)), jax.random.key(0))[0]
