"""Climb games in every preset: MESA's experiment and all named learners.

Quick learners share their nets' sizes, discounts and budgets wherever the method allows. What was tried to find the
rest, on tasks that no result reports, is said in docs/methods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient
from mesax.algorithms.coordinated import ImmediateElites, JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition
from mesax.baselines.counts import ActionKeys
from mesax.baselines.emc import BestReturns, Curiosity, Emc, Falling
from mesax.baselines.rnd import Rnd
from mesax.baselines.scripts import SameActions, ToldActions
from mesax.envs.base import TaskFamily
from mesax.envs.climb import ClimbFamily, SpecialAction
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.mesa.mixing import Mixing
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Gru, Mlp, PerAction
from mesax.rewards.features import ObsActionFeatures
from mesax.suites.tables import (
    PYMARL_EMC_IN_GAMES,
    PYMARL_MAVEN,
    PYMARL_VALUES,
    RELEASED_MAPPO,
    by_mixer,
    columns,
    coordinated,
    maven,
    one_by_one,
)
from mesax.training.schedule import Prioritized, Schedule, on_policy
from mesax.types import Linear, LinearSteps

# Table 1 of the paper: GRU-64, Adam 5e-3, 32 trajectories an update, 3000 random steps.
PAPER_MADDPG = Maddpg(
    actor_net=Gru(64),
    critic_net=Gru(64),
    actor_update=GumbelGradient("policy"),
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
)
ONE_STEP_LEARNER = Maddpg(
    actor_net=Mlp((64,)),
    critic_net=Mlp((64,)),
    actor_update=JointImprovement(),
    actor_batch_size=8,
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
)
MULTI_STAGE_LEARNER = replace(
    ONE_STEP_LEARNER,
    critic_net=Mlp((64, 64)),
    actor_optimizer=Adam(2e-3),
    critic_optimizer=Adam(2e-3),
    discount=0.95,
    target_rate=0.02,
)
# Ten thousand joint actions and more: most candidates come from explorers, and own random actions find nothing.
WIDE_LEARNER = replace(
    ONE_STEP_LEARNER,
    actor_update=JointImprovement(num_explorer=32, num_policy=1, num_uniform=0),
    exploration=Linear(0.05, 0.05, 0.0),
)
STAGES_LEARNER = replace(
    MULTI_STAGE_LEARNER,
    actor_update=ImmediateElites(num_explorer=32, num_policy=1, num_uniform=0),
    exploration=WIDE_LEARNER.exploration,
)
EXPLORER = Maddpg(
    actor_net=Mlp((64,)),
    critic_net=Mlp((64,)),
    actor_update=ExpectedGradient("policy"),
    actor_optimizer=Adam(5e-3),
    critic_optimizer=Adam(5e-3),
    entropy_bonus=0.3,
)

MADDPG = columns(
    paper=PAPER_MADDPG,
    quick=replace(PAPER_MADDPG, actor_net=Mlp((64, 64)), critic_net=Mlp((64, 64))),
)
QMIX = columns(
    paper=PYMARL_VALUES,
    quick=ValueDecomposition(
        agent_net=Mlp((64, 64)),
        last_action=False,
        optimizer=Adam(2e-3),
        discount=0.95,
        target=Soft(0.02),
        exploration=LinearSteps(1.0, 0.05, 25_000),
    ),
)
MAVEN = columns(
    paper=PYMARL_MAVEN,
    # With the released weight of 1 telling z outweighs what is paid: not even what one agent decides is learned.
    quick=maven(QMIX["quick"], 16, information_weight=0.01),
)
# With QPLEX and the memory of the release's large games; curiosity as in its small ones. Agents see their last action:
# what follows the only step of a game looks the same whatever was played.
EMC = columns(
    paper=PYMARL_EMC_IN_GAMES,
    quick=Emc(
        replace(QMIX["quick"], mixer=Duplex(), last_action=True),
        Curiosity(Falling(0.2, 0.9, 5_000, floor=0.01), optimizer=Adam(2e-3)),
        BestReturns(0.1, capacity=2**14, tolerance=1e-3),
    ),
)
MAPPO = columns(
    paper=RELEASED_MAPPO,
    quick=Mappo(actor_net=Mlp((64, 64)), critic_net=Mlp((64, 64)), optimizer=Adam(7e-4), epochs=10),
)
MAPPO_ENVS = 32
# The bonus is for joint actions too: observations say little in these games.
RND = Rnd(features=ObsActionFeatures(obs_weight=1.0, action_weight=1.0))


@dataclass(frozen=True)
class Game:
    """What differs between the games."""

    family: ClimbFamily
    schedule: Schedule
    """Schedule of the paper; a round is 50 environment steps and two updates in both games (see docs/deviations.md)."""
    learner: Maddpg
    """What MESA wraps in the quick preset, as all that follows."""
    updates_per_round: int
    explore_steps: int
    collect: Schedule | None = None
    """Stage 1, if not a shorter schedule of the same kind."""
    num_test_tasks: int = 5


FIVE_STAGES = Game(
    ClimbFamily(num_stages=5, counts=(2,), see_history=False, published=True),
    Schedule(100_000, num_envs=10, replay_capacity=20_000),
    learner=MULTI_STAGE_LEARNER,
    updates_per_round=4,
    explore_steps=30_000,
)
GAMES = {
    "climb-one": Game(
        ClimbFamily(num_stages=1),
        Schedule(50_000),
        learner=ONE_STEP_LEARNER,
        updates_per_round=2,
        explore_steps=20_000,
    ),
    "climb-multi": FIVE_STAGES,
    "climb-multi-mixed": replace(FIVE_STAGES, family=ClimbFamily(num_stages=5)),
    "climb-wide": Game(
        ClimbFamily(num_actions=100, counts=(2,)),
        Schedule(30_000, warmup_steps=500, num_evaluations=30),
        learner=WIDE_LEARNER,
        updates_per_round=2,
        explore_steps=20_000,
        collect=Schedule(30_000, warmup_steps=29_000, num_evaluations=1),
        num_test_tasks=10,
    ),
    "climb-trio": Game(
        ClimbFamily(num_agents=3, num_actions=30, counts=(3,)),
        Schedule(40_000, warmup_steps=500, num_evaluations=30),
        learner=WIDE_LEARNER,
        updates_per_round=2,
        explore_steps=20_000,
        collect=Schedule(40_000, warmup_steps=39_000, num_evaluations=1),
        num_test_tasks=10,
    ),
    "climb-stages": Game(
        ClimbFamily(num_actions=30, num_stages=5, counts=(2,)),
        Schedule(80_000, warmup_steps=500, num_envs=10, replay_capacity=20_000, num_evaluations=30),
        learner=STAGES_LEARNER,
        updates_per_round=4,
        explore_steps=30_000,
        collect=Schedule(20_000, warmup_steps=19_000, num_envs=10, replay_capacity=20_000, num_evaluations=1),
        num_test_tasks=10,
    ),
}


def family_of(environment: str) -> TaskFamily:
    """All games of one size."""
    return GAMES[environment].family


def preset(environment: str, name: str) -> Preset:
    """A climb game in one preset."""
    mesa = MESA[name](GAMES[environment])
    budget = on_policy(mesa.schedule, MAPPO_ENVS)
    alone = by_priority = None
    if name == "paper":
        alone = one_by_one(mesa.schedule.total_steps, GAMES[environment].family.num_stages, tested_every=1_000)
        by_priority = Prioritized(**vars(alone))
    return Preset(
        mesa,
        {
            "maddpg": NamedLearner(MADDPG[name]),
            "coordinated": NamedLearner(coordinated(mesa.algorithm)),
            **by_mixer(lambda mixer: replace(QMIX[name], mixer=mixer), alone),
            "maven": NamedLearner(MAVEN[name], alone),
            "emc": NamedLearner(EMC[name], by_priority),
            "mappo": NamedLearner(MAPPO[name], budget),
        },
        goal=SpecialAction(),
        reward_models=(RND,),
        goal_net=PerAction() if name != "paper" else None,
        keys=ActionKeys(seen=GAMES[environment].family.num_stages),
        tour=SameActions(),
        script=ToldActions(),
    )


def _paper(game: Game) -> Experiment:
    """Table 1's budgets."""
    method = Mesa(
        explorer=PAPER_MADDPG,
        collect=replace(game.schedule, total_steps=30_000),
        explore=game.schedule,
        mixing=Mixing(Linear(0.8, 0.0, 0.6)),
    )
    return Experiment(method, game.family, PAPER_MADDPG, game.schedule)


