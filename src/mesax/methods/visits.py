"""What policies visit of all that is worth visiting: measured against the truth, not by what explorers are paid."""

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
from mesax.methods.base import Experiment, Purpose, Services
from mesax.methods.targets import TargetVisits, count_targets
from mesax.policy import Policy, UniformPolicy
from mesax.rewards.base import ExplorersReward
from mesax.rewards.subspace import CoverageState, HighRewardSet
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY
from mesax.training.driver import play_episodes, tasks_played
from mesax.types import EnvSpec, Episode, Key

LARGEST_PICTURE = 20_000
MOST_LEAK_EPISODES, MOST_PICTURE_EPISODES = 2_000, 1_000
"""Enough for two digits, however many episodes a coverage figure has."""
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


class _Seen(NamedTuple):
    """What stacked episodes visit, and in truth."""

    near: Array
    """Whether a step is near each cluster, `[episodes, time, clusters]`."""
    distance: Array
    """To all that is to be visited, `[episodes, time]`."""
    configuration: Array
    """In truth, `[episodes, time]`; -1 for none and for padding."""
    paid: Array
    """What the explorers' reward pays, `[episodes, time]`."""


@dataclass(frozen=True)
class _See:
    reward: ExplorersReward
    family: TaskFamily

    def __call__(self, state: PyTree, episodes: Episode) -> _Seen:
        spec = self.family.env.spec
        found = self.reward.visits(spec, state, episodes)
        paid = self.reward.observe(spec, state, episodes, jax.random.key(0))[1].reward
        return _Seen(found.near, found.distance, step_configurations(self.family, episodes), paid)


@dataclass(frozen=True)
class _Features:
    reward: ExplorersReward
    spec: EnvSpec

    def __call__(self, episodes: Episode) -> Float[Array, "envs time features"]:
        return self.reward.features_of(self.spec, episodes)


@dataclass(frozen=True)
class Survey:
    """What policies visit of all that explorers are to visit."""

    experiment: Experiment
    reward: ExplorersReward
    num_episodes: int
    """Behind each figure while explorers are trained; behind those of all of them together, ten times as many."""
    state: PyTree = None
    """State of the reward."""
    high_reward: float = np.inf
    """Rewards from here on are high."""

    def of(self, policy: Policy, tasks: PyTree, key: Key) -> CoverageReport:
        """Play a policy on stacked tasks and count what it visits."""
        family = self.experiment.family
        episodes = play_episodes(self.experiment.training_env, tasks, policy, key, self.num_episodes)
        seen = compiled(_See(self.reward, family))(self.state, episodes)
        near = np.asarray(seen.near)
        counts = near.sum(axis=1, dtype=np.float32)
        which, number = tasks_played(tasks, key, self.num_episodes)
        clusters = np.flatnonzero(np.asarray(self.reward.clusters(self.state)))
        distinct = _distinct(np.asarray(seen.configuration), family.rewarding_configurations(tasks))
        return CoverageReport(
            visit_chance=np.mean(counts > 0, axis=0),
            mean_visits=np.mean(counts, axis=0).astype(float),
            clusters_visited=float(np.mean(np.sum(counts > 0, axis=1))),
            distinct_visits=distinct.mean,
            distinct_union=distinct.union,
            high_reward_steps=_high_reward_steps(episodes, self.high_reward),
            coverage_return=float(np.mean(np.sum(seen.paid, axis=1))),
            worst_steps=count_targets(which, near[..., clusters], clusters, number).worst_tenth,
        )

    def check(self, services: Services, anew: bool) -> dict[str, float | None]:
        """Check the map before anything is trained on it, with a row if the job begins anew."""
        found = self.leaks()
        if anew:
            services.rows("metrics", [{"phase": "leaks", "step": 0} | found])
        return found

    def leaks(self) -> dict[str, float | None]:
        """Does "near" mean what it should? Against the truth, on uniformly random episodes of the *unseen* tasks.

        Needs no training, takes seconds, and finds a feature map that leaks reward before an explorer exploits it.
        """
        family, split, threshold = self.experiment.family, self.experiment.split, self.reward.distance_threshold
        number = min(20 * self.num_episodes, MOST_LEAK_EPISODES)
        uniform, key = UniformPolicy(family.env.spec.action_space), self.experiment.key(Purpose.LEAKS)
        episodes = play_episodes(self.experiment.training_env, split.test, uniform, key, number)
        seen = compiled(_See(self.reward, family))(self.state, episodes)
        distance, happened = np.asarray(seen.distance), episodes.mask
        rewarding = family.rewarding_configurations(split.train)
        if rewarding is None:
            return unknown_leaks(int(happened.sum()), threshold)
        true = np.isin(np.asarray(seen.configuration), rewarding)
        return leaks(distance[happened], true[happened], threshold)

    def document(self, explorers: Mapping[str, Policy]) -> dict[str, object]:
        """What uniform play and the explorers visit on the *unseen* tasks, for the coverage figure."""
        family, number = self.experiment.family, min(10 * self.num_episodes, MOST_PICTURE_EPISODES)
        subspace = self.state.subspace if isinstance(self.state, CoverageState) else None
        plane, entries = _plane(subspace), []
        for entry, episodes in unseen_visits(self.experiment, explorers, self.high_reward, number):
            if plane is not None:
                some = jax.tree.map(lambda leaf: leaf[:SHOWN_ORDERS], episodes)
                path = compiled(_Features(self.reward, family.env.spec))(some)
                entry["path"] = _rounded(np.where(some.mask[..., None], path, np.nan))
            entries.append(entry)
        return pictured(family, entries) | {
            "dataset_size": None if subspace is None else len(subspace.points()),
            "clusters": int(np.sum(np.asarray(self.reward.clusters(self.state)))),
            "plane": plane,
        }


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


def _plane(subspace: HighRewardSet | None) -> dict[str, list[object]] | None:
    """M_* and its clusters where features are points in a plane, which can be looked at."""
    if subspace is None or subspace.members.shape[1] != 2:
        return None
    return {"members": _rounded(subspace.points()), "centroids": _rounded(subspace.centers())}


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
