"""MESA (Zhang, Liang, Wu, Fang, AAMAS 2024) around any off-policy algorithm.

collect   for each training task: run the algorithm; keep state-action pairs with high reward in M_*   Alg. 1, 1-6
explore   cluster M_*; for e = 1..E: train a policy to be near M_* in clusters not yet visited, in this episode
          or by earlier policies; add its visits to the global count                                   Alg. 1, 7-20
adapt     on each unseen task: with annealed probability an episode is played by a random explorer     Alg. 2
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.algorithms.base import Learner
from mesax.envs.base import AnyEnvironment
from mesax.envs.host import decisions_to_steps
from mesax.errors import TrainingError
from mesax.explorers.recipe import ExplorerRecipe
from mesax.mesa.collect import Collection, Threshold
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_with_explorers, check_adapt
from mesax.methods.base import Experiment, Purpose, Services, Stage
from mesax.methods.harvest import Pairs, StepFeatures, load_pairs
from mesax.methods.trained import ExplorerJob, Trained, gather_stage
from mesax.methods.visits import Survey
from mesax.ranges import at_least, between
from mesax.rewards.base import ExplorersReward
from mesax.rewards.levels import HighReward
from mesax.training.driver import learn
from mesax.training.loop import LearningLoop
from mesax.training.schedule import Budget, Schedule
from mesax.types import EnvSpec, as_one, tree_index


@dataclass(frozen=True)
class Mesa:
    """Meta-learned exploration."""

    explorer: Learner
    """Learner of the exploration policies: any will do, only the learner of the test tasks must be off-policy."""
    collect: Schedule = Schedule(total_steps=30_000)
    """Stage 1, per training task."""
    explore: Schedule | Budget = Schedule(total_steps=50_000)
    """Stage 2, per exploration policy: a `Schedule` for an off-policy learner, a `Budget` for an on-policy one."""
    threshold: HighReward = Threshold()
    """R*: which rewards are high."""
    relabel_discount: float = 0.05
    """gamma of Eq. (5); 0: only pairs that pay themselves join M_*."""
    reward: ExplorersReward = CoverageReward()
    """What explorers are paid for: Eq. (6), or one of your own."""
    num_explorers: int = 4
    """E, at most."""
    global_count: Literal["probability", "mean", "none"] = "mean"
    """What a policy adds to a cluster's global count: its chance of a visit, or its mean visits, per episode; or none:
    then policies need not wait for each other."""
    coverage_episodes: int = 100
    """Episodes behind each coverage figure and each update of the global count."""
    enough_coverage: float = 0.95
    """Stop adding policies when together they visit this share of the clusters."""
    mixing: Mixing = Mixing()
    """p_e on the test tasks."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot explore."""
        at_least(self, 1, "num_explorers", "coverage_episodes")
        between(self, 0, 1, "relabel_discount")
        at_least(self, 0, "enough_coverage")

    def check(self, experiment: Experiment) -> None:
        """Nets and schedules that do not fit are refused now, not after stage 1."""
        spec = experiment.family.env.spec
        check_adapt(experiment, self.mixing)
        self.stages(experiment)
        jax.eval_shape(lambda key: self.explorer.init(self.reward.learner_spec(spec), key), jax.random.key(0))

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Collect, explore, gather what was trained in several jobs, adapt."""
        recipe = self.recipe(experiment.family.env.spec)
        survey = Survey(experiment, self.reward, self.coverage_episodes)
        numbers, steps = list(range(self.num_explorers)), self.explore_steps(experiment)
        lines = [[number] for number in numbers] if self.global_count == "none" else [numbers]
        explore = Stage(
            "explore",
            tuple(steps * len(line) for line in lines),
            lambda job, services: self._explore(experiment, lines[job], services),
        )
        adapt = adapt_with_explorers(experiment, self.mixing, recipe, self.num_explorers)
        return *self.collect_stages(experiment), explore, gather_stage(survey, recipe), adapt

    def collect_stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Stage 1: all that explorers need to know of the training tasks."""
        return (self.collection(experiment).stage,)

    def collection(self, experiment: Experiment) -> Collection:
        """How stage 1 is done."""
        seen = StepFeatures(self.reward, experiment.family)
        return Collection(experiment, self.collect, self.threshold, seen, self.relabel_discount)

    def high_reward_set(self, experiment: Experiment, pairs: Pairs, services: Services) -> PyTree:
        """M_* with its clusters, without any visits yet: N-hat = 0."""
        del services
        return self.reward.subspace(experiment.family.env.spec, pairs.features, pairs.values, experiment.seed)

    def recipe(self, spec: EnvSpec) -> ExplorerRecipe:
        """How explorers' weights are put to use in an environment of these sizes."""
        return ExplorerRecipe(spec, self.explorer, self.reward)

    def explore_loop(self, env: AnyEnvironment) -> LearningLoop:
        """Stage 2's loop: on coverage instead of the task's reward."""
        return LearningLoop(env, self.explorer, self.explore, reward_model=self.reward)

    def explore_steps(self, experiment: Experiment) -> int:
        """Environment steps of stage 2 for one explorer."""
        loop = self.explore_loop(experiment.training_env)
        return decisions_to_steps(loop.env, loop.schedule.steps(loop.env.spec.horizon))

    def chosen(self, best: Trained | None, new: Trained) -> Trained:
        """Which explorer of a training is kept: the last."""
        del best
        return new

    def _explore(self, experiment: Experiment, numbers: list[int], services: Services) -> None:
        """Policies one after another, each rewarded for what its predecessors here leave out."""
        pairs, recipe = load_pairs(services.outputs("collect")), self.recipe(experiment.family.env.spec)
        if not len(pairs.features):
            raise TrainingError(self.threshold.nothing_found(pairs.collected))
        state, high_reward = self.high_reward_set(experiment, pairs, services), pairs.high_reward(experiment.family)
        survey = Survey(experiment, self.reward, self.coverage_episodes, state, high_reward)
        job = ExplorerJob.of(services, recipe)
        check = survey.check(services, job.anew) if numbers[0] == 0 else None
        there, missed = np.asarray(self.reward.clusters(state)), np.ones(recipe.num_clusters)
        for number in numbers:  # line 7
            report = job.explorer(number, partial(self._train, number, survey, job)).report
            if self.global_count != "none":  # line 19
                gained = report.visit_chance if self.global_count == "probability" else report.mean_visits
                survey = replace(survey, state=self.reward.counted(survey.state, gained))
            # One episode of each policy: in enough episodes even uniform play visits every cluster.
            missed *= 1.0 - report.visit_chance
            covered = float(1.0 - np.mean(missed[there]))
            job.covered(number, covered)
            if covered >= self.enough_coverage:
                break
        job.save(survey.state, check)  # line 21

    def _train(self, number: int, survey: Survey, job: ExplorerJob) -> Trained:
        """Lines 8-18: one policy."""
        experiment, best = survey.experiment, job.best
        tasks, loop = experiment.training_tasks, self.explore_loop(experiment.training_env)
        keys, counting = (experiment.key(purpose, number) for purpose in (Purpose.EXPLORE, Purpose.TRAINING_VISITS))
        state, lanes = survey.state, (as_one(tasks), keys[None])
        for chunk in learn(loop, *lanes, reward_state=state, eval_episodes=0, keeper=job.services):
            policy = job.recipe.policy(state, tree_index(chunk.learner, 0))
            report = survey.of(job.recipe.deployed(policy), tasks, counting)
            best = self.chosen(best, Trained(policy, report))
            job.advanced(number, chunk, report, best, decisions_to_steps(loop.env, chunk.step))
        assert best is not None
        return best
