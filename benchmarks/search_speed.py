"""What searching costs: time per environment step of EMC and MAVEN in units of QMIX's, on one core, once compiled.

    taskset -c 0 python benchmarks/search_speed.py [--learners emc maven]

Three agents with 18 observations and 5 actions each, episodes of 26 steps, nets with a GRU of 64 units; a round is 8
episodes, what the learner notes of them, and one update from 32; as in a run, several rounds are one program. Learners
take turns, and what counts is the least processor time of many tries: all of them meet the same machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)

from mesax.algorithms.mixers import Duplex  # noqa: E402
from mesax.algorithms.value_decomposition import ValueDecomposition  # noqa: E402
from mesax.baselines.emc import Emc  # noqa: E402
from mesax.baselines.maven import Maven  # noqa: E402
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily  # noqa: E402
from mesax.training.rollout import play  # noqa: E402
from mesax.types import Elapsed  # noqa: E402

NUM_ENVS, BATCH_SIZE, ROUNDS, REPEATS = 8, 32, 5, 15
NOW = Elapsed.at(0.5, 25_000)
QMIX = ValueDecomposition()
# What a learner is called -> who it is, and how many times QMIX's time it may take.
LEARNERS: dict[str, tuple[Any, float]] = {
    "emc": (Emc(ValueDecomposition(Duplex())), 2.5),
    "maven": (Maven(), 1.5),
}


def some_rounds(learner: Any, env: ParticleClimb, tasks: Any, key: jax.Array) -> Callable[[], Any]:
    """Play, take note, update, again and again; always from the same first state."""

    def played_and_learned(batch: Any, state: Any, key: jax.Array) -> tuple[Any, Any]:
        fresh = play(env, tasks, learner.behavior(env.spec, state, NOW), key, NUM_ENVS)
        return learner.update(env.spec, learner.observe(env.spec, state, fresh), batch, NOW, key)

    state = jax.jit(lambda key: learner.init(env.spec, key))(key)
    batch = jax.jit(lambda state: play(env, tasks, learner.behavior(env.spec, state, NOW), key, BATCH_SIZE))(state)
    rounds = jax.jit(lambda state, batch, keys: jax.lax.scan(partial(played_and_learned, batch), state, keys))
    keys = jax.random.split(key, ROUNDS)
    return lambda: rounds(state, batch, keys)


def least_seconds(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Least processor seconds of a round of each; the first time compiles and does not count."""
    best = dict.fromkeys(functions, float("inf"))
    for repeat in range(REPEATS + 1):
        for name, function in functions.items():
            started = time.process_time()
            jax.block_until_ready(function())
            if repeat:
                best[name] = min(best[name], (time.process_time() - started) / ROUNDS)
    return best


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    options = parser.parse_args()
    env, key = ParticleClimb(num_agents=3, num_landmarks=6, horizon=26), jax.random.key(0)
    tasks = ParticleClimbFamily(env).split(0, 1, 1).test
    learners = {"qmix": QMIX} | {name: LEARNERS[name][0] for name in options.learners}
    seconds = least_seconds({name: some_rounds(learner, env, tasks, key) for name, learner in learners.items()})
    print(f"{'qmix, ms a round':<50} {1e3 * seconds['qmix']:>10.2f}")
    for name in options.learners:
        times, bar = seconds[name] / seconds["qmix"], LEARNERS[name][1]
        verdict = "met" if times <= bar else "MISSED"
        print(f"{name + ', time per step in units of qmix':<50} {times:>10.2f}   <= {bar:<6} {verdict}")


if __name__ == "__main__":
    main()
