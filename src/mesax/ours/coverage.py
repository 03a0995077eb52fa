"""How well exploration policies cover what is worth visiting: measured against the truth, not the intrinsic reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from mesax.compiling import compiled
from mesax.envs.base import TaskFamily, TaskSplit, configurations_of, step_configurations
from mesax.formatting import NOT_MEASURED
from mesax.methods.base import Experiment, Purpose
from mesax.ours.targets import TargetVisits, count_targets
from mesax.policy import Policy, UniformPolicy
from mesax.rewards.coverage import CoverageModel, CoverageState, near_clusters
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY
from mesax.training.driver import play_episodes, tasks_played
from mesax.types import EnvSpec, Episode, Key

LARGEST_PICTURE = 20_000
SHOWN_ORDERS = 4
"""Episodes of each visitor whose order of visits is told."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoverageReport:
    """Visits of one policy over a number of episodes."""

    visit_chance: np.ndarray
    """Chance per episode of being near each cluster."""
    mean_visits: np.ndarray
    """Near visits per episode to each cluster."""
    clusters_visited: float
    """Distinct clusters per episode."""
    distinct_visits: float
    """Distinct configurations per episode that truly pay in some training task; NaN if the family cannot tell."""
    distinct_union: float
    """The same over all episodes together."""
    high_reward_steps: float
    """Steps per episode that pay a high reward on the tasks played."""
    coverage_return: float
    """What the coverage reward pays per episode for what was played."""
    worst_steps: float
    """Near steps per episode, as a mean over the worst tenth of all pairs of task and cluster."""

    @staticmethod
    def blank(num_clusters: int) -> CoverageReport:
        """A report of the right shapes."""
        return CoverageReport(np.zeros(num_clusters), np.zeros(num_clusters), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def row(self) -> dict[str, float]:
        """The scalar figures."""
        return {
            "clusters_visited": self.clusters_visited,
            "distinct_visits": self.distinct_visits,
            "distinct_union": self.distinct_union,
            "high_reward_steps": self.high_reward_steps,
            "coverage_return": self.coverage_return,
            "worst_steps": self.worst_steps,
        }

    def note(self) -> str:
        """What a person is told while explorers are trained."""
        if np.isnan(self.distinct_visits):
            distinct = f"{self.clusters_visited:.2f} clusters per episode (distinct rewarding places {NOT_MEASURED})"
        else:
            distinct = f"{self.distinct_visits:.2f} distinct rewarding places per episode"
        return f"{distinct}, {self.worst_steps:.1f} steps on the least visited"


class Visits(NamedTuple):
    """What stacked episodes visit."""

    near: Array
    """Whether a step is near each cluster, `[episodes, time, clusters]`."""
    configuration: Array
    """In truth, `[episodes, time]`; -1 for none and for padding."""
    distance: Array
    """To the nearest member of M_*, `[episodes, time]`."""
    reward: Array
    """What the coverage reward pays, `[episodes, time]`."""


@dataclass(frozen=True)
class _Visits:
    reward: CoverageModel
    family: TaskFamily

    def __call__(self, state: CoverageState, episodes: Episode) -> Visits:
        found = self.reward.matches(self.family.env.spec, state, episodes)
        near = near_clusters(found, state.visits.shape[0])
        paid = self.reward.paid(self.family.env.spec, state, episodes)
        return Visits(near, step_configurations(self.family, episodes), found.distance, paid)


@dataclass(frozen=True)
class _Features:
    reward: CoverageModel
    spec: EnvSpec

    def __call__(self, state: CoverageState, episodes: Episode) -> Float[Array, "envs time features"]:
        return self.reward.sensed(self.spec, state, episodes)


def coverage_of(
    experiment: Experiment,
    reward: CoverageModel,
    state: CoverageState,
    policy: Policy,
    tasks: PyTree,
    high_reward: float,
    key: Key,
    num_episodes: int,
) -> CoverageReport:
    """Play a policy on stacked tasks and count what it visits."""
    family = experiment.family
    episodes = play_episodes(experiment.training_env, tasks, policy, key, num_episodes)
    visits = compiled(_Visits(reward, family))(state, episodes)
    near = np.asarray(visits.near)
    counts = near.sum(axis=1, dtype=np.float32)
    which, number = tasks_played(tasks, key, num_episodes)
    clusters = np.flatnonzero(np.asarray(state.subspace.cluster_valid))
    distinct = _distinct(np.asarray(visits.configuration), family.rewarding_configurations(tasks))
    return CoverageReport(
        visit_chance=np.mean(counts > 0, axis=0),
        mean_visits=np.mean(counts, axis=0).astype(float),
        clusters_visited=float(np.mean(np.sum(counts > 0, axis=1))),
        distinct_visits=distinct.mean,
        distinct_union=distinct.union,
        high_reward_steps=_high_reward_steps(episodes, high_reward),
        coverage_return=float(np.mean(np.sum(visits.reward, axis=1))),
        worst_steps=count_targets(which, near[..., clusters], clusters, number).worst_tenth,
    )


def leak_check(
    experiment: Experiment, reward: CoverageModel, state: CoverageState, num_episodes: int
) -> dict[str, float | None]:
    """Does "near M_*" mean what it should? Against the truth, on uniformly random episodes of the *unseen* tasks.

    Needs no training, takes seconds, and finds a feature map that leaks reward before an explorer exploits it.
    """
    family, split = experiment.family, experiment.split
    uniform = UniformPolicy(family.env.spec.action_space)
    key = experiment.key(Purpose.LEAKS)
    episodes = play_episodes(experiment.training_env, split.test, uniform, key, num_episodes)
    visits = compiled(_Visits(reward, family))(state, episodes)
    distance, happened = np.asarray(visits.distance), episodes.mask
    rewarding = family.rewarding_configurations(split.train)
    if rewarding is None:
        return unknown_leaks(int(happened.sum()), reward.distance_threshold)
    true = np.isin(np.asarray(visits.configuration), rewarding)
    return leaks(distance[happened], true[happened], reward.distance_threshold)


def unknown_leaks(steps: int, threshold: float) -> dict[str, float | None]:
    """What `leaks` says where the truth is unknown."""
    names = ("rewarding_steps", "precision", "recall", "distance_at_recall_90", "precision_at_recall_90")
    return {"threshold": threshold, "steps": steps} | dict.fromkeys(names)


def leaks(distance: np.ndarray, true: np.ndarray, threshold: float) -> dict[str, float | None]:
    """Precision and recall of `distance < threshold`, and the precision at the distance that recalls 90%."""

    def precision(limit: float) -> float | None:
        near = distance <= limit
        return float(np.mean(true[near])) if near.any() else None

    inside = np.nextafter(threshold, 0.0)
    reach = float(np.quantile(distance[true], 0.9)) if true.any() else None
    return {
        "threshold": threshold,
        "steps": int(true.size),
        "rewarding_steps": int(true.sum()),
        "precision": precision(inside),
        "recall": float(np.mean(distance[true] <= inside)) if true.any() else None,
        "distance_at_recall_90": reach,
        "precision_at_recall_90": None if reach is None else precision(reach),
    }


class _Distinct(NamedTuple):
    """Distinct rewarding configurations: per episode, and of all episodes together; NaN if they are unknown."""

    mean: float
    union: float


def _distinct(configurations: np.ndarray, rewarding: np.ndarray | None) -> _Distinct:
    if rewarding is None:
        return _Distinct(np.nan, np.nan)
    visited = [np.intersect1d(row, rewarding) for row in configurations]
    return _Distinct(float(np.mean([len(row) for row in visited])), float(len(np.unique(np.concatenate(visited)))))


def _high_reward_steps(episodes: Episode, high_reward: float) -> float:
    """Steps per episode that pay a high reward."""
    return float(np.mean(np.sum(episodes.mask & (episodes.reward >= high_reward), axis=1)))


def _task_steps(which: np.ndarray, num_tasks: int, episodes: Episode, high_reward: float) -> list[float | None]:
    """The same task by task; None for one that was not played."""
    steps = np.sum(episodes.mask & (episodes.reward >= high_reward), axis=1)
    return [
        round(float(np.mean(steps[which == task])), 4) if np.any(which == task) else None for task in range(num_tasks)
    ]


def coverage_pictures(
    experiment: Experiment,
    reward: CoverageModel,
    state: CoverageState,
    explorers: Mapping[str, Policy],
    high_reward: float,
    num_episodes: int,
) -> dict[str, object]:
    """What uniform play and the explorers visit on the *unseen* tasks, for the coverage figure."""
    spec = experiment.family.env.spec
    in_a_plane = reward.feature_size(spec) == 2
    entries = []
    for entry, episodes in unseen_visits(experiment, explorers, high_reward, num_episodes):
        if in_a_plane:
            some = jax.tree.map(lambda leaf: leaf[:SHOWN_ORDERS], episodes)
            path = compiled(_Features(reward, spec))(state, some)
            entry["path"] = _rounded(np.where(some.mask[..., None], path, np.nan))
        entries.append(entry)
    return pictured(experiment.family, entries) | {
        "dataset_size": int(np.sum(np.asarray(state.subspace.valid))),
        "clusters": int(np.sum(np.asarray(state.subspace.cluster_valid))),
        "plane": _plane(state) if in_a_plane else None,
    }


def unseen_visits(
    experiment: Experiment, explorers: Mapping[str, Policy], high_reward: float, num_episodes: int
) -> Iterator[tuple[dict[str, object], Episode]]:
    """What uniform play and each explorer visit on the *unseen* tasks, with the episodes behind it."""
    family, split = experiment.family, experiment.split
    visitors: dict[str, Policy] = {UNIFORM_PLAY: UniformPolicy(family.env.spec.action_space), **explorers}
    rewarding = family.rewarding_configurations(split.train)
    targets = _targets(family, split)
    known: dict[str, tuple[dict[str, object], Episode]] = {}
    for number, (name, policy) in enumerate(visitors.items()):
        if name == ALL_EXPLORERS and len(known) == 2:  # uniform play, and the one explorer that there is
            entry, episodes = known[next(reversed(known))]
            yield entry | {"name": name}, episodes
            continue
        key = experiment.key(Purpose.UNSEEN_VISITS, number)
        episodes = play_episodes(experiment.training_env, split.test, policy, key, num_episodes)
        which, _ = tasks_played(split.test, key, num_episodes)
        visited = configurations_of(family, episodes)
        entry = {
            "name": name,
            "episodes": len(episodes.reward),
            "distinct_visits": _distinct(visited, rewarding).mean,
            "high_reward_steps": _high_reward_steps(episodes, high_reward),
            "task_steps": _task_steps(which, experiment.num_test_tasks, episodes, high_reward),
            "targets": _target_visits(
                which, experiment.num_test_tasks, visited, targets, episodes, high_reward
            ).document(),
            "frequency": _frequency(family, visited),
            "orders": [] if rewarding is None else [visit_order(row, rewarding) for row in visited[:SHOWN_ORDERS]],
        }
        known[name] = entry, episodes
        yield entry, episodes


def pictured(family: TaskFamily, visitors: list[dict[str, object]]) -> dict[str, object]:
    """Visitors, with the shape in which their visits are shown."""
    return {
        "num_stages": (family.configuration_shape or (1,))[0],
        "shape": None if family.configuration_shape is None else list(family.configuration_shape[1:]),
        "visitors": visitors,
    }


def _targets(family: TaskFamily, split: TaskSplit) -> np.ndarray | None:
    """All configurations that pay most in some task: in another layout, each could be the one that counts."""
    parts = [family.rewarding_configurations(tasks) for tasks in (split.train, split.test)]
    known = [part for part in parts if part is not None]
    return np.unique(np.concatenate(known)) if known else None


def _target_visits(
    which: np.ndarray,
    num_tasks: int,
    visited: np.ndarray,
    targets: np.ndarray | None,
    episodes: Episode,
    high_reward: float,
) -> TargetVisits:
    """Visits to each target on each task; where targets are unknown, to whatever pays most there."""
    if targets is None:
        high = np.asarray(episodes.mask & (episodes.reward >= high_reward))
        return count_targets(which, high[..., None], np.zeros(1, int), num_tasks)
    return count_targets(which, visited[..., None] == targets, targets, num_tasks)


def _plane(state: CoverageState) -> dict[str, list[object]]:
    """M_* and its clusters where features are points in a plane, which can be looked at."""
    subspace = state.subspace
    return {
        "members": _rounded(np.asarray(subspace.members)[np.asarray(subspace.valid)]),
        "centroids": _rounded(np.asarray(subspace.centroids)[np.asarray(subspace.cluster_valid)]),
    }


def _rounded(values: np.ndarray) -> list[object]:
    """Four digits; None for what did not happen."""
    rounded = np.round(values.astype(float), 4).astype(object)
    rounded[np.isnan(values)] = None
    plain: list[object] = rounded.tolist()
    return plain


def visit_order(configurations: np.ndarray, rewarding: np.ndarray) -> list[int]:
    """The rewarding configurations of one episode in the order of their first visits."""
    return [int(number) for number in dict.fromkeys(configurations.tolist()) if number in rewarding]


def _frequency(family: TaskFamily, configurations: np.ndarray) -> list[object] | None:
    """Visits per episode to each configuration, in the family's own shape."""
    cells = configuration_cells(family)
    if cells is None:
        return None
    counts = np.bincount(configurations[configurations >= 0].reshape(-1), minlength=cells)
    return _as_grid(family, counts / len(configurations))


def configuration_grid(family: TaskFamily, configurations: np.ndarray) -> list[object] | None:
    """1 where a configuration is in the list, else 0, in the family's own shape."""
    cells = configuration_cells(family)
    if cells is None:
        return None
    present = np.zeros(cells)
    present[configurations[configurations >= 0]] = 1.0
    return _as_grid(family, present)


def configuration_cells(family: TaskFamily) -> int | None:
    """How many configurations a picture must show; None if there are too many, or no natural shape."""
    shape = family.configuration_shape
    cells = None if shape is None else int(np.prod(shape))
    return cells if cells is not None and cells <= LARGEST_PICTURE else None


def _as_grid(family: TaskFamily, values: np.ndarray) -> list[object]:
    grid: list[object] = np.round(values.reshape(family.configuration_shape), 6).tolist()
    return grid
