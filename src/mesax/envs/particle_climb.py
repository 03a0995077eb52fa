"""The climb game among landmarks (paper, Sec. 6.3 and App. B.1.2): particles that must meet at the right place.

n agents move among U landmarks. If every agent is on some landmark, the team earns 1 if exactly k of them are on the
target u, 1 - delta if none is, else 0; if an agent is on no landmark, 0. The target is hidden. A task is a layout with
its target.

There are two kinds of worlds. In the paper's own (`JammedFamily`, as its authors published them) small landmarks are
jammed into a cluster, agents start close to it on a plane without walls and do not see velocities, and tasks share
layouts. In the wide ones (`ParticleClimbFamily`) large landmarks are spread over an arena with walls, and every task
has a layout of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mesax.envs.base import AnyEnvironment, ClimbReturns, Step, TaskInfo, TaskSplit
from mesax.envs.goals import choice_and_count
from mesax.envs.jammed_layouts import jammed_layout
from mesax.envs.particles import (
    ACTIONS,
    DIRECTIONS,
    SQUARE_TURNS,
    Integration,
    ParticlePhysics,
    offsets_to,
    offsets_to_others,
    turned_actions,
)
from mesax.envs.structure import Symmetries, TeamView
from mesax.errors import UsageError
from mesax.ranges import above, at_least
from mesax.store.settings import added
from mesax.types import Action, AnyArray, EnvSpec, Key, Transition, leading_size, on_device

PLACEMENT_TRIES = 2_000
PAPER_DIFFICULTY = 0.1
LOST = {0.1: (3.5, 1.8), 0.3: (6.9, 5.7), 0.5: (8.2, 6.3), 0.7: (8.8, 6.4), 1.0: (8.8, 5.8)}
"""Steps that scripted teams lose on their way to the optimum and to the safe equilibrium, by difficulty: means of
`mpe-2a5l` and `mpe-3a5l` (`mesax run optimum mpe-2a5l --family.world.difficulty 0.5`, `mesax run safe ...`)."""


class ParticleTask(eqx.Module):
    """Where the landmarks are, which one is the target, and how many agents belong on it."""

    landmarks: Float[Array, "*tasks landmarks 2"]
    target: Int[Array, "*tasks"]
    count: Int[Array, "*tasks"]


class ParticleState(eqx.Module):
    """Where the agents are and how they move."""

    position: Float[Array, "agents 2"]
    velocity: Float[Array, "agents 2"]


@dataclass(frozen=True)
class ParticleClimb:
    """A world of n agents and U landmarks."""

    num_agents: int = 2
    num_landmarks: int = 5
    """U."""
    delta: float = 0.5
    """The safe reward is 1 - delta."""
    horizon: int = 80
    radius: float = 0.2
    """An agent is on a landmark if its center is closer than this."""
    start_range: float = 1.0
    """Agents start uniformly in [-range, range]^2, at rest."""
    difficulty: float | None = added(None)
    """Agents are pulled to within 2 sqrt(2) times this of a landmark drawn for each of them; from 1 on none is."""
    wall: float | None = 1.0
    """Agents cannot leave [-wall, wall]^2; None: a plane without end, as in mpe2."""
    agent_size: float = 0.15
    """Radius of the bodies, for contacts and pictures."""
    agents_collide: bool = False
    """Whether bodies push each other apart."""
    acceleration: float = 5.0
    """Force of a unit action."""
    observe_position: bool = False
    """Whether an agent sees its own position, after its velocity."""
    integration: Integration = "position-first"
    """Order of integration: position-first (mpe2) or velocity-first (the original code)."""
    see_velocity: bool = added(True)
    """Whether an agent sees its own velocity, before all else."""

    def __post_init__(self) -> None:
        """Refuse worlds that do not exist."""
        at_least(self, 1, "num_agents", "num_landmarks", "horizon")
        if not 0.0 < self.delta < 1.0:
            raise UsageError(f"delta must lie strictly between 0 and 1, not {self.delta}")
        above(self, 0, "radius", "start_range", "agent_size", "acceleration")
        if self.difficulty is not None and not self.difficulty > 0.0:
            raise UsageError(f"difficulty must be above 0, not {self.difficulty}: the paper's is {PAPER_DIFFICULTY}")
        _ = self.physics  # refuses impossible walls and orders of integration
        if self.wall is not None and self.start_range > self.wall:
            raise UsageError(f"start-range {self.start_range} reaches beyond the wall at {self.wall}")

    @property
    def physics(self) -> ParticlePhysics:
        """MPE's constants with this world's walls."""
        return ParticlePhysics(wall=self.wall, integration=self.integration)

    @property
    def num_own(self) -> int:
        """Numbers about the agent itself, at the start of its observation."""
        return 2 * (self.see_velocity + self.observe_position)

    @property
    def spec(self) -> EnvSpec:
        """Own velocity and position if seen, offsets to all landmarks, offsets to the other agents."""
        size = self.num_own + 2 * self.num_landmarks + 2 * (self.num_agents - 1)
        return EnvSpec(self.num_agents, size, ACTIONS, self.horizon)

    @property
    def team_view(self) -> TeamView:
        """Places are the landmarks."""
        return TeamView(self.num_own, self.num_landmarks)

    @property
    def symmetries(self) -> Symmetries:
        """Quarter turns and reflections of the square: all that is observed is vectors in the plane."""
        vectors = np.eye(self.spec.obs_size // 2)
        return Symmetries(np.stack([np.kron(vectors, turn) for turn in SQUARE_TURNS]), turned_actions())

    def reset(self, task: ParticleTask, key: Key) -> tuple[ParticleState, Float[Array, "agents obs"]]:
        """Agents at random places, at rest."""
        shape = (self.num_agents, 2)
        if self.difficulty is None or self.difficulty >= 1.0:
            position = jax.random.uniform(key, shape, minval=-self.start_range, maxval=self.start_range)
        else:
            drawn = jax.random.uniform(key, (self.num_agents, 3))  # one draw compiles faster than two
            nearby = task.landmarks[(drawn[:, 2] * self.num_landmarks).astype(jnp.int32)]
            position = pulled_in(self.start_range * (2.0 * drawn[:, :2] - 1.0), nearby, self.difficulty)
        state = ParticleState(position, jnp.zeros(shape))
        return state, self.observe(task, state)

    def step(self, task: ParticleTask, state: ParticleState, action: Action, key: Key) -> tuple[ParticleState, Step]:
        """Push every agent in its direction; the reward belongs to the place reached."""
        del key
        force, size = self.acceleration * jnp.asarray(DIRECTIONS)[action], self.agent_size
        moved = self.physics.step(state.position, state.velocity, force, size if self.agents_collide else None)
        state = ParticleState(*moved)
        reward = self.reward(task, self.occupied(offsets_to(task.landmarks, state.position)))
        return state, Step(self.observe(task, state), reward, jnp.asarray(False))

    def occupied(self, offsets: Float[Array, "agents landmarks 2"]) -> Bool[Array, "agents landmarks"]:
        """Which landmark each agent is on: the first that is near enough."""
        near = jnp.sum(jnp.square(offsets), axis=-1) < self.radius**2
        return near & (jnp.cumsum(near, axis=1) == 1)

    def reward(self, task: ParticleTask, occupied: Bool[Array, "agents landmarks"]) -> Float[Array, ""]:
        """R(s) of App. B.1.2."""
        on_target = jnp.sum(jnp.any(occupied & (jnp.arange(self.num_landmarks) == task.target)[None], axis=1))
        pay = jnp.where(on_target == task.count, 1.0, jnp.where(on_target == 0, 1.0 - self.delta, 0.0))
        return jnp.where(jnp.all(jnp.any(occupied, axis=1)), pay, 0.0)

    def would_pay(self, task: ParticleTask, transition: Transition) -> Float[Array, ""]:
        """For a step in any layout: the task's target is a number, and landmarks are seen in the order of theirs."""
        return self.reward(task, self.occupied(self.landmark_offsets(transition.next_obs)))

    def observe(self, task: ParticleTask, state: ParticleState) -> Float[Array, "agents obs"]:
        """What each agent sees; landmarks in the task's order, other agents by number."""
        number = self.num_agents
        parts = [
            *[state.velocity] * self.see_velocity,
            *[state.position] * self.observe_position,
            offsets_to(task.landmarks, state.position).reshape(number, -1),
            offsets_to_others(state.position).reshape(number, 2 * (number - 1)),
        ]
        return jnp.concatenate(parts, axis=1)

    def landmark_offsets(self, obs: Float[AnyArray, "agents obs"]) -> Float[AnyArray, "agents landmarks 2"]:
        """The part of a joint observation that says where the landmarks are."""
        offsets = obs[:, self.num_own : self.num_own + 2 * self.num_landmarks]
        return offsets.reshape(obs.shape[0], self.num_landmarks, 2)


