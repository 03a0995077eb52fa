"""A user's PettingZoo or Gymnasium environments as a `HostEnvironment`; a task is the seed an environment is made with.

What the adapter promises, and what it asks for, is in docs/environments.md. Whatever an environment does wrong while it
runs is an `EnvironmentFault` that names the task, the step, the agent, what was expected and what was found.
"""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np

from mesax.bridges.environments.entities import inferred
from mesax.bridges.environments.layout import Broken, Layout, TeamReward, layout_of, shown
from mesax.bridges.environments.parallel import Parallel, as_parallel, picture_of
from mesax.envs.base import HostBatch, HostStep, Task
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.runtime import one_process, staying
from mesax.types import Discrete, EnvSpec

PROBE_SEED = 0
"""Task whose environment is made to read the spaces."""
IDLE_PER_COPY = 4
"""Environments kept for later, per running copy; those not used for longest are closed."""
INSTALLED = frozenset(("site-packages", "dist-packages"))
LIBRARIES = (Path(__file__).parents[2], Path(sysconfig.get_path("stdlib")))
"""Where nothing is a user's own, as names of folders and as places."""
LARGEST_REWARD = float(np.finfo(np.float32).max)
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class UnlikeTask(EnvironmentFault):
    """A task has other agents or spaces than the first one."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


@dataclass(frozen=True)
class ForeignEnvironment:
    """Environments that a function makes from a seed: one task per seed, all with the same agents and spaces."""

    make: Callable[[int], object]
    """From a task's seed to an environment; name a function of a module, so that equal settings are equal values."""
    horizon: int
    """Steps after which an episode is cut if the environment has not ended it."""
    team_reward: TeamReward = "mean"
    """The team's reward: mean or sum of the agents' rewards, or `shared`, which insists that all get the same."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called or played."""
        if not callable(self.make):
            raise UsageError(f"make must be a function from a seed to an environment, not {shown(self.make)}")
        if getattr(type(self.make), "__hash__", None) is None:
            raise UsageError(f"make must be hashable, for programs are cached by it: {shown(self.make)} is not")
        if self.horizon < 1:
            raise UsageError(f"horizon must be at least 1, not {self.horizon}")
        if self.team_reward not in get_args(TeamReward):
            raise UsageError(f"team-reward must be one of {', '.join(get_args(TeamReward))}, not {self.team_reward!r}")

    @property
    def layout(self) -> Layout:
        """Agents and their spaces, read from one environment."""
        return _probe(self.make)

    @property
    def spec(self) -> EnvSpec:
        """Sizes that hold every agent: shorter observations and smaller action spaces are padded."""
        layout = self.layout
        return EnvSpec(len(layout.agents), layout.obs_size, layout.action_space, self.horizon)

    @property
    def entities(self) -> object:
        """Which numbers are about what, as environments declare under this name or their spaces show; None: unknown."""
        declared = _declared(self.make)
        return inferred(self.layout) if declared is None else declared

    def batch(self, copies: int, threads: int) -> HostBatch:
        """Running copies; each has an environment of its own, so threads change nothing."""
        return _Batch(self, copies, threads)

    def open(self, task_seed: int) -> Running:
        """The environment of one task, ready to be reset."""
        env = _made(self.make, task_seed)
        difference = self.layout.difference(layout_of(env))
        if difference is not None:
            raise UnlikeTask(
                f"task seed {task_seed} is not like task seed {PROBE_SEED}: {difference.what};"
                " all tasks need the same agents and spaces",
                difference.advice,
            )
        return Running(env, self.layout, self.team_reward, task_seed)

    def film(self, task: Task, seed: int, actions: np.ndarray) -> list[np.ndarray]:
        """What the environment shows of itself while these joint actions are played; nothing if it shows nothing."""
        running = self.open(int(task))
        with staying():
            try:
                running.reset(seed)
                shown = [running.picture()]
                for action in actions:
                    if shown[-1] is None:
                        break
                    running.step(action)
                    shown.append(running.picture())
            finally:
                close(running.env)
        return [picture for picture in shown if picture is not None]


