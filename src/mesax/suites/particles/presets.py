"""Particle worlds in every preset: MESA's experiment and all named learners.

Quick learners share their nets' sizes, discounts and budgets wherever the method allows. What was tried to find the
rest, on tasks that no result reports, is said in docs/methods.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition
from mesax.baselines.counts import PlaceKeys
from mesax.baselines.emc import BestReturns, Curiosity, Emc, Falling
from mesax.baselines.scripts import Landmarks, ToldLandmarks
from mesax.envs.base import TaskFamily
from mesax.envs.particle_climb import (
    LOST,
    PAPER_WORLD,
    JammedFamily,
    ParticleClimb,
    ParticleClimbFamily,
    TargetLandmark,
)
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.mesa.mixing import Mixing
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Entities, Gru, Mlp
from mesax.ours.records import RecordReward
from mesax.ours.steady import SteadyMesa
from mesax.rewards.features import SortedOccupancy
from mesax.suites.tables import (
    PYMARL_CURIOSITY,
    PYMARL_MAVEN,
    PYMARL_MEMORY,
    PYMARL_VALUES,
    RELEASED_MAPPO,
    by_mixer,
    columns,
    coordinated,
    maven,
    one_by_one,
    seeing_change,
)
from mesax.training.schedule import Budget, Schedule, on_policy
from mesax.types import Linear, LinearSteps

# Table 1 of the paper: GRU-64, Adam 1e-4, 300 trajectories an update, 50K random steps.
PAPER_MADDPG = Maddpg(
    actor_net=Gru(64),
    critic_net=Gru(64),
    actor_update=GumbelGradient("policy"),
    actor_optimizer=Adam(1e-4),
    critic_optimizer=Adam(1e-4),
)
LEARNER = Maddpg(
    actor_net=Mlp((64, 64)),
    critic_net=Mlp((128, 128)),
    actor_update=ExpectedGradient("policy"),
    trace=0.8,
    actor_batch_size=4,  # half of a batch: actors learn as fast from it, and cost half
    actor_optimizer=Adam(2e-3),
    critic_optimizer=Adam(2e-3),
    discount=0.97,
    target_rate=0.02,
    entropy_bonus=0.05,
    exploration=Linear(0.05, 0.05, 0.0),
)
# With an agent left over, an additive critic learns faster. Where all must meet (k = n), what an agent's move is worth
# depends on the others', and an additive critic stays at the safe equilibrium.
ADDITIVE_LEARNER = replace(LEARNER, additive_critic=True, discount=0.95, actor_batch_size=None)
# Without explorers three agents are hardly ever paid, and one that is paid for being undecided stays so. One actor net
# learns from all of them; an additive critic would leave half of the tasks unsolved.
UNAIDED_LEARNER = replace(LEARNER, share_actors=True, entropy_bonus=0.005)
# Where rewards are rarer still, one actor net learns from all agents, and rates fall, so that what was found stays.
FALLING = Adam(2e-3, falling=5_400)
HARD_LEARNER = replace(LEARNER, share_actors=True, actor_optimizer=FALLING, critic_optimizer=FALLING)
# Where agents start close to what pays, a critic of random values would make them leave before it has learned anything.
JAMMED_LEARNER = replace(LEARNER, critic_head_gain=0.01)
EXPLORER = Mappo(
    values_of="own",
    optimizer=Adam(2e-3, clip_norm=0.5),
    final_rate=0.1,
    epochs=2,
    minibatches=8,
    discount=0.95,
    gae=0.9,
)

MADDPG = columns(
    paper=PAPER_MADDPG,
    quick=replace(
        PAPER_MADDPG,
        actor_net=Mlp((64, 64)),
        critic_net=Mlp((64, 64)),
        # What it computes is as published. A critic of random values would collapse the actors before the first reward,
        # and targets would keep its bias for longer than a run (docs/tuning.md).
        critic_head_gain=0.01,
        target_rate=0.02,
        discount=0.97,
        actor_optimizer=Adam(2e-3),
        critic_optimizer=Adam(2e-3),
    ),
)
QMIX = columns(
    paper=PYMARL_VALUES,
    quick=ValueDecomposition(
        agent_net=Mlp((64, 64)),
        last_action=False,
        trace=0.8,
        optimizer=Adam(1e-3),
        discount=0.97,
        target=Soft(0.02),
        exploration=LinearSteps(1.0, 0.05, 1_000_000),
    ),
)
LATENTS = 2
"""Ways to play of MAVEN, as released."""
# What QPLEX is told besides its own targets. Random play is paid .006 a step: news that is worth more drowns the task.
EMC = columns(
    paper=(PYMARL_CURIOSITY, PYMARL_MEMORY),
    quick=(
        Curiosity(Falling(0.01, 0.8, 50_000), head_gain=0.1, optimizer=Adam(1e-3)),
        BestReturns(0.1, capacity=2**20, at_least=True),
    ),
)
MAPPO = columns(
    paper=replace(RELEASED_MAPPO, optimizer=Adam(7e-4), epochs=10),  # as released for particle worlds
    quick=Mappo(
        actor_net=Mlp((64, 64)),
        critic_net=Mlp((128, 128)),
        optimizer=Adam(7e-4),
        epochs=5,  # learns as well as with the released 10, in half the time (docs/tuning.md)
        minibatches=1,
        discount=0.97,
    ),
)
MAPPO_ENVS = columns(paper=128, quick=32)


@dataclass(frozen=True)
class World:
    """What differs between the worlds; where Table 1 has two numbers for MPE, the first is read as that of 2 agents."""

    family: ParticleClimbFamily | JammedFamily
    """Its tasks."""
    paper_steps: int
    paper_explorers: int
    learner: Maddpg
    """What MESA wraps in the quick preset, as all that follows."""
    steps: int
    """More landmarks take learners longer to find the one that counts."""
    updates_per_round: int
    explore_decisions: int
    """And explorers longer to learn."""
    explorers_leave: float
    """Share of the run after which explorers play no more: a learner that has settled on a safe landmark needs them to
    leave it, and then practice of its own."""
    stay: float
    """Long stays show a learner what a landmark is worth; wishes see to it that others are visited too."""
    alone: Maddpg | None = None
    """What `learner` is like where no explorer helps it, if that is something else."""
    action_repeat: int = 1
    """Steps for which explorers in training hold an action."""

    @property
    def num_agents(self) -> int:
        """In the team."""
        return self.family.world.num_agents

    @property
    def num_landmarks(self) -> int:
        """To choose from."""
        return self.family.world.num_landmarks

    @property
    def is_jammed(self) -> bool:
        """Whether it is one of the paper's own."""
        return isinstance(self.family, JammedFamily)

    @property
    def num_test_tasks(self) -> int:
        """All targets of the one layout of a seed; where every task has a layout of its own, five."""
        return self.num_landmarks if self.is_jammed else 5

    @property
    def occupancy(self) -> SortedOccupancy:
        """The features that distances are measured on."""
        world = self.family.world
        return SortedOccupancy(world.num_landmarks, world.num_own, world.radius, world.radius / 4)

    @property
    def tour(self) -> Landmarks:
        """From landmark to landmark, as many together as belong on the target."""
        world = self.family.world
        return Landmarks(self.num_landmarks, self.family.count, world.num_own, world.integration)

    @property
    def keys(self) -> PlaceKeys:
        """Which states and changes are the same, for exploration by counts."""
        world = self.family.world
        return PlaceKeys(world.num_landmarks, world.num_own, world.radius)


