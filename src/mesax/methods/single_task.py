"""Learning the test tasks, which every method ends with, and the two controls that show what learned explorers add.

Plain     the learner alone
Uniform   the learner with a uniformly random explorer, mixed in exactly as MESA mixes its own   (Algorithm 2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mesax.checkpoint import save_tree
from mesax.methods.base import Experiment, Host, Stage, groups_of, keeping_last_good, padded
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training.driver import Chunk, learn
from mesax.training.loops import loop_for
from mesax.training.off_policy import Behavior, LearnerAlone, Mixing
from mesax.types import tree_index

ADAPT_STREAM = 3


def policy_name(task: int, repeat: int) -> str:
    """Directory name of a final policy."""
    return f"task-{task:02d}-run-{repeat:02d}"


def adapt_stage(
    experiment: Experiment, behavior: Behavior, explorer_of: Callable[[Host], Any] = lambda host: None
) -> Stage:
    """Learn every unseen test task; `explorer_of` loads what meta-training left behind."""
    runs = [(t, r) for t in range(experiment.num_test_tasks) for r in range(experiment.num_repeats)]
    groups = groups_of(runs, experiment.lanes)
    env = experiment.training_env
    # What the learner cannot serve is refused here, before anything is built.
    jax.eval_shape(lambda key: experiment.algorithm.init(env.spec, key), jax.random.key(0))
    loop = loop_for(env, experiment.algorithm, experiment.schedule, behavior, experiment.reward_model)
    steps = experiment.schedule.steps(env.spec.horizon)

    def run(job: int, host: Host) -> None:
        group = groups[job]
        split = experiment.family.split(experiment.seed, experiment.num_train_tasks, experiment.num_test_tasks)
        lanes = padded(group, experiment.lanes)
        tasks = jax.tree.map(lambda leaf: leaf[jnp.array([t for t, _ in lanes])][:, None], split.test)
        keys = jnp.stack([experiment.key(ADAPT_STREAM, t, r) for t, r in lanes])
        chunks = learn(
            loop,
            tasks,
            keys,
            explorer=explorer_of(host),
            eval_episodes=experiment.eval_episodes,
            eval_env=experiment.family.env,
        )
        with keeping_last_good(host):
            for chunk in chunks:
                _record(experiment, host, group, split.test, chunk)
        _save_policies(experiment, host.directory, group, chunk.learner)

    return Stage("adapt", tuple(steps * len(group) for group in groups), run)


def _record(experiment: Experiment, host: Host, group: list[tuple[int, int]], tasks: Any, chunk: Chunk) -> None:
    """Rows and progress of one chunk."""
    evaluations, metrics, returns = [], [], []
    for lane, (task, repeat) in enumerate(group):
        identity = {"phase": "adapt", "task": task, "repeat": repeat, "step": chunk.step}
        rewards = chunk.rewards[lane]
        returns.append(float(experiment.family.score(jnp.asarray(rewards))))
        groups = experiment.family.breakdown(tree_index(tasks, task), rewards)
        evaluations.append(identity | {"return": returns[-1], "groups": groups})
        metrics.append(identity | {name: float(value[lane]) for name, value in chunk.metrics.items()})
    host.rows("eval", evaluations)
    host.rows("metrics", metrics)
    if chunk.compile_seconds:
        host.compiled(chunk.compile_seconds)
    host.report(chunk.step * len(group), f"return {np.mean(returns):.3f}")


def _save_policies(experiment: Experiment, directory: Path, group: list[tuple[int, int]], learners: Any) -> None:
    """One greedy policy per lane."""
    for lane, (task, repeat) in enumerate(group):
        policy = experiment.algorithm.greedy(experiment.family.env.spec, tree_index(learners, lane))
        save_tree(directory / policy_name(task, repeat), policy, {"task": task, "repeat": repeat})


@dataclass(frozen=True)
class Plain:
    """The learner alone."""

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        return (adapt_stage(experiment, LearnerAlone()),)


@dataclass(frozen=True)
class Uniform:
    """MESA's mixing with a uniformly random explorer: what exploring *anyhow* is worth."""

    mixing: Mixing = Mixing()

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Only the test tasks."""
        explorer = UniformPolicy(experiment.family.env.spec.action_space, EXPLORER)
        return (adapt_stage(experiment, self.mixing, lambda host: explorer),)
