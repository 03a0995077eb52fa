"""MESA whose explorers share randomness and know relations: for games of joint choice (an extension of ours).

    collect   as published: what paid on each training task is M_*
    explore   choose the relation that best predicts a training task's M_* from the others; fit one explorer, whose
              agents share a latent, to the density p* that M_* has under it    (`mesax.ours.relations`)
    adapt     as published, with that explorer

Published explorers match joint actions themselves, and those of an unseen task are none that ever paid. Relations
between actions carry over; independent agents cannot play them, agents that share a latent can.

Deviation(structured-explorers): relations, the density reward and the shared latent are not in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.envs.base import TaskFamily, step_configurations
from mesax.errors import TrainingError, UsageError
from mesax.explorers.places import EXPLORERS
from mesax.explorers.recipe import save_explorers
from mesax.mesa.collect import Collection, Threshold
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_with_explorers, check_adapt
from mesax.methods.base import Chunked, Experiment, Purpose, Services, Stage, in_chunks, kept_or_begun
from mesax.methods.harvest import Pairs, load_pairs
from mesax.methods.preset import Preset
from mesax.methods.visits import configuration_grid, pictured, unseen_visits
from mesax.nets import Trainable
from mesax.ours.relations import (
    RELATIONS,
    Members,
    RelationDensity,
    RelationName,
    best_relation,
    check_relations,
    held_out_scores,
    relation_density,
)
from mesax.ours.shared_latent import SharedLatent, SharedLatentPolicy, SharedLatentRecipe
from mesax.ranges import at_least
from mesax.rewards.levels import HighReward
from mesax.training.schedule import Schedule
from mesax.types import EnvSpec, Episode, Key, Metrics

CHUNKS = 10
"""Moments at which a fit is reported, and can be saved and stopped."""


@dataclass(frozen=True)
class StructuredMesa:
    """Meta-learned exploration with shared randomness and relations."""

    explorer: SharedLatent = SharedLatent()
    """Tables that a shared latent picks from, and how they are fitted."""
    relations: tuple[RelationName, ...] = ("equality", "counts", "identities", "equality-by-step", "identities-by-step")
    """Candidates; the one that best predicts a training task from the others is taken, the first of equals."""
    smoothing: float = 0.01
    """Share of uniform play in p*."""
    collect: Schedule = Schedule(total_steps=30_000)
    """Stage 1, per training task."""
    threshold: HighReward = Threshold()
    """R*: which rewards are high."""
    coverage_steps: int = 40_000
    """Steps behind each figure of what the explorer visits, in whole episodes."""
    mixing: Mixing = Mixing()
    """p_e on the test tasks."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot explore."""
        if not self.relations:
            raise UsageError(f"relations must not be empty; choose some of {', '.join(RELATIONS)}")
        if not 0.0 < self.smoothing < 1.0:
            raise UsageError(f"smoothing must lie strictly between 0 and 1, not {self.smoothing}")
        at_least(self, 1, "coverage_steps")

    def check(self, experiment: Experiment) -> None:
        """Continuous actions and single tasks have no relations; nets and schedules must fit."""
        check_relations(experiment.family.env.spec, experiment.num_train_tasks)
        check_adapt(experiment, self.mixing)
        self.stages(experiment)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Collect, explore, adapt."""
        recipe = self.recipe(experiment.family.env.spec)
        # Only what paid itself has a relation to go for: nothing is relabeled.
        seen = _StepsAndActions(experiment.family)
        return (
            Collection(experiment, self.collect, self.threshold, seen).stage,
            # Its length is that of the fit: no environment is played.
            Stage("explore", (0,), lambda _, services: self._explore(experiment, services), products=(EXPLORERS,)),
            adapt_with_explorers(experiment, self.mixing, recipe, 1, stage="explore"),
        )

    def recipe(self, spec: EnvSpec) -> SharedLatentRecipe:
        """How the explorer's tables are put to use in an environment of these sizes."""
        return SharedLatentRecipe(spec, self.explorer)

    def _explore(self, experiment: Experiment, services: Services) -> None:
        """Stage 2: choose a relation, fit the explorer, see what it visits."""
        spec = experiment.family.env.spec
        pairs = load_pairs(services.outputs("collect"))
        members = self._members(pairs)
        scores = held_out_scores(self.relations, members, spec, self.smoothing)
        chosen = best_relation(scores)
        density = relation_density(RELATIONS[chosen], members, spec, self.smoothing)
        policy = self._fit(experiment, density, chosen, scores, services)
        save_explorers(self.recipe(spec), [policy], services.directory / EXPLORERS)
        high_reward = pairs.high_reward(experiment.family)
        episodes = max(1, self.coverage_steps // spec.horizon)
        visits = unseen_visits(experiment, {"explorer 1": policy}, high_reward, episodes)
        document = pictured(experiment.family, [entry for entry, _ in visits])
        document |= {"dataset_size": len(members.task)}
        document |= {"dataset": configuration_grid(experiment.family, pairs.configurations)}
        services.document("coverage", document | {"relation": chosen, "relations": scores})

    def _members(self, pairs: Pairs) -> Members:
        """M_* as steps and joint actions; at least two tasks must have paid."""
        if not len(pairs.features):
            raise TrainingError(self.threshold.nothing_found(pairs.collected))
        found = pairs.features.astype(int)
        members = Members(pairs.task, found[:, 0], found[:, 1:])
        if members.num_tasks < 2:
            raise TrainingError(
                "stage 1 found high rewards on 1 training task, and relations are chosen by predicting one from the"
                f" others: collect more (method.collect.total-steps is {self.collect.total_steps})"
            )
        return members

    def _fit(
        self,
        experiment: Experiment,
        density: RelationDensity,
        chosen: RelationName,
        scores: dict[RelationName, float],
        services: Services,
    ) -> SharedLatentPolicy:
        """The explorer, chunk by chunk."""
        spec, key = experiment.family.env.spec, experiment.key(Purpose.EXPLORE, 0)

        def begin() -> Trainable[SharedLatentPolicy]:
            row = {"phase": "relations", "step": 0, "relation": chosen}
            services.rows("metrics", [row | {f"held_out_{name}": score for name, score in scores.items()}])
            fresh: Trainable[SharedLatentPolicy] = compiled(_Begin(self.explorer, spec))(key)
            return fresh

        total = self.explorer.num_updates
        cut = Chunked("the fit of the explorer", total, size=-(-total // CHUNKS))
        last = start = kept_or_begun(services, self.recipe(spec).like, begin)
        for last in in_chunks(
            services,
            cut,
            start,
            lambda state, done, number: compiled(_Fit(self.explorer, number))(state, density, key, np.int32(done)),
        ):
            services.rows("metrics", [{"phase": "explore", "policy": 0, "step": last.done} | last.figures])
            services.report(0, f"relation {chosen}: {last.figures['density_return']:.2f} nats from p*")
        return last.state.net


@dataclass(frozen=True)
class _Begin:
    explorer: SharedLatent
    spec: EnvSpec

    def __call__(self, key: Key) -> Trainable[SharedLatentPolicy]:
        return self.explorer.begin(self.spec, key)


@dataclass(frozen=True)
class _Fit:
    """A chunk of updates; update number i draws from `fold_in(key, i)`, however they are cut into chunks."""

    explorer: SharedLatent
    number: int

    def __call__(
        self, state: Trainable[SharedLatentPolicy], density: RelationDensity, key: Key, first: Int[Array, ""]
    ) -> tuple[Trainable[SharedLatentPolicy], Metrics]:
        def update(
            state: Trainable[SharedLatentPolicy], index: Int[Array, ""]
        ) -> tuple[Trainable[SharedLatentPolicy], Metrics]:
            return self.explorer.update(state, density, jax.random.fold_in(key, index))

        state, metrics = jax.lax.scan(update, state, first + jnp.arange(self.number))
        return state, jax.tree.map(jnp.mean, metrics)


@dataclass(frozen=True)
class _StepsAndActions:
    """What relations are about: the step of an episode and the joint action."""

    family: TaskFamily

    def __call__(self, episodes: Episode) -> tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]:
        step = jnp.broadcast_to(jnp.arange(episodes.reward.shape[1])[None], episodes.reward.shape)
        features = jnp.concatenate([step[..., None], episodes.action], axis=-1).astype(jnp.float32)
        return features, step_configurations(self.family, episodes)


def structured(preset: Preset) -> Experiment:
    """MESA with structured explorers, in all else as a preset has MESA."""
    published = preset.method
    method = StructuredMesa(collect=published.collect, threshold=published.threshold, mixing=published.mixing)
    return replace(preset.mesa, method=method)