def jammed(num_agents: int, num_landmarks: int, *, count: int = 2) -> JammedFamily:
    """A world of the paper."""
    return JammedFamily(replace(PAPER_WORLD, num_agents=num_agents, num_landmarks=num_landmarks), count)


def harder(family: JammedFamily) -> JammedFamily:
    """Its hard world: landmarks within .27 of their center instead of .09, starts within .85 of one instead of .28."""
    return replace(family, world=replace(family.world, difficulty=0.3), lost=LOST[0.3])


def wide(num_agents: int, num_landmarks: int, *, count: int = 2, half_width: float = 1.0) -> ParticleClimbFamily:
    """A world with an arena of this half width: the farther, the harder."""
    world = ParticleClimb(num_agents, num_landmarks, start_range=half_width, wall=half_width)
    return ParticleClimbFamily(world, count, landmark_range=half_width - 0.1)


TWO = World(jammed(2, 5), 3_000_000, 2, JAMMED_LEARNER, 1_200_000, 12, 800_000, 0.85, 0.85)
THREE = World(jammed(3, 5), 6_000_000, 4, ADDITIVE_LEARNER, 3_000_000, 16, 2_400_000, 0.7, 0.8, JAMMED_LEARNER)
WIDE_TWO = World(wide(2, 5), 3_000_000, 2, LEARNER, 1_200_000, 12, 500_000, 0.85, 0.85, action_repeat=2)
WIDE_THREE = replace(THREE, family=wide(3, 5), explore_decisions=1_600_000, action_repeat=2, alone=UNAIDED_LEARNER)
# Harder ones, for explorers of easier worlds; an additive critic left some of these tasks unsolved.
HARD = replace(WIDE_THREE, learner=HARD_LEARNER, updates_per_round=12, explorers_leave=0.6, alone=None)

