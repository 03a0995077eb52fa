"""Whether the verdict before stage 2 is right, in five worlds where MESA helps and five where it cannot.

    python benchmarks/verdicts.py                      all ten, seed 101
    python benchmarks/verdicts.py --worlds chance mpe-2a5l --seed 102

Worlds where it cannot help are examples/beacons.py with another rule:
    unseen     drones do not see the beacons
    unmarked   what answers is a place that no beacon marks
    chance     a beacon answers once in a while, wherever drones are
    moment     a beacon answers in one hidden step of the episode, wherever drones are
    far        drones must be so close that stage 1 never meets an answer
The last line is JSON.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

from mesax.runtime import configure

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import beacons

HELPS = ("mpe-2a5l", "mpe-3a5l", "wide-2a5l", "wide-3a5l", "beacons:FAMILY")
CANNOT = ("unseen", "unmarked", "chance", "moment", "far")
ODDS = 1e-4
"""Of an answer by chance: about as many as random play meets in the world as it is."""


class Timed(eqx.Module):
    """The world's own state, the steps so far and what chance draws from."""

    own: beacons.State
    step: jax.Array
    key: jax.Array


@dataclass(frozen=True)
class Unseen(beacons.Beacons):
    """Where beacons are is not told."""

    def see(self, task, state):
        seen = super().see(task, state)
        return seen.at[:, 2:14].set(0.0)


@dataclass(frozen=True)
class Unmarked(beacons.Beacons):
    """A place of each task's own."""

    def answers(self, task, place):
        hidden = jax.random.uniform(jax.random.key(task), (2,), minval=-0.8, maxval=0.8)
        return jnp.all(jnp.linalg.norm(place - hidden[None], axis=1) < beacons.REACH)


@dataclass(frozen=True)
class Chance(beacons.Beacons):
    """Drawn from where drones are, in a way that no net can follow."""

    def answers(self, task, place):
        bits = jnp.sum(jax.lax.bitcast_convert_type(place, jnp.int32))
        return jax.random.uniform(jax.random.fold_in(jax.random.key(task), bits)) < ODDS


@dataclass(frozen=True)
class Far(beacons.Beacons):
    """All within a thousandth of it."""

    def answers(self, task, place):
        target = beacons.beacons_of(task)[task % beacons.BEACONS]
        return jnp.all(jnp.linalg.norm(place - target[None], axis=1) < 0.001)


@dataclass(frozen=True)
class Moment(beacons.Beacons):
    """In one step of an episode, and of few episodes."""

    def reset(self, task, key):
        state, seen = super().reset(task, key)
        return Timed(state, jnp.zeros((), jnp.int32), key), seen

    def step(self, task, state, action, key):
        own, step = super().step(task, state.own, action, key)
        hidden = jax.random.randint(jax.random.key(task), (), 0, self.spec.horizon)
        lucky = jax.random.uniform(state.key) < ODDS * self.spec.horizon
        pays = (state.step == hidden) & lucky
        return Timed(own, state.step + 1, state.key), replace(step, reward=pays.astype(jnp.float32))


RULES = {"unseen": Unseen(), "unmarked": Unmarked(), "chance": Chance(), "moment": Moment(), "far": Far()}


def verdict(world: str, seed: int) -> tuple[bool, str]:
    """(Whether explorers will work, in words)."""
    from mesax.cli.env.verdict import fitted
    from mesax.errors import TrainingError
    from mesax.experiments.catalogue import experiment

    named = replace(experiment("learned", "beacons:FAMILY" if world in RULES else world, "quick"), seed=seed)
    family = named.family
    if world in RULES:
        family = replace(family, env=RULES[world])
    if world.startswith("wide"):
        family = replace(family, targets_each=5)
    try:
        row = fitted(replace(named, family=family)).verdict
    except TrainingError as error:
        return False, str(error)
    return bool(row["helps"]), str(row["verdict"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=HELPS + CANNOT, default=HELPS + CANNOT)
    parser.add_argument("--seed", type=int, default=101)
    options = parser.parse_args()
    configure()
    rows = []
    for world in options.worlds:
        helps, words = verdict(world, options.seed)
        rows.append({"world": world, "helps": helps, "right": helps == (world in HELPS), "verdict": words})
        print(f"{world:<15} {'right' if rows[-1]['right'] else 'WRONG'}  {words}", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
