"""Every named run as a value: method x environment x preset -> Experiment.

`plain` and `uniform` share learner and schedule with `mesa` in the same preset, by construction. What each preset
changes against the paper is printed by every run and explained in docs/deviations.md.
"""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient, JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.normalized import Normalized
from mesax.envs.base import TaskFamily
from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.envs.swimmer_climb import SwimmerFamily
from mesax.errors import UsageError
from mesax.experiments.names import ENVIRONMENTS, METHODS, PRESETS
from mesax.methods.base import Experiment
from mesax.methods.mesa import Mesa
from mesax.methods.single_task import Plain, Uniform
from mesax.nets import Adam, Entities, Gru, Mlp
from mesax.rewards.coverage import CoverageReward, RecordReward
from mesax.rewards.features import JointAngles, SortedOccupancy
from mesax.training.off_policy import Budget, Mixing, Schedule
from mesax.types import Linear

FAMILIES: dict[str, ClimbFamily | ParticleClimbFamily | SwimmerFamily] = {
    "climb-one": ClimbFamily(num_stages=1),
    "climb-multi": ClimbFamily(num_stages=5),
    **{f"mpe-{n}a{u}l": ParticleClimbFamily(ParticleClimb(n, u)) for n, u in ((2, 3), (2, 5), (2, 6), (3, 5), (3, 6))},
    "swimmer": SwimmerFamily(),
}

# Table 1 of the paper: GRU-64, Adam 5e-3, 32 trajectories an update, 3000 random steps.
PAPER_MADDPG = Maddpg(
    actor_net=Gru(64),
    critic_net=Gru(64),
    actor_update=GumbelGradient("policy"),
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
)
QUICK_MADDPG = replace(PAPER_MADDPG, actor_net=Mlp((64, 64)), critic_net=Mlp((64, 64)))
COORDINATED = Maddpg(
    actor_net=Mlp((64,)),
    critic_net=Mlp((64,)),
    actor_update=JointImprovement(),
    actor_batch_size=8,
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
)
COORDINATED_MULTI = replace(
    COORDINATED,
    critic_net=Mlp((64, 64)),
    actor_optimizer=Adam(2e-3),
    critic_optimizer=Adam(2e-3),
    discount=0.95,
    target_rate=0.02,
)
QUICK_EXPLORER = Maddpg(
    actor_net=Mlp((64,)),
    critic_net=Mlp((64,)),
    actor_update=ExpectedGradient("policy"),
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
    entropy_bonus=0.3,
)

# The same table for particle worlds: Adam 1e-4, 300 trajectories an update, 50K random steps.
PAPER_PARTICLE_MADDPG = replace(PAPER_MADDPG, actor_optimizer=Adam(1e-4), critic_optimizer=Adam(1e-4))
QUICK_PARTICLE_MADDPG = replace(QUICK_MADDPG, actor_optimizer=Adam(7e-4), critic_optimizer=Adam(7e-4))
PARTICLE_LEARNER = Maddpg(
    actor_net=Mlp((64, 64)),
    critic_net=Mlp((128, 128)),
    actor_update=ExpectedGradient("policy"),
    trace=0.8,
    actor_optimizer=Adam(2e-3),
    critic_optimizer=Adam(2e-3),
    discount=0.97,
    target_rate=0.02,
    entropy_bonus=0.05,
    exploration=Linear(0.05, 0.05, 0.0),
)
PARTICLE_EXPLORER = Mappo(
    values_of="own",
    optimizer=Adam(2e-3, clip_norm=0.5),
    final_rate=0.1,
    epochs=2,
    minibatches=8,
    discount=0.95,
    gae=0.9,
)

