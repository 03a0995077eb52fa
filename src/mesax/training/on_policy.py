"""The on-policy loop: play a round of episodes, learn from them, forget them.

It offers the same functions as `OffPolicyLoop`, so the driver runs either; there is no replay and no warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from mesax.algorithms.base import OnPolicyAlgorithm
from mesax.envs.base import Environment
from mesax.errors import UsageError
from mesax.policy import Policy
from mesax.rewards.base import RewardModel, TaskReward
from mesax.training.off_policy import INIT_STREAM, REWARD_STREAM, Budget, RoundLog, returns_of, round_keys
from mesax.training.rollout import play
from mesax.types import Elapsed, EnvSpec, Episode, Key


class OnPolicyState(eqx.Module):
    """Everything that a round changes."""

    learner: Any
    reward: Any
    round: Int[Array, ""]


@dataclass(frozen=True)
class OnPolicyLoop:
    """One algorithm on one environment with one budget; hashable, so it names its compiled program."""

    env: Environment
    algorithm: OnPolicyAlgorithm
    schedule: Budget
    reward_model: RewardModel = TaskReward()
    keep_episodes: bool = False
    """Hand the collected episodes back to the host."""

    @property
    def learner_spec(self) -> EnvSpec:
        """Sizes as the learner sees them."""
        return self.reward_model.learner_spec(self.env.spec)

    def init(self, reward_state: PyTree, key: Key) -> OnPolicyState:
        """Fresh learner."""
        learner = self.algorithm.init(self.learner_spec, jax.random.fold_in(key, INIT_STREAM))
        reward_state = self.reward_model.begin(self.env.spec, reward_state, jax.random.fold_in(key, REWARD_STREAM))
        return OnPolicyState(learner, reward_state, jnp.zeros((), jnp.int32))

    def warm_up(self, tasks: PyTree, state: OnPolicyState, key: Key) -> tuple[OnPolicyState, RoundLog]:
        """Nothing to do before the first round."""
        del tasks, key
        return state, RoundLog({}, None)

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: OnPolicyState, key: Key, num_rounds: int
    ) -> tuple[OnPolicyState, RoundLog]:
        """`num_rounds` rounds of playing and learning; nobody else may play."""

        def body(state: OnPolicyState, _: None) -> tuple[OnPolicyState, RoundLog]:
            key_play, key_learn = round_keys(key, state.round)
            policy = self.player(state.learner, state.reward, state.round, explorer)
            return self.learn(state, play(self.env, tasks, policy, key_play, self.schedule.num_envs), key_learn)

        return jax.lax.scan(body, state, None, num_rounds)

    def elapsed(self, number: Int[Array, ""]) -> Elapsed:
        """How far the run has come at round `number`."""
        return self.schedule.elapsed(self.env.spec.horizon, number)

    def player(self, learner: Any, reward: Any, number: Int[Array, ""], explorer: PyTree) -> Policy:
        """The learner plays round `number`, and nobody else may."""
        if explorer is not None:
            raise UsageError("an on-policy learner cannot learn from another's episodes")
        policy = self.algorithm.behavior(self.learner_spec, learner, self.elapsed(number))
        equipped: Policy = self.reward_model.equip(self.env.spec, reward, policy)
        return equipped

    def learn(self, state: OnPolicyState, episodes: Episode, key: Key) -> tuple[OnPolicyState, RoundLog]:
        """Learn from a round's episodes."""
        elapsed = self.elapsed(state.round)
        reward, learnt_from = self.reward_model.observe(self.env.spec, state.reward, episodes)
        learner, metrics = self.algorithm.update(self.learner_spec, state.learner, learnt_from, elapsed, key)
        log = RoundLog(returns_of(episodes, learnt_from) | metrics, episodes if self.keep_episodes else None)
        return OnPolicyState(learner, reward, state.round + 1), log
