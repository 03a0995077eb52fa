"""MAVEN by hand: weights under z, the discriminator's loss and its gradient, the choice of z, and who chooses."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.algorithms.binned import Binned
from mesax.algorithms.mixers import MixerStep, Sum
from mesax.algorithms.normalized import Normalized
from mesax.baselines.maven import CodedValues, Discerning, Maven, OneLatentPolicy, Recent, Reinforce
from mesax.errors import UsageError
from mesax.mesa.mixing import Mixing
from mesax.nets import Adam, CodedTeam, Dense, FeedForward, Gru, Mlp, Team, unroll_batch
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training.driver import learn
from mesax.training.loop import LearningLoop, Start
from mesax.training.rollout import play
from mesax.training.schedule import Schedule
from mesax.types import Box, Discrete, Elapsed, EnvSpec, Label, Linear, tree_index
from probes import PROBES, TabularGame, put, stacked

SPEC = EnvSpec(num_agents=2, obs_size=1, action_space=Discrete(2), horizon=2)
SMALL = Maven(
    CodedValues(Sum(), Mlp((4,)), latent_size=3, features=4, last_action=False, discriminator_hidden=(4,)),
    Reinforce(hidden=4, updates=2, batch_size=8, capacity=16),
)
ENV = TabularGame()
TASK = stacked([PROBES["coordination"].task])


def test_the_last_layer_is_the_sum_of_its_parts():
    """Two codes, two agents, one feature, one output: W = 1 or 10 by the code, 100 or 1000 by the agent, and 10,000."""
    nets = Team(FeedForward((), Dense(put([[[1.0]], [[3.0]]]), put([[0.0]] * 2))), 2, shared=False)
    team = CodedTeam(nets, put([[[1.0]], [[10.0]], [[100.0]], [[1000.0]], [[10_000.0]]]))
    x = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 1.0]], np.float32)  # the code 1, and what each of them sees
    step, along = jax.jit(lambda x, xs: (team.step(team.start(), x)[1], unroll_batch(team, xs)))(
        x, np.broadcast_to(x, (3, 4, 2, 3))
    )
    expected = [[2.0 * 10_110.0], [3.0 * 11_010.0]]
    np.testing.assert_allclose(step, expected)
    np.testing.assert_allclose(along, np.broadcast_to(expected, (3, 4, 2, 1)))


def test_a_step_and_an_episode_agree_under_every_code():
    """A recurrent team: values along episodes are those of one step after another."""
    random = np.random.default_rng(0)
    obs = random.normal(size=(3, 4, 2, 2))
    codes = np.broadcast_to(np.eye(3)[:, None, None], (3, 4, 2, 3))
    xs = put(np.concatenate([codes, obs], axis=-1), jnp.float32)

    @jax.jit
    def both(xs, key):
        team = CodedTeam.create(Gru(4, num_layers=1), 2, (3, 2, 5, 2), key, shared=True, head_gain=1.0)
        memory, outputs = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), team.start()), []
        for time in range(4):
            memory, output = jax.vmap(team.step)(memory, xs[:, time])
            outputs.append(output)
        return unroll_batch(team, xs), jnp.stack(outputs, axis=1)

    along, stepped = both(xs, jax.random.key(0))
    np.testing.assert_allclose(along, stepped, atol=1e-5)
    assert np.ptp(along) > 0


def linear_discriminator(weight: float) -> Discerning:
    """Logits are (4 p, 0, 0), p the share of agent 0's first action in its softmax; observations count for nothing."""
    matrix = np.zeros((6, 3), np.float32)
    matrix[0, 0] = 4.0
    net = FeedForward((), Dense(put(matrix), put([0.0] * 3)))
    return Discerning(Sum().build(SPEC, jax.random.key(0)), net, weight)


def step_under(latent: int, values) -> MixerStep:
    values = jnp.asarray(values, jnp.float32)
    action = put([[1.0, 0.0], [0.0, 1.0]])
    obs = put([[7.0], [-7.0]])
    return MixerStep(jnp.sum(values * action, axis=1), jnp.max(values, axis=1), obs, action, jnp.eye(3)[latent], values)


