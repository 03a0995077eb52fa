"""Every arm of the ablation is an experiment that could run."""

import pytest
from benchmarks.ablation import ARMS

from mesax.methods.filled import Filled
from mesax.methods.mesa.method import Mesa
from mesax.rewards.coverage import CoverageReward


@pytest.mark.parametrize("env", ["mpe-2a5l", "climb-multi", "swimmer"])
def test_arms_differ_where_they_say(env: str):
    arms = {name: arm(env, "quick") for name, arm in ARMS.items()}
    for name in ("without-wishes", "told-nothing", "eq-6", "raw-features", "two-explorers"):
        assert isinstance(arms[name].method, Mesa)
    assert len({(one.family, one.algorithm, one.schedule, one.seed) for one in arms.values()}) == 1
    assert arms["without-wishes"].method.reward.wish_decay == 1.0
    assert not arms["told-nothing"].method.reward.tell_demand
    assert isinstance(arms["eq-6"].method.reward, CoverageReward)
    assert [arms[name].method.labels for name in ("filled-own", "filled-test")] == ["own", "test"]
    assert isinstance(arms["filled-own"].method, Filled)
    assert arms["off-policy-explorers"].method.explorer == (
        arms["mesa"].method.explorer if env == "climb-multi" else arms["mesa"].algorithm
    )


@pytest.mark.parametrize("arm", ["filled-test", "off-policy-explorers", "raw-features"])
def test_arms_pass_the_checks_of_their_methods(arm: str):
    experiment = ARMS[arm]("mpe-2a5l", "quick")
    experiment.method.check(experiment)