# And for the swimmer: 8 trajectories an update. Continuous actions, so the gradient passes through the action itself.
PAPER_SWIMMER_MADDPG = replace(PAPER_PARTICLE_MADDPG, exploration=Linear(0.1, 0.1, 0.0))
QUICK_SWIMMER_MADDPG = replace(
    QUICK_MADDPG,
    actor_optimizer=Adam(1e-3),
    critic_optimizer=Adam(1e-3),
    exploration=Linear(0.1, 0.1, 0.0),
)
# The reward changes within a few degrees: plain nets smooth the narrow band away, and with it all reason to go there.
SWIMMER_LEARNER = Normalized(
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
SWIMMER_EXPLORER = Mappo(
    optimizer=Adam(7e-4, clip_norm=0.5),
    final_rate=0.1,
    epochs=3,
    minibatches=4,
    discount=0.99,
    entropy_bonus=0.0,
    largest_std=Linear(0.4, 0.15, 1.0),
)


def experiment(method: str, environment: str, preset: str) -> Experiment:
    """The named experiment, or a `UsageError` that lists the choices."""
    for word, choices, value in (
        ("method", METHODS, method),
        ("environment", ENVIRONMENTS, environment),
        ("preset", PRESETS, preset),
    ):
        if value not in choices:
            raise UsageError(f"unknown {word} '{value}'; choose one of {', '.join(choices)}")
    mesa = _mesa(environment, preset)
    if method == "mesa":
        return mesa
    assert isinstance(mesa.method, Mesa)
    if method == "uniform":
        return replace(mesa, method=Uniform(mesa.method.mixing))
    if method == "plain":
        return replace(mesa, method=Plain())
    return replace(mesa, method=Plain(), algorithm=_published_maddpg(mesa.family, preset))


def _published_maddpg(family: TaskFamily, preset: str) -> Maddpg:
    if isinstance(family, ParticleClimbFamily):
        return PAPER_PARTICLE_MADDPG if preset == "paper" else QUICK_PARTICLE_MADDPG
    if isinstance(family, SwimmerFamily):
        return PAPER_SWIMMER_MADDPG if preset == "paper" else QUICK_SWIMMER_MADDPG
    return PAPER_MADDPG if preset == "paper" else QUICK_MADDPG


def _mesa(environment: str, preset: str) -> Experiment:
    family = FAMILIES[environment]
    if isinstance(family, ParticleClimbFamily):
        return _particles(family, preset)
    if isinstance(family, SwimmerFamily):
        return _swimmer(family, preset)
    multi = environment == "climb-multi"
    budget = Schedule(100_000, num_envs=10, replay_capacity=20_000) if multi else Schedule(50_000)
    paper = _paper(environment, budget)
    if preset == "paper":
        return paper
    assert isinstance(paper.method, Mesa)
    schedule = replace(budget, updates_per_round=4 if multi else 2)
    method = replace(
        paper.method,
        explorer=QUICK_EXPLORER,
        collect=replace(schedule, total_steps=10_000, num_evaluations=10),
        explore=replace(schedule, total_steps=30_000 if multi else 20_000, num_evaluations=10),
        least_value=0.1,
        reward=CoverageReward(normalize=True),
        global_count="probability",
    )
    quick = replace(paper, algorithm=COORDINATED_MULTI if multi else COORDINATED, schedule=schedule, method=method)
    return quick if preset == "quick" else _smoke(quick)


def _paper(environment: str, schedule: Schedule) -> Experiment:
    """Table 1's budgets; one round is 50 environment steps and two updates in both games (see docs/deviations.md)."""
    return Experiment(
        method=Mesa(
            explorer=PAPER_MADDPG,
            collect=replace(schedule, total_steps=30_000),
            explore=schedule,
            mixing=Mixing(Linear(0.8, 0.0, 0.6)),
        ),
        family=FAMILIES[environment],
        algorithm=PAPER_MADDPG,
        schedule=schedule,
    )


def _particles(family: ParticleClimbFamily, preset: str) -> Experiment:
    """Particle worlds; where Table 1 has two numbers for MPE, the first is read as that of 2 agents."""
    world = family.world
    few = world.num_agents <= 2
    schedule = Schedule(3_000_000 if few else 6_000_000, 64, 50, 50_000, 8, 300, 5_000)
    method = Mesa(
        explorer=PAPER_PARTICLE_MADDPG,
        collect=replace(schedule, total_steps=500_000, num_evaluations=10),
        explore=replace(schedule, total_steps=3_000_000, num_evaluations=15),
        capacity=256,
        num_clusters=world.num_landmarks,
        reward=CoverageReward(_occupancy(world), distance_threshold=0.15),
        num_explorers=2 if few else 4,
        mixing=Mixing(Linear(0.5, 0.0, 0.5)),
    )
    paper = Experiment(method, family, PAPER_PARTICLE_MADDPG, schedule, num_train_tasks=30, eval_episodes=32, lanes=1)
    if preset == "paper":
        return paper
    net = Entities(world.num_landmarks, world.num_agents - 1, world.num_own, told=2)
    # More landmarks take explorers longer to learn, and learners longer to find the one that counts.
    many = world.num_landmarks > 5
    steps = 2_000_000 if few else 3_000_000
    decisions = 1_100_000 if few else 1_600_000
    learning = Schedule(steps + 500_000 * many, 80, 30, 50_000, 12 if few else 16, 8, 25_000)
    method = replace(
        method,
        explorer=replace(PARTICLE_EXPLORER, actor_net=net, critic_net=net),
        collect=replace(learning, total_steps=80_000, warmup_steps=60_000, num_evaluations=1),
        explore=Budget(decisions + (700_000 if few else 1_000_000) * many, 256, 12),
        action_repeat=2,
        least_value=0.1,
        reward=RecordReward(
            _occupancy(world), distance_threshold=0.1, tell_demand=True, width=0.5, stay=0.7 if few else 0.6
        ),
        num_explorers=2,
        global_count="probability",
        mixing=Mixing(Linear(0.9, 0.0, 0.6)),
    )
    quick = replace(paper, method=method, algorithm=PARTICLE_LEARNER, schedule=learning)
    if family.count < world.num_agents:
        # With an agent left over, an additive critic learns faster. Where all must meet (k = n), what an agent's move
        # is worth depends on the others', and an additive critic stays at the safe equilibrium.
        quick = replace(quick, algorithm=replace(PARTICLE_LEARNER, additive_critic=True, discount=0.95))
    return quick if preset == "quick" else _smoke(quick)


def _occupancy(world: ParticleClimb) -> SortedOccupancy:
    return SortedOccupancy(world.num_landmarks, world.num_own, world.radius)


def _swimmer(family: SwimmerFamily, preset: str) -> Experiment:
    """The swimmer; quick training episodes are 200 steps long, and evaluation takes the whole horizon."""
    schedule = Schedule(2_500_000, 8, 50, 50_000, 8, 8, 1_000)
    band = family.world.band
    method = Mesa(
        explorer=PAPER_SWIMMER_MADDPG,
        collect=replace(schedule, total_steps=1_000_000, num_evaluations=10),
        explore=replace(schedule, total_steps=3_000_000, num_evaluations=15),
        capacity=256,
        num_clusters=16,
        # Both joints at the edge of the band: sqrt(2) of its half-width away from its center.
        reward=CoverageReward(JointAngles(), distance_threshold=round(2**0.5 * band, 4)),
        num_explorers=2,
        coverage_episodes=20,
        mixing=Mixing(Linear(0.5, 0.0, 0.5)),
    )
    paper = Experiment(
        method,
        family,
        PAPER_SWIMMER_MADDPG,
        schedule,
        num_train_tasks=30,
        num_test_tasks=6,
        eval_episodes=4,
        lanes=1,
    )
    if preset == "paper":
        return paper
    learning = Schedule(512_000, 16, 24, 12_800, 60, 4, 3_000)
    method = replace(
        method,
        explorer=SWIMMER_EXPLORER,
        collect=replace(learning, total_steps=35_200, warmup_steps=32_000, num_evaluations=1, updates_per_round=1),
        explore=Budget(320_000, 32, 12),
        least_value=0.1,
        num_clusters=20,
        # Narrow, so that explorers must stay at an angle; a gentle decay, so that each of them sweeps all angles.
        reward=RecordReward(
            JointAngles(), distance_threshold=0.02, decay_power=1.0, tell_demand=True, width=0.07, stay=0.93
        ),
        global_count="probability",
        snapshot="best",
        mixing=Mixing(Linear(0.9, 0.0, 0.6)),
    )
    quick = replace(paper, method=method, algorithm=SWIMMER_LEARNER, schedule=learning, lanes=3, training_horizon=200)
    if preset == "quick":
        return quick
    tiny = Schedule(640, 4, 2, 320, 2, 4, 20)
    short = replace(family, world=replace(family.world, horizon=60))
    method = replace(
        method,
        collect=replace(tiny, total_steps=1_600, warmup_steps=1_400),
        explore=Budget(640, 4, 2),
        coverage_episodes=4,
    )
    return replace(
        quick,
        family=short,
        method=method,
        schedule=tiny,
        num_train_tasks=20,
        num_test_tasks=2,
        eval_episodes=2,
        lanes=2,
        training_horizon=40,
    )


def _smoke(quick: Experiment) -> Experiment:
    assert isinstance(quick.method, Mesa)
    if isinstance(quick.family, ParticleClimbFamily):
        return _smoke_particles(quick)
    tiny = Schedule(1_000, warmup_steps=500, num_envs=10, batch_size=8, replay_capacity=1_000, num_evaluations=3)
    method = replace(quick.method, collect=tiny, explore=tiny, num_explorers=2, coverage_episodes=10)
    return replace(quick, method=method, schedule=tiny, num_train_tasks=4, num_test_tasks=2, lanes=2)


def _smoke_particles(quick: Experiment) -> Experiment:
    """Twenty tasks: in few random steps each, so many are needed to find anything for M_*."""
    assert isinstance(quick.method, Mesa)
    tiny = Schedule(4_000, 10, 3, 3_200, 1, 4, 100)
    method = replace(quick.method, collect=tiny, explore=Budget(1_600, 16, 3), coverage_episodes=10)
    return replace(quick, method=method, schedule=tiny, num_train_tasks=20, num_test_tasks=2, eval_episodes=4)
