"""Every named learner as a value, for each kind of environment: what methods wrap, and what they are compared with.

Quick learners share their nets' sizes, discounts and budgets on an environment wherever the method allows. What was
tried to find the rest, on tasks that no result reports, is said in docs/methods.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient, JointImprovement
from mesax.algorithms.binned import Binned
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex, Independent, Monotonic, Sum
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition
from mesax.envs.base import TaskFamily
from mesax.envs.particle_climb import ParticleClimbFamily
from mesax.envs.swimmer_climb import SwimmerFamily
from mesax.errors import UsageError
from mesax.experiments.names import LEARNERS
from mesax.nets import Adam, Gru, Mlp
from mesax.rewards.features import ObsActionFeatures
from mesax.rewards.rnd import Rnd
from mesax.training.schedule import Budget, Schedule
from mesax.types import Linear, LinearOwnSteps, LinearSteps

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

# PyMARL's settings, as the paper's authors ran them: GRU-64, one layer before it, chance of a random action over 20K.
# These are counted from the end of the warm-up, which PyMARL has not: at 50K random steps they would be over before it.
PAPER_QMIX = ValueDecomposition(optimizer=Adam(5e-4), exploration=LinearOwnSteps(1.0, 0.05, 20_000))
CLIMB_QMIX = ValueDecomposition(
    agent_net=Mlp((64, 64)),
    last_action=False,
    optimizer=Adam(2e-3),
    discount=0.95,
    target=Soft(0.02),
    exploration=LinearSteps(1.0, 0.05, 25_000),
)
PARTICLE_QMIX = ValueDecomposition(
    agent_net=Mlp((64, 64)),
    last_action=False,
    trace=0.8,
    optimizer=Adam(1e-3),
    discount=0.97,
    target=Soft(0.02),
    exploration=LinearSteps(1.0, 0.05, 1_000_000),
)
SWIMMER_QMIX = ValueDecomposition(
    agent_net=Mlp((64, 64), octaves=4),
    last_action=False,
    trace=0.5,
    optimizer=Adam(1e-3),
    discount=0.95,
    target=Soft(0.05),
    exploration=LinearSteps(1.0, 0.05, 250_000),
)
MIXERS = {"iql": Independent(), "vdn": Sum(), "qmix": Monotonic(), "qplex": Duplex()}

# The released MAPPO: GRU-64, two layers before it, chunks of 10 steps, all that was played in one minibatch.
PAPER_MAPPO = Mappo(actor_net=Gru(64), critic_net=Gru(64), optimizer=Adam(5e-4), epochs=15, chunk=10)
CLIMB_MAPPO = Mappo(actor_net=Mlp((64, 64)), critic_net=Mlp((64, 64)), optimizer=Adam(7e-4), epochs=10)
PARTICLE_MAPPO = Mappo(
    actor_net=Mlp((64, 64)),
    critic_net=Mlp((128, 128)),
    optimizer=Adam(7e-4),
    epochs=10,
    minibatches=1,
    discount=0.97,
)
SWIMMER_MAPPO = Normalized(
    Mappo(
        actor_net=Mlp((64, 64), octaves=4),
        critic_net=Mlp((64, 64), octaves=4),
        optimizer=Adam(3e-4),
        epochs=10,
        minibatches=4,
        discount=0.95,
        largest_std=Linear(0.5, 0.1, 1.0),
    )
)


def named_learner(name: str, family: TaskFamily, preset: str, own: Any) -> Any:
    """The off-policy learner of that name for a family; `own` is the one that the preset wraps by itself."""
    if name not in LEARNERS:
        raise UsageError(f"unknown learner '{name}'; choose one of {', '.join(LEARNERS)}")
    if name == "maddpg":
        return published_maddpg(family, preset)
    if name == "coordinated":
        return _coordinated(own)
    return _value_decomposition(MIXERS[name], family, preset)


def _coordinated(own: Any) -> Any:
    """`own` with the coordinated update, and a joint critic: an additive one says that there is nothing to agree on."""
    if isinstance(own, Normalized):
        return replace(own, algorithm=_coordinated(own.algorithm))
    return replace(own, actor_update=JointImprovement(), actor_batch_size=8, additive_critic=False)


def _value_decomposition(mixer: Any, family: TaskFamily, preset: str) -> Any:
    swimmer = isinstance(family, SwimmerFamily)
    if preset == "paper":
        learner = replace(PAPER_QMIX, mixer=mixer)
        return Binned(learner) if swimmer else learner
    if swimmer:
        return Normalized(Binned(replace(SWIMMER_QMIX, mixer=mixer)))
    return replace(PARTICLE_QMIX if isinstance(family, ParticleClimbFamily) else CLIMB_QMIX, mixer=mixer)


def published_maddpg(family: TaskFamily, preset: str) -> Maddpg:
    """MADDPG with the decentralized gradient of its authors."""
    if isinstance(family, ParticleClimbFamily):
        return PAPER_PARTICLE_MADDPG if preset == "paper" else QUICK_PARTICLE_MADDPG
    if isinstance(family, SwimmerFamily):
        return PAPER_SWIMMER_MADDPG if preset == "paper" else QUICK_SWIMMER_MADDPG
    return PAPER_MADDPG if preset == "paper" else QUICK_MADDPG


def mappo(family: TaskFamily, preset: str, schedule: Schedule) -> tuple[Any, Budget]:
    """MAPPO, with as many environment steps and evaluations as `schedule` has."""
    particles, swimmer = isinstance(family, ParticleClimbFamily), isinstance(family, SwimmerFamily)
    envs = min(schedule.num_envs, 16) if swimmer else 32
    budget = Budget(schedule.total_steps, envs, schedule.num_evaluations)
    if preset == "paper":
        published = replace(PAPER_MAPPO, optimizer=Adam(7e-4), epochs=10) if particles else PAPER_MAPPO
        return published, replace(budget, num_envs=128) if particles else budget
    return (PARTICLE_MAPPO if particles else SWIMMER_MAPPO if swimmer else CLIMB_MAPPO), budget


def rnd(family: TaskFamily) -> Rnd:
    """The bonus of MAPPO-RND: for joint observations, and in the climb games, where these say little, for actions."""
    if isinstance(family, ParticleClimbFamily | SwimmerFamily):
        return Rnd()
    return Rnd(features=ObsActionFeatures(obs_weight=1.0, action_weight=1.0))
