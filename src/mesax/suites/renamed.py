"""Worlds that files of before call by names that are the paper's own worlds' now. Needs no JAX.

A run of before says `mpe-2a5l` and means `wide-2a5l`; its settings tell. It is read under today's name, and its own
files stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mesax.store import reading
from mesax.store.json_values import Json, flatten
from mesax.store.reading import RunResults
from mesax.store.run_directory import RunDirectory

RENAMED_FROM = "renamed_from"
"""Entry of what is read under another name than its file has, and of what made a result: the name of its world then."""


@dataclass(frozen=True)
class Renamed:
    """A world that has another name now, or all worlds of a kind."""

    before: str
    """What it was called: a regular expression."""
    now: str
    family: str
    settings: Mapping[str, object]
    """What tells it from the world that has its name now, as `flatten` calls it."""

    def is_of(self, run: Mapping[str, object]) -> bool:
        """Whether a run or result of that name is of the world of before.

        Settings that were asked for tell nothing. A result without settings is older than both names.
        """
        config, overrides = run.get("config"), run.get("overrides")
        if not isinstance(config, Mapping):
            return True
        asked = [path.replace("_", "-") for path in overrides] if isinstance(overrides, Mapping) else []
        known = flatten({"family": config.get("family")})
        return known.get("family") == self.family and any(
            known.get(path, ...) == value for path, value in self.settings.items() if path not in asked
        )


WORLDS = (
    Renamed("climb-multi", "climb-multi-mixed", "ClimbFamily", {"family.counts": None}),
    Renamed(
        "mpe-(.+)",
        r"wide-\1",
        "ParticleClimbFamily",
        {"family.world.horizon": 80, "family.world.radius": 0.2, "family.world.integration": "position-first"},
    ),
    Renamed(
        "swimmer", "swimmer-wide", "SwimmerFamily", {"family.world.band-degrees": 3.0, "family.least-degrees": 9.0}
    ),
)


def name_today(name: str) -> str:
    """What a world of before is called now."""
    for world in WORLDS:
        if found := re.fullmatch(world.before, name):
            return found.expand(world.now)
    return name


def named_today(run: Json) -> Json:
    """What a run.json, or a result, says, under today's name of its world."""
    before = str(run.get("env"))
    if not any(re.fullmatch(world.before, before) and world.is_of(run) for world in WORLDS):
        return run
    now, parts = name_today(before), {entry: part for entry, part in run.items() if isinstance(part, dict)}
    said = run | {"env": now, RENAMED_FROM: before}
    for entry, name in (("family", "name"), ("request", "env")):
        said |= {entry: parts[entry] | {name: now}} if entry in parts else {}
    if "command" in parts.get("made_with", {}):
        words = (now if word == before else word for word in str(parts["made_with"]["command"]).split(" "))
        said["made_with"] = parts["made_with"] | {"command": " ".join(words)}
    if run.get("borrowed"):
        said["borrowed"] = [lender and lender | {"env": name_today(lender["env"])} for lender in run["borrowed"]]
    return said


class Run(RunDirectory):
    """A run directory that is read under today's name of its world."""

    @property
    def run(self) -> Json:
        """What run.json says."""
        return named_today(super().run)


def open_run(path: Path) -> RunDirectory:
    """An existing run directory."""
    return Run(RunDirectory.open(path).path)


def load_run(path: str | Path, partial: bool = False) -> RunResults:
    """The results of a run that has been evaluated; with `partial`, so far."""
    results = reading.load_run(path, partial)
    return replace(results, run=named_today(results.run))


def names_of_before(runs: Iterable[tuple[Path, Mapping[str, object]]]) -> Iterator[str]:
    """A line for each name of before: which runs and results were made under it, and what world they are of."""
    places: dict[tuple[object, object], list[str]] = {}
    for path, run in runs:
        if RENAMED_FROM in run:
            places.setdefault((run[RENAMED_FROM], run["env"]), []).append(str(path))
    for (before, now), paths in places.items():
        was, are = ("was", "it is") if len(paths) == 1 else ("were", "they are")
        yield f"{', '.join(paths)} {was} made when {before} was the name of {now}; {are} read as {now}"
