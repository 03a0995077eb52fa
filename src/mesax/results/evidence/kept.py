"""The store of results: one small file for each run, with all that made it. Needs no JAX.

    results/mesa-wide-2a5l-quick-seed0.json
        figures of the run, task by task           what `summary.json` says, by today's statistics
        label, request, config, made_with          what was run: settings and their hash, command, commit, versions
        family, test_tasks, curves                 enough to draw and to compare it like the run itself
        explorers, clocks                          what its explorers reach; how long it took
        borrowed                                   whose policies it has used, if they are of another run, and for
                                                   explorers, what stands for the settings that trained them

Files from before there was a store have figures only: they can be read, and what they are of cannot be checked.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mesax.errors import DamageError, StoreError, UsageError
from mesax.experiments.overrides import digest_of_plain
from mesax.results.evidence.form import NEEDED, malformed
from mesax.results.labels import method_label
from mesax.results.summary import summarize
from mesax.store.files import checksum, write_file
from mesax.store.json_files import read_json
from mesax.store.json_values import Json, json_ready, json_text
from mesax.store.modules import file_name
from mesax.store.reading import SUMMARY_NUMBERS, Curve, RunResults, borrowed_from
from mesax.store.run_directory import RunDirectory
from mesax.suites.renamed import RENAMED_FROM, load_run, named_today, open_run

ONLY_RESULTS_HAVE = ("mean_return", "per_task", "curves", "made_with")
"""A file with any of these is meant as a result, and damaged if it lacks others; without them it is of another kind."""
OF_THE_RUN = ("label", "privileged", "suite", "overrides", "request", "config", "family", "test_tasks")
"""What run.json says that a comparison or a table may need."""
OF_A_RUN = ("run.json", "STATUS", "checksums.json", "jobs")
"""A directory with any of these is a run."""
DECIMALS = 4
"""Decimals of returns and angles."""
ELSEWHERE = "RUN_DIR"
"""Stands for a directory whose name differs from machine to machine."""
LENDER = ("method", "env", "preset", "seed", "overrides")
"""What tells the runs apart whose policies are borrowed."""
NOT_TRAINING = ("num_explorers", "mixing")
"""Settings of MESA that do not touch how one explorer is trained: without a global count each is trained alone."""
TRAINING = ("family", "num_train_tasks", "training_horizon")
"""Settings, apart from those of the method, that explorers depend on."""


@dataclass(frozen=True)
class Kept:
    """A result, as its file says it."""

    path: Path
    facts: Json

    @property
    def method(self) -> str:
        """The method, with its learner if it wraps another: `mesa+qmix`."""
        return str(self.facts["method"])

    @property
    def env(self) -> str:
        """The environment."""
        return str(self.facts["env"])

    @property
    def preset(self) -> str:
        """The preset."""
        return str(self.facts["preset"])

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.facts["seed"])

    @property
    def num_test_tasks(self) -> int:
        """How many tasks were learned."""
        return len({task["task"] for task in self.facts["per_task"]})

    @property
    def config_hash(self) -> str | None:
        """Hash of all its settings; None if they were not recorded."""
        found = (self.facts.get("made_with") or {}).get("config_hash")
        return None if found is None else str(found)

    @property
    def overrides(self) -> dict[str, str]:
        """Settings that were given in addition to the preset."""
        return {str(path): str(value) for path, value in (self.facts.get("overrides") or {}).items()}

    @property
    def lenders(self) -> list[Json | None]:
        """The runs whose policies it has used; None for one that was there no more when somebody asked."""
        return list(self.facts.get("borrowed") or ())

    @property
    def core_seconds(self) -> float | None:
        """What it cost: processor time of all its jobs, or where that was not kept, their seconds, each on one core;
        None if there is no clock at all."""
        clocks = self.facts.get("clocks") or {}
        seconds = clocks.get("cpu_seconds", clocks.get("job_seconds"))
        return None if seconds is None else float(seconds)

    @cached_property
    def results(self) -> RunResults:
        """The same as of a run directory, as far as the file goes."""
        run = {name: self.facts[name] for name in ("method", "env", "preset", "seed")}
        run |= {name: self.facts[name] for name in (*OF_THE_RUN, RENAMED_FROM) if name in self.facts}
        made_with = self.facts.get("made_with") or {}
        run |= {name: made_with[name] for name in ("config_hash", "git_commit", "versions") if name in made_with}
        run.setdefault("test_tasks", [{"label": task["label"]} for task in self.facts["per_task"]])
        summary = {name: self.facts[name] for name in ("env_steps", "meta_env_steps", "wall_seconds")}
        return RunResults(self.path, run, tuple(self._curves()), summary, (), None, "done")

    def _curves(self) -> list[Curve]:
        """One point for each task, its final return: for files without curves."""
        whole = {(curve["task"], curve["repeat"]): curve for curve in self.facts.get("curves") or ()}
        steps = self.facts["env_steps"] // max(len(self.facts["per_task"]), 1)
        found = []
        for task in self.facts["per_task"]:
            curve = whole.get((task["task"], task["repeat"])) or {"steps": [steps], "returns": [task["final_return"]]}
            returns = np.array(curve["returns"], float)
            groups = {name: np.array(values, float) for name, values in (curve.get("groups") or {}).items()}
            if not groups and len(task.get("groups") or ()) == 1:
                groups = dict.fromkeys(task["groups"], returns)
            place = (task["task"], task["label"], task["repeat"], self.seed)
            found.append(Curve(*place, np.array(curve["steps"]), returns, groups, task.get("zero_shot_return")))
        return found


def read_kept(path: Path) -> Kept:
    """A result; a `DamageError` if the file holds none, or one of no use."""
    return _checked(path, read_json(path))


def _checked(path: Path, facts: Json) -> Kept:
    missing = [name for name in NEEDED if name not in facts]
    if missing:
        raise DamageError(f"{path} is no result of a run: it lacks {', '.join(missing)}")
    if (problem := malformed(facts)) is not None:
        raise DamageError(f"{path}: {problem}")
    return Kept(path, named_today(facts))


def is_meant_as_result(facts: Json) -> bool:
    """Whether a file is one of the results, be it damaged, and not a document of another kind."""
    return any(name in facts for name in ONLY_RESULTS_HAVE)


def is_store(path: Path) -> bool:
    """Whether a directory holds results, if only damaged ones, and is no run itself, not even a damaged one."""
    if not path.is_dir() or any((path / name).exists() for name in OF_A_RUN):
        return False
    return any(_is_result(file) for file in sorted(path.glob("*.json")))


def _is_result(path: Path) -> bool:
    try:
        return is_meant_as_result(read_json(path))
    except StoreError:
        return False


def all_kept(directory: Path, tell: Callable[[str], None] = lambda problem: None) -> list[Kept]:
    """Every result in a directory, in the order of their names.

    Files of other kinds are left out; so are damaged ones, and `tell` is told what is wrong with them.
    """
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            facts = read_json(path)
            if is_meant_as_result(facts):
                found.append(_checked(path, facts))
        except StoreError as error:
            tell(str(error))
    return found


def load_results(path: Path) -> RunResults:
    """The results behind a path: a run directory, or a file of the store."""
    if not (path.suffix == ".json" and path.is_file()):
        return load_run(path)
    if (path.parent / "run.json").is_file():
        raise UsageError(f"{path} is not a stored result; name the run directory: {path.parent}")
    kept = read_kept(path)
    if "family" not in kept.facts:
        raise DamageError(f"{path} is from before results had their settings with them: run it again to compare it")
    return kept.results


def keep(directory: Path, store: Path) -> Path:
    """Write what a finished run has found to the store, by today's statistics; returns the file."""
    facts = facts_of(directory)
    first, second = file_names(facts)
    path = store / f"{first}.json"
    if path.exists() and _is_of_something_else(path, facts):
        path = store / f"{second}.json"
    write_file(path, json_text(facts).encode())
    return path


