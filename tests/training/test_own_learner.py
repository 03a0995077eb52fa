"""A user's own learner: what breaks the contract is one line, before there is a run directory."""

import importlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import mesax
from hosted import Hosted
from mesax.algorithms.base import OffPolicy, OnPolicy
from mesax.algorithms.mappo import Mappo
from mesax.baselines.controls import Plain
from mesax.envs.base import Guarded, Step
from mesax.envs.climb import ClimbFamily
from mesax.errors import TrainingError, UsageError
from mesax.execution.run_experiment import run_experiment
from mesax.methods.base import Experiment
from mesax.training.contract import INHERITED, OF_A_LEARNER, check_learner
from mesax.training.driver import play_episodes, shape_of
from mesax.training.loop import LearningLoop, Start
from mesax.training.schedule import Budget, Schedule
from mesax.types import Box, EnvSpec, Label
from methods.helpers import TINY, TINY_MADDPG, TWO_STAGE, IndependentQ, run

pytestmark = pytest.mark.usefixtures("unchecked")
DOCS = Path(__file__).resolve().parents[2] / "docs"
SPEC = TWO_STAGE.env.spec
SCHEDULE = Schedule(80, 4, 2, warmup_steps=16, updates_per_round=3, batch_size=6, replay_capacity=64)


class Table(eqx.Module):
    """Plays the best action of a table; one part of it may be spoiled."""

    values: Any
    spoiled: str = eqx.field(static=True, default="")
    by: Any = eqx.field(static=True, default=None)

    def of(self, part: str, value: Any) -> Any:
        return self.by(value) if part == self.spoiled else value

    def start(self, key: Any) -> Any:
        return self.of("memory", 0)

    def act(self, memory: Any, obs: Any, key: Any) -> Any:
        return self.of("act", (self.of("action", jnp.argmax(self.values, axis=-1)), self.of("new memory", memory + 1)))

    def label(self, memory: Any) -> Any:
        return self.of("label", Label.of(0))


@dataclass(frozen=True)
class Mine(OffPolicy):
    """A table of values; one part of what it gives may be spoiled."""

    spoiled: str = ""
    by: Any = None

    def of(self, part: str, value: Any) -> Any:
        return self.by(value) if part == self.spoiled else value

    def init(self, spec: EnvSpec, key: Any) -> Any:
        return self.of("init", {"values": jax.random.normal(key, (spec.num_agents, 3)), "updates": 0})

    def behavior(self, spec: EnvSpec, state: Any, elapsed: Any) -> Any:
        return self.of("behavior", Table(state["values"], self.spoiled, self.by))

    def greedy(self, spec: EnvSpec, state: Any) -> Any:
        return self.of("greedy", Table(state["values"]))

    def observe(self, spec: EnvSpec, state: Any, fresh: Any) -> Any:
        return self.of("observe", state)

    def update(self, spec: EnvSpec, state: Any, batch: Any, elapsed: Any, key: Any) -> Any:
        state = {"values": 0.9 * state["values"], "updates": state["updates"] + 1}
        metrics = {"reward": jnp.mean(batch.reward), "episode_error": jnp.sum(batch.reward, axis=1)}
        return self.of("update", (self.of("state", state), self.of("metrics", metrics)))


@dataclass(frozen=True)
class HostedClimb(ClimbFamily):
    """The climb game on the host."""

    @property
    def env(self) -> Any:
        return Hosted(super().env)


class Bare:
    """Has what is its own, and nothing of what is inherited."""

    init, behavior, greedy, update = Mine.init, Mine.behavior, Mine.greedy, Mine.update


@dataclass(frozen=True)
class Listed(Mine):
    """Not hashable."""

    sizes: Any = None


@dataclass(frozen=True)
class Lacking(OffPolicy):
    """Has only some of the functions."""

    init, behavior = Mine.init, Mine.behavior
    greedy = 3


def failing(value: Any) -> Any:
    raise ValueError("no such table\nin this house")


def branching(state: Any) -> Any:
    return state if state["values"].sum() > 0 else {}


