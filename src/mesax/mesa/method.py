"""MESA (Zhang, Liang, Wu, Fang, AAMAS 2024) around any off-policy algorithm.

    collect   for each training task: run the algorithm; keep state-action pairs with high reward in M_*   Alg. 1, 1-6
    explore   cluster M_*; for e = 1..E: train a policy to be near M_* in clusters not yet visited, in this episode
              or by earlier policies; add its visits to the global count                                   Alg. 1, 7-20
              (without a global count, policies are trained side by side)
    adapt     on each unseen task: with annealed probability an episode is played by a random explorer     Alg. 2

No concrete algorithm is named here: learner, explorer and environment arrive as values.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from mesax.algorithms.base import Learner
from mesax.envs.base import AnyEnvironment, Task, TaskFamily, step_configurations
from mesax.envs.host import repeating
from mesax.errors import StoreError, TrainingError, UsageError
from mesax.explorers.places import EXPLORERS, explorers_in
from mesax.explorers.recipe import ExplorerRecipe, Recipe, save_explorers, saved_explorers
from mesax.mesa.collect import Pairs, collect_loop, collect_stage, high_reward_of, load_pairs
from mesax.mesa.high_reward import Placement, Threshold, build_subspace
from mesax.mesa.unfinished import explorer_like, get_explorer, put_explorer
from mesax.methods.adapt import adapt_stage, check_adapt
from mesax.methods.base import Experiment, Purpose, Services, Stage, borrow_stage, keeping_last_good
from mesax.ours.coverage import (
    CoverageReport,
    configuration_grid,
    coverage_of,
    coverage_pictures,
    leak_check,
    pictured,
    unseen_visits,
)
from mesax.ours.transfer import How, Rest, Transfer
from mesax.policy import ExplorationPolicySet, Policy
from mesax.ranges import above, at_least, between
from mesax.rewards.coverage import CoverageModel, CoverageReward, CoverageState
from mesax.store.modules import loaded_modules, named_in
from mesax.store.reading import ALL_EXPLORERS
from mesax.store.settings import added, to_plain
from mesax.store.trees import Place, open_tree, read_manifest, save_tree
from mesax.training.behavior import Mixing
from mesax.training.driver import learn
from mesax.training.loop import LearningLoop, Start
from mesax.training.schedule import Budget, Schedule
from mesax.types import EnvSpec, Episode, as_one, leading_size, on_device, tree_index, tree_stack

if TYPE_CHECKING:
    from mesax.methods.preset import Preset

CLEARLY_LESS = 0.9
"""An explorer with less than this share of the steps of another is less fair, and not just unlucky."""
ZERO_SHOT_TASKS, ZERO_SHOT_EPISODES = 25, 1_000
"""Unseen tasks, and episodes on all of them together, on which borrowed explorers are looked at."""
MOST_LEAK_EPISODES, MOST_PICTURE_EPISODES = 2_000, 1_000
"""Enough for two digits, however many episodes a coverage figure has."""


@dataclass(frozen=True)
class Mesa:
    """Meta-learned exploration."""

    explorer: Learner
    """Learner of the exploration policies: any will do, only the learner of the test tasks must be off-policy."""
    collect: Schedule = Schedule(total_steps=30_000)
    """Stage 1, per training task."""
    explore: Schedule | Budget = Schedule(total_steps=50_000)
    """Stage 2, per exploration policy: a `Schedule` for an off-policy learner, a `Budget` for an on-policy one."""
    action_repeat: int = 1
    """Steps for which explorers hold each action."""
    threshold: Threshold = Threshold()
    """R*: which rewards are high."""
    relabel_discount: float = 0.05
    """gamma of Eq. (5)."""
    least_value: float = 1e-3
    """Relabeled pairs worth less stay out of M_*."""
    capacity: int = 256
    """Members of M_* at most; thinned evenly over clusters."""
    num_clusters: int = 64
    """C of the KMeans hash."""
    reward: CoverageModel = CoverageReward()
    """What explorers are paid for: Eq. (6) or records; features, distance, decay."""
    num_explorers: int = 4
    """E, at most."""
    global_count: Literal["probability", "mean", "none"] = "mean"
    """What a policy adds to a cluster's global count: its chance of a visit, or its mean visits, per episode; or none:
    then policies need not wait for each other."""
    snapshot: Literal["last", "best", "fairest"] = "last"
    """Which explorer is kept: the last, the one that was paid most while it was trained, or the last one that leaves
    hardly more out than those before: judged by near steps on the worst tenth of all pairs of training task and
    cluster."""
    enough_steps: float | None = None
    """Near steps per episode on that worst tenth from which an explorer's training is over; None: the budget is."""
    coverage_episodes: int = 100
    """Episodes behind each coverage figure and each update of the global count."""
    enough_coverage: float = 0.95
    """Stop adding policies when together they visit this share of the clusters."""
    keep_trajectories: int = 200
    """Whole high-return episodes kept per training task."""
    mixing: Mixing = Mixing()
    """p_e on the test tasks."""
    explorers_from: str | None = None
    """A finished run whose explorers to use instead of meta-training anew; the first `num_explorers` of them."""
    transfer: Literal["same", "whole", "subteams"] = "same"
    """How they are used if they know another number of agents: they drive the whole team, or sub-teams of their own
    size; same: they were trained in a world of the same sizes and with the same settings."""
    rest: Rest = "tour"
    """What agents outside of the sub-team do: tour places, hold the nearest one, or move uniformly at random."""
    turn: bool = False
    """Whether explorers play every episode in a world turned by one of its symmetries."""
    placement: Placement = added("density")
    """Where the clusters lie: KMeans has more of them where stage 1 saw more, spread has them evenly over all that it
    saw; then what uniform play hardly reaches gets its share of wishes."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot explore."""
        at_least(self, 1, "capacity", "num_clusters", "num_explorers", "coverage_episodes", "action_repeat")
        at_least(self, 0, "keep_trajectories")
        if self.reward.has_wishes and self.num_clusters < 2:
            raise UsageError(f"wishes need at least 2 clusters to choose from, not num-clusters {self.num_clusters}")
        above(self, 0, "enough_steps")
        between(self, 0, 1, "relabel_discount")
        at_least(self, 0, "least_value", "enough_coverage")
        if self.explorers_from is None and (self.transfer != "same" or self.turn):
            asked = "turn" if self.turn else f"transfer {self.transfer}"
            raise UsageError(
                f"{asked} needs the explorers of another run: say which with method.explorers-from RUN_DIR"
            )

    def check(self, experiment: Experiment) -> None:
        """Nets, schedules, repetitions and borrowed explorers that do not fit are refused now, not after stage 1."""
        spec = experiment.family.env.spec
        check_adapt(experiment, self.mixing)
        self._check_wishes(spec)
        self.explore_loop(experiment.training_env)
        jax.eval_shape(lambda key: self.explorer.init(self.reward.learner_spec(spec), key), jax.random.key(0))
        if self.explorers_from is None:
            collect_loop(experiment, self)
            return
        if self.transfer == "same":
            borrowed_explorers(self, spec, Path(self.explorers_from))
            check_trained_alike(self.recipe(spec), Path(self.explorers_from))
        self.borrowed(experiment, explorers_in(Path(self.explorers_from)))

    def borrowed(self, experiment: Experiment, directory: Place, first: int = 0, at_most: int | None = None) -> Policy:
        """Explorers of another run as they play here."""
        env, number = experiment.family.env, self.num_explorers if at_most is None else at_most
        how: How = "whole" if self.transfer == "whole" else "subteams"
        # Those of the experiment's own modules, which every process that works on it has loaded.
        kinds = tuple(kind for module in loaded_modules(experiment) for kind in named_in(module).values())
        transfer = Transfer(env, env.spec, how, self.rest, self.turn, first, number, kinds)
        if self.transfer != "same":
            return transfer.deployed(directory)
        recipe = self.recipe(env.spec)
        explorers = ExplorationPolicySet(transfer.chosen(saved_explorers(recipe, directory).policies))
        return transfer.turned(recipe.deployed(explorers))

    def _check_wishes(self, spec: EnvSpec) -> None:
        """Explorers are told a sum of wishes as one point in feature space: few features cannot tell many apart."""
        size = self.reward.feature_size(spec)
        if self.reward.has_wishes and self.reward.told == "all" and self.num_clusters > size:
            raise UsageError(
                f"wishes over {self.num_clusters} clusters cannot be told in {size} features: use at most {size}"
                " clusters (num-clusters), other features, tell only what is most wanted (reward.told), or wish-decay 1"
            )

    def stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Collect, explore, adapt; borrow, adapt if the explorers come from another run."""
        if self.explorers_from is not None:
            return self._stages_with_borrowed(experiment, explorers_in(Path(self.explorers_from)))
        recipe = self.recipe(experiment.family.env.spec)

        def start(services: Services, tasks: Task) -> Start:
            del tasks
            explorers = saved_explorers(recipe, services.outputs("gather")[0] / EXPLORERS)
            return Start(explorer=recipe.deployed(explorers))

        def start_like() -> Start:
            stacked = recipe.shape(self.num_explorers)
            return jax.eval_shape(lambda policies: Start(recipe.deployed(ExplorationPolicySet(policies))), stacked)

        return (
            *self.collect_stages(experiment),
            *self._explore_stages(experiment),
            adapt_stage(experiment, self.mixing, start, start_like=start_like),
        )

    def collect_stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Stage 1: all that explorers need to know of the training tasks."""
        return (collect_stage(experiment, self, StepFeatures(self.reward, experiment.family)),)

    def _stages_with_borrowed(self, experiment: Experiment, source: Path) -> tuple[Stage, ...]:
        def start(services: Services, tasks: Task) -> Start:
            del tasks
            return Start(explorer=self.borrowed(experiment, services.outputs("borrow")[0] / EXPLORERS))

        borrow = borrow_stage(source, lambda services: self._look_at_borrowed(experiment, services))
        return (borrow, adapt_stage(experiment, self.mixing, start))

    def _look_at_borrowed(self, experiment: Experiment, services: Services) -> None:
        """See what they reach on unseen tasks before anything is learned there."""
        directory, family = services.directory / EXPLORERS, experiment.family
        if family.high_reward is None:  # without M_* it is unknown what counts as high
            return
        visitors = {ALL_EXPLORERS: self.borrowed(experiment, directory)}
        room = family.num_tasks
        tasks = ZERO_SHOT_TASKS if room is None else min(ZERO_SHOT_TASKS, room - experiment.num_train_tasks)
        unseen = replace(experiment, num_test_tasks=max(tasks, experiment.num_test_tasks))
        visits = unseen_visits(unseen, visitors, family.high_reward, ZERO_SHOT_EPISODES)
        services.document("coverage", pictured(family, [entry for entry, _ in visits]))

    def _explore_stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        """Train the explorers, one after another or side by side; then gather them."""
        steps = self.explore_steps(experiment)
        numbers = range(self.num_explorers)
        lines = [[number] for number in numbers] if self.global_count == "none" else [list(numbers)]
        explore = Stage(
            "explore",
            tuple(steps * len(line) for line in lines),
            lambda job, services: self._explore(experiment, lines[job], services),
        )
        gather = Stage("gather", (0,), lambda _, services: self._gather(experiment, services), products=(EXPLORERS,))
        return explore, gather

    def explore_steps(self, experiment: Experiment) -> int:
        """Environment steps of stage 2 for one explorer, every repetition of an action counted."""
        return self.explore.steps(experiment.training_env.spec.horizon // self.action_repeat) * self.action_repeat

    def explore_loop(self, env: AnyEnvironment) -> LearningLoop:
        """Stage 2's loop: on coverage instead of the task's reward."""
        return LearningLoop(repeating(env, self.action_repeat), self.explorer, self.explore, reward_model=self.reward)

    def recipe(self, spec: EnvSpec) -> ExplorerRecipe:
        """How explorers' weights are put to use in an environment of these sizes."""
        return ExplorerRecipe(spec, self.explorer, self.reward, self.capacity, self.num_clusters, self.action_repeat)

    def high_reward_set(self, experiment: Experiment, pairs: Pairs, services: Services) -> CoverageState:
        """M_* with its clusters, without any visits yet."""
        del services
        if not len(pairs.features):
            raise TrainingError(self.threshold.nothing_found(pairs.collected))
        subspace = build_subspace(
            pairs.features, pairs.values, self.capacity, self.num_clusters, experiment.seed, self.placement
        )
        return CoverageState(subspace, *on_device([np.zeros(self.num_clusters, np.float32)]))

    def _explore(self, experiment: Experiment, numbers: list[int], services: Services) -> None:
        """Stage 2: policies one after another, each rewarded for what its predecessors here leave out."""
        pairs = load_pairs(services.outputs("collect"))
        state = self.high_reward_set(experiment, pairs, services)
        subspace, high_reward = state.subspace, high_reward_of(experiment.family, pairs)
        recipe, missed = self.recipe(experiment.family.env.spec), np.ones(self.num_clusters)
        kept = services.kept(lambda: {"done": 0, "steps": 0, "best": explorer_like(recipe), "fairest": 0.0})
        finished, steps = (0, 0) if kept is None else (kept["done"], int(kept["steps"]))
        leaks = (
            leak_check(experiment, self.reward, state, min(20 * self.coverage_episodes, MOST_LEAK_EPISODES))
            if numbers[0] == 0
            else None
        )
        if kept is None and leaks is not None:
            services.rows("metrics", [{"phase": "leaks", "step": 0} | leaks])
        policies: list[PyTree] = []
        for done, number in enumerate(numbers):
            if done < finished:
                policy, report = get_explorer(services, number, recipe)
            else:
                best = (kept["best"], kept["fairest"]) if kept is not None and done == finished else None
                place = _Place(number, done, steps)
                with keeping_last_good(services):
                    (policy, report), steps = self._train_explorer(
                        experiment, state, high_reward, place, services, best
                    )
                put_explorer(services, number, (policy, report))
            policies.append(policy)
            if self.global_count != "none":
                gained = report.visit_chance if self.global_count == "probability" else report.mean_visits
                state = replace(state, visits=state.visits + jnp.asarray(gained))
            # One episode of each policy: in enough episodes even uniform play visits every cluster.
            missed *= 1.0 - report.visit_chance
            covered = 1.0 - np.mean(missed[np.asarray(subspace.cluster_valid)])
            if done >= finished:
                row = {"phase": "explore", "policy": number, "step": steps - place.steps_before}
                services.rows("metrics", [row | {"union_coverage": float(covered)} | report.row()])
            if covered >= self.enough_coverage:
                break
        save_explorers(recipe, policies, services.directory / EXPLORERS)
        save_tree(services.directory / "coverage", state, {"num_explorers": len(policies), "leaks": leaks})

    def _gather(self, experiment: Experiment, services: Services) -> None:
        """All explorers together, and what they visit on the unseen tasks."""
        recipe = self.recipe(experiment.family.env.spec)
        pairs, known = load_pairs(services.outputs("collect")), open_tree(services.outputs("explore")[0] / "coverage")
        state: CoverageState = known.restore(jax.eval_shape(recipe.empty_coverage))
        policies = []
        for directory in services.outputs("explore"):
            # With NumPy, or every shape of a weight would have programs that take explorers apart and stack them.
            trained = jax.device_get(saved_explorers(recipe, directory / EXPLORERS).policies)
            policies += [tree_index(trained, index) for index in range(leading_size(trained))]
        save_explorers(recipe, policies, services.directory / EXPLORERS)
        visitors = {f"explorer {index}": recipe.deployed(policy) for index, policy in enumerate(policies, start=1)}
        visitors[ALL_EXPLORERS] = recipe.deployed(ExplorationPolicySet(tree_stack(policies)))
        high_reward = high_reward_of(experiment.family, pairs)
        episodes = min(10 * self.coverage_episodes, MOST_PICTURE_EPISODES)
        pictures = coverage_pictures(experiment, self.reward, state, visitors, high_reward, episodes)
        pictures["dataset"] = configuration_grid(experiment.family, pairs.configurations)
        services.document("coverage", pictures | {"leaks": known.facts["leaks"]})

    def _train_explorer(
        self,
        experiment: Experiment,
        state: CoverageState,
        high_reward: float,
        place: _Place,
        services: Services,
        so_far: tuple[tuple[PyTree, CoverageReport], float] | None,
    ) -> tuple[tuple[PyTree, CoverageReport], int]:
        """One exploration policy and what it covers; and the steps that the job has taken with it.

        `so_far`, if this goes on: the best one, and the most steps that any has had on what it leaves out.
        """
        family, number = experiment.family, place.number
        best, fairest = (None, 0.0) if so_far is None else so_far
        spec, loop = family.env.spec, self.explore_loop(experiment.training_env)
        tasks = as_one(experiment.training_tasks)
        keys = experiment.key(Purpose.EXPLORE, number)[None]
        taken = place.steps_before
        for chunk in learn(loop, tasks, keys, reward_state=state, eval_episodes=0, keeper=services):
            policy = self.recipe(spec).policy(state, tree_index(chunk.learner, 0))
            report = self._coverage(experiment, state, policy, high_reward, number)
            fairest = max(fairest, report.worst_steps)
            if best is None or self._is_better(report, best[1], fairest):
                best = (policy, report)
            services.keep({"done": place.trained_before, "steps": place.steps_before, "best": best, "fairest": fairest})
            step = chunk.step * self.action_repeat
            row = {"phase": "explore", "policy": number, "step": step}
            names = {"learnt_return": "intrinsic_return"}
            row |= {names.get(name, name): float(value[0]) for name, value in chunk.metrics.items()}
            services.rows("metrics", [row | report.row()])
            if chunk.compile_seconds:
                services.compiled(chunk.compile_seconds)
            taken = place.steps_before + step
            services.report(taken, f"explorer {number + 1}: {report.note()}")
            if self.enough_steps is not None and best[1].worst_steps >= self.enough_steps:
                break
        assert best is not None
        return best, taken

    def _is_better(self, report: CoverageReport, best: CoverageReport, fairest: float) -> bool:
        """Whether a later explorer takes the place of the best so far; `fairest` is the most that any has had."""
        if self.snapshot == "last":
            return True
        if self.snapshot == "best":
            return report.coverage_return >= best.coverage_return
        return report.worst_steps >= CLEARLY_LESS * fairest

    def _coverage(
        self, experiment: Experiment, state: CoverageState, policy: Policy, high_reward: float, number: int
    ) -> CoverageReport:
        key = experiment.key(Purpose.TRAINING_VISITS, number)
        policy, tasks = self.recipe(experiment.family.env.spec).deployed(policy), experiment.training_tasks
        return coverage_of(experiment, self.reward, state, policy, tasks, high_reward, key, self.coverage_episodes)


class _Place(NamedTuple):
    """Of an explorer among all, and among those of its job."""

    number: int
    trained_before: int
    steps_before: int


@dataclass(frozen=True)
class StepFeatures:
    """What stage 1 keeps of a step, and what configuration it visits."""

    reward: CoverageModel
    family: TaskFamily

    def __call__(self, episodes: Episode) -> tuple[Float[Array, "envs time features"], Int[Array, "envs time"]]:
        """Of all steps of stacked episodes."""
        return self.reward.features_of(self.family.env.spec, episodes), step_configurations(self.family, episodes)


@runtime_checkable
class HasExplorers(Protocol):
    """A method whose finished runs have explorers."""

    def recipe(self, spec: EnvSpec) -> Recipe:
        """How they are put to use in an environment of these sizes."""


def borrowed_explorers(method: HasExplorers, spec: EnvSpec, run: Path) -> ExplorationPolicySet:
    """The explorers of another run, if they fit this environment and these settings."""
    directory = explorers_in(run)
    if not directory.is_dir():
        raise UsageError(f"{run} has no exploration policies: it is no finished run of mesa")
    try:
        return saved_explorers(method.recipe(spec), directory)
    except StoreError as error:
        raise UsageError(
            f"the explorers of {run} do not fit this environment or these settings (method.transfer lets them play"
            f" among more agents): {error}"
        ) from error


def check_trained_alike(recipe: ExplorerRecipe, run: Path) -> None:
    """Refuse explorers that were paid for something else, or that held their actions for other numbers of steps.

    Their nets would fit; but what they are told in play, or how long it lasts, would not be what they learned.
    """
    then = read_manifest(explorers_in(run))["facts"].get("recipe")
    if not isinstance(then, dict):
        return
    now = to_plain(recipe)
    defaults = {field.name: to_plain(field.default) for field in fields(recipe.reward)}
    asked = {
        f"reward.{name}": (then["reward"].get(name, defaults.get(name)), now["reward"][name]) for name in now["reward"]
    }
    asked["action_repeat"] = then.get("action_repeat", 1), now["action_repeat"]
    for name, (before, value) in asked.items():
        if before != value:
            setting = f"method.{name}".replace("_", "-")
            raise UsageError(
                f"the explorers of {run} were trained with {setting} {before}, and {value} is asked for:"
                f" say --{setting} {before}"
            )


def mesa(preset: Preset) -> Experiment:
    """MESA as a preset has it."""
    return preset.mesa
