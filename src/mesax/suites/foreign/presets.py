"""Any environment in every preset: settings that ask nothing but its sizes, for a first result to improve upon.

The units of observations are unknown, so learners standardize them, and explorers measure distances as shares of
how far apart the observations of random play are. Budgets are counted in episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import numpy as np

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient
from mesax.algorithms.binned import Binned
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.algorithms.mixers import Duplex, MixerConfig, Monotonic
from mesax.algorithms.normalized import Normalized
from mesax.algorithms.value_decomposition import Soft, ValueDecomposition
from mesax.baselines.counts import ProjectedKeys
from mesax.baselines.emc import BestReturns, Curiosity, Emc, Falling
from mesax.baselines.maven import Maven, Reinforce
from mesax.envs.base import HostEnvironment, TaskFamily
from mesax.envs.structure import layouts_of
from mesax.formatting import format_duration
from mesax.mesa.coverage import CoverageReward
from mesax.mesa.method import Mesa
from mesax.mesa.mixing import Mixing
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.nets import Adam, Gru, Mlp
from mesax.ours.entities import DeclaredEntities
from mesax.ours.learned import learned_from
from mesax.ours.records import RecordReward
from mesax.ours.steady import SteadyMesa
from mesax.ours.threshold import RelativeThreshold
from mesax.policy import UniformPolicy
from mesax.rewards.features import ObsActionFeatures
from mesax.runtime import configure
from mesax.suites.tables import RELEASED_MAPPO, by_mixer, columns, coordinated, maven
from mesax.training.driver import play_episodes
from mesax.training.host_rollout import running
from mesax.training.schedule import Budget, Schedule, on_policy
from mesax.types import Box, Discrete, EnvSpec, Linear, LinearSteps

PROBED_EPISODES = 2
PROBED_STEPS, MOST_PROBED_EPISODES, PROBED_TASKS = 4_000, 100, 4
"""Of the probe that budgets follow."""
PAID_EPISODES = 30
"""Paid episodes that stage 1 should meet on each training task."""
LEAST_STRETCH, MOST_STRETCH = 0.25, 4.0
THRESHOLD = RelativeThreshold(percentile=99.0)
"""Rewards come in any size and sign: the top hundredth is high, if it is more than what a step usually pays."""
MOST_BINNED_ACTIONS = 200
"""Actions that a box is cut into at most, for learners of values."""


def preset(family: TaskFamily, name: str) -> Preset:
    """Any family in one preset."""
    return around(family, name, MESA[name](family))


def probed_preset(family: TaskFamily, name: str) -> Preset:
    """The same for a user's own family: by what it says is high, and with a stage 1 that suits how rare rewards are."""
    mesa = MESA[name](family)
    method = mesa.method
    assert isinstance(method, Mesa)
    method = replace(method, threshold=threshold_of(family))
    if name == "quick":
        found = probed(family)  # type: ignore[arg-type]
        method = replace(method, collect=stretched(method.collect, found.stretch(method.collect, family)))
    return around(family, name, replace(mesa, method=method))


def threshold_of(family: TaskFamily) -> RelativeThreshold:
    """What the family says is high, or what stands out."""
    return THRESHOLD if family.high_reward is None else RelativeThreshold(family.high_reward, None)


def around(family: TaskFamily, name: str, mesa: Experiment) -> Preset:
    """All learners of a preset around MESA's experiment, which learns what pays where the world is made for that."""
    spec, told = family.env.spec, None
    if name != "paper" and shows_what_pays(family):
        told, mesa = mesa, among_entities(mesa)
    budget = on_policy(mesa.schedule, mesa.schedule.num_envs)
    return Preset(
        mesa,
        {
            "maddpg": NamedLearner(maddpg(spec)[name]),
            "coordinated": NamedLearner(coordinated(mesa.algorithm)),
            **by_mixer(lambda mixer: values(spec, mixer)[name]),
            "maven": NamedLearner(searching(spec)[name]),
            "emc": NamedLearner(emc(spec)[name]),
            "mappo": NamedLearner(mappo()[name], budget),
        },
        told,
        keys=ProjectedKeys(features(family).obs_weight),
    )