def test_the_discriminator_by_hand():
    """Values (ln 3, 0) have the softmax (3/4, 1/4): logits (3, 0, 0)."""
    mixer, values = linear_discriminator(0.5), [[np.log(3.0), 0.0], [5.0, 1.0]]
    total = np.log(np.exp(3.0) + 2.0)

    @jax.jit
    def compute(latent):
        step = step_under(latent, values)
        even = replace(mixer, discriminator=FeedForward((), Dense(jnp.zeros((6, 3)), jnp.zeros(3))))
        return mixer.surprise(step), mixer.with_penalty(step)[1], mixer(step), even.surprise(step)

    for latent, logit in ((0, 3.0), (1, 0.0), (2, 0.0)):
        surprise, penalty, team_value, of_even = compute(latent)
        np.testing.assert_allclose(surprise, total - logit, rtol=1e-5)
        np.testing.assert_allclose(penalty, 0.5 * (total - logit), rtol=1e-5)
        np.testing.assert_allclose(team_value, [np.log(3.0) + 1.0], rtol=1e-6)
        np.testing.assert_allclose(of_even, np.log(3.0), rtol=1e-6)


def test_its_gradient_reaches_the_agents_through_the_softmax():
    """d/dv of -log q(z=0): -(1 - q0) 4 p (1 - p) for the first value of agent 0, the opposite for the second."""
    mixer, values = linear_discriminator(1.0), np.array([[np.log(3.0), 0.0], [5.0, 1.0]], np.float32)

    def penalty(values):
        return mixer.with_penalty(eqx.tree_at(lambda s: s.values, step_under(0, values), values))[1]

    moved = jax.jit(jax.grad(penalty))(values)
    slope = -(1.0 - np.exp(3.0) / (np.exp(3.0) + 2.0)) * 4.0 * 0.75 * 0.25
    np.testing.assert_allclose(moved, [[slope, -slope], [0.0, 0.0]], rtol=1e-4, atol=1e-7)


