"""Which numbers of an observation are about which entity: read off dictionary and tuple spaces, or declared."""

from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from mesax import Block, DeclaredEntities, ForeignEnvironment
from mesax.bridges.environments.family import ForeignFamily
from mesax.policy import UniformPolicy
from mesax.suites.registry import suite_of
from mesax.training.driver import play_episodes

POINT = spaces.Box(-4, 4, (2,), np.float32)
LENGTH = 4


class Hunt(ParallelEnv):
    """Two hunters on a grid see offsets to four trees and to each other; the prey is under one of the trees."""

    metadata: ClassVar = {"name": "hunt_v0"}
    max_cycles = LENGTH

    def __init__(self, seed: int, kind: str):
        self.possible_agents, self.kind = ["left", "right"], kind
        self.trees = np.random.default_rng(seed).integers(-2, 3, (4, 2))
        self.prey = self.trees[seed % 4]

    def observation_space(self, agent):
        if self.kind == "tables":
            table = spaces.Box(-4, 4, (4, 2), np.float32)
            return spaces.Dict(clock=spaces.Discrete(3), trees=table, others=spaces.Box(-4, 4, (1, 2), np.float32))
        return spaces.Tuple((spaces.Discrete(3), spaces.Tuple((POINT,) * 4), POINT))

    def action_space(self, agent):
        return spaces.Discrete(5)

    def see(self):
        seen = {}
        for index, agent in enumerate(self.possible_agents):
            here = self.places[index]
            trees, other = (self.trees - here).astype(np.float32), (self.places[1 - index] - here).astype(np.float32)
            if self.kind == "tables":
                seen[agent] = {"clock": self.time % 3, "trees": trees, "others": other[None]}
            else:
                seen[agent] = (self.time % 3, tuple(trees), other)
        return seen

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.places = list(self.possible_agents), 0, np.array([[0, 0], [1, 0]])
        return self.see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        moves = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
        self.time += 1
        self.places = np.clip(self.places + moves[[actions[agent] for agent in self.possible_agents]], -2, 2)
        acted, over = self.agents, self.time >= LENGTH
        self.agents = [] if over else acted
        paid = float(np.all(self.places == self.prey))
        return self.see(), *(dict.fromkeys(acted, value) for value in (paid, False, over)), {a: {} for a in acted}


class Declaring(Hunt):
    """Says it itself, in two lines."""

    trees_at, other_at = Block(first=3, number=4), Block(first=11, number=1)
    entities = DeclaredEntities(trees_at, other_at)


def hunt(seed: int, kind: str = "tables") -> Hunt:
    return Hunt(seed, kind)


def declaring(seed: int) -> Hunt:
    return Declaring(seed, "tuples")


@pytest.mark.parametrize(
    ("make", "others"),
    [(hunt, Block(11, 1)), (partial(hunt, kind="tuples"), None), (declaring, Block(11, 1))],
    ids=["tables", "tuples", "declared"],
)
def test_entities_of_an_environment(make: Any, others: Block | None):
    env = ForeignEnvironment(make, LENGTH)
    found = DeclaredEntities.of(env, env.spec)
    assert found == DeclaredEntities(Block(3, 4), others) and found.is_declared(env.spec)
    found.check(env.spec)
    task = np.array([7], np.uint32)
    played = play_episodes(env, task, UniformPolicy(env.spec.action_space), jax.random.key(0), 1)
    seen = found.seen(np.asarray(played.obs[0, 0]))
    np.testing.assert_array_equal(seen[0], make(7).trees)
    np.testing.assert_array_equal(seen[1], make(7).trees - [1, 0])


def test_a_method_that_learns_what_pays_asks_the_environment():
    from mesax.experiments.catalogue import experiment

    suite = suite_of(f"{__name__}:declaring")
    entities = DeclaredEntities.of(
        suite.family(f"{__name__}:declaring").env, ForeignEnvironment(declaring, LENGTH).spec
    )
    assert experiment("learned", f"{__name__}:declaring", "smoke").method.reward.entities == entities


class Oddly(Hunt):
    """Spaces that say nothing sure of entities."""

    def observation_space(self, agent):
        table = spaces.Box(0, 1, (3, 2), np.float32)
        return {
            "flat": spaces.Box(0, 1, (6,), np.float32),
            "two tables": spaces.Dict(doors=table, keys=table),
            "apart": spaces.Dict(trees=table) if agent == "left" else spaces.Dict(a=POINT, trees=table),
            "a few names": spaces.Dict(place=POINT, speed=POINT),
        }[self.kind]


@pytest.mark.parametrize("kind", ["flat", "two tables", "apart", "a few names"])
def test_what_is_not_sure_is_not_guessed(kind: str):
    env = ForeignEnvironment(partial(Oddly, kind=kind), LENGTH)
    assert not DeclaredEntities.of(env, env.spec).is_declared(env.spec)


def test_of_two_tables_one_may_have_a_row_for_each_other_agent():
    class Three(Oddly):
        def __init__(self, seed):
            super().__init__(seed, "")
            self.possible_agents = ["a", "b", "c"]

        def observation_space(self, agent):
            return spaces.Dict(
                doors=spaces.Box(0, 1, (5, 3), np.float32), team=spaces.Dict(a=POINT, b=POINT), at=spaces.Discrete(2)
            )

    family = ForeignFamily(ForeignEnvironment(Three, LENGTH), 1.0)
    found = DeclaredEntities.of(family.env, family.env.spec)
    assert found == DeclaredEntities(Block(0, 5, 3), Block(15, 2, 2))
