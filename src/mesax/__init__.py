"""mesax: cooperative meta-exploration (MESA) for multi-agent reinforcement learning, on JAX.

All that a user needs is offered here by name, and imported when it is asked for: the command line must answer `--help`
at once, and `import mesax` loads no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mesax.algorithms.actor_updates import ExpectedGradient as ExpectedGradient
    from mesax.algorithms.actor_updates import GumbelGradient as GumbelGradient
    from mesax.algorithms.actor_updates import ImmediateElites as ImmediateElites
    from mesax.algorithms.actor_updates import JointImprovement as JointImprovement
    from mesax.algorithms.base import Learner as Learner
    from mesax.algorithms.base import OffPolicy as OffPolicy
    from mesax.algorithms.base import OnPolicy as OnPolicy
    from mesax.algorithms.binned import Binned as Binned
    from mesax.algorithms.emc import BestReturns as BestReturns
    from mesax.algorithms.emc import Curiosity as Curiosity
    from mesax.algorithms.emc import Emc as Emc
    from mesax.algorithms.emc import Falling as Falling
    from mesax.algorithms.guided import Guided as Guided
    from mesax.algorithms.maddpg import Maddpg as Maddpg
    from mesax.algorithms.maesn import LatentPolicyGradient as LatentPolicyGradient
    from mesax.algorithms.mappo import Mappo as Mappo
    from mesax.algorithms.maven import CodedValues as CodedValues
    from mesax.algorithms.maven import Maven as Maven
    from mesax.algorithms.maven import Reinforce as Reinforce
    from mesax.algorithms.mixers import Duplex as Duplex
    from mesax.algorithms.mixers import Independent as Independent
    from mesax.algorithms.mixers import Monotonic as Monotonic
    from mesax.algorithms.mixers import StateDuplex as StateDuplex
    from mesax.algorithms.mixers import Sum as Sum
    from mesax.algorithms.normalized import Normalized as Normalized
    from mesax.algorithms.value_decomposition import ValueDecomposition as ValueDecomposition
    from mesax.envs.adapters.family import ForeignFamily as ForeignFamily
    from mesax.envs.adapters.foreign import ForeignEnvironment as ForeignEnvironment
    from mesax.envs.adapters.jaxmarl import JaxMarlEnvironment as JaxMarlEnvironment
    from mesax.envs.adapters.pettingzoo_export import parallel_env as parallel_env
    from mesax.envs.base import Environment as Environment
    from mesax.envs.base import HostBatch as HostBatch
    from mesax.envs.base import HostEnvironment as HostEnvironment
    from mesax.envs.base import HostStep as HostStep
    from mesax.envs.base import Step as Step
    from mesax.envs.base import TaskFamily as TaskFamily
    from mesax.envs.base import TaskInfo as TaskInfo
    from mesax.envs.base import TaskSplit as TaskSplit
    from mesax.envs.climb import ClimbFamily as ClimbFamily
    from mesax.errors import StoreError as StoreError
    from mesax.errors import TrainingError as TrainingError
    from mesax.errors import UsageError as UsageError
    from mesax.execution.ray_cluster.where import OnRay as OnRay
    from mesax.execution.run_experiment import run_experiment as run_experiment
    from mesax.execution.saved_policies import LearnedPolicy as LearnedPolicy
    from mesax.execution.saved_policies import load_policy as load_policy
    from mesax.experiments.catalogue import experiment as experiment
    from mesax.experiments.rebuild import experiment_of as experiment_of
    from mesax.explorers.foreign_loop import EpisodeMixer as EpisodeMixer
    from mesax.explorers.foreign_loop import Explorers as Explorers
    from mesax.explorers.foreign_loop import Player as Player
    from mesax.explorers.foreign_loop import load_explorers as load_explorers
    from mesax.explorers.shared_latent import SharedLatent as SharedLatent
    from mesax.explorers.tours import TourPlan as TourPlan
    from mesax.methods.base import Experiment as Experiment
    from mesax.methods.base import Method as Method
    from mesax.methods.base import Stage as Stage
    from mesax.methods.controls import Diagonal as Diagonal
    from mesax.methods.controls import Plain as Plain
    from mesax.methods.controls import Tour as Tour
    from mesax.methods.controls import Uniform as Uniform
    from mesax.methods.filled import Filled as Filled
    from mesax.methods.learned import LearnedMesa as LearnedMesa
    from mesax.methods.maesn import Maesn as Maesn
    from mesax.methods.mesa.method import Mesa as Mesa
    from mesax.methods.mesa.structured import StructuredMesa as StructuredMesa
    from mesax.methods.preset import NamedLearner as NamedLearner
    from mesax.methods.preset import Preset as Preset
    from mesax.methods.transfer import CBet as CBet
    from mesax.methods.transfer import Pretrain as Pretrain
    from mesax.methods.transfer import Pretraining as Pretraining
    from mesax.nets import Adam as Adam
    from mesax.nets import AttentionOverAgents as AttentionOverAgents
    from mesax.nets import AttentionOverOthers as AttentionOverOthers
    from mesax.nets import Entities as Entities
    from mesax.nets import FeedForward as FeedForward
    from mesax.nets import Gru as Gru
    from mesax.nets import Mlp as Mlp
    from mesax.nets import RmsProp as RmsProp
    from mesax.nets import Trainable as Trainable
    from mesax.nets import WithChange as WithChange
    from mesax.nets import polyak as polyak
    from mesax.nets import unroll_batch as unroll_batch
    from mesax.ours.entities import Block as Block
    from mesax.ours.entities import DeclaredEntities as DeclaredEntities
    from mesax.ours.learned_records import LearnedRecords as LearnedRecords
    from mesax.ours.learned_reward import RewardFit as RewardFit
    from mesax.policy import EpsilonRandom as EpsilonRandom
    from mesax.policy import Policy as Policy
    from mesax.policy import UniformPolicy as UniformPolicy
    from mesax.rewards.base import RewardModel as RewardModel
    from mesax.rewards.base import TaskReward as TaskReward
    from mesax.rewards.counts import CountReward as CountReward
    from mesax.rewards.counts import ProjectedKeys as ProjectedKeys
    from mesax.rewards.coverage import CoverageReward as CoverageReward
    from mesax.rewards.coverage import RecordReward as RecordReward
    from mesax.rewards.features import JointAngles as JointAngles
    from mesax.rewards.features import ObsActionFeatures as ObsActionFeatures
    from mesax.rewards.features import SortedOccupancy as SortedOccupancy
    from mesax.rewards.high_reward import Threshold as Threshold
    from mesax.rewards.rnd import Rnd as Rnd
    from mesax.suites.base import Suite as Suite
    from mesax.training.behavior import Mixing as Mixing
    from mesax.training.loop import Start as Start
    from mesax.training.rollout import play as play
    from mesax.training.schedule import Budget as Budget
    from mesax.training.schedule import Prioritized as Prioritized
    from mesax.training.schedule import Schedule as Schedule
    from mesax.types import Box as Box
    from mesax.types import Discrete as Discrete
    from mesax.types import Elapsed as Elapsed
    from mesax.types import EnvSpec as EnvSpec
    from mesax.types import Episode as Episode
    from mesax.types import Label as Label
    from mesax.types import Linear as Linear
    from mesax.types import LinearOwnSteps as LinearOwnSteps
    from mesax.types import LinearSteps as LinearSteps
    from mesax.types import Transition as Transition
    from mesax.types import masked_mean as masked_mean
    from mesax.types import tree_index as tree_index

__version__ = "0.1.0"
_MODULES = {
    "algorithms.actor_updates": ("ExpectedGradient", "GumbelGradient", "ImmediateElites", "JointImprovement"),
    "algorithms.base": ("Learner", "OffPolicy", "OnPolicy"),
    "algorithms.binned": ("Binned",),
    "algorithms.emc": ("BestReturns", "Curiosity", "Emc", "Falling"),
    "algorithms.guided": ("Guided",),
    "algorithms.maddpg": ("Maddpg",),
    "algorithms.maesn": ("LatentPolicyGradient",),
    "algorithms.mappo": ("Mappo",),
    "algorithms.maven": ("CodedValues", "Maven", "Reinforce"),
    "algorithms.mixers": ("Duplex", "Independent", "Monotonic", "StateDuplex", "Sum"),
    "algorithms.normalized": ("Normalized",),
    "algorithms.value_decomposition": ("ValueDecomposition",),
    "envs.adapters.family": ("ForeignFamily",),
    "envs.adapters.foreign": ("ForeignEnvironment",),
    "envs.adapters.jaxmarl": ("JaxMarlEnvironment",),
    "envs.adapters.pettingzoo_export": ("parallel_env",),
    "envs.base": (
        "Environment",
        "HostBatch",
        "HostEnvironment",
        "HostStep",
        "Step",
        "TaskFamily",
        "TaskInfo",
        "TaskSplit",
    ),
    "envs.climb": ("ClimbFamily",),
    "errors": ("StoreError", "TrainingError", "UsageError"),
    "execution.ray_cluster.where": ("OnRay",),
    "execution.run_experiment": ("run_experiment",),
    "execution.saved_policies": ("LearnedPolicy", "load_policy"),
    "experiments.catalogue": ("experiment",),
    "experiments.rebuild": ("experiment_of",),
    "explorers.foreign_loop": ("EpisodeMixer", "Explorers", "Player", "load_explorers"),
    "explorers.shared_latent": ("SharedLatent",),
    "explorers.tours": ("TourPlan",),
    "methods.base": ("Experiment", "Method", "Stage"),
    "methods.controls": ("Diagonal", "Plain", "Tour", "Uniform"),
    "methods.filled": ("Filled",),
    "methods.learned": ("LearnedMesa",),
    "methods.maesn": ("Maesn",),
    "methods.mesa.method": ("Mesa",),
    "methods.mesa.structured": ("StructuredMesa",),
    "methods.preset": ("NamedLearner", "Preset"),
    "methods.transfer": ("CBet", "Pretrain", "Pretraining"),
    "nets": (
        "Adam",
        "AttentionOverAgents",
        "AttentionOverOthers",
        "Entities",
        "FeedForward",
        "Gru",
        "Mlp",
        "RmsProp",
        "Trainable",
        "WithChange",
        "polyak",
        "unroll_batch",
    ),
    "ours.entities": ("Block", "DeclaredEntities"),
    "ours.learned_records": ("LearnedRecords",),
    "ours.learned_reward": ("RewardFit",),
    "policy": ("EpsilonRandom", "Policy", "UniformPolicy"),
    "rewards.base": ("RewardModel", "TaskReward"),
    "rewards.counts": ("CountReward", "ProjectedKeys"),
    "rewards.coverage": ("CoverageReward", "RecordReward"),
    "rewards.features": ("JointAngles", "ObsActionFeatures", "SortedOccupancy"),
    "rewards.high_reward": ("Threshold",),
    "rewards.rnd": ("Rnd",),
    "suites.base": ("Suite",),
    "training.behavior": ("Mixing",),
    "training.loop": ("Start",),
    "training.rollout": ("play",),
    "training.schedule": ("Budget", "Prioritized", "Schedule"),
    "types": (
        "Box",
        "Discrete",
        "Elapsed",
        "EnvSpec",
        "Episode",
        "Label",
        "Linear",
        "LinearOwnSteps",
        "LinearSteps",
        "Transition",
        "masked_mean",
        "tree_index",
    ),
}
"""Where each name is defined; the imports above say the same to type checkers."""
_HOMES = {name: f"mesax.{module}" for module, names in _MODULES.items() for name in names}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mesax' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
