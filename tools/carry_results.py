"""Carries stored results to today's names and settings: in the files, and the files themselves.

    python tools/carry_results.py results

Worlds that have other names now get these names. Settings that have moved since are where they are now. Settings that
are no more must have had the value that is now fixed: a result with another one is refused, and stays as it is. What a
result was called, its command and the hash of its settings when it was made stay under `made_with`. What explorers
reach (`zero-shot.json`, and `borrowed`) follows the runs that trained them. What is as it is today is left alone.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mesax.errors import UsageError
from mesax.experiments.overrides import digest_of_plain
from mesax.results.evidence.kept import TRAINING, Kept, all_kept, command_of, file_names, training_digest
from mesax.results.labels import PUBLISHED, method_label
from mesax.runtime import configure
from mesax.store.files import write_file
from mesax.store.json_files import read_json
from mesax.store.json_values import Json, json_ready, json_text
from mesax.suites.renamed import RENAMED_FROM, name_today
from paper.freshness import trained_today
from paper.zero_shot import COMMAND, FILE, measured

CARRIED_FROM = "carried_from"
"""Entry of `made_with`: hash of the settings, and command, with which a result was made."""
BORROWED = ("explorers_from", "num_explorers", "transfer", "rest", "turn", "mixing")


@dataclass(frozen=True)
class Became:
    """Settings of a class that is another class now, if they say so."""

    before: str
    now: str
    when: Callable[[Json], bool]
    keeps: tuple[str, ...] | None = None
    """The settings that matter to it; None: all."""


@dataclass(frozen=True)
class Replaced:
    """Values of settings that others stand for now, with the same result."""

    kinds: tuple[str, ...]
    before: Mapping[str, object]
    now: Mapping[str, object]


@dataclass(frozen=True)
class Moved:
    """A setting that is one of another setting now."""

    kinds: tuple[str, ...]
    name: str
    to: str


@dataclass(frozen=True)
class Removed:
    """A setting that is no more, and the value that is now fixed."""

    kinds: tuple[str, ...]
    name: str
    value: object


MESA = ("Mesa", "SteadyMesa", "LearnedMesa")
CHANGES: tuple[Became | Replaced | Moved | Removed, ...] = (
    Became("Mesa", "Borrowed", lambda mesa: mesa.get("explorers_from") is not None, BORROWED),
    Replaced(("Borrowed",), {"transfer": "same"}, {"transfer": "subteams"}),
    Became("Mesa", "SteadyMesa", lambda mesa: mesa.get("action_repeat", 1) != 1 or mesa.get("snapshot") == "fairest"),
    Removed(("Mesa",), "action_repeat", 1),
    Removed(("Mesa",), "snapshot", "last"),
    *(Removed(MESA, name, value) for name, value in {
        "enough_steps": None, "keep_trajectories": 200,
        "explorers_from": None, "transfer": "same", "rest": "tour", "turn": False,
    }.items()),
    # No reward of a step is above 2 in the worlds of before: relabeled pairs were worth less than that.
    Replaced(MESA, {"least_value": 0.1, "relabel_discount": 0.05}, {"relabel_discount": 0.0}),
    Removed((*MESA, "StructuredMesa", "Filled"), "least_value", 1e-3),
    Removed(("StructuredMesa", "Filled"), "relabel_discount", 0.0),
    Removed(("StructuredMesa",), "keep_trajectories", 0),
    *(Moved(MESA, name, "reward") for name in ("capacity", "num_clusters", "placement")),
    Became("CoverageReward", "ToldCoverage", lambda reward: reward.get("tell_demand") is True),
    Removed(("ToldCoverage",), "normalize", True),
    Removed(("CoverageReward",), "tell_demand", False),
    Removed(("CoverageReward",), "wish_decay", 1.0),
    Became("Threshold", "RelativeThreshold", lambda threshold: threshold.get("percentile") is not None),
    Removed(("Threshold",), "percentile", None),
)  # fmt: skip
"""In this order."""
PATHS = {f"method.{name}": f"method.reward.{name}" for name in ("capacity", "num-clusters", "placement")}
"""Settings that were asked for, by what they are called now."""


def today(settings: object) -> object:
    """Plain settings as they are today."""
    if isinstance(settings, list):
        return [today(entry) for entry in settings]
    if not isinstance(settings, dict):
        return settings
    changed = dict(settings)
    for change in CHANGES:
        _apply(change, changed)
    return {name: today(entry) for name, entry in changed.items()}


def _apply(change: Became | Replaced | Moved | Removed, settings: Json) -> None:
    kind = settings.get("type")
    if isinstance(change, Became):
        if kind == change.before and change.when(settings):
            settings["type"] = change.now
            for name in set(settings) - {"type", *(change.keeps or settings)}:
                del settings[name]
    elif kind not in change.kinds:
        return
    elif isinstance(change, Replaced):
        if all(settings.get(name, ...) == value for name, value in change.before.items()):
            for name in change.before:
                del settings[name]
            settings.update(change.now)
    elif change.name in settings:
        value = settings.pop(change.name)
        if isinstance(change, Moved):
            settings[change.to] = settings[change.to] | {change.name: value}
        elif value != change.value:
            raise UsageError(f"{kind} has {change.name} {value!r}, which is {change.value!r} for all today")


def asked_today(pairs: list[tuple[str, object]], config: Json) -> list[tuple[str, object]]:
    """Settings that were asked for, as they would be today; `config` is what came of them, today."""
    told = (config["method"].get("reward") or {}).get("type") == "ToldCoverage"
    return list(_asked_today(pairs, told))


def _asked_today(pairs: list[tuple[str, object]], told: bool) -> Iterator[tuple[str, object]]:
    for path, value in pairs:
        if (path, value) == ("method.transfer", "same") or (told and path == "method.reward.normalize"):
            continue
        yield PATHS.get(path, path), "ToldCoverage" if told and path == "method.reward" else value


def carried(kept: Kept, trained: Mapping[str, str]) -> Json:
    """A result as it would be called, asked for and configured today; `trained`: what became of explorers' settings."""
    facts, made_with = dict(kept.facts), dict(kept.facts.get("made_with") or {})
    if RENAMED_FROM in facts:
        said = {CARRIED_FROM: made_with.pop(CARRIED_FROM)} if CARRIED_FROM in made_with else {}
        facts["made_with"] = made_with = made_with | {RENAMED_FROM: facts.pop(RENAMED_FROM)} | said
    if facts.get("borrowed"):
        facts["borrowed"] = [lender and _trained_today(lender, trained) for lender in facts["borrowed"]]
    config = facts.get("config")
    if config is None or (new := today(config)) == config:
        return facts
    assert isinstance(new, dict)
    request = facts.get("request") or {}
    pairs = request.get("overrides") or list((facts.get("overrides") or {}).items())
    asked = asked_today([(path, value) for path, value in pairs], new)
    name = facts["method"]
    if new["method"]["type"] == "Borrowed":
        name = f"transfer{name.removeprefix('mesa')}"
    facts |= {"method": name, "config": new, "overrides": dict(asked)}
    if request:
        facts["request"] = request | {"method": name.partition("+")[0], "overrides": [list(pair) for pair in asked]}
    if str(facts.get("label", PUBLISHED)) != PUBLISHED and str(facts["label"]).startswith("MESA ("):
        facts["label"] = method_label({entry: value for entry, value in facts.items() if entry != "label"})
    before = {"config_hash": made_with.get("config_hash"), "command": made_with.get("command")}
    made_with |= {"config_hash": digest_of_plain(new), "command": command_of(facts)}
    facts["made_with"] = made_with | {CARRIED_FROM: made_with.get(CARRIED_FROM, before)}
    return facts


