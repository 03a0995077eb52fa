"""Learners on a dense game that was not made for this package: cooperative navigation (mpe2's simple_spread, 3 agents).

    python benchmarks/spread.py [--learners mappo maddpg qmix] [--seeds 0 1 2]

Prints what random play, the scripted controller and each greedy policy return on held-out starts, and how much
of the way from the first to the second is closed; 80% is the bar. Each run is written to results/, which is committed.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

from mesax.runtime import configure

configure()

import jax  # noqa: E402  (the runtime must be configured first)
import numpy as np  # noqa: E402
from simple_spread import AssignmentPolicy, spread_family  # noqa: E402

from mesax.algorithms.actor_updates import ExpectedGradient  # noqa: E402
from mesax.algorithms.maddpg import Maddpg  # noqa: E402
from mesax.algorithms.mappo import Mappo  # noqa: E402
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition  # noqa: E402
from mesax.nets import Adam, Mlp  # noqa: E402
from mesax.policy import Policy, UniformPolicy  # noqa: E402
from mesax.results.intervals import Interval, mean_interval  # noqa: E402
from mesax.results.tables import Table, format_count, format_duration, format_interval, to_markdown  # noqa: E402
from mesax.store.settings import to_plain  # noqa: E402
from mesax.training.driver import learn, play_episodes  # noqa: E402
from mesax.training.loop import LearningLoop  # noqa: E402
from mesax.training.schedule import Budget, Schedule  # noqa: E402
from mesax.types import Linear, LinearSteps, tree_index  # noqa: E402

BAR = 0.8
EPISODES = 1_000
EPISODES_STREAM = 0x5B6EAD
"""Beside a run's own key: what is measured at the end is drawn from neither training nor its evaluations."""
FAMILY = spread_family(3)
RESULTS = Path(__file__).resolve().parent.parent / "results"

MAPPO = Mappo(
    actor_net=Mlp((128, 128)),
    critic_net=Mlp((128, 128)),
    values_of="own",
    optimizer=Adam(2e-3, clip_norm=10.0),
    final_rate=0.05,
    epochs=4,
    minibatches=8,
    discount=0.9,
    gae=0.9,
    entropy_bonus=0.005,
)
# A short trace and a small replay: what follows a step in an old episode is worth what an old policy made of it.
MADDPG = Maddpg(
    actor_net=Mlp((128, 128)),
    critic_net=Mlp((128, 128)),
    share_actors=True,
    actor_update=ExpectedGradient("policy"),
    trace=0.5,
    actor_optimizer=Adam(1e-3),
    critic_optimizer=Adam(1e-3),
    discount=0.9,
    target_rate=0.02,
    entropy_bonus=0.02,
    exploration=Linear(0.05, 0.05, 0.0),
)
# A nearer horizon: what an action is worth must not drown in what the state is worth.
QMIX = ValueDecomposition(
    agent_net=Mlp((128, 128)),
    last_action=False,
    trace=0.7,
    optimizer=Adam(2e-3, falling=20_000),
    discount=0.8,
    target=Soft(0.02),
    exploration=LinearSteps(1.0, 0.05, 200_000),
)
# What a learner is called -> how it learns; a new one is a line here.
LOOPS: dict[str, LearningLoop] = {
    "mappo": LearningLoop(FAMILY.env, MAPPO, Budget(2_000_000, 128, 20)),
    "maddpg": LearningLoop(FAMILY.env, MADDPG, Schedule(1_000_000, 64, 20, 25_000, 16, 32, 5_000)),
    "qmix": LearningLoop(FAMILY.env, QMIX, Schedule(2_000_000, 64, 20, 25_000, 16, 32, 5_000)),
}


def returns_of(policy: Policy, seed: int) -> np.ndarray:
    """Returns of episodes from starts that nobody has learned from."""
    key = jax.random.fold_in(jax.random.key(seed), EPISODES_STREAM)
    episodes = play_episodes(FAMILY.env, FAMILY.split(seed, 1, 1).test, policy, key, EPISODES)
    return np.asarray(episodes.reward).sum(axis=1)


def measure(name: str, loop: LearningLoop, seed: int) -> dict[str, Any]:
    """Learn with one seed, then play greedily beside the two baselines."""
    started = time.perf_counter()
    tasks = tree_index(FAMILY.split(seed, 1, 1).train, None)  # one lane
    curve = []
    for chunk in learn(loop, tasks, jax.random.key(seed)[None], eval_episodes=64):
        curve.append([chunk.step, float(chunk.rewards.sum())])
        print(f"{name} seed {seed}: step {chunk.step:>9,}  return {curve[-1][1]:7.2f}", flush=True)
    seconds = time.perf_counter() - started
    learner = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[0]), chunk.learner)
    played = {
        "random": returns_of(UniformPolicy(FAMILY.env.spec.action_space), seed),
        "scripted": returns_of(AssignmentPolicy(FAMILY.env.num_agents), seed),
        "learnt": returns_of(loop.algorithm.greedy(FAMILY.env.spec, learner), seed),
    }
    low, high, reached = (float(played[who].mean()) for who in ("random", "scripted", "learnt"))
    return {
        "learner": name,
        "seed": seed,
        "env_steps": chunk.step,
        "wall_seconds": round(seconds, 1),
        "episodes": EPISODES,
        **{who: vars(mean_interval(returns)) for who, returns in played.items()},
        "gap_closed": (reached - low) / (high - low),
        "curve": curve,
        "algorithm": to_plain(loop.algorithm),
        "schedule": to_plain(loop.schedule),
    }


def table(results: list[dict[str, Any]]) -> Table:
    """A row for each run."""
    rows = [
        (
            f"{result['learner']}, seed {result['seed']}",
            *(format_interval(Interval(**result[who])) for who in ("random", "scripted", "learnt")),
            f"{result['gap_closed']:.0%}{'' if result['gap_closed'] >= BAR else ' MISSED'}",
            format_count(result["env_steps"]),
            format_duration(result["wall_seconds"]),
        )
        for result in results
    ]
    columns = ("run", "random", "scripted", "learnt, greedy", "gap closed", "env steps", "time")
    note = f"Mean return of {EPISODES} episodes from held-out starts with 95% intervals. Bar: {BAR:.0%}."
    return Table("Cooperative navigation, 3 agents", columns, tuple(rows), note)


def main() -> None:
    """Every learner with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", nargs="+", choices=list(LOOPS), default=list(LOOPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    results = []
    for name, seed in product(options.learners, options.seeds):
        results.append(measure(name, LOOPS[name], seed))
        path = RESULTS / f"spread-{name}-seed{seed}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results[-1], indent=2) + "\n")
    print(to_markdown(table(results)))


if __name__ == "__main__":
    main()
