"""Cooperative navigation is mpe2's, observation by observation and reward by reward; its controller knows the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.simple_spread import (
    MEASURED,
    AssignmentPolicy,
    SimpleSpread,
    SpreadState,
    assign,
    spread_family,
    steer,
)
from mpe2 import simple_spread_v3

from mesax.envs.particles import length
from mesax.errors import UsageError
from mesax.policy import UniformPolicy
from mesax.training.driver import play_episodes
from mesax.types import leading_size, tree_index

TASK, KEY = np.uint32(0), jax.random.key(0)


def start_of(env) -> SpreadState:
    """mpe2's present state as ours, in double precision."""
    world = env.unwrapped.world
    position, velocity = (
        np.stack([getattr(agent.state, name) for agent in world.agents]) for name in ("p_pos", "p_vel")
    )
    landmarks = np.stack([landmark.state.p_pos for landmark in world.landmarks])
    return SpreadState(*jax.device_put((position, velocity, landmarks)))


@pytest.mark.parametrize("local_ratio", [0.5, 0.2])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_episodes_equal_those_of_mpe2(number: int, local_ratio: float):
    """Half of the actions chase the first agent, so that contacts are among what is compared."""
    theirs = simple_spread_v3.parallel_env(N=number, local_ratio=local_ratio, max_cycles=25)
    ours = SimpleSpread(number, local_ratio)
    random, contacts = np.random.default_rng(number), 0
    with jax.enable_x64(True):
        step, observe = jax.jit(ours.step), jax.jit(ours.observe)

        @jax.jit
        def chase(state: SpreadState) -> tuple[jax.Array, jax.Array]:
            """Actions towards the first agent, and how many touch whom (or themselves)."""
            apart = length(state.position[:, None] - state.position[None])
            return jax.vmap(steer)(state.position[:1] - state.position, state.velocity), jnp.sum(apart < 0.3)

        for seed in range(6):
            seen, _ = theirs.reset(seed=seed)
            names, state = list(theirs.agents), start_of(theirs)
            assert (len(seen[names[0]]), theirs.action_space(names[0]).n) == (ours.spec.obs_size, 5)
            np.testing.assert_allclose(observe(state), [seen[name] for name in names], atol=1e-6)
            for time in range(ours.horizon):
                home, _ = chase(state)
                actions = np.where(random.random(number) < 0.5, home, random.integers(0, 5, number))
                seen, rewards, ended, cut, _ = theirs.step(dict(zip(names, map(int, actions), strict=True)))
                state, outcome = step(TASK, state, actions, KEY)
                np.testing.assert_allclose(outcome.obs, [seen[name] for name in names], atol=1e-5)
                assert float(outcome.reward) == pytest.approx(np.mean(list(rewards.values())), abs=1e-5)
                assert not outcome.terminated and not any(ended.values())
                assert all(cut.values()) == (time == ours.horizon - 1), "both cut at the horizon"
                contacts += int(chase(state)[1]) - number
    theirs.close()
    assert contacts > 20 or number == 1