def shows_what_pays(family: TaskFamily) -> bool:
    """Whether a learned reward has a chance: it is known which numbers are about what, and tasks share layouts."""
    spec = family.env.spec
    declared = DeclaredEntities.of(family.env, spec).is_declared(spec)
    return declared and len(np.unique(layouts_of(family, MANY_TASKS))) < MANY_TASKS


def among_entities(told: Experiment) -> Experiment:
    """MESA that learns what pays, where a world says which numbers are about what; it takes many training tasks.

    Explorers' nets see entities as they are, for a net that is the same for all of them cannot be given other units for
    each; one explorer that is told has the budget of two.
    """
    published = told.method
    assert isinstance(published, SteadyMesa) and isinstance(published.explore, Budget)
    explore = published.explore
    collect = replace(published.collect, warmup_steps=published.collect.total_steps)  # random play is enough
    method = replace(
        published,
        explorer=ENTITY_EXPLORER,
        collect=collect,
        explore=replace(explore, total_steps=published.num_explorers * explore.total_steps),
        num_explorers=1,
        global_count="none",
        snapshot="fairest",
        mixing=Mixing(Linear(0.9, 0.0, 0.7)),
    )
    train, test = numbers_of_tasks(told.family, MANY_TASKS, told.num_test_tasks)
    return replace(told, method=learned_from(method, told), num_train_tasks=train, num_test_tasks=test, lanes=1)


def learner(spec: EnvSpec) -> Normalized:
    """Whom MESA wraps: discrete actors climb the exact expectation, continuous ones through their action."""
    plain = Maddpg(
        actor_net=Mlp((64, 64)),
        critic_net=Mlp((128, 128)),
        trace=0.8,
        actor_update=ExpectedGradient("policy"),
        actor_optimizer=Adam(1e-3),
        critic_optimizer=Adam(1e-3),
        discount=0.97,
        target_rate=0.02,
        entropy_bonus=0.02,
        exploration=Linear(0.05, 0.05, 0.0),
    )
    if isinstance(spec.action_space, Discrete):
        return Normalized(plain)
    update, noise = GumbelGradient("policy"), Linear(0.3, 0.08, 0.7)
    return Normalized(replace(plain, actor_update=update, logit_penalty=1e-2, entropy_bonus=0.0, exploration=noise))


def maddpg(spec: EnvSpec) -> dict[str, Normalized]:
    """MADDPG with the gradient of its authors."""
    noise = Linear(1.0, 0.05, 0.1) if isinstance(spec.action_space, Discrete) else Linear(0.1, 0.1, 0.0)
    published = Maddpg(Gru(64), Gru(64), actor_update=GumbelGradient("policy"), exploration=noise)
    slow, fast = Adam(1e-4), Adam(1e-3)
    quick = replace(published, actor_net=Mlp((64, 64)), critic_net=Mlp((64, 64)))
    return columns(
        paper=Normalized(replace(published, actor_optimizer=slow, critic_optimizer=slow)),
        quick=Normalized(replace(quick, actor_optimizer=fast, critic_optimizer=fast)),
    )


def values(spec: EnvSpec, mixer: MixerConfig) -> dict[str, Normalized]:
    """Learners of values; numbers are cut into a few points."""
    published, quick = published_and_quick(mixer)
    return columns(paper=on_points(spec, published), quick=on_points(spec, quick))


def searching(spec: EnvSpec) -> dict[str, Normalized]:
    """MAVEN with two ways to play; rewards may be negative, so that what z returns is judged against the mean."""
    published, quick = (
        replace(maven(entry, 2), choice=Reinforce(baseline=True)) for entry in published_and_quick(Monotonic())
    )
    return columns(paper=on_points(spec, published), quick=on_points(spec, quick))


def emc(spec: EnvSpec) -> dict[str, Normalized]:
    """EMC around QPLEX; the last action is seen, because an observation may not tell what was done."""
    published, quick = published_and_quick(Duplex())
    curiosity, memory = Curiosity(Falling(0.01, 0.9, 20_000)), BestReturns(0.1, tolerance=0.2, at_least=True)
    eager = replace(curiosity, head_gain=0.1, optimizer=Adam(1e-3))
    return columns(
        paper=on_points(spec, Emc(published, curiosity, memory)),
        quick=on_points(spec, Emc(replace(quick, last_action=True), eager, memory)),
    )


