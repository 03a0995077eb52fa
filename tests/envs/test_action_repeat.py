"""Repeated actions inside the environment: rewards add up, ends hold, and it is what `Repeated` does from outside."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.envs.base import ActionRepeat, Step
from mesax.errors import UsageError
from mesax.policy import Repeated
from mesax.training.rollout import play
from mesax.types import EnvSpec, Label, tree_stack
from probes import Walk, WalkTask

KEY = jax.random.key(0)
ONE = Walk(num_agents=1)


def step(env: ActionRepeat, goal: float, action: float) -> tuple[float, Step]:
    """One decision of a single agent that starts at 0."""
    task = WalkTask(jnp.asarray(goal))
    state, _ = env.reset(task, KEY)
    state, outcome = jax.jit(env.step)(task, state, jnp.array([[action]]), KEY)
    return float(state[0, 0]), outcome


def test_rewards_add_up():
    """At 1, 2, 3: six in all, and the last observation."""
    state, outcome = step(ActionRepeat(ONE, 3), goal=9.0, action=1.0)
    assert (state, float(outcome.obs[0, 0]), float(outcome.reward), bool(outcome.terminated)) == (3.0, 3.0, 6.0, False)


@pytest.mark.parametrize(("goal", "reward", "place"), [(1.0, 1.0, 1.0), (2.0, 3.0, 2.0), (3.0, 6.0, 3.0)])
def test_an_end_is_the_end(goal: float, reward: float, place: float):
    """Whether it comes at the first, the second or the last repetition: nothing is paid or moved after it."""
    state, outcome = step(ActionRepeat(ONE, 3), goal, action=1.0)
    assert (state, float(outcome.obs[0, 0]), float(outcome.reward)) == (place, place, reward)
    assert bool(outcome.terminated)


def test_once_is_the_environment_itself():
    assert ActionRepeat(ONE, 1).spec == ONE.spec
    state, outcome = step(ActionRepeat(ONE, 1), goal=9.0, action=0.5)
    assert (state, float(outcome.reward)) == (0.5, 0.5)


def test_the_horizon_counts_decisions():
    assert ActionRepeat(ONE, 3).spec == EnvSpec(1, 1, ONE.spec.action_space, 2)
    with pytest.raises(UsageError, match="a horizon of 6 steps cannot be cut into decisions of 4"):
        _ = ActionRepeat(ONE, 4).spec


@dataclass(frozen=True)
class Lottery:
    """Pays a random number."""

    @property
    def spec(self) -> EnvSpec:
        return ONE.spec

    def reset(self, task, key):
        return ONE.reset(task, key)

    def step(self, task, state, action, key):
        after, outcome = ONE.step(task, state, action, key)
        return after, Step(outcome.obs, jax.random.uniform(key), outcome.terminated)


def test_every_repetition_draws_anew():
    _, outcome = step(ActionRepeat(Lottery(), 3), goal=9.0, action=0.0)
    draws = [float(jax.random.uniform(key)) for key in (KEY, jax.random.fold_in(KEY, 1), jax.random.fold_in(KEY, 2))]
    assert len(set(draws)) == 3
    assert float(outcome.reward) == pytest.approx(sum(draws), rel=1e-6)


class Wavering(eqx.Module):
    """Moves by where it stands and by how often it has moved: a wrong observation or memory leads elsewhere."""

    def start(self, key):
        del key
        return jnp.zeros(())

    def act(self, memory, obs, key):
        del key
        return 0.7 * jnp.sin(5.0 * obs + memory) + 0.2, memory + 1.0

    def label(self, memory):
        del memory
        return Label.of(0)


@pytest.mark.parametrize("times", [2, 3])
def test_repeating_from_outside_visits_the_same_states(times: int):
    """Goals at which episodes end at different steps, in the midst of decisions too, and one that is never reached."""
    env, tasks = Walk(), tree_stack([WalkTask(jnp.asarray(goal)) for goal in (0.6, 0.9, 1.2, 99.0)])
    policy = Repeated(Wavering(), env.spec, times)
    inside, outside = jax.jit(
        lambda key: (play(ActionRepeat(env, times), tasks, Wavering(), key, 16), play(env, tasks, policy, key, 16))
    )(KEY)
    lengths = np.asarray(outside.mask).sum(axis=1)
    assert len(set(lengths)) > 2 and any(length % times for length in lengths)
    decisions = -(-lengths // times)
    np.testing.assert_array_equal(np.asarray(inside.mask).sum(axis=1), decisions)
    for index, (length, number) in enumerate(zip(lengths, decisions, strict=True)):
        reached = np.minimum(times * np.arange(number + 1), length)
        np.testing.assert_allclose(inside.obs[index, : number + 1], outside.obs[index][reached], rtol=1e-6)
        decided = times * np.arange(number)
        np.testing.assert_allclose(inside.action[index, :number], outside.action[index][decided], rtol=1e-6)
        sums = np.add.reduceat(np.asarray(outside.reward[index]), times * np.arange(6 // times))
        np.testing.assert_allclose(inside.reward[index], sums, rtol=1e-5, atol=1e-6)
        ended = bool(outside.terminated[index, length - 1])
        assert bool(inside.terminated[index, number - 1]) == ended
