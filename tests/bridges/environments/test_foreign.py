"""Environments of PettingZoo and Gymnasium through the adapter: arrays, ends, threads, and faults in words."""

import functools
import re
import sys
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from mpe2 import simple_speaker_listener_v4, simple_spread_v3
from pettingzoo.utils import BaseWrapper

from bridges.environments.toys import Line, Pair, Spoiled, line
from mesax.bridges.environments import layout as layout_module
from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import IDLE_PER_COPY, ForeignEnvironment
from mesax.bridges.environments.layout import AgentLayout
from mesax.envs.base import HostEnvironment
from mesax.envs.host import EnvironmentFault
from mesax.envs.structure import layouts_of
from mesax.errors import UsageError
from mesax.ours.entities import Block, DeclaredEntities
from mesax.types import Box, Discrete


def lines(**settings) -> ForeignEnvironment:
    return ForeignEnvironment(functools.partial(Line, **settings), horizon=6)


def started(env: ForeignEnvironment, task: int = 0, seed: int = 0):
    batch = env.batch(1, 1)
    return batch, batch.reset(np.array([task], np.uint32), np.array([seed], np.uint32))


def play(env: ForeignEnvironment, tasks, seeds, threads: int = 1, steps: int = 6):
    """Everything that a batch gives back under the same random actions, episode by episode."""
    random = np.random.default_rng(0)
    number, spec = len(tasks), env.spec
    batch = env.batch(number, threads)
    record = [batch.reset(np.array(tasks, np.uint32), np.array(seeds, np.uint32))]
    alive = np.ones(number, bool)
    for _ in range(steps):
        if isinstance(spec.action_space, Discrete):
            actions = random.integers(0, spec.action_space.num_actions, (number, spec.num_agents))
        else:
            actions = random.uniform(-1, 1, (number, spec.num_agents, spec.action_space.size)).astype(np.float32)
        outcome = batch.step(actions, alive)
        record.extend(outcome)
        alive &= ~outcome.terminated & ~outcome.truncated
    batch.close()
    return record


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_different_sizes_are_padded():
    env = ForeignEnvironment(line, horizon=6)
    assert isinstance(env, HostEnvironment)
    assert (env.spec.num_agents, env.spec.obs_size, env.spec.action_space) == (2, 5, Discrete(4))
    batch, obs = started(env)
    assert (obs.shape, obs.dtype) == ((1, 2, 5), np.float32)
    assert not obs[0, 0, 2:].any()
    np.testing.assert_array_equal(obs[0, 1], [1, 0, 0, 0, 0])  # Discrete is seen as one-hot
    outcome = batch.step(np.array([[3, 3]]), np.ones(1, bool))
    np.testing.assert_array_equal(outcome.obs[0, 1], [0, 1, 0, 0, 0])
    running = batch._running[0].env
    assert running.received == [{"tall": 3, "small": 2}]  # 3 modulo two actions, which start at 1
    assert outcome.reward == 0.5 and [part.dtype for part in outcome[1:]] == [np.float32, bool, bool]


@pytest.mark.parametrize(("rule", "expected"), [("mean", 2.5), ("sum", 5.0)])
def test_team_reward(rule, expected):
    batch, _ = started(ForeignEnvironment(line, 6, rule), task=2)
    assert batch.step(np.zeros((1, 2), int), np.ones(1, bool)).reward[0] == expected


def test_shared_reward_is_insisted_on():
    batch, _ = started(ForeignEnvironment(line, 6, "shared"), task=2)
    with pytest.raises(EnvironmentFault, match=r"step 1: agent 'small': reward expected 2.0 .*found 3.0"):
        batch.step(np.zeros((1, 2), int), np.ones(1, bool))


