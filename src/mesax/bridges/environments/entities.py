"""Entities that show in the spaces of Gymnasium: parts of a dictionary or a tuple that have a row for each of many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mesax.bridges.environments.layout import Layout, gymnasium_spaces
from mesax.ours.entities import Block, DeclaredEntities

OTHERS = ("others", "other_agents", "agents", "partners", "teammates")
"""Names of the part that is about the other agents."""


class Table(NamedTuple):
    """A part of an observation with a row for each of many."""

    name: str
    block: Block


def inferred(layout: Layout) -> DeclaredEntities | None:
    """What the spaces say of entities; None if they say nothing, several things, or each agent's something else.

    A table is a Box of two dimensions, or a tuple or dictionary of equal spaces inside of an observation. The one that
    is named after other agents is about these; without such a name it is, of two, the one with a row for each of them.
    """
    tables, *different = {tuple(tables_in(agent.observation)) for agent in layout.agents}
    if different:
        return None
    about = [table for table in tables if table.name in OTHERS]
    if not about and len(tables) == 2:
        about = [table for table in tables if table.block.number == len(layout.agents) - 1]
    places = [table.block for table in tables if table not in about]
    if len(places) != 1 or len(about) > 1:
        return None
    return DeclaredEntities(places[0], about[0].block if about else None)


def tables_in(space: Any, first: int = 0) -> Iterator[Table]:
    """All tables of an observation, with their places among its numbers once it is flat."""
    for name, part in _parts(space):
        size, rows = gymnasium_spaces().flatdim(part), _rows(part)
        if rows:
            yield Table(name, Block(first, rows, size // rows))
        else:
            yield from tables_in(part, first)
        first += size


def _parts(space: Any) -> list[tuple[str, Any]]:
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Dict):
        return [(str(name), part) for name, part in space.spaces.items()]
    return [("", part) for part in space.spaces] if isinstance(space, spaces.Tuple) else []


def _rows(part: Any) -> int:
    """How many things a part is about, one after another; 0 if it is no table."""
    if isinstance(part, gymnasium_spaces().Box):
        return int(part.shape[0]) if len(part.shape) == 2 and min(part.shape) > 0 else 0
    inside = [one for _, one in _parts(part)]
    return len(inside) if inside and all(one == inside[0] for one in inside) else 0
