"""Speed of the learners at the workloads of neighbouring libraries, once compiled; on cooperative navigation.

    python benchmarks/learners.py [maddpg] [mappo] [mappo-mlp] [mappo-bfloat16] [--both-cores]

Everything runs in one thread. A rate is that of the best of several chunks, by the processor's clock: another job on
the machine slows the wall clock, not these figures (much). `--both-cores` runs two copies side by side. A recurrent
learner is measured with products of both kinds, one after the other: their ratio says what rounded factors gain here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
from simple_spread import SimpleSpread  # noqa: E402

from mesax.algorithms.actor_updates import ExpectedGradient  # noqa: E402
from mesax.algorithms.maddpg import Maddpg  # noqa: E402
from mesax.algorithms.mappo import Mappo  # noqa: E402
from mesax.nets import Adam, Gru, Mlp  # noqa: E402
from mesax.training.driver import learn  # noqa: E402
from mesax.training.loop import LearningLoop  # noqa: E402
from mesax.training.schedule import Budget, Schedule  # noqa: E402


@dataclass(frozen=True)
class Work:
    """A learner with as much to do as elsewhere."""

    text: str
    horizon: int
    algorithm: Any
    schedule: Schedule | Budget
    bar: float
    """Steps a second; of a learner that is held against another, how many times as fast it is."""
    against: str | None = None
    """The learner that this one is held against."""


def rounds(number: int, envs: int, horizon: int) -> int:
    """Environment steps of that many rounds."""
    return number * envs * horizon


WORK = {
    "maddpg": Work(
        "MADDPG, MLPs 64-64; 64 x 80 steps, 8 updates of 16 episodes a round",
        80,
        Maddpg(Mlp((64, 64)), Mlp((64, 64)), actor_update=ExpectedGradient("policy")),
        Schedule(rounds(61, 64, 80), 64, 6, 64 * 80, 8, 16, 4_000),
        35_000,
    ),
    "mappo": Work(
        "MAPPO, GRU-128; 16 x 128 steps, 4 epochs x 4 minibatches a round",
        128,
        Mappo(Gru(128, 1), Gru(128, 1), optimizer=Adam(2e-3, 0.5), epochs=4, minibatches=4, chunk=16),
        Budget(rounds(60, 16, 128), 16, 6),
        8_000,
    ),
    "mappo-mlp": Work(
        "MAPPO, MLPs 64-64 and 128-128; 32 x 80 steps, 10 epochs a round",
        80,
        Mappo(Mlp((64, 64)), Mlp((128, 128)), epochs=10, minibatches=1),
        Budget(rounds(60, 32, 80), 32, 6),
        20_000,
    ),
}


MAPPO = WORK["mappo"]
ROUNDED = Gru(128, 1, products="bfloat16")
WORK["mappo-bfloat16"] = replace(
    MAPPO,
    text="the same with products of bfloat16 factors",
    algorithm=replace(MAPPO.algorithm, actor_net=ROUNDED, critic_net=ROUNDED),
    bar=1.4,
    against="mappo",
)


def measure(work: Work) -> tuple[float, float, float]:
    """(steps per processor second, steps per second, processor seconds until the first chunk was done) of a learner."""
    loop = LearningLoop(SimpleSpread(3, horizon=work.horizon), work.algorithm, work.schedule)
    tasks = jnp.zeros((1, 1), jnp.uint32)
    best, wall, first, before, started = 0.0, 0.0, 0.0, None, time.process_time()
    for chunk in learn(loop, tasks, jax.random.split(jax.random.key(0), 1), eval_episodes=0):
        now = time.process_time(), time.perf_counter(), chunk.step
        first = now[0] - started if chunk.compile_seconds else first
        if before is not None and not chunk.compile_seconds:
            steps = now[2] - before[2]
            best, wall = max(best, steps / (now[0] - before[0])), max(wall, steps / (now[1] - before[1]))
        before = now
    return best, wall, first


def main() -> None:
    """Measure the learners that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learners", nargs="*", choices=[*WORK, []], help="default: all")
    parser.add_argument("--both-cores", action="store_true", help="two copies at once; rates are added")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rates: dict[str, float] = {}
    for name in options.learners or WORK:
        work, copies = WORK[name], 2 if options.both_cores else 1
        if copies == 2:
            command = [sys.executable, __file__, name, "--json"]
            running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(copies)]
            answers = [json.loads(process.communicate()[0]) for process in running]
            rate, wall, first = (sum(answer[i] for answer in answers) for i in range(3))
            first /= copies
        else:
            rate, wall, first = measure(work)
        if options.json:
            print(json.dumps([rate, wall, first]))
            continue
        rates[name] = rate
        print(f"{work.text}\n  {rate:>9,.0f} steps/s of processor time, {wall:,.0f} of the wall clock;", end="")
        print(f" first chunk after {first:.1f} s   {verdict(work, rates, name)}", flush=True)


def verdict(work: Work, rates: dict[str, float], name: str) -> str:
    """The bar and whether it is met, as far as it can be said."""
    if work.against is None:
        return f"bar >= {work.bar:,}/s  {'met' if rates[name] >= work.bar else 'MISSED'}"
    if work.against not in rates:
        return ""
    ratio = rates[name] / rates[work.against]
    return f"{ratio:.2f} times as fast; bar >= {work.bar}  {'met' if ratio >= work.bar else 'MISSED'}"


if __name__ == "__main__":
    main()