PAPER_WORLD = ParticleClimb(
    horizon=75,
    radius=0.1,
    difficulty=PAPER_DIFFICULTY,
    wall=None,
    agent_size=0.05,
    integration="velocity-first",
    see_velocity=False,
)
"""The paper's own, with two agents among five landmarks."""


@dataclass(frozen=True)
class TargetLandmark:
    """A goal: the number of the target among the landmarks, one-hot."""

    tell_count: bool = added(False)
    """Whether agents are also told how many belong there, as a number behind."""

    def size(self, env: AnyEnvironment) -> int:
        """One number for each landmark."""
        return _world(env).num_landmarks + self.tell_count

    def __call__(
        self, env: AnyEnvironment, task: ParticleTask, obs: Float[AnyArray, "*batch agents obs"]
    ) -> Float[AnyArray, "*batch 1 goal"]:
        """The same for all agents."""
        told = choice_and_count(
            task.target[..., None], task.count[..., None], _world(env).num_landmarks, self.size(env)
        )
        return told.astype(obs.dtype)


def _world(env: AnyEnvironment) -> ParticleClimb:
    if not isinstance(env, ParticleClimb):
        raise UsageError(f"a target landmark belongs to a particle world, not to {type(env).__name__}")
    return env


def pulled_in(
    position: Float[Array, "agents 2"], nearby: Float[Array, "agents 2"], difficulty: float
) -> Float[Array, "agents 2"]:
    """Starts that are farther than 2 sqrt(2) difficulty from their point, moved toward it onto that circle."""
    offset = position - nearby
    distance, limit = jnp.linalg.norm(offset, axis=1, keepdims=True), 2.0 * np.sqrt(2.0) * difficulty
    return jnp.where(distance > limit, nearby + offset / (distance + 1e-8) * limit, position)


