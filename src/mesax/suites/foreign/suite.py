"""Worlds of a user's own, named `module:attribute`: a suite, a task family, an environment, or what makes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesax.errors import UsageError
from mesax.store.modules import attribute_of, split_reference
from mesax.suites.base import RunFigure, Suite, part

if TYPE_CHECKING:
    from mesax.envs.base import Task, TaskFamily
    from mesax.methods.base import Experiment
    from mesax.methods.preset import Preset
    from mesax.rendering.scene import Scene
    from mesax.types import Episode

EXPECTED = (
    "a suite, a task family, an adapted environment, or a function from a seed to an environment of PettingZoo,"
    " Gymnasium or JaxMARL"
)


def suite_named(reference: str) -> Suite:
    """The suite of `module:attribute`; of a suite with several environments, `module:attribute:environment`."""
    module, path = split_reference(reference)
    attribute, _, environment = path.partition(":")
    found = attribute_of(f"{module}:{attribute}")
    if isinstance(found, Suite) and not isinstance(found, type):
        return OneOfSuite(reference, found, _chosen(f"{module}:{attribute}", found, environment))
    if environment:
        raise UsageError(f"'{module}:{attribute}' is no suite, and has no environment '{environment}' to choose")
    return ForeignSuite(reference, found)


def _chosen(name: str, suite: Suite, environment: str) -> str:
    names = list(suite.environments)
    if not environment and len(names) == 1:
        return names[0]
    if environment not in names:
        choices = ", ".join(f"{name}:{one}" for one in names)
        raise UsageError(f"the suite {name} has several environments; choose one of {choices}")
    return environment


@dataclass(frozen=True)
class OneOfSuite:
    """One environment of a user's own suite, under the name that was typed for it."""

    reference: str
    suite: Suite
    environment: str
    """What the suite itself calls it."""

    @property
    def name(self) -> str:
        """As the suite has it."""
        return self.suite.name

    @property
    def environments(self) -> Mapping[str, str]:
        """The one that was named."""
        return {self.reference: self.suite.environments[self.environment]}

    def family(self, environment: str) -> TaskFamily:
        """As the suite has it."""
        return self.suite.family(self.environment)

    def preset(self, environment: str, preset: str) -> Preset:
        """As the suite has it."""
        return self.suite.preset(self.environment, preset)

    def figures(self) -> Sequence[RunFigure]:
        """As the suite has them."""
        return self.suite.figures()

    def scene(self, family: TaskFamily, task: Task, episodes: Episode) -> Scene:
        """As the suite has it."""
        return self.suite.scene(family, task, episodes)


@dataclass(frozen=True)
class ForeignSuite:
    """A world that mesax knows nothing of but its tasks: presets and drawings that fit any."""

    reference: str
    found: object
    """What the reference stands for; a family is made of it when it is asked for: what is heavy waits until then."""
    name: str = "foreign"

    @property
    def environments(self) -> Mapping[str, str]:
        """The one that was named."""
        return {self.reference: "an environment of your own"}

    def family(self, environment: str) -> TaskFamily:
        """Tasks that seeds stand for, unless they come as a family."""
        return part("foreign.families").family_of(self.reference, self.found, EXPECTED)

    def preset(self, environment: str, preset: str) -> Preset:
        """From the table for all environments."""
        return part("foreign.presets").probed_preset(self.family(environment), preset)

    def budgets(self, experiment: Experiment) -> list[str]:
        """What a run takes, in lines."""
        return part("foreign.presets").budgets(experiment)

    @property
    def guesses_best(self) -> bool:
        """Whether the best return of its tasks is a guess."""
        return part("foreign.families").best_is_guessed(self.found)

    def figures(self) -> Sequence[RunFigure]:
        """None but those of all runs."""
        return ()

    def scene(self, family: TaskFamily, task: Task, episodes: Episode) -> Scene:
        """Rewards and actions over time."""
        return plain_scene(family, task, episodes)


def plain_scene(family: TaskFamily, task: Task, episodes: Episode) -> Scene:
    """Episodes of any world: rewards and actions over time."""
    return part("foreign.render").scene(family, task, episodes)