def _quick(game: Game) -> Experiment:
    schedule = replace(game.schedule, updates_per_round=game.updates_per_round)
    method = Mesa(
        explorer=EXPLORER,
        collect=game.collect or replace(schedule, total_steps=10_000, num_evaluations=10),
        explore=replace(schedule, total_steps=game.explore_steps, num_evaluations=10),
        relabel_discount=0.0,
        reward=CoverageReward(normalize=True),
        global_count="probability",
        mixing=Mixing(Linear(0.8, 0.0, 0.6)),
    )
    return Experiment(method, game.family, game.learner, schedule, num_test_tasks=game.num_test_tasks)


def _smoke(game: Game) -> Experiment:
    quick = _quick(game)
    assert isinstance(quick.method, Mesa)
    tiny = Schedule(1_000, warmup_steps=500, num_envs=10, batch_size=8, replay_capacity=1_000, num_evaluations=3)
    method = replace(quick.method, collect=tiny, explore=tiny, num_explorers=2, coverage_episodes=10)
    # Few enough joint actions for random play to find what pays in so short a time.
    few = replace(game.family, num_actions=10 if game.family.num_agents == 2 else 6)
    return replace(quick, method=method, family=few, schedule=tiny, num_train_tasks=4, num_test_tasks=2, lanes=2)


MESA = {"paper": _paper, "quick": _quick, "smoke": _smoke}