class TasksAmongLandmarks(ClimbReturns):
    """What is the same however layouts are drawn."""

    world: ParticleClimb
    count: int

    @property
    def env(self) -> ParticleClimb:
        """The world all tasks share."""
        return self.world

    @property
    def configuration_shape(self) -> tuple[int, ...]:
        """One stage, one cell per landmark."""
        return (1, self.world.num_landmarks)

    @property
    def groups(self) -> tuple[str, ...]:
        """One k only."""
        return (f"k={self.count}",)

    def check_count(self) -> None:
        """Refuse a k that no team has, or that leaves an agent without a place."""
        if not 1 <= self.count <= self.world.num_agents:
            raise UsageError(f"k must lie between 1 and the number of agents {self.world.num_agents}, not {self.count}")
        if self.count < self.world.num_agents and self.world.num_landmarks < 2:
            raise UsageError("with k below the number of agents there must be a second landmark for the others")

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        names = ("num_agents", "num_landmarks", "delta", "horizon", "radius", "wall", "agent_size")
        return {name: getattr(self.world, name) for name in names} | {"count": self.count} | super().facts()

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Layouts with their targets; all draws of a task follow from the seed and its number."""
        train = [self.draw(seed, test=False, index=index) for index in range(num_train)]
        return TaskSplit(self._stacked(train), self._stacked([self.draw(seed, True, i) for i in range(num_test)]))

    def draw(self, seed: int, test: bool, index: int) -> tuple[np.ndarray, int]:
        """Layout and target of a training or a test task."""
        raise NotImplementedError

    def _stacked(self, tasks: list[tuple[np.ndarray, int]]) -> ParticleTask:
        layouts = np.array([layout for layout, _ in tasks], np.float32).reshape(-1, self.world.num_landmarks, 2)
        targets = np.array([target for _, target in tasks], np.int32)
        return ParticleTask(*on_device((layouts, targets, np.full(len(tasks), self.count, np.int32))))

    def describe(self, task: ParticleTask) -> TaskInfo:
        """Target, and where the landmarks are."""
        layout = np.round(np.asarray(task.landmarks, float), 4)
        target, count = int(task.target), int(task.count)
        if not 0 <= target < self.world.num_landmarks:
            raise UsageError(f"target {target} is none of the landmarks 0 to {self.world.num_landmarks - 1}")
        label = f"u={target} at ({layout[target, 0]:+.2f}, {layout[target, 1]:+.2f})"
        return TaskInfo(label, f"k={count}", [[target, count], *layout.tolist()])

    def breakdown(self, task: ParticleTask, rewards: np.ndarray) -> dict[str, float]:
        """The one group there is."""
        return {f"k={int(task.count)}": float(np.sum(rewards))}

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """The landmark that would pay most if it were the target, -1 if none would."""
        occupied = self.env.occupied(self.env.landmark_offsets(transition.next_obs))
        pays = (jnp.sum(occupied, axis=0) == self.count) & jnp.all(jnp.any(occupied, axis=1))
        return jnp.where(jnp.any(pays), jnp.argmax(pays), -1)

    def rewarding_configurations(self, tasks: ParticleTask) -> np.ndarray:
        """The targets of the tasks; each is rewarding in the layout it belongs to."""
        return np.unique(np.asarray(tasks.target)).astype(np.int64) if leading_size(tasks) else np.empty(0, np.int64)


@dataclass(frozen=True)
class ParticleClimbFamily(TasksAmongLandmarks):
    """Landmarks spread over an arena; every task has a layout of its own, and targets cycle."""

    world: ParticleClimb = ParticleClimb()
    """Where the tasks take place."""
    count: int = 2
    """k: agents that belong on the target."""
    landmark_range: float = 0.9
    """Landmarks lie in [-range, range]^2."""
    gap: float = 0.05
    """Least distance between the discs of two landmarks."""
    difficulty: tuple[float, float] | None = None
    """Least and greatest mean distance from where agents start to the landmarks; None takes every layout."""
    targets_each: int = added(1)
    """Training tasks on each layout, every one with another target; a test task always has a layout of its own."""

    def __post_init__(self) -> None:
        """Refuse families without a possible task."""
        self.check_count()
        number = self.world.num_landmarks
        if not 1 <= self.targets_each <= number:
            raise UsageError(f"targets-each must lie between 1 and the number of landmarks {number}")
        if not self.landmark_range > 0:
            raise UsageError(f"landmark-range must be above 0, not {self.landmark_range}")
        if not self.gap >= 0:
            raise UsageError(f"gap must not be negative, not {self.gap}")
        if self.world.wall is not None and self.landmark_range > self.world.wall:
            raise UsageError(f"landmark-range {self.landmark_range} reaches beyond the wall at {self.world.wall}")
        # Discs with half the separation as radius, packed as densely as a plane allows, in the square they may touch.
        separation = 2 * self.world.radius + self.gap
        room = (2 * self.landmark_range + separation) ** 2 * np.pi / np.sqrt(12)
        if self.world.num_landmarks * np.pi * (separation / 2) ** 2 > room:
            raise UsageError(self._no_room())
        if self.difficulty is not None and not 0 <= self.difficulty[0] < self.difficulty[1]:
            raise UsageError(f"difficulty must be two growing distances, not {self.difficulty}")

    @property
    def tasks_per_layout(self) -> int:
        """As many as have a layout in common."""
        return self.targets_each

    def draw(self, seed: int, test: bool, index: int) -> tuple[np.ndarray, int]:
        """Each layout from a stream of its own."""
        layout_index = index if test else index // self.targets_each
        random = np.random.default_rng((seed, 0x9A27, int(test), layout_index))
        for _ in range(PLACEMENT_TRIES):
            layout = self._place(random)
            if layout is not None and self._within(self.mean_distance(layout)):
                first = np.random.default_rng((seed, 0x7A26, int(test))).integers(self.world.num_landmarks)
                return layout, int(first + index) % self.world.num_landmarks
        raise UsageError(self._no_room())

    def _place(self, random: np.random.Generator) -> np.ndarray | None:
        """Landmarks one after another, each apart from those before; None if one finds no room."""
        placed = np.empty((0, 2))
        separation = 2 * self.world.radius + self.gap
        while len(placed) < self.world.num_landmarks:
            candidates = random.uniform(-self.landmark_range, self.landmark_range, (200, 2))
            distances = np.linalg.norm(candidates[:, None] - placed[None], axis=-1)
            free = candidates[np.all(distances > separation, axis=1)]
            if not len(free):
                return None
            placed = np.concatenate([placed, free[:1]])
        return placed

    def mean_distance(self, layout: np.ndarray) -> float:
        """The paper's difficulty: mean distance between agents' starts and landmarks."""
        line = np.linspace(-self.world.start_range, self.world.start_range, 21)
        starts = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 1, 2)
        return float(np.mean(np.linalg.norm(starts - layout[None], axis=-1)))

    def _within(self, distance: float) -> bool:
        return self.difficulty is None or self.difficulty[0] <= distance <= self.difficulty[1]

    def _no_room(self) -> str:
        wish = "" if self.difficulty is None else f" at a mean distance of {self.difficulty[0]} to {self.difficulty[1]}"
        return (
            f"{self.world.num_landmarks} landmarks of radius {self.world.radius} cannot be placed without overlap"
            f" within +-{self.landmark_range}{wish}"
        )


@dataclass(frozen=True)
class JammedFamily(TasksAmongLandmarks):
    """The paper's own tasks: layouts that all their targets share, drawn as its authors draw them.

    Test tasks of seed s are targets on the authors' own map of seed s, the first being theirs: s modulo U. Layouts of
    training tasks come from other seeds.
    """

    world: ParticleClimb = PAPER_WORLD
    """Where the tasks take place; its difficulty is that of the layouts."""
    count: int = 2
    """k: agents that belong on the target."""
    targets_each: int | None = None
    """Tasks on each layout; None: as many as it has landmarks."""
    lost: tuple[float, float] = LOST[PAPER_DIFFICULTY]
    """Steps that scripted teams lose on their way to the optimum and to the safe equilibrium; numbers that were
    measured at another difficulty are replaced by those of this world's."""

    def __post_init__(self) -> None:
        """Refuse families without a possible task."""
        self.check_count()
        number = self.world.num_landmarks
        if self.targets_each is not None and not 1 <= self.targets_each <= number:
            raise UsageError(f"targets-each must lie between 1 and the number of landmarks {number}")
        if self.world.difficulty is None or not self.world.difficulty <= 1.0:
            raise UsageError(
                f"difficulty must lie above 0 and be at most 1, not {self.world.difficulty}: the paper's is"
                f" {PAPER_DIFFICULTY}, and at 1 landmarks are spread"
            )
        self.check_lost()

    @property
    def steps_lost(self) -> tuple[float, float]:
        """As typed, or as measured: between two difficulties on a straight line."""
        if self.lost not in LOST.values():
            return self.lost
        optimum, safe = (
            np.interp(self.world.difficulty or 1.0, [*LOST], steps) for steps in np.transpose([*LOST.values()])
        )
        return round(float(optimum), 2), round(float(safe), 2)

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        return super().facts() | {"difficulty": self.world.difficulty}

    @property
    def tasks_per_layout(self) -> int:
        """As many as have a layout in common."""
        return self.targets_each or self.world.num_landmarks

    def draw(self, seed: int, test: bool, index: int) -> tuple[np.ndarray, int]:
        """All targets of a layout, then those of the next."""
        number, place = divmod(index, self.tasks_per_layout)
        return self.layout(seed, test, number), (seed + place + number) % self.world.num_landmarks

    def layout(self, seed: int, test: bool, number: int) -> np.ndarray:
        """One map of a seed: the authors' own is the first for tests."""
        if not (test and number == 0):
            stream = np.random.SeedSequence((seed, 0x9A27, int(test), number)).generate_state(1)
            seed = 2**31 + int(stream[0]) % 2**31  # far from the seeds that people type
        world = self.world
        assert world.difficulty is not None, "checked when the family was made"
        return np.array(jammed_layout(seed % 2**32, world.num_landmarks, world.radius, world.difficulty))
