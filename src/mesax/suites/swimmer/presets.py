"""The swimmer in every preset: MESA's experiment and all named learners.

Quick learners share their nets' sizes, discounts and budgets wherever the method allows. What was tried to find the
rest, on tasks that no result reports, is said in docs/methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from mesax.algorithms.actor_updates import GumbelGradient
from mesax.algorithms.binned import Binned
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex, MixerConfig
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition
from mesax.baselines.counts import BinnedEntries
from mesax.baselines.emc import BestReturns, Curiosity, Emc, Falling
from mesax.baselines.scripts import Angles, ToldAngles
from mesax.envs.base import TaskFamily
from mesax.envs.swimmer_climb import SwimmerClimb, SwimmerFamily, TargetAngle
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.mesa.mixing import Mixing
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Gru, Mlp
from mesax.ours.records import RecordReward
from mesax.rewards.features import JointAngles
from mesax.suites.tables import (
    PYMARL_EMC_BY_SUM,
    PYMARL_MAVEN,
    PYMARL_VALUES,
    RELEASED_MAPPO,
    by_mixer,
    columns,
    coordinated,
    finer,
    maven,
    one_by_one,
)
from mesax.training.schedule import Budget, Prioritized, Schedule, on_policy
from mesax.types import Linear, LinearSteps

# Table 1 of the paper: as particle worlds, with 8 trajectories an update. Actions are continuous, so the gradient
# passes through the action itself.
PAPER_MADDPG = Maddpg(
    actor_net=Gru(64),
    critic_net=Gru(64),
    actor_update=GumbelGradient("policy"),
    actor_optimizer=Adam(1e-4),
    critic_optimizer=Adam(1e-4),
    exploration=Linear(0.1, 0.1, 0.0),
)
# The reward changes within a few degrees: plain nets smooth the narrow band away, and with it all reason to go there.
LEARNER = Normalized(
    Maddpg(
        actor_net=Mlp((64, 64), octaves=4),
        critic_net=Mlp((64, 64), octaves=4),
        num_critics=2,
        trace=0.5,
        actor_update=GumbelGradient("policy"),
        actor_optimizer=Adam(1e-3),
        critic_optimizer=Adam(1e-3),
        discount=0.95,
        target_rate=0.05,
        logit_penalty=1e-2,
        exploration=Linear(0.3, 0.08, 0.7),
    )
)
EXPLORER = Mappo(
    actor_net=Mlp((64, 64), octaves=4),  # wishes are angles, some tenths of a radian apart
    critic_net=Mlp((64, 64), octaves=4),
    optimizer=Adam(7e-4, clip_norm=0.5),
    final_rate=0.1,
    epochs=6,
    minibatches=4,
    discount=0.99,
    entropy_bonus=0.0,
    largest_std=Linear(0.4, 0.15, 1.0),
)

MADDPG = columns(
    paper=PAPER_MADDPG,
    quick=replace(
        PAPER_MADDPG,
        actor_net=Mlp((64, 64), octaves=4),
        critic_net=Mlp((64, 64), octaves=4),
        actor_optimizer=Adam(1e-3),
        critic_optimizer=Adam(1e-3),
    ),
)
QUICK_QMIX = ValueDecomposition(
    agent_net=Mlp((64, 64), octaves=4),
    last_action=False,
    trace=0.5,
    optimizer=Adam(1e-3),
    discount=0.95,
    target=Soft(0.05),
    exploration=LinearSteps(1.0, 0.05, 250_000),
)
MAVEN: dict[str, Binned | Normalized] = columns(
    paper=Binned(PYMARL_MAVEN),
    quick=Normalized(Binned(maven(QUICK_QMIX, 2))),
)
EMC: dict[str, Binned | Normalized] = columns(
    paper=Binned(PYMARL_EMC_BY_SUM),
    quick=Normalized(
        Binned(
            Emc(
                replace(QUICK_QMIX, mixer=Duplex()),
                Curiosity(Falling(0.01, 0.8, 20_000), head_gain=0.1, optimizer=Adam(1e-3)),
                BestReturns(0.1, capacity=2**18, tolerance=0.2, at_least=True),
            )
        ),
        fixed=True,  # a state is remembered by what it looks like
    ),
)
MAPPO: dict[str, Mappo | Normalized] = columns(
    paper=RELEASED_MAPPO,
    quick=Normalized(
        Mappo(
            actor_net=Mlp((64, 64), octaves=4),
            critic_net=Mlp((64, 64), octaves=4),
            optimizer=Adam(3e-4),
            epochs=10,
            minibatches=4,
            discount=0.95,
            largest_std=Linear(0.5, 0.1, 1.0),
        )
    ),
)
MOST_MAPPO_ENVS = 16


@dataclass(frozen=True)
class World:
    """What differs between the swimmers."""

    family: SwimmerFamily
    num_test_tasks: int
    octaves: int
    """Frequencies at which quick learners see angles: the narrower the band, the more."""
    num_clusters: int
    """One for every few degrees of the targets' range."""
    near: float
    """Radians from a cluster within which an explorer is there."""
    stay: float
    """Long stays show a learner what an angle is worth."""
    least_std: float
    """Noise of explorers at the end of their training: it is to keep them in the band."""
    explore_decisions: int
    """What explorers take to learn."""

    @property
    def keys(self) -> BinnedEntries:
        """Both joints as an agent sees them, in bins of 5 degrees.

        There are few ways to move, so that a move that is the same everywhere is soon an old one: it would pay for
        nothing but speed.
        """
        return BinnedEntries((0, self.family.world.neighbor_at), width=round(math.radians(5.0), 4), where=True)

    @property
    def tour(self) -> Angles:
        """From angle to angle."""
        return Angles(round(math.radians(self.family.most_degrees), 4), speed_at=self.family.world.speed_at)