WORLDS = {
    "mpe-2a3l": replace(TWO, family=jammed(2, 3)),
    "mpe-2a5l": TWO,
    "mpe-2a6l": replace(TWO, family=jammed(2, 6), steps=1_600_000),
    "mpe-3a5l": THREE,
    "mpe-3a6l": replace(THREE, family=jammed(3, 6), steps=3_500_000),
    "mpe-2a5l-hard": replace(TWO, family=harder(jammed(2, 5))),
    "mpe-3a5l-hard": replace(THREE, family=harder(jammed(3, 5))),
    "mpe-3a5l-hard-k3": replace(THREE, family=harder(jammed(3, 5, count=3))),
    "wide-2a3l": replace(WIDE_TWO, family=wide(2, 3)),
    "wide-2a5l": WIDE_TWO,
    "wide-2a6l": replace(WIDE_TWO, family=wide(2, 6), steps=1_600_000, explore_decisions=750_000),
    "wide-3a5l": WIDE_THREE,
    "wide-3a6l": replace(WIDE_THREE, family=wide(3, 6), steps=3_500_000, explore_decisions=2_000_000),
    "wide-2a5l-hard": replace(WIDE_TWO, family=wide(2, 5, half_width=1.5), steps=2_000_000),
    "wide-3a5l-hard": replace(HARD, family=wide(3, 5, half_width=1.5)),
    "wide-3a5l-hard-k3": replace(HARD, family=wide(3, 5, count=3, half_width=1.5)),
}


def world_named(environment: str) -> World:
    """A listed world, or one of any size: `wide-16a40l` has 16 agents among 40 landmarks, as dense as 6 are."""
    if environment in WORLDS:
        return WORLDS[environment]
    agents, landmarks = map(int, re.findall(r"\d+", environment))
    kind = environment.partition("-")[0]
    nearest = WORLDS[f"{kind}-2a6l" if agents <= 2 else f"{kind}-3a6l"]
    count = min(nearest.family.count, agents) if landmarks > 1 else agents  # the others need a landmark too
    width = max(1.0, round(math.sqrt(landmarks / nearest.num_landmarks), 2))
    family = (
        jammed(agents, landmarks, count=count)
        if kind == "mpe"
        else wide(agents, landmarks, count=count, half_width=width)
    )
    return replace(nearest, family=family, alone=None)


def family_of(environment: str) -> TaskFamily:
    """Layouts and targets of one world."""
    return world_named(environment).family


def preset(environment: str, name: str) -> Preset:
    """A particle world in one preset; where velocities are hidden, dense nets see what changed."""
    world = world_named(environment)
    told = _preset(world, name)
    return told if world.family.world.see_velocity else _seeing_change(told)


def _seeing_change(preset: Preset) -> Preset:
    method = replace(preset.method, explorer=seeing_change(preset.method.explorer))
    mesa = replace(preset.mesa, algorithm=seeing_change(preset.mesa.algorithm), method=method)
    learners = {
        name: replace(learner, algorithm=seeing_change(learner.algorithm)) for name, learner in preset.learners.items()
    }
    alone = None if preset.alone is None else seeing_change(preset.alone)
    return replace(preset, mesa=mesa, learners=learners, alone=alone)


