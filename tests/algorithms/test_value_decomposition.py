"""Value decomposition by hand: targets and losses with linear nets, padding, last actions, slips, target nets."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.mixers import Duplex, Independent, Monotonic, Sum
from mesax.algorithms.value_decomposition import (
    WIDE,
    Periodic,
    Soft,
    ValueDecomposition,
    ValuePolicy,
    Values,
    ValueState,
)
from mesax.errors import UsageError
from mesax.mesa.mixing import ExploreOrExploit
from mesax.nets import Adam, Dense, Entities, FeedForward, Gru, Mlp, Team
from mesax.policy import UniformPolicy
from mesax.training.rollout import play
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Episode, Label, LinearSteps, tree_index
from probes import PROBES, Summing, TabularGame, put, stacked, untrained

SPEC = EnvSpec(num_agents=2, obs_size=1, action_space=Discrete(2), horizon=2)
PLAIN = ValueDecomposition(Sum(), Mlp(()), last_action=False, discount=0.9, target=Soft(0.25), optimizer=Adam(0.1))
SMALL = {
    "IQL": Independent(),
    "QMIX": Monotonic(3, hyper_hidden=2),
    "QPLEX": Duplex(1, 2, 2, 2, 2),
}


# Values of (action 0, action 1) per unit of the sum of an agent's observations.
ONLINE = [[[0.0, 1.0]], [[0.0, 1.0]]]
TARGET = [[[2.0, 1.0]], [[0.5, -1.0]]]


def linear_state(algorithm: ValueDecomposition) -> ValueState:
    mixer = algorithm.mixer.build(SPEC, jax.random.key(0))
    online, target = (Values(Team(Summing(put(w)), 2, shared=False), mixer) for w in (ONLINE, TARGET))
    return ValueState(untrained(online, algorithm.optimizer), target, put(0, np.int32))


def nobody(*shape: int) -> Label:
    """Labels of the learner's own episodes."""
    return Label(put(np.zeros(shape, np.int32)), put(np.zeros((*shape, 0), np.float32)))


def episode(terminated: tuple[bool, bool] = (False, False)) -> Episode:
    """Sums of observations are (1, .5, 3.5) and (2, 2.5, -1.5)."""
    return Episode(
        obs=put([[[1.0], [2.0]], [[-0.5], [0.5]], [[3.0], [-4.0]]]),
        action=put([[0, 1], [1, 0]]),
        reward=put([1.0, 2.0]),
        terminated=put(terminated),
        mask=put([True, not terminated[0]]),
        label=nobody(),
    )


run = jax.jit(
    lambda algorithm, spec, state, batch: algorithm.update(spec, state, batch, Elapsed.end(), jax.random.key(0)),
    static_argnums=(0, 1),
)


def update(algorithm: ValueDecomposition, *episodes: Episode):
    state = linear_state(algorithm)
    return jax.device_get((state, *run(algorithm, SPEC, state, stacked(list(episodes)))))


# The online nets prefer (1, 1) at time 1 and (1, 0) at time 2; the target nets (0, 0) and (0, 1).
CHOSEN = np.array([[0.0, 2.0], [0.5, 0.0]])
DOUBLE = np.array([[0.5, -2.5], [3.5, -0.75]])
SINGLE = np.array([[1.0, 1.25], [7.0, 1.5]])
REWARD = np.array([1.0, 2.0])


@pytest.mark.parametrize("double_q, following", [(True, DOUBLE), (False, SINGLE)])
def test_team_by_hand(double_q: bool, following: np.ndarray):
    """VDN, cut at the horizon: the last observation is bootstrapped from."""
    _, _, metrics = update(replace(PLAIN, double_q=double_q), episode())
    targets = REWARD + 0.9 * following.sum(axis=1)
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["critic_loss"], np.square(CHOSEN.sum(axis=1) - targets).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["q_mean"], CHOSEN.sum(axis=1).mean(), rtol=1e-5)
    assert float(metrics["greedy_share"]) == 0.5  # agent 1 at time 0, agent 0 at time 1
    assert float(metrics["mixer_penalty"]) == 0.0


def test_independent_agents_by_hand():
    """Each learns from the shared reward and its own next value; the loss is a mean over agents."""
    _, _, metrics = update(replace(PLAIN, mixer=Independent()), episode())
    targets = REWARD[:, None] + 0.9 * DOUBLE
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["critic_loss"], np.square(CHOSEN - targets).mean(), rtol=1e-5)


