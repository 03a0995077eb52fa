"""Large teams: worlds of any size have names, and nothing goes through a joint space of more than 256 points."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mesax.algorithms.coordinated import JointImprovement
from mesax.envs.climb import ClimbFamily
from mesax.errors import UsageError
from mesax.experiments.catalogue import experiment
from mesax.suites.registry import suite_of
from mesax.training import loop as loops
from mesax.training.driver import learn, prepare
from mesax.training.loop import LearningLoop
from mesax.training.rollout import play
from mesax.types import Elapsed, blank_episode

TEAM, MOST = 16, 256
LEARNERS = ("coordinated", "maven", "emc", "mappo")
"""MADDPG with candidates, QMIX with latents, QPLEX with a memory, and an on-policy learner."""


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists combinations may list so many and no more."""

    def limited(listing: Any) -> Any:
        def few(*arguments: Any, **keywords: Any) -> Iterator[Any]:
            for number, entry in enumerate(listing(*arguments, **keywords)):
                assert number < MOST, f"{listing.__name__} goes through more than {MOST}"
                yield entry

        return few

    for name in ("product", "permutations", "combinations"):
        monkeypatch.setattr(itertools, name, limited(getattr(itertools, name)))


def programs_in(value: Any) -> Iterator[Any]:
    """Those of loops and branches, wherever the parameters of an equation have them."""
    if isinstance(value, tuple | list):
        for entry in value:
            yield from programs_in(entry)
    elif hasattr(value, "eqns"):
        yield getattr(value, "jaxpr", value)


def longest_axis(program: Any) -> int:
    """Of any array in a traced program."""
    longest = 0
    for equation in program.eqns:
        longest = max([longest, *(size for out in equation.outvars for size in getattr(out.aval, "shape", ()))])
        inner = (found for value in equation.params.values() for found in programs_in(value))
        longest = max([longest, *map(longest_axis, inner)])
    return longest


def test_axes_inside_loops_are_found():
    program = jax.make_jaxpr(lambda xs: jax.lax.map(lambda x: jnp.zeros((2, 7_000)) + x, xs))(jnp.zeros(3))
    assert longest_axis(program.jaxpr) == 7_000


@pytest.mark.parametrize("name", LEARNERS)
def test_an_update_of_sixteen_agents_has_no_joint_axis(name):
    """Five actions each are 152 billion joint actions: traced, not run, so that one axis of them would show."""
    chosen = experiment(name, f"wide-{TEAM}a5l", "smoke")
    spec, algorithm = chosen.family.env.spec, chosen.algorithm

    def learn(key: Any) -> Any:
        learner = algorithm.init(spec, key)
        blank = blank_episode(spec, algorithm.latent(spec, key).size)
        blank = jax.tree.map(lambda leaf: leaf[None].repeat(2, 0), blank)
        return algorithm.update(spec, algorithm.observe(spec, learner, blank), blank, Elapsed.at(0.5), key)

    program = jax.make_jaxpr(learn)(jax.random.key(0))
    assert longest_axis(program.jaxpr) < 2_000_000  # EMC's table of best returns has a million entries


def test_explorers_of_sixteen_agents_have_no_joint_axis():
    chosen = experiment("mesa", f"wide-{TEAM}a5l", "smoke")
    method, env, spec = chosen.method, chosen.family.env, chosen.family.env.spec
    recipe = method.recipe(spec)
    told = method.reward.learner_spec(spec)

    def explore(key: Any) -> Any:
        policy = recipe.policy(recipe.empty_coverage(), method.explorer.init(told, key))
        episodes = play(env, chosen.family.split(0, 1, 0).train, policy, key, 2)
        return method.reward.observe(spec, recipe.empty_coverage(), episodes, key)

    program = jax.make_jaxpr(explore)(jax.random.key(0))
    assert longest_axis(program.jaxpr) < 10_000


def test_more_than_256_joint_actions_are_never_tried_one_by_one():
    with pytest.raises(UsageError, match="enumerate-up-to must be at most 256, not 257"):
        JointImprovement(enumerate_up_to=257)
    spec = experiment("plain", f"wide-{TEAM}a5l", "smoke").family.env.spec
    assert not JointImprovement().enumerates(spec.action_space, TEAM)


