"""Algorithm 2, meta-testing: on an unseen task explorers play some of the episodes that the learner learns from.

p_e falls over the run (line 3); with chance p_e one of E explorers plays an episode, drawn uniformly, else the learner
(line 4; the draw is `ExplorationPolicySet`). The rest is `methods/adapt.py`, as for any learner.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
from jaxtyping import Array, Float

from mesax.errors import UsageError
from mesax.nets import Memory
from mesax.policy import EXPLORER, Policy
from mesax.ranges import between
from mesax.types import Action, Elapsed, Key, Label, Line, Linear, tree_where


@dataclass(frozen=True)
class Mixing:
    """Algorithm 2: an explorer plays an episode with annealed probability p_e, else the learner."""

    probability: Line = Linear(0.8, 0.0, 0.6)
    """p_e over the run."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        between(self, 0, 1, "probability.start", "probability.end")

    def __call__(self, learner: Policy, explorer: Policy | None, elapsed: Elapsed) -> Policy:
        """Mix at this point of the run."""
        if explorer is None:
            raise UsageError("there are no explorers to mix in")
        return ExploreOrExploit(learner, explorer, self.probability(elapsed))


class ExploreOrExploit(eqx.Module):
    """Algorithm 2, lines 3-4: once per episode, an explorer plays with probability p_e, else the learner.

    The learner's random stream does not depend on the choice: `probability = 0` equals the learner alone, bit for bit.
    """

    learner: Policy
    explorer: Policy
    """Its labels must be of the size of those of the learner (see `Relabeled`)."""
    probability: Float[Array, ""]

    def start(self, key: Key) -> Memory:
        """Draw who plays this episode."""
        key_choice, key_explorer = jax.random.split(jax.random.fold_in(key, EXPLORER))
        explores = jax.random.bernoulli(key_choice, self.probability)
        return explores, self.learner.start(key), self.explorer.start(key_explorer)

    def act(self, memory: Memory, obs: Float[Array, "agents obs"], key: Key) -> tuple[Action, Memory]:
        """Both act on the observation; the drawn one is obeyed."""
        explores, learner_memory, explorer_memory = memory
        exploit, learner_memory = self.learner.act(learner_memory, obs, key)
        explore, explorer_memory = self.explorer.act(explorer_memory, obs, jax.random.fold_in(key, EXPLORER))
        return tree_where(explores, explore, exploit), (explores, learner_memory, explorer_memory)

    def label(self, memory: Memory) -> Label:
        """The label of the policy that plays."""
        explores, learner_memory, explorer_memory = memory
        return tree_where(explores, self.explorer.label(explorer_memory), self.learner.label(learner_memory))
