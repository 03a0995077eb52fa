"""Relations by hand: codes, how many joint actions share one, the density p*, and which relation carries over."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.ours.relations import (
    RELATIONS,
    Counts,
    Equality,
    Identities,
    Members,
    Relation,
    RelationDensity,
    best_relation,
    check_relations,
    distinct,
    held_out_scores,
    relation_density,
)
from mesax.types import Box, Discrete, EnvSpec

ACTIONS = 4
THREE = EnvSpec(3, 1, Discrete(ACTIONS), 1)
TWO = EnvSpec(2, 1, Discrete(3), 2)
ALL = np.array(list(itertools.product(range(ACTIONS), repeat=3)), np.int32)
SIZES = {
    # U; U (U - 1) for each of the three pairs; U (U - 1) (U - 2)
    Equality(): {(0, 0, 0): 4, (0, 0, 1): 12, (0, 1, 0): 12, (0, 1, 1): 12, (0, 1, 2): 24},
    Counts(): {(3, 0, 0): 4, (2, 1, 0): 36, (1, 1, 1): 24},
    Identities(): {tuple(row): 1 for row in ALL.tolist()},
}


def members(*tasks: list[tuple[int, ...]]) -> Members:
    """Each task's members as (step, action, action, ...)."""
    rows = np.array([row for task in tasks for row in task])
    return Members(np.repeat(np.arange(len(tasks)), [len(task) for task in tasks]), rows[:, 0], rows[:, 1:])


@partial(jax.jit, static_argnums=(0, 2))
def coded(relation: Relation, actions: jax.Array, num_actions: int) -> tuple[jax.Array, jax.Array]:
    """Codes of joint actions, and how many joint actions share each."""
    codes = jax.vmap(relation.code)(actions)
    return codes, jnp.exp(jax.vmap(lambda code: relation.log_size(code, num_actions))(codes))


@jax.jit
def ratio(density: RelationDensity, step: int, action: jax.Array) -> jax.Array:
    return jnp.exp(density.log_ratio(jnp.asarray(step), action))


@pytest.mark.parametrize("relation", SIZES, ids=lambda relation: type(relation).__name__)
def test_sizes_of_patterns_by_hand(relation):
    codes, sizes = coded(relation, ALL, ACTIONS)
    told = {tuple(code): float(size) for code, size in zip(codes.tolist(), sizes, strict=True)}
    assert told == pytest.approx(SIZES[relation], rel=1e-5)
    counted = {code: [tuple(one) for one in codes.tolist()].count(code) for code in told}
    assert counted == SIZES[relation]


def test_two_agents_play_the_same_or_not():
    codes, sizes = coded(Equality(), np.array([[5, 5], [5, 2]], np.int32), 100)
    assert codes.tolist() == [[0, 0], [0, 1]]
    assert [round(size) for size in sizes.tolist()] == [100, 9900]


@pytest.mark.parametrize(
    ("relation", "code"), [(Equality(), (0, 1, 0)), (Counts(), (2, 1, 0)), (Identities(), (3, 0, 3))]
)
def test_members_are_all_equally_likely(relation, code, getkey):

    @jax.jit
    def draws(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, 4000)
        drawn = jax.vmap(lambda key: relation.member(jnp.asarray(code, jnp.int32), ACTIONS, key))(keys)
        return drawn, jax.vmap(relation.code)(drawn)

    drawn, codes = draws(getkey())
    assert codes.tolist() == [list(code)] * 4000
    _, counts = np.unique(np.asarray(drawn), axis=0, return_counts=True)
    assert len(counts) == SIZES[relation][code]
    assert counts.std() < 2.5 * math.sqrt(counts.mean())


def test_more_agents_than_actions_find_groups(getkey):
    assert sorted(jax.jit(distinct, static_argnums=(1, 2))(getkey(), 5, 2).tolist()[:2]) == [0, 1]


