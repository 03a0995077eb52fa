"""Our tasks as PettingZoo environments: its own tests, seeds over hundreds of steps, and back through the adapter."""

import builtins
import importlib
import sys
import warnings

import jax
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from bridges.environments.toys import Line, line
from envs.test_contract import FAMILIES
from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import ForeignEnvironment
from mesax.bridges.environments.pettingzoo_export import episode_keys, parallel_env
from mesax.envs.base import TaskInfo, TaskSplit
from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerFamily, SwimmerTask
from mesax.errors import UsageError
from mesax.types import Discrete, tree_index
from probes import ContinuousGame, ContinuousTask

with warnings.catch_warnings():  # it imports a game of its own in a way of its own that it deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test

STEPS = 500


class Continuous:
    """A family with Box actions, as little of one as is needed here."""

    env = ContinuousGame()

    def split(self, seed, num_train, num_test):
        targets = np.random.default_rng(seed).uniform(-1, 1, (num_train + num_test, 3, 2, 1)).astype(np.float32)
        return TaskSplit(ContinuousTask(targets[:num_train]), ContinuousTask(targets[num_train:]))

    def describe(self, task):
        return TaskInfo("", None, [])


HOST = ForeignFamily(ForeignEnvironment(line, 6), optimal_return=9.0)
SWIMMERS = {
    "swimmer": SwimmerFamily(SwimmerClimb(horizon=40, see_head=False), least_degrees=0.0, published=True),
    "swimmer-wide": SwimmerFamily(SwimmerClimb(horizon=40)),
}
EXPORTED = FAMILIES | {"continuous": Continuous(), "host": HOST} | SWIMMERS


@pytest.mark.parametrize("name", EXPORTED)
def test_pettingzoos_own_test(name, capsys):
    parallel_api_test(parallel_env(EXPORTED[name], 0), num_cycles=100)
    assert "Passed" in capsys.readouterr().out


def trajectory(env, seed: int, steps: int = STEPS):
    """All that is seen in so many steps over several episodes; only the first is seeded."""
    random = np.random.default_rng(0)
    seen = []
    observations, _ = env.reset(seed=seed)
    for _ in range(steps):
        actions = {}
        for agent in env.agents:
            space = env.action_space(agent)
            discrete = hasattr(space, "n")
            actions[agent] = random.integers(space.n) if discrete else random.uniform(-1, 1, space.shape)
        seen.append((observations, *env.step(actions)[1:4]))
        observations = seen[-1][0] if env.agents else env.reset()[0]
    return seen


def flat(seen):
    return np.concatenate([np.ravel(leaf).astype(float) for leaf in jax.tree.leaves(seen)])


@pytest.mark.parametrize("name", EXPORTED)
def test_seeds(name):
    family = EXPORTED[name]
    first = flat(trajectory(parallel_env(family, 3), 0))
    np.testing.assert_array_equal(first, flat(trajectory(parallel_env(family, 3), 0)))
    used = parallel_env(family, 3)
    trajectory(used, 9, 7)
    np.testing.assert_array_equal(first, flat(trajectory(used, 0)))  # nothing is left of what was played before
    if name in ("particles", "host", *SWIMMERS):  # climb games have no chance in them
        assert not np.array_equal(first, flat(trajectory(parallel_env(family, 3), 1)))


@pytest.mark.parametrize("name", [name for name in EXPORTED if name not in ("host", *SWIMMERS)])
def test_round_trip(name):
    """Out to PettingZoo and back through the adapter: the same as the environment itself with the same keys."""
    family = EXPORTED[name]
    env, random = family.env, np.random.default_rng(1)
    spec = env.spec
    foreign = ForeignEnvironment(lambda seed: parallel_env(family, seed), spec.horizon, "shared")
    assert foreign.spec == spec
    batch = foreign.batch(2, 2)
    tasks, seeds = [4, 5], [0, 2**32 - 1]
    rows = batch.reset(np.array(tasks, np.uint32), np.array(seeds, np.uint32))
    own = [tree_index(family.split(task, 1, 0).train, 0) for task in tasks]
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    played = [reset(task, episode_keys(seed, 0)) for task, seed in zip(own, seeds, strict=True)]
    states = [state for state, _ in played]
    np.testing.assert_array_equal(rows, np.stack([obs for _, obs in played]))
    for time in range(1, spec.horizon + 1):
        if isinstance(spec.action_space, Discrete):
            actions = random.integers(0, spec.action_space.num_actions, (2, spec.num_agents)).astype(np.int32)
        else:
            actions = random.uniform(-1, 1, (2, spec.num_agents, spec.action_space.size)).astype(np.float32)
        found = batch.step(actions, np.ones(2, bool))
        for copy in range(2):
            key = episode_keys(seeds[copy], time)
            states[copy], outcome = step(own[copy], states[copy], actions[copy], key)
            np.testing.assert_array_equal(found.obs[copy], outcome.obs)
            assert found.reward[copy] == outcome.reward and found.terminated[copy] == outcome.terminated
            assert found.truncated[copy] == (time == spec.horizon and not outcome.terminated)
        if np.all(found.terminated):
            break