def test_optima_are_listed_while_they_are_few():
    few = ClimbFamily(num_agents=2, num_actions=100)  # one of two agents plays u: 2 x 99
    assert len(few.rewarding_configurations(few.split(0, 1, 0).train)) in (1, 198)
    many = ClimbFamily(num_agents=TEAM, num_actions=3)
    assert many.rewarding_configurations(many.split(0, 4, 0).train) is None


def test_climb_games_with_too_many_choices_are_refused():
    with pytest.raises(UsageError, match="at most 2147483647 joint choices"):
        ClimbFamily(num_agents=TEAM, num_actions=4)


def test_a_replay_beyond_this_machine_is_refused():
    chosen = experiment("plain", f"wide-{TEAM}a5l", "smoke")
    with pytest.raises(UsageError, match=r"a replay of 10,000,000 episodes of 16 agents takes 2,027\.8 GiB"):
        LearningLoop(chosen.family.env, chosen.algorithm, replace(chosen.schedule, replay_capacity=10_000_000))


@pytest.mark.parametrize("method", ["plain", "mesa", "filled"])
def test_every_lane_has_a_replay_of_its_own(method: str, monkeypatch: pytest.MonkeyPatch):
    """One of them fits into this machine, five do not: refused before anything runs, and again where it would run."""
    chosen = experiment(method, "climb-one", "smoke")
    loop = LearningLoop(chosen.family.env, chosen.algorithm, chosen.schedule)
    spec, capacity = chosen.family.env.spec, chosen.schedule.replay_capacity
    one = 4 * capacity * (spec.horizon + 1) * spec.num_agents * spec.obs_size
    monkeypatch.setattr(loops, "physical_memory", lambda: 2 * one)
    chosen.method.check(replace(chosen, lanes=2))
    said = r"a replay of 1,000 episodes of 2 agents in each of 5 lanes takes .* smaller replay-capacity or fewer lanes"
    wide = replace(chosen, lanes=5)
    if method != "plain":  # stage 1 has lanes, too
        wide = replace(wide, schedule=replace(chosen.schedule, replay_capacity=100, batch_size=8))
    with pytest.raises(UsageError, match=said):
        chosen.method.check(wide)
    keys = jax.ShapeDtypeStruct((5,), jax.random.key(0).dtype)
    for function in (prepare, lambda *args: next(learn(*args))):
        with pytest.raises(UsageError, match=said):
            function(loop, None, keys)


def test_worlds_of_any_size_have_names():
    family = suite_of("wide-16a40l").family("wide-16a40l")
    assert (family.world.num_agents, family.world.num_landmarks, family.count) == (16, 40, 2)
    assert family.split(0, 2, 1).train.landmarks.shape == (2, 40, 2)
    assert family.world.wall == pytest.approx((40 / 6) ** 0.5, abs=0.01)  # as dense as six in the smallest arena
    listed = experiment("mesa", "wide-3a6l", "quick")
    same = experiment("mesa", "wide-4a6l", "quick")
    assert same.schedule == listed.schedule
    assert same.method.explorer.actor_net == replace(listed.method.explorer.actor_net, num_others=3)


@pytest.mark.parametrize("name", ["wide-0a5l", "wide-2a0l", "wide-2a5", "wide-2a5l-k9", "wide-1000a5l"])
def test_other_names_are_unknown(name):
    with pytest.raises(UsageError, match="wide-<agents>a<landmarks>l"):
        suite_of(name)


def test_growth_is_fitted_and_within_its_bars(monkeypatch: pytest.MonkeyPatch):
    """What `benchmarks/scaling.py` makes of its measurements, and what those in results/ say."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")  # as for a script there
    import scaling

    line = [{"size": size, "seconds": 0.1 * size**1.5, "bytes": 7} for size in (2, 4, 16)]
    assert scaling.exponent(line) == pytest.approx(1.5)
    assert scaling.exponent(line, "bytes") == pytest.approx(0.0)
    world = [{"size": [n, u], "seconds": n * u**0.5} for n, u in scaling.WORLDS]
    found = scaling.slopes(world)
    assert found["agents, 5 landmarks"] == pytest.approx(1.0)
    assert found["landmarks, 2 agents"] == pytest.approx(0.5)
    parts = json.loads(scaling.RESULTS.read_text(encoding="utf-8"))["parts"]
    for name in ("rollout", "update", "update-additive"):
        assert scaling.exponent(parts[name]["points"]) <= scaling.BAR