def _made(make: Callable[[int], object], task_seed: int) -> Parallel:
    """One environment, as a `ParallelEnv`."""
    return as_parallel(made_by(make, task_seed))


def made_by(make: Callable[[int], object], task_seed: int) -> object:
    """One environment as its factory gives it; a factory that breaks is an `EnvironmentFault`."""
    try:
        with staying():
            return make(task_seed)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"making the environment of task seed {task_seed}: {_told(error)}") from error


@lru_cache(maxsize=64)
def _probe(make: Callable[[int], object]) -> Layout:
    env = _made(make, PROBE_SEED)
    layout = layout_of(env)
    close(env)
    return layout


@lru_cache(maxsize=64)
def _declared(make: Callable[[int], object]) -> object:
    env = made_by(make, PROBE_SEED)
    declared = getattr(env, "entities", None)
    close(env)
    return declared


def close(env: Any) -> None:
    """Close an environment that may not know how to, or no longer can: nothing is lost either way."""
    with staying(), contextlib.suppress(Exception, SystemExit):
        env.close()


class Outcome(NamedTuple):
    """One joint step of one environment."""

    obs: np.ndarray
    """float32 `[agents, obs]`."""
    reward: float
    """The team's."""
    terminated: bool
    truncated: bool
    rewards: dict[Hashable, float]
    """By agent, of those that acted."""
    left: dict[Hashable, str]
    """How agents left in this step: terminated or truncated."""