def _trained_today(lender: Json, trained: Mapping[str, str]) -> Json:
    known = lender.get("trained_with")
    return lender if known is None else lender | {"trained_with": trained.get(known, known)}


def trained_before(kept: list[Kept]) -> dict[str, str]:
    """What stood for the settings of explorers, and what stands for the same today."""
    found = {}
    for one in kept:
        config = one.facts.get("config") or {}
        if "reward" in (config.get("method") or {}) and all(name in config for name in TRAINING):
            found[before_digest(config)] = training_digest(_settings(config))
    return found


def before_digest(config: Json) -> str:
    """As it was when settings that do not touch training were the method's own."""
    ignored = ("num_explorers", "mixing", "explorers_from", "transfer", "rest", "turn")
    method = {name: value for name, value in config["method"].items() if name not in ignored}
    return digest_of_plain([method, *(config[name] for name in TRAINING)])


def _settings(config: Json) -> Json:
    new = today(config)
    assert isinstance(new, dict)
    return new


def moved(kept: Kept, facts: Json) -> Path:
    """Write a result to a file of its name of today; the old file goes last."""
    place = file_names(read_json(kept.path)).index(kept.path.stem)  # two requests may share the first name
    names = file_names(facts)[place:] if facts.get("borrowed") else file_names(facts)[place : place + 1]
    paths = [kept.path.with_name(f"{name}.json") for name in names]
    free = (path for path in paths if path == kept.path or not path.exists() or read_json(path) == json_ready(facts))
    if (path := next(free, None)) is None:
        raise SystemExit(f"{paths[0]} is another result: {kept.path} cannot take its place")
    write_file(path, json_text(facts).encode())
    if path != kept.path:
        kept.path.unlink()
    return path


def row_today(row: Json, trained: Mapping[str, str]) -> Json:
    """What explorers reach: by their settings of today, and by the name that their world has if these are its own."""
    row = _trained_today(row, trained)
    explorers = re.sub(r"[^ ,]+", lambda word: name_today(word[0]), row["explorers"])
    if explorers == row["explorers"] or row.get("trained_with") != trained_today(explorers):
        return row
    before = {name: row[name] for name in ("explorers", "env")}
    return row | {"explorers": explorers, "env": name_today(row["env"]), RENAMED_FROM: before}


def main() -> int:
    """Carry what has to be, with a line about each; 1 if something is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    store, refused = parser.parse_args().store, 0
    configure()
    everything = list(all_kept(store, print))
    trained = trained_before(everything)
    for kept in everything:
        try:
            facts = carried(kept, trained)
        except UsageError as error:
            refused += 1
            print(f"{kept.path} stays as it is: {error}", file=sys.stderr)
            continue
        if json_ready(facts) != read_json(kept.path):
            print(f"{kept.path} -> {moved(kept, facts)}")
    if (rows := measured(store)) != (now := [row_today(row, trained) for row in rows]):
        write_file(store / FILE, json_text({"command": COMMAND, "rows": now}).encode())
        print(f"{store / FILE}: {sum(one != two for one, two in zip(rows, now, strict=True))} rows")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
