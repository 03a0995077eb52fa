"""What stage 1 leaves behind: episodes put aside while it runs, then the valuable state-action pairs of each task.

Episodes are written once and never change: a job that goes on from an earlier moment writes the same ones again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.envs.base import TaskFamily, step_configurations
from mesax.methods.base import Experiment, Purpose, Services, keeping_last_good, of_lanes, padded
from mesax.rewards.base import ExplorersReward
from mesax.rewards.levels import Collected
from mesax.rewards.points import deduplicate
from mesax.store.trees import Place, open_tree, save_tree, trees_in
from mesax.training.driver import Chunk, learn
from mesax.training.loop import LearningLoop
from mesax.types import Episode, stacked_shape, tree_index

StepsSeen: TypeAlias = Callable[[Episode], tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]]
"""From stacked episodes to the features and the true configuration of every step; hashable, it names a program."""


@dataclass(frozen=True)
class StepFeatures:
    """What stage 1 keeps of a step for an explorers' reward, and what configuration it visits."""

    reward: ExplorersReward
    family: TaskFamily

    def __call__(self, episodes: Episode) -> tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]:
        """Of all steps of stacked episodes."""
        return self.reward.features_of(self.family.env.spec, episodes), step_configurations(self.family, episodes)


class Harvest(NamedTuple):
    """All that was played on one training task."""

    task: int
    episodes: Episode
    features: np.ndarray
    """Of all steps of the episodes."""
    configurations: np.ndarray


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

    def high_reward(self, family: TaskFamily) -> float:
        """The reward that counts as high: the family's own word, else what stage 1 has found."""
        return self.high if family.high_reward is None else family.high_reward


def harvests(
    experiment: Experiment, loop: LearningLoop, group: list[int], seen: StepsSeen, services: Services
) -> Iterator[Harvest]:
    """Run the loop's learner on training tasks, one in each lane; then all that it has played on each."""
    lanes = padded(group, experiment.lanes)
    tasks = of_lanes(experiment.training_tasks, lanes)
    keys = jnp.stack([experiment.key(Purpose.COLLECT, task) for task in lanes])
    with keeping_last_good(services):
        for chunk in learn(loop, tasks, keys, eval_episodes=experiment.eval_episodes, keeper=services):
            put_episodes(services, chunk)
            returns = [float(experiment.family.score(jnp.asarray(rewards))) for rewards in chunk.rewards]
            services.report(chunk.step * len(group), f"return {np.mean(returns):.3f}")
            if chunk.compile_seconds:
                services.compiled(chunk.compile_seconds)
    played = all_episodes(services, jax.eval_shape(loop.blank_episode, ()), len(group))
    for task, parts in zip(group, played, strict=True):
        episodes: Episode = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        found = zip(*(compiled(seen)(part) for part in parts), strict=True)
        features, configurations = (np.concatenate(one) for one in found)
        yield Harvest(task, episodes, features, configurations)


def put_episodes(services: Services, chunk: Chunk) -> None:
    """Put a chunk's episodes aside."""
    assert chunk.episodes is not None
    axes = list(chunk.episodes.reward.shape[:-1])
    services.put_aside(f"episodes-{chunk.step:012d}", chunk.episodes, {"axes": axes})


def all_episodes(services: Services, blank: Episode, lanes: int) -> list[list[Episode]]:
    """What each of the first lanes has played, chunk by chunk, `[rounds * envs, ...]` each; every file is read once.

    `blank` has the shapes of one episode.
    """
    parts: list[list[Episode]] = [[] for _ in range(lanes)]
    for saved in map(open_tree, trees_in(services.scratch, "episodes-*")):
        like = stacked_shape(blank, *saved.facts["axes"])
        played: Episode = jax.tree.map(np.asarray, saved.restore(like))
        for lane, chunks in enumerate(parts):
            chunks.append(jax.tree.map(lambda leaf: np.concatenate(np.asarray(leaf)), tree_index(played, lane)))
    return parts


def save_pairs(
    directory: Place, task: int, pairs: tuple[np.ndarray, np.ndarray, np.ndarray], rewards: np.ndarray, high: float
) -> int:
    """Save features, values and configurations of one task's valuable steps, and all rewards; how many are distinct."""
    features, values, configurations = pairs
    distinct, best = deduplicate(features, values)
    arrays = {"features": distinct, "values": best, "configurations": np.unique(configurations)}
    sizes = {name: list(array.shape) for name, array in arrays.items()}
    seen = {"steps": rewards.size, "lowest": float(rewards.min()), "best": float(rewards.max())}
    facts = {"task": task, "sizes": sizes, "rewards": seen | {"high": high if len(features) else None}}
    save_tree(directory / f"pairs-{task:02d}", arrays, facts)
    return len(distinct)


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
