"""Saved policies: whatever scales a learner ends with, its policy can be read again; what is damaged cannot."""

import json
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized, StandardizedPolicy
from mesax.baselines.controls import Plain
from mesax.bridges.environments.family import ForeignFamily
from mesax.errors import DamageError, UsageError
from mesax.execution.saved_policies import evaluate_run, learned_policy, load_policy, play_policy
from mesax.experiments.overrides import digest
from mesax.methods.adapt import policy_name
from mesax.methods.base import Experiment
from mesax.nets import Mlp, for_another_task
from mesax.store.run_directory import RunDirectory, product_in
from mesax.store.settings import to_plain
from mesax.store.trees import save_tree
from mesax.training.schedule import Budget
from mesax.types import as_one, blank_episode
from methods.helpers import ONE_STEP, TINY, TINY_MADDPG, same_bits

SPEC = ONE_STEP.env.spec
FIXED = Experiment(Plain(), ONE_STEP, Normalized(TINY_MADDPG, fixed=True), TINY, 0, 2, 1)
TRANSFERRED = replace(FIXED, algorithm=Normalized(Mappo(Mlp((4,)), Mlp((4,)))), schedule=Budget(80, num_envs=4))


def learned(experiment: Experiment) -> StandardizedPolicy:
    """What a learner plays greedily after its first round, with scales that no longer move."""

    @jax.jit
    def compute(key):
        state = experiment.algorithm.observe(SPEC, experiment.algorithm.init(SPEC, key), as_one(blank_episode(SPEC)))
        return experiment.algorithm.greedy(SPEC, state if experiment is FIXED else for_another_task(state))

    return jax.device_get(compute(jax.random.key(0)))


def saved(policy: StandardizedPolicy, path: Path) -> RunDirectory:
    save_tree(product_in(path, policy_name(0, 0)), policy, {})
    return RunDirectory(path)


@pytest.mark.parametrize("experiment", [FIXED, TRANSFERRED], ids=["fixed", "transferred"])
def test_policies_with_scales_that_are_held_can_be_read_again(experiment: Experiment, tmp_path: Path):
    policy = learned(experiment)
    assert same_bits(learned_policy(saved(policy, tmp_path), experiment, 0), policy)
    # As policies were saved before: held scales counted infinitely many batches.
    endless = eqx.tree_at(lambda policy: policy.moments.batches, policy, np.float32(np.inf))
    again = learned_policy(saved(endless, tmp_path), experiment, 0)
    assert same_bits(again.moments.mean, policy.moments.mean) and same_bits(again.policy, policy.policy)
    broken = eqx.tree_at(lambda policy: policy.moments.mean, policy, np.full_like(policy.moments.mean, np.inf))
    with pytest.raises(DamageError, match=r"moments\.mean has numbers that are not finite"):
        learned_policy(saved(broken, tmp_path), experiment, 0)


def test_policies_of_tasks_that_are_drawn_otherwise_now_are_loaded_but_not_judged(tmp_path: Path):
    seeds = replace(FIXED, family=ForeignFamily(ONE_STEP.env, 1.0))
    elsewhere = [{"label": f"seed {task}", "group": None, "target": [[task]]} for task in range(seeds.num_test_tasks)]
    run = {"id": "old", "config": to_plain(seeds), "config_hash": digest(seeds), "test_tasks": elsewhere}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    policy = learned(FIXED)
    directory = saved(policy, tmp_path)
    assert same_bits(load_policy(tmp_path).policy, policy)
    for play in (lambda: evaluate_run(directory, seeds, 1, 0), lambda: play_policy(directory, seeds, 0, "final")):
        with pytest.raises(UsageError, match="its test tasks are drawn otherwise now"):
            play()
