"""Speed of the swimmer on one core: the engine against gymnasium-robotics' mamujoco_v1, and what the host loop costs.

    python benchmarks/swimmer.py [--copies 64] [--rounds 7] [--preset quick]

Rates are per second of processor time, and the contenders take turns: another job on the machine slows both. A step is
one joint action, four steps of MuJoCo, the reward and all observations. The overhead of the host loop is what is left
of the training time after the engine, the updates, and the policy (as one compiled program over the same observations).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from mesax.envs.host import HostBatch  # noqa: E402
from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerTask  # noqa: E402
from mesax.experiments.catalogue import experiment  # noqa: E402
from mesax.training.behavior import LearnerAlone  # noqa: E402
from mesax.training.driver import _OnHost, _Player, _Take  # noqa: E402
from mesax.training.host_rollout import play_on_host  # noqa: E402
from mesax.training.loop import LearningLoop, Start  # noqa: E402

STEPS = 100
BAR = 2.0
MOST_OVERHEAD = 0.15
CLOCK = {"engine": 0.0}


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


@dataclass(frozen=True)
class Timed:
    """The swimmer, with a clock around its engine."""

    env: SwimmerClimb

    @property
    def spec(self) -> Any:
        return self.env.spec

    def batch(self, copies: int, threads: int) -> TimedBatch:
        return TimedBatch(self.env.batch(copies, threads))


@dataclass
class TimedBatch:
    inner: HostBatch

    def reset(self, *given: Any) -> np.ndarray:
        return self._timed(self.inner.reset, *given)

    def step(self, *given: Any) -> Any:
        return self._timed(self.inner.step, *given)

    def close(self) -> None:
        self.inner.close()

    def _timed(self, work: Callable[..., Any], *given: Any) -> Any:
        started = time.process_time()
        result = work(*given)
        CLOCK["engine"] += time.process_time() - started
        return result


def overhead(rounds: int, preset: str) -> dict[str, float]:
    """Processor seconds of a few rounds of a preset's learner, by where they go."""
    entry = experiment("plain", "swimmer-wide", preset)
    loop = LearningLoop(Timed(entry.training_env), entry.algorithm, entry.schedule, LearnerAlone())
    lanes = entry.lanes
    keys = jax.random.split(jax.random.key(0), lanes)
    tasks = SwimmerTask(jnp.full((lanes, 1), 0.3))
    engine = _OnHost(loop, loop.env, loop.env, 1)
    state, _ = engine.begin(tasks, Start(), (), keys)
    player, learn = jax.jit(_Player(loop)), jax.jit(_Take(loop), donate_argnums=0)
    found = {"total": 0.0, "engine": 0.0, "updates": 0.0, "policy": 0.0}

    def scanned(policy: Any, obs: jax.Array, keys: jax.Array) -> jax.Array:
        """The policy's arithmetic alone: every step of every episode in one program."""

        def of_episode(policy: Any, obs: jax.Array, key: jax.Array) -> jax.Array:
            def step(memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
                action, memory = policy.act(memory, seen, key)
                return memory, action

            return jax.lax.scan(step, policy.start(key), obs)[1]

        return jax.vmap(jax.vmap(of_episode, in_axes=(None, 0, None)))(policy, obs, keys)

    alone = jax.jit(scanned)
    for number in range(rounds + 1):  # the first compiles
        CLOCK["engine"] = 0.0
        started = time.process_time()
        policy, keys_play = player(state.learner, state.reward, state.round, None, keys)
        played = play_on_host(loop.env, tasks, policy, keys_play, loop.schedule.num_envs)
        before = time.process_time()
        state, metrics = learn(state, played, keys)
        jax.block_until_ready(metrics)
        ended = time.process_time()
        jax.block_until_ready(alone(policy, played.obs[:, :, :-1], keys_play))
        policy_seconds = time.process_time() - ended
        if number:
            for name, seconds in (
                ("total", ended - started),
                ("engine", CLOCK["engine"]),
                ("updates", ended - before),
                ("policy", policy_seconds),
            ):
                found[name] += seconds
    found["host loop"] = found["total"] - found["engine"] - found["updates"] - found["policy"]
    found["lanes"] = lanes
    found["steps"] = rounds * lanes * loop.schedule.steps_per_round(loop.env.spec.horizon)
    return found


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
    _print_overhead(overhead(3, options.preset), options.preset)
    if other is None:
        print("no comparison: gymnasium-robotics is not installed (pip install 'mesax[dev]')")
        return
    ratio = statistics.median(own / others for own, others in zip(*rates.values(), strict=True))
    print(f"{'ratio':<52} {ratio:>11.1f}     bar >= {BAR:g}  {'met' if ratio >= BAR else 'MISSED'}")


def _print_overhead(found: dict[str, float], preset: str) -> None:
    total, what = found["total"], f"training, preset {preset}, lanes: {found['lanes']:g}"
    print(f"{what:<52} {found['steps'] / total:>11,.0f}/s")
    for name in ("engine", "updates", "policy"):
        print(f"{'  ' + name:<52} {found[name] / total:>11.0%}")
    share = found["host loop"] / total
    verdict = "met" if share <= MOST_OVERHEAD else "MISSED"
    print(f"{'  host loop':<52} {share:>11.0%}     bar <= {MOST_OVERHEAD:.0%}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
