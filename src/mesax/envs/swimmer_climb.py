"""The climb game of a swimmer (paper, Sec. 6.4 and App. B.1.3): two agents, one joint each, in MuJoCo's engine.

A chain of three links floats in a thick fluid; each agent turns one of its two joints. The team earns 1 if both joint
angles are within a narrow band around a hidden target angle, 1 - delta if both are outside, else 0. A task is a target.
The body, its actions and its observations are those of the Swimmer of Gymnasium and MA-MuJoCo, state by state;
of the two MA-MuJoCos the later, Gymnasium's, shows agents the head too, and the earlier, the paper's, the joints alone.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.envs.base import AnyEnvironment, ClimbReturns, HostStep, TaskInfo, TaskSplit
from mesax.errors import TrainingError, UsageError
from mesax.store.settings import added
from mesax.types import AnyArray, Box, EnvSpec, Transition, on_device

Numbers = TypeVar("Numbers", Array, np.ndarray)
NUM_AGENTS = 2
SUBSTEPS = 4
"""Steps of the engine for each action."""
HINGE_LIMIT_DEGREES = 100.0
LINK_LENGTH = 1.0
COORDINATES = ("x", "y", "heading", "front", "rear")
"""The engine's positions, in order; its velocities follow in the same order."""
LARGEST = 1e10
"""The engine gives up on states beyond this."""
PUBLISHED_TASKS, PUBLISHED_SEED = 5, 1357
"""Targets that the paper's authors draw with a seed, and what they add to it."""

# Lengths in meters: a head link that turns freely about its rear, half a meter ahead of the origin, and two links
# behind it. Contacts and gravity are off: no link can touch another, and the plane of motion is level.
MODEL = f"""
<mujoco model="swimmer-climb">
  <option timestep="0.01" integrator="RK4" density="4000" viscosity="0.1">
    <flag contact="disable" gravity="disable"/>
  </option>
  <default>
    <geom type="capsule" size="0.1" density="1000" contype="0" conaffinity="0"/>
    <joint type="hinge" axis="0 0 1" armature="0.1"/>
    <motor gear="150" ctrllimited="true" ctrlrange="-1 1"/>
    <default class="driven"><joint limited="true" range="-{HINGE_LIMIT_DEGREES} {HINGE_LIMIT_DEGREES}"/></default>
  </default>
  <worldbody>
    <body name="head">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <joint name="heading"/>
      <geom fromto="1.5 0 0 0.5 0 0"/>
      <body name="middle" pos="0.5 0 0">
        <joint name="front" class="driven"/>
        <geom fromto="0 0 0 -1 0 0"/>
        <body name="tail" pos="-1 0 0">
          <joint name="rear" class="driven"/>
          <geom fromto="0 0 0 -1 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="front"/>
    <motor joint="rear"/>
  </actuator>
</mujoco>
"""


class SwimmerTask(eqx.Module):
    """The angle that both joints should have, in radians."""

    target: Float[AnyArray, "*tasks"]