BAD = {
    "not hashable": (Listed(sizes=[1, 2]), r"Listed is not hashable \(unhashable type: 'list'\).*frozen dataclass"),
    "functions are missing": (Lacking(), r"Lacking is no learner: it has no greedy, update \(mesax.Learner\)"),
    "nothing is inherited": (Bare(), r"Bare has no check, variants, latent, observe, needs_replay: inherit from"),
    "init breaks": (Mine("init", failing), "Mine.init cannot be traced by JAX: ValueError: no such table$"),
    "init is no tree of arrays": (Mine("init", lambda state: "table"), "Mine.init cannot be traced .*'str'"),
    "no policy": (Mine("behavior", lambda policy: 3), "Mine.behavior gives a int, which is no policy: it has no start"),
    "no greedy policy": (
        Mine("greedy", lambda policy: policy.values),
        r"Mine.greedy gives a \w+, which is no policy: it has no start",
    ),
    "floats as actions": (
        Mine("action", lambda action: action * 1.0),
        r"Mine.behavior\(...\).act gives an action float32\[2\]: it must be int32\[2\]",
    ),
    "one action": (Mine("action", lambda action: action[0]), r"an action int32\[\]: it must be int32\[2\]"),
    "no memory": (Mine("act", lambda pair: pair[0]), r"act gives int32\[2\]: it must give \(action, memory\)"),
    "another memory": (Mine("new memory", lambda memory: (memory,)), "act gives a memory of another structure"),
    "a memory of another kind": (
        Mine("memory", lambda memory: jnp.zeros(2, bool)),
        r"act gives a memory as int32\[2\] where it was bool\[2\]",
    ),
    "no label": (Mine("label", lambda label: label.actor), r"label gives int32\[\]: it must be a mesax.Label"),
    "observe forgets": (Mine("observe", lambda state: None), "Mine.observe gives a state of another structure"),
    "no pair": (Mine("update", lambda pair: pair[0]), r"Mine.update gives a dict: it must give \(state, metrics\)"),
    "update forgets": (
        Mine("state", lambda state: {"values": state["values"]}),
        "Mine.update gives a state of another structure: make it as it was given",
    ),
    "another state": (
        Mine("state", lambda state: state | {"values": state["values"].astype(jnp.float16)}),
        r"Mine.update gives a state\['values'\] as float16\[2, 3\] where it was float32\[2, 3\]",
    ),
    "a branch": (Mine("state", branching), "Mine.update cannot be traced by JAX: TracerBoolConversionError"),
    "metrics without names": (
        Mine("metrics", lambda metrics: metrics["reward"]),
        r"Mine.update gives metrics as float32\[\]: they must be a dict of numbers by name",
    ),
    "a metric of several numbers": (
        Mine("metrics", lambda metrics: {"loss": metrics["episode_error"]}),
        r"gives the metric 'loss' as float32\[6\]: it must be float32\[\]",
    ),
    "one error for all episodes": (
        Mine("metrics", lambda metrics: {"episode_error": metrics["reward"]}),
        r"gives the metric 'episode_error' as float32\[\]: it must be float32\[6\]",
    ),
}


@dataclass(frozen=True)
class Sum:
    """Pays what its agents play, whatever that is."""

    spec: EnvSpec = EnvSpec(2, 1, Box(1), 1)

    def reset(self, task: Any, key: Any) -> Any:
        return jnp.zeros(()), jnp.zeros((2, 1))

    def step(self, task: Any, state: Any, action: Any, key: Any) -> Any:
        return state, Step(jnp.zeros((2, 1)), jnp.sum(action), jnp.zeros((), bool))


@pytest.mark.parametrize("name", ["step", "task", "phase", "repeat", "policy", "return", "train_return", "cut_short"])
def test_a_metric_cannot_take_the_place_of_a_column(name: str):
    """Neither of a learner that is checked beforehand, nor of one that only the loop meets: of an explorer, say."""
    learner = Mine("metrics", lambda metrics: {name: metrics["reward"]})
    message = f"Mine.update gives a metric the name '{name}', which rows have already: choose another"
    with pytest.raises(UsageError, match=message):
        check_learner(learner, SPEC, SCHEDULE)
    loop = LearningLoop(TWO_STAGE.env, learner, SCHEDULE)
    with pytest.raises(UsageError, match=message):
        shape_of(loop, Start(), (), jax.random.split(jax.random.key(0), 2), 1)


@pytest.mark.parametrize("number", [1000, -7])
@pytest.mark.parametrize("part", ["action", "greedy"])
@pytest.mark.parametrize("hosted", [False, True], ids=["in JAX", "on the host"])
def test_a_policy_that_plays_what_is_no_action_earns_nothing(tmp_path: Path, number: int, part: str, hosted: bool):
    """In training or in evaluation only."""

    def stray(given: Any) -> Any:
        return (
            Table(given.values, "action", stray)
            if part == "greedy" and isinstance(given, Table)
            else given * 0 + number
        )

    family = HostedClimb(2, 3, 2, counts=(2,)) if hosted else TWO_STAGE
    own = Experiment(Plain(), family, Mine(part, stray), SCHEDULE, num_train_tasks=1, num_test_tasks=2, lanes=2)
    with pytest.raises(TrainingError, match=r"the policy plays what is none of Discrete\(num_actions=3\)"):
        run(own, tmp_path)


