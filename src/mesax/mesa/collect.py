"""MESA's stage 1: run the learner on training tasks and keep what paid (Algorithm 1, lines 1-6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.envs.base import TaskFamily
from mesax.mesa.high_reward import Collected, Levels, Threshold, deduplicate, valuable
from mesax.mesa.unfinished import all_episodes, put_episodes
from mesax.methods.base import (
    Experiment,
    Purpose,
    Services,
    Stage,
    groups_of,
    keeping_last_good,
    of_lanes,
    padded,
)
from mesax.store.trees import Place, open_tree, save_tree, trees_in
from mesax.training.driver import learn
from mesax.training.loop import LearningLoop
from mesax.training.schedule import Schedule
from mesax.types import Episode, tree_index

Featurize: TypeAlias = Callable[[Episode], tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]]
"""From stacked episodes to the features and the true configuration of every step; hashable, it names a program."""


@runtime_checkable
class AlsoKeep(Protocol):
    """What a method keeps of a training task's episodes in addition to its valuable pairs."""

    def __call__(self, task: int, episodes: Episode, levels: Levels, services: Services) -> None:
        """Keep it in the job's directory."""


@runtime_checkable
class Collecting(Protocol):
    """What a method says of its stage 1."""

    @property
    def collect(self) -> Schedule:
        """Its budget, per training task."""

    @property
    def threshold(self) -> Threshold:
        """R*: which rewards are high."""

    @property
    def relabel_discount(self) -> float:
        """gamma of Eq. (5)."""

    @property
    def least_value(self) -> float:
        """Relabeled pairs worth less stay out of M_*."""

    @property
    def keep_trajectories(self) -> int:
        """Whole high-return episodes kept per training task."""


def collect_loop(experiment: Experiment, method: Collecting) -> LearningLoop:
    """The learner of the test tasks, on training tasks; refuses what does not fit."""
    loop = LearningLoop(experiment.training_env, experiment.algorithm, method.collect, keep_episodes=True)
    loop.check_lanes(experiment.lanes)
    return loop


def collect_stage(
    experiment: Experiment, method: Collecting, featurize: Featurize, also: AlsoKeep | None = None
) -> Stage:
    """Every training task, in groups of lanes."""
    groups = groups_of(list(range(experiment.num_train_tasks)), experiment.lanes)
    steps = method.collect.steps(experiment.training_env.spec.horizon)
    loop = collect_loop(experiment, method)
    return Stage(
        "collect",
        tuple(steps * len(group) for group in groups),
        lambda job, services: collect_group(experiment, method, loop, featurize, groups[job], services, also),
    )


def collect_group(
    experiment: Experiment,
    method: Collecting,
    loop: LearningLoop,
    featurize: Featurize,
    group: list[int],
    services: Services,
    also: AlsoKeep | None = None,
) -> None:
    """Stage 1 on a group of training tasks."""
    family, lanes = experiment.family, padded(group, experiment.lanes)
    tasks = of_lanes(experiment.training_tasks, lanes)
    keys = jnp.stack([experiment.key(Purpose.COLLECT, task) for task in lanes])
    with keeping_last_good(services):
        for chunk in learn(loop, tasks, keys, eval_episodes=experiment.eval_episodes, keeper=services):
            put_episodes(services, chunk)
            returns = [float(family.score(jnp.asarray(rewards))) for rewards in chunk.rewards]
            services.report(chunk.step * len(group), f"return {np.mean(returns):.3f}")
            if chunk.compile_seconds:
                services.compiled(chunk.compile_seconds)
    harvests = all_episodes(services, jax.eval_shape(loop.blank_episode, ()), len(group))
    for task, harvest in zip(group, harvests, strict=True):
        _keep_valuable(method, featurize, task, harvest, services, also)


def _keep_valuable(
    method: Collecting,
    featurize: Featurize,
    task: int,
    harvest: list[Episode],
    services: Services,
    also: AlsoKeep | None,
) -> None:
    """M_* of one training task: pairs and whole trajectories."""
    episodes: Episode = jax.tree.map(lambda *parts: np.concatenate(parts), *harvest)
    reward, mask = np.asarray(episodes.reward), np.asarray(episodes.mask)
    levels = method.threshold.levels(reward[mask])
    values = valuable(reward, mask, levels, method.relabel_discount, method.least_value)
    features, configurations = (
        np.concatenate(parts) for parts in zip(*(compiled(featurize)(part) for part in harvest), strict=True)
    )
    kept = values > 0
    distinct, best = deduplicate(features[kept], values[kept])
    pairs = {"features": distinct, "values": best, "configurations": np.unique(configurations[kept])}
    sizes = {name: list(array.shape) for name, array in pairs.items()}
    seen = {"steps": int(mask.sum()), "lowest": float(reward[mask].min()), "best": float(reward[mask].max())}
    facts = {"task": task, "sizes": sizes, "rewards": seen | {"high": levels.high if kept.any() else None}}
    save_tree(services.directory / f"pairs-{task:02d}", pairs, facts)
    high = np.flatnonzero(np.any(mask & (reward >= levels.high), axis=1))
    high = high[max(len(high) - method.keep_trajectories, 0) :]
    save_tree(
        services.directory / f"trajectories-{task:02d}",
        tree_index(episodes, high),
        {"task": task, "episodes": len(high)},
    )
    row = {"phase": "collect", "task": task, "step": int(mask.sum())}
    row |= {"high_reward_pairs": int(kept.sum()), "distinct_pairs": len(distinct)}
    services.rows("metrics", [row | {"reward_threshold": levels.high}])
    if also is not None:
        also(task, episodes, levels, services)


@dataclass(frozen=True)
class Pairs:
    """The valuable state-action pairs of all training tasks."""

    features: np.ndarray
    values: np.ndarray
    configurations: np.ndarray
    """Which configurations they belong to, in truth: for pictures only."""
    collected: Collected
    """All rewards seen on the way."""
    high: float
    """The lowest R* of a task that has such pairs; infinite if none has."""
    task: np.ndarray
    """The training task of each pair."""


def load_pairs(directories: list[Place]) -> Pairs:
    """The union of all training tasks' valuable pairs."""
    parts, seen, tasks = [], [], []
    for directory in directories:
        for saved in map(open_tree, trees_in(directory, "pairs-*")):
            facts = saved.facts
            sizes = facts["sizes"]
            seen.append(facts["rewards"])
            dtypes = {"features": jnp.float32, "values": jnp.float32, "configurations": jnp.int32}
            like = {name: jax.ShapeDtypeStruct(tuple(sizes[name]), dtype) for name, dtype in dtypes.items()}
            parts.append(saved.restore(like))
            tasks.append(np.full(sizes["values"], facts["task"]))
    merged = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
    collected = Collected(
        tasks=len(seen),
        steps=sum(one["steps"] for one in seen),
        lowest=min(one["lowest"] for one in seen),
        best=max(one["best"] for one in seen),
    )
    high = min((one["high"] for one in seen if one["high"] is not None), default=np.inf)
    configurations = np.unique(merged["configurations"])
    return Pairs(merged["features"], merged["values"], configurations, collected, high, np.concatenate(tasks))


def high_reward_of(family: TaskFamily, pairs: Pairs) -> float:
    """The reward that counts as high: the family's own word, else what stage 1 has found."""
    return pairs.high if family.high_reward is None else family.high_reward
