"""A user's own family and environment: what breaks the contract is one line, before anything runs."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hosted import Hosted
from mesax.baselines.controls import Plain
from mesax.cli.env import families as family_check
from mesax.cli.env.check import load_target
from mesax.cli.parser import main
from mesax.envs.base import PlainFamily, Step, TaskInfo, TaskSplit
from mesax.envs.contract import OF_A_FAMILY, check_family, split_of
from mesax.errors import USAGE, UsageError
from mesax.execution.run_experiment import run_experiment
from mesax.methods.base import Experiment
from mesax.policy import UniformPolicy
from mesax.suites.foreign.presets import numbers_of_tasks
from mesax.suites.registry import environments, suite_of
from mesax.training.rollout import play
from mesax.types import Discrete, EnvSpec
from methods.helpers import TINY, TINY_MADDPG

pytestmark = pytest.mark.usefixtures("unchecked")


@dataclass(frozen=True)
class Ring:
    """Two agents walk on a ring and are paid on a secret cell; one part of it may be spoiled."""

    spoiled: str = ""
    by: Any = None

    @property
    def spec(self) -> EnvSpec:
        return self.of("spec", EnvSpec(2, 3, Discrete(3), 4))

    def of(self, part: str, value: Any) -> Any:
        return self.by(value) if part == self.spoiled else value

    def see(self, where: Any) -> Any:
        return jax.nn.one_hot(where, 3)

    def reset(self, task: Any, key: Any) -> Any:
        where = jnp.zeros(2, jnp.int32)
        return self.of("reset", (self.of("state", where), self.of("first obs", self.see(where))))

    def step(self, task: Any, where: Any, action: Any, key: Any) -> Any:
        where = (where + action - 1) % 3
        obs, reward = self.of("obs", self.see(where)), self.of("reward", jnp.all(where == task).astype(jnp.float32))
        outcome = Step(obs, reward, self.of("terminated", jnp.asarray(False)))
        return self.of("new state", where), self.of("outcome", outcome)


@dataclass(frozen=True)
class Meetings(PlainFamily):
    """The cell is the task."""

    env: Any = Ring()
    num_tasks = 3
    optimal_return, suboptimal_return, optimal_threshold, high_reward = 4.0, 0.0, 2.0, 1.0

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        cells = jnp.arange(3)
        return TaskSplit(cells[:num_train], cells[num_train : num_train + num_test])

    def describe(self, task: Any) -> TaskInfo:
        return TaskInfo(f"cell {int(task)}", None, [[int(task)]])


@dataclass(frozen=True)
class Lacking:
    """A family that has only what was once looked for."""

    inner: Meetings = Meetings()

    def __getattr__(self, name: str) -> Any:
        if name in ("high_reward", "configuration", "rewarding_configurations", "num_tasks"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True, eq=False)
class Mutable:
    """Compared by value, but not hashable."""

    inner: Meetings = field(default_factory=Meetings)
    __hash__ = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def ints(value: Any) -> Any:
    return value.astype(jnp.int32)


def twice(value: Any) -> Any:
    return jnp.stack([value, value])


def shorter(value: Any) -> Any:
    return value[:, :-1]


def branching(value: Any) -> Any:
    return value if value.sum() > 0 else -value


FAMILY, PER_AGENT = Meetings(), Meetings(Ring("reward", twice))
BAD = {
    "other obs at the reset": (
        Ring("first obs", shorter),
        r"Ring.reset gives observations float32\[2, 2\], but its",
    ),
    "other obs": (
        Ring("obs", shorter),
        r"float32\[2, 2\], but its spec says float32\[2, 3\]",
    ),
    "obs by name": (Ring("obs", lambda obs: {"all": obs}), "Ring.step gives observations a dict, but its spec says"),
    "rewards by agent": (Ring("reward", twice), r"Ring.step gives a reward float32\[2\]: it must be one number"),
    "terminated as a number": (Ring("terminated", ints), r"terminated int32\[\]: it must be one bool"),
    "terminated by agent": (Ring("terminated", twice), r"terminated bool\[2\]: it must be one bool"),
    "no step": (Ring("outcome", lambda step: (step.obs, step.reward)), "gives a tuple without obs, reward, terminated"),
    "no pair": (Ring("reset", lambda pair: pair[1]), r"Ring.reset gives a \w+: it must give \(state, obs\)"),
    "another state": (
        Ring("new state", lambda w: w * 1.0),
        r"Ring.step gives state as float32\[2\] where it was int32\[2\]",
    ),
    "more state": (Ring("new state", lambda where: (where, where)), "Ring.step gives state of another structure: make"),
    "a branch": (
        Ring("first obs", branching),
        "Ring.reset cannot be traced by JAX: TracerBoolConversion",
    ),
    "no spec": (Ring("spec", lambda spec: None), "Ring is no environment: its spec must be a mesax.EnvSpec"),
}


def test_what_fits():
    check_family(FAMILY)
    check_family(Meetings(Hosted(Ring())))
    assert {"num_tasks", "high_reward", "configuration", "rewarding_configurations", "env"} <= set(OF_A_FAMILY)


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_the_contract_is_one_line(name: str):
    env, message = BAD[name]
    with pytest.raises(UsageError, match=message) as caught:
        check_family(Meetings(env))
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Seeing(Ring):
    """Sees in numbers of one kind at the reset, and of another one later."""

    first: str = "float32"
    later: str = "float32"

    def reset(self, task: Any, key: Any) -> Any:
        where, obs = super().reset(task, key)
        return where, obs.astype(self.first)

    def see(self, where: Any) -> Any:
        return super().see(where).astype(self.later)


@pytest.mark.parametrize(
    ("first", "later"), [("int32", "int32"), ("bool", "bool"), ("int8", "float32"), ("float16", "float16")]
)
def test_observations_may_be_of_any_kind_of_number(first: str, later: str):
    """Whoever learns from them is given float32, as from the host."""
    family = Meetings(Seeing(first=first, later=later))
    check_family(family)
    episodes = play(family.env, family.split(0, 2, 1).train, UniformPolicy(Discrete(3)), jax.random.key(0), 3)
    assert episodes.obs.dtype == np.float32
    np.testing.assert_array_equal(np.sum(episodes.obs, axis=-1), np.ones((3, 5, 2)))


@dataclass(frozen=True)
class Clocked(Ring):
    """Its state has a number that a step changes."""

    start: Any = 0
    after: Any = None

    def reset(self, task: Any, key: Any) -> Any:
        where, obs = super().reset(task, key)
        return {"where": where, "time": self.start}, obs

    def step(self, task: Any, state: Any, action: Any, key: Any) -> Any:
        where, outcome = super().step(task, state["where"], action, key)
        return {"where": where, "time": self.after(state["time"])}, outcome


CLOCKS = {
    "0, then int32": (0, lambda time: jnp.asarray(time + 1, jnp.int32), ""),
    "0, then float32": (0, lambda time: time * jnp.float32(1), ""),
    "0, then int8": (0, lambda time: jnp.int8(1), ""),
    "0.0, then 1.0": (0.0, lambda time: time + 1.0, ""),
    "0.0, then int32": (0.0, lambda time: jnp.int32(1), r"state\['time'\] as int32\[\] where it was float32\[\]"),
    "False, then 1": (False, lambda time: time + 1, r"state\['time'\] as int32\[\] where it was bool\[\]"),
    "float32, then 1": (np.float32(0), lambda time: 1, r"state\['time'\] as int32\[\] where it was float32\[\]"),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_the_contract_and_the_rollout_agree_about_the_state(name: str):
    start, after, message = CLOCKS[name]
    family = Meetings(Clocked(start=start, after=after))

    def rollout(key: Any) -> Any:
        return play(family.env, family.split(0, 1, 1).train, UniformPolicy(Discrete(3)), key, 2)

    if not message:
        check_family(family)
        jax.eval_shape(rollout, jax.random.key(0))
        return
    with pytest.raises(UsageError, match=f"Clocked.step gives {message}"):
        check_family(family)
    with pytest.raises(TypeError, match="scan"):
        jax.eval_shape(rollout, jax.random.key(0))


def wrong(*arguments: Any) -> Any:
    raise ValueError("no such ring\nin this town")


@dataclass(frozen=True)
class Spoiled(Meetings):
    """A family that does one thing otherwise."""

    part: str = ""
    by: Any = None

    def __getattribute__(self, name: str) -> Any:
        spoiled = object.__getattribute__(self, "part") == name
        value = object.__getattribute__(self, name)
        if not spoiled:
            return value
        by = object.__getattribute__(self, "by")
        return (lambda *arguments: by(value(*arguments))) if callable(value) else by(value)


@dataclass(frozen=True)
class Homeless(Lacking):
    """Its environment cannot be had."""

    @property
    def env(self) -> Any:
        raise KeyError("home")


BAD_FAMILIES = {
    "split raises": (
        Spoiled(part="split", by=wrong),
        "Spoiled.split cannot be called: ValueError: no such ring$",
    ),
    "split gives a pair": (
        Spoiled(part="split", by=lambda split: (split.train, split.test)),
        "Spoiled.split gives a tuple without train, test: give a mesax.TaskSplit",
    ),
    "too few test tasks": (
        Spoiled(part="split", by=lambda split: TaskSplit(split.train, split.test[:0])),
        r"Spoiled.split\(0, 1, 1\) gives int32\[0\] for 1 test task\(s\): its leading axis must be 1 long",
    ),
    "a member raises": (
        Spoiled(part="num_tasks", by=wrong),
        "Spoiled.num_tasks cannot be read: ValueError: no such ring$",
    ),
    "the environment raises": (Homeless(), "Homeless.env cannot be read: KeyError: 'home'"),
    "spec raises": (Meetings(Ring("spec", wrong)), "Ring.spec cannot be read: ValueError: no such ring$"),
}


@pytest.mark.parametrize("name", BAD_FAMILIES)
def test_what_a_family_does_wrong_is_one_line_that_names_it(name: str):
    family, message = BAD_FAMILIES[name]
    with pytest.raises(UsageError, match=message):
        check_family(family)


def test_families_that_lack_something():
    missing = "Lacking is no task family: it has no num_tasks, high_reward, configuration, rewarding_configurations"
    with pytest.raises(UsageError, match=missing):
        check_family(Lacking())
    with pytest.raises(UsageError, match="Mutable is not hashable"):
        check_family(Mutable())


@dataclass(frozen=True)
class Alike(Meetings):
    """All tasks are the same, so that there is nothing to stack."""

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        return TaskSplit((), ())


def test_tasks_need_something_to_stack():
    with pytest.raises(UsageError, match=r"Alike\.split gives tasks without any array"):
        check_family(Alike())


def test_nothing_is_begun(tmp_path, monkeypatch, capsys):
    """Neither by `run_experiment` nor by the command line."""
    monkeypatch.chdir(tmp_path)
    own = Experiment(Plain(), PER_AGENT, TINY_MADDPG, TINY, num_train_tasks=1, num_test_tasks=2, lanes=2)
    with pytest.raises(UsageError, match="one number for the team"):
        run_experiment(own, tmp_path / "run", quiet=True)
    assert main(["run", "plain", f"{__name__}:PER_AGENT", "--preset", "smoke"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"'{__name__}:PER_AGENT' cannot be used: Ring.step gives a reward" in line
    assert not list(tmp_path.iterdir())


def test_env_check_of_a_family(capsys):
    """All that is said of an environment in JAX is said of a family's, too."""
    assert load_target(f"{__name__}:FAMILY") is FAMILY
    assert main(["env", "check", f"{__name__}:PER_AGENT"]) == USAGE
    assert "problem  contract      Ring.step gives a reward float32[2]" in capsys.readouterr().out
    assert main(["env", "check", f"{__name__}:FAMILY", "--steps", "40", "--seeds", "5"]) == 0
    out = capsys.readouterr().out
    assert "ok       kind          task family Meetings of Ring, compiled with the learner" in out
    assert "ok       play          80 random steps on 2 tasks: finite numbers" in out and "it fits" in out


