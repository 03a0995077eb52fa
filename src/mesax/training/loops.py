"""Which loop runs a learner: its schedule says whether it replays what was played before."""

from __future__ import annotations

from typing import Any

from mesax.errors import UsageError
from mesax.rewards.base import RewardModel, TaskReward
from mesax.training.engines import Loop
from mesax.training.off_policy import Behavior, Budget, LearnerAlone, OffPolicyLoop, Schedule
from mesax.training.on_policy import OnPolicyLoop


def loop_for(
    env: Any,
    algorithm: Any,
    schedule: Schedule | Budget,
    behavior: Behavior = LearnerAlone(),
    reward_model: RewardModel = TaskReward(),
    keep_episodes: bool = False,
) -> Loop:
    """A `Schedule` has replay and serves off-policy learners; a plain `Budget` serves on-policy ones."""
    if isinstance(schedule, Schedule):
        return OffPolicyLoop(env, algorithm, schedule, behavior, reward_model, keep_episodes)
    if behavior != LearnerAlone():
        raise UsageError(
            "an on-policy learner cannot learn from another's episodes: choose an off-policy learner (--learner),"
            " or run it alone"
        )
    return OnPolicyLoop(env, algorithm, schedule, reward_model, keep_episodes)