@dataclass
class Running:
    """One environment that is being played; checks everything that it says.

    The episode is over when no agent is left. It counts as truncated if an agent that left in its last step was cut
    and not terminated, for then something was still to be had; else as terminated. Agents that left before do not
    matter: the others went on without them. An agent's row is its last observation in the step in which it leaves, and
    zeros afterwards.
    """

    env: Parallel
    layout: Layout
    team_reward: TeamReward
    task_seed: int
    episode_seed: int = 0
    time: int = 0
    present: list[Hashable] = field(default_factory=list)

    def reset(self, seed: int) -> np.ndarray:
        """First observations of a new episode."""
        self.episode_seed, self.time = seed, 0
        return self._guarded(self._reset, seed)

    def step(self, action: np.ndarray) -> Outcome:
        """One joint step; rows of agents that have left are not passed on."""
        self.time += 1
        return self._guarded(self._step, action)

    def picture(self) -> np.ndarray | None:
        """What the environment shows of itself now."""
        return self._guarded(picture_of, self.env, "render")

    def _guarded(self, function: Callable[[Argument], Result], argument: Argument, moment: str | None = None) -> Result:
        """Whatever goes wrong, with the place at which it did."""
        try:
            return function(argument)
        except (Exception, SystemExit) as error:  # some end the program when they are done
            where = f"task seed {self.task_seed}, episode seed {self.episode_seed}, step {self.time}"
            moment = moment or ("reset" if self.time == 0 else "step")
            what = str(error) if isinstance(error, Broken) else f"{moment} raised {_told(error)}"
            raise EnvironmentFault(f"{where}{' (reset)' if self.time == 0 else ''}: {what}") from error

    def _reset(self, seed: int) -> np.ndarray:
        answer = self.env.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Broken(f"reset expected (observations, infos), found {shown(answer)}")
        names = self.layout.names
        self._check_names(answer[0], names, "observation")
        agents = list(self.env.agents)
        if set(agents) != set(names):
            raise Broken(f"agents expected {list(names)}, found {agents}; an episode starts with all agents")
        self.present = list(names)
        return self._rows(answer[0], names)

    def _step(self, action: np.ndarray) -> Outcome:
        acting = self.present
        actions = {
            agent.name: agent.foreign(row)
            for agent, row in zip(self.layout.agents, action, strict=True)
            if agent.name in acting
        }
        answer = self.env.step(actions)
        if not isinstance(answer, tuple) or len(answer) != 5:
            number = f"{len(answer)} values" if isinstance(answer, tuple) else shown(answer)
            raise Broken(
                f"step expected 5 values (observations, rewards, terminated, truncated, infos), found {number}"
            )
        observations, rewards, terminated, truncated, _ = answer
        for values, what in (
            (observations, "observation"),
            (rewards, "reward"),
            (terminated, "terminated"),
            (truncated, "truncated"),
        ):
            self._check_names(values, acting, what)
        ended = {name: _flag(terminated[name], name, "terminated") for name in acting}
        cut = {name: _flag(truncated[name], name, "truncated") for name in acting}
        left = {name: "terminated" if ended[name] else "truncated" for name in acting if ended[name] or cut[name]}
        earned = {name: _number(rewards[name], name) for name in acting}
        self.present = [name for name in acting if name not in left]
        self._check_present(left)
        over = not self.present
        was_cut = over and "truncated" in left.values()
        return Outcome(
            self._rows(observations, acting), self._team(earned), over and not was_cut, was_cut, earned, left
        )

    def _check_names(self, values: object, expected: Iterable[Hashable], what: str) -> None:
        if not isinstance(values, Mapping):
            raise Broken(f"{what} expected a dict by agent, found {shown(values)}")
        for name in expected:
            if name not in values:
                raise Broken(f"agent {name!r}: {what} expected, found none; there are those of {list(values)}")

    def _check_present(self, left: Mapping[Hashable, str]) -> None:
        """Agents may leave, with a flag; none may come, come back, or vanish without one."""
        listed = list(self.env.agents)
        for name in self.present:
            if name not in listed:
                raise Broken(f"agent {name!r}: expected in agents or flagged as over, found neither; agents: {listed}")
        for name in listed:
            if name not in self.present and name not in left:
                again = "has left before" if name in self.layout.names else "is none of possible_agents"
                raise Broken(f"agent {name!r}: {again}; agents expected {self.present}, found {listed}")

    def _rows(self, observations: Mapping[Hashable, object], names: Iterable[Hashable]) -> np.ndarray:
        """Observations as padded rows; zeros for those who have left."""
        seeing = set(names)
        rows = np.zeros((len(self.layout.agents), self.layout.obs_size), np.float32)
        with np.errstate(over="ignore"):  # found below, with a better message
            for row, agent in zip(rows, self.layout.agents, strict=True):
                if agent.name in seeing:
                    row[: agent.obs_size] = agent.flat(observations[agent.name])
        if not np.isfinite(rows).all():
            index, position = np.argwhere(~np.isfinite(rows))[0]
            raise Broken(
                f"agent {self.layout.names[index]!r}: observation expected finite numbers within float32,"
                f" found {rows[index, position]} at position {position}"
            )
        return rows

    def _team(self, earned: Mapping[Hashable, float]) -> float:
        """One reward from all; those who have left count as 0 in a mean, so that leaving changes no one's share."""
        values = list(earned.values())
        if self.team_reward == "shared":
            for name, value in earned.items():
                if value != values[0]:
                    raise Broken(
                        f"agent {name!r}: reward expected {values[0]!r} as agent {next(iter(earned))!r} has,"
                        f" found {value!r}; use team_reward 'mean' or 'sum' if agents are paid apart"
                    )
            return values[0]
        if getattr(self.env, "reward_is_shared", False):  # one number for the team counts once
            return values[0]
        return sum(values) / (len(self.layout.agents) if self.team_reward == "mean" else 1)


def _flag(value: Any, name: Hashable, what: str) -> bool:
    if value is True or value is False:
        return value
    if np.ndim(value) != 0 or np.asarray(value).dtype != bool:
        raise Broken(f"agent {name!r}: {what} expected True or False, found {shown(value)}")
    return bool(value)


def _number(value: Any, name: Any) -> float:
    if not isinstance(value, float | int) and (np.ndim(value) != 0 or np.asarray(value).dtype.kind not in "fiub"):
        raise Broken(f"agent {name!r}: reward expected a number, found {shown(value)}")
    if not abs(float(value)) <= LARGEST_REWARD:
        raise Broken(f"agent {name!r}: reward expected a finite number within float32, found {value}")
    return float(value)


