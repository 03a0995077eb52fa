"""What a method is: a few stages, each a list of independent jobs that may run in different processes.

A job reads the outputs of earlier stages and writes its own into its directory; nothing else passes between jobs, so
the number of workers cannot change a result, and a finished job never runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum, unique
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.algorithms.base import Learner
from mesax.envs.base import AnyEnvironment, Guarded, HostEnvironment, Task, TaskFamily, TaskSplit
from mesax.envs.contract import check_family
from mesax.envs.host import shortened
from mesax.errors import TrainingError, UsageError
from mesax.nets import NetT, Trainable
from mesax.ranges import at_least, between
from mesax.rewards.base import RewardModel, TaskReward
from mesax.store.settings import foreign_modules
from mesax.store.trees import Place, copy_tree, save_tree
from mesax.training.contract import check_learner
from mesax.training.driver import Keeper, LearningStopped
from mesax.training.schedule import Budget, Prioritized, Schedule
from mesax.types import Box, Key, Metrics, tree_index

LARGEST_SEED = 2**32 - 1
"""JAX's keys keep 32 bits: a larger seed would silently equal a smaller one."""
MOST_EPISODES = 100_000
"""Most episodes of an evaluation: all of them are held in memory."""
Item = TypeVar("Item")


@unique
class Purpose(IntEnum):
    """What an experiment's random streams are for; the number of one is never given to another."""

    COLLECT = 1
    EXPLORE = 2
    ADAPT = 3
    UNSEEN_VISITS = 4
    TRAINING_VISITS = 5
    LEAKS = 6
    RENDER = 7
    PRETRAIN = 8
    FRESH_LEARNER = 9
    META = 11
    FIT = 12
    # 10 and all others are free.


Row: TypeAlias = Mapping[str, object]


@runtime_checkable
class Services(Keeper, Protocol):
    """What a job may ask of the process that runs it; it also keeps the job's loops (see `Keeper`)."""

    @property
    def directory(self) -> Place:
        """Where this job saves its outputs."""

    @property
    def scratch(self) -> Place:
        """Where this job puts aside what nobody needs once it is done."""

    def put_aside(self, name: str, tree: PyTree, facts: dict[str, object]) -> None:
        """Save a piece there that will not change again."""

    def kept(self, like: Callable[[], PyTree]) -> PyTree | None:
        """What the job last kept before it was stopped, of these shapes; None if it starts anew."""

    def keep(self, state: PyTree) -> None:
        """What the job needs to go on from here, beside its loop; to be said after each chunk."""

    def outputs(self, stage: str) -> list[Place]:
        """Where an earlier stage's jobs saved theirs, in order."""

    def rows(self, name: str, rows: Iterable[Row]) -> None:
        """Append rows to `eval` or `metrics`."""

    def document(self, name: str, content: Row) -> None:
        """Keep what is said of the whole run (`<name>.json` of its directory); no other job has one of that name."""

    def report(self, done_steps: int, note: str = "") -> None:
        """Progress of this job in environment steps."""

    def compiled(self, seconds: float) -> None:
        """How long it took until the job's first chunk was done."""


@dataclass(frozen=True)
class Stage:
    """A named list of independent jobs."""

    name: str
    """Name of the stage, which its rows have as `phase`."""
    job_steps: tuple[int, ...]
    """Environment steps of each job."""
    run: Callable[[int, Services], None]
    """Do job number i."""
    products: tuple[str, ...] = ()
    """Patterns of the saved trees of a job that a finished run keeps in `policies/`."""
    prepare: Callable[[], None] | None = None
    """Compile what its jobs will need; done by a worker that has no job while an earlier stage is under way."""


def borrow_stage(source: Path, then: Callable[[Services], None] = lambda services: None) -> Stage:
    """Take over a product of another run.

    Copied once: should the other run be made anew, this one goes on with what it began with.
    """

    def run(job: int, services: Services) -> None:
        del job
        copy_tree(source, services.directory / source.name)
        then(services)

    return Stage("borrow", (0,), run, products=(source.name,))


