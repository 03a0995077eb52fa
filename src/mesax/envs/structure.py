"""What a world may say about itself beyond its sizes: how observations are made of agents, its symmetries, its rewards.

Explorers use the first to play in a world with more agents than they know, the second to play it turned; the ablation
uses the third to label what was played in other tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from mesax.types import Transition


@dataclass(frozen=True)
class TeamView:
    """An observation is `own` numbers, then offsets to places, then offsets to every other agent by number."""

    own: int
    num_places: int
    dimensions: int = 2

    @property
    def _common(self) -> int:
        return self.own + self.num_places * self.dimensions

    def size(self, num_agents: int) -> int:
        """Length of the observation of an agent among so many."""
        return self._common + self.dimensions * (num_agents - 1)

    def places(self, obs: Float[Array, " obs"]) -> Float[Array, "places dimensions"]:
        """Offsets to all places, as one agent sees them."""
        return obs[self.own : self._common].reshape(self.num_places, self.dimensions)

    def of_team(self, obs: Float[Array, "agents obs"], members: Int[Array, " team"]) -> Float[Array, "team less"]:
        """What the members see of the world and of each other; they are renumbered in this order."""
        number, size = obs.shape[0], members.shape[0]
        others = obs[:, self._common :].reshape(number, number - 1, self.dimensions)
        # Whom the entries of an agent are about: everyone but itself. About itself there is nothing to be seen.
        column = np.arange(number)[None] - (np.arange(number)[None] > np.arange(number)[:, None])
        about = jnp.take_along_axis(others, jnp.asarray(np.minimum(column, number - 2))[..., None], axis=1)
        about = about[members][:, members]
        seen = about[~np.eye(size, dtype=bool)].reshape(size, (size - 1) * self.dimensions)
        return jnp.concatenate([obs[members, : self._common], seen], axis=1)

    def with_partners(
        self, obs: Float[Array, " obs"], size: int, offset: Float[Array, " dimensions"]
    ) -> Float[Array, "team less"]:
        """What an agent and its partners would see if it had partners, all at an offset from it and at rest."""
        places = self.places(obs)
        own = [obs[: self.own], places.reshape(-1), *[offset] * (size - 1)]
        still = [
            jnp.zeros(self.own),
            (places - offset[None]).reshape(-1),
            -offset,
            *[jnp.zeros(self.dimensions)] * (size - 2),
        ]
        return jnp.stack([jnp.concatenate(own)] + [jnp.concatenate(still)] * (size - 1))


class Symmetries(NamedTuple):
    """Ways to turn a world that leave it the same game, as data."""

    obs: np.ndarray
    """What an agent sees in the turned world, as a linear map of what it sees, `[symmetries, obs, obs]`."""
    actions: np.ndarray
    """The action of the world itself that an action in the turned world means, `[symmetries, actions]`."""


@runtime_checkable
class HasTeamView(Protocol):
    """A world whose observations are made of agents."""

    @property
    def team_view(self) -> TeamView:
        """How."""


@runtime_checkable
class HasSymmetries(Protocol):
    """A world with discrete actions that can be turned."""

    @property
    def symmetries(self) -> Symmetries:
        """How."""


@runtime_checkable
class TellsRewards(Protocol):
    """A world that can tell what a task would pay for a step that was made in another."""

    def would_pay(self, task: PyTree, transition: Transition) -> Float[Array, ""]:
        """The task's reward of any step."""


@runtime_checkable
class SharesLayouts(Protocol):
    """A family whose training tasks share layouts: what pays differs among them, and nothing else."""

    @property
    def tasks_per_layout(self) -> int:
        """Training tasks, one after another, that take place on one layout."""


def layouts_of(family: object, num_tasks: int) -> np.ndarray:
    """The number of each training task's layout; one of its own if the family says nothing."""
    each = family.tasks_per_layout if isinstance(family, SharesLayouts) else 1
    return np.arange(num_tasks) // each
