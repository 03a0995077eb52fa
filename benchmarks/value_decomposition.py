"""Speed of recurrent value decomposition on one core: rollout, update, and learning end to end, once compiled.

    taskset -c 0 python benchmarks/value_decomposition.py [--mixer Monotonic] [--products float32 bfloat16]

Three agents with 18 observations and 5 actions each, episodes of 26 steps, a GRU of 64 units; a round is 8 episodes and
one update from 32. Rates are per second of processor time: another job on the machine slows the wall clock, not these
figures (much). Both kinds of products are measured one after the other: their ratio says what rounded factors gain.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)

from mesax.algorithms.mixers import Duplex, Independent, MixerConfig, Monotonic, Sum  # noqa: E402
from mesax.algorithms.value_decomposition import ValueDecomposition  # noqa: E402
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily  # noqa: E402
from mesax.nets import Gru, Products  # noqa: E402
from mesax.training.driver import learn  # noqa: E402
from mesax.training.loop import LearningLoop  # noqa: E402
from mesax.training.rollout import play  # noqa: E402
from mesax.training.schedule import Schedule  # noqa: E402
from mesax.types import Elapsed  # noqa: E402

MIXERS: dict[str, MixerConfig] = {kind.__name__: kind() for kind in (Independent, Sum, Monotonic, Duplex)}
NUM_ENVS, BATCH_SIZE, ROUNDS, CHUNKS = 8, 32, 25, 30
SPEED_BAR, COMPILE_BAR, RATIO_BAR = 20_000, 20.0, 1.3


def seconds(function: Callable[..., Any], *arguments: Any, repeats: int = 100) -> float:
    """Best processor seconds of one call, once compiled."""
    jitted, best = jax.jit(function), float("inf")
    jax.block_until_ready(jitted(*arguments))
    for _ in range(repeats):
        started = time.process_time()
        jax.block_until_ready(jitted(*arguments))
        best = min(best, time.process_time() - started)
    return best


def end_to_end(loop: LearningLoop, tasks: Any, key: jax.Array) -> tuple[float, float, float]:
    """(best steps per processor second of a chunk, the same by the wall clock, processor seconds to compile)."""
    clocks, walls, steps = [time.process_time()], [time.perf_counter()], [0]
    for chunk in learn(loop, tasks, key[None], eval_episodes=0):
        clocks.append(time.process_time())
        walls.append(time.perf_counter())
        steps.append(chunk.step)
    # The first two chunks compile: the warm-up, and learning.
    best, by_wall = (min(after - before for before, after in pairwise(times[2:])) for times in (clocks, walls))
    return (steps[-1] - steps[-2]) / best, (steps[-1] - steps[-2]) / by_wall, clocks[2] - clocks[0] - best


def measure(mixer: MixerConfig, products: Products) -> float:
    """Environment steps per processor second of one learner; prints all there is to know."""
    env = ParticleClimb(num_agents=3, num_landmarks=6, horizon=26)
    spec, key = env.spec, jax.random.key(0)
    assert (spec.obs_size, spec.action_space.feature_size) == (18, 5)
    algorithm = ValueDecomposition(mixer, Gru(64, num_layers=1, products=products))
    tasks = ParticleClimbFamily(env).split(0, 1, 1).test
    learner = algorithm.init(spec, key)
    policy = algorithm.behavior(spec, learner, Elapsed.at(0.5, 25_000))
    steps = NUM_ENVS * spec.horizon

    batch = play(env, tasks, policy, key, BATCH_SIZE)
    rollout = seconds(lambda policy, key: play(env, tasks, policy, key, NUM_ENVS), policy, key)
    update = seconds(lambda state, batch: algorithm.update(spec, state, batch, Elapsed.end(), key), learner, batch)
    print(f"products of {products} factors")
    print(f"rollout of {NUM_ENVS} episodes {1e3 * rollout:7.2f} ms")
    print(f"update from {BATCH_SIZE} episodes {1e3 * update:6.2f} ms")

    budget = Schedule(
        total_steps=(1 + CHUNKS * ROUNDS) * steps,
        num_envs=NUM_ENVS,
        num_evaluations=CHUNKS,
        warmup_steps=1,
        updates_per_round=1,
        batch_size=BATCH_SIZE,
        replay_capacity=5_000,
    )
    with tempfile.TemporaryDirectory() as empty:  # nothing compiled before may help
        jax.config.update("jax_compilation_cache_dir", empty)
        rate, wall, compiling = end_to_end(
            LearningLoop(env, algorithm, budget), jax.tree.map(lambda leaf: leaf[None], tasks), key
        )
    report("learning, environment steps per processor second", rate, rate >= SPEED_BAR, f">= {SPEED_BAR:,}")
    report("the same by the wall clock", wall)
    report("processor seconds to compile", compiling, compiling <= COMPILE_BAR, f"<= {COMPILE_BAR:.0f}")
    return rate


def report(what: str, value: float, met: bool | None = None, bar: str = "") -> None:
    """One line."""
    print(f"{what:<50} {value:>10,.2f}   {bar:<9} {'' if met is None else 'met' if met else 'MISSED'}", flush=True)


def main() -> None:
    """Measure one mixer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixer", default="Monotonic", choices=MIXERS)
    parser.add_argument("--products", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    options = parser.parse_args()
    rates = {products: measure(MIXERS[options.mixer], products) for products in options.products}
    if len(rates) == 2:
        ratio = rates["bfloat16"] / rates["float32"]
        report("bfloat16 factors: times as fast", ratio, ratio >= RATIO_BAR, f">= {RATIO_BAR}")


if __name__ == "__main__":
    main()
