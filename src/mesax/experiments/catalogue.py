"""Every named run as a value: method x environment x preset -> Experiment.

`plain` and `uniform` share learner and schedule with `mesa` in the same preset, by construction. What each preset
changes against the paper is printed by every run and explained in docs/deviations.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.envs.swimmer_climb import SwimmerFamily
from mesax.errors import UsageError
from mesax.experiments.names import ENVIRONMENTS, LEARNERS, METHODS, PRESETS, WRAPPERS
from mesax.methods.base import Experiment, Method
from mesax.methods.controls import Plain, Uniform
from mesax.methods.mesa.method import Mesa
from mesax.nets import Entities
from mesax.rewards.base import TaskReward
from mesax.rewards.coverage import CoverageReward, RecordReward
from mesax.rewards.features import JointAngles, SortedOccupancy
from mesax.suites.learners import (
    COORDINATED,
    COORDINATED_MULTI,
    PAPER_MADDPG,
    PAPER_PARTICLE_MADDPG,
    PAPER_SWIMMER_MADDPG,
    PARTICLE_EXPLORER,
    PARTICLE_LEARNER,
    QUICK_EXPLORER,
    SWIMMER_EXPLORER,
    SWIMMER_LEARNER,
    mappo,
    named_learner,
    rnd,
)
from mesax.training.behavior import Mixing
from mesax.training.schedule import Budget, Schedule
from mesax.types import Linear

FAMILIES: dict[str, ClimbFamily | ParticleClimbFamily | SwimmerFamily] = {
    "climb-one": ClimbFamily(num_stages=1),
    "climb-multi": ClimbFamily(num_stages=5),
    **{f"mpe-{n}a{u}l": ParticleClimbFamily(ParticleClimb(n, u)) for n, u in ((2, 3), (2, 5), (2, 6), (3, 5), (3, 6))},
    "swimmer": SwimmerFamily(),
}


def experiment(method: str, environment: str, preset: str, learner: str | None = None) -> Experiment:
    """The named experiment, or a `UsageError` that lists the choices; `learner` replaces what the preset wraps."""
    for word, choices, value in (
        ("method", METHODS, method),
        ("environment", ENVIRONMENTS, environment),
        ("preset", PRESETS, preset),
    ):
        if value not in choices:
            raise UsageError(f"unknown {word} '{value}'; choose one of {', '.join(choices)}")
    if learner is not None and method not in WRAPPERS:
        raise UsageError(f"method '{method}' is a learner itself: --learner goes with {', '.join(WRAPPERS)}")
    mesa = _mesa(environment, preset)
    assert isinstance(mesa.method, Mesa) and isinstance(mesa.schedule, Schedule)
    if method in LEARNERS:
        return replace(mesa, method=Plain(), algorithm=_chosen(method, mesa, preset))
    if method in ("mappo", "mappo-rnd"):
        algorithm, budget = mappo(mesa.family, preset, mesa.schedule)
        bonus = rnd(mesa.family) if method == "mappo-rnd" else TaskReward()
        return replace(mesa, method=Plain(), algorithm=algorithm, schedule=budget, reward_model=bonus)
    around: dict[str, Method] = {"mesa": mesa.method, "uniform": Uniform(mesa.method.mixing), "plain": Plain()}
    algorithm = mesa.algorithm if learner is None else _chosen(learner, mesa, preset)
    return replace(mesa, method=around[method], algorithm=algorithm)


def _chosen(learner: str, mesa: Experiment, preset: str) -> Any:
    return named_learner(learner, mesa.family, preset, mesa.algorithm)


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