def test_one_agent_by_hand():
    spec = replace(SPEC, num_agents=1)
    net = Team(Summing(put(ONLINE[:1])), 1, shared=False)
    values = Values(net, Sum().build(spec, jax.random.key(0)))
    state = ValueState(untrained(values, PLAIN.optimizer), values, put(0, np.int32))
    given = jax.device_get(episode((False, True)))
    given = replace(given, obs=given.obs[:, :1], action=given.action[:, :1])
    metrics = run(PLAIN, spec, state, stacked([given]))[1]
    # Chosen are 0 at time 0 and .5 at time 1, which ends the task; the best value at time 1 is .5.
    np.testing.assert_allclose(metrics["target_mean"], np.mean([1 + 0.9 * 0.5, 2.0]), rtol=1e-6)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean([1.45**2, 1.5**2]), rtol=1e-6)


def test_nothing_is_bootstrapped_beyond_an_end():
    _, _, metrics = update(PLAIN, episode((False, True)), episode((True, False)))
    targets = np.array([1 + 0.9 * DOUBLE[0].sum(), 2.0, 1.0])  # the second episode had one step
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-5)
    values = np.array([2.0, 0.5, 2.0])
    np.testing.assert_allclose(metrics["critic_loss"], np.square(values - targets).mean(), rtol=1e-5)


def test_the_horizon_may_end_the_task():
    """What follows the first step counts, if there is a second one; beyond a cut nothing does."""
    _, _, metrics = update(replace(PLAIN, horizon_ends=True), episode(), episode((True, False)))
    targets = np.array([1 + 0.9 * DOUBLE[0].sum(), 2.0, 1.0])
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-5)


def test_traces_by_hand():
    """Half of what follows the first step is the second one's target; beyond the cut there is only its value."""
    _, _, metrics = update(replace(PLAIN, trace=0.5), episode())
    last = 2 + 0.9 * DOUBLE[1].sum()
    first = 1 + 0.9 * (0.5 * DOUBLE[0].sum() + 0.5 * last)
    np.testing.assert_allclose(metrics["target_mean"], (first + last) / 2, rtol=1e-5)


def test_only_predictions_are_moved():
    """Adam's first step is the learning rate against the gradient's sign, which targets have no part in."""
    state, new, _ = update(PLAIN, episode())
    errors = CHOSEN.sum(axis=1) - (REWARD + 0.9 * DOUBLE.sum(axis=1))
    sums, action = np.array([[1.0, 2.0], [0.5, 2.5]]), np.array([[0, 1], [1, 0]])
    for agent in (0, 1):
        for which in (0, 1):
            gradient = np.sum(errors * sums[:, agent] * (action[:, agent] == which))
            moved = new.values.net.agents.nets.weight[agent, 0, which] - ONLINE[agent][0][which]
            np.testing.assert_allclose(moved, -0.1 * np.sign(gradient), rtol=1e-3)
    old, online = state.target.agents.nets.weight, new.values.net.agents.nets.weight
    np.testing.assert_allclose(new.target.agents.nets.weight, 0.75 * old + 0.25 * online, rtol=1e-5)


def padded_batch(seed: int, horizon: int = 3) -> Episode:
    """Four episodes that end, or are cut, after one or two steps; `seed` decides only what follows."""
    steps, junk = np.random.default_rng(0), np.random.default_rng(seed)
    length = np.array([1, 2, 2, 1])
    after = np.arange(horizon)[None] >= length[:, None]
    later = np.arange(horizon + 1)[None] > length[:, None]

    def fill(real, noise, where):
        return put(np.where(where.reshape(*where.shape, *(1,) * (real.ndim - 2)), noise, real))

    def normal(random, shape, scale):
        return (scale * random.normal(size=shape)).astype(np.float32)

    obs, reward, action = (4, horizon + 1, 2, 1), (4, horizon), (4, horizon, 2)
    ends = (np.arange(horizon)[None] == length[:, None] - 1) & np.array([True, True, False, False])[:, None]
    return Episode(
        fill(normal(steps, obs, 1.0), normal(junk, obs, 50.0), later),
        fill(steps.integers(0, 2, action), junk.integers(0, 2, action), after),
        fill(normal(steps, reward, 1.0), normal(junk, reward, 100.0), after),
        fill(ends, junk.random(reward) < 0.5, after),
        put(~after),
        nobody(4),
    )


@pytest.mark.parametrize("name", SMALL)
def test_padding_has_no_influence(name: str):
    net = Gru(3, num_layers=1) if name == "QMIX" else Mlp((3,))
    algorithm = ValueDecomposition(SMALL[name], net, trace=0.7, target=Soft())
    spec = replace(SPEC, horizon=3)
    state = jax.jit(lambda key: algorithm.init(spec, key))(jax.random.key(0))
    left, right = jax.device_get([run(algorithm, spec, state, padded_batch(seed)) for seed in (1, 2)])
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert all(np.isfinite(value) for value in left[1].values())
    moved = jax.tree.map(lambda a, b: np.any(np.asarray(a) != b), state.values.net, left[0].values.net)
    assert np.mean(jax.tree.leaves(moved)) > 0.8


