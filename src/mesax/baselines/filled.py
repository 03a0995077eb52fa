"""The paper's ablation (App. D): no explorers, but a replay that holds what paid in the training tasks from the start.

    collect   as MESA: for each training task, run the learner; keep whole episodes with a high reward   Alg. 1, 1-6
    adapt     fill the replay with such episodes, then learn each unseen task with the learner alone

The paper does not say which rewards these episodes carry. `own`: those of the task in which they were played, which
contradict the test task; `test`: those that the test task would have paid for the same steps, an upper bound that needs
a world which can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.envs.base import Task, TaskFamily, step_configurations
from mesax.envs.structure import TellsRewards
from mesax.errors import TrainingError, UsageError
from mesax.mesa.collect import Collection, Threshold
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Services, Stage
from mesax.methods.preset import Preset
from mesax.ranges import above, at_least, at_most
from mesax.rewards.levels import HighReward, Levels
from mesax.store.trees import Place, open_tree, save_tree, trees_in
from mesax.training.loop import Start
from mesax.training.schedule import Schedule
from mesax.types import Episode, stacked_shape, tree_index


@dataclass(frozen=True)
class Filled:
    """A replay filled from M_* before learning."""

    collect: Schedule = Schedule(total_steps=30_000)
    """Stage 1, per training task."""
    labels: Literal["own", "test"] = "own"
    """Whose rewards the episodes carry: those of the training tasks, or those of the test task."""
    share: float = 0.2
    """At most this much of the replay is filled."""
    threshold: HighReward = Threshold()
    """R*: which rewards are high."""
    keep_trajectories: int = 200
    """Whole high-return episodes kept per training task."""

    def __post_init__(self) -> None:
        """Refuse a replay that is overfull."""
        above(self, 0, "share")
        at_most(self, 1, "share")
        at_least(self, 1, "keep_trajectories")

    def check(self, experiment: Experiment) -> None:
        """The learner must have a replay, and the world be able to tell what the test task would pay."""
        check_adapt(experiment)
        if not isinstance(experiment.schedule, Schedule):
            raise UsageError("an on-policy learner has no replay that could be filled: choose another with --learner")
        if self.labels == "test" and not isinstance(experiment.family.env, TellsRewards):
            raise UsageError(
                f"{type(experiment.family.env).__name__} cannot tell what a task would pay for steps of another: use"
                " method.labels own"
            )
        self.stages(experiment)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Collect, adapt."""

        def start(services: Services, tasks: Task) -> Start:
            episodes = self._episodes(experiment, services.outputs("collect"))
            return Start(episodes=self._labeled(experiment, episodes, tasks))

        return (
            self._collection(experiment).stage,
            adapt_stage(experiment, start_of=start),
        )

    def _collection(self, experiment: Experiment) -> Collection:
        keep = _KeepEpisodes(self.keep_trajectories)
        return Collection(experiment, self.collect, self.threshold, _Nothing(experiment.family), also=keep)

    def _episodes(self, experiment: Experiment, directories: list[Place]) -> Episode:
        """Kept episodes of all training tasks, in turn, as many as the replay may hold of them."""
        blank = self._collection(experiment).loop.blank_episode(())
        parts = []
        for saved in (open_tree(place) for directory in directories for place in trees_in(directory, "trajectories-*")):
            number = int(saved.facts["episodes"])
            parts += [saved.restore(stacked_shape(blank, number))] if number else []
        if not parts:
            raise TrainingError("stage 1 found no episode with a high reward: there is nothing to fill the replay with")
        assert isinstance(experiment.schedule, Schedule)
        room = max(1, int(self.share * experiment.schedule.replay_capacity))
        merged: Episode = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        order = in_turn([len(part.reward) for part in parts])
        return tree_index(merged, order[:room])

    def _labeled(self, experiment: Experiment, episodes: Episode, tasks: Task) -> Episode:
        """The episodes for every lane, with its task's rewards if that is asked for; tasks are `[lanes, 1, ...]`."""
        lanes = jax.tree.leaves(tasks)[0].shape[0]
        stacked: Episode = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (lanes, *leaf.shape)), episodes)
        if self.labels == "own":
            return stacked
        env = experiment.family.env
        assert isinstance(env, TellsRewards), "check() has seen to it"
        rewards = compiled(_Relabel(env))(tree_index(tasks, (slice(None), 0)), stacked)
        return eqx.tree_at(lambda e: e.reward, stacked, np.asarray(rewards))


def in_turn(sizes: list[int]) -> np.ndarray:
    """Places in a concatenation of parts that take one of each part in turn, the last of each first."""
    ends = np.cumsum(sizes)
    turns = [(turn, part) for part, size in enumerate(sizes) for turn in range(size)]
    return np.array([ends[part] - 1 - turn for turn, part in sorted(turns)], int)


@dataclass(frozen=True)
class _KeepEpisodes:
    """Whole episodes with a high reward, the last so many."""

    most: int

    def __call__(self, task: int, episodes: Episode, levels: Levels, services: Services) -> None:
        mask, reward = np.asarray(episodes.mask), np.asarray(episodes.reward)
        high = np.flatnonzero(np.any(mask & (reward >= levels.high), axis=1))[-self.most :]
        facts = {"task": task, "episodes": len(high)}
        save_tree(services.directory / f"trajectories-{task:02d}", tree_index(episodes, high), facts)


@dataclass(frozen=True)
class _Nothing:
    """Stage 1 has no use for features here; what is kept are episodes."""

    family: TaskFamily

    def __call__(self, episodes: Episode) -> tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]:
        return episodes.reward[..., None], step_configurations(self.family, episodes)


@dataclass(frozen=True)
class _Relabel:
    """What tasks `[lanes, ...]` would pay for episodes `[lanes, episodes, ...]`."""

    env: TellsRewards

    def __call__(self, tasks: Task, episodes: Episode) -> Float[Array, "lanes episodes time"]:
        def lane(task: Task, episodes: Episode) -> Float[Array, "episodes time"]:
            transitions = jax.vmap(lambda episode: episode.transitions)(episodes)
            paid = jax.vmap(jax.vmap(lambda step: self.env.would_pay(task, step)))(transitions)
            return jnp.where(episodes.mask, paid, 0.0)

        return jax.vmap(lane)(tasks, episodes)


def filled(preset: Preset) -> Experiment:
    """The ablation, in all else as a preset has MESA."""
    published = preset.method
    return replace(preset.mesa, method=Filled(collect=published.collect, threshold=published.threshold))
