"""The m-step matrix game of MAVEN (Mahajan et al. 2019): the first joint action decides what can be had at the end.

Two agents, two actions. The first joint action opens a branch: (0, 0), (0, 1), (1, 0) or (1, 1). The second and third
end the episode with nothing. In the other two the team earns 1 for every step that repeats the branch's joint action,
and anything else ends the episode. Only the last step of branch (0, 0) differs: any joint action earns 1 there, and
(1, 1) earns 4. In ten steps, a team that keeps to a branch has 10; one that turns at the end of branch (0, 0) has 13.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mesax.envs.base import Step
from mesax.errors import UsageError
from mesax.types import Discrete, EnvSpec, Key

BRANCHES = 4
GOOD_BRANCHES = (0, 3)
TURN = 3
"""The joint action (1, 1), in the numbering of the branches."""


class StepsState(eqx.Module):
    """How far the episode has come, and in which branch."""

    time: Int[Array, ""]
    branch: Int[Array, ""]


@dataclass(frozen=True)
class StepsMatrixGame:
    """The game; all tasks are the same."""

    num_steps: int = 10
    """m."""
    turn_reward: float = 4.0
    """For the joint action (1, 1) at the last step of branch (0, 0)."""

    def __post_init__(self) -> None:
        """Refuse games in which the first step is the last."""
        if self.num_steps < 2:
            raise UsageError(f"num-steps must be at least 2, not {self.num_steps}")

    @property
    def spec(self) -> EnvSpec:
        """Observation = one-hot step (and what follows the last), one-hot branch; the same for both agents."""
        return EnvSpec(2, self.num_steps + 1 + BRANCHES, Discrete(2), self.num_steps)

    @property
    def best_return(self) -> float:
        """Along branch (0, 0), and a turn at its end."""
        return self.num_steps - 1 + self.turn_reward

    def reset(self, task: Int[Array, ""], key: Key) -> tuple[StepsState, Float[Array, "agents obs"]]:
        """Before the first step; the branch is shown as the first one."""
        del task, key
        state = StepsState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(
        self, task: Int[Array, ""], state: StepsState, action: Int[Array, " agents"], key: Key
    ) -> tuple[StepsState, Step]:
        """Pay for keeping to the branch, or for the turn."""
        del task, key
        played = 2 * action[0] + action[1]
        branch = jnp.where(state.time == 0, played, state.branch)
        kept = (branch == played) & jnp.any(branch == jnp.array(GOOD_BRANCHES))
        last = state.time == self.num_steps - 1
        at_the_turn = jnp.where(played == TURN, self.turn_reward, 1.0)
        reward = jnp.where(last & (branch == 0), at_the_turn, kept.astype(jnp.float32))
        state = StepsState(state.time + 1, branch)
        return state, Step(self._observe(state), reward, last | (reward == 0.0))

    def _observe(self, state: StepsState) -> Float[Array, "agents obs"]:
        time, branch = jax.nn.one_hot(state.time, self.num_steps + 1), jax.nn.one_hot(state.branch, BRANCHES)
        return jnp.broadcast_to(jnp.concatenate([time, branch]), (2, self.spec.obs_size))