def test_lanes_that_take_turns_learn_what_they_would_alone():
    """Wide recurrent nets, under two `vmap`s (tasks and seeds)."""
    algorithm = ValueDecomposition(Sum(), Gru(WIDE, num_layers=0))
    spec = replace(SPEC, horizon=3)
    keys = jax.random.split(jax.random.key(0), (2, 2))
    states = jax.jit(jax.vmap(jax.vmap(lambda key: algorithm.init(spec, key))))(keys)
    batches = stacked([stacked([padded_batch(seed)] * 2) for seed in (1, 2)])

    def learn(state, batch):
        return algorithm.update(spec, state, batch, Elapsed.end(), jax.random.key(0))

    together, alone = jax.device_get(jax.jit(jax.vmap(jax.vmap(learn)))(states, batches)), jax.jit(learn)
    states, batches = jax.device_get((states, batches))
    for index in ((0, 0), (1, 0), (1, 1)):
        expected = alone(tree_index(states, index), tree_index(batches, index))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), tree_index(together, index), expected)


def test_periodic_targets_are_exact_copies():
    algorithm = replace(PLAIN, target=Periodic(3))
    state, batch = linear_state(algorithm), stacked([episode()])
    last = state.target
    for number in range(1, 8):
        state = jax.device_get(run(algorithm, SPEC, state, batch)[0])
        if number % 3 == 0:
            last = state.values.net
        jax.tree.map(np.testing.assert_array_equal, state.target, last)
        assert int(state.updates) == number
        assert np.any(state.values.net.agents.nets.weight != last.agents.nets.weight) == (number % 3 > 0)


def repeater(epsilon: float | None) -> ValuePolicy:
    """Agents of three actions that see one observation and rate their last action highest."""
    weight = np.vstack([np.zeros((1, 3)), np.eye(3)])
    head = stacked([Dense(put(weight, np.float32), put(np.zeros(3), np.float32))] * 2)
    chance = None if epsilon is None else put(epsilon)
    return ValuePolicy(Team(FeedForward((), head), 2, shared=False), chance, Discrete(3), last_action=True)


def test_policies_see_the_action_that_was_played():
    """A slip is followed up: were it not remembered, an agent would go back to what it had chosen."""
    policy = repeater(0.5)

    def step(memory, key):
        obs = jnp.zeros((2, 1))
        action, memory = policy.act(memory, obs, key)
        return memory, (action, jax.random.uniform(key, (2, 2)))

    keys = jax.random.split(jax.random.key(0), 60)
    actions, draws = jax.device_get(jax.jit(lambda keys: jax.lax.scan(step, policy.start(keys[0]), keys)[1])(keys))
    last = np.zeros(2, int)
    for action, (slip, which) in zip(actions, draws, strict=True):
        last = np.where(slip < 0.5, np.floor(3 * which), last)
        np.testing.assert_array_equal(action, last)
    assert all(len(np.unique(actions[:, agent])) == 3 for agent in (0, 1))


def test_before_the_first_action_there_is_none():
    policy = repeater(None)

    @jax.jit
    def compute(key):
        memory = policy.start(key)
        return (
            policy.agents.step(memory[0], jnp.zeros((2, 4)))[1],
            memory,
            policy.act(memory, jnp.zeros((2, 1)), key)[0],
        )

    q, memory, action = compute(jax.random.key(0))
    np.testing.assert_array_equal(q, np.zeros((2, 3)))
    np.testing.assert_array_equal(memory[1], [-1, -1])
    np.testing.assert_array_equal(action, [0, 0])


def test_updates_see_the_actions_of_the_batch():
    """Whoever played: values of the repeater are its one-hot last actions, none at first."""
    algorithm, agents = ValueDecomposition(agent_net=Mlp(())), repeater(None).agents
    batch = padded_batch(1)
    q = np.asarray(jax.jit(lambda: algorithm.agent_values(Discrete(3), agents, batch))())
    np.testing.assert_array_equal(q[:, 0], np.zeros((4, 2, 3)))
    np.testing.assert_array_equal(q[:, 1:], np.eye(3)[np.asarray(batch.action)])