def published_and_quick(mixer: MixerConfig) -> tuple[ValueDecomposition, ValueDecomposition]:
    """PyMARL's settings, and feed-forward nets that learn faster."""
    published = ValueDecomposition(mixer=mixer, optimizer=Adam(5e-4), exploration=LinearSteps(1.0, 0.05, 50_000))
    quick = replace(
        published,
        agent_net=Mlp((64, 64)),
        last_action=False,
        trace=0.8,
        optimizer=Adam(1e-3),
        discount=0.97,
        target=Soft(0.02),
    )
    return published, quick


def on_points(spec: EnvSpec, algorithm: ValueDecomposition | Maven | Emc) -> Normalized:
    """On standardized observations, and on a few points of a box; EMC remembers states by what they look like."""
    space, remembers = spec.action_space, isinstance(algorithm, Emc)
    if isinstance(space, Box):
        return Normalized(Binned(algorithm, bins_for(space.size)), fixed=remembers)
    return Normalized(algorithm, fixed=remembers)


def bins_for(size: int) -> int:
    """Points for each number of an action, so that there are not too many actions in all."""
    return max((bins for bins in (11, 9, 7, 5, 3) if bins**size <= MOST_BINNED_ACTIONS), default=2)


def mappo() -> dict[str, Normalized]:
    """MAPPO as released, and with smaller nets."""
    return columns(
        paper=Normalized(RELEASED_MAPPO),
        quick=Normalized(Mappo(Mlp((64, 64)), Mlp((128, 128)), optimizer=Adam(7e-4), epochs=8, discount=0.97)),
    )


EXPLORER = Normalized(
    Mappo(
        actor_net=Mlp((64, 64)),
        critic_net=Mlp((128, 128)),
        optimizer=Adam(1e-3, clip_norm=0.5),
        final_rate=0.1,
        epochs=4,
        minibatches=4,
        discount=0.97,
        gae=0.9,
        largest_std=Linear(0.5, 0.2, 1.0),
    )
)


ENTITY_EXPLORER = Mappo(
    values_of="own",
    optimizer=Adam(2e-3, clip_norm=0.5),
    final_rate=0.1,
    epochs=2,
    minibatches=8,
    discount=0.95,
    gae=0.9,
    largest_std=Linear(0.5, 0.2, 1.0),
)
"""As in particle worlds; its nets are those of the entities."""
MANY_TASKS = 30


def features(family: TaskFamily) -> ObsActionFeatures:
    """Where a step leads, in units of how far apart random steps are: a map that fits any world, and knows none."""
    # Two digits: the last ones may differ between machines.
    weight = float(f"{1.0 / spread(family):.2g}")  # type: ignore[arg-type]
    return ObsActionFeatures(obs_weight=weight, action_weight=0.0, after_step=True)


def records(family: TaskFamily, num_clusters: int) -> RecordReward:
    """What explorers are paid for."""
    near = features(family)
    return RecordReward(near, 0.2, num_clusters=num_clusters, tell_demand=True, width=0.4, stay=0.5)


@lru_cache(maxsize=16)
def spread(family: TaskFamily) -> float:
    """Median distance between joint observations of random play; 1 where all are the same."""
    configure()  # from Python, this may be the first that JAX computes
    spec = family.env.spec
    tasks = family.split(0, 1, 1).train
    policy = UniformPolicy(spec.action_space)
    try:
        played = play_episodes(family.env, tasks, policy, jax.random.key(0), PROBED_EPISODES)
    finally:
        running.close()  # jobs may be done by other processes
    seen = np.asarray(played.obs[:, 1:])[np.asarray(played.mask)].reshape(-1, spec.num_agents * spec.obs_size)
    chosen = np.random.default_rng(0).integers(len(seen), size=(2, 500))
    distances = np.linalg.norm(seen[chosen[0]] - seen[chosen[1]], axis=1)
    apart = distances[distances > 0]
    return float(np.median(apart)) if apart.size else 1.0


