"""Games of other papers: payoffs by hand, what is seen, and where episodes end."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mesax.errors import UsageError
from mesax.experiments.names import ENVIRONMENTS
from mesax.suites.registry import suite_of
from mesax.types import Discrete
from paper.envs.matrix import MatrixGame
from paper.envs.steps_matrix import StepsMatrixGame

TASK, KEY = jnp.asarray(0), jax.random.key(0)
STAY, TURN = (0, 0), (1, 1)


def returns(game, *joint) -> tuple[list[float], list[bool]]:
    """(rewards, whether the episode is over) along joint actions."""
    step = jax.jit(lambda state, action: game.step(TASK, state, action, KEY))
    state, _ = game.reset(TASK, KEY)
    rewards, over = [], []
    for action in joint:
        state, outcome = step(state, jnp.array(action))
        rewards.append(float(outcome.reward))
        over.append(bool(outcome.terminated))
    return rewards, over


@pytest.mark.parametrize(
    "joint, rewards",
    [
        ([STAY] * 10, [1.0] * 10),
        ([STAY] * 9 + [TURN], [1.0] * 9 + [4.0]),
        ([STAY] * 9 + [(0, 1)], [1.0] * 10),
        ([TURN] * 10, [1.0] * 10),
        ([STAY, TURN], [1.0, 0.0]),
        ([TURN, TURN, (1, 0)], [1.0, 1.0, 0.0]),
        ([TURN] * 9 + [STAY], [1.0] * 9 + [0.0]),
        ([(0, 1)], [0.0]),
        ([(1, 0)], [0.0]),
    ],
)
def test_the_steps_game_by_hand(joint, rewards):
    """Nothing paid, or the last step: over; else it goes on."""
    paid, over = returns(StepsMatrixGame(), *joint)
    assert paid == rewards
    assert over == [reward == 0.0 or time == 9 for time, reward in enumerate(rewards)]


def test_the_best_of_all_plays_of_a_short_steps_game():
    """Three steps, all 64 plays of joint actions: 6 by (0, 0), (0, 0), (1, 1), and 3 at most by any other."""
    game = StepsMatrixGame(num_steps=3)

    @jax.jit
    @jax.vmap
    def play(joint):
        state, _ = game.reset(TASK, KEY)
        total, alive = jnp.zeros(()), jnp.asarray(True)
        for action in joint:
            state, outcome = game.step(TASK, state, action, KEY)
            total, alive = total + alive * outcome.reward, alive & ~outcome.terminated
        return total

    plays = list(itertools.product(itertools.product((0, 1), repeat=2), repeat=3))
    found = dict(zip(plays, np.asarray(play(jnp.array(plays))).tolist(), strict=True))
    assert found.pop((STAY, STAY, TURN)) == game.best_return == 6.0
    assert max(found.values()) == 3.0


def test_what_the_steps_game_shows():
    """Step and branch, one-hot, to both agents; before the first step the branch looks like the first one."""
    game = StepsMatrixGame(num_steps=2)
    state, first = game.reset(TASK, KEY)
    np.testing.assert_array_equal(first, [[1, 0, 0, 1, 0, 0, 0]] * 2)
    _, outcome = game.step(TASK, state, jnp.array(TURN), KEY)
    np.testing.assert_array_equal(outcome.obs, [[0, 1, 0, 0, 0, 0, 1]] * 2)
    assert (game.spec.obs_size, game.spec.horizon, game.spec.action_space) == (7, 2, Discrete(2))


def test_the_matrix_game_by_hand():
    expected = dict.fromkeys(itertools.product(range(3), repeat=2), 0.0)
    expected |= {(0, 0): 8.0, (0, 1): -12.0, (0, 2): -12.0, (1, 0): -12.0, (2, 0): -12.0}
    for action, reward in expected.items():
        assert returns(MatrixGame(), action) == ([reward], [True])
    assert np.mean(list(expected.values())) < 0


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: StepsMatrixGame(num_steps=1), "num-steps must be at least 2, not 1"),
        (lambda: MatrixGame(((1.0,),)), "at least 2 x 2 numbers"),
        (lambda: MatrixGame(((1.0, 2.0), (3.0,))), "must be a square"),
    ],
)
def test_games_that_do_not_exist_are_refused(build, message):
    with pytest.raises(UsageError, match=message):
        build()


@pytest.mark.parametrize("name, best, trap", [("steps-matrix", 13.0, 10.0), ("qplex-matrix", 8.0, 0.0)])
def test_they_are_listed_as_families_of_copies(name, best, trap):
    assert name in ENVIRONMENTS
    family = suite_of(name).family(name)
    assert (family.optimal_return, family.suboptimal_return) == (best, trap) and trap < family.optimal_threshold < best
    split = family.split(5, 3, 2)
    assert np.concatenate([split.train, split.test]).tolist() == [0, 1, 2, 3, 4]
