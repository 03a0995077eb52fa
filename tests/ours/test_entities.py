"""Entities as they are declared: the same blocks for the reward model and for the nets of explorers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.climb import ClimbGame
from mesax.envs.particle_climb import PAPER_WORLD, ParticleClimb
from mesax.errors import UsageError
from mesax.nets import Entities
from mesax.ours.entities import Block, DeclaredEntities


def test_particle_worlds_declare_themselves():
    wide, paper = ParticleClimb(3, 5), PAPER_WORLD
    declared = DeclaredEntities.of(wide, wide.spec)
    assert declared == DeclaredEntities(Block(2, 5, 2), Block(12, 2, 2))
    assert declared.net(wide.spec) == Entities(5, 2, 2, told=2, ranks=1)
    assert DeclaredEntities.of(paper, paper.spec) == DeclaredEntities(Block(0, 5, 2), Block(10, 1, 2))


def test_what_is_seen_is_each_agents_own_block():
    obs = np.arange(2 * 9, dtype=np.float32).reshape(2, 9)
    seen = DeclaredEntities(Block(1, 2, 3)).seen(obs)
    np.testing.assert_array_equal(seen, [[[1, 2, 3], [4, 5, 6]], [[10, 11, 12], [13, 14, 15]]])


def test_without_a_declaration_the_observation_is_one_entity():
    game = ClimbGame(2, 3, 1)
    declared = DeclaredEntities.of(game, game.spec)
    assert declared.number == 1 and not declared.is_declared(game.spec)


@pytest.mark.parametrize(
    ("places", "others", "said"),
    [
        (Block(0, 6), None, "entities are declared at 0 to 11 of the observation, which has 10 numbers"),
        (Block(0, 2), Block(4, 4), "other agents are declared at 4 to 11 of the observation"),
    ],
)
def test_a_declaration_that_does_not_fit_is_one_line(places, others, said):
    spec = ParticleClimb(2, 3).spec
    with pytest.raises(UsageError, match=said):
        DeclaredEntities(places, others).check(spec)


def test_blocks_that_overlap_are_refused():
    with pytest.raises(UsageError, match=r"entities at 0 to 3 and other agents at 2 to 3 share numbers"):
        DeclaredEntities(Block(0, 2), Block(2, 1))


def test_a_net_reads_numbers_where_they_are_declared():
    """Entities of three numbers behind the other agent, own numbers in between and at the end."""
    spec = ParticleClimb(2, 3).spec  # ten numbers
    declared = DeclaredEntities(Block(4, 1, 3), Block(0, 1, 3))
    net = declared.net(spec)
    assert net.order == (3, 7, 8, 9, 4, 5, 6, 0, 1, 2)
    obs = jnp.append(jnp.arange(10.0), jnp.array([0.5, 0.25]))
    own, points, others, _ = net.parts(obs)
    np.testing.assert_array_equal(own, [3, 7, 8, 9])
    np.testing.assert_array_equal(points, [[4, 5, 6]])
    np.testing.assert_array_equal(others, [[0, 1, 2]])
    with pytest.raises(UsageError, match="plays with the number of agents it knows"):
        net.for_team(3)
    built = net.build(12, 4, jax.random.key(0))
    assert built.step((), obs)[1].shape == (4,)