def facts_of(directory: Path) -> Json:
    """Everything that the store holds of a run."""
    run, stored = load_run(directory), RunDirectory.open(directory)
    if not run.summary:
        raise DamageError(f"{directory / 'summary.json'} is missing, or empty")
    costs = {name: run.summary[name] for name in SUMMARY_NUMBERS}
    facts = summarize(run.run, stored.read_rows("eval.jsonl"), **costs, run_dir="")
    facts.pop("run_dir")
    facts |= {name: run.run[name] for name in OF_THE_RUN if name in run.run} | {"label": method_label(run.run)}
    facts |= {"explorers": run.summary["explorers"]} if "explorers" in run.summary else {}
    jobs = _seconds_of_jobs(directory / "timing.jsonl", stored.read_rows("timing.jsonl"))
    facts["clocks"] = {"wall_seconds": round(float(run.summary["wall_seconds"]), 1)} | jobs
    facts["made_with"] = {"command": command_of(run.run)} | {
        name: run.run.get(name) for name in ("config_hash", "git_commit", "versions", "machine")
    }
    facts["made_with"] |= {RENAMED_FROM: run.run[RENAMED_FROM]} if RENAMED_FROM in run.run else {}
    facts["curves"] = [_curve(curve) for curve in run.curves]
    return _without_places(facts)