@pytest.mark.parametrize("family", SWIMMERS.values(), ids=SWIMMERS)
def test_round_trip_of_the_swimmer(family):
    """The same through MuJoCo: against a batch of the environment itself with the same seeds."""
    foreign = ForeignEnvironment(lambda seed: parallel_env(family, seed), family.env.horizon, "shared")
    assert foreign.spec == family.env.spec
    tasks, seeds = [4, 5], np.array([0, 2**32 - 1], np.uint32)
    batch, own = foreign.batch(2, 1), family.env.batch(2, 1)
    targets = SwimmerTask(np.array([family.split(task, 1, 0).train.target[0] for task in tasks]))
    np.testing.assert_array_equal(batch.reset(np.array(tasks, np.uint32), seeds), own.reset(targets, seeds))
    random, alive = np.random.default_rng(1), np.ones(2, bool)
    for time in range(1, family.env.horizon + 1):
        actions = random.uniform(-1, 1, (2, 2, 1)).astype(np.float32)
        found, expected = batch.step(actions, alive), own.step(actions, alive)
        np.testing.assert_array_equal(found.obs, expected.obs)
        np.testing.assert_array_equal(found.reward, expected.reward)
        assert found.truncated.tolist() == [time == family.env.horizon] * 2


def test_spaces_and_names():
    env = parallel_env(ParticleClimbFamily(ParticleClimb(horizon=6)), 0)
    assert isinstance(env, ParallelEnv) and str(env) == "mesax_ParticleClimbFamily_v0"
    assert env.possible_agents == ["agent_0", "agent_1"] and env.agents == []
    assert env.action_space("agent_0").n == 5 and env.observation_space("agent_1").shape == (14,)
    assert env.step({}) == ({}, {}, {}, {}, {})
    observations, infos = env.reset(seed=0)
    assert all(env.observation_space(agent).contains(observations[agent]) for agent in env.agents)
    assert infos == {"agent_0": {}, "agent_1": {}}
    for _ in range(6):
        *_, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 0))
    assert not any(terminated.values()) and all(truncated.values()) and env.agents == []
    env.close()


def test_a_task_that_is_over_is_terminated():
    env = parallel_env(ClimbFamily(), 0)
    env.reset(seed=0)
    _, rewards, terminated, truncated, _ = env.step({"agent_0": 1, "agent_1": 2})
    assert len(set(rewards.values())) == 1 and all(terminated.values()) and not any(truncated.values())


def test_a_host_environments_own_truncation_is_passed_on():
    def make(seed: int) -> Line:
        return Line(seed, length=2)

    env = parallel_env(ForeignFamily(ForeignEnvironment(make, 6), 9.0), 0)
    env.reset(seed=0)
    env.step({"agent_0": 0, "agent_1": 0})
    _, _, terminated, truncated, _ = env.step({"agent_0": 0, "agent_1": 0})
    assert all(truncated.values()) and not any(terminated.values())
    env.close()


def test_options_choose_the_task():
    family = ClimbFamily()
    pays = {}
    env = parallel_env(family, 0)
    for seed in range(4):
        for task in (seed, tree_index(family.split(seed, 1, 0).train, 0)):
            env.reset(seed=0, options={"task": task})
            special = int(family.split(seed, 1, 0).train.special[0, 0])
            count = int(family.split(seed, 1, 0).train.count[0, 0])
            actions = {"agent_0": special, "agent_1": special if count == 2 else (special + 1) % 10}
            pays.setdefault(seed, []).append(env.step(actions)[1]["agent_0"])
    assert all(values == [1.0, 1.0] for values in pays.values())
    env.reset()
    assert env.step(actions)[1]["agent_0"] == 1.0  # the task stays


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda env: env.step({"agent_0": 0}), r"agent 'agent_1': an action expected, found none"),
        (lambda env: env.step({"agent_0": 0, "agent_1": 10}), r"agent 'agent_1': an action of Discrete\(10\)"),
        (lambda env: env.step({"agent_0": 0.5, "agent_1": 1}), r"agent 'agent_0': an integer expected"),
        (lambda env: env.reset(seed=-1), r"seed must lie between 0 and 4294967295, not -1"),
        (lambda env: env.reset(options={"task": -2}), r"must not be negative"),
        (lambda env: env.render(), r"mesax render"),
    ],
)
def test_refused(act, message):
    env = parallel_env(ClimbFamily(), 0)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=message):
        act(env)


def test_without_pettingzoo(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("pettingzoo"):
            raise ImportError(f"No module named '{name}'")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "mesax.bridges.environments.pettingzoo_export")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match=r"pip install 'mesax\[envs\]'"):
        importlib.import_module("mesax.bridges.environments.pettingzoo_export")