HOSTED = Meetings(Hosted(Ring()))


def test_env_check_of_a_family_on_the_host(capsys):
    assert main(["env", "check", f"{__name__}:HOSTED", "--steps", "40", "--seeds", "2"]) == 0
    assert "the same seeds and actions give the same episodes again" in capsys.readouterr().out


@dataclass(frozen=True)
class Placed(Meetings):
    """Knows where it is kept."""

    path: Any = Path("here")


@dataclass(frozen=True)
class Overlapping(Meetings):
    """One test task is a training task."""

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        split = super().split(seed, num_train, num_test)
        return TaskSplit(split.train, split.test.at[0].set(split.train[-1]))


class Plainly:
    """No dataclass."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(FAMILY, name)


class Splitless:
    """Has some of a family, but no split."""

    env, describe, score = FAMILY.env, FAMILY.describe, FAMILY.score


@dataclass(frozen=True)
class Dividing(Ring):
    """Sees what is no number, always the same."""

    def see(self, where: Any) -> Any:
        return super().see(where) / 0 * 0


PLACED, OVERLAPPING, CLASS, SPLITLESS = Placed(), Overlapping(), Meetings, Splitless()
PLAINLY, DIVIDING, HOSTED_NAN = Plainly(), Meetings(Dividing()), Meetings(Hosted(Dividing()))
REFUSED = {
    "PLACED": ("a PosixPath cannot be a setting (Placed.path)", "use numbers, text, tuples and frozen dataclasses"),
    "PLAINLY": ("a Plainly cannot be a setting", "make Plainly a frozen dataclass"),
    "SPLITLESS": ("a Splitless cannot be a setting", "make Splitless a frozen dataclass"),
    "CLASS": ("it is the class Meetings: name an instance of it (FAMILY = Meetings())", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_and_the_check_refuse_the_same_families(name: str, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message, advice = REFUSED[name]
    assert main(["env", "check", f"{__name__}:{name}"]) == USAGE
    told = capsys.readouterr()
    assert message in told.out + told.err and advice in told.out
    assert main(["run", "plain", f"{__name__}:{name}", "--preset", "smoke"]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"'{__name__}:{name}' cannot be used: {message}" in line and line.endswith(advice)


@dataclass(frozen=True)
class Undivided:
    """A family that lacks split, and else could be one."""

    env: Any = Ring()
    num_tasks = 3
    describe, score = Meetings.describe, Meetings.score


UNDIVIDED = Undivided()


def test_a_family_without_split_is_named_as_one(capsys):
    assert main(["env", "check", f"{__name__}:UNDIVIDED"]) == USAGE
    assert re.search(r"problem +contract +Undivided is no task family: it has no .*split", capsys.readouterr().out)
    assert main(["list", "plain", f"{__name__}:UNDIVIDED"]) == USAGE
    assert "Undivided is no task family: it has no" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["DIVIDING", "HOSTED_NAN"])
def test_what_is_not_finite_is_not_called_chance(name: str, capsys):
    assert main(["env", "check", f"{__name__}:{name}", "--steps", "20"]) == USAGE
    out = capsys.readouterr().out
    assert re.search(r"problem +fault .*(finite|nan)", out) and "problem  determinism" not in out


def test_unseen_tasks_are_unseen(capsys):
    assert main(["env", "check", f"{__name__}:OVERLAPPING", "--steps", "20"]) == USAGE
    out = capsys.readouterr().out
    assert "problem  split         of 1 test tasks 1 are among the 2 training tasks: unseen tasks must be" in out


@pytest.mark.parametrize("name", environments())
def test_test_tasks_of_our_own_families_are_unseen(name: str):
    family = suite_of(name).family(name)
    split = split_of(family, *numbers_of_tasks(family, *family_check.TASKS_OF_A_RUN))
    assert family_check._unseen(split).state == "ok"
