"""What else one could do with the training tasks: learn on them, and go on from there on each test task.

    Pretrain  one policy over all training tasks, each episode on a random one, without knowing which
              (with a goal: it is told what the task asks for, here and on the test tasks; that is a privilege)
    CBet      one exploration policy, paid for rare states and rare changes (Parisi et al. 2021);
              on a test task its logits stay as they are, and a fresh net is added to them
    adapt     nets and the scales of returns and observations are kept; optimizers and schedules start anew

Both play as many environment steps on training tasks as MESA does in the same preset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from mesax.algorithms.base import ActsByNet
from mesax.baselines.counts import CountReward, ProjectedKeys
from mesax.baselines.guided import guided, guided_by, unguided
from mesax.envs.base import AnyEnvironment
from mesax.envs.goals import Goal, UnknownGoal, telling
from mesax.errors import StoreError, UsageError
from mesax.methods.adapt import adapt_from, check_adapt
from mesax.methods.base import Experiment, Purpose, Services, Stage, borrow_stage, keeping_last_good
from mesax.methods.preset import Preset
from mesax.nets import for_another_task
from mesax.store.run_directory import product_in
from mesax.store.settings import to_plain
from mesax.store.trees import open_tree, save_tree
from mesax.training.driver import Chunk, learn
from mesax.training.loop import LearningLoop, Start
from mesax.training.schedule import Budget
from mesax.types import as_one, tree_index

PRETRAINED = "pretrained"
"""What the saved learner is called."""


@dataclass(frozen=True)
class Pretraining:
    """How long to learn on the training tasks; in all else as on a test task."""

    collect_steps: int
    """Environment steps for each training task: as many as MESA's stage 1 takes."""
    explore_steps: int
    """Environment steps: as many as all of MESA's explorers take."""
    num_evaluations: int = 10
    """Evaluations on training tasks at most, evenly spaced."""

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        if min(self.collect_steps, self.explore_steps) < 0 or self.collect_steps + self.explore_steps < 1:
            raise UsageError(
                "collect-steps and explore-steps must not be negative, nor both 0:"
                f" {self.collect_steps} and {self.explore_steps}"
            )

    def schedule(self, experiment: Experiment) -> Budget:
        """Rounds as on a test task, for as long as MESA would learn before."""
        total = self.collect_steps * experiment.num_train_tasks + self.explore_steps
        return replace(experiment.schedule, total_steps=total, num_evaluations=self.num_evaluations)


@dataclass(frozen=True)
class Pretrain:
    """One policy over all training tasks, tuned on each test task."""

    pretraining: Pretraining
    """Budget on the training tasks."""
    goal: Goal | None = None
    """What agents are told of every task; None: nothing."""
    pretrained_from: str | None = None
    """A finished run of this method whose policy to use instead of pre-training anew."""

    @property
    def tells(self) -> bool:
        """Whether there is a goal to be told."""
        return self.goal is not None

    def told(self, env: AnyEnvironment) -> AnyEnvironment:
        """The goal comes first in every observation."""
        return telling(env, self.goal)

    def check(self, experiment: Experiment) -> None:
        """Nets, schedules and a borrowed policy must fit."""
        check_adapt(experiment)
        _check_pretraining(self.loop(experiment), self.pretrained_from, self._facts(experiment))

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Pretrain (or borrow), adapt."""
        loop = self.loop(experiment)
        first = _first_stage(experiment, loop, self.pretrained_from, self._facts(experiment))

        def start_from(learned: PyTree) -> Start:
            return Start(learner=for_another_task(learned))

        return (first, adapt_from(experiment, first, PRETRAINED, lambda: _shape(loop), start_from))

    def loop(self, experiment: Experiment) -> LearningLoop:
        """The learner of the test tasks, on training tasks."""
        return LearningLoop(
            experiment.training_env,
            experiment.algorithm,
            self.pretraining.schedule(experiment),
            reward_model=experiment.reward_model,
        )

    def _facts(self, experiment: Experiment) -> dict[str, object]:
        return {"paid_by": type(experiment.reward_model).__name__, "goal": to_plain(self.goal)}


@dataclass(frozen=True)
class CBet:
    """Exploration learned from rare states and changes, beneath a fresh learner of each test task."""

    pretraining: Pretraining
    """Budget on the training tasks."""
    counting: CountReward
    """What exploration is paid for; there are as many copies as environments side by side."""
    pretrained_from: str | None = None
    """A finished run of this method whose exploration policy to use instead of learning one anew."""

    def check(self, experiment: Experiment) -> None:
        """The learner must take a guide; nets, schedules and a borrowed policy must fit."""
        check_adapt(experiment)
        _check_pretraining(self.loop(experiment), self.pretrained_from, self._facts())

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Pretrain (or borrow), adapt."""
        loop = self.loop(experiment)
        first = _first_stage(experiment, loop, self.pretrained_from, self._facts(), self._counted)

        def start_from(explored: PyTree) -> Start:
            spec = experiment.reward_model.learner_spec(experiment.training_env.spec)
            return Start(learner=guided_by(experiment.algorithm, spec, explored, experiment.key(Purpose.FRESH_LEARNER)))

        return (first, adapt_from(experiment, first, PRETRAINED, lambda: _shape(loop), start_from))

    def loop(self, experiment: Experiment) -> LearningLoop:
        """The learner without a guide, paid for what is rare."""
        schedule = self.pretraining.schedule(experiment)
        counting = replace(self.counting, copies=schedule.num_envs)
        return LearningLoop(experiment.training_env, unguided(experiment.algorithm), schedule, reward_model=counting)

    def _counted(self, chunk: Chunk) -> dict[str, float]:
        """How well the tables count, at the end of a chunk."""
        counting = replace(self.counting, copies=chunk.reward.now.shape[-1])
        figures = counting.report(jax.tree.map(jnp.asarray, tree_index(chunk.reward, 0)))
        return {name: float(value) for name, value in figures.items()}

    def _facts(self) -> dict[str, object]:
        return {"paid_by": type(self.counting).__name__, "goal": None}


