"""Which numbers of an observation are about which entity, and about which other agent: all that a user declares.

Two lines for five landmarks and one other agent, two numbers each, behind two numbers about the agent itself:

    places = Block(first=2, number=5, size=2)
    others = Block(first=12, number=1, size=2)

Nets of explorers and the learned reward model go by the same declaration. It has no radius, no order, no nearness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mesax.envs.structure import HasTeamView
from mesax.errors import UsageError
from mesax.nets import Entities
from mesax.ranges import at_least
from mesax.types import AnyArray, EnvSpec

TOLD = 2
"""Vectors that explorers are told: what is left to visit, and what the last step was worth."""


@dataclass(frozen=True)
class Block:
    """Numbers that follow each other in every agent's observation: `size` for each of `number` things."""

    first: int
    number: int
    size: int = 2

    def __post_init__(self) -> None:
        """Refuse a block of nothing."""
        at_least(self, 0, "first")
        at_least(self, 1, "number", "size")

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + self.number * self.size

    @property
    def entries(self) -> tuple[int, ...]:
        """Where its numbers are."""
        return tuple(range(self.first, self.end))


@dataclass(frozen=True)
class DeclaredEntities:
    """Where observations speak of entities and of other agents; all other numbers are about the agent itself."""

    places: Block
    """Entities that may be what counts: landmarks, doors, marked cells."""
    others: Block | None = None
    """The other agents; None: observations do not speak of them, or nets need not know."""

    def __post_init__(self) -> None:
        """Refuse numbers that would be about both."""
        if self.others is not None and set(self.places.entries) & set(self.others.entries):
            raise UsageError(
                f"entities at {_range(self.places)} and other agents at {_range(self.others)} share numbers of the"
                " observation: declare blocks that do not overlap"
            )

    @staticmethod
    def of(env: object, spec: EnvSpec) -> DeclaredEntities:
        """What a world declares of itself; where it declares nothing, the whole observation is one entity.

        A world of one's own has an attribute `entities`; environments of PettingZoo, Gymnasium and JaxMARL too.
        """
        declared = getattr(env, "entities", None)
        if isinstance(declared, DeclaredEntities):
            return declared
        if not isinstance(env, HasTeamView):
            return DeclaredEntities(Block(0, 1, spec.obs_size))
        view = env.team_view
        places = Block(view.own, view.num_places, view.dimensions)
        return DeclaredEntities(
            places, Block(places.end, spec.num_agents - 1, view.dimensions) if spec.num_agents > 1 else None
        )

    def check(self, spec: EnvSpec) -> None:
        """Refuse a declaration that reaches beyond the observation."""
        for name, block in (("entities", self.places), ("other agents", self.others)):
            if block is not None and block.end > spec.obs_size:
                raise UsageError(
                    f"{name} are declared at {_range(block)} of the observation, which has {spec.obs_size} numbers:"
                    " declare the blocks again (method.reward.entities), counting from 0"
                )

    @property
    def number(self) -> int:
        """Entities."""
        return self.places.number

    def is_declared(self, spec: EnvSpec) -> bool:
        """Whether there is more than the observation as a whole."""
        return self.places != Block(0, 1, spec.obs_size)

    def seen(self, obs: Float[AnyArray, "*batch agents obs"]) -> Float[AnyArray, "*batch agents entities numbers"]:
        """What each agent sees of each entity."""
        block = self.places
        return obs[..., block.first : block.end].reshape(*obs.shape[:-1], block.number, block.size)

    def net(self, spec: EnvSpec, hidden: int = 32) -> Entities:
        """A net over these entities for explorers that are told one number of each; agents of other sizes are own."""
        places = self.places
        others = self.others if self.others is not None and self.others.size == places.size else None
        taken = places.entries + (() if others is None else others.entries)
        own = tuple(int(entry) for entry in np.setdiff1d(np.arange(spec.obs_size), taken))
        order = own + taken
        return Entities(
            places.number,
            0 if others is None else others.number,
            len(own),
            told=TOLD,
            hidden=hidden,
            ranks=1,
            size=places.size,
            order=() if order == tuple(range(spec.obs_size)) else order,
        )


def _range(block: Block) -> str:
    return f"{block.first} to {block.end - 1}"
