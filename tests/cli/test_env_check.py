"""`mesax env check`: what fits passes, and each kind of mistake is named with what to do about it."""

import json
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from bridges.environments.test_jaxmarl import Counter
from bridges.environments.toys import Line, Pair, Spoiled
from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import ForeignEnvironment
from mesax.bridges.environments.layout import TeamReward
from mesax.cli.env import check as env_check
from mesax.cli.env.check import load_target
from mesax.cli.env.findings import Finding, about_stage_one
from mesax.cli.parser import main
from mesax.errors import USAGE, UsageError
from mesax.ours.threshold import RelativeThreshold
from mesax.suites.foreign.families import HOW_TO_GIVE_A_HORIZON, environment_of, takes_a_seed


def findings(factory, seeds: int = 2, steps: int = 60) -> list[Finding]:
    return list(env_check._walk(factory, seeds, steps))


def named(found: list[Finding], name: str) -> Finding:
    (one,) = [finding for finding in found if finding.name == name]
    return one


def problems(factory, **settings) -> list[Finding]:
    found = [finding for finding in findings(factory, **settings) if finding.state == "problem"]
    assert all(problem.advice for problem in found if problem.name != "spaces")
    return found


def test_what_fits():
    found = findings(lambda seed: Line(seed, {"small": (2, "terminated")}))
    assert not [finding for finding in found if finding.state == "problem"]
    assert named(found, "kind").detail == "PettingZoo ParallelEnv line_v0"
    assert "2 agents, 5 numbers each (shorter ones padded" in named(found, "as mesax sees").detail
    assert named(found, "determinism").state == "ok"
    assert named(found, "episodes").detail == "6 to 6 steps, 20 truncated; horizon=6 holds them all"
    assert named(found, "leaving").detail.startswith("'small' may leave before the end")
    assert "in 66.7% of random steps, at most 1.5" in named(found, "rewards").detail
    assert named(found, "task seeds").state == "ok" and "steps per second" in named(found, "speed").detail


def test_gymnasium_and_notes():
    found = findings(lambda seed: Pair(), steps=30)
    assert "Gymnasium environment Pair" in named(found, "kind").detail
    assert "all terminate at the same step" in named(found, "episodes").detail
    assert "say truncated" in named(found, "episodes").advice
    assert named(found, "team").state == "ok" and "'shared'" in named(found, "team").detail
    assert named(found, "task seeds").state == "note"


def fallen(seed: int) -> Line:
    return Line(seed, dict.fromkeys(("tall", "small"), (1 + seed % 2, "terminated")))


def endless(seed: int) -> Line:
    return Line(seed, length=10**6)


def uneven(seed: int) -> Line:
    return Line(seed, length=30 if seed % 2 else 20)


def hurried(seed: int) -> Line:
    env = Line(seed)
    env.max_cycles = 4
    return env


def test_how_long_an_episode_may_last():
    """Where random play terminated is no horizon: what nobody says or shows is a problem, for a run refuses it."""
    problem = named(findings(fallen), "episodes")
    assert problem.state == "problem" and "1 to 2 steps" in problem.detail and "is unknown" in problem.detail
    assert problem.advice == HOW_TO_GIVE_A_HORIZON and "max_cycles" in problem.advice
    fits = named(findings(ForeignEnvironment(fallen, 9)), "episodes")
    assert fits.state == "ok" and fits.detail.endswith("; none is longer than 9")


@pytest.mark.parametrize("make", [fallen, endless])
def test_a_run_and_the_check_refuse_the_same(make, capsys):
    target = f"{__name__}:{make.__name__}"
    assert main(["env", "check", target, "--steps", "30"]) == USAGE
    assert re.search(r"problem  episodes .* is unknown", capsys.readouterr().out)
    assert main(["list", "plain", target, "--preset", "smoke"]) == USAGE
    assert "the length of its episodes is unknown" in capsys.readouterr().err


def wider(seed: int) -> Line:
    env = Line(seed)
    env.observation_spaces["tall"] = spaces.Box(-9, 9, (2 + seed % 5,))
    return env


def test_tasks_of_different_sizes_are_told_what_helps():
    (problem,) = problems(wider)
    assert "all tasks need the same agents and spaces" in problem.detail
    assert "spaces of the largest" in problem.advice and "seed % n" not in problem.advice


def unlike(change):
    """Tasks that are not like the first one."""

    def make(seed: int) -> Line:
        env = Line(seed)
        if seed:
            change(env)
        return env

    return make


def set_agents(*names):
    return lambda env: setattr(env, "possible_agents", list(names))


def set_space(kind: str, space: spaces.Space):
    return lambda env: getattr(env, f"{kind}_spaces").update(tall=space)


