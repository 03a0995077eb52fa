"""The loop of meta-training: on every training task play, adapt, and play again; then learn from all tasks together.

Round r draws its randomness from `fold_in(key, r)`, so how a run is cut into chunks cannot change it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from mesax.baselines.maesn.learner import Adaptable, Batch, LatentPolicyGradient, Latents, MetaParameters
from mesax.envs.base import Environment
from mesax.nets import Trainable
from mesax.ranges import at_least
from mesax.training.rollout import play
from mesax.types import Key, Keys, Metrics, as_one, leading_size


@dataclass(frozen=True)
class MetaPlan:
    """Environment steps of meta-training, cut into equal rounds and chunks."""

    num_chunks: int
    rounds: int
    """Rounds of a chunk."""
    episodes: int
    """Episodes of each task in a round, before adaptation and again after it."""
    round_steps: int

    @staticmethod
    def of(steps: int, num_tasks: int, episodes: int, horizon: int, num_chunks: int) -> MetaPlan:
        """About `episodes` episodes, and a number of rounds that comes close to `steps` in all."""
        of_episode = 2 * num_tasks * horizon
        rounds = max(1, round(steps / (of_episode * episodes)))
        chunks = min(num_chunks, rounds)
        length = max(1, round(rounds / chunks))
        fitting = max(2, round(steps / (of_episode * chunks * length)))
        return MetaPlan(chunks, length, fitting, of_episode * fitting)

    @property
    def chunk_steps(self) -> int:
        """Environment steps of a chunk."""
        return self.rounds * self.round_steps

    @property
    def steps(self) -> int:
        """Environment steps in all."""
        return self.num_chunks * self.chunk_steps


@dataclass(frozen=True)
class MetaBegin:
    """Parameters before the first round."""

    env: Environment
    algorithm: LatentPolicyGradient
    num_tasks: int

    def __call__(self, key: Key) -> Trainable[MetaParameters]:
        """Fresh ones."""
        return self.algorithm.meta_init(self.env.spec, self.num_tasks, key)


@dataclass(frozen=True)
class MetaLoop:
    """Some rounds of meta-training in one program."""

    env: Environment
    algorithm: LatentPolicyGradient
    episodes: int
    rounds: int

    def __post_init__(self) -> None:
        """Refuse what nothing can be learned from."""
        at_least(self, 2, "episodes")  # to be compared with each other

    def __call__(
        self, tasks: PyTree, state: Trainable[MetaParameters], key: Key, first: Int[Array, ""]
    ) -> tuple[Trainable[MetaParameters], Metrics]:
        """Rounds `first`, `first + 1`, ...; means of their metrics."""

        def body(state: Trainable[MetaParameters], number: Int[Array, ""]) -> tuple[Trainable[MetaParameters], Metrics]:
            return self.round(tasks, state, jax.random.fold_in(key, number))

        state, metrics = jax.lax.scan(body, state, first + jnp.arange(self.rounds))
        return state, jax.tree.map(jnp.mean, metrics)

    def round(
        self, tasks: PyTree, state: Trainable[MetaParameters], key: Key
    ) -> tuple[Trainable[MetaParameters], Metrics]:
        """All tasks once."""
        keys = jax.random.split(key, (leading_size(tasks), 2))
        before, after = jax.vmap(lambda *of_task: self._of_task(state.net, *of_task))(tasks, state.net.latents, keys)
        state, metrics = self.algorithm.meta_update(state, before, after)
        returns = {
            name: jnp.mean(jnp.sum(jnp.where(batch.episodes.mask, batch.episodes.reward, 0.0), axis=-1))
            for name, batch in (("return_before", before), ("return_after", after))
        }
        return state, returns | metrics

    def _of_task(self, parameters: MetaParameters, task: PyTree, latents: Latents, keys: Keys) -> tuple[Batch, Batch]:
        """Episodes before and after adaptation to one task."""

        def played(playing: Adaptable, key: Key) -> Batch:
            only = as_one(task)
            return self.algorithm.batch(
                playing, play(self.env, only, self.algorithm.player(playing), key, self.episodes)
            )

        playing = parameters.of_task(latents)
        before = played(playing, keys[0])
        return before, played(self.algorithm.adapted(playing, parameters.steps, before), keys[1])
