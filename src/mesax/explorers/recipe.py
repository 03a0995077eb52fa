"""Exploration policies as values that outlive their training: how their weights are put to use, saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import jax
from jaxtyping import PyTree

from mesax.algorithms.base import Learner
from mesax.errors import StoreError
from mesax.policy import ExplorationPolicySet, Policy, Repeated, within_bounds
from mesax.rewards.base import ExplorersReward
from mesax.store.settings import to_plain
from mesax.store.trees import Place, SavedTree, open_tree, save_tree
from mesax.types import Elapsed, EnvSpec, Key, tree_stack

LARGEST_FILE = 2**30
MOST_EXPLORERS, MOST_AGENTS = 1024, 256
"""Limits for what may come from a stranger."""


@runtime_checkable
class Recipe(Protocol):
    """A frozen dataclass that says how explorers are built: with their weights, all that it takes to let them play."""

    @property
    def spec(self) -> EnvSpec:
        """The environment they play in."""

    def deployed(self, policy: Policy) -> Policy:
        """An explorer, or a set of them, as it plays."""

    def shape(self, number: int) -> PyTree:
        """Shapes of `number` stacked explorers."""


@runtime_checkable
class HasExplorers(Protocol):
    """A method whose finished runs have explorers of their own."""

    def recipe(self, spec: EnvSpec) -> Recipe:
        """How they are put to use in an environment of these sizes."""


@dataclass(frozen=True)
class ExplorerRecipe:
    """Sizes and settings of explorers that a learner trained: with their weights, all it takes to let them play."""

    spec: EnvSpec
    """The environment they play in."""
    algorithm: Learner
    """Who trained them; only its networks are used."""
    reward: ExplorersReward
    """What they were paid for: it may tell them what is left to visit."""
    action_repeat: int = 1
    """Steps for which they hold each action."""

    def policy(self, state: PyTree, learner: PyTree) -> Policy:
        """An explorer as it plays in the environment itself: one value, with all it has to know of M_*."""
        own = self.algorithm.behavior(self.reward.learner_spec(self.spec), learner, Elapsed.end())
        return self.reward.equip(self.spec, state, own)

    def deployed(self, policy: Policy) -> Policy:
        """An explorer, or a set of them, at the pace at which they were trained.

        Who trained them may act beyond the bounds of an action; who learns from their episodes must not be told so.
        """
        policy = within_bounds(policy, self.spec.action_space)
        return Repeated(policy, self.spec, self.action_repeat) if self.action_repeat > 1 else policy

    def empty_coverage(self) -> PyTree:
        """A state of the reward of the right shapes, with nothing in it."""
        return self.reward.empty_state(self.spec)

    @property
    def num_clusters(self) -> int:
        """Clusters that they are to visit, at most."""
        return int(jax.eval_shape(lambda: self.reward.clusters(self.empty_coverage())).size)

    def shape(self, number: int) -> PyTree:
        """Shapes of `number` stacked explorers."""
        return _shape(self, number)


@lru_cache(maxsize=16)
def _shape(recipe: ExplorerRecipe, number: int) -> PyTree:
    """Traced once: every stage that loads explorers asks for it."""

    def one(key: Key) -> Policy:
        learner = recipe.algorithm.init(recipe.reward.learner_spec(recipe.spec), key)
        return recipe.policy(recipe.empty_coverage(), learner)

    return jax.eval_shape(lambda: jax.vmap(one)(jax.random.split(jax.random.key(0), number)))


def save_explorers(recipe: Recipe, policies: list[PyTree], directory: Place) -> None:
    """Stack the policies and save them as one tree, with their recipe in plain words."""
    stacked = tree_stack(jax.device_get(policies))
    save_tree(directory, stacked, {"num_explorers": len(policies), "recipe": to_plain(recipe)})


def saved_explorers(recipe: Recipe, directory: Place) -> ExplorationPolicySet:
    """The explorers that stage 2 saved, if they fit the recipe."""
    return restore_explorers(recipe, open_tree(directory, LARGEST_FILE))


def restore_explorers(recipe: Recipe, saved: SavedTree) -> ExplorationPolicySet:
    """The explorers in a saved tree, if they fit the recipe."""
    number = saved.facts.get("num_explorers")
    if type(number) is not int or not 1 <= number <= MOST_EXPLORERS:
        raise StoreError(f"{saved.directory} holds no explorers, or more than {MOST_EXPLORERS}")
    saved.check_finite()
    if recipe.spec.num_agents > MOST_AGENTS:
        raise StoreError(f"{saved.directory} is for {recipe.spec.num_agents} agents, more than {MOST_AGENTS}")
    try:
        shape = recipe.shape(number)
    except Exception as error:  # whatever a forged description breaks, it is the description that is wrong
        reason = f"{type(error).__name__}: {error}"[:200]
        raise StoreError(f"{saved.directory} describes explorers that cannot be built ({reason})") from error
    return ExplorationPolicySet(saved.restore(shape))
