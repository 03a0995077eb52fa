"""Shows that methods which learn from training tasks do what their authors say, on games made for it.

    python benchmarks/transfer_proofs.py goal --out DIR     Pretrain and Goal on one-step climb games with k = 1
    python benchmarks/transfer_proofs.py cbet --out DIR     C-BET on unseen key-and-door layouts, against MAPPO alone

Runs are kept in DIR, and continued or read again if they are there. The last line is the result as JSON; that of the
usual seeds is also written to results/.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from mesax.runtime import configure

configure()

import jax  # noqa: E402  (the runtime must be configured first)
import numpy as np  # noqa: E402

from mesax.baselines.pretrain import CBet, pretrained_in  # noqa: E402
from mesax.execution.run_experiment import run_experiment  # noqa: E402
from mesax.experiments.catalogue import experiment as named  # noqa: E402
from mesax.methods.base import Experiment  # noqa: E402
from mesax.policy import Policy, UniformPolicy  # noqa: E402
from mesax.results.curves import steps_to_optimal  # noqa: E402
from mesax.results.intervals import mean_interval  # noqa: E402
from mesax.store.json_values import Json  # noqa: E402
from mesax.store.reading import RunResults, load_run  # noqa: E402
from mesax.store.trees import load_tree  # noqa: E402
from mesax.training.driver import play_episodes  # noqa: E402
from mesax.types import Elapsed, Episode  # noqa: E402
from paper.envs.key_doors import DOOR, GOAL, KEY  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
EPISODES = 500
"""Behind each figure of what a policy does on unseen layouts."""
STATES = "cbet, state counts alone"


def done(experiment: Experiment, path: Path, method: str, env: str) -> RunResults:
    """The results of an experiment, which is run if it has not been."""
    run_experiment(experiment, path, method, env, quiet=True)
    return load_run(path)


def shown(name: str, values: list[float], form: str = ".2f") -> Json:
    """Print a figure over task runs with its interval."""
    found = mean_interval(np.array(values))
    print(
        f"{name:44s} {found.value:{form}} [{found.low:{form}}, {found.high:{form}}]  {len(values)} task runs",
        flush=True,
    )
    return {"mean": found.value, "low": found.low, "high": found.high, "task_runs": len(values)}


def prove_goal(seeds: list[int], out: Path) -> Json:
    """Zero-shot and tuned returns on unseen special actions."""
    found = {}
    for method in ("goal", "pretrain"):
        runs = []
        for seed in seeds:
            entry = named(method, "climb-one", "quick")
            family = replace(entry.family, counts=(1,))  # type: ignore[type-var]
            entry = replace(entry, family=family, seed=seed, num_train_tasks=7, num_test_tasks=3, lanes=3)
            runs.append(done(entry, out / f"{method}-climb-one-{seed}", method, "climb-one, k = 1"))
        curves = [curve for run in runs for curve in run.curves]
        found[method] = {
            "zero_shot": shown(f"{method}, zero-shot on unseen u", [float(c.zero_shot or 0.0) for c in curves]),
            "tuned": shown(f"{method}, tuned", [float(v) for run in runs for v in run.final_returns]),
        }
    return found


def prove_cbet(seeds: list[int], out: Path) -> Json:
    """What exploration does on unseen layouts before anything is learned there, and how soon goals are reached."""
    scratch = named("mappo", "key-doors", "quick")
    both = named("cbet", "key-doors", "quick")
    assert isinstance(both.method, CBet)
    states = replace(both, method=replace(both.method, counting=replace(both.method.counting, changes=False)))
    reached: dict[str, list[float]] = {}
    happened: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        runs = {"mappo": scratch, "cbet": both, STATES: states}
        for name, preset in runs.items():
            entry = replace(preset, seed=seed)
            path = out / f"{name.replace(', ', '-').replace(' ', '-')}-key-doors-{seed}"
            run = done(entry, path, name, "key-doors")
            reached.setdefault(name, []).extend(until_solved(run))
            if isinstance(entry.method, CBet):
                happened.setdefault(name, []).append(interactions(entry, exploration(entry, path)))
        happened.setdefault("uniform", []).append(interactions(replace(scratch, seed=seed), uniform(scratch)))
    return summary(reached, happened)


def until_solved(run: RunResults) -> list[float]:
    """Steps until an evaluation is at the optimum; the whole budget where none is."""
    threshold = run.family["optimal_threshold"]
    found = [(steps_to_optimal(c.steps, c.returns, threshold), c.steps[-1]) for c in run.curves]
    return [float(most if steps is None else steps) for steps, most in found]


def summary(reached: dict[str, list[float]], happened: dict[str, list[np.ndarray]]) -> Json:
    """Everything printed, and as JSON."""
    found: Json = {"steps_to_goal": {}, "per_episode": {}}
    for name, steps in reached.items():
        found["steps_to_goal"][name] = shown(f"{name}: steps until solved", steps, ",.0f")
    ratios = np.array(reached["cbet"]) / np.array(reached["mappo"])
    found["ratio_of_means"] = float(np.mean(reached["cbet"]) / np.mean(reached["mappo"]))
    print(f"cbet takes {found['ratio_of_means']:.2f} of the steps of mappo")
    found["ratio"] = shown("cbet / mappo, task by task", [float(ratio) for ratio in ratios])
    for name, rows in happened.items():
        rates = np.array(rows)
        for what, column in (("keys", KEY), ("doors", DOOR), ("goals", GOAL)):
            figure = shown(f"{name}: {what} per episode", [float(v) for v in rates[:, column]])
            found["per_episode"].setdefault(name, {})[what] = figure
    both, states = (np.array(happened[name])[:, [KEY, DOOR]].sum(axis=1) for name in ("cbet", STATES))
    found["more_interactions"] = shown("cbet - state counts alone: keys and doors", [float(v) for v in both - states])
    return found


def exploration(entry: Experiment, path: Path) -> Policy:
    """The exploration policy of a finished run, as it plays: sampled."""
    assert isinstance(entry.method, CBet)
    loop = entry.method.loop(entry)
    like = jax.eval_shape(lambda key: loop.algorithm.init(loop.learner_spec, key), jax.random.key(0))
    return loop.algorithm.behavior(loop.learner_spec, load_tree(pretrained_in(path), like), Elapsed.end())


def uniform(entry: Experiment) -> Policy:
    return UniformPolicy(entry.env.spec.action_space)


def interactions(entry: Experiment, policy: Policy) -> np.ndarray:
    """Keys taken, doors opened, goals reached per episode, on unseen layouts."""
    tasks = entry.family.split(entry.seed, entry.num_train_tasks, entry.num_test_tasks).test
    episodes = play_episodes(entry.env, tasks, policy, jax.random.key(entry.seed), EPISODES)

    def of_episode(episode: Episode) -> jax.Array:
        return jax.vmap(entry.family.configuration)(episode.transitions)

    seen = np.where(np.asarray(episodes.mask), np.asarray(jax.vmap(of_episode)(episodes)), -1)
    return np.array([np.mean(np.sum(seen == what, axis=1)) for what in (KEY, DOOR, GOAL)])


def main() -> None:
    """Run one proof."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=("goal", "cbet"))
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 0 1 2 for goal, 0 to 9 for cbet")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.proof == "goal":
        found = prove_goal(options.seeds or [0, 1, 2], options.out)
    else:
        found = prove_cbet(options.seeds or list(range(10)), options.out)
    if options.seeds is None:
        command = f"python benchmarks/transfer_proofs.py {options.proof} --out DIR"
        written = ROOT / "results" / f"transfer-{options.proof}.json"
        written.write_text(json.dumps({"command": command, "found": found}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
