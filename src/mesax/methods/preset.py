"""What a world says about itself in one preset: MESA's experiment there, and every named learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mesax.algorithms.base import Learner
from mesax.baselines.counts import KeyMap
from mesax.baselines.rnd import PAID
from mesax.baselines.scripts import Script, TourPlan
from mesax.envs.goals import Goal
from mesax.mesa.method import Mesa
from mesax.methods.base import Experiment
from mesax.nets import NetConfig
from mesax.rewards.base import RewardModel, TaskReward
from mesax.training.schedule import Budget, Schedule, on_policy


@dataclass(frozen=True)
class NamedLearner:
    """A learner by its name: its settings, its budget, and what it is paid for."""

    algorithm: Learner
    """The learner with its settings."""
    schedule: Schedule | Budget | None = None
    """None: the schedule of MESA's learner; for one without replay, a budget of the same steps."""
    reward_model: RewardModel = TaskReward()
    """Reward that it learns from."""


@dataclass(frozen=True)
class Preset:
    """One world in one preset: what every method and every learner builds its experiment from."""

    mesa: Experiment
    """MESA's experiment; the controls share all of it but the method."""
    learners: Mapping[str, NamedLearner]
    """Learners of the world, by name."""
    told: Experiment | None = None
    """MESA whose explorers a hand-written map tells what to look for; None: `mesa` is that already."""
    reward_models: tuple[RewardModel, ...] = ()
    """Reward models with settings that suit the world; others have their defaults."""
    alone: Learner | None = None
    """MESA's learner with the settings that suit it alone; None: the same."""
    goal: Goal | None = None
    """What a task asks for, for baselines that are told; None if it is unknown."""
    goal_net: NetConfig | None = None
    """Actors that make the most of being told, where plain nets could not know what was never asked for."""
    keys: KeyMap | None = None
    """Which states and changes are the same, for exploration by counts; None: whatever fits any observation."""
    tour: TourPlan | None = None
    """How a team that knows the places goes through them; None without a script."""
    script: Script | None = None
    """How a team plays that knows the task: the world's ceiling and floor; None without a script."""
    own: Mapping[str, NamedLearner] = field(default_factory=dict)
    """Learners of methods that bring their own, by the method's name; a method knows what to do without."""

    @property
    def method(self) -> Mesa:
        """MESA's own settings in it."""
        assert isinstance(self.mesa.method, Mesa), "a preset's own experiment is one of MESA"
        return self.mesa.method

    @property
    def by_name(self) -> Mapping[str, NamedLearner]:
        """All learners, those too that are another with a reward model."""
        paid = {name: (own, self.paying(model)) for name, (own, model) in PAID.items() if own in self.learners}
        return {
            **self.learners,
            **{name: replace(self.learners[own], reward_model=model) for name, (own, model) in paid.items()},
        }

    def paying(self, model: RewardModel) -> RewardModel:
        """A reward model with this world's settings, if the world has some for its kind."""
        return next((own for own in self.reward_models if type(own) is type(model)), model)

    def around(self, learner: NamedLearner) -> Preset:
        """The same world around another learner."""
        usual = self.mesa.schedule
        if not learner.algorithm.needs_replay:
            usual = on_policy(usual, usual.num_envs)
        mesa = replace(
            self.mesa,
            algorithm=learner.algorithm,
            schedule=learner.schedule or usual,
            reward_model=learner.reward_model,
        )
        told = None if self.told is None else replace(mesa, method=self.told.method)
        return replace(self, mesa=mesa, told=told, alone=None)


def mesa(preset: Preset) -> Experiment:
    """MESA as a preset has it."""
    return preset.mesa


def told(preset: Preset) -> Experiment:
    """MESA, told by hand what to look for."""
    return preset.told or preset.mesa
