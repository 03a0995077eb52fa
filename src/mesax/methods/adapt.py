"""Learning the test tasks, which every method ends with, and the two controls that show what learned explorers add.

Plain     the learner alone
Uniform   the learner with a uniformly random explorer, mixed in exactly as MESA mixes its own   (Algorithm 2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mesax.methods.base import Experiment, Host, Stage, groups_of, keeping_last_good, padded
from mesax.policy import EXPLORER, UniformPolicy
from mesax.store.trees import save_tree
from mesax.training.driver import Chunk, learn
from mesax.training.loops import loop_for
from mesax.training.off_policy import Behavior, LearnerAlone, Mixing
from mesax.types import tree_index

if TYPE_CHECKING:
    from mesax.methods.preset import Preset

ADAPT_STREAM = 3


def policy_name(task: int, repeat: int) -> str:
    """Directory name of a final policy."""
    return f"task-{task:02d}-run-{repeat:02d}"


def best_policy_name(task: int, repeat: int) -> str:
    """Directory name of the policy with the best evaluation."""
    return f"best-{policy_name(task, repeat)}"


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
            keeper=host,
        )
        learner = jax.eval_shape(jax.vmap(lambda key: experiment.algorithm.init(loop.learner_spec, key)), keys)
        best: _Best | None = host.kept(_Best(np.zeros(len(lanes)), np.zeros(len(lanes), int), learner))
        with keeping_last_good(host):
            for chunk in chunks:
                returns = _record(experiment, host, group, split.test, chunk)
                best = _better(best, _Best(np.array(padded(returns, len(lanes))), chunk.step, chunk.learner))
                host.keep(best)
        assert best is not None
        _save_policies(experiment, host.directory, group, chunk, best)

    return Stage("adapt", tuple(steps * len(group) for group in groups), run)


class _Best(NamedTuple):
    """The learners with the best evaluations, lane by lane."""

    returns: np.ndarray
    step: Any
    learner: Any


def _better(best: _Best | None, now: _Best) -> _Best:
    """The better learner of each lane; of two equals the later."""
    step = np.full(len(now.returns), now.step)
    now = now._replace(step=step)
    if best is None:
        return now
    wins = now.returns >= best.returns
    return jax.tree.map(lambda new, old: np.where(wins.reshape(-1, *[1] * (new.ndim - 1)), new, old), now, best)


def _record(experiment: Experiment, host: Host, group: list[tuple[int, int]], tasks: Any, chunk: Chunk) -> list[float]:
    """Rows and progress of one chunk; its returns."""
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
    return returns


def _save_policies(
    experiment: Experiment, directory: Path, group: list[tuple[int, int]], last: Chunk, best: _Best
) -> None:
    """Two greedy policies per lane: of the end, and of the best evaluation."""
    for lane, (task, repeat) in enumerate(group):
        facts = {"task": task, "repeat": repeat}
        for name, learners, when in (
            (policy_name(task, repeat), last.learner, {"step": last.step}),
            (
                best_policy_name(task, repeat),
                best.learner,
                {"step": int(best.step[lane]), "return": float(best.returns[lane])},
            ),
        ):
            policy = experiment.algorithm.greedy(experiment.family.env.spec, tree_index(learners, lane))
            save_tree(directory / name, policy, facts | when)


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


def plain(preset: Preset) -> Experiment:
    """The learner of a preset, alone."""
    return replace(preset.mesa, method=Plain())


def uniform(preset: Preset) -> Experiment:
    """The learner of a preset with random episodes, as many as MESA plays with its explorers."""
    return replace(preset.mesa, method=Uniform(preset.mixing))