CUT, OVER = "truncated", "terminated"
ENDS = {
    "one leaves early": ({"small": (2, OVER)}, 6, CUT),
    "one is cut early, the last terminates": ({"small": (2, CUT), "tall": (4, OVER)}, 4, OVER),
    "both terminate together": ({"small": (3, OVER), "tall": (3, OVER)}, 3, OVER),
    "together, one cut": ({"small": (3, OVER), "tall": (3, CUT)}, 3, CUT),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends(name):
    leave, length, how = ENDS[name]
    batch, _ = started(lines(leave=leave))
    for time in range(1, length + 1):
        outcome = batch.step(np.ones((1, 2), int), np.ones(1, bool))
        gone = {agent for agent, (step, _) in leave.items() if time > step}
        for row, agent in enumerate(("tall", "small")):
            assert outcome.obs[0, row].any() == (agent not in gone)
        assert set(batch._running[0].env.received[-1]) == {"tall", "small"} - gone
        if time > leave.get("small", (9,))[0]:
            assert outcome.reward[0] == 0.0  # tall's 0 alone, over both
    assert (bool(outcome.terminated[0]), bool(outcome.truncated[0])) == (how == OVER, how == CUT)


def test_threads_change_nothing_and_dead_copies_are_not_stepped():
    env = lines(leave={"small": (2, OVER), "tall": (4, OVER)})
    tasks, seeds = [0, 1, 0, 2, 7], [3, 0, 3, 1, 2]
    record = play(env, tasks, seeds)
    assert_same(record, play(env, tasks, seeds, threads=3))
    last = record[-4:]
    assert all(np.all(np.isfinite(part)) and not part.any() for part in last)  # all were over by then


def test_environments_are_used_again_and_closed():
    made = []

    def make(seed: int) -> Line:
        made.append(Line(seed))
        return made[-1]

    batch = ForeignEnvironment(make, 6).batch(2, 1)
    first = batch.reset(np.array([0, 1]), np.array([5, 6]))
    number = len(made)
    again = batch.reset(np.array([1, 0]), np.array([6, 5]))
    np.testing.assert_array_equal(first, again[::-1])
    assert len(made) == number
    for task in range(20):
        batch.reset(np.array([2 * task, 2 * task + 1]), np.array([0, 0]))
    assert sum(not env.closed for env in made) <= 2 + 2 * IDLE_PER_COPY
    batch.close()
    assert all(env.closed for env in made)


def test_flags_may_be_arrays_without_axes():
    class Arrays(Pair):
        def step(self, action):
            obs, reward, *flags, info = super().step(action)
            return obs, reward, *(tuple(np.asarray(flag) for flag in each) for each in flags), info

    batch, _ = started(ForeignEnvironment(lambda seed: Arrays(None, "team", "own"), 3))
    actions = np.zeros((1, 2, 3), np.float32)
    ended = [bool(batch.step(actions, np.ones(1, bool)).terminated[0]) for _ in range(3)]
    assert ended == [False, False, True]


def test_an_environment_that_ends_the_program_is_a_fault():
    def leave(env, answer):
        sys.exit()

    batch, _ = started(ForeignEnvironment(lambda seed: Spoiled(leave), 6))
    with pytest.raises(EnvironmentFault, match=r"step 2: step raised SystemExit"):
        for _ in range(2):
            batch.step(np.zeros((1, 2), np.int32), np.ones(1, bool))


def test_an_environment_that_cannot_show_itself_says_so_and_is_closed():
    made = []

    class Blind(Line):
        render_mode = "rgb_array"

        def render(self):
            raise RuntimeError("no display")

    env = ForeignEnvironment(lambda seed: made.append(Blind(seed)) or made[-1], 6)
    with pytest.raises(EnvironmentFault, match=r"render raised RuntimeError: no display"):
        env.film(0, 3, np.zeros((2, 2), np.int32))
    assert all(one.closed for one in made)


def test_seed_zero_is_a_seed():
    seen = []

    class Noted(Line):
        def reset(self, seed=None, options=None):
            seen.append(seed)
            return super().reset(seed)

    started(ForeignEnvironment(Noted, 6), seed=0)
    assert seen == [0] and type(seen[0]) is int


@pytest.mark.parametrize("names", [None, ("left", "right")])
@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("flags", ["team", "own"])
def test_gymnasium(names, reward, flags):
    env = ForeignEnvironment(lambda seed: Pair(names, reward, flags), 3, "mean" if reward == "own" else "sum")
    assert (env.spec.obs_size, env.spec.action_space) == (4, Box(3))
    batch, obs = started(env)
    assert obs[0, 0, 2:].tolist() == [1, 0] and obs[0, 1].tolist() == [1, 0, 0, 0]
    actions = np.array([[[-1.0, 0.3, 0.3], [1.0, 0.0, -0.5]]], np.float32)
    for time in range(1, 4):
        outcome = batch.step(actions, np.ones(1, bool))
        assert bool(outcome.terminated[0]) == (time == 3) and not outcome.truncated[0]
        expected = 3.0 if reward == "team" else 2.5 if flags == "team" or time < 3 else 2.0
        assert outcome.reward[0] == expected  # one number for the team counts once, whatever the rule
    received = batch._running[0].env.env.received[0]
    left, right = received if names is None else (received["left"], received["right"])
    assert left.tolist() == [-2.0] and right.tolist() == [1.0, 1.0, 1.0]
    if flags == "own":  # who has left gets something neutral
        last = batch._running[0].env.env.received[-1]
        assert (last[0] if names is None else last["left"]).tolist() == [0.0]


@pytest.mark.filterwarnings("ignore:pkg_resources")
@pytest.mark.parametrize("module", [simple_spread_v3, simple_speaker_listener_v4])
def test_mpe2(module):
    def make(seed: int):
        return module.parallel_env(max_cycles=10)

    env = ForeignEnvironment(make, 25)
    sizes = {simple_spread_v3: (3, 18, 5), simple_speaker_listener_v4: (2, 11, 5)}[module]
    assert (env.spec.num_agents, env.spec.obs_size, env.spec.action_space.num_actions) == sizes
    record = play(env, [0, 1], [4, 5], steps=10)
    assert_same(record, play(env, [0, 1], [4, 5], threads=2, steps=10))
    assert record[-1].all() and not record[-2].any()  # mpe2 cuts, it does not terminate

    direct = make(0)
    observations, _ = direct.reset(seed=4)
    for row, agent in zip(record[0][0], direct.possible_agents, strict=True):
        np.testing.assert_array_equal(row[: len(observations[agent])], observations[agent])
    random = np.random.default_rng(0)
    for time in range(10):
        rows = random.integers(0, 5, (2, len(direct.possible_agents)))[0]
        actions = {a: int(row) % direct.action_space(a).n for a, row in zip(direct.possible_agents, rows, strict=True)}
        observations, rewards, *_ = direct.step(actions)
        for row, agent in zip(record[1 + 4 * time][0], direct.possible_agents, strict=True):
            np.testing.assert_array_equal(row[: len(observations[agent])], observations[agent])
        assert record[2 + 4 * time][0] == np.float32(np.mean(list(rewards.values())))


def changed(part: int, agent: str, value):
    """Puts a value into one part of what step returns."""

    def how(env, answer):
        answer[part][agent] = value
        return answer

    return how


def without(part: int, agent: str):
    def how(env, answer):
        del answer[part][agent]
        return answer

    return how


def renamed(env, answer):
    env.agents = ["tall", "tiny"]
    return answer


def vanished(env, answer):
    env.agents = ["tall"]
    return answer


def raising(env, answer):
    raise ZeroDivisionError("the wheel came off")


FAULTS = {
    "raises": (raising, r"step raised ZeroDivisionError: the wheel came off"),
    "NaN": (changed(0, "tall", np.array([0, np.nan])), r"agent 'tall': .*expected finite.*found nan at position 1"),
    "infinite": (
        changed(0, "tall", np.array([np.inf, 0])),
        r"agent 'tall': .*expected finite.*found inf at position 0",
    ),
    "too large": (changed(0, "tall", np.array([1e200, 0])), r"agent 'tall': .*within float32, found inf"),
    "shape": (changed(0, "tall", np.zeros(3)), r"agent 'tall': .*expected shape \(2,\), found shape \(3,\)"),
    "dtype": (changed(0, "tall", np.array(["a", "b"])), r"agent 'tall': .*expected dtype float32, found dtype <U1"),
    "ragged": (changed(0, "tall", [[1.0], [1.0, 2.0]]), r"agent 'tall': .*expected shape \(2,\), found \[\[1.0\]"),
    "no member": (changed(0, "small", np.int64(-1)), r"agent 'small': .*a value of Discrete\(5\), found .*-1"),
    "no observation": (without(0, "small"), r"agent 'small': observation expected, found none.*\['tall'\]"),
    "no reward": (without(1, "small"), r"agent 'small': reward expected, found none"),
    "no flag": (without(3, "tall"), r"agent 'tall': truncated expected, found none"),
    "reward NaN": (changed(1, "tall", float("nan")), r"agent 'tall': reward expected a finite number.*found nan"),
    "reward no number": (changed(1, "tall", None), r"agent 'tall': reward expected a number, found None of type None"),
    "reward array": (changed(1, "tall", np.zeros(1)), r"agent 'tall': reward expected a number, found array"),
    "flag": (changed(2, "tall", "no"), r"agent 'tall': terminated expected True or False, found 'no' of type str"),
    "renamed": (renamed, r"agent 'small': expected in agents or flagged.*\['tall', 'tiny'\]"),
    "vanished": (vanished, r"agent 'small': expected in agents or flagged as over, found neither"),
    "old interface": (lambda env, answer: answer[:4], r"step expected 5 values .*found 4 values"),
    "no dict": (
        lambda env, answer: ([1], *answer[1:]),
        r"observation expected a dict by agent, found \[1\] of type list",
    ),
    "None": (lambda env, answer: None, r"step expected 5 values .*found None"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_the_place(name, threads):
    how, message = FAULTS[name]

    def make(seed: int):
        return Spoiled(how, inner=Line(seed))

    batch = ForeignEnvironment(make, 6).batch(2, threads)
    batch.reset(np.array([9, 9], np.uint32), np.array([4, 5], np.uint32))
    actions, alive = np.zeros((2, 2), int), np.ones(2, bool)
    batch.step(actions, alive)
    with pytest.raises(EnvironmentFault) as caught:
        batch.step(actions, alive)
    text = str(caught.value)
    assert text.startswith("task seed 9, episode seed 4, step 2: ") and "\n" not in text
    assert re.search(message, text), text


def test_a_fault_names_the_line_of_the_user():
    """Not that of NumPy, where it was raised, nor one of mesax; and none if there is none."""

    def cubed(env, answer):
        return np.reshape(answer[0]["tall"], (3, 3, 3))

    def failing(seed: int):
        return int("no number")

    line = cubed.__code__.co_firstlineno + 1
    with pytest.raises(EnvironmentFault, match=rf"step raised ValueError: .* \(test_foreign\.py:{line}\)$") as caught:
        batch, _ = started(ForeignEnvironment(lambda seed: Spoiled(cubed), 6))
        for _ in range(2):
            batch.step(np.zeros((1, 2), int), np.ones(1, bool))
    assert isinstance(caught.value.__cause__, ValueError)
    line = failing.__code__.co_firstlineno + 1
    with pytest.raises(EnvironmentFault, match=rf"task seed 0: ValueError: .* \(test_foreign\.py:{line}\)$"):
        _ = ForeignEnvironment(failing, 6).spec
    with pytest.raises(EnvironmentFault, match=r"task seed 0: TypeError: 'int' object is not iterable$"):
        _ = ForeignEnvironment(iter, 6).spec


RESET_FAULTS = {
    "raises": (raising, r"reset raised ZeroDivisionError: the wheel came off"),
    "no infos": (lambda env, answer: answer[0], r"reset expected \(observations, infos\), found \{'tall'"),
    "agents": (renamed, r"agents expected \['tall', 'small'\], found \['tall', 'tiny'\]"),
    "no observation": (without(0, "small"), r"agent 'small': observation expected, found none"),
    "NaN": (changed(0, "tall", np.array([0, np.nan])), r"agent 'tall': .*found nan at position 1"),
}


@pytest.mark.parametrize("name", RESET_FAULTS)
def test_faults_of_reset(name):
    how, message = RESET_FAULTS[name]
    with pytest.raises(EnvironmentFault, match=r"^task seed 0, episode seed 8, step 0 \(reset\): " + message):
        started(ForeignEnvironment(lambda seed: Spoiled(how, when=0), 6), seed=8)


def test_tasks_must_be_alike_and_makeable():
    def longer(seed: int):
        env = Line(seed)
        if seed:
            env.observation_spaces["tall"] = spaces.Box(-9, 9, (7,))
        return env

    with pytest.raises(
        EnvironmentFault, match=r"task seed 5 .*agent 'tall': expected observation space .*2.*found .*7"
    ):
        started(ForeignEnvironment(longer, 6), task=5)

    def failing(seed: int):
        raise KeyError("no such map")

    with pytest.raises(EnvironmentFault, match=r"making the environment of task seed 0: KeyError: 'no such map'"):
        _ = ForeignEnvironment(failing, 6).spec


def with_spaces(observation=None, action=None):
    def make(seed: int):
        env = Line(seed)
        if observation is not None:
            env.observation_spaces["small"] = observation
        if action is not None:
            env.action_spaces["small"] = action
        return env

    return make


REFUSED = {
    "sequence": (with_spaces(spaces.Sequence(spaces.Discrete(2))), r"agent 'small': observations of Sequence.*pad"),
    "multi": (with_spaces(action=spaces.MultiDiscrete([2, 3])), r"agent 'small': actions.*MultiDiscrete.*one Discrete"),
    "whole numbers": (with_spaces(action=spaces.Box(0, 3, (1,), np.int32)), r"agent 'small': actions must be Discrete"),
    "mixed": (with_spaces(action=spaces.Box(-1, 1, (1,))), r"'tall' has Discrete actions and agent 'small' Box"),
    "no bounds": (with_spaces(action=spaces.Box(-np.inf, 1, (1,))), r"agent 'small': .*no bounds.*finite low and high"),
    "no space": (with_spaces(action="left or right"), r"agent 'small': its action space is a builtins.str"),
    "single agent": (lambda seed: _single(), r"both be Tuple, or both Dict.*Tuple\(\(space,\)\)"),
    "turns": (lambda seed: InTurns(simple_spread_v3.env()), r"turn-based .*no parallel form"),
    "nothing": (lambda seed: object(), r"object is no environment: it has no reset and no step"),
}


class InTurns(BaseWrapper):
    metadata: ClassVar = {"name": "in_turns", "is_parallelizable": False}


def test_a_turn_based_environment_is_played_all_at_once():
    env = ForeignEnvironment(lambda seed: simple_spread_v3.env(N=2, max_cycles=3), 3)
    same = ForeignEnvironment(lambda seed: simple_spread_v3.parallel_env(N=2, max_cycles=3), 3)
    outcomes = []
    for one in (env, same):
        running = one.open(0)
        running.reset(5)
        outcomes.append([running.step(np.array([1, 2])) for _ in range(3)])
    for left, right in zip(*outcomes, strict=True):
        np.testing.assert_allclose(left.obs, right.obs)
        assert (left.terminated, left.truncated) == (right.terminated, right.truncated)


def _single():
    env = Pair()
    env.observation_space = env.observation_space[1]
    return env


@pytest.mark.parametrize("name", REFUSED)
def test_refused_spaces(name):
    make, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        _ = ForeignEnvironment(make, 6).spec


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"make": 3}, "make must be a function"),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"team_reward": "max"}, "team-reward must be one of mean, sum, shared, not 'max'"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        ForeignEnvironment(**({"make": line, "horizon": 6} | settings))


