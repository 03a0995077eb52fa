"""MAPPO on top of a frozen exploration policy (C-BET's transfer, Parisi et al. 2021).

    logits (or means) = f_explore(o) + f_task(o)      f_explore was learned before and stays as it is
    values            = of the task alone

At the start f_task is close to zero, so the team explores as it has learned to; the task's reward then bends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax
from jaxtyping import Array, Float

from mesax.algorithms.base import Learner
from mesax.algorithms.mappo import Mappo, MappoState
from mesax.algorithms.normalized import Normalized, NormalizedState
from mesax.errors import UsageError
from mesax.nets import Memory, Net, StepByStep, Trainable
from mesax.policy import Policy
from mesax.types import Elapsed, EnvSpec, Episode, Key, Metrics


class GuidedTeam(StepByStep[Array]):
    """Two teams whose outputs are added; the guide receives no gradient, and each has memories of its own."""

    guide: Net[Array]
    task: Net[Array]

    def start(self) -> Memory:
        """Memories of both."""
        return self.guide.start(), self.task.start()

    def step(self, memory: Memory, x: Float[Array, "agents inputs"]) -> tuple[Memory, Float[Array, "agents outputs"]]:
        """The sum of both."""
        guide, guided = jax.lax.stop_gradient(self.guide).step(memory[0], x)
        task, own = self.task.step(memory[1], x)
        return (guide, task), guided + own

    def along_batch(
        self, start: Memory, xs: Float[Array, "batch time agents inputs"]
    ) -> tuple[Memory, Float[Array, "batch time agents outputs"]]:
        """Each in its own quickest way."""
        guide, guided = jax.lax.stop_gradient(self.guide).along_batch(start[0], xs)
        task, own = self.task.along_batch(start[1], xs)
        return (guide, task), guided + own


@dataclass(frozen=True)
class Guided:
    """MAPPO whose actors are added to those of a guide."""

    algorithm: Learner
    """The learner, which is MAPPO so far."""

    @property
    def needs_replay(self) -> bool:
        """As the learner does."""
        return self.algorithm.needs_replay

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """As the learner does, which must be MAPPO."""
        self.mappo.check(spec, num_envs)

    @property
    def mappo(self) -> Mappo:
        """The learner, if it is one that can be guided."""
        if not isinstance(self.algorithm, Mappo):
            raise UsageError(
                "method 'cbet' adds logits to those of MAPPO's actors, not to those of"
                f" {type(self.algorithm).__name__}: its learner is mappo or mappo-rnd"
            )
        return self.algorithm

    def init(self, spec: EnvSpec, key: Key) -> MappoState:
        """Fresh nets, and a guide that is another fresh net until `guided_by` gives a better one."""
        mappo = self.mappo
        return _with_guide(mappo, mappo.init(spec, key), mappo.init(spec, jax.random.fold_in(key, 1)))

    def behavior(self, spec: EnvSpec, state: MappoState, elapsed: Elapsed) -> Policy:
        """The learner's own."""
        return self.algorithm.behavior(spec, state, elapsed)

    def greedy(self, spec: EnvSpec, state: MappoState) -> Policy:
        """The learner's own."""
        return self.algorithm.greedy(spec, state)

    def variants(self, spec: EnvSpec, state: MappoState) -> Policy | None:
        """The learner's own."""
        return self.algorithm.variants(spec, state)

    def latent(self, spec: EnvSpec, key: Key) -> Float[Array, " latent"]:
        """The learner's own."""
        return self.algorithm.latent(spec, key)

    def observe(self, spec: EnvSpec, state: MappoState, fresh: Episode) -> MappoState:
        """The learner's own."""
        return self.algorithm.observe(spec, state, fresh)

    def update(
        self, spec: EnvSpec, state: MappoState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[MappoState, Metrics]:
        """The learner's own: no gradient reaches the guide, and Adam does not move what has none."""
        return self.algorithm.update(spec, state, batch, elapsed, key)


def _with_guide(algorithm: Mappo, own: MappoState, guide: MappoState) -> MappoState:
    """`own` with the actors of `guide` beneath its own."""
    team = GuidedTeam(guide.actors.net.team, own.actors.net.team)
    actors = eqx.tree_at(lambda actors: actors.team, own.actors.net, team)
    return replace(own, actors=Trainable.create(actors, algorithm.optimizer))


def guided(learner: Learner) -> Guided | Normalized:
    """The learner with a guide beneath its actors."""
    if isinstance(learner, Normalized):
        return replace(learner, algorithm=guided(learner.algorithm))
    return Guided(learner)


def unguided(learner: Learner) -> Learner:
    """The learner without its guide: who learns to be one.

    It is paid by counts, not by the task: how small an advantage is noise cannot be said beforehand.
    """
    if isinstance(learner, Normalized):
        return replace(learner, algorithm=unguided(learner.algorithm))
    if not isinstance(learner, Guided):
        raise UsageError(f"a guide can be learned for a guided learner only, not for {type(learner).__name__}")
    return replace(learner.mappo, least_deviation=0.0)


def guided_by(learner: Learner, spec: EnvSpec, explored: MappoState | NormalizedState, key: Key) -> object:
    """A fresh state of `learner` on top of what `unguided(learner)` has learned; it sees in the scales of its guide."""
    if isinstance(learner, Normalized):
        assert isinstance(explored, NormalizedState)
        return NormalizedState(guided_by(learner.algorithm, spec, explored.learner, key), explored.moments.held())
    assert isinstance(learner, Guided) and isinstance(explored, MappoState)
    mappo = learner.mappo
    return _with_guide(mappo, mappo.init(spec, key), explored)
