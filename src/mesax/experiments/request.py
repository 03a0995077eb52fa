"""What a person asked for, as an experiment, and what run.json says of any experiment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import jax
from jaxtyping import PyTree

from mesax.envs.base import TaskFamily
from mesax.experiments.catalogue import experiment as named_experiment
from mesax.experiments.catalogue import paid_here
from mesax.experiments.overrides import apply_all, difference, digest
from mesax.experiments.provenance import surroundings
from mesax.methods.base import Experiment
from mesax.store.modules import file_name, how_to_load
from mesax.store.settings import to_plain
from mesax.suites.foreign.suite import ForeignSuite
from mesax.suites.registry import suite_of
from mesax.types import leading_size, tree_index

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
    """Off-policy learner to wrap, instead of the preset's own: a name, or `module:attribute`."""

    def experiment(self) -> Experiment:
        """The catalogue's entry with this request's changes."""
        entry = replace(named_experiment(self.method, self.env, self.preset, self.learner), seed=self.seed)
        paid = [(path, text) for path, text in self.overrides if path.replace("_", "-") == "reward-model"]
        if paid:
            entry = paid_here(apply_all(entry, paid), self.env, self.preset)
        changes = [change for change in self.overrides if change not in paid]
        if self.num_test_tasks is not None:
            changes.append(("num-test-tasks", str(self.num_test_tasks)))
        return apply_all(entry, changes)

    @property
    def guesses_best(self) -> bool:
        """Whether mesax had to guess the best return: of a user's world, if it comes without one and none is given."""
        suite = suite_of(self.env)
        told = any(path.replace("_", "-") == "family.optimal-return" for path, _ in self.overrides)
        return isinstance(suite, ForeignSuite) and suite.guesses_best and not told

    @property
    def label(self) -> str:
        """What tables call the method."""
        return self.method if self.learner is None else f"{self.method}+{self.learner}"

    def run_id(self, experiment: Experiment) -> str:
        """Name of the run of this request's experiment: readable, and different for different configurations."""
        return file_name(f"{self.label}-{self.env}-{self.preset}-seed{self.seed}-{digest(experiment)}")


def paper_difference(request: Request, experiment: Experiment) -> list[list[object]]:
    """[path, paper's value, this run's value] for every setting that differs from the paper preset."""
    paper = replace(named_experiment(request.method, request.env, "paper", request.learner), seed=request.seed)
    return [
        [path, theirs, ours] for path, theirs, ours in difference(paper, experiment) if path not in NOT_ABOUT_THE_PAPER
    ]


def run_json(request: Request, experiment: Experiment, typed: Sequence[str]) -> dict[str, object]:
    """Everything that determines, explains and locates a run; `typed` are the arguments of `mesax`."""
    return {
        "id": request.run_id(experiment),
        "method": request.label,
        "env": request.env,
        "suite": suite_of(request.env).name,
        "preset": request.preset,
        "seed": request.seed,
        "request": asdict(request),
        "overrides": dict(request.overrides),
        "paper_diff": paper_difference(request, experiment),
        "command": shlex.join(["mesax", *typed]),
        **facts_of(experiment, request.env),
    }


def family_facts(family: TaskFamily, env: str) -> dict[str, object]:
    """What run.json says of a world: how its returns are read."""
    names = ("optimal_return", "suboptimal_return", "optimal_threshold")
    known = {"name": env, **{name: getattr(family, name) for name in names}, "groups": list(family.groups)}
    return known | family.facts()


def facts_of(experiment: Experiment, env: str) -> dict[str, object]:
    """What run.json says of any experiment, named or not: settings, versions, machine, tasks."""
    family, split = experiment.family, experiment.split
    return {
        **({"privileged": True} if experiment.is_privileged else {}),
        "config": to_plain(experiment),
        "config_hash": digest(experiment),
        "modules": list(how_to_load(experiment)),
        **surroundings(),
        "family": family_facts(family, env),
        "train_tasks": described(family, split.train),
        "test_tasks": described(family, split.test),
    }


def described(family: TaskFamily, tasks: PyTree) -> list[dict[str, object]]:
    """What run.json says of stacked tasks."""
    tasks = jax.device_get(tasks)  # taken apart on the host, where it takes no program
    return [asdict(family.describe(tree_index(tasks, i))) for i in range(leading_size(tasks))]