def _told(error: BaseException) -> str:
    """An exception's type and text on one line, and the line of the user's at which it was raised, if there is one."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_a_user(Path(frame.filename))]
    return f"{text} ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else text


def _is_of_a_user(path: Path) -> bool:
    """Whether a source file is neither mesax's, nor Python's, nor of a package that was installed."""
    elsewhere = INSTALLED.intersection(path.parts) or any(path.is_relative_to(place) for place in LIBRARIES)
    return path.is_file() and not elsewhere


class _Batch:
    """Running copies; environments go back to a shelf when a copy turns to another task, and are used again."""

    def __init__(self, env: ForeignEnvironment, copies: int, threads: int):
        if copies < 1 or threads < 1:
            raise UsageError(f"copies and threads must be at least 1, not {copies} and {threads}")
        self._env = env
        self._spec = env.spec
        self._running: list[Running | None] = [None] * copies
        self._shelf: OrderedDict[int, list[Running]] = OrderedDict()
        self._pool = ThreadPoolExecutor(min(threads, copies)) if threads > 1 else None

    def reset(self, tasks: Task, seeds: np.ndarray) -> np.ndarray:
        """First observations of new episodes."""
        task_seeds = [int(seed) for seed in np.asarray(tasks).reshape(-1)]
        if len(task_seeds) != len(self._running) or len(seeds) != len(self._running):
            raise UsageError(
                f"{len(self._running)} copies need as many tasks and seeds, not {len(task_seeds)} and {len(seeds)}"
            )
        self._turn_to(task_seeds)
        copies = [_opened(running) for running in self._running]
        rows = self._map(lambda index: copies[index].reset(int(seeds[index])), range(len(copies)))
        return np.stack(rows)

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        """Advance the copies that are alive; the rows of the others are zeros."""
        number = len(self._running)
        spec = self._spec
        obs = np.zeros((number, spec.num_agents, spec.obs_size), np.float32)
        reward = np.zeros(number, np.float32)
        terminated, truncated = np.zeros(number, bool), np.zeros(number, bool)
        rows = np.asarray(actions)
        if isinstance(spec.action_space, Discrete):
            rows = rows.astype(np.int64)

        def advance(index: int) -> None:
            outcome = _opened(self._running[index]).step(rows[index])
            obs[index], reward[index] = outcome.obs, outcome.reward
            terminated[index], truncated[index] = outcome.terminated, outcome.truncated

        self._map(advance, [int(index) for index in np.flatnonzero(alive)])
        return HostStep(obs, reward, terminated, truncated)

    def close(self) -> None:
        """Close every environment; none is stepped any more by then."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for running in [*self._running, *(one for shelf in self._shelf.values() for one in shelf)]:
            if running is not None:
                close(running.env)
        self._running = [None] * len(self._running)
        self._shelf.clear()

    def _turn_to(self, task_seeds: list[int]) -> None:
        """Give each copy an environment of its task, from the shelf if one is there."""
        moving = [
            index
            for index, (running, seed) in enumerate(zip(self._running, task_seeds, strict=True))
            if running is None or running.task_seed != seed
        ]
        for index in moving:
            running = self._running[index]
            if running is not None:
                self._shelf.setdefault(running.task_seed, []).append(running)
                self._shelf.move_to_end(running.task_seed)
                self._running[index] = None
        for index in moving:
            shelf = self._shelf.get(task_seeds[index])
            self._running[index] = shelf.pop() if shelf else self._env.open(task_seeds[index])
            if shelf is not None and not shelf:
                del self._shelf[task_seeds[index]]
        while sum(map(len, self._shelf.values())) > IDLE_PER_COPY * len(self._running):
            _, oldest = self._shelf.popitem(last=False)
            for running in oldest:
                close(running.env)

    def _map(self, function: Callable[[int], Result], indices: Iterable[int]) -> list[Result]:
        """Apply to each index, in threads if there are any; the first copy's fault is raised, whichever came first."""
        if self._pool is None:
            return [function(index) for index in indices]

        def alone(index: int) -> Result:
            with one_process():
                return function(index)

        waiting = [self._pool.submit(alone, index) for index in indices]
        for future in waiting:
            future.exception()  # all of them come to an end before one is raised
        return [future.result() for future in waiting]


def _opened(running: Running | None) -> Running:
    if running is None:
        raise UsageError("reset comes before step")
    return running
