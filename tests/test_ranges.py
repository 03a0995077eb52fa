"""What is refused, where the ends belong, and settings of learners that nothing could be learned with."""

from dataclasses import dataclass

import pytest

from mesax.algorithms.actor_updates import GumbelGradient
from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.baselines.emc import BestReturns, Curiosity, Falling
from mesax.baselines.maesn.learner import LatentPolicyGradient
from mesax.baselines.maven import CodedValues
from mesax.errors import UsageError
from mesax.nets import Adam, Gru, Mlp
from mesax.ranges import above, at_least, at_most, between
from mesax.types import Box, Discrete, EnvSpec, Linear

NAN = float("nan")


@dataclass(frozen=True)
class Settings:
    some_value: float | None
    line: Linear = Linear(0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    ("check", "limits", "inside", "outside", "says"),
    [
        (at_least, (1,), (1, 2, None), (0, NAN), "must be at least 1, not"),
        (at_most, (1,), (1, 0, None), (2, NAN), "must be at most 1, not"),
        (above, (0,), (1e-9, None), (0, NAN), "must be above 0, not"),
        (between, (0, 1), (0, 1, None), (-1e-9, 1.1, NAN), "must lie between 0 and 1, not"),
    ],
)
def test_ends(check, limits, inside, outside, says):
    for value in inside:
        check(Settings(value), *limits, "some_value")
    for value in outside:
        with pytest.raises(UsageError) as refused:
            check(Settings(value), *limits, "some_value")
        assert str(refused.value) == f"some-value {says} {value}"


def test_parts_of_settings_are_named_as_on_the_command_line():
    with pytest.raises(UsageError, match=r"^line\.start must be above 0\.25, not 0\.25$"):
        above(Settings(1.0), 0.25, "some_value", "line.end", "line.start")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gru(0), "hidden must be at least 1, not 0"),
        (lambda: Gru(num_layers=-1), "num-layers must be at least 0, not -1"),
        (lambda: Adam(-1.0), "learning-rate must be at least 0, not -1.0"),
        (lambda: Adam(clip_norm=0.0), "clip-norm must be above 0, not 0.0"),
        (lambda: JointImprovement(num_elite=-3), "num-elite must be at least 0, not -3"),
        (lambda: JointImprovement(num_uniform=-1), "num-uniform must be at least 0, not -1"),
        (lambda: GumbelGradient(temperature=0.0), "temperature must be above 0, not 0.0"),
        (lambda: Curiosity(target_rate=5.0), "target-rate must lie between 0 and 1, not 5.0"),
        (lambda: ValueDecomposition(exploration=Linear(7.0, 0.1, 0.5)), "exploration.start must lie between 0 and 1"),
        (lambda: Maddpg(exploration=Linear(0.1, -0.1, 0.5)), "exploration.end must be at least 0, not -0.1"),
        (lambda: Maddpg(entropy_bonus=NAN), "entropy-bonus must be at least 0, not nan"),
        (lambda: BestReturns(tolerance=NAN), "tolerance must be above 0, not nan"),
        (lambda: BestReturns(weight=NAN), "weight must be at least 0, not nan"),
        (lambda: Falling(start=0.1, floor=0.2), "start must be at least 0.2, not 0.1"),
        (lambda: LatentPolicyGradient(kl_weight=-1.0), "kl-weight must be at least 0, not -1.0"),
        (lambda: CodedValues(information_weight=-1.0), "information-weight must be at least 0, not -1.0"),
        (lambda: Mlp((4, 0)), r"every one of hidden must be at least 1, not \(4, 0\)"),
    ],
)
def test_learners_that_could_not_learn_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_noise_is_no_chance():
    """A scale of 2 may be wanted for continuous actions; a chance of 2 is none."""
    learner = Maddpg(exploration=Linear(2.0, 0.1, 0.5))
    learner.check(EnvSpec(2, 3, Box(1), 4), num_envs=1)
    with pytest.raises(UsageError, match=r"exploration\.start must be at most 1, not 2\.0"):
        learner.check(EnvSpec(2, 3, Discrete(3), 4), num_envs=1)
