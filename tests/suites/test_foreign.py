"""Any environment, named module:attribute: found, measured, given presets; what is none of that is one line."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bridges.environments.test_jaxmarl import Counter
from bridges.environments.toys import Line, Pair
from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import ForeignEnvironment
from mesax.bridges.environments.jaxmarl import JaxMarlEnvironment
from mesax.bridges.environments.limits import own_limit
from mesax.cli.parser import main
from mesax.envs.climb import ClimbFamily
from mesax.errors import USAGE, UsageError
from mesax.experiments.catalogue import experiment
from mesax.experiments.names import PRESETS
from mesax.methods.preset import Preset
from mesax.ours.threshold import RelativeThreshold
from mesax.suites import registry
from mesax.suites.base import Suite
from mesax.suites.climb.suite import ClimbSuite
from mesax.suites.foreign import presets
from mesax.suites.foreign.families import ENOUGH_CUTS, environment_of, length_of_a_cut
from mesax.suites.foreign.presets import bins_for, numbers_of_tasks, preset, spread
from mesax.suites.registry import suite_of, suite_of_run
from mesax.training.schedule import Schedule
from mesax.types import Box, Discrete
from own import tiny_meeting

OWN = "own.tiny_meeting"
JAX = ClimbFamily(num_stages=2)
SUITE = ClimbSuite()


def short(seed: int) -> Line:
    return Line(seed, length=4)


def pair(seed: int) -> Pair:
    return Pair()


def counter(seed: int) -> Counter:
    env = Counter()
    env.action_spaces = env.spaces
    return env


def test_a_factory_is_measured():
    family = suite_of(f"{OWN}:make").family(f"{OWN}:make")
    assert family == ForeignFamily(ForeignEnvironment(tiny_meeting.make, 6, "mean"), optimal_return=6.0)
    assert suite_of(f"{OWN}:make").environments.keys() == {f"{OWN}:make"}


def test_a_factory_may_say_how_many_tasks_share_a_layout(monkeypatch):
    monkeypatch.setattr(tiny_meeting.make, "tasks_per_layout", 4, raising=False)
    family = suite_of(f"{OWN}:make").family(f"{OWN}:make")
    assert isinstance(family, ForeignFamily) and family.tasks_per_layout == 4
    train, _ = family.seeds(0, 8, 1)
    assert len(set((train // 4).tolist())) == 2
    monkeypatch.setattr(tiny_meeting.make, "tasks_per_layout", 0)
    with pytest.raises(UsageError, match="tasks-per-layout must lie between 1 and 1000, not 0"):
        suite_of(f"{OWN}:make").family(f"{OWN}:make")


def test_families_and_environments_are_taken_as_they_are():
    assert suite_of(f"{OWN}:FAMILY").family("") is tiny_meeting.FAMILY
    assert suite_of(f"{OWN}:ENVIRONMENT").family("").env is tiny_meeting.ENVIRONMENT
    assert suite_of(f"{__name__}:JAX").family("") is JAX


def test_a_suite_of_ones_own_names_its_environments():
    one = suite_of(f"{__name__}:SUITE:climb-one")
    assert isinstance(one, Suite) and one.name == "climb"
    assert one.family("") == ClimbFamily(num_stages=1)
    assert experiment("plain", f"{__name__}:SUITE:climb-one", "quick") == experiment("plain", "climb-one", "quick")
    with pytest.raises(UsageError, match=r"choose one of .*:SUITE:climb-one, .*:SUITE:climb-multi-mixed"):
        suite_of(f"{__name__}:SUITE")
    with pytest.raises(UsageError, match=r"choose one of .*:SUITE:climb-one"):
        suite_of(f"{__name__}:SUITE:moon")
    with pytest.raises(UsageError, match="is no suite, and has no environment 'x'"):
        suite_of(f"{OWN}:make:x")


def test_a_suite_draws_its_runs_only_if_its_module_was_named_by_the_user():
    run = {"env": f"{__name__}:SUITE:climb-one", "suite": "climb"}
    assert suite_of_run(run) is None
    assert suite_of_run(run, [sys.modules[__name__]]).name == "climb"


def test_packages_of_installed_suites_offer_their_classes(monkeypatch):
    monkeypatch.setattr(registry, "installed", lambda: (SUITE,))
    assert registry.packages_of_suites() == (sys.modules["mesax"],)


class Limited(gymnasium.Env):
    """Says how long it lasts only where Gymnasium says it."""

    observation_space = action_space = spaces.Tuple((spaces.Discrete(2),))


def test_how_long_episodes_are():
    assert own_limit(tiny_meeting.make(0)) == 6
    assert own_limit(gymnasium.wrappers.TimeLimit(Limited(), 37)) == 37
    assert own_limit(object()) is None
    assert length_of_a_cut(short) == 4 and environment_of(short).horizon == 4
    assert isinstance(environment_of(counter), JaxMarlEnvironment) and environment_of(counter).spec.horizon == 4


class Pit(Line):
    """One action of an agent's is fatal; else an episode is cut after 50 steps."""

    def __init__(self, task: int, fatal: tuple[int, ...] = (3,)):
        super().__init__(task, length=50)
        self.fatal = fatal

    def reset(self, seed=None, options=None):
        self.leave = {}
        return super().reset(seed)

    def step(self, actions):
        if int(actions["tall"]) in self.fatal:
            self.leave = dict.fromkeys(self.agents, (0, "terminated"))
        return super().step(actions)