@dataclass(frozen=True)
class SwimmerClimb:
    """A swimmer whose joints must meet at an angle; runs in MuJoCo, outside JAX."""

    band_degrees: float = 3.0
    """A joint is at the target if its angle is less than this away."""
    delta: float = 0.5
    """The safe reward is 1 - delta."""
    horizon: int = 1000
    see_neighbor: bool = True
    """Whether an agent sees the other joint's angle (MA-MuJoCo's agent_obsk: 1 if so, else 0)."""
    reset_noise: float = 0.1
    """Episodes start with all positions and velocities uniform in [-noise, noise]."""
    see_head: bool = added(True)
    """Whether an agent sees how the head is turned, how fast it turns, and one part of its velocity."""

    def __post_init__(self) -> None:
        """Refuse games that do not exist."""
        if not 0.0 < self.band_degrees <= HINGE_LIMIT_DEGREES:
            raise UsageError(f"band-degrees must lie between 0 and {HINGE_LIMIT_DEGREES:g}, not {self.band_degrees}")
        if not 0.0 < self.delta < 1.0:
            raise UsageError(f"delta must lie strictly between 0 and 1, not {self.delta}")
        if self.horizon < 1:
            raise UsageError(f"horizon must be at least 1, not {self.horizon}")
        if not 0.0 <= self.reset_noise <= 1.0:
            raise UsageError(f"reset-noise must lie between 0 and 1, not {self.reset_noise}")

    @property
    def spec(self) -> EnvSpec:
        """Own joint, the other's angle if seen, and three numbers of the head if seen."""
        return EnvSpec(NUM_AGENTS, 2 + self.see_neighbor + 3 * self.see_head, Box(1), self.horizon)

    @property
    def speed_at(self) -> int:
        """Where an agent's observation holds how fast its own joint turns."""
        return 1 + self.see_head

    @property
    def neighbor_at(self) -> int:
        """Where it holds the other joint's angle, if that is seen."""
        return self.speed_at + 1

    @property
    def band(self) -> float:
        """Half the width of the band in radians."""
        return float(np.deg2rad(self.band_degrees))

    def batch(self, copies: int, threads: int) -> SwimmerBatch:
        """Open `copies` swimmers, stepped by `threads` threads."""
        return SwimmerBatch(self, copies, threads)

    def reward(self, targets: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """R(s) of App. B.1.3 for targets `[copies]` and joint angles `[copies, 2]`."""
        distance = np.abs(angles - targets[:, None])
        inside = np.sum(distance < self.band, axis=1)
        return np.where(inside == NUM_AGENTS, 1.0, np.where(inside == 0, 1.0 - self.delta, 0.0)).astype(np.float32)

    def observe(self, positions: np.ndarray, velocities: np.ndarray) -> np.ndarray:
        """float64 `[copies, agents, obs]`: own angle, (velocity of the head), own speed, other angle, (heading, turn).

        Gymnasium deals the velocity of the head out: the first agent sees the part along x, the second that along y.
        """
        everything = np.concatenate([positions, velocities], axis=1)
        size, front, rear = len(COORDINATES), COORDINATES.index("front"), COORDINATES.index("rear")
        heading = COORDINATES.index("heading")
        whole = [heading, size + heading] * self.see_head
        seen = [
            [own, *[size + head] * self.see_head, size + own, *[other] * self.see_neighbor, *whole]
            for own, other, head in ((front, rear, 0), (rear, front, 1))
        ]
        return np.asarray(everything[:, np.array(seen)])

    def joint_angles(self, obs: Float[Numbers, "*batch agents obs"]) -> Float[Numbers, "*batch agents"]:
        """Angles `[..., agents]` in radians from observations `[..., agents, obs]`."""
        return obs[..., 0]

    def heading(self, obs: Float[Numbers, "*batch agents obs"]) -> Float[Numbers, "*batch"]:
        """Angle of the head link `[...]` in radians from observations `[..., agents, obs]`; 0 where it is not seen."""
        return obs[..., 0, -2] if self.see_head else 0 * obs[..., 0, 0]


@dataclass(frozen=True)
class TargetAngle:
    """A goal: the angle that both joints should have, in radians."""

    def size(self, env: AnyEnvironment) -> int:
        """One number."""
        del env
        return 1

    def __call__(
        self, env: AnyEnvironment, task: SwimmerTask, obs: Float[AnyArray, "*batch agents obs"]
    ) -> Float[AnyArray, "*batch 1 1"]:
        """The same for both agents."""
        del env, obs
        return task.target[..., None, None]


class SwimmerBatch:
    """Running swimmers, each on a target of its own.

    They live in `mujoco.batch`. Played action by action with 64 copies on one core it takes 21.1 thousand steps per
    second, and `mujoco.rollout` 19.8 thousand (medians of 15 turns), which also loses the solver's warm start between
    calls. Results do not depend on the number of threads, nor those of a copy on the other copies.
    """

    positions: np.ndarray
    """The engine's own `[copies, coordinates]`; a write is the state from which the next step starts."""
    velocities: np.ndarray

    def __init__(self, env: SwimmerClimb, copies: int, threads: int) -> None:
        if copies < 1 or threads < 1:
            raise UsageError(f"copies and threads must be at least 1, not {copies} and {threads}")
        mujoco, engine = _import_mujoco()
        self.env, self.copies = env, copies
        self._failure = engine.SimulationError
        self._engine = engine.Batch(mujoco.MjModel.from_xml_string(MODEL), copies, threads)
        warnings = mujoco.mjtWarning
        self._unstable = [
            int(one) for one in (warnings.mjWARN_BADQPOS, warnings.mjWARN_BADQVEL, warnings.mjWARN_BADQACC)
        ]
        self.positions, self.velocities, self._torques = (self._engine.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._targets = np.zeros(copies)
        self._obs: np.ndarray | None = None

    def reset(self, tasks: SwimmerTask, seeds: np.ndarray) -> np.ndarray:
        """Start episodes close to a straight body at rest; a seed starts as in Gymnasium's Swimmer-v5."""
        targets, seeds = np.array(tasks.target, np.float64), np.asarray(seeds)
        if targets.shape != (self.copies,) or seeds.shape != (self.copies,):
            raise UsageError(f"{self.copies} copies need as many tasks and seeds, not {targets.size} and {seeds.size}")
        self._targets = targets
        self._engine.reset()
        noise = self.env.reset_noise
        for copy, seed in enumerate(seeds.tolist()):
            random = np.random.default_rng(seed)
            self.positions[copy] = random.uniform(-noise, noise, len(COORDINATES))
            self.velocities[copy] = random.uniform(-noise, noise, len(COORDINATES))
        self._engine.forward()  # leaves behind where the solver starts from
        self._obs = self.env.observe(self.positions, self.velocities).astype(np.float32)
        return self._obs.copy()

    def step(self, actions: np.ndarray, alive: np.ndarray) -> HostStep:
        """Turn the joints; a copy whose physics breaks down is cut short, with the last observation it had."""
        if self._obs is None:
            raise UsageError("reset the swimmers before their first step")
        torques = np.clip(np.asarray(actions, np.float64).reshape(self.copies, NUM_AGENTS), -1.0, 1.0)
        if np.isnan(torques[alive]).any():
            raise TrainingError("an action of the swimmer is not a number: the policy that chose it has broken down")
        moving = np.flatnonzero(alive)
        self._torques[moving] = torques[moving]
        if moving.size:
            # The copies without an error have then made their step; `status` says who has not.
            with contextlib.suppress(self._failure):
                self._engine.step(None if moving.size == self.copies else moving, SUBSTEPS)
        good = alive & ~self._broken()
        positions = np.where(good[:, None], self.positions, 0.0)
        obs = self.env.observe(positions, np.where(good[:, None], self.velocities, 0.0)).astype(np.float32)
        self._obs = np.where(good[:, None, None], obs, self._obs)
        reward = np.where(good, self.env.reward(self._targets, positions[:, -NUM_AGENTS:]), np.float32(0.0))
        return HostStep(self._obs.copy(), reward, np.zeros(self.copies, bool), alive & ~good)

    def _broken(self) -> np.ndarray:
        """Copies in which the engine failed, or which it has reset on its own because they blew up."""
        counts = self._engine.warning[:, self._unstable, 1]
        # Written so that NaN counts as broken.
        sound = np.all(np.abs(self.positions) < LARGEST, axis=1) & np.all(np.abs(self.velocities) < LARGEST, axis=1)
        return np.asarray((self._engine.status != 0) | np.any(counts > 0, axis=1) | ~sound)

    def close(self) -> None:
        """Nothing runs between calls."""


def _import_mujoco() -> tuple[Any, Any]:
    """MuJoCo and its module for batches, if they are installed."""
    try:
        return importlib.import_module("mujoco"), importlib.import_module("mujoco.batch")
    except ImportError as error:
        raise UsageError(f"the swimmer needs MuJoCo: pip install 'mesax[mujoco]' ({error})") from error


@dataclass(frozen=True)
class SwimmerFamily(ClimbReturns):
    """Targets on both sides of a straight body."""

    world: SwimmerClimb = SwimmerClimb()
    """Where the tasks take place."""
    least_degrees: float = 9.0
    """Targets are farther than this from 0: episodes start near 0, so closer ones need no exploration. 0 takes all."""
    most_degrees: float = 30.0
    """Targets are closer than this to 0."""
    published: bool = added(False)
    """Whether the first five test tasks of a seed are the paper's own, as its authors draw them."""
    lost: tuple[float, float] = added((0.0, 0.0))
    """Steps of an episode that scripted teams lose on the way to the optimum and to the safe equilibrium."""

    def __post_init__(self) -> None:
        """Refuse families without a possible task."""
        if not 0.0 <= self.least_degrees < self.most_degrees <= HINGE_LIMIT_DEGREES:
            raise UsageError(
                f"least-degrees and most-degrees must be two growing angles between 0 and {HINGE_LIMIT_DEGREES:g},"
                f" not {self.least_degrees} and {self.most_degrees}"
            )
        self.check_lost()

    @property
    def env(self) -> SwimmerClimb:
        """The world all tasks share."""
        return self.world

    @property
    def num_bins(self) -> int:
        """Bins of the range of targets, each as wide as `band_degrees`."""
        return int(np.ceil(2 * self.most_degrees / self.world.band_degrees - 1e-9))

    @property
    def configuration_shape(self) -> tuple[int, ...]:
        """One stage, one cell per bin."""
        return (1, self.num_bins)

    @property
    def group_edges(self) -> np.ndarray:
        """Distances from 0 in degrees that part the groups, with both ends."""
        return np.linspace(self.least_degrees, self.most_degrees, 4)

    @property
    def groups(self) -> tuple[str, ...]:
        """Near, middle and far targets, on either side."""
        edges = [f"{edge:.4g}" for edge in self.group_edges]
        return tuple(f"{low}-{high} deg" for low, high in pairwise(edges))

    def facts(self) -> dict[str, object]:
        """Plain facts for run.json."""
        names = ("band_degrees", "delta", "horizon", "see_neighbor", "see_head", "reset_noise")
        own = {"least_degrees": self.least_degrees, "most_degrees": self.most_degrees, "num_agents": NUM_AGENTS}
        return {name: getattr(self.world, name) for name in names} | own | super().facts()

    def split(self, seed: int, num_train: int, num_test: int) -> TaskSplit:
        """Targets drawn uniformly, each from a stream of its own, after those of the paper."""
        first = self._published(seed)
        train = (target for target in self._draws(seed, 0) if target not in first)
        parts = islice(train, num_train), islice(chain(first, self._draws(seed, 1)), num_test)
        return TaskSplit(*(SwimmerTask(*on_device([np.array(list(part), np.float32)])) for part in parts))

    def _published(self, seed: int) -> list[np.float32]:
        """The targets that the paper's authors draw with this seed."""
        if not self.published:
            return []
        most = np.deg2rad(self.most_degrees)
        random = np.random.RandomState((PUBLISHED_SEED + seed) % 2**32)
        return list(random.uniform(-most, most, PUBLISHED_TASKS).astype(np.float32))

    def _draws(self, seed: int, test: int) -> Iterator[np.float32]:
        return (np.float32(np.deg2rad(self._draw(seed, test, index))) for index in count())

    def _draw(self, seed: int, test: int, index: int) -> float:
        """Degrees; of a million fine cells test tasks take the odd and training tasks the even ones: none is shared."""
        random = np.random.default_rng((seed, 0x5317, test, index))
        share = (2 * random.integers(2**19) + test + 0.5) / 2**20
        side = 1.0 if random.integers(2) else -1.0
        return side * float(self.least_degrees + share * (self.most_degrees - self.least_degrees))

    def describe(self, task: SwimmerTask) -> TaskInfo:
        """The target in degrees."""
        degrees = float(np.rad2deg(np.float64(task.target)))
        return TaskInfo(f"alpha={degrees:+.1f}", self._group(degrees), [[round(degrees, 4)]])

    def _group(self, degrees: float) -> str:
        if not abs(degrees) < self.most_degrees:
            raise UsageError(f"target {degrees:g} is not within +-{self.most_degrees:g} degrees")
        place = int(np.searchsorted(self.group_edges, abs(degrees), side="right")) - 1
        return self.groups[max(place, 0)]

    def breakdown(self, task: SwimmerTask, rewards: np.ndarray) -> dict[str, float]:
        """The group of the target."""
        return {self._group(float(np.rad2deg(np.float64(task.target)))): float(np.sum(rewards))}

    def configuration(self, transition: Transition) -> Int[Array, ""]:
        """Bin of the joints' mean angle if some target there would pay, -1 if none would."""
        angles = jnp.rad2deg(self.world.joint_angles(transition.next_obs))
        mean, apart = jnp.mean(angles), jnp.abs(angles[0] - angles[1])
        # A target pays if it is within the band around both joints, so their bands must overlap.
        pays = (apart < 2 * self.world.band_degrees) & (jnp.abs(mean) < self.most_degrees)
        return jnp.where(pays, self._bin(mean), -1)

    def _bin(self, degrees: Float[AnyArray, "*shape"]) -> Int[Array, "*shape"]:
        place = jnp.floor((degrees + self.most_degrees) / self.world.band_degrees)
        return jnp.clip(place, 0, self.num_bins - 1).astype(jnp.int32)

    def rewarding_configurations(self, tasks: SwimmerTask) -> np.ndarray:
        """Bins of the tasks' targets."""
        return np.unique(np.asarray(self._bin(jnp.rad2deg(jnp.asarray(tasks.target))))).astype(np.int64)