def test_values_in_updates_are_those_that_were_acted_on():
    """A recurrent team with last actions: along its greedy episodes, what it played is what updates rate highest."""
    env = TabularGame()
    algorithm = ValueDecomposition(Sum(), Gru(4, num_layers=1))
    task = stacked([PROBES["recall of a cue"].task])

    @jax.jit
    def both(key):
        state = algorithm.init(env.spec, key)
        episodes = play(env, task, algorithm.greedy(env.spec, state), key, 16)
        q = algorithm.agent_values(env.spec.action_space, state.values.net.agents, episodes)
        return episodes.action, jnp.argmax(q[:, :-1], axis=-1), jnp.ptp(q)

    played, rated, spread = jax.device_get(both(jax.random.key(3)))
    np.testing.assert_array_equal(played, rated)
    assert spread > 0 and len(np.unique(played)) > 1


def test_exploration_is_counted_in_steps():
    algorithm = replace(PLAIN, exploration=LinearSteps(1.0, 0.2, 100))
    state, obs = linear_state(algorithm), put([[1.0], [-2.0]])

    @jax.jit
    def played(elapsed):
        policy = algorithm.behavior(SPEC, state, elapsed)
        keys = jax.random.split(jax.random.key(0), 4000)
        return jax.vmap(lambda key: policy.act(policy.start(key), obs, key)[0])(keys)

    for steps, epsilon in [(0, 1.0), (50, 0.6), (1000, 0.2)]:
        share = np.mean(played(Elapsed.at(0.3, steps)), axis=0)  # of action 1: greedy for agent 0 only
        np.testing.assert_allclose(share, [1 - epsilon / 2, epsilon / 2], atol=0.03)
    policy = algorithm.greedy(SPEC, state)
    greedy = jax.jit(lambda key: (policy.act(policy.start(key), obs, key)[0], policy.label(policy.start(key)).actor))
    action, actor = greedy(jax.random.key(0))
    assert action.tolist() == [1, 0]
    assert int(actor) == 0


def test_an_explorer_can_play_the_episode():
    env = TabularGame()
    algorithm = ValueDecomposition(Sum(), Mlp((4,)))

    @jax.jit
    def run(key, probability):
        state = algorithm.init(env.spec, key)
        own = algorithm.behavior(env.spec, state, Elapsed.end())
        mixed = ExploreOrExploit(own, UniformPolicy(env.spec.action_space, 1), probability)
        task = jax.tree.map(lambda leaf: leaf[None], PROBES["truncation only"].task)
        episodes = play(env, task, mixed, key, 8)
        return (
            episodes,
            play(env, task, own, key, 8),
            algorithm.update(env.spec, state, episodes, Elapsed.end(), key)[1],
        )

    alone, expected, _ = run(jax.random.key(0), 0.0)
    jax.tree.map(np.testing.assert_array_equal, alone, expected)
    explored, _, metrics = jax.device_get(run(jax.random.key(0), 1.0))
    assert np.all(explored.label.actor == 1) and all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(
    "net", [Mlp((4,)), Gru(4, num_layers=1), Entities(1, 0, hidden=4)], ids=["mlp", "gru", "points"]
)
def test_init(net):
    entities = isinstance(net, Entities)
    spec = EnvSpec(1 if entities else 2, 4, Discrete(3), 3)
    algorithm = ValueDecomposition(Monotonic(5), net, last_action=not entities)
    state = jax.eval_shape(lambda key: algorithm.init(spec, key), jax.random.key(0))
    assert jax.tree.structure(state.target) == jax.tree.structure(state.values.net)
    assert state.values.net.agents.nets.head.weight.shape[-1] == 3
    assert state.values.net.mixer.first.head.weight.shape == (64, spec.num_agents * 5)
    if not entities:
        first = state.values.net.agents.nets.layers[0]
        width = (first[0] if isinstance(first, tuple) else first).weight.shape[0]
        assert width == 4 + 3 + 2  # observation, last action, identity


def test_targets_start_equal_to_what_they_follow():
    state = jax.jit(lambda key: PLAIN.init(SPEC, key))(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, state.target, state.values.net)


def test_boxes_are_refused_with_a_way_out():
    with pytest.raises(UsageError, match=r"discrete actions; Binned\(ValueDecomposition"):
        ValueDecomposition().init(replace(SPEC, action_space=Box(1)), jax.random.key(0))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: ValueDecomposition(discount=1.5), "discount must lie between 0 and 1, not 1.5"),
        (lambda: ValueDecomposition(trace=-0.1), "trace must lie between 0 and 1, not -0.1"),
        (lambda: ValueDecomposition(agent_net=Entities(2, 1)), "set last-action to false"),
        (lambda: Soft(2.0), "rate must lie between 0 and 1"),
        (lambda: Periodic(0), "updates must be at least 1, not 0"),
    ],
)
def test_impossible_settings_are_refused(build, message: str):
    with pytest.raises(UsageError, match=message):
        build()
