"""Statistics of runs: reading a run directory, aligned curves, and intervals over tasks and seeds."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from mesax.errors import UsageError

Json = dict[str, Any]

FINAL_WINDOW = 5  # the final return of a task is the mean of its last five evaluations
CONFIDENCE = 0.95
RESAMPLES = 5_000
BOOTSTRAP_SEED = 20_240_501  # fixed, so that the same run always reports the same interval
TIE = 1e-6  # single-precision returns closer than this count as equal


@dataclass(frozen=True)
class Interval:
    """A statistic with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Curve:
    """The evaluations of one learner on one test task, in order of steps."""

    task: int
    label: str
    repeat: int
    steps: np.ndarray
    returns: np.ndarray
    groups: Mapping[str, np.ndarray]


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


def mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The arithmetic mean along an axis."""
    return np.mean(scores, axis=axis)


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half of the scores: outliers sway it less than the mean."""
    return np.asarray(stats.trim_mean(scores, 0.25, axis=axis))


def bootstrap(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    statistic: Callable[..., np.ndarray] = mean,
    resamples: int = RESAMPLES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The statistic over the first axis with its percentile bootstrap interval, for each remaining position.

    When every task has at least two repeats they are the strata, resampled within each task; otherwise the
    task runs are resampled as one sample. One score, or scores without spread, give an interval of no width.
    """
    scores = np.asarray(scores, dtype=float)
    value = np.asarray(statistic(scores, axis=0))
    samples = _strata(scores, tasks)
    if len(samples[0]) < 2 or all(np.ptp(sample, axis=0).max(initial=0.0) == 0 for sample in samples):
        return value, value, value

    def pooled(*parts: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.concatenate(parts, axis=axis), axis=axis)

    return value, *_percentiles(samples, pooled, resamples)


def _percentiles(
    samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], resamples: int
) -> tuple[np.ndarray, np.ndarray]:
    interval = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        batch=500,  # bounds the memory of whole curves
        vectorized=True,
        axis=0,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return np.asarray(interval.low), np.asarray(interval.high)


def _strata(scores: np.ndarray, tasks: np.ndarray | None) -> list[np.ndarray]:
    if tasks is None:
        return [scores]
    samples = [scores[tasks == task] for task in np.unique(tasks)]
    return samples if min(len(sample) for sample in samples) >= 2 else [scores]


def bootstrap_interval(
    scores: np.ndarray,
    tasks: np.ndarray | None = None,
    statistic: Callable[..., np.ndarray] = mean,
    resamples: int = RESAMPLES,
) -> Interval:
    """The statistic of one score per task run with its 95% bootstrap interval."""
    return Interval(*(float(number) for number in bootstrap(scores, tasks, statistic, resamples)))


def common_grid(steps: Sequence[np.ndarray]) -> np.ndarray:
    """All evaluation steps between the latest start and the earliest end: where every curve has a value."""
    union = np.unique(np.concatenate(steps))
    return union[(union >= max(one[0] for one in steps)) & (union <= min(one[-1] for one in steps))]


def align(
    steps: Sequence[np.ndarray], values: Sequence[np.ndarray], grid: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Curves on one step grid (default: the union of theirs), holding the last value; NaN outside a curve."""
    points = np.unique(np.concatenate(steps)) if grid is None else np.asarray(grid)
    rows = np.full((len(steps), len(points)), np.nan)
    for row, own_steps, own_values in zip(rows, steps, values, strict=True):
        inside = (points >= own_steps[0]) & (points <= own_steps[-1])
        row[inside] = own_values[np.searchsorted(own_steps, points[inside], side="right") - 1]
    return points, rows


def mean_curve(curves: Sequence[Curve], group: str | None = None) -> tuple[np.ndarray, ...]:
    """Steps, mean, low and high of several curves, as far as all of them reach; of one group if given."""
    chosen = [curve for curve in curves if group is None or group in curve.groups]
    if not chosen:
        return tuple(np.empty(0) for _ in range(4))
    steps = [curve.steps for curve in chosen]
    values = [curve.returns if group is None else curve.groups[group] for curve in chosen]
    grid, rows = align(steps, values, common_grid(steps))
    return grid, *bootstrap(rows, np.array([curve.task for curve in chosen]), resamples=2_000)


def final_return(returns: np.ndarray) -> float:
    """The mean of the last five evaluations (of all of them if there are fewer)."""
    return float(np.mean(returns[-FINAL_WINDOW:]))


def steps_to_optimal(steps: np.ndarray, returns: np.ndarray, threshold: float) -> int | None:
    """The first evaluation step whose return reaches the threshold, or None."""
    reached = np.flatnonzero(np.asarray(returns) >= threshold)
    return int(steps[reached[0]]) if reached.size else None


def mean_steps_to_optimal(curves: Sequence[Curve], threshold: float) -> int | None:
    """The first step at which the mean over all task runs reaches the threshold, as far as all of them go, or None."""
    steps = [curve.steps for curve in curves]
    grid, rows = align(steps, [curve.returns for curve in curves], common_grid(steps))
    return steps_to_optimal(grid, mean(rows), threshold)


def optimal_fraction(final_returns: np.ndarray, threshold: float) -> float:
    """The fraction of task runs whose final return is at the optimum."""
    return float(np.mean(np.asarray(final_returns) >= threshold))


def groups_of(runs: Sequence[RunResults]) -> list[str]:
    """Names of the groups that say more than the whole, in the family's order."""
    curves = [curve for run in runs for curve in run.curves]
    present = {name for curve in curves for name in curve.groups}
    if len(present) == 1 and all(np.array_equal([*c.groups.values()], [c.returns]) for c in curves):
        return []
    declared = [name for run in runs for name in run.family.get("groups") or []]
    return [name for name in dict.fromkeys([*declared, *sorted(present)]) if name in present]


def group_means(curves: Sequence[Curve]) -> dict[str, float]:
    """The mean final return of each group, over the task runs in which the group occurs."""
    names = sorted({name for curve in curves for name in curve.groups})
    return {
        name: float(np.mean([final_return(curve.groups[name]) for curve in curves if name in curve.groups]))
        for name in names
    }


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> float:
    """The chance that a score drawn from the first beats one drawn from the second; ties count one half."""
    differences = np.subtract.outer(np.asarray(scores, dtype=float), np.asarray(others, dtype=float))
    return float(np.mean((differences > TIE) + 0.5 * (np.abs(differences) <= TIE)))


@dataclass(frozen=True)
class Comparison:
    """How much better one run is than another."""

    difference: Interval
    probability: float
    shared: int
    """Test tasks that both have learned: the comparison is over these, pair by pair; 0: over all, as two samples."""
    complete: bool = False
    """Whether neither run has any other test task."""


def compare_runs(run: RunResults, other: RunResults) -> Comparison:
    """The difference of mean final returns: task by task over the test tasks of both, if there are any."""
    ours, theirs = finals_by_task(run), finals_by_task(other)
    pairs = [(ours[task], theirs[task]) for task in ours if task in theirs]
    if len(pairs) < min(2, len(ours), len(theirs)) or not pairs:  # a single pair of many would have no interval
        return _compare_unpaired(run.final_returns, other.final_returns)
    differences = np.array([one.mean() - another.mean() for one, another in pairs])
    probability = float(np.mean([probability_of_improvement(*pair) for pair in pairs]))
    complete = len(pairs) == len(ours) == len(theirs)
    return Comparison(bootstrap_interval(differences), probability, len(pairs), complete)


def finals_by_task(run: RunResults) -> dict[str, np.ndarray]:
    """Final returns of each test task, by what makes it the same task in another run: family, seed, target."""
    found: dict[str, list[float]] = {}
    for curve, value in zip(run.curves, run.final_returns, strict=True):
        task = run.run["test_tasks"][curve.task]
        what = task["target"] if "target" in task else task["label"]
        identity = json.dumps([run.run["env"], task.get("seed", run.run["seed"]), what])
        found.setdefault(identity, []).append(value)
    return {identity: np.array(values) for identity, values in found.items()}


def _compare_unpaired(scores: np.ndarray, others: np.ndarray) -> Comparison:
    def difference(ours: np.ndarray, theirs: np.ndarray, axis: int = 0) -> np.ndarray:
        return ours.mean(axis=axis) - theirs.mean(axis=axis)

    value = low = high = difference(scores, others)
    if min(scores.size, others.size) >= 2 and max(np.ptp(scores), np.ptp(others)) > 0:
        low, high = _percentiles((scores, others), difference, RESAMPLES)
    interval = Interval(float(value), float(low), float(high))
    return Comparison(interval, probability_of_improvement(scores, others), shared=0)


def summarize(
    run: Json,
    eval_rows: Iterable[Json],
    *,
    env_steps: int,
    meta_env_steps: int,
    wall_seconds: float,
    run_dir: str,
) -> Json:
    """The object of summary.json, which is also what `--json` prints."""
    curves = curves_from_rows(run, eval_rows)
    if not curves:
        raise UsageError("there is nothing to summarize: no test task has been evaluated")
    family, finals = run["family"], np.array([final_return(curve.returns) for curve in curves])
    interval = bootstrap_interval(finals, np.array([curve.task for curve in curves]))
    return {
        **{key: run[key] for key in ("method", "env", "preset", "seed")},
        "env_steps": int(env_steps),
        "meta_env_steps": int(meta_env_steps),
        "mean_return": interval.value,
        "std_return": float(finals.std()),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "iqm": float(interquartile_mean(finals)),
        "normalized_return": interval.value / float(family["optimal_return"]),
        "optimal_fraction": optimal_fraction(finals, family["optimal_threshold"]),
        "by_group": group_means(curves),
        "per_task": [_task_summary(curve, family["optimal_threshold"]) for curve in curves],
        "wall_seconds": float(wall_seconds),
        "env_steps_per_second": float(env_steps / wall_seconds) if wall_seconds > 0 else 0.0,
        "run_dir": str(run_dir),
    }


def run_figures(run: RunResults) -> Json:
    """What a comparison says of a run, or of several pooled ones: a row of its table as plain numbers."""
    finals, threshold = run.final_returns, run.family["optimal_threshold"]
    interval = bootstrap_interval(finals, run.tasks)
    reached = [steps_to_optimal(curve.steps, curve.returns, threshold) for curve in run.curves]
    solved = [steps for steps in reached if steps is not None]
    return {
        "mean": interval.value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "iqm": float(interquartile_mean(finals)),
        "std": float(finals.std()),
        "by_group": group_means(run.curves),
        "optimal_fraction": optimal_fraction(finals, threshold),
        "steps_to_solve": float(np.median(solved)) if solved else None,
        "steps_to_optimum": mean_steps_to_optimal(run.curves, threshold),
        "wall_seconds": run.summary.get("wall_seconds"),
        "env_steps": run.summary.get("env_steps"),
        "meta_env_steps": run.summary.get("meta_env_steps"),
        "task_runs": len(run.curves),
    }


def explorer_figures(coverage: Json) -> Json:
    """What the explorers reach on unseen tasks, beside uniform play, from coverage.json."""
    names = ("distinct_visits", "high_reward_steps")
    figures = {visitor["name"]: {name: visitor[name] for name in names} for visitor in coverage["visitors"]}
    return {"visitors": figures, "leaks": coverage.get("leaks")}


def _task_summary(curve: Curve, threshold: float) -> Json:
    return {
        "task": curve.task,
        "label": curve.label,
        "repeat": curve.repeat,
        "final_return": final_return(curve.returns),
        "steps_to_optimal": steps_to_optimal(curve.steps, curve.returns, threshold),
        "groups": {name: final_return(values) for name, values in curve.groups.items()},
    }


def load_run(run_dir: str | Path) -> RunResults:
    """The results of a run directory; an unreadable or unfinished one is a UsageError of one line."""
    directory = Path(run_dir)
    if not directory.is_dir():
        raise UsageError(f"run directory {str(run_dir)!r} does not exist")
    run = _read_json(directory / "run.json")
    _check_keys(directory / "run.json", run, ("method", "env", "preset", "seed", "family", "test_tasks"))
    _check_keys(directory / "run.json", run["family"], ("optimal_return", "suboptimal_return", "optimal_threshold"))
    status = directory / "STATUS"
    state = status.read_text().strip() if status.is_file() else "unknown"
    curves = curves_from_rows(run, _read_rows(directory / "eval.jsonl"), directory / "eval.jsonl")
    if not curves:
        raise UsageError(f"{directory / 'eval.jsonl'} has no evaluations of test tasks yet (status: {state})")
    return RunResults(
        directory=directory,
        run=run,
        curves=curves,
        summary=_read_json(directory / "summary.json", optional=True),
        metrics=_read_rows(directory / "metrics.jsonl", optional=True),
        coverage=_read_json(directory / "coverage.json", optional=True) or None,
        status=state,
    )


def curves_from_rows(run: Json, rows: Iterable[Json], source: object = "eval.jsonl") -> tuple[Curve, ...]:
    """One curve for each task and repeat; of several rows for one step (a resumed run) the last counts."""
    found: dict[tuple[int, int], dict[int, Json]] = {}
    try:
        for row in rows:
            if row.get("phase", "adapt") == "adapt":
                found.setdefault((int(row["task"]), int(row["repeat"])), {})[int(row["step"])] = row
        return tuple(_curve(run["test_tasks"], key, by_step) for key, by_step in sorted(found.items()))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{source} does not hold evaluations of this run's test tasks ({reason})") from None


def _curve(test_tasks: Sequence[Json], key: tuple[int, int], by_step: Mapping[int, Json]) -> Curve:
    task, repeat = key
    if task < 0:
        raise IndexError(f"task {task}")
    steps = sorted(by_step)
    rows = [by_step[step] for step in steps]
    returns = np.array([float(row["return"]) for row in rows])
    if not np.isfinite(returns).all():
        raise ValueError(f"a return of task {task} is not finite")
    names = set.intersection(*(set(row.get("groups") or {}) for row in rows))
    groups = {name: np.array([float(row["groups"][name]) for row in rows]) for name in sorted(names)}
    own_group = test_tasks[task].get("group")
    if not groups and own_group is not None:
        groups = {own_group: returns}
    return Curve(task, str(test_tasks[task]["label"]), repeat, np.array(steps), returns, groups)


def _check_keys(path: Path, value: object, keys: Sequence[str]) -> None:
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise UsageError(f"{path} lacks {', '.join(missing)}")


def _read_text(path: Path, optional: bool) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if optional:
            return ""
        raise UsageError(f"{path.parent} is not a run directory: it has no {path.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error})") from None


def _read_json(path: Path, optional: bool = False) -> Json:
    text = _read_text(path, optional)
    try:
        value = json.loads(text) if text or not optional else {}
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a JSON object")
    return value


def _read_rows(path: Path, optional: bool = False) -> tuple[Json, ...]:
    lines = _read_text(path, optional).split("\n")
    rows: list[Json] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            # What follows the last line break was being written when the run stopped.
            if number == len(lines):
                break
            raise UsageError(f"line {number} of {path} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise UsageError(f"line {number} of {path} is not a JSON object")
        rows.append(row)
    return tuple(rows)
