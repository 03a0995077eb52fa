"""Explorers that stage 2 has trained: put aside while others are, then gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
from jaxtyping import PyTree

from mesax.explorers.places import EXPLORERS
from mesax.explorers.recipe import ExplorerRecipe, save_explorers, saved_explorers
from mesax.methods.base import Services, Stage, keeping_last_good
from mesax.methods.harvest import load_pairs
from mesax.methods.visits import CoverageReport, Survey, configuration_grid
from mesax.policy import ExplorationPolicySet
from mesax.store.reading import ALL_EXPLORERS
from mesax.store.trees import load_tree, open_tree, save_tree
from mesax.training.driver import Chunk
from mesax.types import leading_size, tree_index, tree_stack

COVERAGE = "coverage"


class Trained(NamedTuple):
    """An explorer and what it visits."""

    policy: PyTree
    report: CoverageReport
    peak: float = 0.0
    """For a choice among the explorers of one training: the best figure so far."""

    @staticmethod
    def like(recipe: ExplorerRecipe) -> Trained:
        """Shapes of one."""
        policy = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), recipe.shape(1))
        return Trained(policy, CoverageReport.blank(recipe.num_clusters))


@dataclass
class ExplorerJob:
    """A job of stage 2, which trains explorers one after another, and where it is if it was stopped."""

    services: Services
    recipe: ExplorerRecipe
    anew: bool
    """Whether it begins, instead of going on."""
    finished: int
    """Explorers that are done."""
    steps: int
    """Environment steps that were taken for them."""
    best: Trained | None
    """What the next one goes on from."""
    done: list[Trained] = field(default_factory=list)
    """Explorers so far."""
    taken: int = 0
    """Environment steps of the one that is being trained."""

    @staticmethod
    def of(services: Services, recipe: ExplorerRecipe) -> ExplorerJob:
        """A job at its start, or where it was stopped."""
        kept = services.kept(lambda: {"done": 0, "steps": 0, "best": Trained.like(recipe)})
        if kept is None:
            return ExplorerJob(services, recipe, True, 0, 0, None)
        return ExplorerJob(services, recipe, False, int(kept["done"]), int(kept["steps"]), kept["best"])

    def explorer(self, number: int, train: Callable[[], Trained]) -> Trained:
        """The next explorer: trained now, or before the job was stopped; it is written once and never changes."""
        place = f"explorer-{number:02d}"
        if len(self.done) < self.finished:
            trained: Trained = load_tree(self.services.scratch / place, Trained.like(self.recipe))
        else:
            with keeping_last_good(self.services):
                trained = train()
            self.services.put_aside(place, trained, {})
        self.done.append(trained)
        return trained

    def advanced(self, number: int, chunk: Chunk, report: CoverageReport, best: Trained, steps: int) -> None:
        """A chunk of an explorer's training is over, after so many environment steps of it."""
        self.services.keep({"done": len(self.done), "steps": self.steps, "best": best})
        self.best, self.taken = best, steps
        names = {"learnt_return": "intrinsic_return"}
        figures = {names.get(name, name): float(value[0]) for name, value in chunk.metrics.items()}
        row = {"phase": "explore", "policy": number, "step": steps}
        self.services.rows("metrics", [row | figures | report.row()])
        if chunk.compile_seconds:
            self.services.compiled(chunk.compile_seconds)
        self.services.report(self.steps + steps, f"explorer {number + 1}: {report.note()}")

    def covered(self, number: int, share: float) -> None:
        """An explorer is done, and with those before it covers this share of what is to be visited."""
        if len(self.done) > self.finished:
            row = {"phase": "explore", "policy": number, "step": self.taken, "union_coverage": share}
            self.services.rows("metrics", [row | self.done[-1].report.row()])
            self.steps, self.best, self.taken = self.steps + self.taken, None, 0

    def save(self, state: PyTree, check: object) -> None:
        """Save all explorers, the state that the job ends with, and how the map was checked."""
        policies = [trained.policy for trained in self.done]
        save_explorers(self.recipe, policies, self.services.directory / EXPLORERS)
        facts = {"num_explorers": len(policies), "leaks": check}
        save_tree(self.services.directory / COVERAGE, state, facts)


def gather_stage(survey: Survey, recipe: ExplorerRecipe) -> Stage:
    """All explorers together, and what they visit on the unseen tasks; the survey's state and R* are not known yet."""
    return Stage("gather", (0,), lambda _, services: _gather(survey, recipe, services), products=(EXPLORERS,))


def _gather(survey: Survey, recipe: ExplorerRecipe, services: Services) -> None:
    pairs, known = load_pairs(services.outputs("collect")), open_tree(services.outputs("explore")[0] / COVERAGE)
    policies = []
    for directory in services.outputs("explore"):
        # With NumPy, or every shape of a weight would have programs that take explorers apart and stack them.
        trained = jax.device_get(saved_explorers(recipe, directory / EXPLORERS).policies)
        policies += [tree_index(trained, index) for index in range(leading_size(trained))]
    save_explorers(recipe, policies, services.directory / EXPLORERS)
    visitors = {f"explorer {index}": recipe.deployed(policy) for index, policy in enumerate(policies, start=1)}
    visitors[ALL_EXPLORERS] = recipe.deployed(ExplorationPolicySet(tree_stack(policies)))
    state, family = known.restore(jax.eval_shape(recipe.empty_coverage)), survey.experiment.family
    survey = replace(survey, state=state, high_reward=pairs.high_reward(family))
    found = survey.document(visitors) | {"dataset": configuration_grid(family, pairs.configurations)}
    services.document("coverage", found | {"leaks": known.facts["leaks"]})
