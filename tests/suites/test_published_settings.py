"""Preset `paper` of QMIX, MAVEN and EMC, beside what the paper's authors set in their public code, number by number."""

from dataclasses import asdict, replace

import pytest

from mesax.algorithms.binned import Binned
from mesax.algorithms.mixers import Duplex, Monotonic, Sum
from mesax.algorithms.value_decomposition import Periodic, ValueDecomposition
from mesax.baselines.emc import Emc
from mesax.baselines.maven import Maven
from mesax.nets import Adam, Gru, RmsProp
from mesax.suites.registry import suite_of
from mesax.training.schedule import Prioritized
from mesax.types import LinearSteps

STEPS = {"climb-one": 50_000, "climb-multi": 100_000, "swimmer": 5_000_000}
"""Particle worlds have 3,000,000."""
TESTED_EVERY = {"climb-one": 1_000, "climb-multi": 1_000}
"""Elsewhere 10,000."""
HORIZON = {"climb-one": 1, "climb-multi": 5, "swimmer": 1_000}
"""Of particle worlds 75."""
PARTICLES = ["mpe-2a3l", "mpe-2a5l", "mpe-2a6l", "mpe-3a5l", "mpe-3a6l"]
WORLDS = ["climb-one", "climb-multi", *PARTICLES, "swimmer"]


def published(world: str, name: str):
    """(algorithm, schedule); torques are 11 even points."""
    learner = suite_of(world).preset(world, "paper").learners[name]
    algorithm = learner.algorithm
    if world == "swimmer":
        assert isinstance(algorithm, Binned) and algorithm.bins == 11
        algorithm = algorithm.algorithm
    return algorithm, learner.schedule


def shared(values: ValueDecomposition) -> None:
    """What all three have of PyMARL's defaults."""
    assert values.agent_net == Gru(64, num_layers=1)
    assert (values.share_agents, values.last_action, values.double_q, values.trace) == (False, True, True, 0.0)
    assert values.optimizer == RmsProp(learning_rate=5e-4, clip_norm=10.0, decay=0.99)
    assert values.exploration == LinearSteps(1.0, 0.05, 50_000)
    assert values.horizon_ends


@pytest.mark.parametrize("world", WORLDS)
def test_qmix(world: str):
    qmix, _ = published(world, "qmix")
    shared(qmix)
    assert (qmix.mixer, qmix.discount, qmix.target) == (Monotonic(hidden=32, hyper_hidden=64), 0.99, Periodic(200))


@pytest.mark.parametrize("world", WORLDS)
def test_maven(world: str):
    maven, _ = published(world, "maven")
    assert isinstance(maven, Maven) and maven.choice is None
    values = maven.values
    shared(values)
    assert (values.latent_size, values.information_weight, values.discriminator_hidden) == (2, 1.0, (32,))
    assert (values.mixer, values.discount, values.target) == (Monotonic(32, hyper_hidden=0), 0.99, Periodic(100))


@pytest.mark.parametrize("world", WORLDS)
def test_emc(world: str):
    """QPLEX with attention and a memory in particle worlds; VDN without one, by priority, elsewhere."""
    emc, schedule = published(world, "emc")
    assert isinstance(emc, Emc) and emc.curiosity is not None
    shared(emc.control)
    assert emc.control.target == Periodic(200)
    curiosity, scale = emc.curiosity, emc.curiosity.scale
    assert (curiosity.gain, curiosity.target_rate, curiosity.optimizer) == (10.0, 0.005, Adam(5e-4))
    if world in PARTICLES:
        assert emc.control.mixer == Duplex(4, 32, 64, 32, kernels=4, importance_hidden=(), attention_penalty=1e-3)
        assert emc.control.discount == 0.99
        assert emc.memory is not None and not emc.memory.at_least
        assert (emc.memory.weight, emc.memory.capacity, emc.memory.size) == (0.1, 2**20, 4)
        assert not isinstance(schedule, Prioritized)
    else:
        assert (emc.control.mixer, emc.control.discount, emc.memory) == (Sum(), 0.9, None)
        assert isinstance(schedule, Prioritized) and (schedule.exponent, schedule.first) == (0.5, 100.0)
    in_games = world.startswith("climb")
    expected = (0.2, 0.9, 5_000, 0.01) if in_games else (0.001, 0.9, 100_000, 0.0)
    assert (scale.start, scale.factor, scale.steps, scale.floor) == expected


@pytest.mark.parametrize("name", ["qmix", "maven", "emc"])
@pytest.mark.parametrize("world", WORLDS)
def test_schedules(world: str, name: str):
    """An episode, then its updates; EMC makes two of them but in climb games."""
    _, schedule = published(world, name)
    steps, tested = STEPS.get(world, 3_000_000), TESTED_EVERY.get(world, 10_000)
    assert (schedule.total_steps, schedule.num_envs, schedule.num_evaluations) == (steps, 1, steps // tested)
    twice = name == "emc" and not world.startswith("climb")
    assert schedule.updates_per_round == (2 if twice else 1)
    assert (schedule.batch_size, schedule.replay_capacity) == (32, 5_000)
    assert schedule.warmup_rounds(HORIZON.get(world, 75)) == 32


@pytest.mark.parametrize("world", ["climb-one", "mpe-2a5l", "swimmer"])
def test_other_learners_of_values_differ_by_their_mixer_alone(world: str):
    qmix, schedule = published(world, "qmix")
    for name in ("iql", "vdn", "qplex", "dmaq"):
        other, others = published(world, name)
        assert others == schedule and asdict(replace(other, mixer=qmix.mixer)) == asdict(qmix)
