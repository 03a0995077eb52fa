"""Random network distillation: the bonus by hand, its decay, its scale, and what padding must not do."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import numpy as np
import pytest

from mesax.algorithms.base import Learner
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized
from mesax.baselines.rnd import Rnd, RndState, novelty
from mesax.envs.climb import ClimbFamily
from mesax.errors import UsageError
from mesax.nets import Adam, Mlp
from mesax.rewards.features import ObsActionFeatures
from mesax.training.driver import Chunk, learn
from mesax.training.loop import LearningLoop
from mesax.training.schedule import Budget, Schedule
from mesax.types import Discrete, EnvSpec, Episode, Label
from methods.helpers import IndependentQ
from training.test_contracts import Fleeting

SPEC = EnvSpec(2, 3, Discrete(4), 5)
RND = Rnd(target_net=Mlp((8,)), predictor_net=Mlp((8, 8)), size=4, optimizer=Adam(1e-2))

KEY = jax.random.key(7)


def episodes(seed: int, envs: int = 6, junk: float = 0.0) -> Episode:
    """Random episodes; the second ends after two steps and is padded with `junk`."""
    random = np.random.default_rng(seed)
    obs = random.normal(size=(envs, 6, 2, 3)).astype(np.float32)
    mask = np.ones((envs, 5), bool)
    mask[1, 2:] = False
    obs[1, 3:] = junk
    reward = random.normal(size=(envs, 5)).astype(np.float32) * mask
    action = random.integers(0, 4, (envs, 5, 2)).astype(np.int32)
    terminated = np.zeros((envs, 5), bool)
    label = Label(*jax.device_put((np.zeros(envs, np.int32), np.zeros((envs, 0), np.float32))))
    return Episode(*jax.device_put((obs, action, reward, terminated, mask)), label)


@partial(jax.jit, static_argnums=0)
def fresh(rnd: Rnd) -> RndState:
    return rnd.begin(SPEC, (), jax.random.key(0))


@partial(jax.jit, static_argnums=0)
def observed(rnd: Rnd, state: RndState, batch: Episode) -> tuple[RndState, Episode]:
    return rnd.observe(SPEC, state, batch, KEY)


def test_the_bonus_by_hand():
    """One round: standardize the joint next observation, mean squared error, divide by the sums' deviation."""
    rnd, batch, state = replace(RND, discount=0.5, weight=2.0, task_weight=3.0), episodes(0), fresh(RND)
    _, paid = observed(rnd, state, batch)
    mask = np.asarray(batch.mask)
    x = np.asarray(batch.obs)[:, 1:].reshape(6, 5, 6)
    x = np.clip((x - x[mask].mean(axis=0)) / x[mask].std(axis=0), -5, 5)

    def net(module, row):
        for layer in module.layers:
            row = np.maximum(row @ np.asarray(layer.weight) + np.asarray(layer.bias), 0.0)
        return row @ np.asarray(module.head.weight) + np.asarray(module.head.bias)

    bonus = np.mean(np.square(net(state.target, x) - net(state.predictor.net, x)), axis=-1) * mask
    sums = np.zeros_like(bonus)
    for time in range(5):
        sums[:, time] = bonus[:, time] + (0.5 * sums[:, time - 1] if time else 0.0)
    expected = 3.0 * np.asarray(batch.reward) + 2.0 * bonus / sums[mask].std()
    np.testing.assert_allclose(paid.reward, expected, rtol=2e-3, atol=1e-4)


def test_what_is_seen_again_pays_less_and_what_is_new_pays_more():
    state, batch = fresh(RND), episodes(0)
    for _ in range(300):
        state, _ = observed(RND, state, batch)

    @jax.jit
    def errors(state: RndState, untrained: RndState) -> tuple[jax.Array, ...]:
        x = state.inputs.standardize(batch.obs[:, 1:].reshape(6, 5, 6), RND.least, RND.limit)
        trained, before = state.predictor.net, untrained.predictor.net
        return tuple(novelty(state.target, net, x) for net, x in ((trained, x), (before, x), (trained, -2.0 * x)))

    seen, before, new = map(np.asarray, errors(state, fresh(RND)))
    happened = np.asarray(batch.mask)
    assert seen[happened].mean() < 0.1 * before[happened].mean()
    assert new.mean() > 5 * seen[happened].mean()


