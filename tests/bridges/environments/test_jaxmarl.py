"""JaxMARL's interface as a pure environment: a small class that has it, and the real library where it is installed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.jaxmarl import JaxMarlEnvironment
from mesax.cli.env.check import check
from mesax.errors import UsageError
from mesax.policy import UniformPolicy
from mesax.training.rollout import play
from mesax.types import Box, Discrete, EnvSpec


class Choices:
    def __init__(self, number: int):
        self.n, self.shape = number, ()


class Numbers:
    def __init__(self, low: float, high: float, shape: tuple[int, ...]):
        self.low, self.high, self.shape = low, high, shape


class Counter:
    """As JaxMARL has it: dicts by agent, `__all__`, an end after `max_steps`, and another when the sum reaches 6."""

    def __init__(self, max_steps: int | None = 4, spaces=(Choices(3), Choices(2))):
        self.agents = ["big", "little"]
        self.max_steps = max_steps
        self.spaces = dict(zip(self.agents, spaces, strict=True))

    def action_space(self, agent):
        return self.spaces[agent]

    def reset(self, key):
        state = {"total": jax.random.uniform(key), "step": jnp.zeros((), jnp.int32)}
        return self.see(state), state

    def see(self, state):
        return {
            "big": jnp.full((2, 2), state["total"]),
            "little": state["step"][None],
            "world_state": jnp.zeros(9),
        }

    def step_env(self, key, state, actions):
        total = state["total"] + sum(jnp.sum(action) for action in actions.values())
        state = {"total": total, "step": state["step"] + 1}
        done = total >= 6
        if self.max_steps is not None:
            done = done | (state["step"] >= self.max_steps)
        rewards = {"big": actions["big"].sum().astype(jnp.float32), "little": jnp.float32(1.0)}
        return self.see(state), state, rewards, {"big": done, "little": done, "__all__": done}, {}


def adapted(env, **options) -> JaxMarlEnvironment:
    """The adapter around one environment."""
    return JaxMarlEnvironment(lambda seed: env, **options)


def test_stacked_padded_and_rewarded():
    env = adapted(Counter())
    assert env.spec == EnvSpec(2, 4, Discrete(3), 4)
    task = jnp.uint32(7)
    state, obs = env.reset(task, jax.random.key(0))
    np.testing.assert_array_equal(obs[0], np.full(4, jax.random.uniform(jax.random.key(7)), np.float32))
    np.testing.assert_array_equal(obs, env.reset(task, jax.random.key(1))[1])  # the task alone determines the start
    state, outcome = env.step(task, state, jnp.array([2, 2]), jax.random.key(0))
    assert float(outcome.reward) == 1.5 and not bool(outcome.terminated)
    np.testing.assert_array_equal(outcome.obs[1], [1, 0, 0, 0])
    assert float(outcome.obs[0, 0]) == pytest.approx(float(obs[0, 0]) + 2)  # 2 modulo little's two actions is 0
    total = adapted(Counter(), team_reward="sum").step(task, state, jnp.array([2, 1]), jax.random.key(0))
    assert float(total[1].reward) == 3.0


def test_the_own_limit_is_a_cut_and_not_a_termination():
    env, task = adapted(Counter()), jnp.uint32(7)
    for action, expected in ((0, [False] * 4), (2, [False, False, True, False])):
        state, _ = env.reset(task, jax.random.key(0))
        found = []
        for _ in range(4):
            state, outcome = env.step(task, state, jnp.array([action, 0]), jax.random.key(0))
            found.append(bool(outcome.terminated))
        assert found == expected


def test_episodes_of_a_family():
    env = adapted(Counter(max_steps=None), horizon=5)
    family = ForeignFamily(env, optimal_return=5.0)
    tasks = family.split(0, 3, 1).train
    episodes = jax.jit(lambda key: play(family.env, tasks, UniformPolicy(env.spec.action_space), key, 32))(
        jax.random.key(0)
    )
    assert episodes.obs.shape == (32, 6, 2, 4) and np.any(episodes.terminated) and not np.all(episodes.mask)


def test_boxes():
    env = adapted(Counter(spaces=(Numbers(-2.0, 6.0, (1, 2)), Numbers(0.0, 1.0, (1,)))))
    assert env.spec.action_space == Box(2)
    state, obs = env.reset(jnp.uint32(0), jax.random.key(0))
    _, outcome = env.step(jnp.uint32(0), state, jnp.array([[-1.0, 0.0], [0.5, -1.0]]), jax.random.key(0))
    assert float(outcome.obs[0, 0] - obs[0, 0]) == pytest.approx(-2.0 + 2.0 + 0.75)


def test_a_start_of_ones_own():
    def start(env, task, key):
        return env.reset(jax.random.fold_in(key, task))

    env = adapted(Counter(), start=start)
    first, second = (env.reset(jnp.uint32(3), jax.random.key(seed))[1] for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: adapted(object()),
            r"object is no JaxMARL environment: it has no agents, .*jaxmarl.make",
        ),
        (lambda: adapted(Counter(None)), r"names no limit of steps .*give horizon"),
        (
            lambda: adapted(Counter(4), horizon=5),
            r"horizon 5 is beyond the environment's own limit of 4",
        ),
        (lambda: adapted(Counter(), team_reward="shared"), r"mean or sum, not 'shared'"),
        (
            lambda: adapted(Counter(spaces=(Choices(2), Numbers(0, 1, (1,))))),
            r"all need the same kind",
        ),
        (
            lambda: adapted(Counter(spaces=(Numbers(0, np.inf, (1,)),) * 2)),
            r"agent 'big': .*with bounds",
        ),
    ],
)
def test_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["MPE_simple_spread_v3", "MPE_simple_speaker_listener_v4"])
def test_the_real_one(name):
    jaxmarl = pytest.importorskip("jaxmarl")
    theirs = jaxmarl.make(name)
    with jax.numpy_rank_promotion("allow"):
        env, task, random = adapted(theirs), jnp.uint32(3), np.random.default_rng(0)
        state, obs = env.reset(task, jax.random.key(0))
        observations, inner = theirs.reset(jax.random.key(task))
        for time in range(env.spec.horizon):
            for row, agent in zip(obs, theirs.agents, strict=True):
                np.testing.assert_array_equal(row, np.resize([*observations[agent], *[0] * 20], len(row)))
            key = jax.random.fold_in(jax.random.key(0), time)
            action = jnp.asarray(random.integers(0, 5, env.spec.num_agents), jnp.int32)
            state, outcome = env.step(task, state, action, key)
            actions = {agent: action[i] % theirs.action_space(agent).n for i, agent in enumerate(theirs.agents)}
            observations, inner, rewards, *_ = theirs.step_env(key, inner, actions)
            obs = outcome.obs
            assert float(outcome.reward) == pytest.approx(float(np.mean(list(rewards.values()))), rel=1e-5)
            assert not bool(outcome.terminated)


class Goal(Counter):
    """What it pays depends on the seed that it was made with, in one way or another."""

    def __init__(self, goal):
        super().__init__()
        self.goal, self.action_spaces = goal, self.spaces

    def step_env(self, key, state, actions):
        obs, state, rewards, done, info = super().step_env(key, state, actions)
        near = jnp.sum(jnp.abs(jnp.asarray(self.goal) - state["total"]))
        rewards["big"] = jax.lax.cond(near < 1, lambda: jnp.sum(jnp.asarray(self.goal)), lambda: 0.0)
        return obs, state, rewards, done, info


def of_a_number(seed):
    return Goal(float(seed % 5))


def of_an_array(seed):
    return Goal(np.arange(3.0) + seed % 7)


def of_a_list(seed):
    return Goal(jnp.ones(2) * [0.0, 0.0][seed])


def one_for_all(seed):
    return Goal(np.arange(3.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (of_a_number, "the environment of seed 1 is not that of seed 0; one environment serves all tasks"),
        (of_an_array, "the environment of seed 1 is not that of seed 0; one environment serves all tasks"),
        (of_a_list, r"environment of seed 2147483649: IndexError: list index .*; one environment serves all tasks"),
    ],
)
def test_a_factory_whose_tasks_would_all_be_the_first_is_refused(make, message, capsys):
    with pytest.raises(UsageError, match=message):
        JaxMarlEnvironment(make)
    assert check(f"{__name__}:{make.__name__}", 2, 20, False) == 2
    assert "one environment serves all tasks" in capsys.readouterr().out


def test_a_factory_that_gives_the_same_again_is_not():
    assert JaxMarlEnvironment(one_for_all).spec.horizon == 4