class Doomed(Pit):
    """Terminates after one, two or three steps, whatever is played."""

    def reset(self, seed=None, options=None):
        self.steps_left = 1 + seed % 3
        return super().reset(seed)

    def step(self, actions):
        self.steps_left -= 1
        self.fatal = () if self.steps_left else (0, 1, 2, 3)
        return super().step(actions)


def test_where_an_episode_terminates_is_no_limit():
    assert environment_of(Pit).horizon == 50
    assert environment_of(pair).horizon == 3, "all of its episodes terminate there"
    with pytest.raises(UsageError, match=r"16 terminated, after 1 to 3 steps, and none was cut.*max_cycles") as refused:
        environment_of(Doomed)
    assert "ForeignEnvironment(make, horizon=" in str(refused.value)
    with pytest.raises(UsageError, match="one still went on after 1000 steps"):
        length_of_a_cut(endless)


class Uneven(Pit):
    """Tasks of even seeds are cut after 50 steps, those of odd ones after 80."""

    def __init__(self, task: int):
        super().__init__(task)
        self.length = 80 if task % 2 else 50


class Steady(Uneven):
    """Nothing is fatal."""

    def __init__(self, task: int):
        super().__init__(task)
        self.fatal = ()


class Backwards(Uneven):
    """As uneven, the other way round."""

    def __init__(self, task: int):
        super().__init__(task + 1)


@pytest.mark.parametrize("make", [Uneven, Steady, Backwards])
def test_tasks_may_be_cut_at_different_lengths(make):
    assert length_of_a_cut(make) == 80


def test_few_episodes_are_played_where_all_are_cut_at_once():
    made = []

    def counted(seed: int) -> Line:
        made.append(seed)
        return Line(seed, length=4)

    assert length_of_a_cut(counted) == 4
    assert len(set(made)) == ENOUGH_CUTS


