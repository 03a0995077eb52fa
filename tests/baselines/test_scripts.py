"""Scripted teams that know the task: what they earn by hand, where they go, and where they are refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.baselines.scripts import (
    ActionTeam,
    Angles,
    AngleTeam,
    Landmarks,
    LandmarkTeam,
    Seen,
    ToldActions,
    ToldAngles,
    ToldLandmarks,
)
from mesax.envs.climb import ClimbGame, ClimbTask
from mesax.envs.goals import ToldGoal
from mesax.envs.particle_climb import ParticleClimb, ParticleTask
from mesax.errors import UsageError
from mesax.policy import LEARNER
from mesax.training.driver import play_episodes

KEY = jax.random.key(0)


def rewards(world, script, task, aim: str, episodes: int = 1) -> np.ndarray:
    """What the team is paid in every step, `[episodes, time]`."""
    told = ToldGoal(world, script.goal)
    tasks = jax.tree.map(lambda leaf: np.asarray(leaf)[None], task)
    return np.asarray(play_episodes(told, tasks, script(told.spec, aim), KEY, episodes).reward)


def test_a_climb_game_is_played_as_its_stages_ask_for():
    """Two of three agents play 3, then all of them play 0, then one of them plays 2; or none of them ever does."""
    game = ClimbGame(num_agents=3, num_actions=4, num_stages=3)
    task = ClimbTask(jnp.array([2, 3, 1]), jnp.array([3, 0, 2]))
    assert rewards(game, ToldActions(), task, "optimum").tolist() == [[1.0, 1.0, 1.0]]
    assert rewards(game, ToldActions(), task, "safe").tolist() == [[0.5, 0.5, 0.5]]
    told = jnp.array([[0.0, 0.0, 0.0, 1.0, 2.0]] * 3)
    for aim, actions in (("optimum", [3, 3, 0]), ("safe", [0, 0, 0])):
        team = ActionTeam(4, aim)
        assert team.act(team.start(KEY), told, KEY)[0].tolist() == actions
        assert int(team.label(()).actor) == LEARNER


@pytest.mark.parametrize(
    "agents, aim, paid",
    [
        (2, "optimum", [1.0] * 8),
        # Two pushes to the right lead over .05 and .1375 to .203 and beyond: on the target, on none, on the other.
        (2, "safe", [1.0, 0.0] + [0.5] * 6),
        (3, "optimum", [0.0, 0.0] + [1.0] * 6),  # three on the target, then one on the way
    ],
)
def test_agents_that_start_on_the_target_stay_or_go_to_the_next_landmark(agents: int, aim: str, paid: list[float]):
    world = ParticleClimb(
        agents, 3, horizon=8, radius=0.1, start_range=1e-3, wall=None, agent_size=0.05, integration="velocity-first"
    )
    task = ParticleTask(jnp.array([[0.9, 0.0], [0.0, 0.0], [0.25, 0.0]]), jnp.array(1), jnp.array(2))
    script = ToldLandmarks(Landmarks(3, 2, integration="velocity-first"))
    assert rewards(world, script, task, aim, episodes=4).tolist() == [paid] * 4


@pytest.mark.parametrize("aim, expected", [("optimum", [2, 0, 0]), ("safe", [2, 1, 2])])
def test_those_go_to_the_target_whom_it_takes_the_least_out_of_their_way(aim: str, expected: list[int]):
    offsets = jnp.array(
        [
            [[0.3, 0.0], [0.9, 0.9], [0.1, 0.0]],  # .2 farther to the target than to the nearest other one
            [[0.5, 0.1], [0.0, 0.5], [0.9, 0.9]],  # .1
            [[-0.2, 0.1], [0.9, 0.9], [0.2, 0.2]],  # .1 nearer: by axes, that is, for the lines are .22 and .28
        ]
    )
    target, count = jnp.array([[1.0, 0.0, 0.0]] * 3), jnp.array([2.0] * 3)
    team = LandmarkTeam(Landmarks(3, 2), 3, aim)
    assert team.places(target, count, offsets).tolist() == expected


def test_agents_keep_the_landmark_that_they_set_out_for():
    sight = Landmarks(2, 1, num_own=0, integration="velocity-first")
    team = LandmarkTeam(sight, 1, "optimum")
    first, later = (jnp.array([[*target, 1.0, 0.9, 0.0, -0.1, 0.0]]) for target in ((1.0, 0.0), (0.0, 1.0)))
    act = jax.jit(team.act)
    action, memory = act(team.start(KEY), first, KEY)
    assert (action.tolist(), memory[0].tolist()) == ([2], [0])
    assert act(memory, later, KEY)[1][0].tolist() == [0], "nobody asks again"


def test_joints_go_to_the_target_or_well_beside_it():
    script = ToldAngles(Angles(0.5, stiffness=3.0, damping=0.5, angle_at=0, speed_at=1), beside=0.35)
    obs = jnp.array([[0.3, 0.1, 0.2, 9.0], [-0.3, 0.0, 0.0, 9.0]])  # told, angle, speed, something else
    for aim, pushes in (("optimum", [0.5, -0.9]), ("safe", [-0.55, 0.15])):
        np.testing.assert_allclose(AngleTeam(script, aim).act((), obs, KEY)[0][:, 0], pushes, atol=1e-6)
    straight = jnp.zeros((1, 3))
    assert AngleTeam(script, "safe").act((), straight, KEY)[0].tolist() == [[-1.0]], "not at the target even there"


def test_scripts_are_refused_where_they_do_not_fit():
    world = ParticleClimb(3, 6)
    script = ToldLandmarks(Landmarks(5, 2))
    told = ToldGoal(world, script.goal).spec
    with pytest.raises(UsageError, match=f"among 5 landmarks does not fit observations of {told.obs_size} numbers"):
        script(told, "safe")
    with pytest.raises(UsageError, match="one torque"):
        ToldAngles(Angles(0.5))(replace(told, num_agents=2), "optimum")
    with pytest.raises(UsageError, match="beside must be above 0"):
        ToldAngles(Angles(0.5), beside=0.0)


def test_speed_is_told_from_two_observations():
    seen = Seen.nothing(2)
    offsets = jnp.array([[[0.5, 0.0], [9.0, 9.0]], [[0.0, -0.3], [9.0, 9.0]]])
    np.testing.assert_array_equal(seen.velocity(offsets, 0.1), np.zeros((2, 2)))
    later = Seen(offsets[:, 0], seen.time + 1)
    moved = offsets - jnp.array([[[0.05, 0.0]], [[0.0, -0.02]]])  # landmarks recede from whoever leaves
    np.testing.assert_allclose(later.velocity(moved, 0.1), [[0.5, 0.0], [0.0, -0.2]], atol=1e-6)