@pytest.mark.parametrize(
    "change, advice",
    [
        (set_agents("tall"), "the agents of the largest"),
        (set_agents("small", "tall"), "in the same order"),
        (set_space("action", spaces.Discrete(3)), "the action spaces of the largest"),
        (set_space("observation", spaces.Discrete(5)), "the same kind of observation space"),
        (set_space("observation", spaces.Box(-1, 1, (2,))), "the very same observation space, bounds"),
    ],
)
def test_tasks_that_differ_otherwise_are_told_what_helps_there(change, advice):
    (problem,) = problems(unlike(change))
    assert "all tasks need the same agents and spaces" in problem.detail
    assert advice in problem.advice and ("largest" in advice or "largest" not in problem.advice)


def test_agents_with_other_names_are_told_so():
    env = Line(0)
    env.possible_agents = ["tall", "tiny"]
    env.observation_spaces["tiny"], env.action_spaces["tiny"] = env.observation_space("small"), spaces.Discrete(2)
    (problem,) = problems(lambda seed: env if seed else Line(seed))
    assert problem.advice == "give the agents of every task the same names"


def unlike_once(seed: int) -> Line:
    """Only a task that no run would have tried before it began."""
    return unlike(set_agents("tall"))(int(seed == 1))


def test_what_helps_is_said_of_tasks_that_are_only_played():
    (problem,) = problems(unlike_once)
    assert problem.detail.startswith("task seed 1 is not like task seed 0") and "the agents of" in problem.advice


SIX = [5, 3, 8, 1, 9, 2]


def one_of_six(seed: int) -> Line:
    return Line(SIX[seed])


