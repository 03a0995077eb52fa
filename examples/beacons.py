"""Three drones among six beacons: one of them, and no drone knows which, answers while all three hover there.

Nothing else is ever paid. Actions are thrusts, in two directions, and all that is seen is a velocity and distances.

    mesax run mesa beacons:FAMILY
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

import mesax

DRONES, BEACONS, REACH = 3, 6, 0.3


class State(eqx.Module):
    place: jax.Array
    velocity: jax.Array


@dataclass(frozen=True)
class Beacons:
    """A task is a number: divided by six, the quotient says where beacons are and the remainder which one counts."""

    spec = mesax.EnvSpec(DRONES, 2 + 2 * BEACONS + 2 * (DRONES - 1), mesax.Box(2), horizon=50)
    # All that MESA is told: numbers 2 to 13 of an observation are about beacons, the last four about other drones.
    entities = mesax.DeclaredEntities(
        places=mesax.Block(first=2, number=BEACONS, size=2), others=mesax.Block(first=14, number=DRONES - 1, size=2)
    )

    def reset(self, task, key):
        place = jax.random.uniform(key, (DRONES, 2), minval=-1.0, maxval=1.0)
        state = State(place, jnp.zeros_like(place))
        return state, self.see(task, state)

    def step(self, task, state, action, key):
        velocity = 0.7 * state.velocity + 0.03 * jnp.clip(action, -1.0, 1.0)
        place = jnp.clip(state.place + velocity, -1.0, 1.0)
        state = State(place, velocity)
        answer = jnp.asarray(self.answers(task, place), jnp.float32)
        return state, mesax.Step(self.see(task, state), answer, jnp.asarray(False))

    def answers(self, task, place):
        target = beacons_of(task)[task % BEACONS]
        return jnp.all(jnp.linalg.norm(place - target[None], axis=1) < REACH)

    def see(self, task, state):
        places = beacons_of(task)[None] - state.place[:, None]
        others = jnp.stack([jnp.roll(state.place, -shift, axis=0) - state.place for shift in range(1, DRONES)], axis=1)
        return jnp.concatenate([state.velocity, places.reshape(DRONES, -1), others.reshape(DRONES, -1)], axis=1)


def beacons_of(task):
    """One in each of six fields, anywhere."""
    field = jnp.array([(x, y) for x in (-0.65, 0.0, 0.65) for y in (-0.5, 0.5)])
    return field + jax.random.uniform(jax.random.key(task // BEACONS), (BEACONS, 2), minval=-0.2, maxval=0.2)


FAMILY = mesax.ForeignFamily(Beacons(), optimal_return=40.0, high_reward=1.0, tasks_per_layout=BEACONS)