def test_the_density_by_hand():
    """The first task pays on the diagonal, the second half on and half off it: q = 3/4 and 1/4, |rho| = 3 and 6."""
    paid = members([(0, 1, 1)], [(0, 2, 2), (1, 0, 1)])
    density = relation_density(Equality(), paid, TWO, 0.1)
    grid = np.array(list(itertools.product(range(3), repeat=2)), np.int32)
    ratios = np.array([ratio(density, 1, action) for action in grid]).reshape(3, 3)
    on, off = 9 * (0.9 * 0.75 / 3 + 0.1 / 9), 9 * (0.9 * 0.25 / 6 + 0.1 / 9)
    np.testing.assert_allclose(ratios, np.where(np.eye(3), on, off), rtol=1e-5)
    assert float(ratios.mean()) == pytest.approx(1.0)


def test_draws_have_the_density(getkey):
    density = relation_density(Equality(), members([(0, 1, 1)], [(0, 2, 2), (1, 0, 1)]), TWO, 0.1)
    draws = jax.jit(lambda key: jax.vmap(partial(density.draw, jnp.asarray(0)))(jax.random.split(key, 8000)))
    drawn = np.asarray(draws(getkey()))
    same = drawn[:, 0] == drawn[:, 1]
    assert same.mean() == pytest.approx(0.9 * 0.75 + 0.1 / 3, abs=0.02)
    assert np.bincount(drawn[same, 0], minlength=3) / same.sum() == pytest.approx(1 / 3, abs=0.03)


def test_steps_are_kept_apart_where_that_is_wanted():
    """Agents agree at the first step and differ at the second; of a third nobody knows anything."""
    spec = EnvSpec(2, 1, Discrete(3), 3)
    paid = members([(0, 1, 1), (1, 0, 1)], [(0, 2, 2), (1, 2, 1)])
    density = relation_density(RELATIONS["equality-by-step"], paid, spec, 0.1)
    agreed = np.zeros(2, np.int32)
    expected = [0.9 * 3 + 0.1, 0.1, 1.0]
    assert [float(ratio(density, step, agreed)) for step in range(3)] == pytest.approx(expected, rel=1e-5)
    scores = held_out_scores(["equality", "equality-by-step"], paid, spec, 0.1)
    assert best_relation(scores) == "equality-by-step"


NAMES = ("equality", "counts", "identities", "equality-by-step", "identities-by-step")


def test_agreement_on_unseen_actions_is_told_by_the_equality_pattern():
    """Each task pays at another (u, u, u): U^2 times as likely as by chance, where identities are lost."""
    paid = members(*[[(0, u, u, u)] for u in range(4)])
    scores = held_out_scores(NAMES, paid, THREE, 0.01)
    assert best_relation(scores) == "equality"
    assert scores["equality"] == pytest.approx(math.log(0.99 * ACTIONS**2 + 0.01), rel=1e-5)
    assert scores["identities"] == pytest.approx(math.log(0.01), rel=1e-5)


def test_other_structure_chooses_other_relations():
    """Any two of three agents must agree; or it is always the same joint action that pays."""
    pairs = members([(0, 1, 1, 0)], [(0, 2, 0, 2)], [(0, 0, 3, 3)])
    assert best_relation(held_out_scores(NAMES, pairs, THREE, 0.01)) == "counts"
    same = members(*[[(0, 1, 2, 3)]] * 3)
    assert best_relation(held_out_scores(NAMES, same, THREE, 0.01)) == "identities"


def test_every_task_counts_once():
    """Forty members of one task do not outvote the two others."""
    many = [(0, a, b, c) for a, b, c in ALL.tolist() if len({a, b, c}) > 1][:40]
    density = relation_density(Equality(), members(many, [(0, 1, 1, 1)], [(0, 2, 2, 2)]), THREE, 0.01)
    assert float(ratio(density, 0, np.full(3, 3, np.int32))) == pytest.approx(
        0.99 * (2 / 3) * ACTIONS**2 + 0.01, rel=1e-5
    )


@pytest.mark.parametrize(
    ("spec", "tasks", "words"),
    [
        (EnvSpec(2, 1, Box(3), 1), 5, ["discrete", "a box (size 3)"]),
        (THREE, 1, ["num-train-tasks", "at least 2", "not 1"]),
    ],
)
def test_what_has_no_relations_is_refused(spec, tasks, words):
    with pytest.raises(UsageError) as error:
        check_relations(spec, tasks)
    assert all(word in str(error.value) for word in words)