def test_a_factory_for_small_seeds_alone(capsys):
    """Tasks of a run are seeds up to 2**32: the check and the run say so, and how to have six."""
    (problem,) = problems(one_of_six)
    assert problem.name == "factory" and "IndexError" in problem.detail and "seed % n" in problem.advice
    assert main(["list", "plain", f"{__name__}:one_of_six", "--preset", "smoke"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"'{__name__}:one_of_six' cannot be used: making the environment of task seed " in line
    assert "IndexError" in line and "num_tasks=n" in line


def test_a_family_is_checked_as_it_is():
    """With its own number of tasks, and its own reward of the team."""

    def family(num_tasks: int, team_reward: TeamReward = "mean") -> ForeignFamily:
        return ForeignFamily(ForeignEnvironment(one_of_six, 6, team_reward), 6.0, num_tasks=num_tasks)

    two = findings(family(2, "sum"), seeds=3, steps=20)
    assert not [finding for finding in two if finding.state == "problem"]
    assert named(two, "play").detail.startswith("40 random steps on 2 tasks")
    assert (named(two, "team").state, named(two, "team").detail[-9:]) == ("ok", "their sum")
    assert "at most 11" in named(two, "rewards").detail
    (alone,) = problems(family(1))
    (beyond,) = problems(family(7))
    (apart,) = problems(family(2, "shared"), steps=20)
    assert alone.name == "tasks" and "trains on some" in alone.detail
    assert "task seed 6: IndexError" in beyond.detail and "num_tasks=7" in beyond.advice
    assert apart.name == "fault" and "if agents are paid apart" in apart.detail


def test_the_horizon_is_that_of_a_run():
    """Not the longest episode that was seen here: those of other tasks may be longer."""
    found = named(findings(uneven, seeds=1), "episodes")
    assert found.state == "ok" and found.detail == "20 to 20 steps, 3 truncated; horizon=30 holds them all"
    assert environment_of(uneven).horizon == 30
    assert environment_of(hurried).horizon == 4
    note = named(findings(hurried), "episodes")
    assert note.state == "note" and "a run cuts them after 4, before some of them end" in note.detail
    unseen = named(findings(ForeignEnvironment(endless, 50), steps=20), "episodes")
    assert (unseen.state, unseen.detail) == ("ok", "none ended within 20 steps; a run cuts them after 50")


def test_an_environment_without_end_or_reward():
    class Quiet(Line):
        def step(self, actions):
            answer = super().step(actions)
            return answer[0], dict.fromkeys(answer[1], 0.0), *answer[2:]

        def see(self, agent):
            return 100 * super().see(agent) if agent == "tall" else super().see(agent)

    found = findings(lambda seed: Quiet(seed, length=1000), steps=20)
    assert named(found, "episodes").detail.startswith("none ended within 20 steps; a run cuts them after 1000, found")
    assert named(found, "rewards").detail == "none in 40 random steps"
    assert named(found, "stage 1").state == "note" and "all pay 0" in named(found, "stage 1").detail
    assert "'tall' overstep" in named(found, "bounds").detail


class Global(Line):
    """Draws from a generator that all share."""

    def step(self, actions):
        self.place += random.random()
        return super().step(actions)


class SharedSeed(Line):
    """Seeds the generator that all share."""

    def reset(self, seed=None, options=None):
        random.seed(seed)
        return super().reset(seed)

    def step(self, actions):
        self.place += random.random()
        return super().step(actions)


class NoZero(Line):
    def reset(self, seed=None, options=None):
        return super().reset(seed or None)


class Remembering(Line):
    played = 0

    def reset(self, seed=None, options=None):
        self.played += 1
        self.task = 5 if self.played > 60 else self.played
        return super().reset(seed)


NOT_REPEATABLE = {
    "global": (Global, r"the same seeds and actions give another play, from step 1 of episode 1 on", "np_random"),
    "seed 0": (NoZero, r"seed 0 is taken for no seed", "if seed is not None"),
    "used": (Remembering, r"used before plays otherwise than a new one, from step 1 of episode 1 on", "set back"),
    "side by side": (SharedSeed, r"side by side disturb each other", "none in the module"),
}


@pytest.mark.parametrize("name", NOT_REPEATABLE)
def test_not_repeatable(name):
    factory, message, advice = NOT_REPEATABLE[name]
    (problem,) = problems(factory)
    assert problem.name == "determinism" and message in problem.detail and advice in problem.advice


def test_faults_and_spaces():
    def spoil(env, answer):
        answer[1]["tall"] = float("nan")
        return answer

    (problem,) = problems(lambda seed: Spoiled(spoil, inner=Line(seed)))
    assert "step 2: agent 'tall': reward expected a finite number" in problem.detail

    def sequences(seed):
        env = Line(seed)
        env.observation_spaces["tall"] = spaces.Sequence(spaces.Discrete(2))
        return env

    (problem,) = problems(sequences)
    assert "agent 'tall': observations of Sequence" in problem.detail and "pad them" in problem.detail

    def failing(seed):
        raise FileNotFoundError("no such level")

    (problem,) = problems(failing)
    assert "FileNotFoundError: no such level" in problem.detail and "traceback" in problem.advice


def test_factories():
    found = findings(lambda: Line(0), steps=20)
    assert (found[0].state, found[0].name) == ("problem", "factory") and "takes no seed" in found[0].detail
    assert found[-1].name == "speed"  # the rest is told all the same
    only = Line(0)
    (problem,) = problems(lambda seed: only)
    assert "same object twice" in problem.detail
    assert takes_a_seed(lambda seed: None) and not takes_a_seed(lambda: None)
    assert not takes_a_seed(lambda first, second: None)


MODULE = """
import numpy as np
from bridges.environments.toys import Line

make = Line
number = 3

def broken(seed):
    env = Line(seed)
    env.see = lambda agent: np.full(2, np.nan) if agent == "tall" else np.int64(0)
    return env
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    return name


def test_the_command(module, capsys):
    assert main(["env", "check", f"{module}:make", "--steps", "30", "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "factory", "takes", "a", "seed"] and lines[-1].startswith("it fits")
    told = json.loads(last)
    assert told["ok"] and {finding["state"] for finding in told["findings"]} <= {"ok", "note"}


def test_the_command_on_what_does_not_fit(module, capsys):
    assert main(["env", "check", f"{module}:broken", "--steps", "30"]) == 2
    output = capsys.readouterr().out
    assert "found nan" in output and "-> " in output and output.splitlines()[-1] == "does not fit yet: 1 to fix"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("make", "name it as MODULE:ATTRIBUTE"),
        ("folder/own.py:make", "is a file: name the module, folder.own:make"),
        ("/nowhere/own.py:make", "is a file: name the module, own:make, in the directory /nowhere"),
        ("../own:make", "is a path: name the module, own:make, in the directory "),
        ("no_such_module_here:make", "cannot be imported: ModuleNotFoundError"),
        ("{module}:nothing", "has no 'nothing'"),
        ("{module}:number", "is a int, and a function that makes environments, or a task family, was expected"),
    ],
)
def test_bad_targets(module, target, message):
    with pytest.raises(UsageError, match=message):
        load_target(target.format(module=module))


@pytest.mark.parametrize(
    ("option", "value"), [("--seeds", "0"), ("--steps", "1"), ("--seeds", "1001"), ("--steps", "1000000")]
)
def test_bad_numbers(module, option, value, capsys):
    assert main(["env", "check", f"{module}:make", option, value]) == 2
    assert f"mesax: {option} must be at least" in capsys.readouterr().err


def test_random_play_is_the_same_for_all_environments():
    layout = env_check.ForeignEnvironment(Line, 6).layout
    first, second = (layout.random_action(np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_page_shows_what_the_command_says(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
    source = re.search(r"`rooms.py`:\n\n```python\n(.*?)```", page, re.DOTALL)
    shown = re.search(r"\$ mesax env check rooms:make\n(.*?)```", page, re.DOTALL)
    (tmp_path / "rooms.py").write_text(source[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    assert main(["env", "check", "rooms:make"]) == 0

    def without_speed(text: str) -> list[str]:
        return [line for line in text.splitlines() if " speed " not in line]

    assert without_speed(capsys.readouterr().out) == without_speed(shown[1])
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks[1:]:
        if "import jaxmarl" not in block:
            exec(compile(block, "environments.md", "exec"), {})


class Crowded(Line):
    """Starts one of many episodes where the last one ended."""

    def reset(self, seed=None, options=None):
        last = getattr(self, "place", None)
        answer = super().reset(seed)
        if last is not None and seed == 13:
            self.place = last
            return {agent: self.see(agent) for agent in self.agents}, answer[1]
        return answer


def test_what_an_episode_leaves_behind_is_found_though_it_matters_rarely():
    (problem,) = problems(Crowded, steps=100)
    assert re.search(r"reset\(seed=\d+\) twice in one environment gives two different episodes", problem.detail)
    assert re.search(r"agent '\w+' observes \S+, then \S+ at position \d", problem.detail)
    assert "set back all that an episode changes" in problem.advice


class Numbered(Line):
    """Counts in its class, and expects nobody else to count at the same time."""

    count = 0

    def step(self, actions):
        Numbered.count = 0
        for _ in range(200):
            Numbered.count += 1
            if Numbered.count == 100:
                time.sleep(1e-4)  # another thread's turn, however busy the machine is
        self.place += Numbered.count - 200
        return super().step(actions)


def test_threads_that_disturb_each_other(monkeypatch):
    monkeypatch.delenv("MESAX_THREADS", raising=False)
    (problem,) = problems(Numbered, steps=20)
    assert "environments that run in threads" in problem.detail and "MESAX_THREADS=1" in problem.advice
    monkeypatch.setenv("MESAX_THREADS", "1")
    assert problems(Numbered, steps=20) == []


class Compiled(Counter):
    """As JaxMARL has it, with the spaces under their other name too."""

    action_spaces = property(lambda self: self.spaces)


class Impure(Compiled):
    def reset(self, key):
        obs, state = super().reset(key)
        return obs, state | {"total": state["total"] + np.random.default_rng().random()}


def compiled(seed: int) -> Compiled:
    return Compiled()


def impure(seed: int) -> Impure:
    return Impure()


def unlimited(seed: int) -> Compiled:
    return Compiled(max_steps=None)


def test_jaxmarl():
    found = findings(compiled, steps=20)
    assert not [finding for finding in found if finding.state == "problem"]
    assert named(found, "as mesax sees").detail == "2 agents, 4 numbers each, Discrete(num_actions=3), 4 steps"
    assert named(found, "play").detail.endswith("random steps on 2 tasks: finite numbers")
    assert "see something of it from the start" in named(found, "task seeds").detail
    assert named(found, "stage 1").state == "ok" and found[-1].name == "speed"
    (problem,) = problems(impure)
    assert problem.name == "determinism" and "from step 1 on" in problem.detail and "key" in problem.advice
    (problem,) = problems(unlimited)
    assert "names no limit of steps" in problem.detail


def test_stage_1_is_foretold_for_rewards_of_any_sign():
    def told(*rewards: list[float]) -> Finding:
        return about_stage_one([np.array(own) for own in rewards])

    assert "rewards from 0.5 on are high" in told([0.0] * 50 + [0.5], [0.0] * 51).detail
    assert "1 of 102 random steps, on 1 of 2 tasks" in told([0.0] * 50 + [0.5], [0.0] * 51).detail
    assert "rewards from -2 to -1 on, by task, are high" in told([-3.0] * 50 + [-2.0], [-3.0] * 50 + [-1.0]).detail
    assert "all pay -1 (" in told([-1.0] * 9, [-1.0] * 9).detail
    assert "all of a task pay the same" in told([-1.0] * 9, [-2.0] * 9).detail


def test_the_verdict_needs_declared_entities(capsys: pytest.CaptureFixture[str]):
    assert env_check.check("bridges.environments.toys:line", 2, 20, False, verdict_steps=40) == 0
    said = capsys.readouterr().out
    assert "note     verdict       none: the environment does not say which numbers are about what" in said
    assert "entities = mesax.DeclaredEntities(...)" in said


def test_stage_1_is_foretold_by_what_a_family_calls_high():
    rewards = [np.array([0.0] * 90 + [0.5] * 10)]
    assert "rewards from 0.5 on are high (method.threshold.percentile 99)" in about_stage_one(rewards).detail
    said = about_stage_one(rewards, RelativeThreshold(1.0, None))
    assert said.state == "note" and "random steps: none pays 1 (method.threshold.reward 1)" in said.detail