def _seconds_of_jobs(path: Path, jobs: Sequence[Json]) -> Json:
    try:
        seconds = [float(job["seconds"]) for job in jobs]
        # Jobs of before have no clock of the processor.
        cpu_seconds = [float(job["cpu_seconds" if "cpu_seconds" in job else "seconds"]) for job in jobs]
    except (KeyError, TypeError, ValueError):
        raise DamageError(f"{path} does not say how long each job took") from None
    return {"job_seconds": round(sum(seconds), 1), "cpu_seconds": round(sum(cpu_seconds), 1)}


def _without_places(facts: Json) -> Json:
    """The same on every machine: where borrowed policies lay gives way to whose they are."""
    method = (facts.get("config") or {}).get("method") or {}
    places = borrowed_from(method)
    if not places:
        return facts
    paths = {f"method.{name}".replace("_", "-") for name in places}

    def hidden(path: str, value: object) -> object:
        return ELSEWHERE if path.replace("_", "-") in paths else value

    config = facts["config"] | {"method": method | dict.fromkeys(places, ELSEWHERE)}
    request = dict(facts.get("request") or {})
    request["overrides"] = [[path, hidden(path, value)] for path, value in request.get("overrides") or ()]
    command = command_of(facts | {"request": request})
    return facts | {
        "overrides": {path: hidden(path, value) for path, value in (facts.get("overrides") or {}).items()},
        "request": request if facts.get("request") else None,
        "config": config,
        "made_with": facts["made_with"] | {"command": command, "config_hash": digest_of_plain(config)},
        "borrowed": [_lender(Path(place), name == "explorers_from") for name, place in places.items()],
    }


def _lender(directory: Path, explorers: bool) -> Json | None:
    """What a run whose policies are borrowed is of; None if it is there no more."""
    try:
        run = open_run(directory).run
    except (StoreError, UsageError):
        return None
    known = {name: run.get(name) for name in (*LENDER, "config_hash")}
    config = run.get("config") or {}
    # Pre-trained policies must have been trained as their borrower would; explorers may be of any world and settings.
    if explorers and all(name in config for name in ("method", *TRAINING)):
        known["trained_with"] = training_digest(config)
    return known


def training_digest(config: Mapping[str, Json]) -> str:
    """Stands for all settings of an experiment that its explorers depend on."""
    method = {name: value for name, value in config["method"].items() if name not in NOT_TRAINING}
    return digest_of_plain([method, *(config[name] for name in TRAINING)])


def command_of(run: Json) -> str:
    """What to type for a run that was asked for by its names."""
    request = run.get("request") or {}
    words = ["mesax", "run", str(request.get("method", run["method"])), str(run["env"]), "--preset", str(run["preset"])]
    words += ["--learner", str(request["learner"])] if request.get("learner") else []
    words += ["--seed", str(run["seed"]), "--num-test-tasks", str(len(run["test_tasks"]))]
    words += [word for path, value in request.get("overrides") or () for word in (f"--{path}", str(value))]
    return shlex.join(words)


def _curve(curve: Curve) -> Json:
    found = {
        "task": curve.task,
        "repeat": curve.repeat,
        "steps": curve.steps.tolist(),
        "returns": _rounded(curve.returns),
    }
    if all(np.array_equal(values, curve.returns) for values in curve.groups.values()):  # its one group is all of it
        return found
    return found | {"groups": {name: _rounded(values) for name, values in curve.groups.items()}}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), DECIMALS) for value in values]


def file_names(facts: Json) -> tuple[str, str]:
    """What the file of a result is called; the second, if the first is that of another request or another lender."""
    digest = (facts.get("made_with") or {}).get("config_hash")
    name = file_name(f"{facts['method']}-{facts['env']}-{facts['preset']}-seed{facts['seed']}")
    whole, lenders = f"{name}-{digest}", _lenders(facts)
    first = whole if facts.get("overrides") else name
    return first, f"{whole}-{checksum(json_text(lenders).encode())['sha256'][:12]}" if lenders else f"{first}-{digest}"


def _is_of_something_else(path: Path, facts: Json) -> bool:
    """Whether a file is of another request, or of policies of another run; one of the same, with older settings, is
    replaced."""
    try:
        there = read_kept(path).facts
    except StoreError:
        return False
    known = there.get("request"), facts.get("request")
    another_request = None not in known and known[0] != json_ready(known[1])
    return another_request or _lenders(there) != json_ready(_lenders(facts))


def _lenders(facts: Json) -> list[Json | None]:
    """What was asked for of the runs whose policies are borrowed; None for one that was there no more."""
    return [lender and {name: lender.get(name) for name in LENDER} for lender in facts.get("borrowed") or ()]
