"""Key and door: a walker fetches a key, opens the door between two rooms, and reaches the goal behind it.

The reward is 1 at the goal, and 0 before: random play hardly ever gets there. A task is a layout; the walker starts
anywhere in the first room. What it takes is the same in all layouts, so exploration can be learned on some for others.
The key can be put back and the door closed again: one may do either as often as one likes.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mesax.envs.base import PlainFamily, Step, TaskInfo, TaskSplit
from mesax.errors import UsageError
from mesax.types import Action, Discrete, EnvSpec, Key, Transition, on_device, random_index

MOVES = np.array([[0, 1], [0, -1], [-1, 0], [1, 0], [0, 0]], np.int32)
"""Up, down, left, right; the last action is to use what is here."""
USE = 4
KEY, DOOR, GOAL = 0, 1, 2
"""What can happen: the key is taken or put back, the door is opened or closed, the goal is reached."""
HAS_KEY, OPEN, ROOM = 8, 9, 10
"""Entries of an observation, after own place and the offsets to key, door and goal."""


class KeyDoorTask(eqx.Module):
    """Where key, door and goal are, as (column, row)."""

    key: Int[Array, "*tasks 2"]
    door: Int[Array, "*tasks 2"]
    goal: Int[Array, "*tasks 2"]


class KeyDoorState(eqx.Module):
    """Where the walker is, and what it has done."""

    place: Int[Array, " 2"]
    has_key: Bool[Array, ""]
    open: Bool[Array, ""]


@dataclass(frozen=True)
class KeyDoors:
    """Two rooms with a wall between them."""

    width: int = 6
    """Columns of each room."""
    height: int = 8
    """Rows of both rooms."""
    horizon: int = 80

    def __post_init__(self) -> None:
        """Refuse rooms without room."""
        if min(self.width, self.height) < 2 or self.horizon < 1:
            raise UsageError(
                f"width and height must be at least 2 and horizon at least 1, not {self.width}, {self.height} and"
                f" {self.horizon}"
            )

    @property
    def spec(self) -> EnvSpec:
        """Own place, offsets to key, door and goal, whether the key is taken and the door open, and in which room.

        Rooms are 0 and 1, the doorway between them is a half.
        """
        return EnvSpec(1, 11, Discrete(len(MOVES)), self.horizon)

    def reset(self, task: KeyDoorTask, key: Key) -> tuple[KeyDoorState, Float[Array, "agents obs"]]:
        """Anywhere in the first room."""
        where = random_index(key, (), self.width * self.height)
        place = jnp.stack([where % self.width, where // self.width])
        state = KeyDoorState(place, jnp.asarray(False), jnp.asarray(False))
        return state, self._observe(task, state)

    def step(self, task: KeyDoorTask, state: KeyDoorState, action: Action, key: Key) -> tuple[KeyDoorState, Step]:
        """Walk, or use what is here: take the key or put it back at its place, open or close the door before it."""
        del key
        used = action[0] == USE
        handled = used & jnp.all(state.place == task.key)
        moved = used & jnp.all(state.place == task.door - jnp.array([1, 0])) & state.has_key
        target = state.place + jnp.asarray(MOVES)[action[0]]
        place = jnp.where(self._is_free(task, state, target), target, state.place)
        state = KeyDoorState(place, state.has_key ^ handled, state.open ^ moved)
        there = jnp.all(place == task.goal)
        return state, Step(self._observe(task, state), there.astype(jnp.float32), there)

    def _is_free(self, task: KeyDoorTask, state: KeyDoorState, place: Int[Array, " 2"]) -> Bool[Array, ""]:
        inside = jnp.all((place >= 0) & (place < jnp.array([2 * self.width + 1, self.height])))
        in_wall = place[0] == self.width
        return inside & (~in_wall | (jnp.all(place == task.door) & state.open))

    def _observe(self, task: KeyDoorTask, state: KeyDoorState) -> Float[Array, "agents obs"]:
        offsets = [target - state.place for target in (task.key, task.door, task.goal)]
        numbers = jnp.concatenate([state.place, *offsets]) / self.scale
        room = 0.5 + 0.5 * jnp.sign(state.place[0] - self.width)
        flags = jnp.stack([state.has_key, state.open, room])
        return jnp.concatenate([numbers, flags])[None].astype(jnp.float32)

    @property
    def scale(self) -> float:
        """Cells that make 1 in an observation."""
        return float(max(2 * self.width + 1, self.height))


@dataclass(frozen=True)
class KeyDoorFamily(PlainFamily):
    """All layouts of two rooms."""

    world: KeyDoors = KeyDoors()
    """Where the tasks take place."""

    @property
    def env(self) -> KeyDoors:
        """The rooms all tasks share."""
        return self.world

    @property
    def num_tasks(self) -> int:
        """Places of the key times rows of the door times places of the goal."""
        return (self.world.width * self.world.height) ** 2 * self.world.height

    @property
    def optimal_return(self) -> float:
        """The goal is reached in every episode."""
        return 1.0

    @property
    def suboptimal_return(self) -> float:
        """It never is."""
        return 0.0

    @property
    def optimal_threshold(self) -> float:
        """A task counts as solved if nine of ten episodes get there."""
        return 0.9

    @property
    def high_reward(self) -> float:
        """At the goal."""
        return 1.0

    @property
    def configuration_shape(self) -> tuple[int, ...]:
        """One stage; key, door, goal."""
        return (1, 3)

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        names = ("width", "height", "horizon")
        return {name: getattr(self.world, name) for name in names} | {"num_agents": 1} | super().facts()

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Different layouts; training layouts do not depend on `num_test`."""
        if num_train + num_test > self.num_tasks:
            raise UsageError(f"these rooms have {self.num_tasks} layouts, fewer than {num_train} + {num_test}")
        random = np.random.default_rng((seed, 0x4E7D))
        drawn: dict[int, None] = {}
        while len(drawn) < num_train + num_test:
            drawn.setdefault(int(random.integers(self.num_tasks)))
        numbers = np.array(list(drawn), np.int64)
        return TaskSplit(self._layouts(numbers[:num_train]), self._layouts(numbers[num_train:]))

    def _layouts(self, numbers: Int[np.ndarray, " tasks"]) -> KeyDoorTask:
        width, height = self.world.width, self.world.height
        rest, row = np.divmod(numbers, height)
        places = np.divmod(rest, width * height)
        key, goal = (np.stack([place % width, place // width], axis=-1) for place in places)
        door = np.stack([np.full_like(row, width), row], axis=-1)
        parts = (key, door, goal + np.array([width + 1, 0]))
        return KeyDoorTask(*on_device([part.astype(np.int32) for part in parts]))

    def describe(self, task: KeyDoorTask) -> TaskInfo:
        """Where things are."""
        parts = {name: np.asarray(getattr(task, name)).tolist() for name in ("key", "door", "goal")}
        label = ", ".join(f"{name} {tuple(place)}" for name, place in parts.items())
        return TaskInfo(label, None, [[float(number) for number in place] for place in parts.values()])

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """What happens in this step, -1 if nothing of note."""
        before, after = transition.obs[0], transition.next_obs[0]
        happened = [after[HAS_KEY] != before[HAS_KEY], after[OPEN] != before[OPEN], jnp.all(after[6:8] == 0.0)]
        return jnp.where(jnp.any(jnp.stack(happened)), jnp.argmax(jnp.stack(happened)), -1)

    def rewarding_configurations(self, tasks: KeyDoorTask) -> np.ndarray:
        """Only the goal pays."""
        del tasks
        return np.array([GOAL], np.int64)