Report = Callable[[Chunk], dict[str, float]]


def _nothing(chunk: Chunk) -> dict[str, float]:
    del chunk
    return {}


def _first_stage(
    experiment: Experiment,
    loop: LearningLoop,
    borrowed: str | None,
    facts: Mapping[str, object],
    report: Report = _nothing,
) -> Stage:
    """Learn on the training tasks, or take over what another run has learned there."""
    if borrowed is not None:
        return borrow_stage(pretrained_in(Path(borrowed)))
    return Stage(
        "pretrain",
        (loop.schedule.steps(loop.env.spec.horizon),),
        lambda _, services: _pretrain(experiment, loop, services, facts, report),
        products=(PRETRAINED,),
    )


def _pretrain(
    experiment: Experiment, loop: LearningLoop, services: Services, facts: Mapping[str, object], report: Report
) -> None:
    """One learner on all training tasks, each episode on a random one."""
    tasks = as_one(experiment.training_tasks)
    with keeping_last_good(services):
        for chunk in learn(
            loop,
            tasks,
            experiment.key(Purpose.PRETRAIN)[None],
            eval_episodes=experiment.eval_episodes,
            eval_env=experiment.env,
            keeper=services,
        ):
            score = float(experiment.family.score(jnp.asarray(chunk.rewards[0])))
            row = {"phase": "pretrain", "step": chunk.step, "return": score}
            row |= {name: float(value[0]) for name, value in chunk.metrics.items()}
            services.rows("metrics", [row | report(chunk)])
            if chunk.compile_seconds:
                services.compiled(chunk.compile_seconds)
            services.report(chunk.step, f"return on training tasks {score:.3f}")
    save_tree(services.directory / PRETRAINED, tree_index(chunk.learner, 0), {**facts, "step": chunk.step})


def _shape(loop: LearningLoop) -> PyTree:
    return jax.eval_shape(lambda key: loop.algorithm.init(loop.learner_spec, key), jax.random.key(0))


def pretrained_in(run: Path) -> Path:
    """Where a finished run has what it learned on training tasks."""
    return product_in(run, PRETRAINED)


def _check_pretraining(loop: LearningLoop, borrowed: str | None, facts: Mapping[str, object]) -> None:
    """Refuse a learner that cannot be built, and a borrowed policy that does not fit."""
    like = _shape(loop)
    if borrowed is None:
        return
    directory = pretrained_in(Path(borrowed))
    what_fits = "name a finished run of the same method on the same environment with the same learner"
    if not directory.is_dir():
        raise UsageError(f"{borrowed} has no pre-trained policy: {what_fits}")
    try:
        saved = open_tree(directory)
        saved.restore(like)
    except StoreError as error:
        raise UsageError(f"the pre-trained policy of {borrowed} does not fit: {error}; {what_fits}") from error
    for name, value in facts.items():
        if saved.facts.get(name) != value:
            raise UsageError(
                f"the pre-trained policy of {borrowed} was trained otherwise"
                f" ({name.replace('_', ' ')} {saved.facts.get(name)}, here {value}): {what_fits}"
            )


def _as_long_as_mesa(preset: Preset) -> Pretraining:
    """MESA's environment steps on training tasks in this preset."""
    mesa = preset.method
    return Pretraining(
        mesa.collect.steps(preset.mesa.training_env.spec.horizon),
        mesa.explore_steps(preset.mesa) * mesa.num_explorers,
    )


def pretrain(preset: Preset) -> Experiment:
    """Pretrain around the learner of a preset."""
    return replace(preset.mesa, method=Pretrain(_as_long_as_mesa(preset)))


def goal(preset: Preset) -> Experiment:
    """Goal around the learner of a preset; actors may have a net that makes the most of what they are told."""
    experiment = replace(preset.mesa, method=Pretrain(_as_long_as_mesa(preset), preset.goal or UnknownGoal()))
    if preset.goal_net is None or not isinstance(experiment.algorithm, ActsByNet):
        return experiment
    return replace(experiment, algorithm=experiment.algorithm.acting_by(preset.goal_net))


def cbet(preset: Preset) -> Experiment:
    """C-BET on the learner of a preset, which must be MAPPO."""
    method = CBet(_as_long_as_mesa(preset), CountReward(preset.keys or ProjectedKeys()))
    return replace(preset.mesa, algorithm=guided(preset.mesa.algorithm), method=method)