def test_padding_is_neither_paid_nor_learnt_from():
    for number in range(2):
        clean, junk = episodes(number), episodes(number, junk=1e3)
        state, paid = observed(RND, fresh(RND), clean)
        other, same = observed(RND, fresh(RND), junk)
        np.testing.assert_allclose(paid.reward, same.reward, rtol=1e-5)
        assert np.all(np.asarray(paid.reward)[1, 2:] == 0.0)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), state, other)


def test_the_target_stays_and_only_rewards_change():
    state, batch = fresh(RND), episodes(3)
    after, paid = observed(RND, state, batch)
    jax.tree.map(np.testing.assert_array_equal, state.target, after.target)
    jax.tree.map(np.testing.assert_array_equal, eqx.tree_at(lambda e: e.reward, paid, batch.reward), batch)


def test_actions_can_be_new_where_steps_lead_nowhere():
    """With observations that never change, the default cannot tell anything apart; a map of actions can."""
    still = eqx.tree_at(lambda e: e.obs, episodes(0), np.zeros((6, 6, 2, 3), np.float32))
    _, blind = observed(replace(RND, task_weight=0.0), fresh(RND), still)
    assert np.std(np.asarray(blind.reward)[0]) == pytest.approx(0.0, abs=1e-6)
    sees = replace(RND, task_weight=0.0, features=ObsActionFeatures(action_weight=1.0))
    _, paid = observed(sees, fresh(sees), still)
    assert np.std(np.asarray(paid.reward)[0]) > 0.1


def test_a_bonus_can_be_kept_apart():
    """Rewards stay the task's, times their weight; what is added elsewhere stands beside them."""
    settings = replace(RND, weight=2.0, task_weight=3.0, discount=0.7)
    batch, (_, whole) = episodes(0), observed(settings, fresh(RND), episodes(0))
    apart = replace(settings, apart=True)
    _, paid = observed(apart, fresh(RND), batch)
    reward, bonus = np.asarray(paid.reward), np.asarray(paid.bonus)
    np.testing.assert_allclose(reward, 3.0 * np.asarray(batch.reward), rtol=1e-6)
    np.testing.assert_allclose(reward + bonus, whole.reward, rtol=1e-5, atol=1e-6)
    assert whole.bonus is None and np.all(bonus >= 0.0)
    assert (settings.learner_spec(SPEC), apart.learner_spec(SPEC)) == (SPEC, replace(SPEC, bonus_discount=0.7))


LINEAR = Mlp(())
SCHEDULE = Schedule(400, 10, 2, 100, 1, 8, 100)
LEARNERS = {"off-policy": (IndependentQ(), SCHEDULE), "on-policy": (Fleeting(), Budget(400, 10, 2))}
ACTIONS = ObsActionFeatures(action_weight=1.0)
PAYING = replace(RND, target_net=LINEAR, predictor_net=LINEAR, features=ACTIONS, weight=1.0)


def learnt(algorithm: Learner, schedule: Budget, rnd: Rnd) -> Chunk:
    """The end of a short run, in which steps lead nowhere."""
    family = ClimbFamily(num_stages=1)
    loop = LearningLoop(family.env, algorithm, schedule, reward_model=rnd)
    tasks = jax.tree.map(lambda leaf: np.asarray(leaf)[:1, None], family.split(0, 4, 2).train)
    *_, last = learn(loop, tasks, jax.random.split(jax.random.key(0), 1), eval_episodes=0)
    return last


def test_a_bonus_apart_is_learnt_from_and_counted():
    last = learnt(Normalized(Mappo(LINEAR, LINEAR, epochs=2)), Budget(400, 10, 2), replace(PAYING, apart=True))
    assert np.all(last.metrics["learnt_return"] > last.metrics["train_return"])
    assert last.learner.learner.bonus_norm.weight[0] > 0


def test_learners_with_one_value_refuse_a_bonus_apart():
    with pytest.raises(UsageError, match="Maddpg has one value for all that is paid: set the reward model's apart"):
        LearningLoop(ClimbFamily().env, Maddpg(LINEAR, LINEAR), SCHEDULE, reward_model=Rnd(apart=True))


@pytest.mark.parametrize("name", LEARNERS)
def test_any_learner_can_be_paid_so(name: str):
    """MAPPO is in `suites/test_baselines.py`, from the command line on."""
    last = learnt(*LEARNERS[name], PAYING)
    assert np.all(last.metrics["learnt_return"] > last.metrics["train_return"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
        ({"discount": 1.5}, "discount must lie between 0 and 1"),
        ({"limit": 0.0}, "limit must be above 0"),
    ],
)
def test_settings_that_cannot_pay_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        replace(RND, **settings)
