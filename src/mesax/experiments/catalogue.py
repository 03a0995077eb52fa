"""Every named run as a value: method x environment x preset -> Experiment.

`plain` and `uniform` share learner and schedule with `mesa` in the same preset, by construction. What each preset
changes against the paper is printed by every run and explained in docs/deviations.md.
"""

from __future__ import annotations

from dataclasses import replace

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient, JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.envs.climb import ClimbFamily
from mesax.errors import UsageError
from mesax.experiments.names import ENVIRONMENTS, METHODS, PRESETS
from mesax.methods.base import Experiment
from mesax.methods.mesa import Mesa
from mesax.methods.single_task import Plain, Uniform
from mesax.nets import Adam, Gru, Mlp
from mesax.rewards.coverage import CoverageReward
from mesax.training.off_policy import Mixing, Schedule
from mesax.types import Linear

FAMILIES = {"climb-one": ClimbFamily(num_stages=1), "climb-multi": ClimbFamily(num_stages=5)}

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
    return replace(mesa, method=Plain(), algorithm=_published_maddpg(preset))


def _published_maddpg(preset: str) -> Maddpg:
    return PAPER_MADDPG if preset == "paper" else QUICK_MADDPG


def _mesa(environment: str, preset: str) -> Experiment:
    multi = environment == "climb-multi"
    paper = _paper(environment, Schedule(100_000, num_envs=10, replay_capacity=20_000) if multi else Schedule(50_000))
    if preset == "paper":
        return paper
    assert isinstance(paper.method, Mesa)
    schedule = replace(paper.schedule, updates_per_round=4 if multi else 2)
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


def _smoke(quick: Experiment) -> Experiment:
    assert isinstance(quick.method, Mesa)
    tiny = Schedule(1_000, warmup_steps=500, num_envs=10, batch_size=8, replay_capacity=1_000, num_evaluations=3)
    method = replace(quick.method, collect=tiny, explore=tiny, num_explorers=2, coverage_episodes=10)
    return replace(quick, method=method, schedule=tiny, num_train_tasks=4, num_test_tasks=2, lanes=2)