@dataclass(frozen=True)
class Experiment:
    """One method on one family: everything that determines a result."""

    method: Method
    """What is compared: MESA, a control or a baseline."""
    family: TaskFamily
    """The world and its tasks."""
    algorithm: Learner
    """The learner of the test tasks, which the method wraps."""
    schedule: Schedule | Prioritized | Budget
    """Budget of each test task: a `Schedule` for an off-policy learner, a `Budget` for an on-policy one."""
    seed: int = 0
    """Seed of tasks, nets and all chance."""
    num_train_tasks: int = 10
    """Tasks of meta-training."""
    num_test_tasks: int = 5
    """Unseen tasks to learn."""
    num_repeats: int = 1
    """Independent runs of each test task."""
    eval_episodes: int = 8
    """Greedy episodes of an evaluation."""
    lanes: int = 5
    """Runs that share one compiled program through `vmap`; part of the configuration, so workers cannot change it."""
    training_horizon: int | None = None
    """Steps of a training episode, if fewer than the environment's; the cut is bootstrapped. Evaluation is not cut."""
    reward_model: RewardModel = TaskReward()
    """What the learner of the test tasks is paid for; it is always judged by the task's own reward."""

    def __post_init__(self) -> None:
        """Refuse impossible experiments before anything is built."""
        at_least(self, 1, "num_train_tasks", "num_test_tasks", "num_repeats", "lanes")
        between(self, 1, MOST_EPISODES, "eval_episodes")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise UsageError(f"seed must be at least 0 and at most {LARGEST_SEED}, not {self.seed}")
        if self.training_horizon is not None and not 1 <= self.training_horizon <= self.family.env.spec.horizon:
            raise UsageError(
                f"training-horizon must lie between 1 and the horizon {self.family.env.spec.horizon},"
                f" not {self.training_horizon}"
            )
        total = self.family.num_tasks
        if total is not None and self.num_train_tasks + self.num_test_tasks > total:
            raise UsageError(
                f"this family has {total} tasks, fewer than {self.num_train_tasks} for training"
                f" + {self.num_test_tasks} for testing"
            )

    def check(self) -> None:
        """Refuse with a `UsageError` what cannot work, before there is a run directory."""
        if foreign_modules(self.family):  # our own are known to keep their contract
            check_family(self.family)
        if foreign_modules((type(self.algorithm), self.algorithm)):
            check_learner(self.algorithm, self.reward_model.learner_spec(self.training_env.spec), self.schedule)
        self.method.check(self)

    def check_engine(self) -> None:
        """Refuse a world of ours whose engine is not installed: not part of `check`, for jobs may be done elsewhere."""
        env = self.family.env
        if isinstance(env, HostEnvironment) and not foreign_modules(self.family):  # users' own were tried by `check`
            env.batch(1, 1).close()

    @property
    def env(self) -> AnyEnvironment:
        """Where the learner of the test tasks plays: the family's environment, which may tell it more."""
        return self._guarded(self._told)

    @property
    def is_privileged(self) -> bool:
        """Whether its learner is told what others have to find out."""
        return isinstance(self.method, TellsMore) and self.method.tells

    @property
    def training_env(self) -> AnyEnvironment:
        """The environment with its training episodes' length."""
        return self._guarded(shortened(self._told, self.training_horizon))

    @property
    def _told(self) -> AnyEnvironment:
        method = self.method
        return method.told(self.family.env) if isinstance(method, TellsMore) else self.family.env

    def _guarded(self, env: AnyEnvironment) -> AnyEnvironment:
        """An environment in JAX asks policies of a user's own whether they play actions; the host asks all policies.

        So does one of a user's own with numbers as actions: a Gaussian policy of anybody's plays beyond their box.
        """
        if isinstance(env, HostEnvironment):
            return env
        parts: list[object] = [self.method, self.algorithm, self.reward_model]
        parts += [self.family] if isinstance(env.spec.action_space, Box) else []
        return Guarded(env) if foreign_modules((*map(type, parts), *parts)) else env

    @property
    def split(self) -> TaskSplit:
        """Its training and test tasks."""
        return self.family.split(self.seed, self.num_train_tasks, self.num_test_tasks)

    @property
    def training_tasks(self) -> Task:
        """Those that methods may learn from before they see a test task."""
        return self.family.split(self.seed, self.num_train_tasks, 0).train

    def key(self, purpose: Purpose | int, *indices: int) -> Key:
        """The random stream of one part of the experiment; parts of your own have numbers that `Purpose` has not."""
        key = jax.random.fold_in(jax.random.key(self.seed), int(purpose))
        for index in indices:
            key = jax.random.fold_in(key, index)
        return key


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass that says which stages an experiment has."""

    def check(self, experiment: Experiment) -> None:
        """Refuse with a `UsageError` what cannot work, before there is a run directory."""

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Stages in order; the last one is `adapt`. Built once per process."""


