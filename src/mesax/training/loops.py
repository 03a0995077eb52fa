"""Which loop runs a learner: its schedule says whether it replays what was played before."""

from __future__ import annotations

import inspect
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
    """A `Schedule` has replay and serves off-policy learners; a plain `Budget` serves on-policy ones.

    A learner that cannot go with its schedule is refused with a `UsageError`.
    """
    _refuse_misfit(env, algorithm, schedule)
    if isinstance(schedule, Schedule):
        return OffPolicyLoop(env, algorithm, schedule, behavior, reward_model, keep_episodes)
    if behavior != LearnerAlone():
        raise UsageError(
            "an on-policy learner cannot learn from another's episodes: choose an off-policy learner (--learner),"
            " or run it alone"
        )
    return OnPolicyLoop(env, algorithm, schedule, reward_model, keep_episodes)


def _refuse_misfit(env: Any, algorithm: Any, schedule: Schedule | Budget) -> None:
    """What would fail in the first update otherwise; to trace that takes seconds, and this takes none."""
    while hasattr(algorithm, "algorithm"):  # a wrapper
        algorithm = algorithm.algorithm
    on_policy = _is_on_policy(algorithm)
    if on_policy is True and isinstance(schedule, Schedule):
        raise UsageError(f"{type(algorithm).__name__} learns on-policy and has no replay: its schedule is a Budget")
    if on_policy is False and not isinstance(schedule, Schedule):
        raise UsageError(f"{type(algorithm).__name__} learns from replay: its schedule is a Schedule, not a Budget")
    if hasattr(algorithm, "check"):
        algorithm.check(env.spec, schedule.num_envs)


def _is_on_policy(algorithm: Any) -> bool | None:
    """By what its `update` takes: (spec, state, batch, elapsed, key) or no `elapsed`; None if that cannot be told."""
    parameters = inspect.signature(algorithm.update).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return len(parameters) > 4
