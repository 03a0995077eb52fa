"""Speed of the swimmer on one core: the engine against gymnasium-robotics' mamujoco_v1, and learning.

    python benchmarks/swimmer.py [--copies 64] [--rounds 7] [--preset quick]

Rates are per second of processor time, and the contenders take turns: another job on the machine slows both. A step is
one joint action, four steps of MuJoCo, the reward and all observations.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerTask  # noqa: E402
from mesax.experiments.catalogue import experiment  # noqa: E402
from mesax.training.driver import learn  # noqa: E402
from mesax.training.loop import LearningLoop  # noqa: E402

STEPS = 100
BAR = 2.0


def ours(copies: int) -> Callable[[], int]:
    """Steps of all copies together."""
    batch = SwimmerClimb().batch(copies, threads=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, copies, 2, 1)).astype(np.float32)
    tasks, seeds, alive = SwimmerTask(np.full(copies, 0.3)), np.arange(copies, dtype=np.uint32), np.ones(copies, bool)

    def play() -> int:
        batch.reset(tasks, seeds)
        for action in actions:
            batch.step(action, alive)
        return STEPS * copies

    return play


def reference(copies: int) -> Callable[[], int] | None:
    """As many steps of mamujoco_v1, one copy after another; None if it is not installed."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it greets with news about other environments
            from gymnasium_robotics import mamujoco_v1
    except ImportError:
        return None
    env = mamujoco_v1.parallel_env("Swimmer", "2x1")
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, copies, 2, 1)).astype(np.float32)

    def play() -> int:
        for copy in range(copies):
            env.reset(seed=copy)
            for action in actions[:, copy]:
                env.step({"agent_0": action[0], "agent_1": action[1]})
        return STEPS * copies

    return play


def training(preset: str) -> float:
    """Steps per processor second of a preset's learner with all its lanes: the best of a few chunks, once compiled."""
    entry = experiment("plain", "swimmer-wide", preset)
    each = entry.schedule.steps_per_round(entry.training_env.spec.horizon)
    short = replace(entry.schedule, total_steps=6 * each, warmup_steps=each, num_evaluations=5)
    tasks = SwimmerTask(jnp.full((entry.lanes, 1), 0.3))
    keys = jax.random.split(jax.random.key(0), entry.lanes)
    best, before = 0.0, time.process_time()
    for chunk in learn(LearningLoop(entry.training_env, entry.algorithm, short), tasks, keys, eval_episodes=0):
        now = time.process_time()
        if not chunk.compile_seconds:
            best = max(best, entry.lanes * each / (now - before))
        before = now
    return best


def main() -> None:
    """Let both play in turn; print the best rate of each, and the median of the rounds' ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--preset", default="quick", choices=("quick", "paper"), help="of the learner (default: quick)")
    options = parser.parse_args()
    contenders = {f"mesax, {options.copies} copies at a time": ours(options.copies)}
    other = reference(options.copies)
    if other is not None:
        contenders["gymnasium-robotics mamujoco_v1, one copy"] = other
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, play in contenders.items():
            started = time.process_time()
            steps = play()
            rates[name].append(steps / (time.process_time() - started))
    for name, found in rates.items():
        print(f"{name:<52} {max(found):>11,.0f}/s", flush=True)
    print(f"{f'training, preset {options.preset}':<52} {training(options.preset):>11,.0f}/s", flush=True)
    if other is None:
        print("no comparison: gymnasium-robotics is not installed (pip install 'mesax[dev]')")
        return
    ratio = statistics.median(own / others for own, others in zip(*rates.values(), strict=True))
    print(f"{'ratio':<52} {ratio:>11.1f}     bar >= {BAR:g}  {'met' if ratio >= BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
