"""What explorers of another world reach on unseen tasks before anything is learned there (Figure 7, left).

python benchmarks/zero_shot.py RUN_DIR --env mpe-3a5l-hard --seed 0

RUN_DIR is a finished run of mesa, for example `mesax run mesa mpe-2a5l --seed 0`. For every way to transfer its
explorers: steps per episode with the highest reward, as a mean over 25 unseen tasks and on the worst of them. The last
line is JSON.
"""

import argparse
import json
from pathlib import Path

from mesax.runtime import configure

# (transfer, what the rest does, turned); None: uniform play.
WAYS = {
    "sub-teams, rest tours, turned": ("subteams", "tour", True),
    "sub-teams, rest tours": ("subteams", "tour", False),
    "sub-teams, rest holds, turned": ("subteams", "hold", True),
    "sub-teams, rest uniform, turned": ("subteams", "uniform", True),
    "whole team, turned": ("whole", "tour", True),
    "uniform play": None,
}


def measure(run: Path, env: str, way: tuple[str, str, bool] | None, seed: int, tasks: int, episodes: int) -> dict:
    import jax
    import numpy as np

    from mesax.explorers.transfer import Transfer
    from mesax.policy import UniformPolicy
    from mesax.suites.registry import suite_of
    from mesax.training.driver import play_episodes, tasks_played

    family = suite_of(env).family(env)
    world, spec = family.env, family.env.spec
    unseen = family.split(seed, 0, tasks).test
    if way is None:
        policy = UniformPolicy(spec.action_space)
    else:
        how, rest, turn = way
        policy = Transfer(world, spec, how, rest, turn).deployed(run)
    key = jax.random.key(seed)
    played = play_episodes(world, unseen, policy, key, tasks * episodes)
    which, _ = tasks_played(unseen, key, tasks * episodes)
    steps = np.sum(np.asarray(played.mask) & (np.asarray(played.reward) >= family.high_reward), axis=1)
    of_task = [float(np.mean(steps[which == task])) for task in range(tasks)]
    return {"mean": float(np.mean(of_task)), "worst": min(of_task), "tasks": [round(value, 3) for value in of_task]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--env", default="mpe-3a5l-hard")
    parser.add_argument("--seed", type=int, default=0, help="of the unseen tasks")
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--episodes", type=int, default=100, help="on each task")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = parser.parse_args()
    configure()
    results = {}
    for name in options.ways:
        found = measure(options.run, options.env, WAYS[name], options.seed, options.tasks, options.episodes)
        print(f"{name:<32} mean {found['mean']:.3f}  worst {found['worst']:.2f}", flush=True)
        results[name] = found
    print(json.dumps({"env": options.env, "seed": options.seed, "episodes": options.episodes, "ways": results}))


if __name__ == "__main__":
    main()