def test_the_choice_by_hand():
    """Two z, one number seen, logits (x, 0): REINFORCE on own episodes alone, and an entropy bonus."""
    net = FeedForward((), Dense(put([[1.0, 0.0]]), put([0.0, 0.0])))
    recent = Recent(
        put([[0.0], [1.0], [2.0]]),
        put([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
        put([3.0, 5.0, 100.0]),
        put([1.0, 1.0, 0.0]),
    )
    share = 1.0 / (1.0 + np.exp(1.0))
    logs = np.log([0.5, share])
    spread = (np.log(2.0) - share * np.log(share) - (1 - share) * np.log(1 - share)) / 2
    for baseline, returns in ((False, [3.0, 5.0]), (True, [-1.0, 1.0])):
        rule = Reinforce(entropy_bonus=0.1, baseline=baseline)
        loss, entropy = jax.jit(rule.loss)(net, recent)
        np.testing.assert_allclose(entropy, spread, rtol=1e-5)
        np.testing.assert_allclose(loss, -np.mean(np.array(returns) * logs) - 0.1 * spread, rtol=1e-5)


def test_the_choice_learns_what_pays_where():
    """The first z pays where +1 is seen, the second where -1 is; both returns are positive."""
    rule = Reinforce(hidden=8, optimizer=Adam(1e-2), updates=200, batch_size=32, capacity=64, baseline=True)
    spec = replace(SPEC, num_agents=1)
    random = np.random.default_rng(0)
    obs, latent = random.choice([-1.0, 1.0], (64, 1)), random.integers(0, 2, 64)
    returns = np.where((obs[:, 0] > 0) == (latent == 0), 3.0, 1.0)
    parts = (obs, np.eye(2)[latent], returns, np.ones(64))
    recent = Recent(*(put(part, jnp.float32) for part in parts))

    @jax.jit
    def run(key):
        choice, metrics = rule.update(rule.init(spec, 2, key).seen(recent), key)
        logits = jax.vmap(lambda seen: choice.net.net.step((), seen)[1])(put([[1.0], [-1.0]]))
        return jax.nn.softmax(logits), metrics["latent_entropy"]

    chosen, entropy = jax.device_get(run(jax.random.key(0)))
    assert chosen[0, 0] > 0.9 and chosen[1, 1] > 0.9 and 0.0 <= entropy < 0.1


def test_recent_episodes_are_a_ring():
    def episodes(*returns: float) -> Recent:
        number = len(returns)
        return Recent(jnp.zeros((number, 2)), jnp.zeros((number, 3)), put(returns, jnp.float32), jnp.ones(number))

    @jax.jit
    def compute(key):
        choice = Reinforce(capacity=4).init(SPEC, 3, key)
        choice = choice.seen(episodes(1.0, 2.0, 3.0)).seen(episodes(4.0, 5.0))
        full = choice.seen(episodes(*range(10, 16)))
        return choice.recent.returns, full.recent.returns

    returns, full = compute(jax.random.key(0))
    np.testing.assert_array_equal(returns, [5.0, 2.0, 3.0, 4.0])
    assert sorted(full.tolist()) == [12.0, 13.0, 14.0, 15.0]  # more than fit: the last ones stay


def test_z_is_drawn_once_from_what_is_seen_first():
    """The choice always takes the z whose number is seen at the start; what is seen later changes nothing."""
    first = np.zeros((2 * ENV.spec.obs_size, 3), np.float32)
    first[:3] = 1000.0 * np.eye(3)
    see = np.eye(ENV.spec.obs_size, dtype=np.float32)

    @jax.jit
    def compute(key):
        state = SMALL.values.init(ENV.spec, key)
        net = FeedForward((), Dense(put(first), jnp.zeros(3)))
        policy = OneLatentPolicy(SMALL.values.greedy(ENV.spec, state), net, jnp.zeros(3))
        memory, latents = policy.start(key), []
        for now in (1, 0, 0):
            _, memory = policy.act(memory, put(np.stack([see[now]] * 2)), key)
            latents.append(policy.label(memory).latent)
        return latents

    np.testing.assert_array_equal(compute(jax.random.key(1)), [[0.0, 1.0, 0.0]] * 3)


@pytest.fixture(scope="module")
def played():
    """Episodes of the greedy policy, of its forms, and of the prior of others' episodes."""

    @jax.jit
    def run(key):
        state = SMALL.init(ENV.spec, key)
        forms = SMALL.variants(ENV.spec, state)
        own = play(ENV, TASK, SMALL.behavior(ENV.spec, state, Elapsed.end()), key, 300)
        prior = jax.vmap(lambda key: SMALL.latent(ENV.spec, key))(jax.random.split(key, 300))
        return own, jax.vmap(lambda form: play(ENV, TASK, form, key, 4))(forms), prior

    return jax.device_get(run(jax.random.key(2)))


def test_an_untrained_choice_and_the_prior_take_every_z(played):
    own, _, prior = played
    for latents in (own.label.latent, prior):
        assert latents.shape == (300, 3) and np.all(np.sum(latents, axis=1) == 1.0)
        assert np.all(np.mean(latents, axis=0) > 0.2)


def test_forms_are_one_for_every_z(played):
    forms = played[1]
    np.testing.assert_array_equal(forms.label.latent, np.broadcast_to(np.eye(3)[:, None], (3, 4, 3)))


def test_other_z_are_other_values():
    @jax.jit
    def values(key):
        batch = play(ENV, TASK, UniformPolicy(ENV.spec.action_space), key, 3)
        same = jnp.stack([batch.obs[0]] * 3)
        batch = replace(batch, obs=same, label=Label(jnp.zeros(3, jnp.int32), jnp.eye(3)))
        net = SMALL.values.init(ENV.spec, key).values.net
        return SMALL.values.agent_values(ENV.spec.action_space, net.agents, batch)

    q = np.asarray(values(jax.random.key(0)))
    assert all(np.abs(q[0] - q[other]).max() > 1e-3 for other in (1, 2))


def test_only_episodes_played_by_z_count_for_the_choice():
    """None of the warm-up, none of explorers; those of the learner all, once it has learned something."""
    schedule = Schedule(120, 4, 1, warmup_steps=24, updates_per_round=1, batch_size=4, replay_capacity=64)
    loop = LearningLoop(ENV, SMALL, schedule, Mixing(Linear(0.5, 0.5, 1.0)), keep_episodes=True)
    start = Start(explorer=UniformPolicy(ENV.spec.action_space, EXPLORER))
    warm_up, last = learn(loop, stacked([TASK]), jax.random.key(0)[None], start=start, eval_episodes=0)
    assert warm_up.learner.choice.added[0] == 8 and not warm_up.learner.choice.recent.own.any()
    recent, label = last.learner.choice.recent, last.episodes.label
    rounds = label.actor.shape[1]
    assert last.learner.choice.added[0] == 8 + 4 * rounds
    expected = np.zeros(4 * rounds)
    expected[4:] = label.actor[0].reshape(-1)[4:] == 0  # the first round is played before any update
    slots = (8 + np.arange(4 * rounds))[-16:] % 16
    np.testing.assert_array_equal(recent.own[0][slots], expected[-16:])
    np.testing.assert_array_equal(recent.latent[0][slots], label.latent[0].reshape(-1, 3)[-16:])
    returns = (last.episodes.reward * last.episodes.mask)[0].reshape(4 * rounds, -1).sum(axis=1)
    np.testing.assert_allclose(recent.returns[0][slots], returns[-16:], rtol=1e-6)
    assert 0 < expected.sum() < 4 * (rounds - 1)


def test_without_a_choice_z_stays_uniform():
    algorithm = replace(SMALL, choice=None)

    @jax.jit
    def run(key):
        state = algorithm.init(ENV.spec, key)
        episodes = play(ENV, TASK, algorithm.behavior(ENV.spec, state, Elapsed.end()), key, 200)
        state = algorithm.observe(ENV.spec, state, episodes)
        return episodes.label.latent, algorithm.update(ENV.spec, state, episodes, Elapsed.end(), key)[1]

    latent, metrics = run(jax.random.key(0))
    assert np.all(np.mean(latent, axis=0) > 0.2) and "latent_entropy" not in metrics


def test_on_a_box_and_on_standardized_observations():
    """Both wrappers hand forms and latents on."""
    spec = replace(SPEC, action_space=Box(1))
    algorithm = Normalized(Binned(SMALL, bins=3))

    def forms(key):
        state = algorithm.init(spec, key)
        forms = algorithm.variants(spec, state)
        return jax.vmap(lambda form: form.act(form.start(key), jnp.ones((2, 1)), key))(forms)

    actions, memory = jax.jit(forms)(jax.random.key(0))
    assert actions.shape == (3, 2, 1) and set(np.unique(actions)) <= {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(tree_index(memory, slice(None))[2], np.eye(3))
    assert algorithm.latent(spec, jax.random.key(0)).shape == (3,)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: CodedValues(latent_size=0), "latent-size must be at least 1, not 0"),
        (lambda: CodedValues(features=0), "features must be at least 1, not 0"),
        (lambda: CodedValues(discriminator_hidden=(0,)), "every one of discriminator-hidden must be at least 1"),
        (lambda: CodedValues(discount=2.0), "discount must lie between 0 and 1"),
        (lambda: Reinforce(updates=0), "updates must be at least 1, not 0"),
        (lambda: Reinforce(capacity=0), "capacity must be at least 1, not 0"),
    ],
)
def test_impossible_settings_are_refused(build, message: str):
    with pytest.raises(UsageError, match=message):
        build()
