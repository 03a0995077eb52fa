"""Whether a stored result has been made with the settings that a command has today.

Settings that did not exist then may have been added, if they are at their defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from mesax.experiments.overrides import digest
from mesax.methods.base import Experiment
from mesax.results.evidence.kept import Kept
from mesax.store.settings import to_plain


def is_of(kept: Kept, experiment: Experiment) -> bool:
    """Whether a result has been made with these settings."""
    if kept.config_hash == digest(experiment):
        return True
    return "config" in kept.facts and next(changes(experiment, kept.facts["config"]), None) is None


def changes(value: object, stored: object, path: str = "") -> Iterator[str]:
    """Paths of settings that are not what they were; one that did not exist then must have its default."""
    if not (dataclasses.is_dataclass(value) and not isinstance(value, type) and isinstance(stored, Mapping)):
        if to_plain(value) != stored:
            yield path
        return
    plain = to_plain(value)
    names = [field.name for field in dataclasses.fields(value) if field.init]
    if not isinstance(plain, Mapping) or plain.get("type") != stored.get("type"):
        yield path
        return
    yield from (f"{path}.{name}" for name in stored if name not in {*names, "type"})
    for field in dataclasses.fields(value):
        if field.name in stored:
            yield from changes(getattr(value, field.name), stored[field.name], f"{path}.{field.name}")
        elif field.name in plain and getattr(value, field.name) != field.default:
            yield f"{path}.{field.name}"