WORLDS = {
    "swimmer": World(
        SwimmerFamily(
            SwimmerClimb(band_degrees=math.degrees(0.02), see_head=False),
            least_degrees=0.0,
            published=True,
            lost=(4.0, 0.0),
        ),
        num_test_tasks=5,
        octaves=5,
        num_clusters=40,
        near=0.005,
        stay=0.95,
        least_std=0.05,
        explore_decisions=480_000,
    ),
    "swimmer-wide": World(
        SwimmerFamily(),
        num_test_tasks=6,
        octaves=4,
        num_clusters=20,
        near=0.02,
        stay=0.85,
        least_std=0.15,
        explore_decisions=320_000,
    ),
}


def family_of(environment: str) -> TaskFamily:
    """Targets on both sides of a straight body."""
    return WORLDS[environment].family


def preset(environment: str, name: str) -> Preset:
    """A swimmer in one preset."""
    world = WORLDS[environment]
    mesa = MESA[name](world)
    budget = on_policy(mesa.schedule, min(mesa.schedule.num_envs, MOST_MAPPO_ENVS))
    alone = by_priority = None
    if name == "paper":
        alone = one_by_one(5_000_000, world.family.world.horizon, tested_every=10_000)
        by_priority = Prioritized(**vars(replace(alone, updates_per_round=2)))
    learners = {
        "maddpg": NamedLearner(MADDPG[name]),
        "coordinated": NamedLearner(coordinated(mesa.algorithm)),
        **by_mixer(lambda mixer: _values(mixer)[name], alone),
        "maven": NamedLearner(MAVEN[name], alone),
        "emc": NamedLearner(EMC[name], by_priority),
        "mappo": NamedLearner(MAPPO[name], budget),
    }
    if name != "paper":
        learners = {
            key: replace(learner, algorithm=finer(learner.algorithm, world.octaves))
            for key, learner in learners.items()
        }
    return Preset(
        mesa,
        learners,
        goal=TargetAngle(),
        keys=world.keys,
        tour=world.tour,
        script=ToldAngles(world.tour),
    )


