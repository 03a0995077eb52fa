"""Stage 1: run the learner on training tasks, and keep the state-action pairs that paid (Algorithm 1, lines 1-6).

    r_t >= R*                                       valuable, kept with its reward               Algorithm 1, line 5
    r_t = 0, next positive reward r_t' >= R*        kept with rhat_t = gamma^(t'-t) r_t'         Eq. (5)

Deviation(threshold): a reward of exactly R* is high, and pairs instead of whole trajectories form M_*.
Deviation(relabel-scope): relabeled pairs join M_* only if they lead to a high reward, and are worth .001 at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mesax.methods.base import Experiment, Services, Stage, groups_of
from mesax.methods.harvest import Harvest, StepsSeen, harvests, save_pairs
from mesax.ranges import above
from mesax.rewards.levels import Collected, HighReward, Levels
from mesax.training.loop import LearningLoop
from mesax.training.schedule import Schedule
from mesax.types import Episode

LEAST_VALUE = 1e-3
"""Relabeled pairs worth less stay out of M_*."""


@dataclass(frozen=True)
class Threshold:
    """R* as a number."""

    reward: float = 1.0
    """Rewards from here on are high."""

    def __post_init__(self) -> None:
        """Refuse what every step reaches."""
        above(self, 0, "reward")

    def levels(self, rewards: np.ndarray) -> Levels:
        """The same on every task."""
        del rewards
        return Levels(self.reward)

    def nothing_found(self, collected: Collected) -> str:
        """No reward reached R*."""
        return collected.nothing_found(f"reward is {self.reward:g}", "--method.threshold RelativeThreshold")


def relabel(rewards: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Eq. (5) along the last axis: (densified reward, the reward it leads to); both 0 where no reward follows."""
    dense, leads_to = np.zeros((2, *rewards.shape), np.float32)
    later_dense, later_reward = np.zeros((2, *rewards.shape[:-1]))
    for step in reversed(range(rewards.shape[-1])):
        now = rewards[..., step]
        later_dense = np.where(now > 0, now, discount * later_dense)
        later_reward = np.where(now > 0, now, later_reward)
        dense[..., step], leads_to[..., step] = later_dense, later_reward
    return dense, leads_to


def valuable(rewards: np.ndarray, mask: np.ndarray, levels: Levels, discount: float) -> np.ndarray:
    """Value of each step for M_*: its own or its relabeled reward, 0 for steps that stay out."""
    dense, leads_to = relabel(np.where(mask, levels.height(rewards), 0.0), discount)
    own = rewards >= levels.high
    # The same rounding on both sides, so that a reward of exactly R* counts.
    leads_high = leads_to >= levels.height(np.asarray(levels.high, rewards.dtype))
    relabeled = (rewards == levels.usual) & leads_high & (dense >= LEAST_VALUE)
    return np.where(mask & (own | relabeled), dense, 0.0)


@dataclass(frozen=True)
class Collection:
    """Stage 1 of an experiment."""

    experiment: Experiment
    schedule: Schedule
    """Budget, per training task."""
    threshold: HighReward
    seen: StepsSeen
    discount: float = 0.0
    """gamma of Eq. (5)."""
    also: Callable[[int, Episode, Levels, Services], None] | None = None
    """What else is kept of a training task's episodes in the job's directory."""

    @property
    def loop(self) -> LearningLoop:
        """The learner of the test tasks, on training tasks; refuses what does not fit."""
        experiment = self.experiment
        loop = LearningLoop(experiment.training_env, experiment.algorithm, self.schedule, keep_episodes=True)
        loop.check_lanes(experiment.lanes)
        return loop

    @property
    def stage(self) -> Stage:
        """Every training task, in groups of lanes."""
        groups = groups_of(list(range(self.experiment.num_train_tasks)), self.experiment.lanes)
        steps, loop = self.schedule.steps(self.experiment.training_env.spec.horizon), self.loop

        def run(job: int, services: Services) -> None:
            for harvest in harvests(self.experiment, loop, groups[job], self.seen, services):  # lines 2-4 and 6
                self._keep(harvest, services)

        return Stage("collect", tuple(steps * len(group) for group in groups), run)

    def _keep(self, harvest: Harvest, services: Services) -> None:
        """Line 5: what joins M_* of one training task."""
        task, episodes = harvest.task, harvest.episodes
        reward, mask = np.asarray(episodes.reward), np.asarray(episodes.mask)
        levels = self.threshold.levels(reward[mask])
        values = valuable(reward, mask, levels, self.discount)
        kept = values > 0
        pairs = harvest.features[kept], values[kept], harvest.configurations[kept]
        distinct = save_pairs(services.directory, task, pairs, reward[mask], levels.high)
        row = {"phase": "collect", "task": task, "step": int(mask.sum()), "high_reward_pairs": int(kept.sum())}
        services.rows("metrics", [row | {"distinct_pairs": distinct, "reward_threshold": levels.high}])
        if self.also is not None:
            self.also(task, episodes, levels, services)
