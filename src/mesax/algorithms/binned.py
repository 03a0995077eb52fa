"""Any algorithm for discrete actions on a box: every number of an action is one of a few even points.

    index <-> digits in base `bins`, one per number <-> points from -1 to 1
    policy    the algorithm's own, its index turned into points
    update    the algorithm's own, on a batch whose actions (by whomever played) are turned into the nearest index

The paper cuts each torque of the swimmer into 11 points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from mesax.algorithms.base import Learner
from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import Policy, Wrapping
from mesax.ranges import at_least
from mesax.types import Action, Box, Discrete, Elapsed, EnvSpec, Episode, Key, Metrics

MOST_ACTIONS = 1_000


@dataclass(frozen=True)
class Grid:
    """Even points of a box, numbered; the last number of an action counts fastest."""

    bins: int
    size: int

    def points(self, index: Int[Array, "*shape"]) -> Float[Array, "*shape {self.size}"]:
        """The point with this number."""
        digits = [index // self.bins**place % self.bins for place in reversed(range(self.size))]
        return 2.0 / (self.bins - 1) * jnp.stack(digits, axis=-1) - 1.0

    def index(self, action: Float[Array, "*shape {self.size}"]) -> Int[Array, "*shape"]:
        """Number of the nearest point; actions beyond the box count as at its edge."""
        digits = jnp.round((jnp.clip(action, -1.0, 1.0) + 1.0) * ((self.bins - 1) / 2.0)).astype(jnp.int32)
        return sum(digits[..., place] * self.bins ** (self.size - 1 - place) for place in range(self.size))


class BinnedPolicy(Wrapping):
    """A policy that picks numbered points of a box."""

    grid: Grid = eqx.field(static=True)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Act, then look the point up."""
        index, memory = self.policy.act(memory, obs, key)
        return self.grid.points(index), memory


@dataclass(frozen=True)
class Binned:
    """A learner for discrete actions, off-policy or on-policy, on a box."""

    algorithm: Learner
    """Who learns."""
    bins: int = 11
    """Even points from -1 to 1 for each number of an action."""

    def __post_init__(self) -> None:
        """Refuse what is no choice."""
        at_least(self, 2, "bins")

    @property
    def needs_replay(self) -> bool:
        """As the learner does."""
        return self.algorithm.needs_replay

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """As the learner does."""
        self.algorithm.check(self.inner_spec(spec), num_envs)

    def init(self, spec: EnvSpec, key: Key) -> PyTree:
        """Fresh learner for the points of the box."""
        return self.algorithm.init(self.inner_spec(spec), key)

    def behavior(self, spec: EnvSpec, state: PyTree, elapsed: Elapsed) -> Policy:
        """The learner's own, on points."""
        return BinnedPolicy(self.algorithm.behavior(self.inner_spec(spec), state, elapsed), self._grid(spec))

    def greedy(self, spec: EnvSpec, state: PyTree) -> Policy:
        """The learner's own, on points."""
        return BinnedPolicy(self.algorithm.greedy(self.inner_spec(spec), state), self._grid(spec))

    def variants(self, spec: EnvSpec, state: PyTree) -> Policy | None:
        """The learner's own, on points."""
        forms = self.algorithm.variants(self.inner_spec(spec), state)
        return None if forms is None else BinnedPolicy(forms, self._grid(spec))

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """The learner's own."""
        return self.algorithm.latent(self.inner_spec(spec), key)

    def observe(self, spec: EnvSpec, state: PyTree, fresh: Episode) -> PyTree:
        """Take note of the nearest points to what was played."""
        return self.algorithm.observe(self.inner_spec(spec), state, self._on_points(spec, fresh))

    def update(
        self, spec: EnvSpec, state: PyTree, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[PyTree, Metrics]:
        """Learn from the nearest points to what was played."""
        return self.algorithm.update(self.inner_spec(spec), state, self._on_points(spec, batch), elapsed, key)

    def _on_points(self, spec: EnvSpec, episodes: Episode) -> Episode:
        index = self._grid(spec).index(episodes.action)
        return eqx.tree_at(lambda episodes: episodes.action, episodes, index)

    def inner_spec(self, spec: EnvSpec) -> EnvSpec:
        """The environment as the learner sees it."""
        grid = self._grid(spec)
        number = grid.bins**grid.size
        if number > MOST_ACTIONS:
            raise UsageError(
                f"{grid.bins} bins for each of {grid.size} numbers are {number} actions, more than {MOST_ACTIONS}:"
                " use fewer bins"
            )
        return replace(spec, action_space=Discrete(number))

    def _grid(self, spec: EnvSpec) -> Grid:
        if not isinstance(spec.action_space, Box):
            raise UsageError("Binned cuts a box of actions, but these actions are discrete already: leave it out")
        return Grid(self.bins, spec.action_space.size)
