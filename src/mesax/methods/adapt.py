"""Learning the unseen test tasks: the stage that every method ends with.

What meta-training has to hand over is a `Start`: explorers that may play, a learner to begin with, episodes to replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mesax.envs.base import Task, TaskFamily
from mesax.explorers.places import EXPLORERS
from mesax.explorers.recipe import Recipe, saved_explorers
from mesax.methods.base import Experiment, Purpose, Services, Stage, groups_of, keeping_last_good, of_lanes, padded
from mesax.policy import ExplorationPolicySet
from mesax.store.leaves import is_key
from mesax.store.reading import PHASE, Evaluation
from mesax.store.trees import Place, load_tree, save_tree
from mesax.training.behavior import Behavior, LearnerAlone
from mesax.training.driver import Chunk, learn, prepare
from mesax.training.loop import LearningLoop, Start
from mesax.types import Keys, stacked_shape, tree_index

Lane = tuple[int, int]
"""(test task, repeat)."""


def policy_name(task: int, repeat: int) -> str:
    """Directory name of a final policy."""
    return f"task-{task:02d}-run-{repeat:02d}"


def best_policy_name(task: int, repeat: int) -> str:
    """Directory name of the policy with the best evaluation."""
    return f"best-{policy_name(task, repeat)}"


def adapt_loop(experiment: Experiment, behavior: Behavior = LearnerAlone()) -> LearningLoop:
    """How every test task is learned; refuses a learner that does not fit its schedule."""
    return LearningLoop(
        experiment.training_env, experiment.algorithm, experiment.schedule, behavior, experiment.reward_model
    )


def check_adapt(experiment: Experiment, behavior: Behavior = LearnerAlone()) -> None:
    """Refuse what the learner of the test tasks cannot serve."""
    loop = adapt_loop(experiment, behavior)
    loop.check_lanes(experiment.lanes)
    jax.eval_shape(lambda key: experiment.algorithm.init(loop.learner_spec, key), jax.random.key(0))


def greedy_shape(experiment: Experiment) -> PyTree:
    """Shapes of a saved policy, as it plays in the environment itself."""
    loop, spec = adapt_loop(experiment), experiment.env.spec
    state = jax.eval_shape(lambda key: loop.init(Start(), (), key), jax.random.key(0))
    return jax.eval_shape(lambda learner, reward: loop.greedy(spec, learner, reward), state.learner, state.reward)


def adapt_stage(
    experiment: Experiment,
    behavior: Behavior = LearnerAlone(),
    start_of: Callable[[Services, Task], Start] = lambda services, tasks: Start(),
    start_like: Callable[[], Start] | None = None,
) -> Stage:
    """Learn every unseen test task.

    `start_of` loads what meta-training left behind for the tasks of a job, `[lanes, 1, ...]`; `start_like`, if given,
    says its shapes, so that programs can be compiled before it is there.
    """
    runs = [(t, r) for t in range(experiment.num_test_tasks) for r in range(experiment.num_repeats)]
    adapting = _Adapting(experiment, adapt_loop(experiment, behavior), groups_of(runs, experiment.lanes), start_of)
    steps = experiment.schedule.steps(adapting.loop.env.spec.horizon)
    return Stage(
        "adapt",
        tuple(steps * len(group) for group in adapting.groups),
        adapting.run,
        products=("task-*", "best-task-*"),
        prepare=None if start_like is None else lambda: adapting.prepare(start_like()),
    )


def adapt_with_explorers(
    experiment: Experiment, behavior: Behavior, recipe: Recipe, number: int, stage: str = "gather"
) -> Stage:
    """Learn every unseen test task with the explorers that a stage has saved, of whom there are at most so many."""

    def start(services: Services, tasks: Task) -> Start:
        del tasks
        return Start(recipe.deployed(saved_explorers(recipe, services.outputs(stage)[0] / EXPLORERS)))

    def start_like() -> Start:
        shapes = recipe.shape(number)
        return jax.eval_shape(lambda policies: Start(recipe.deployed(ExplorationPolicySet(policies))), shapes)

    return adapt_stage(experiment, behavior, start, start_like=start_like)


def adapt_from(
    experiment: Experiment,
    first: Stage,
    saved: str,
    like: Callable[[], PyTree],
    start_from: Callable[[PyTree], Start],
) -> Stage:
    """Learn every unseen test task from the tree that the one job of the first stage has saved; `like` has its shapes.

    Shapes are asked for when they are needed: to build the stages of a method is to cost nothing.
    """

    def start(services: Services, tasks: Task) -> Start:
        del tasks
        return start_from(load_tree(services.outputs(first.name)[0] / saved, like()))

    def start_like() -> Start:
        shape: Start = jax.eval_shape(start_from, like())
        return shape

    return adapt_stage(experiment, start_of=start, start_like=start_like)


@dataclass(frozen=True)
class _Adapting:
    """The jobs of the stage, a group of lanes each."""

    experiment: Experiment
    loop: LearningLoop
    groups: list[list[Lane]]
    start_of: Callable[[Services, Task], Start]

    def run(self, job: int, services: Services) -> None:
        """Learn, evaluate, and keep two policies of every lane."""
        group = self.groups[job]
        tasks, keys = self._lanes(group)
        start = _settled(self.start_of(services, tasks))
        best: _Best | None = services.kept(lambda: self._best_like(len(keys)))
        all_tasks = self.experiment.split.test
        with keeping_last_good(services):
            for chunk in learn(
                self.loop,
                tasks,
                keys,
                start=start,
                eval_episodes=self.experiment.eval_episodes,
                eval_env=self.experiment.env,
                keeper=services,
            ):
                zero_shot = start.learner is not None and chunk.step == self._untrained
                returns = _record(self.experiment, services, group, all_tasks, chunk, zero_shot)
                best = _better(best, np.array(padded(returns, len(keys))), chunk)
                services.keep(best)
        assert best is not None
        _save_policies(services.directory, group, chunk, best)

    def _best_like(self, lanes: int) -> _Best:
        """Shapes of the best policies."""
        policy = stacked_shape(greedy_shape(self.experiment), lanes)
        return _Best(np.zeros(lanes), np.zeros(lanes, int), policy)

    def prepare(self, start: Start) -> None:
        """Compile what the jobs need."""
        tasks, keys = self._lanes(self.groups[0])
        prepare(
            self.loop,
            tasks,
            keys,
            start=stacked_shape(start),
            eval_episodes=self.experiment.eval_episodes,
            eval_env=self.experiment.env,
        )

    def _lanes(self, group: list[Lane]) -> tuple[PyTree, Keys]:
        """Tasks and keys of each lane."""
        lanes = padded(group, self.experiment.lanes)
        tasks = of_lanes(self.experiment.split.test, [task for task, _ in lanes])
        return tasks, jnp.stack([self.experiment.key(Purpose.ADAPT, task, repeat) for task, repeat in lanes])

    @property
    def _untrained(self) -> int:
        """The step at which a learner is still what it was at the start."""
        schedule, horizon = self.experiment.schedule, self.loop.env.spec.horizon
        return schedule.warmup_rounds(horizon) * schedule.steps_per_round(horizon)


def _settled(start: Start) -> Start:
    """Without weak types, with which it would have programs of its own."""
    settled: Start = jax.tree.map(lambda leaf: np.asarray(leaf) if getattr(leaf, "weak_type", False) else leaf, start)
    return settled


class _Best(NamedTuple):
    """The policies with the best evaluations, lane by lane."""

    returns: np.ndarray
    step: np.ndarray
    policy: PyTree


def _better(best: _Best | None, returns: np.ndarray, chunk: Chunk) -> _Best:
    """The better policy of each lane; of two equals the later."""
    now = _Best(returns, np.full(len(returns), chunk.step), chunk.policy)
    if best is None:
        return now
    wins = now.returns >= best.returns

    def chosen(new: np.ndarray | jax.Array, old: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
        choose = jnp.where if is_key(new) else np.where
        return choose(wins.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(chosen, now, best)


class _Judge(NamedTuple):
    """What a family says of rewards on one of its tasks."""

    family: TaskFamily
    task: Task

    def score(self, rewards: np.ndarray) -> float:
        """The return."""
        return float(self.family.score(jnp.asarray(rewards)))

    def breakdown(self, rewards: np.ndarray) -> Mapping[str, float]:
        """Its parts by group."""
        return self.family.breakdown(self.task, rewards)


def _record(
    experiment: Experiment, services: Services, group: list[Lane], tasks: PyTree, chunk: Chunk, zero_shot: bool
) -> list[float]:
    """Rows and progress of one chunk; its returns. `zero_shot`: of a learner as it came, before its first update."""
    evaluations, metrics, returns = [], [], []
    for lane, (task, repeat) in enumerate(group):
        identity = {"phase": PHASE, "task": task, "repeat": repeat, "step": chunk.step}
        rewards = chunk.rewards[lane]
        judge = _Judge(experiment.family, tree_index(tasks, task))
        evaluation = Evaluation.of((task, repeat, chunk.step), rewards, judge, zero_shot)
        returns.append(evaluation.value)
        evaluations.append(evaluation.row)
        logged = {name: float(value[lane]) for name, value in chunk.metrics.items()}
        metrics.append(identity | logged | _of_variants(experiment, chunk, lane))
    services.rows("eval", evaluations)
    services.rows("metrics", metrics)
    if chunk.compile_seconds:
        services.compiled(chunk.compile_seconds)
    services.report(chunk.step * len(group), f"return {np.mean(returns):.3f}")
    return returns


def _of_variants(experiment: Experiment, chunk: Chunk, lane: int) -> dict[str, float]:
    """What the greedy policy returns if its form is drawn uniformly, and in its best form; most have one form only."""
    if chunk.variants is None:
        return {}
    returns = [float(experiment.family.score(jnp.asarray(rewards))) for rewards in chunk.variants[lane]]
    return {"uniform_variant_return": float(np.mean(returns)), "best_variant_return": max(returns)}


def _save_policies(directory: Place, group: list[Lane], last: Chunk, best: _Best) -> None:
    """Two greedy policies per lane: of the end, and of the best evaluation."""
    for lane, (task, repeat) in enumerate(group):
        facts = {"task": task, "repeat": repeat}
        final = facts | {"step": last.step}
        save_tree(directory / policy_name(task, repeat), tree_index(last.policy, lane), final)
        peak = facts | {"step": int(best.step[lane]), "return": float(best.returns[lane])}
        save_tree(directory / best_policy_name(task, repeat), tree_index(best.policy, lane), peak)