@pytest.mark.parametrize(
    ("played", "paid"), [(0.5, 1.0), (-1.0, -2.0), (-1000.0, -2.0), (1.25, 2.0), (jnp.inf, None), (jnp.nan, None)]
)
@pytest.mark.parametrize("hosted", [False, True], ids=["in JAX", "on the host"])
def test_numbers_are_held_to_their_box(played: float, paid: float | None, hosted: bool):
    """A Gaussian policy plays beyond it and means the nearest action; nothing is near to what is none."""
    world = Hosted(Sum()) if hosted else Guarded(Sum())
    policy = Table(jnp.zeros((2, 1)), "action", lambda _: jnp.full((2, 1), played))
    if paid is None:
        with pytest.raises(TrainingError, match=r"the policy plays what is none of Box\(size=1\)"):
            play_episodes(world, jnp.zeros(1), policy, jax.random.key(0), 3)
    else:
        episodes = play_episodes(world, jnp.zeros(1), policy, jax.random.key(0), 3)
        assert episodes.reward.tolist() == [[paid]] * 3


@dataclass(frozen=True)
class Summed(ClimbFamily):
    """A family of a user's own with numbers as actions."""

    @property
    def env(self) -> Any:
        return Sum()


def test_worlds_of_a_users_own_need_not_hold_actions_to_their_box():
    """The documentation says that they are within it, and MAPPO plays beyond."""

    def env(family: Any) -> Any:
        return Experiment(Plain(), family, Mappo(), Budget(80, 4, 2), num_train_tasks=1, num_test_tasks=2, lanes=2).env

    assert env(Summed(2, 3, 2, counts=(2,))) == Guarded(Sum())
    assert env(TWO_STAGE) == TWO_STAGE.env


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_the_contract_is_one_line(name: str):
    learner, message = BAD[name]
    with pytest.raises(UsageError, match=message) as caught:
        check_learner(learner, SPEC, SCHEDULE)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Latest(OnPolicy):
    """The same from its latest episodes; its policy need be no tree where it is not saved."""

    init, greedy, update = Mine.init, Mine.greedy, Mine.update
    spoiled = ""

    def of(self, part: str, value: Any) -> Any:
        return value

    def behavior(self, spec: EnvSpec, state: Any, elapsed: Any) -> Any:
        class Here:
            start, act, label = (getattr(self.greedy(spec, state), name) for name in ("start", "act", "label"))

        return Here()


def test_what_fits():
    check_learner(Mine(), SPEC, SCHEDULE)
    check_learner(IndependentQ(), SPEC, TINY)
    check_learner(Latest(), SPEC, Budget(80, 4, 2))
    check_learner(TINY_MADDPG, replace(SPEC, action_space=Box(2)), TINY)
    assert {*OF_A_LEARNER, *INHERITED, "needs_replay"} == {
        name for name in vars(mesax.Learner) if not name.startswith("_")
    }


def test_a_refusal_of_the_learner_itself_is_told_as_it_is():
    def refuse(state: Any) -> Any:
        raise UsageError("Mine needs discrete actions")

    with pytest.raises(UsageError) as caught:
        check_learner(Mine("init", refuse), SPEC, SCHEDULE)
    assert str(caught.value) == "Mine needs discrete actions"


def test_nothing_is_begun(tmp_path: Path):
    learner = Mine("metrics", failing)
    own = Experiment(Plain(), TWO_STAGE, learner, SCHEDULE, num_train_tasks=1, num_test_tasks=2, lanes=2)
    with pytest.raises(UsageError, match=r"Mine\.update cannot be traced by JAX: ValueError: no such table"):
        run_experiment(own, tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


def test_the_learner_of_the_tutorial_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (DOCS / "tutorial-learner.md").read_text(encoding="utf-8")
    source = re.search(r"`joint_q\.py`[^\n]*\n\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "joint_q.py").write_text(source[1])
    monkeypatch.syspath_prepend(tmp_path)
    learner = importlib.import_module("joint_q").JointQ()
    with jax.numpy_rank_promotion("allow"):  # as outside of these tests
        Experiment(Plain(), TWO_STAGE, learner, TINY, num_train_tasks=1, num_test_tasks=2, lanes=2).check()
