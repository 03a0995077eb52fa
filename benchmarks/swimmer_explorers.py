"""How long the swimmer's explorers show each target: what decides whether a task there is solved.

python benchmarks/swimmer_explorers.py RUN_DIR [--episodes 400]

RUN_DIR is a finished run of mesa on the swimmer. For a target at every whole degree of the family's range: steps per
training episode with both joints in its band, and the share of episodes with any. The last line is JSON.
"""

import argparse
import json
from pathlib import Path

from mesax.runtime import configure

STREAM = 77
"""Apart from all streams that a run draws from."""


def measure(run: Path, episodes: int) -> dict[str, list[float]]:
    import numpy as np

    from mesax.experiments.rebuild import experiment_of
    from mesax.explorers.places import explorers_in
    from mesax.explorers.recipe import saved_explorers
    from mesax.training.driver import play_episodes

    experiment = experiment_of(json.loads((run / "run.json").read_text(encoding="utf-8")))
    family = experiment.family
    recipe = experiment.method.recipe(family.env.spec)
    explorers = recipe.deployed(saved_explorers(recipe, explorers_in(run)))
    tasks = experiment.training_tasks
    played = play_episodes(experiment.training_env, tasks, explorers, experiment.key(STREAM), episodes)
    angles = np.rad2deg(np.asarray(family.world.joint_angles(played.obs[:, 1:])))
    one_side = np.arange(np.ceil(family.least_degrees), family.most_degrees + 1e-6)
    targets = np.unique(np.concatenate([-one_side, one_side]))
    near = np.abs(angles[:, :, None, :] - targets[:, None]) < family.world.band_degrees
    on = np.all(near, axis=-1) & np.asarray(played.mask)[..., None]
    steps, chance = on.sum(axis=1).mean(axis=0), on.any(axis=1).mean(axis=0)
    return {
        name: np.round(row, 3).tolist() for name, row in (("target", targets), ("steps", steps), ("chance", chance))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=400)
    options = parser.parse_args()
    configure()
    found = measure(options.run, options.episodes)
    for target, steps, chance in zip(*found.values(), strict=True):
        print(f"{target:+4.0f} degrees: {steps:5.1f} steps, in {chance:4.0%} of the episodes")
    print(json.dumps(found | {"worst": min(found["steps"]), "mean": sum(found["steps"]) / len(found["steps"])}))


if __name__ == "__main__":
    main()
