"""The example of a world with declared entities: what it pays, and that the declaration says where beacons are."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.test_examples import EXAMPLES
from mesax.envs.contract import check_family
from mesax.envs.structure import layouts_of
from mesax.experiments.catalogue import experiment
from mesax.ours.entities import DeclaredEntities
from mesax.ours.learned import LearnedMesa

sys.path.insert(0, str(EXAMPLES))
import beacons

ENV = beacons.Beacons()
TASK = jnp.uint32(6 * 7 + 4)


def at(place: jax.Array) -> tuple[float, np.ndarray]:
    """(Reward, what is seen) of drones that were here, at rest."""
    state = beacons.State(place, jnp.zeros_like(place))
    _, step = ENV.step(TASK, state, jnp.zeros((beacons.DRONES, 2)), jax.random.key(0))
    return float(step.reward), np.asarray(step.obs)


def test_the_hidden_beacon_answers_when_all_are_there():
    check_family(beacons.FAMILY)
    places = beacons.beacons_of(TASK)
    everyone = jnp.broadcast_to(places[4], (beacons.DRONES, 2))
    assert at(everyone)[0] == 1.0
    assert at(everyone.at[1].add(0.9 * beacons.REACH))[0] == 0.0  # too far in both directions together
    assert at(jnp.broadcast_to(places[3], (beacons.DRONES, 2)))[0] == 0.0


def test_the_declaration_says_where_beacons_are():
    declared = DeclaredEntities.of(ENV, ENV.spec)
    declared.check(ENV.spec)
    place = jnp.array([[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]])
    seen = declared.seen(at(place)[1])
    np.testing.assert_allclose(seen, beacons.beacons_of(TASK)[None] - place[:, None], atol=1e-6)
    assert len(declared.places.entries) + len(declared.others.entries) + 2 == ENV.spec.obs_size


def test_tasks_of_a_layout_differ_in_the_beacon_that_answers():
    tasks = np.asarray(beacons.FAMILY.split(3, 12, 0).train)
    np.testing.assert_array_equal(tasks % beacons.BEACONS, [*range(6)] * 2)
    np.testing.assert_array_equal(layouts_of(beacons.FAMILY, 12), [0] * 6 + [1] * 6)
    np.testing.assert_array_equal(beacons.beacons_of(tasks[0]), beacons.beacons_of(tasks[5]))


def test_a_world_with_entities_learns_what_pays_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    mesa, told, plain = (experiment(name, "beacons:FAMILY", "quick") for name in ("mesa", "told", "plain"))
    assert isinstance(mesa.method, LearnedMesa) and mesa.method.reward.entities == ENV.entities
    assert experiment("learned", "beacons:FAMILY", "quick") == mesa
    assert not isinstance(told.method, LearnedMesa)
    assert (plain.algorithm, plain.schedule, plain.num_train_tasks) == (mesa.algorithm, mesa.schedule, 30)
    mesa.check()