def test_without_gymnasium(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(layout_module, "import_module", missing)
    with pytest.raises(UsageError, match=r"pip install 'mesax\[envs\]'"):
        _ = ForeignEnvironment(functools.partial(Line), 6).spec  # a new value: spaces are read once per value


def test_action_repeat_works_on_it():
    from mesax.envs.host import HostActionRepeat

    env = HostActionRepeat(ForeignEnvironment(line, 6), 2)
    batch = env.batch(1, 1)
    batch.reset(np.array([2]), np.array([0]))
    outcome = batch.step(np.zeros((1, 2), int), np.ones(1, bool))
    assert outcome.reward[0] == 5.0 and env.spec.horizon == 3


finite = st.floats(-1e6, 1e6, width=32)


@given(
    bounds=st.lists(st.tuples(finite, finite).map(sorted), min_size=1, max_size=4),
    row=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
)
def test_rescaled_actions_are_of_their_space(bounds, row):
    low, high = (np.array([pair[side] for pair in bounds], np.float32) for side in (0, 1))
    space = spaces.Box(low, high)
    agent = AgentLayout("a", None, space, 0, len(bounds))
    action = agent.foreign(np.array(row, np.float32))
    assert space.contains(action)
    rounding = 1e-7 * float(np.max(high.astype(float) - low)) + 1e-30
    np.testing.assert_allclose(agent.foreign(-np.ones(4)), low, rtol=0, atol=rounding)
    np.testing.assert_allclose(agent.foreign(np.ones(4)), high, rtol=0, atol=rounding)
    unit = AgentLayout("a", None, spaces.Box(-1, 1, (4,)), 0, 4)
    np.testing.assert_array_equal(unit.foreign(np.array(row, np.float32)), np.array(row, np.float32))


@given(number=st.integers(1, 9), start=st.integers(-3, 3), action=st.integers(0, 40))
def test_surplus_actions_are_of_their_space(number, start, action):
    space = spaces.Discrete(number, start=start)
    foreign = AgentLayout("a", None, space, 0, number).foreign(np.int64(action))
    assert space.contains(foreign)
    assert action >= number or foreign == action + start


@pytest.mark.parametrize("maps", range(2, 9))
def test_a_few_maps_by_seed_modulo_are_all_trained_and_tested_on(maps: int):
    for seeds in ForeignFamily(ForeignEnvironment(line, 6), 9.0).seeds(0, 100, 100):
        assert set(seeds % maps) == set(range(maps)) and seeds.max() < 2**32


def test_more_seeds_keep_those_that_came_before():
    family = ForeignFamily(ForeignEnvironment(line, 6), 9.0)
    few, many = (family.draw_seeds(3, 0, number) for number in (5, 20))
    assert many[:5].tolist() == few.tolist() and len(set(many)) == 20


@pytest.mark.parametrize("num_tasks", [None, 60])
def test_tasks_that_share_a_layout_follow_each_other(num_tasks: int | None):
    family = ForeignFamily(ForeignEnvironment(line, 6), 9.0, num_tasks=num_tasks, tasks_per_layout=6)
    train, test = family.seeds(0, 20, 12)
    layouts = train // 6
    assert layouts.tolist() == np.repeat(layouts[::6], 6)[:20].tolist() and len(set(layouts)) == 4
    assert sorted(test % 6) == sorted([*range(6)] * 2) and not set(layouts) & set(test // 6)
    np.testing.assert_array_equal(layouts_of(family, 20), np.arange(20) // 6)
    with pytest.raises(UsageError, match="num-tasks 10 is no multiple of tasks-per-layout 6"):
        replace(family, num_tasks=10)


def test_an_environment_declares_its_entities():
    declared = DeclaredEntities(Block(0, 1, 1))

    def declaring(seed: int) -> object:
        env = line(seed)
        env.entities = declared
        return env

    env = ForeignEnvironment(declaring, 6)
    assert DeclaredEntities.of(env, env.spec) == declared
    silent = ForeignEnvironment(line, 6)
    assert not DeclaredEntities.of(silent, silent.spec).is_declared(silent.spec)


def test_family():
    family = ForeignFamily(ForeignEnvironment(line, 6), optimal_return=9.0, suboptimal_return=3.0)
    split = family.split(0, 50, 20)
    train, test = np.asarray(split.train), np.asarray(split.test)
    assert (train.dtype, train.shape, test.shape) == (np.uint32, (50,), (20,))
    assert len(set(train) | set(test)) == 70
    np.testing.assert_array_equal(family.split(0, 50, 3).train, train)
    assert set(np.asarray(family.split(1, 50, 3).train)) != set(train)
    assert len(family.split(0, 0, 2).train) == 0
    assert family.suboptimal_return < family.optimal_threshold < family.optimal_return
    assert family.describe(split.train[0]).label == f"seed {train[0]}"
    assert int(family.configuration(None)) == -1 and family.rewarding_configurations(split.train) is None
    assert family.groups == () and family.breakdown(split.train[0], np.ones(6)) == {}
    assert family.facts()["num_agents"] == 2 and hash(family) is not None
    assert float(family.score(np.ones(6, np.float32))) == 6.0


def test_family_of_so_many_tasks():
    truth = {"configuration_of": lambda transition: 0, "rewarding": lambda seeds: seeds // 2}
    family = ForeignFamily(ForeignEnvironment(line, 6), 9.0, num_tasks=10, **truth)
    split = family.split(3, 6, 4)
    assert sorted([*np.asarray(split.train), *np.asarray(split.test)]) == list(range(10))
    np.testing.assert_array_equal(family.split(3, 6, 1).train, split.train)
    assert len(family.rewarding_configurations(split.train)) <= 5
    with pytest.raises(UsageError, match="has 10 tasks, fewer than 8"):
        family.split(0, 8, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimal_return": 0.0}, "must not be 0"),
        ({"optimal_return": float("nan")}, "finite"),
        ({"optimal_return": -1.0}, "suboptimal-return 0.0 must be below optimal-return -1.0"),
        ({"num_tasks": 0}, "num-tasks must be at least 1"),
    ],
)
def test_refused_families(settings, message):
    with pytest.raises(UsageError, match=message):
        ForeignFamily(**({"env": ForeignEnvironment(line, 6), "optimal_return": 9.0} | settings))
