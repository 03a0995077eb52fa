"""MA-MAESN: meta-train latents, policies and step sizes on the training tasks; adapt them to each test task.

    meta    all training tasks side by side, as many environment steps as MESA's meta-training has (rounds.py)
    adapt   every unseen task: latents from the prior, adapted; then all weights                   (learner.py)

Without meta-training (`steps` 0) the second stage is policy gradient from scratch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np

from mesax.baselines.maesn.learner import LatentPolicyGradient, MetaParameters
from mesax.baselines.maesn.rounds import MetaBegin, MetaLoop, MetaPlan
from mesax.compiling import compiled
from mesax.envs.base import Environment, HostEnvironment
from mesax.errors import StoreError, UsageError
from mesax.methods.adapt import adapt_from, adapt_stage, check_adapt
from mesax.methods.base import Chunked, Experiment, Purpose, Services, Stage, borrow_stage, in_chunks, kept_or_begun
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Trainable
from mesax.ranges import at_least
from mesax.store.run_directory import product_in
from mesax.store.trees import load_tree, save_tree
from mesax.training.loop import Start
from mesax.training.schedule import Budget

CHUNKS = 40
"""Rows of metrics at most, and moments at which meta-training can be saved."""
LEARNED = "meta-learned"
"""Directory of what meta-training has learned."""
TEST_EPISODES = 50
"""Episodes of a round on a test task."""
FEWEST_ROUNDS = 20
"""Rounds on a test task, if there are two episodes for each."""


@dataclass(frozen=True)
class Maesn:
    """Meta-learned exploration by latents."""

    steps: int = 200_000
    """Environment steps of meta-training, over all training tasks; 0: none, policy gradient from scratch."""
    episodes: int = 20
    """Episodes of a training task in a round, before adaptation and again after it; fitted so that `steps` are met."""
    pretrained_from: str | None = None
    """A finished run of this method whose meta-training to use instead."""

    def __post_init__(self) -> None:
        """Refuse budgets that cannot be spent."""
        at_least(self, 0, "steps")
        at_least(self, 2, "episodes")  # to be compared with each other

    def check(self, experiment: Experiment) -> None:
        """The learner must be one that adapts; meta-training must be in JAX, and what is borrowed must fit."""
        algorithm = self._algorithm(experiment)
        check_adapt(experiment)
        if self.pretrained_from is not None:
            _borrowed(experiment, algorithm, Path(self.pretrained_from))
        elif self.steps:
            self._env(experiment)

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Meta-training (or a copy of another run's) and the test tasks."""
        algorithm = self._algorithm(experiment)

        def start_from(learned: MetaParameters) -> Start:
            return Start(learner=algorithm.start_from(learned.actors, learned.steps))

        if self.pretrained_from is not None:
            first = borrow_stage(_learned_in(Path(self.pretrained_from)))
        elif self.steps:
            steps = self.plan(experiment).steps
            first = Stage("meta", (steps,), lambda _, services: self._meta(experiment, services), (LEARNED,))
        else:
            return (adapt_stage(experiment),)
        return first, adapt_from(experiment, first, LEARNED, lambda: _like(experiment, algorithm), start_from)

    def plan(self, experiment: Experiment) -> MetaPlan:
        """Rounds and chunks of meta-training."""
        horizon = experiment.training_env.spec.horizon
        return MetaPlan.of(self.steps, experiment.num_train_tasks, self.episodes, horizon, CHUNKS)

    def _algorithm(self, experiment: Experiment) -> LatentPolicyGradient:
        if not isinstance(experiment.algorithm, LatentPolicyGradient):
            raise UsageError(
                f"maesn adapts a LatentPolicyGradient; {type(experiment.algorithm).__name__} cannot be meta-trained so:"
                " leave --algorithm alone, or use pretrain"
            )
        return experiment.algorithm

    def _env(self, experiment: Experiment) -> Environment:
        env = experiment.training_env
        if isinstance(env, HostEnvironment):
            raise UsageError(
                f"maesn meta-trains in JAX, and {type(experiment.family.env).__name__} is stepped by the host:"
                " use an environment in JAX (climb-one), or --method.steps 0 for policy gradient from scratch"
            )
        return env

    def _meta(self, experiment: Experiment, services: Services) -> None:
        """Chunk by chunk."""
        began, plan = time.perf_counter(), self.plan(experiment)
        env, algorithm = self._env(experiment), self._algorithm(experiment)
        tasks = experiment.training_tasks
        key = experiment.key(Purpose.META)
        begin = MetaBegin(env, algorithm, experiment.num_train_tasks)
        loop = MetaLoop(env, algorithm, plan.episodes, plan.rounds)
        cut = Chunked("meta-training", plan.num_chunks, steps=plan.chunk_steps)
        last = start = kept_or_begun(services, lambda: jax.eval_shape(begin, key), lambda: compiled(begin)(key))
        for last in in_chunks(
            services,
            cut,
            start,
            lambda state, done, _: compiled(loop)(tasks, state, key, np.int32(done * plan.rounds)),
        ):
            step, figures = last.done * plan.chunk_steps, last.figures
            services.rows("metrics", [{"phase": "meta", "step": step} | figures])
            if last.done == start.done + 1:
                services.compiled(time.perf_counter() - began)
            services.report(
                step, f"training return {figures['return_before']:.3f}, adapted {figures['return_after']:.3f}"
            )
        save_tree(services.directory / LEARNED, last.state.net, {"steps": plan.steps})


def _like(experiment: Experiment, algorithm: LatentPolicyGradient) -> MetaParameters:
    """Shapes of what meta-training learns."""
    spec, number = experiment.family.env.spec, experiment.num_train_tasks
    shape: Trainable[MetaParameters] = jax.eval_shape(
        lambda key: algorithm.meta_init(spec, number, key), jax.random.key(0)
    )
    return shape.net


def _learned_in(run: Path) -> Path:
    """Where a finished run has what its meta-training has learned."""
    return product_in(run, LEARNED)


def _borrowed(experiment: Experiment, algorithm: LatentPolicyGradient, run: Path) -> MetaParameters:
    """What another run has learned, if it fits this environment and these settings."""
    if not _learned_in(run).is_dir():
        raise UsageError(f"{run} has nothing meta-learned: it is no finished run of maesn")
    try:
        learned: MetaParameters = load_tree(_learned_in(run), _like(experiment, algorithm))
    except StoreError as error:
        raise UsageError(f"what {run} has learned does not fit this environment or these settings: {error}") from error
    return learned


def meta_training_steps(mesa: Experiment) -> int:
    """Environment steps of all stages before the test tasks: what another method may spend on training tasks."""
    return sum(sum(stage.job_steps) for stage in mesa.method.stages(mesa)[:-1])


def maesn(preset: Preset) -> Experiment:
    """MA-MAESN with as many meta-training steps as MESA has, and its budget on each test task."""
    mesa, own = preset.mesa, preset.own.get("maesn", NamedLearner(LatentPolicyGradient()))
    return replace(
        mesa,
        method=Maesn(meta_training_steps(mesa)),
        algorithm=own.algorithm,
        schedule=own.schedule or _on_test_tasks(mesa),
        reward_model=own.reward_model,
    )


def _on_test_tasks(mesa: Experiment) -> Budget:
    """MESA's steps, in rounds of some episodes that can be compared with each other."""
    steps, horizon = mesa.schedule.total_steps, mesa.training_env.spec.horizon
    episodes = min(TEST_EPISODES, max(2, steps // (horizon * FEWEST_ROUNDS)))
    return Budget(steps, episodes, mesa.schedule.num_evaluations)
