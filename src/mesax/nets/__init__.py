"""Networks as values (`sequence`), of several kinds, with their optimizer (`optim`)."""

from mesax.nets.actions import ActionNet, PerAction
from mesax.nets.change import ChangeNet, WithChange
from mesax.nets.dense import Dense, FeedForward, LayerNorm, Mlp, Products, waves
from mesax.nets.entities import Entities, EntityNet, mean_and_max, with_length
from mesax.nets.optim import Adam, NetT, Optimizer, RmsProp, Trainable, for_another_task, polyak
from mesax.nets.recurrent import Gru, Recurrent
from mesax.nets.sequence import (
    BuildsCritics,
    Input,
    Memory,
    Net,
    NetConfig,
    StepByStep,
    along,
    step_at,
    unroll,
    unroll_batch,
    unroll_with_memories,
)
from mesax.nets.team import Additive, CodedTeam, Ensemble, Team

__all__ = [
    "ActionNet",
    "Adam",
    "Additive",
    "BuildsCritics",
    "ChangeNet",
    "CodedTeam",
    "Dense",
    "Ensemble",
    "Entities",
    "EntityNet",
    "FeedForward",
    "Gru",
    "Input",
    "LayerNorm",
    "Memory",
    "Mlp",
    "Net",
    "NetConfig",
    "NetT",
    "Optimizer",
    "PerAction",
    "Products",
    "Recurrent",
    "RmsProp",
    "StepByStep",
    "Team",
    "Trainable",
    "WithChange",
    "along",
    "for_another_task",
    "mean_and_max",
    "polyak",
    "step_at",
    "unroll",
    "unroll_batch",
    "unroll_with_memories",
    "waves",
    "with_length",
]
