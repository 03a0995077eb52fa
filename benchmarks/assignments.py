"""How reliably the learned reward finds what pays: stage 1 and the fit alone, over seeds and worlds.

    python benchmarks/assignments.py                                     four worlds, seeds 101 to 110
    python benchmarks/assignments.py --envs mpe-3a5l --seeds 101 102

A row for each run: training tasks whose entity is the true target; precision at recall .9 on steps of random play in
layouts that no training task has, and by the fit's own account on training layouts left out; CPU-seconds of the fit.
Wide worlds have five training tasks on each layout. The last line is JSON.
"""

import argparse
import json
from dataclasses import replace

from mesax.runtime import configure

ENVS = ("mpe-2a5l", "mpe-3a5l", "wide-2a5l", "wide-3a5l")
EPISODES = 20_000
"""Of random play on unseen layouts."""


def measure(env: str, seed: int) -> dict:
    import jax
    import numpy as np

    from mesax.cli.env.verdict import fitted
    from mesax.envs.base import configurations_of
    from mesax.experiments.catalogue import experiment
    from mesax.methods.harvest import load_pairs
    from mesax.ours.learned_reward import RECALL, logits_of, precision_at
    from mesax.policy import UniformPolicy
    from mesax.training.driver import play_episodes

    named = replace(experiment("learned", env, "quick"), seed=seed)
    if env.startswith("wide"):
        named = replace(named, family=replace(named.family, targets_each=5))
    done = fitted(named)
    services = done.services
    state = named.method.high_reward_set(named, load_pairs(services.outputs("collect")), services)
    believed = np.array([row["entity"] for row in done.rows if row["phase"] == "assignment"])
    family, spec = named.family, named.family.env.spec
    played = play_episodes(
        family.env, named.split.test, UniformPolicy(spec.action_space), jax.random.key(seed), EPISODES
    )
    happened = np.asarray(played.mask)
    seen = named.method.reward.declared(spec).seen(np.asarray(played.obs)[:, 1:])[happened]
    logits = logits_of(state.model, seen, "full")
    true = np.asarray(configurations_of(family, played))[happened][:, None] == np.arange(logits.shape[1])
    return {
        "env": env,
        "seed": seed,
        "right": int(np.sum(believed == np.asarray(named.training_tasks.target))),
        "tasks": len(believed),
        "high_steps": done.verdict["high_steps"],
        "precision": precision_at(logits.ravel(), true.ravel(), np.ones(true.size), RECALL),
        "held_out_precision": done.verdict["held_out_precision_at_recall_90"],
        "fit_seconds": round(done.seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(101, 111)))
    options = parser.parse_args()
    configure()
    rows = []
    for env in options.envs:
        for seed in options.seeds:
            rows.append(row := measure(env, seed))
            told = {
                name: "-" if row[name] is None else f"{row[name]:.2f}" for name in ("precision", "held_out_precision")
            }
            print(
                f"{env:<10} seed {seed}  right {row['right']} of {row['tasks']}  high steps {row['high_steps']:>5}"
                f"  precision {told['precision']}  left out {told['held_out_precision']}  fit {row['fit_seconds']} s",
                flush=True,
            )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