def _values(mixer: MixerConfig) -> dict[str, Binned | Normalized]:
    """Learners of values choose among a few torques."""
    return columns(
        paper=Binned(replace(PYMARL_VALUES, mixer=mixer)),
        quick=Normalized(Binned(replace(QUICK_QMIX, mixer=mixer))),
    )


def _paper(world: World) -> Experiment:
    schedule = Schedule(
        2_500_000,
        num_envs=8,
        num_evaluations=50,
        warmup_steps=50_000,
        updates_per_round=8,
        batch_size=8,
        replay_capacity=1_000,
    )
    method = Mesa(
        explorer=PAPER_MADDPG,
        collect=replace(schedule, total_steps=1_000_000, num_evaluations=10),
        explore=replace(schedule, total_steps=3_000_000, num_evaluations=15),
        # Both joints at the edge of the band: sqrt(2) of its half-width away from its center.
        reward=CoverageReward(
            JointAngles(), distance_threshold=round(2**0.5 * world.family.world.band, 4), num_clusters=16
        ),
        num_explorers=2,
        coverage_episodes=20,
        mixing=Mixing(Linear(0.5, 0.0, 0.5)),
    )
    return Experiment(
        method,
        world.family,
        PAPER_MADDPG,
        schedule,
        num_train_tasks=30,
        num_test_tasks=world.num_test_tasks,
        eval_episodes=4,
        lanes=1,
    )


def _quick(world: World) -> Experiment:
    """Training episodes are 200 steps long, and evaluation takes the whole horizon."""
    schedule = Schedule(
        512_000,
        num_envs=16,
        num_evaluations=24,
        warmup_steps=12_800,
        updates_per_round=60,
        batch_size=4,
        replay_capacity=3_000,
    )
    method = Mesa(
        explorer=replace(EXPLORER, largest_std=replace(EXPLORER.largest_std, end=world.least_std)),
        collect=replace(schedule, total_steps=35_200, warmup_steps=32_000, num_evaluations=1, updates_per_round=1),
        explore=Budget(world.explore_decisions, num_envs=32, num_evaluations=5),
        relabel_discount=0.0,
        # Without wishes explorers sweep one side of the angles first and have little time for the other. With all of
        # them at once they are content with a place some degrees short of the outermost angles.
        reward=RecordReward(
            JointAngles(),
            distance_threshold=world.near,
            num_clusters=world.num_clusters,
            tell_demand=True,
            wish_decay=0.5,
            told="most wanted",
            width=0.2,
            stay=world.stay,
            kernel="peaked",
            fulfilled=0.8,
            placement="spread",  # uniform play seldom gets to the outermost angles: KMeans has few clusters there
        ),
        num_explorers=1,
        global_count="none",
        coverage_episodes=20,
        mixing=Mixing(Linear(0.9, 0.0, 0.6)),
    )
    return Experiment(
        method,
        world.family,
        finer(LEARNER, world.octaves),
        schedule,
        num_train_tasks=30,
        num_test_tasks=world.num_test_tasks,
        eval_episodes=4,
        lanes=3,
        training_horizon=200,
    )


def _smoke(world: World) -> Experiment:
    quick, family = _quick(world), world.family
    assert isinstance(quick.method, Mesa)
    tiny = Schedule(
        640,
        num_envs=4,
        num_evaluations=2,
        warmup_steps=320,
        updates_per_round=2,
        batch_size=4,
        replay_capacity=20,
    )
    method = replace(
        quick.method,
        collect=replace(tiny, total_steps=1_600, warmup_steps=1_400),
        explore=Budget(640, num_envs=4, num_evaluations=2),
        coverage_episodes=4,
    )
    return replace(
        quick,
        family=replace(family, world=replace(family.world, horizon=60)),
        method=method,
        schedule=tiny,
        num_train_tasks=20,
        num_test_tasks=2,
        eval_episodes=2,
        lanes=2,
        training_horizon=40,
    )


MESA: dict[str, Callable[[World], Experiment]] = {"paper": _paper, "quick": _quick, "smoke": _smoke}
