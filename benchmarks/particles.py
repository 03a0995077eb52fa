"""Speed in a particle world, on one core: rollout, update, stage 2 and the meta-test, once compiled; and memory.

    python benchmarks/particles.py [--env wide-2a5l]

Everything runs in one thread, and rates are per second of processor time: another job on the machine slows the wall
clock, not these figures (much).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)

from mesax.envs.host import decisions_to_steps  # noqa: E402
from mesax.experiments.catalogue import experiment as named  # noqa: E402
from mesax.mesa.method import Mesa  # noqa: E402
from mesax.policy import ExplorationPolicySet  # noqa: E402
from mesax.training.driver import learn  # noqa: E402
from mesax.training.loop import LearningLoop, Start  # noqa: E402
from mesax.training.rollout import play  # noqa: E402
from mesax.types import Elapsed, tree_stack  # noqa: E402


def rate(function: Callable[..., Any], steps: int, *arguments: Any, repeats: int = 5) -> tuple[float, float]:
    """(best steps per processor second, seconds to compile and run once)."""
    jitted = jax.jit(function)
    started = time.perf_counter()
    jax.block_until_ready(jitted(*arguments))
    first, best = time.perf_counter() - started, float("inf")
    for _ in range(repeats):
        started = time.process_time()
        jax.block_until_ready(jitted(*arguments))
        best = min(best, time.process_time() - started)
    return steps / best, first


def line(what: str, value: float, first: float, bar: int | None = None) -> None:
    """One figure, against its bar if it has one."""
    against = "" if bar is None else f"bar >= {bar:,}/s  {'met' if value >= bar else 'MISSED'}"
    print(f"{what:<52} {value:>11,.0f}/s   first call {first:5.1f} s   {against}", flush=True)


def main() -> None:
    """Measure one family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="wide-2a5l")
    options = parser.parse_args()
    mesa = named("mesa", options.env, "quick")
    method, family, algorithm, schedule = mesa.method, mesa.family, mesa.algorithm, mesa.schedule
    assert isinstance(method, Mesa)
    env, spec, key = family.env, family.env.spec, jax.random.key(0)
    split = family.split(0, mesa.num_train_tasks, 1)
    learner = algorithm.init(spec, key)
    own = algorithm.behavior(spec, learner, Elapsed.at(0.0))

    for envs in (schedule.num_envs, 256):
        speed, first = rate(lambda k, n=envs: play(env, split.test, own, k, n), envs * spec.horizon, key)
        line(f"rollout, learner's policy, {envs} environments", speed, first, 300_000)
    batch = jax.tree.map(lambda leaf: leaf[: schedule.batch_size], play(env, split.test, own, key, schedule.num_envs))
    steps = schedule.steps_per_round(spec.horizon) / schedule.updates_per_round
    speed, first = rate(lambda s, b: algorithm.update(spec, s, b, Elapsed.end(), key), int(steps), learner, batch)
    line("update, per environment step that it stands for", speed, first)

    # M_* of random numbers: how far its members are does not change what they cost.
    reward, recipe = method.reward, method.recipe(spec)
    assert isinstance(reward, SubspaceReward)
    features = np.random.default_rng(0).uniform(size=(2 * reward.capacity, reward.feature_size(spec)))
    state = reward.subspace(spec, features, np.ones(len(features)), 0)
    fresh = method.explorer.init(method.reward.learner_spec(spec), key)
    loop = method.explore_loop(env)
    steps = decisions_to_steps(loop.env, loop.schedule.steps_per_round(loop.env.spec.horizon))
    begun = loop.init(Start(), state, key)
    speed, first = rate(lambda s: loop.advance(split.train, None, s, key, 1), steps, begun, repeats=3)
    line("stage 2, a round of playing and learning", speed, first)

    policies = tree_stack([recipe.policy(state, fresh)] * method.num_explorers)
    explorer = recipe.deployed(ExplorationPolicySet(policies))
    short = replace(schedule, total_steps=schedule.warmup_steps + 60 * schedule.steps_per_round(spec.horizon))
    short = replace(short, num_evaluations=6)
    adapt = LearningLoop(env, algorithm, short, method.mixing)
    tasks, keys = jax.tree.map(lambda leaf: leaf[None], split.test), key[None]
    clock, done, wall = 0.0, 0, time.perf_counter()
    for number, chunk in enumerate(
        learn(adapt, tasks, keys, start=Start(explorer=explorer), eval_episodes=mesa.eval_episodes)
    ):
        if number == 1:  # the first chunk compiles
            clock, done, wall = time.process_time(), chunk.step, time.perf_counter() - wall
    line("meta-test, end to end with evaluations", (chunk.step - done) / (time.process_time() - clock), wall, 40_000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process {peak:.2f} GiB")


if __name__ == "__main__":
    main()