def test_a_run_says_where_it_cuts_episodes(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("mesax.cli.running._execute", lambda *arguments: 0)
    words = ["run", "plain", f"{__name__}:short", "--preset", "smoke", "--out"]
    assert main([*words, str(tmp_path / "said")]) == 0
    said = capsys.readouterr().err
    assert f"episodes of {__name__}:short are cut after 4 steps; " in said
    assert "solved is a return from 3.8 on, for the best is taken to be 4: a reward of 1 at each of 4 steps" in said
    assert main([*words, str(tmp_path / "quiet"), "--quiet"]) == 0
    assert "cut after" not in capsys.readouterr().err


FOUR_STEPS = ForeignEnvironment(short, 4)
KNOWN = ForeignFamily(FOUR_STEPS, optimal_return=4.0)


@pytest.mark.parametrize(
    "name, words, guessed",
    [
        ("short", ["--family.env.horizon", "3"], True),
        ("short", ["--family.suboptimal-return", "1"], True),
        ("FOUR_STEPS", [], True),
        ("short", ["--family.optimal-return", "4"], False),
        ("short", ["--family.optimal_return=4"], False),
        ("short", ["--family.optimal-return", "1"], False),
        ("KNOWN", [], False),
        ("KNOWN", ["--family.env.horizon", "3"], False),
    ],
)
def test_the_best_return_is_a_guess_unless_somebody_has_said_it(name, words, guessed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mesax.cli.running._execute", lambda *arguments: 0)
    named = ["run", "plain", f"{__name__}:{name}", "--preset", "smoke", "--out", str(tmp_path / "run")]
    assert main([*named, *words]) == 0
    assert ("the best is taken to be 4: a reward of 1" in capsys.readouterr().err) == guessed


def endless(seed: int) -> Line:
    return Line(seed, length=10**6)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("make, space", [(short, Discrete(4)), (pair, Box(3)), (counter, Discrete(3))])
def test_presets_fit_any_actions(make, space, name):
    """Every learner and method, as far as can be seen without running it."""
    family = ForeignFamily(environment_of(make), optimal_return=1.0)
    assert family.env.spec.action_space == space
    chosen = preset(family, name)
    assert isinstance(chosen, Preset)
    chosen.mesa.method.check(chosen.mesa)
    for learner in chosen.by_name.values():
        alone = chosen.around(learner).mesa
        experiment_alone = replace(alone, method=_plain())
        experiment_alone.method.check(experiment_alone)
    assert hash(chosen.mesa) == hash(preset(family, name).mesa)


def _plain():
    from mesax.baselines.controls import Plain

    return Plain()


def test_boxes_are_cut_into_few_actions():
    assert [bins_for(size) for size in (1, 2, 3, 4, 9)] == [11, 11, 5, 3, 2]


@dataclass(frozen=True)
class Wide:
    """Observations ten times as large."""

    factor: float

    def __call__(self, seed: int):
        env = tiny_meeting.make(seed)
        see = env.see
        env.see = lambda: {name: np.float32(self.factor) * row for name, row in see().items()}
        env.observation_space = lambda agent: spaces.Box(0, self.factor, (4,), np.float32)
        return env


def test_distances_are_measured_in_units_of_random_play():
    one, ten = (ForeignFamily(ForeignEnvironment(Wide(factor), 6), 6.0) for factor in (1.0, 10.0))
    assert spread(ten) == pytest.approx(10 * spread(one))
    weights = [preset(family, "smoke").mesa.method.reward.features.obs_weight for family in (one, ten)]
    assert weights[0] == pytest.approx(10 * weights[1])


BAD = {
    "no module": ("no_such_module_here:make", "module 'no_such_module_here' cannot be imported: ModuleNotFoundError"),
    "no attribute": (f"{OWN}:makes", "has no 'makes'; did you mean make? it has"),
    "no kind": (f"{OWN}:number", "is a int, and a suite, a task family, an adapted environment, or a function"),
    "no seed": (f"{OWN}:seedless", "cannot be called with one seed, and a suite, a task family"),
    "it leaves": (f"{OWN}:leaves", "cannot be used: making the environment of task seed 0: SystemExit: 3"),
    "no environment": ("builtins:str", "'builtins:str' cannot be used: str is no environment"),
    "no name": (f"{OWN}:nameless", "cannot be used: a partial cannot be a setting (ForeignEnvironment.make); write a"),
    "a file": ("own/tiny_meeting.py:make", "is a file: name the module, own.tiny_meeting:make"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", ["run", "list", "sweep", "check"])
def test_bad_names_are_one_line(name, verb, capsys, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env, message = BAD[name]
    arguments = {
        "run": ["run", "mesa", env, "--preset", "smoke"],
        "list": ["list", "mesa", env],
        "sweep": ["sweep", "--methods", "mesa", "--envs", env, "--preset", "smoke"],
        "check": ["env", "check", env],
    }
    assert main(arguments[verb]) == USAGE
    told = capsys.readouterr()
    if verb != "check":  # which also finds things out, line by line
        (line,) = told.err.splitlines()
        assert message in line
    assert not list(tmp_path.iterdir())


def test_a_factory_that_breaks_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("RING_FAILS", "1")
    environment_of.cache_clear()
    assert main(["run", "plain", f"{OWN}:make", "--preset", "smoke"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "own.tiny_meeting:make' cannot be used" in line and "RuntimeError: the ring is broken" in line


@pytest.mark.parametrize(
    ("total", "expected"), [(None, (12, 4)), (16, (12, 4)), (15, (12, 3)), (5, (4, 1)), (2, (1, 1)), (1, (1, 1))]
)
def test_a_small_family_is_split_as_far_as_it_goes(total: int | None, expected: tuple[int, int]):
    assert numbers_of_tasks(replace(tiny_meeting.FAMILY, num_tasks=total), 12, 4) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_a_small_family_has_every_preset(name: str):
    mesa = preset(replace(tiny_meeting.FAMILY, num_tasks=5), name).mesa
    assert (mesa.num_train_tasks, mesa.num_test_tasks) == (4, 1)


@pytest.mark.parametrize(("paid", "times"), [(0, 4.0), (1, 4.0), (4, 1.0), (5, 1.0), (40, 0.25)])
def test_stage_1_is_longer_where_high_rewards_are_rare(paid: int, times: float):
    """A thousand episodes should meet 30 paid ones: 4 of 100 would be 40, 1 of 100 ten."""
    family = replace(tiny_meeting.FAMILY, env=replace(tiny_meeting.FAMILY.env, horizon=10))
    collect = Schedule(10_000, 4, 1, 9_000)
    assert presets.Probe(100, paid, 1.0).stretch(collect, family) == times
    longer = presets.stretched(collect, times)
    assert (longer.total_steps, longer.warmup_steps) == (times * 10_000, times * 9_000)


def test_what_a_family_calls_high_is_high(monkeypatch):
    """And of a world of one's own each stage's budget is said, with the setting that changes it."""
    monkeypatch.setattr(presets, "probed", lambda family: presets.Probe(100, 20, 2_000.0))
    own = presets.probed_preset(replace(tiny_meeting.FAMILY, high_reward=0.5), "quick").mesa
    assert own.method.threshold == RelativeThreshold(0.5, None)
    given = presets.probed_preset(tiny_meeting.FAMILY, "quick").mesa
    assert given.method.threshold == presets.THRESHOLD
    assert given.method.collect.total_steps == preset(tiny_meeting.FAMILY, "quick").mesa.method.collect.total_steps / 4
    said = presets.budgets(given)
    assert said[0].startswith("of 100 random episodes 20 met")
    settings = ("--method.collect.total-steps", "--method.explore.total-steps", "--schedule.total-steps")
    assert all(setting in line for setting, line in zip(settings, said[1:], strict=True))


def test_a_probe_counts_paid_episodes_once_compiled():
    found = presets.probed(tiny_meeting.FAMILY)
    assert found.episodes == 100 and 0 < found.paid < 100 and found.steps_per_second > 0


def test_jax_is_set_up_before_a_preset_plays_its_first_episodes(monkeypatch):
    """From Python nobody else has done so by then, and a pool of many threads would round otherwise."""
    told = []

    class Played(Exception):
        pass

    def play(*_: object) -> None:
        told.append("play")
        raise Played

    monkeypatch.setattr(presets, "configure", lambda: told.append("configure"))
    monkeypatch.setattr(presets, "play_episodes", play)
    with pytest.raises(Played):
        spread.__wrapped__(ClimbFamily())
    assert told == ["configure", "play"]