@runtime_checkable
class TellsMore(Protocol):
    """A method whose learner may be told more than the environment shows."""

    @property
    def tells(self) -> bool:
        """Whether it is."""

    def told(self, env: AnyEnvironment) -> AnyEnvironment:
        """The environment as its learner sees it."""


@dataclass(frozen=True)
class Chunked:
    """How the updates of one network are cut into chunks, after each of which a run can be stopped."""

    name: str
    """What is said of it if it diverges."""
    total: int
    size: int = 1
    """Size of a chunk; the last one may be smaller."""
    steps: int = 1
    """That rows count for each of the `total`."""


@dataclass(frozen=True)
class Updated(Generic[NetT]):
    """A network so far."""

    done: int
    """Finished part of `total`."""
    state: Trainable[NetT]
    figures: dict[str, float] = field(default_factory=dict)
    """Figures of the latest chunk."""


def kept_or_begun(
    services: Services, like: Callable[[], Trainable[NetT]], begin: Callable[[], Trainable[NetT]]
) -> Updated[NetT]:
    """Where a job of `in_chunks` was stopped, or its start."""
    kept = services.kept(lambda: {"done": 0, "state": like()})
    return Updated(0, begin()) if kept is None else Updated(int(kept["done"]), kept["state"])


def in_chunks(
    services: Services,
    cut: Chunked,
    start: Updated[NetT],
    advance: Callable[[Trainable[NetT], int, int], tuple[Trainable[NetT], Metrics]],
) -> Iterator[Updated[NetT]]:
    """The network after every chunk; `advance` is given how much is done, and how much to do now.

    A chunk that diverged is never kept: nothing could be learned from there on.
    """
    done, state = start.done, start.state
    while done < cut.total:
        services.pause(lambda: ((), {}))
        number = min(cut.size, cut.total - done)
        state, metrics = advance(state, done, number)
        done += number
        state = jax.tree.map(np.asarray, state)
        figures = {name: float(value) for name, value in metrics.items()}
        broken = [name for name, value in figures.items() if not np.isfinite(value)]
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.net)):
            broken.append("a weight")
        if broken:
            raise TrainingError(f"{cut.name}: {', '.join(broken)} is not finite by step {done * cut.steps}; stopped")
        services.keep({"done": done, "state": state})
        yield Updated(done, state, figures)


@contextmanager
def keeping_last_good(services: Services) -> Iterator[None]:
    """Save the last good learners of a job that breaks."""
    try:
        yield
    except LearningStopped as error:
        save_tree(services.directory / "last-good", error.last_good, {"error": str(error)})
        raise


def padded(group: list[Item], size: int) -> list[Item]:
    """A group repeated at its end up to `size`: a program of another width rounds differently."""
    return group + group[-1:] * (size - len(group))


def of_lanes(tasks: PyTree, lanes: list[int]) -> PyTree:
    """Of stacked tasks the one of each lane, `[lanes, 1, ...]`; chosen on the host, where it takes no program."""
    return jax.device_put(tree_index(jax.device_get(tasks), np.array(lanes)[:, None]))


def groups_of(items: list[Item], size: int) -> list[list[Item]]:
    """Consecutive groups of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
