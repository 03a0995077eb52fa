"""The paper's ablation (Figure 9), and what each part that we added to MESA is worth.

python benchmarks/ablation.py mpe-2a5l --seed 0 --out runs/ablation [--arms mesa filled-own ...] [--num-test-tasks 5]

Every arm is a value: a function from MESA's experiment to another. Runs are continued, or reused if they are there
already; `mesax compare OUT/*` puts them side by side, with intervals.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mesax.runtime import configure

configure()

from mesax.experiments.catalogue import experiment as named  # noqa: E402  (the runtime must be configured first)
from mesax.methods.base import Experiment  # noqa: E402
from mesax.methods.mesa.method import Mesa  # noqa: E402
from mesax.rewards.coverage import CoverageModel, CoverageReward, RecordReward  # noqa: E402
from mesax.rewards.features import ObsActionFeatures  # noqa: E402
from mesax.training.schedule import Schedule  # noqa: E402

Arm = Callable[[str, str], Experiment]
"""From an environment and a preset to an experiment."""


def by_name(method: str) -> Arm:
    return lambda env, preset: named(method, env, preset)


def filled(labels: str) -> Arm:
    def arm(env: str, preset: str) -> Experiment:
        chosen = named("filled", env, preset)
        return replace(chosen, method=replace(chosen.method, labels=labels))

    return arm


def of_mesa(change: Callable[[Mesa, Experiment], Mesa]) -> Arm:
    def arm(env: str, preset: str) -> Experiment:
        chosen = named("mesa", env, preset)
        assert isinstance(chosen.method, Mesa)
        return replace(chosen, method=change(chosen.method, chosen))

    return arm


def without_wishes(reward: CoverageModel) -> CoverageModel:
    """Every cluster is worth the same, and none has to wait for its turn."""
    if isinstance(reward, RecordReward):
        return replace(reward, wish_decay=1.0, fulfilled=None)
    return replace(reward, wish_decay=1.0)


def untold(mesa: Mesa) -> Mesa:
    """Explorers that are told nothing have no wishes either, and nets without the ears for it."""
    explorer = mesa.explorer
    nets = {
        name: replace(getattr(explorer, name), told=0)
        for name in ("actor_net", "critic_net")
        if hasattr(getattr(explorer, name, None), "told")
    }
    return replace(
        mesa,
        reward=replace(without_wishes(mesa.reward), tell_demand=False),
        explorer=replace(explorer, **nets) if nets else explorer,
    )


def eq_6(mesa: Mesa, experiment: Experiment) -> Mesa:
    """The paper's reward in place of records, with the same features, wishes and told demand."""
    del experiment
    old = mesa.reward
    reward = CoverageReward(
        old.features, 0.3, old.decay_power, old.tell_demand, old.wish_decay, old.told, normalize=True
    )
    return replace(mesa, reward=reward)


def off_policy_explorers(mesa: Mesa, experiment: Experiment) -> Mesa:
    """Explorers trained by the learner of the test tasks instead of PPO, for as many steps."""
    if isinstance(mesa.explore, Schedule):
        return mesa
    schedule = replace(experiment.schedule, total_steps=mesa.explore.total_steps, num_evaluations=12)
    return replace(mesa, explorer=experiment.algorithm, explore=schedule)


def raw_features(mesa: Mesa, experiment: Experiment) -> Mesa:
    """Distances and clusters on what agents observe, as it is."""
    del experiment
    untaught = untold(mesa)
    features = ObsActionFeatures(obs_weight=1.0, action_weight=0.0, after_step=True)
    return replace(untaught, reward=replace(untaught.reward, features=features))


ARMS: dict[str, Arm] = {
    "plain": by_name("plain"),
    "filled-own": filled("own"),
    "filled-test": filled("test"),
    "mesa": by_name("mesa"),
    "without-wishes": of_mesa(lambda mesa, _: replace(mesa, reward=without_wishes(mesa.reward))),
    "told-nothing": of_mesa(lambda mesa, _: untold(mesa)),
    "eq-6": of_mesa(eq_6),
    "off-policy-explorers": of_mesa(off_policy_explorers),
    "two-explorers": of_mesa(lambda mesa, _: replace(mesa, num_explorers=2)),
    "one-explorer": of_mesa(lambda mesa, _: replace(mesa, num_explorers=1)),
    "raw-features": of_mesa(raw_features),
}


def main() -> None:
    from mesax.execution.run_experiment import run_experiment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-test-tasks", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for name in options.arms:
        chosen = ARMS[name](options.env, options.preset)
        chosen = replace(chosen, seed=options.seed, num_test_tasks=options.num_test_tasks)
        chosen.method.check(chosen)
        path = options.out / f"{name}-{options.env}-seed{options.seed}"
        summary = run_experiment(chosen, path, method=name, env=options.env, workers=options.workers, quiet=True)
        finals = ", ".join(f"{task['final_return']:.2f}" for task in summary["per_task"])
        print(f"{name:<22} mean {summary['mean_return']:.2f}  tasks {finals}", flush=True)


if __name__ == "__main__":
    main()
