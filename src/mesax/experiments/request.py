"""What a person asked for, as an experiment and as the run.json that can rebuild it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from mesax.errors import UsageError
from mesax.experiments.catalogue import experiment as named_experiment
from mesax.experiments.overrides import apply_all, difference, digest
from mesax.methods.base import Experiment
from mesax.store.settings import to_plain
from mesax.types import leading_size, tree_index

PACKAGES = ("mesax", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-learn", "safetensors")
ENGINES = ("mujoco", "pettingzoo", "gymnasium", "jaxmarl")
"""What environments may run on; recorded if it is there."""
LARGEST_SEED = 2**32 - 1
"""JAX's keys keep 32 bits: a larger seed would silently equal a smaller one."""
SHOWN_DIFFERENCES = 8
NOT_ABOUT_THE_PAPER = ("seed", "num-test-tasks", "num-repeats", "lanes")


@dataclass(frozen=True)
class Request:
    """The arguments of `mesax run` that determine its result."""

    method: str
    env: str
    preset: str = "quick"
    seed: int = 0
    num_test_tasks: int | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    learner: str | None = None
    """Off-policy learner to wrap, instead of the preset's own."""

    def experiment(self) -> Experiment:
        """The catalogue's entry with this request's changes."""
        if self.seed > LARGEST_SEED:
            raise UsageError(f"seed must be at most {LARGEST_SEED}, not {self.seed}")
        entry = replace(named_experiment(self.method, self.env, self.preset, self.learner), seed=self.seed)
        changes = list(self.overrides)
        if self.num_test_tasks is not None:
            changes.append(("num-test-tasks", str(self.num_test_tasks)))
        return apply_all(entry, changes)

    @property
    def label(self) -> str:
        """What tables call the method."""
        return self.method if self.learner is None else f"{self.method}+{self.learner}"

    def run_id(self) -> str:
        """Name of the run: readable, and different for different configurations."""
        return f"{self.label}-{self.env}-{self.preset}-seed{self.seed}-{digest(self.experiment())}"

    @staticmethod
    def of_run(run: dict[str, Any]) -> Request:
        """The request behind a run.json; refuses a run whose configuration this version would build differently."""
        try:
            asked = run["request"]
            request = Request(**asked | {"overrides": tuple((path, text) for path, text in asked["overrides"])})
            expected = run["config_hash"]
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise UsageError(
                f"run.json of {run.get('id', 'this directory')} describes no run of mesax ({what})"
            ) from None
        if digest(request.experiment()) != expected:
            raise UsageError(
                f"run {run.get('id')} was made with another version of mesax ({_version(run)}):"
                f" the same request now gives another configuration: {stored_difference(run, request.experiment())}"
            )
        return request


def stored_difference(run: dict[str, Any], experiment: Experiment) -> str:
    """Settings of an experiment that differ from those of a run.json, as one line."""
    stored, asked = _flat(run.get("config")), _flat(to_plain(experiment))
    paths = [path for path in {**stored, **asked} if stored.get(path, ...) != asked.get(path, ...)]
    texts = [f"{path} {_shown(stored, path)} there, {_shown(asked, path)} here" for path in paths]
    more = f"; {len(texts) - SHOWN_DIFFERENCES} more" if len(texts) > SHOWN_DIFFERENCES else ""
    return "; ".join(texts[:SHOWN_DIFFERENCES]) + more or "only the way it is written differs"


def _flat(plain: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(plain, dict):
        return {prefix: plain}
    parts = (_flat(entry, f"{prefix}.{key}".replace("_", "-").lstrip(".")) for key, entry in plain.items())
    return {path: value for part in parts for path, value in part.items()}


def _shown(settings: dict[str, Any], path: str) -> str:
    return str(settings[path])[:60] if path in settings else "absent"


def _version(run: dict[str, Any]) -> str:
    versions = run.get("versions")
    return str(versions.get("mesax")) if isinstance(versions, dict) else "unknown"


def paper_difference(request: Request, experiment: Experiment) -> list[list[Any]]:
    """[path, paper's value, this run's value] for every setting that differs from the paper preset."""
    paper = replace(named_experiment(request.method, request.env, "paper", request.learner), seed=request.seed)
    return [
        [path, theirs, ours] for path, theirs, ours in difference(paper, experiment) if path not in NOT_ABOUT_THE_PAPER
    ]


def run_json(request: Request, experiment: Experiment) -> dict[str, Any]:
    """Everything that determines, explains and locates a run."""
    return {
        "id": request.run_id(),
        "method": request.label,
        **{name: getattr(request, name) for name in ("env", "preset", "seed")},
        "request": asdict(request),
        "overrides": dict(request.overrides),
        "paper_diff": paper_difference(request, experiment),
        "command": " ".join(["mesax", *sys.argv[1:]]),
        **facts_of(experiment, request.env),
    }


def facts_of(experiment: Experiment, env: str) -> dict[str, Any]:
    """What run.json says of any experiment, named or not: settings, versions, machine, tasks."""
    family = experiment.family
    split = family.split(experiment.seed, experiment.num_train_tasks, experiment.num_test_tasks)
    facts = {
        "name": env,
        "optimal_return": family.optimal_return,
        "suboptimal_return": family.suboptimal_return,
        "optimal_threshold": family.optimal_threshold,
        "groups": list(family.groups),
    }
    return {
        "config": to_plain(experiment),
        "config_hash": digest(experiment),
        **surroundings(),
        "family": facts | family.facts(),
        "train_tasks": _described(experiment, split.train),
        "test_tasks": _described(experiment, split.test),
    }


def _described(experiment: Experiment, tasks: Any) -> list[dict[str, Any]]:
    return [asdict(experiment.family.describe(tree_index(tasks, i))) for i in range(leading_size(tasks))]


def surroundings() -> dict[str, Any]:
    """What else may change a result: versions, commit, machine, compiler flags."""
    return {
        "versions": versions(),
        "git_commit": git_commit(),
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def versions() -> dict[str, str]:
    """Versions of what computes the results."""
    found = {}
    for package in (*PACKAGES, *ENGINES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            if package in PACKAGES:
                found[package] = "not installed"
    return found


def git_commit() -> str | None:
    """Commit of the source tree, if mesax runs from one."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
