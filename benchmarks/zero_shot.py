"""What explorers of another world reach on unseen tasks before anything is learned there (Figure 7, left).

python benchmarks/zero_shot.py RUN_DIR --env mpe-3a5l-hard [--explorers 1 2] [--ways ...] [--keep]

RUN_DIR is a finished run of mesa, for example `mesax run mesa mpe-2a5l --seed 0 --method.num-explorers 2`. For every
way to transfer the first of its explorers: steps per episode with the highest reward, as a mean over 25 unseen tasks of
the run's own seed and on the worst of them. `--keep` puts them into results/zero-shot.json. The last line is JSON.

Hard worlds of the paper (mpe-*-hard) have the authors' difficulty .3 instead of .1, which is our reading; hard wide
worlds have a larger arena.
"""

import argparse
import json
from pathlib import Path

from mesax.errors import UsageError
from mesax.runtime import configure

# (transfer, what the rest does, turned); None: uniform play. A team of the same size has no rest.
WAYS = {
    "sub-teams, rest tours, turned": ("subteams", "tour", True),
    "sub-teams, rest tours": ("subteams", "tour", False),
    "sub-teams, rest holds, turned": ("subteams", "hold", True),
    "sub-teams, rest uniform, turned": ("subteams", "uniform", True),
    "same team, turned": ("subteams", "tour", True),
    "same team": ("subteams", "tour", False),
    "whole team, turned": ("whole", "tour", True),
    "uniform play": None,
}
RESULTS = Path(__file__).resolve().parent.parent / "results"


def fits(way: str, known: int, agents: int) -> bool:
    """Whether a way is one for explorers of so many agents."""
    return way == "uniform play" or way.startswith("same") == (known == agents)


def measure(
    run: Path, env: str, way: tuple[str, str, bool] | None, number: int, seed: int, tasks: int, episodes: int
) -> dict:
    import jax
    import numpy as np

    from mesax.ours.transfer import Transfer
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
        policy = Transfer(world, spec, how, rest, turn, at_most=number).deployed(run)
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
    parser.add_argument("--explorers", nargs="+", type=int, default=[1], help="how many to use: the first of the run's")
    parser.add_argument("--seed", type=int, help="of the unseen tasks (the run's own)")
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--episodes", type=int, default=100, help="on each task")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="all that fit, if none is named")
    parser.add_argument("--keep", action="store_true", help="put what is found into results/")
    options = parser.parse_args()
    configure()

    from mesax.explorers.foreign_loop import load_explorers
    from mesax.results.evidence.kept import training_digest
    from mesax.store.run_directory import RunDirectory
    from mesax.suites.registry import suite_of
    from paper.zero_shot import keep_row, name_of

    run, explorers = RunDirectory.open(options.run).run, load_explorers(options.run)
    seed = run["seed"] if options.seed is None else options.seed
    agents = suite_of(options.env).family(options.env).env.spec.num_agents
    ways = options.ways or [way for way in WAYS if fits(way, explorers.spec.num_agents, agents)]
    for number in options.explorers:
        if not 1 <= number <= (there := len(explorers)):
            raise UsageError(f"{options.run} has {there} explorers, not {number}")
        results = {}
        for name in ways:
            found = measure(options.run, options.env, WAYS[name], number, seed, options.tasks, options.episodes)
            print(f"E = {number}  {name:<32} mean {found['mean']:.4f}  worst {found['worst']:.2f}", flush=True)
            results[name] = found
        row = {
            "explorers": name_of(run),
            "explorer_seed": run["seed"],
            "number": number,
            "env": options.env,
            "seed": seed,
            "episodes": options.episodes,
            "trained_with": training_digest(run["config"]),
            "git_commit": run.get("git_commit"),
            "ways": results,
        }
        if options.keep:
            keep_row(RESULTS, row)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
