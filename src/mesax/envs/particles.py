"""The particle world of MPE, in JAX: points with force, damping and soft contacts.

    x <- x + v dt;   v <- (1 - damping) v + F / m dt                     mpe2, PettingZoo since 1.23    position-first
    v <- (1 - damping) v + F / m dt;   x <- x + v dt                     the original OpenAI code       velocity-first

F is the agents' own force plus, for every pair of colliding bodies, a repulsion of
`contact_force * margin * log(1 + exp(-(d - d_min) / margin))` along the line between them. The default follows mpe2,
the maintained reference, step by step (tests/envs/test_particles.py drives both).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.errors import UsageError
from mesax.ranges import above
from mesax.types import Discrete

DIRECTIONS = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)
"""Unit force of the five discrete actions: stay, left, right, down, up."""
ACTIONS = Discrete(len(DIRECTIONS))
UNIT_FORCE = 5.0
"""What an action weighs in MPE's own worlds."""
FORESIGHT = 3
"""Steps over which a scripted agent weighs an action: enough to see that it must brake."""
_QUARTER, _MIRROR = np.array([[0, -1], [1, 0]]), np.array([[-1, 0], [0, 1]])
SQUARE_TURNS = np.stack(
    [np.linalg.matrix_power(_QUARTER, turn) @ flip for flip in (np.eye(2, dtype=int), _MIRROR) for turn in range(4)]
).astype(np.float32)
"""The eight symmetries of a square, the first leaves everything as it is, `[8, 2, 2]`."""
Integration: TypeAlias = Literal["position-first", "velocity-first"]


def turned_actions() -> np.ndarray:
    """The action of the world itself that each action in the turned world means, `[turns, actions]`."""
    meant = np.einsum("tji,aj->tai", SQUARE_TURNS, DIRECTIONS)  # turned back: the inverse is the transpose
    return np.argmin(np.linalg.norm(meant[:, :, None] - DIRECTIONS[None, None], axis=-1), axis=-1)


@dataclass(frozen=True)
class ParticlePhysics:
    """Integration of a particle world; positions and velocities are `[bodies, 2]`."""

    time_step: float = 0.1
    damping: float = 0.25
    contact_force: float = 100.0
    contact_margin: float = 1e-3
    integration: Integration = "position-first"
    wall: float | None = None
    """Positions are held within +- this; what presses against the wall stops. None: the plane has no end."""

    def __post_init__(self) -> None:
        """Refuse worlds without time or space."""
        above(self, 0, "time_step", "contact_margin", "wall")
        if self.integration not in (choices := get_args(Integration)):
            raise UsageError(f"integration must be {' or '.join(choices)}, not {self.integration}")

    def step(
        self,
        position: Float[Array, "bodies 2"],
        velocity: Float[Array, "bodies 2"],
        force: Float[Array, "bodies 2"],
        size: float | None = None,
    ) -> tuple[Float[Array, "bodies 2"], Float[Array, "bodies 2"]]:
        """Positions and velocities one time step later under the bodies' own `force`.

        Bodies of a `size` push each other apart; without one they pass through each other.
        """
        if size is not None and position.shape[0] > 1:
            force = force + self.contact_forces(position, size)
        faster = velocity * (1.0 - self.damping) + force * self.time_step
        moved = position + self.time_step * (velocity if self.integration == "position-first" else faster)
        if self.wall is not None:
            outward = (jnp.abs(moved) >= self.wall) & (jnp.sign(faster) == jnp.sign(moved))
            moved, faster = jnp.clip(moved, -self.wall, self.wall), jnp.where(outward, 0.0, faster)
        return moved, faster

    def contact_forces(self, position: Float[Array, "bodies 2"], size: float) -> Float[Array, "bodies 2"]:
        """Sum of the repulsions on each body of radius `size`."""
        pairs = ~np.eye(position.shape[0], dtype=bool)
        apart = position[:, None] - position[None]
        distance = length(jnp.where(pairs[..., None], apart, 1.0))
        # Two bodies at the very same point have no line between them: dividing by their distance would give NaN.
        direction = apart / jnp.where(distance > 0, distance, 1.0)[..., None]
        depth = jax.nn.softplus(-(distance - 2 * size) / self.contact_margin) * self.contact_margin
        return jnp.sum(jnp.where(pairs[..., None], self.contact_force * depth[..., None] * direction, 0.0), axis=1)


def offsets_to(points: Float[Array, "points 2"], position: Float[Array, "bodies 2"]) -> Float[Array, "bodies points 2"]:
    """How far every point is from every body, as each sees it."""
    return points[None] - position[:, None]


def offsets_to_others(position: Float[Array, "bodies 2"]) -> Float[Array, "bodies others 2"]:
    """The same for all other bodies, by number."""
    number = position.shape[0]
    # Row i without its own entry, as a static gather: numbers 0 .. n-1 except i.
    rest = np.array([[j for j in range(number) if j != i] for i in range(number)], int).reshape(number, number - 1)
    return offsets_to(position, position)[np.arange(number)[:, None], rest]


def length(vectors: Float[Array, "*shape 2"]) -> Float[Array, "*shape"]:
    """Euclidean length; at zero its gradient is zero, where that of `jnp.linalg.norm` is NaN."""
    square = jnp.sum(jnp.square(vectors), axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def steer(
    offset: Float[Array, "2"], velocity: Float[Array, "2"], physics: ParticlePhysics = ParticlePhysics()
) -> Int[Array, ""]:
    """The action whose next steps, if the agent coasts afterwards, stay closest to a point at `offset`."""
    # As many particles as actions, each pushed once; they ignore one another.
    position, speed = jnp.zeros((len(DIRECTIONS), 2)), jnp.broadcast_to(velocity, (len(DIRECTIONS), 2))
    force, missed = UNIT_FORCE * jnp.asarray(DIRECTIONS), jnp.zeros(len(DIRECTIONS))
    for _ in range(FORESIGHT):
        position, speed = physics.step(position, speed, force)
        force, missed = jnp.zeros_like(force), missed + length(offset[None] - position)
    return jnp.argmin(missed)