def test_the_reward_by_hand():
    """Both landmarks are .5 from the nearest agent; two agents touch, and each feels one contact."""
    places = ([[0.0, 0.0], [0.2, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[-0.5, 0.0], [0.2, 0.5]])
    state = SpreadState(*jax.device_put([np.array(rows, np.float32) for rows in places]))
    worlds = [SimpleSpread(2), SimpleSpread(2, local_ratio=0.0), SimpleSpread(2, local_ratio=1.0)]
    rewards = jax.jit(lambda state: [world.reward(state) for world in worlds])(state)
    assert [float(reward) for reward in rewards] == pytest.approx([-0.5 * 1.0 - 0.5 * 1.0, -1.0, -1.0])


def test_starts_fill_the_square_and_differ_between_episodes_and_tasks():
    env = SimpleSpread()
    reset = jax.jit(lambda task: jax.vmap(env.reset, in_axes=(None, 0))(task, jax.random.split(KEY, 500))[0])
    states, others = jax.device_get((reset(TASK), reset(TASK + 1)))
    places = np.concatenate([states.position, states.landmarks])
    assert -1 <= places.min() < -0.99 and 0.99 < places.max() <= 1 and abs(places.mean()) < 0.05
    assert not np.any(states.velocity)
    assert not np.any(others.position[0] == states.position[0])


# The controller


def test_landmarks_are_assigned_by_their_total_distance():
    """The first agent is nearest to both; the second one's loss would be larger."""
    assigned = jax.jit(jax.vmap(assign))
    tables = np.array([[[1.0, 2.0], [2.0, 9.0]], [[1.0, 2.0], [9.0, 2.0]]], np.float32)
    assert assigned(tables).tolist() == [[1, 0], [0, 1]]
    distances = np.random.default_rng(0).uniform(size=(20, 4, 4)).astype(np.float32)
    for table, chosen in zip(distances, np.asarray(assigned(distances)), strict=True):
        assert sorted(chosen) == [0, 1, 2, 3]
        others = [np.random.default_rng(i).permutation(4) for i in range(200)]
        assert all(table[range(4), chosen].sum() <= table[range(4), order].sum() + 1e-6 for order in others)


def test_steering_pushes_coasts_and_brakes():
    still, fast = (0.0, 0.0), (1.5, 0.0)
    cases = {  # (offset of the goal, velocity): action
        ((1.0, 0.1), still): 2,
        ((-1.0, -0.1), still): 1,
        ((0.1, -1.0), still): 3,
        ((0.0, 0.0), still): 0,
        ((0.05, 0.0), fast): 1,  # too fast to stop by itself
    }
    offset, velocity = np.array(list(cases), np.float32).swapaxes(0, 1)
    assert jax.jit(jax.vmap(steer))(offset, velocity).tolist() == list(cases.values())


def test_tasks_are_those_of_the_stored_results():
    train, test = spread_family().seeds(0, 2, 2)
    assert (train.tolist(), test.tolist()) == ([53693420, 2530958258], [687323847, 3469132423])


@pytest.mark.parametrize("number", MEASURED)
def test_the_controller_covers_all_landmarks_and_beats_chance_by_far(number: int):
    family = spread_family(number)
    policies = {"uniform": UniformPolicy(family.env.spec.action_space), "scripted": AssignmentPolicy(number)}
    tasks = family.split(0, 1, 1).test
    played = {name: play_episodes(family.env, tasks, policy, KEY, 400) for name, policy in policies.items()}
    returns = {name: float(np.mean(np.sum(episodes.reward, axis=1))) for name, episodes in played.items()}
    assert returns["scripted"] > returns["uniform"] + 12
    assert returns["uniform"] == pytest.approx(family.suboptimal_return, abs=1.0)
    assert returns["scripted"] == pytest.approx(family.optimal_return, abs=0.5)
    last = played["scripted"].obs[:, -1, :, 4 : 4 + 2 * number].reshape(400, number, number, 2)
    nearest = np.linalg.norm(last, axis=-1).min(axis=1)
    assert np.mean(nearest < 0.15) > 0.8


# The family


def test_the_family_reads_returns_and_splits_starts():
    family = spread_family()
    split = family.split(3, 4, 5)
    assert (leading_size(split.train), leading_size(split.test)) == (4, 5)
    assert not set(split.train.tolist()) & set(split.test.tolist())
    assert family.suboptimal_return < family.optimal_threshold < family.optimal_return < 0
    assert family.facts() == {"num_agents": 3, "horizon": 25, "team_reward": "mean", "return_is": "sum"}
    assert family.describe(tree_index(split.test, 0)).label.startswith("seed ")


def test_impossible_worlds():
    with pytest.raises(UsageError, match=r"^num-agents must be at least 1, not 0$"):
        SimpleSpread(0)
    with pytest.raises(UsageError, match=r"^local-ratio must lie between 0 and 1, not nan$"):
        SimpleSpread(local_ratio=float("nan"))
    with pytest.raises(UsageError, match="known for 2, 3 agents, not 7"):
        spread_family(7)