@dataclass(frozen=True)
class Probe:
    """What a little random play on training tasks was paid."""

    episodes: int
    paid: int
    """Episodes with a reward that is high."""
    steps_per_second: float

    def stretch(self, collect: Schedule, family: TaskFamily) -> float:
        """How many times as long stage 1 should be: a power of 2, so that a lucky episode more or less changes little.

        Where nothing was paid it is as long as it may be: if that finds nothing either, the run ends with advice.
        """
        if not self.paid:
            return MOST_STRETCH
        expected = collect.total_steps / family.env.spec.horizon * self.paid / self.episodes
        return float(np.clip(2.0 ** np.ceil(np.log2(PAID_EPISODES / expected)), LEAST_STRETCH, MOST_STRETCH))


@lru_cache(maxsize=16)
def probed(family: TaskFamily) -> Probe:
    """Random play in a family, a few seconds of it."""
    configure()
    spec = family.env.spec
    number = min(max(PROBED_STEPS // spec.horizon, 2), MOST_PROBED_EPISODES)
    tasks = family.split(0, numbers_of_tasks(family, PROBED_TASKS, 1)[0], 1).train
    policy = UniformPolicy(spec.action_space)
    try:
        if not isinstance(family.env, HostEnvironment):
            play_episodes(family.env, tasks, policy, jax.random.key(2), number)  # to compile it is not to play
        started = time.perf_counter()
        played = play_episodes(family.env, tasks, policy, jax.random.key(2), number)
        seconds = time.perf_counter() - started
    finally:
        running.close()
    rewards, mask = np.asarray(played.reward), np.asarray(played.mask)
    paid = np.any(mask & (rewards >= threshold_of(family).levels(rewards[mask]).high), axis=1)
    return Probe(number, int(paid.sum()), int(mask.sum()) / max(seconds, 1e-6))


def stretched(schedule: Schedule, times: float) -> Schedule:
    """As many times as long, the random part too."""
    return replace(
        schedule,
        total_steps=int(times * schedule.total_steps),
        warmup_steps=int(times * schedule.warmup_steps),
    )


def budgets(experiment: Experiment) -> list[str]:
    """A line about what each stage of a run in a user's own world takes, why, and how it is changed."""
    family, method, learning = experiment.family, experiment.method, experiment.schedule
    found, horizon = probed(family), family.env.spec.horizon  # type: ignore[arg-type]
    lines = [
        f"of {found.episodes} random episodes {found.paid} met a reward that counts as high;"
        f" random play takes {found.steps_per_second:,.0f} steps a second here"
    ]
    steps = experiment.num_test_tasks * learning.steps(horizon)
    if isinstance(method, Mesa):
        tasks = experiment.num_train_tasks
        lines.append(
            f"stage 1 collects {method.collect.total_steps:,} steps on each of {tasks} training tasks, the more the"
            " rarer such rewards are (--method.collect.total-steps)"
        )
        lines.append(
            f"stage 2 trains each explorer for {method.explore.total_steps:,} steps (--method.explore.total-steps)"
        )
        steps += tasks * method.collect.total_steps + method.num_explorers * method.explore.total_steps
    lines.append(
        f"each of {experiment.num_test_tasks} new tasks is learned for {learning.total_steps:,} steps"
        f" (--schedule.total-steps); all {steps:,} steps take {format_duration(steps / found.steps_per_second)} of play"
    )
    return lines


@dataclass(frozen=True)
class Episodes:
    """Budgets by the episode, for whatever number of steps one has."""

    horizon: int

    def schedule(
        self, episodes: int, *, random: int, side_by_side: int, updates: int, batch: int, evaluations: int
    ) -> Schedule:
        """As many episodes, some of them random at the start."""
        return Schedule(
            episodes * self.horizon,
            num_envs=side_by_side,
            num_evaluations=evaluations,
            warmup_steps=random * self.horizon,
            updates_per_round=updates,
            batch_size=batch,
            replay_capacity=min(episodes, max(1_000, 500_000 // self.horizon)),
        )

    def budget(self, episodes: int, side_by_side: int, evaluations: int) -> Budget:
        """As many episodes."""
        return Budget(episodes * self.horizon, side_by_side, evaluations)

    def within(self, steps: int, least: int, most: int) -> int:
        """Episodes of so many steps in all, but neither too few nor too many."""
        return min(max(steps // self.horizon, least), most)


def numbers_of_tasks(family: TaskFamily, train: int, test: int) -> tuple[int, int]:
    """(training tasks, test tasks): these, or as many as a small family has, about a quarter of them to test on."""
    total = family.num_tasks
    if total is None or total >= train + test:
        return train, test
    fewer = max(1, min(test, total // 4))
    return max(1, total - fewer), fewer


def _quick(family: TaskFamily) -> Experiment:
    spec = family.env.spec
    episodes = Episodes(spec.horizon)
    envs = episodes.within(1_600, 4, 32)
    batch = episodes.within(800, 4, 32)
    learning = episodes.schedule(
        episodes.within(200_000, 400, 20_000),
        random=episodes.within(10_000, 2 * envs, 1_000),
        side_by_side=envs,
        updates=envs,
        batch=batch,
        evaluations=20,
    )
    harvest = episodes.within(40_000, 100, 5_000)
    method = SteadyMesa(
        explorer=EXPLORER,
        collect=replace(
            episodes.schedule(
                harvest, random=harvest * 9 // 10, side_by_side=envs, updates=1, batch=batch, evaluations=1
            ),
            replay_capacity=min(harvest, 1_000),
        ),
        explore=episodes.budget(episodes.within(300_000, 500, 20_000), 2 * envs, 10),
        threshold=THRESHOLD,
        reward=records(family, num_clusters=8),
        num_explorers=2,
        global_count="probability",
        coverage_episodes=20,
        mixing=Mixing(Linear(0.8, 0.0, 0.6)),
    )
    train, test = numbers_of_tasks(family, 12, 4)
    return Experiment(method, family, learner(spec), learning, num_train_tasks=train, num_test_tasks=test, lanes=2)


def _smoke(family: TaskFamily) -> Experiment:
    quick = _quick(family)
    assert isinstance(quick.method, Mesa)
    episodes = Episodes(family.env.spec.horizon)
    tiny = episodes.schedule(24, random=8, side_by_side=4, updates=1, batch=4, evaluations=2)
    method = replace(
        quick.method,
        collect=episodes.schedule(24, random=20, side_by_side=4, updates=1, batch=4, evaluations=1),
        explore=episodes.budget(32, 8, 2),
        reward=records(family, num_clusters=4),
        coverage_episodes=4,
    )
    train, test = numbers_of_tasks(family, 8, 2)
    return replace(
        quick,
        method=method,
        schedule=tiny,
        num_train_tasks=train,
        num_test_tasks=test,
        eval_episodes=2,
        lanes=1,
    )


def _paper(family: TaskFamily) -> Experiment:
    """The paper's networks and Eq. (6), with the budgets of its particle worlds."""
    spec = family.env.spec
    published = maddpg(spec)["paper"]
    schedule = Schedule(
        3_000_000,
        num_envs=16,
        num_evaluations=50,
        warmup_steps=50_000,
        updates_per_round=8,
        batch_size=32,
        replay_capacity=5_000,
    )
    method = Mesa(
        explorer=published,
        collect=replace(schedule, total_steps=500_000, num_evaluations=10),
        explore=replace(schedule, num_evaluations=15),
        threshold=THRESHOLD,
        reward=CoverageReward(features(family), distance_threshold=0.2, num_clusters=16),
        num_explorers=4,
        mixing=Mixing(Linear(0.5, 0.0, 0.5)),
    )
    train, test = numbers_of_tasks(family, 30, 5)
    return Experiment(method, family, published, schedule, num_train_tasks=train, num_test_tasks=test, lanes=1)


MESA: dict[str, Callable[[TaskFamily], Experiment]] = {"paper": _paper, "quick": _quick, "smoke": _smoke}
