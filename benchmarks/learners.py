"""Speed of learners on one core, once compiled: steps of three agents with 18 observations and 5 actions each.

    python benchmarks/learners.py [maddpg] [mappo] [mappo-mlp] [qmix] [emc] [maven] [mappo-bfloat16] [qmix-bfloat16]

A rate is that of the best of several chunks, playing and updates included, by the processor's clock: another job on the
machine slows the wall clock, not these figures (much). Some learners are held against another one instead of a number
of steps. The time to the first chunk is that of an empty cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)

from mesax.algorithms.actor_updates import ExpectedGradient  # noqa: E402
from mesax.algorithms.maddpg import Maddpg  # noqa: E402
from mesax.algorithms.mappo import Mappo  # noqa: E402
from mesax.algorithms.mixers import Duplex  # noqa: E402
from mesax.algorithms.value_decomposition import ValueDecomposition  # noqa: E402
from mesax.baselines.emc import Emc  # noqa: E402
from mesax.baselines.maven import Maven  # noqa: E402
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily  # noqa: E402
from mesax.nets import Adam, Gru, Mlp  # noqa: E402
from mesax.training.driver import learn  # noqa: E402
from mesax.training.loop import LearningLoop  # noqa: E402
from mesax.training.schedule import Budget, Schedule  # noqa: E402


@dataclass(frozen=True)
class Work:
    """A learner with as much to do as in neighboring libraries."""

    text: str
    horizon: int
    algorithm: Any
    schedule: Schedule | Budget
    bar: float
    """Least steps a second; of a learner that is held against another, most of its time."""
    against: str | None = None
    """The learner that this one is held against."""


def rounds(number: int, envs: int, horizon: int) -> int:
    """Environment steps of that many rounds."""
    return number * envs * horizon


MADDPG = Maddpg(Mlp((64, 64)), Mlp((64, 64)), actor_update=ExpectedGradient("policy"))
MAPPO = Mappo(Gru(128, 1), Gru(128, 1), optimizer=Adam(2e-3, 0.5), epochs=4, minibatches=4, chunk=16)
ROUNDED = Gru(128, 1, products="bfloat16")
RECURRENT = Work(
    "MAPPO, GRU-128; 16 x 128 steps, 4 epochs x 4 minibatches a round",
    128,
    MAPPO,
    Budget(rounds(60, 16, 128), 16, 6),
    8_000,
)
VALUES = Work(
    "QMIX, GRU-64; 8 x 26 steps, an update of 32 episodes a round",
    26,
    ValueDecomposition(),
    Schedule(rounds(751, 8, 26), 8, 30, 1, 1, 32, 5_000),
    20_000,
)
WORK = {
    "maddpg": Work(
        "MADDPG, MLPs 64-64; 64 x 80 steps, 8 updates of 16 episodes a round",
        80,
        MADDPG,
        Schedule(rounds(61, 64, 80), 64, 6, 64 * 80, 8, 16, 4_000),
        35_000,
    ),
    "mappo": RECURRENT,
    "mappo-mlp": Work(
        "MAPPO, MLPs 64-64 and 128-128; 32 x 80 steps, 10 epochs a round",
        80,
        Mappo(Mlp((64, 64)), Mlp((128, 128)), epochs=10, minibatches=1),
        Budget(rounds(60, 32, 80), 32, 6),
        20_000,
    ),
    "qmix": VALUES,
    "emc": replace(VALUES, text="EMC", algorithm=Emc(ValueDecomposition(Duplex())), bar=2.5, against="qmix"),
    "maven": replace(VALUES, text="MAVEN", algorithm=Maven(), bar=1.5, against="qmix"),
    "mappo-bfloat16": replace(
        RECURRENT,
        text="MAPPO with products of bfloat16 factors",
        algorithm=replace(MAPPO, actor_net=ROUNDED, critic_net=ROUNDED),
        bar=0.71,
        against="mappo",
    ),
    "qmix-bfloat16": replace(
        VALUES,
        text="QMIX with products of bfloat16 factors",
        algorithm=ValueDecomposition(agent_net=Gru(64, 1, products="bfloat16")),
        bar=0.77,
        against="qmix",
    ),
}


def measure(work: Work) -> tuple[float, float]:
    """(steps per processor second, processor seconds until the first chunk was done) of a learner."""
    env = ParticleClimb(num_agents=3, num_landmarks=6, horizon=work.horizon)
    tasks = ParticleClimbFamily(env).split(0, 1, 1).test
    lanes = jax.tree.map(lambda leaf: leaf[None], tasks)
    best, first, before, started = 0.0, 0.0, None, time.process_time()
    for chunk in learn(LearningLoop(env, work.algorithm, work.schedule), lanes, jax.random.key(0)[None]):
        now = time.process_time(), chunk.step
        first = now[0] - started if chunk.compile_seconds else first
        if before is not None and not chunk.compile_seconds:
            best = max(best, (now[1] - before[1]) / (now[0] - before[0]))
        before = now
    return best, first


def verdict(work: Work, rates: dict[str, float]) -> str:
    """The bar, and whether the last rate meets it."""
    rate = [*rates.values()][-1]
    if work.against is None:
        return f"bar >= {work.bar:,}/s  {'met' if rate >= work.bar else 'MISSED'}"
    times = rates[work.against] / rate
    return f"{times:.2f} of the time of {work.against}; bar <= {work.bar}  {'met' if times <= work.bar else 'MISSED'}"


def main() -> None:
    """Measure the learners that are named, and those that they are held against."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learners", nargs="*", choices=[*WORK, []], help="default: all")
    asked = parser.parse_args().learners or list(WORK)
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as empty:  # nothing compiled before may help
        jax.config.update("jax_compilation_cache_dir", empty)
        for name in dict.fromkeys(name for one in asked for name in (WORK[one].against, one) if name):
            rates[name], first = measure(WORK[name])
            print(f"{WORK[name].text}\n  {rates[name]:>9,.0f} steps/s of processor time,", end="")
            print(f" first chunk after {first:.1f} s   {verdict(WORK[name], rates)}", flush=True)


if __name__ == "__main__":
    main()