def _preset(world: World, name: str) -> Preset:
    mesa = MESA[name](world)
    budget = on_policy(mesa.schedule, MAPPO_ENVS[name])
    qmix = QMIX[name]
    if name != "paper":  # explore for half of a run that is shorter than those for which it was tuned
        steps = min(1_000_000, world.steps // 2)
        qmix = replace(qmix, exploration=LinearSteps(1.0, 0.05, steps))
    emc, with_latent, often, alone = Emc(replace(qmix, mixer=Duplex()), *EMC[name]), PYMARL_MAVEN, mesa.schedule, None
    if name == "paper":
        alone = one_by_one(3_000_000, world.family.world.horizon, tested_every=10_000)
        often = replace(alone, updates_per_round=2)
    else:
        # It has other reasons to explore, and a quicker start; with three agents its values would not settle so fast.
        # Where agents start close to what pays, values that may exceed what is remembered make them leave.
        rate = Adam(2e-3) if world.num_agents == 2 and not world.is_jammed else qmix.optimizer
        emc = replace(emc, memory=replace(EMC[name][1], at_least=not world.is_jammed))
        sooner = replace(emc.control, optimizer=rate, exploration=LinearSteps(1.0, 0.05, steps // 2))
        emc = replace(emc, control=sooner)
        # Random play is paid .006 a step: if z is worth telling for more, nothing else is learned.
        with_latent = maven(qmix, LATENTS, information_weight=0.01)
        # Both have more to learn than the others: with as many updates some tasks were not at the safe equilibrium yet.
        assert isinstance(often, Schedule), "MESA's learner learns from replay"
        often = replace(often, updates_per_round=2 * often.updates_per_round)
    return Preset(
        mesa,
        {
            "maddpg": NamedLearner(MADDPG[name]),
            "coordinated": NamedLearner(coordinated(mesa.algorithm)),
            **by_mixer(lambda mixer: replace(qmix, mixer=mixer), alone),
            "maven": NamedLearner(with_latent, alone or often),
            "emc": NamedLearner(emc, often),
            "mappo": NamedLearner(MAPPO[name], budget),
        },
        alone=None if name == "paper" else world.alone,
        goal=TargetLandmark(),
        keys=world.keys,
        tour=world.tour,
        script=ToldLandmarks(world.tour),
    )


def _experiment(world: World, method: Mesa, learner: Maddpg, schedule: Schedule) -> Experiment:
    """With the paper's numbers of tasks."""
    return Experiment(
        method,
        world.family,
        learner,
        schedule,
        num_train_tasks=30,
        num_test_tasks=world.num_test_tasks,
        eval_episodes=32,
        lanes=1,
    )


def _paper(world: World) -> Experiment:
    schedule = Schedule(
        world.paper_steps,
        num_envs=64,
        num_evaluations=50,
        warmup_steps=50_000,
        updates_per_round=8,
        batch_size=300,
        replay_capacity=5_000,
    )
    method = Mesa(
        explorer=PAPER_MADDPG,
        collect=replace(schedule, total_steps=500_000, num_evaluations=10),
        explore=replace(schedule, total_steps=3_000_000, num_evaluations=15),
        reward=CoverageReward(world.occupancy, distance_threshold=0.15, num_clusters=world.num_landmarks),
        num_explorers=world.paper_explorers,
        mixing=Mixing(Linear(0.5, 0.0, 0.5)),
    )
    return _experiment(world, method, PAPER_MADDPG, schedule)


def _quick(world: World) -> Experiment:
    schedule = Schedule(
        world.steps,
        num_envs=80,
        num_evaluations=min(30, world.steps // 64_000),  # every ten rounds at most
        warmup_steps=50_000,
        updates_per_round=world.updates_per_round,
        batch_size=8,
        replay_capacity=25_000,
    )
    net = Entities(world.num_landmarks, world.num_agents - 1, world.family.world.num_own, told=2)
    method = SteadyMesa(
        explorer=replace(EXPLORER, actor_net=net, critic_net=net),
        collect=replace(schedule, total_steps=64_000, warmup_steps=64_000, num_evaluations=1),  # random play is enough
        # Many small batches: in the time of fewer large ones explorers become better, and none starts late.
        explore=Budget(world.explore_decisions, num_envs=64, num_evaluations=12),
        action_repeat=world.action_repeat,
        relabel_discount=0.0,
        reward=RecordReward(
            world.occupancy,
            distance_threshold=0.1,
            num_clusters=max(2, world.num_landmarks),  # wishes choose among them
            tell_demand=True,
            wish_decay=0.5,
            width=0.5,
            stay=world.stay,
        ),
        num_explorers=1,
        global_count="none",
        snapshot="fairest",
        coverage_episodes=300,
        mixing=Mixing(Linear(0.9, 0.0, world.explorers_leave)),
    )
    return _experiment(world, method, world.learner, schedule)


def _smoke(world: World) -> Experiment:
    """Twenty tasks: in few random steps each, so many are needed to find anything for M_*."""
    quick = _quick(world)
    assert isinstance(quick.method, Mesa)
    tiny = Schedule(
        4_000,
        num_envs=10,
        num_evaluations=3,
        warmup_steps=3_200,
        updates_per_round=1,
        batch_size=4,
        replay_capacity=100,
    )
    method = replace(quick.method, collect=tiny, explore=Budget(1_600, 16, 3), coverage_episodes=10)
    return replace(quick, method=method, schedule=tiny, num_train_tasks=20, num_test_tasks=2, eval_episodes=4)


MESA = {"paper": _paper, "quick": _quick, "smoke": _smoke}
