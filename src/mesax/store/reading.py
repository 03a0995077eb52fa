"""The results of a run, from its directory: configuration, curves of evaluations, summary, metrics, coverage.

What a row of `eval.jsonl` holds is said here alone: `Evaluation` measures, writes and reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mesax.errors import DamageError, UsageError
from mesax.store.json_files import read_rows
from mesax.store.json_values import Json
from mesax.store.run_directory import RunDirectory

FINAL_WINDOW = 5
"""The final return of a task run is the mean of so many evaluations, the last ones."""
NOT_EVALUATED = {
    "running": "it is still running",
    "killed": "it was killed, and can go on (mesax resume)",
    "failed": "it has failed",
    "preempted": "it was stopped and saved",
}
"""Why a run in each state may have no evaluations."""
RUN_ENTRIES = ("method", "env", "preset", "seed", "family", "test_tasks")
FAMILY_NUMBERS = ("optimal_return", "suboptimal_return", "optimal_threshold")
SUMMARY_NUMBERS = ("wall_seconds", "env_steps", "meta_env_steps")
WORST_NUMBERS = ("task", "target", "steps", "chance", "stay")
UNIFORM_PLAY, ALL_EXPLORERS = "uniform", "all explorers"
"""Visitors that coverage.json has in addition to single explorers."""
VISITOR_ENTRIES = ("name", "distinct_visits", "high_reward_steps")

PHASE = "adapt"
"""The stage that evaluates test tasks, as rows call it."""

BORROWED_FROM = ("explorers_from", "pretrained_from")
"""Settings of methods that name the run whose meta-training they use."""


class Judge(Protocol):
    """What rewards of a test task are worth."""

    def score(self, rewards: np.ndarray) -> float:
        """The return of an episode with these rewards, step by step."""

    def breakdown(self, rewards: np.ndarray) -> Mapping[str, float]:
        """Its parts, by the groups of the task."""


@dataclass(frozen=True)
class Evaluation:
    """The greedy policy of one learner at one step. A further column is a field: measured, written and read here."""

    task: int
    repeat: int
    step: int
    """Environment steps before it."""
    value: float
    """The return."""
    groups: Mapping[str, float]
    """Its parts, by the groups of the task."""
    zero_shot: bool = False
    """Whether it was learned on training tasks alone."""

    @staticmethod
    def of(place: tuple[int, int, int], rewards: np.ndarray, judge: Judge, zero_shot: bool) -> Evaluation:
        """From the mean rewards of the evaluation, step by step; `place` is task, repeat and step."""
        return Evaluation(*place, judge.score(rewards), judge.breakdown(rewards), zero_shot)

    @property
    def row(self) -> Json:
        """As the file has it."""
        place = {"phase": PHASE, "task": self.task, "repeat": self.repeat, "step": self.step}
        return place | {"return": self.value, "groups": self.groups} | ({"zero_shot": True} if self.zero_shot else {})

    @staticmethod
    def read(row: Json) -> Evaluation:
        """From the file; a KeyError, TypeError or ValueError if it is none."""
        groups = {str(name): float(value) for name, value in (row.get("groups") or {}).items()}
        place = int(row["task"]), int(row["repeat"]), int(row["step"])
        return Evaluation(*place, float(row["return"]), groups, bool(row.get("zero_shot")))


COLUMNS = tuple(Evaluation(0, 0, 0, 0.0, {}, zero_shot=True).row)
"""Their names."""


def evaluations_in(rows: Iterable[Json]) -> Iterable[Evaluation]:
    """Those of test tasks among rows."""
    return (Evaluation.read(row) for row in rows if row.get("phase", PHASE) == PHASE)


@dataclass(frozen=True, eq=False)
class Curve:
    """The evaluations of one learner on one test task, in order of steps."""

    task: int
    label: str
    repeat: int
    seed: int
    """Whose training and test tasks these are."""
    steps: np.ndarray
    returns: np.ndarray
    groups: Mapping[str, np.ndarray]
    zero_shot: float | None = None
    """Return of what was learned on training tasks, before the first update on this one; None: nothing was."""


def final_window(evaluations: int) -> int:
    """How many evaluations at the end a final return is the mean of: five, or the last third of a short run's."""
    return max(1, min(FINAL_WINDOW, evaluations // 3))


def final_return(returns: np.ndarray) -> float:
    """The mean of the last evaluations."""
    return float(np.mean(returns[-final_window(len(returns)) :]))


@dataclass(frozen=True, eq=False)
class RunResults:
    """Everything a run directory says about a run; optional files that are missing read as empty."""

    directory: Path
    run: Json
    curves: tuple[Curve, ...]
    summary: Json
    metrics: tuple[Json, ...]
    coverage: Json | None
    status: str

    @property
    def family(self) -> Json:
        """What the environment family says of its returns, groups and sizes."""
        return dict(self.run["family"])

    @property
    def final_returns(self) -> np.ndarray:
        """The final return of every task run."""
        return np.array([final_return(curve.returns) for curve in self.curves])

    @property
    def tasks(self) -> np.ndarray:
        """The test task of every task run."""
        return np.array([curve.task for curve in self.curves])

    @property
    def seeds(self) -> np.ndarray:
        """The seed of every task run."""
        return np.array([curve.seed for curve in self.curves])


def borrowed_from(method: object) -> dict[str, str]:
    """The runs whose meta-training a method uses, by the settings that name them; `method` as its plain settings."""
    known = method if isinstance(method, Mapping) else {}
    return {name: str(known[name]) for name in BORROWED_FROM if known.get(name) is not None}


def load_run(path: str | Path, partial: bool = False) -> RunResults:
    """The results of a run that has been evaluated; those of a finished run must be what it wrote.

    With `partial`, those of a run that is not finished are what its jobs have so far.
    """
    stored = RunDirectory.open(Path(path))
    directory, run, status = stored.path, stored.run, stored.state
    _check_run(directory / "run.json", run)
    evaluations = directory / "eval.jsonl"
    rows, metrics = stored.read_rows("eval.jsonl"), stored.read_rows("metrics.jsonl")
    so_far = [] if rows or status == "done" else _rows_of_jobs(stored, "eval.jsonl")
    if so_far and partial:
        rows, metrics = so_far, _rows_of_jobs(stored, "metrics.jsonl")
    curves = curves_from_rows(run, rows, evaluations)
    if not curves:
        raise _not_evaluated(evaluations, status, bool(so_far))
    summary = _optional_json(stored, "summary.json")
    if summary:
        _check_numbers(directory / "summary.json", summary, SUMMARY_NUMBERS)
    return RunResults(directory, run, curves, summary, tuple(metrics), read_coverage(stored) or None, status)


def _rows_of_jobs(stored: RunDirectory, name: str) -> list[Json]:
    """The rows that the jobs of a run have written so far; its last stage merges them once all are done."""
    return [row for path in sorted(stored.path.glob(f"jobs/*/*/{name}")) for row in read_rows(path)]


def read_coverage(stored: RunDirectory) -> Json:
    """What coverage.json says of who visits what, with all `visitors` described; empty if there is none."""
    path = stored.path / "coverage.json"
    coverage = _optional_json(stored, "coverage.json")
    if not coverage:
        return {}
    _check_entries(path, coverage, ("visitors",))
    if not isinstance(coverage["visitors"], list):
        raise DamageError(f"{path}: visitors is not a list")
    for visitor in coverage["visitors"]:
        _check_entries(path, visitor, VISITOR_ENTRIES)
        if visitor.get("targets") is not None:  # runs of earlier versions have none
            _check_entries(path, visitor["targets"], ("worst",))
            _check_numbers(path, visitor["targets"]["worst"], WORST_NUMBERS)
    return coverage


def in_order(evaluations: Iterable[Json]) -> list[Json]:
    """Rows of eval.jsonl, task by task and repeat by repeat, whichever jobs they are of."""
    return sorted(evaluations, key=lambda row: (row["task"], row["repeat"], row["step"]))


def curves_from_rows(run: Json, rows: Iterable[Json], source: object = "eval.jsonl") -> tuple[Curve, ...]:
    """One curve for each task and repeat; of several rows for one step (a resumed run) the last counts."""
    found: dict[tuple[int, int], dict[int, Evaluation]] = {}
    try:
        for one in evaluations_in(rows):
            found.setdefault((one.task, one.repeat), {})[one.step] = one
        return tuple(_curve(run, key, by_step) for key, by_step in sorted(found.items()))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DamageError(f"{source} does not hold evaluations of this run's test tasks ({reason})") from None


def _optional_json(stored: RunDirectory, name: str) -> Json:
    return stored.read_json(name) if stored.has(name) else {}


def _curve(run: Json, key: tuple[int, int], by_step: Mapping[int, Evaluation]) -> Curve:
    (task, repeat), test_tasks = key, run["test_tasks"]
    if task < 0:
        raise IndexError(f"task {task}")
    steps = sorted(by_step)
    evaluations = [by_step[step] for step in steps]
    returns = np.array([one.value for one in evaluations])
    if not np.isfinite(returns).all():
        raise ValueError(f"a return of task {task} is not finite")
    names = set.intersection(*(set(one.groups) for one in evaluations))
    groups = {name: np.array([one.groups[name] for one in evaluations]) for name in sorted(names)}
    own_group = test_tasks[task].get("group")
    if not groups and own_group is not None:
        groups = {own_group: returns}
    zero_shot = float(returns[0]) if evaluations[0].zero_shot else None
    label = str(test_tasks[task]["label"])
    return Curve(task, label, repeat, int(run["seed"]), np.array(steps), returns, groups, zero_shot)


def _not_evaluated(evaluations: Path, status: str, has_some: bool) -> Exception:
    if status == "done":
        return DamageError(f"{evaluations} holds no evaluations of test tasks, but the run is done")
    why = NOT_EVALUATED.get(status, f"its status is {status!r}")
    run = evaluations.parent
    if has_some:
        return UsageError(f"{run} is not finished: {why}; 'mesax report {run}' shows the evaluations so far")
    return UsageError(f"{run} has no evaluations of test tasks yet: {why}")


def _check_run(path: Path, run: Json) -> None:
    _check_entries(path, run, RUN_ENTRIES)
    _check_numbers(path, run["family"], FAMILY_NUMBERS)
    if run["family"].get("lowest_return") is not None:  # families need not know any
        _check_numbers(path, run["family"], ("lowest_return",))
    if not isinstance(run["test_tasks"], list):
        raise DamageError(f"{path}: test_tasks is not a list")
    for task in run["test_tasks"]:
        _check_entries(path, task, ("label",))


def _check_entries(path: Path, value: object, names: Sequence[str]) -> None:
    missing = [name for name in names if not isinstance(value, dict) or name not in value]
    if missing:
        raise DamageError(f"{path} lacks {', '.join(missing)}")


def _check_numbers(path: Path, value: Json, names: Sequence[str]) -> None:
    _check_entries(path, value, names)
    for name in names:
        if isinstance(value[name], bool) or not isinstance(value[name], int | float):
            raise DamageError(f"{path}: {name} is not a number")
