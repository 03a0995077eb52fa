"""Episodes that a finished run keeps for looking at (`episodes.json`): checked before anything shows them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from mesax.errors import DamageError, StoreError
from mesax.store.files import is_there
from mesax.store.json_files import read_json
from mesax.store.json_values import OWN_SUM, Json
from mesax.store.run_directory import RunDirectory

EPISODES_FILE = "episodes.json"
VERSION = 2
"""Files of the first one do not say whose they are."""


def has_episodes(directory: Path) -> bool:
    """Whether a run directory has such a file, be it damaged."""
    try:
        return read_episodes(directory) is not None
    except StoreError:
        return True


def read_episodes(directory: Path) -> Json | None:
    """Stages, and who played what on them; None if there is no file.

    One that no player could show is damage, and so is that of another run.
    """
    path = directory / EPISODES_FILE
    if not is_there(path):
        return None
    content = read_json(path)
    try:
        if content["version"] != VERSION:
            return None
        if OWN_SUM not in content or content["config_hash"] != RunDirectory(directory).run["config_hash"]:
            raise DamageError(f"{path} was not recorded by this run")
        for stage in content["stages"]:
            _check_stage(stage)
        for play in content["plays"]:
            _expect(isinstance(play["policy"], str) and type(play["task"]) is int)
            _expect(0 <= play["stage"] < len(content["stages"]))
            for take in play["takes"]:
                _check_take(take, content["stages"][play["stage"]])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DamageError(f"{path} is no record of episodes ({type(error).__name__}: {error})") from None
    return content


def _check_stage(stage: Json) -> None:
    _expect(isinstance(stage["about"], str) and stage["aspect"] > 0)
    for shape in stage["shapes"]:
        _expect(shape["kind"] in ("disc", "box") and isinstance(shape["role"], str))
        _expect(_numbers(shape["at"], 2) and _numbers(shape["size"], 2))
    _expect(stage["band"] is None or _numbers(stage["band"], 2))


def _check_take(take: Json, stage: Json) -> None:
    moments = len(take["steps"])
    _expect(moments > 0 and _numbers(take["steps"]) and all(one < other for one, other in pairwise(take["steps"])))
    _expect(_numbers(take["rewards"], moments) and _numbers(take["points"], 2 * moments * take["agents"]))
    _expect(all(_numbers(visit, 2) for visit in take["visits"]))
    chains, curves = take.get("chains", []), take.get("curves", [])
    _expect(len(chains) == len(stage["chains"]) and all(_numbers(chain) for chain in chains))
    _expect(all(len(chain) % (2 * moments) == 0 for chain in chains))
    _expect(len(curves) == len(stage["curves"]) and all(_numbers(curve, moments) for curve in curves))


def _numbers(values: object, length: int | None = None) -> bool:
    """Whether these are numbers, and so many."""
    if not isinstance(values, list) or length not in (None, len(values)):
        return False
    return all(type(value) in (int, float) for value in values)


def _expect(fits: bool) -> None:
    if not fits:
        raise ValueError("something in it has the wrong form")
