"""MESA without a feature map: what explorers are paid for is learned from stage 1 (an extension of ours).

    collect   as published; all paid steps are kept, and some of the others
    fit       a model of what pays, fitted to them                            (`mesax.ours.learned_reward`)
              the same without some of the layouts, judged there: does it know what pays where it has never been?
    explore   as ever, paid for records of the model's own nearness           (`mesax.ours.learned_records`)
    adapt     as published

What a user declares is which numbers of an observation are about which entity. Training tasks should share layouts:
in a layout with one known target, "the target" and "this place" cannot be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mesax.algorithms.base import Learner
from mesax.envs.structure import layouts_of
from mesax.errors import TrainingError, UsageError
from mesax.mesa.collect import Collection
from mesax.mesa.method import Mesa
from mesax.methods.base import Experiment, Purpose, Services, Stage
from mesax.methods.harvest import Pairs, load_pairs
from mesax.methods.preset import Preset
from mesax.nets import Entities
from mesax.ours.entities import DeclaredEntities
from mesax.ours.learned_records import LearnedRecords, LearnedState
from mesax.ours.learned_reward import (
    HIGH,
    LESS,
    UNPAID,
    HeldOut,
    PaidSteps,
    PayModel,
    RewardFit,
    logits_of,
)
from mesax.ours.records import RecordReward
from mesax.ours.reward_fit import FitState, Fitting
from mesax.ours.steady import SteadyMesa
from mesax.ours.verdict import overall, verdict, will_help
from mesax.ranges import at_least
from mesax.rewards.levels import Levels
from mesax.rewards.subspace import CoverageState
from mesax.store.trees import Place, load_tree, open_tree, save_tree, trees_in
from mesax.types import Episode

REFERENCE = 0.1
"""This share of the high steps is farther than "as near as can be"."""
FITTED, STEPS = "model", "steps"


@dataclass(frozen=True)
class LearnedMesa(SteadyMesa):
    """Meta-learned exploration, paid for what a model has learned to pay."""

    reward: LearnedRecords = LearnedRecords()
    """What explorers are paid for: which numbers of an observation belong to which entity is declared in it."""
    fit: RewardFit = RewardFit()
    """How the model of what pays is fitted to stage 1."""
    unpaid_steps: int = 20_000
    """Steps without pay that are kept of each training task, at most; all that paid are."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot explore."""
        super().__post_init__()
        at_least(self, 1, "unpaid_steps")

    def check(self, experiment: Experiment) -> None:
        """Entities must fit the observation, and layouts must be there to be left out."""
        spec = experiment.family.env.spec
        entities = self.reward.declared(spec)
        entities.check(spec)
        if not self.reward.capacity == self.reward.num_clusters == entities.number:
            raise UsageError(
                f"capacity {self.reward.capacity} and num-clusters {self.reward.num_clusters} must be the number of"
                f" declared entities, {entities.number}: --method.reward.capacity {entities.number}"
                f" --method.reward.num-clusters {entities.number}"
            )
        _check_layouts(experiment)
        super().check(experiment)

    def collection(self, experiment: Experiment) -> Collection:
        """Stage 1, which keeps steps for the fit."""
        keep = _KeepSteps(self.reward.declared(experiment.family.env.spec), experiment.seed, self.unpaid_steps)
        return replace(super().collection(experiment), also=keep)

    def collect_stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Stage 1, and the fit to what it found."""
        fit = Stage("fit", (0,), lambda _, services: self._fit(experiment, services))
        return *super().collect_stages(experiment), fit

    def high_reward_set(self, experiment: Experiment, pairs: Pairs, services: Services) -> CoverageState:
        """Entities as clusters, with the fitted model."""
        del pairs
        like = jax.eval_shape(self.recipe(experiment.family.env.spec).empty_coverage)
        state: LearnedState = load_tree(services.outputs("fit")[0] / FITTED, like)
        return state

    def _fit(self, experiment: Experiment, services: Services) -> None:
        """The model, what it believes, and how well it tells paying steps on layouts that were left out."""
        pairs = load_pairs(services.outputs("collect"))
        if not len(pairs.features):
            raise TrainingError(self.threshold.nothing_found(pairs.collected))
        spec, steps = experiment.family.env.spec, load_steps(services.outputs("collect"), experiment.num_train_tasks)
        fitting = Fitting(self.fit, steps, layouts_of(experiment.family, steps.num_tasks), self._fresh(experiment))
        done = fitting.finished(services, experiment.key(Purpose.FIT))
        of_task = np.sum(done.weights[steps.task] * logits_of(done.model, steps.seen, "full"), axis=1)[
            steps.kind == HIGH
        ]
        counting = np.any(done.weights[np.unique(steps.task[steps.kind == HIGH])] > 0, axis=0)
        reference = float(np.quantile(of_task, REFERENCE))
        state = self.reward.state_of(spec, done.model, reference, counting)
        save_tree(services.directory / FITTED, state, {"reference": reference})
        together = overall(done.held_out)
        words = verdict(together, fitting.shared, self.reward.declared(spec).is_declared(spec))
        services.rows("metrics", _belief_rows(done.weights, steps, fitting.layouts))
        services.rows("metrics", [_verdict_row(done, together, steps, words)])
        services.report(0, words)

    def _fresh(self, experiment: Experiment) -> PayModel:
        entities = self.reward.declared(experiment.family.env.spec)
        return PayModel.create(entities.places.size, self.reward.hidden, experiment.key(Purpose.FIT, 0))


def _check_layouts(experiment: Experiment) -> None:
    """At least two layouts: the model is judged on those that it has not seen."""
    number = experiment.num_train_tasks
    layouts = len(np.unique(layouts_of(experiment.family, number)))
    if layouts < 2:
        raise UsageError(
            f"the reward model is judged on layouts that it has not seen, and {number} training"
            f" {'task is' if number == 1 else 'tasks are'} on a single one: raise --num-train-tasks"
        )


@dataclass(frozen=True)
class _KeepSteps:
    """All paid steps of a training task as its entities are seen, and some of the others."""

    entities: DeclaredEntities
    seed: int
    unpaid: int

    def __call__(self, task: int, episodes: Episode, levels: Levels, services: Services) -> None:
        """Drawn by seed and task, so that it does not matter who collects."""
        happened = np.asarray(episodes.mask)
        reward, seen = np.asarray(episodes.reward)[happened], np.asarray(episodes.obs)[:, 1:][happened]
        kind = np.where(reward >= levels.high, HIGH, np.where(reward > levels.usual, LESS, UNPAID))
        paid, unpaid = np.flatnonzero(kind != UNPAID), np.flatnonzero(kind == UNPAID)
        draw = np.random.default_rng((self.seed, 0xF17, task)).permutation(len(unpaid))[: self.unpaid]
        kept = np.concatenate([paid, unpaid[np.sort(draw)]])
        weight = np.where(kind[kept] == UNPAID, len(unpaid) / max(len(draw), 1), 1.0)
        parts = {"seen": np.asarray(self.entities.seen(seen[kept])), "kind": kind[kept], "weight": weight}
        arrays = {"seen": np.float32, "kind": np.int32, "weight": np.float32}
        facts = {"task": task, "shape": list(parts["seen"].shape)}
        tree = {name: parts[name].astype(kind) for name, kind in arrays.items()}
        save_tree(services.directory / f"{STEPS}-{task:02d}", tree, facts)


def load_steps(directories: list[Place], num_tasks: int) -> PaidSteps:
    """What stage 1 kept of all training tasks."""
    parts, tasks = [], []
    for directory in directories:
        for saved in map(open_tree, trees_in(directory, f"{STEPS}-*")):
            facts = saved.facts
            shape = tuple(facts["shape"])
            like = {
                "seen": jax.ShapeDtypeStruct(shape, jnp.float32),
                "kind": jax.ShapeDtypeStruct(shape[:1], jnp.int32),
                "weight": jax.ShapeDtypeStruct(shape[:1], jnp.float32),
            }
            parts.append(saved.restore(like))
            tasks.append(np.full(shape[0], facts["task"]))
    joined = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in ("seen", "kind", "weight")}
    return PaidSteps.gathered(joined["seen"], joined["kind"], np.concatenate(tasks), joined["weight"], num_tasks)


def _belief_rows(weights: np.ndarray, steps: PaidSteps, layouts: np.ndarray) -> list[dict[str, object]]:
    """Which entity counts in each training task, as the model believes."""
    high = np.bincount(steps.task[steps.kind == HIGH], minlength=steps.num_tasks)
    return [
        {
            "phase": "assignment",
            "step": 0,
            "task": task,
            "layout": int(layouts[task]),
            "entity": int(np.argmax(row)),
            "high_steps": int(high[task]),
        }
        for task, row in enumerate(weights)
    ]


def _verdict_row(done: FitState, together: HeldOut | None, steps: PaidSteps, words: str) -> dict[str, object]:
    """What is said before stage 2; figures are None where nothing could be judged."""
    numbers = dict(zip(("high", "less", "unpaid"), map(int, steps.number), strict=True))
    return {
        "phase": "verdict",
        "step": 0,
        "verdict": words,
        "helps": will_help(together),
        "entities": int(done.weights.shape[1]),
        "anchor_loss": float(done.anchor_loss),
        "loss": float(done.loss),
        **{f"{name}_steps": number for name, number in numbers.items()},
        **{f"held_out_{name}": value for name, value in (dict.fromkeys(HELD_OUT) | _numbers(together)).items()},
    }


HELD_OUT = ("high_steps", "precision_at_recall_90", "log_likelihood", "log_likelihood_by_chance")


def _numbers(found: HeldOut | None) -> dict[str, float]:
    return {} if found is None else found.row()


def learned(preset: Preset) -> Experiment:
    """MESA with a learned reward, in all else as a preset has MESA; explorers' nets see the declared entities."""
    if isinstance(preset.mesa.method, LearnedMesa):
        return preset.mesa
    told = preset.told or preset.mesa
    assert isinstance(told.method, Mesa), "it is one of MESA"
    return replace(told, method=learned_from(told.method, told))


def learned_from(published: Mesa, experiment: Experiment) -> LearnedMesa:
    """The settings of MESA that stay, around a learned reward."""
    env = experiment.family.env
    entities = DeclaredEntities.of(env, env.spec)
    like = published.reward
    reward = LearnedRecords(wish_decay=0.5, stay=like.stay if isinstance(like, RecordReward) else 0.8).for_world(
        entities
    )
    net = entities.net(env.spec)
    kept = {field.name: getattr(published, field.name) for field in fields(published)}
    kept["reward"] = reward
    if entities.is_declared(env.spec):
        kept["explorer"] = with_nets(published.explorer, net)
    return LearnedMesa(**kept)


def with_nets(explorer: Learner, net: Entities) -> Learner:
    """A learner of explorers whose nets, if it has any to choose, are over entities."""
    settings: Any = explorer
    names = {field.name for field in fields(settings)} & {"actor_net", "critic_net"}
    changed: Learner = replace(settings, **dict.fromkeys(names, net))
    return changed
