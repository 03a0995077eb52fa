"""EMC's reversed gridworld by hand: where agents start, what stops them, who sees whom, and what is paid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mesax
from mesax.errors import UsageError
from mesax.suites.registry import suite_of
from paper.envs.reversed_grid import GridState, ReversedGrid

UP, DOWN, LEFT, RIGHT, STAY = range(5)
ENV, KEY = ReversedGrid(), jax.random.key(0)
STEP = jax.jit(lambda place, action: ENV.step((), GridState(place), action, KEY))


def moved(place, action):
    state, outcome = STEP(jnp.array(place), jnp.array(action))
    return np.asarray(state.place).tolist(), outcome


def positions(obs: np.ndarray) -> list[tuple[int, int] | None]:
    """Own and the other's place, as an agent sees them."""
    found: list[tuple[int, int] | None] = []
    for part in np.split(np.asarray(obs), 2):
        row, column = part[:11], part[11:]
        found.append((int(row.argmax()), int(column.argmax())) if part.any() else None)
        assert row.sum() == column.sum() == float(part.any())
    return found


def test_agents_start_in_their_corners_and_see_only_themselves():
    state, obs = ENV.reset((), KEY)
    assert np.asarray(state.place).tolist() == [[0, 0], [10, 11]]
    assert ENV.spec.obs_size == obs.shape[1] == 46 and ENV.spec.horizon == 30
    assert [positions(row) for row in obs] == [[(0, 0), None], [(10, 11), None]]


def test_ten_steps_together_are_the_shortest_way_and_end_the_game():
    place, paid = [[0, 0], [10, 11]], []
    for action in [(DOWN, UP)] * 5 + [(RIGHT, LEFT)] * 5:
        place, outcome = moved(place, action)
        paid.append((float(outcome.reward), bool(outcome.terminated)))
    assert place == [[5, 5], [5, 6]]
    assert paid == [(0.0, False)] * 9 + [(10.0, True)]


@pytest.mark.parametrize(
    ("place", "action", "reward"),
    [
        ([[5, 4], [5, 8]], (RIGHT, STAY), -2.0),  # the left one alone
        ([[5, 4], [4, 6]], (STAY, DOWN), -2.0),  # the right one alone
        ([[5, 5], [5, 8]], (STAY, LEFT), -2.0),  # waiting costs, too
        ([[5, 5], [5, 6]], (LEFT, RIGHT), 0.0),  # what counts is where a step leads
    ],
)
def test_arriving_alone_costs(place, action, reward):
    _, outcome = moved(place, action)
    assert float(outcome.reward) == reward and not outcome.terminated


@pytest.mark.parametrize(
    ("place", "action", "after"),
    [
        ([[0, 0], [10, 11]], (UP, DOWN), [[0, 0], [10, 11]]),
        ([[0, 0], [10, 11]], (LEFT, RIGHT), [[0, 0], [10, 11]]),
        ([[3, 5], [7, 6]], (RIGHT, LEFT), [[3, 5], [7, 6]]),  # nobody leaves their half
        ([[3, 5], [7, 6]], (DOWN, UP), [[4, 5], [6, 6]]),
    ],
)
def test_walls_stop_whoever_walks_into_them(place, action, after):
    assert moved(place, action)[0] == after


@pytest.mark.parametrize(
    ("place", "first", "second"),
    [
        ([[2, 3], [8, 8]], [(2, 3), None], [(8, 8), None]),  # a row outside on either side
        ([[3, 3], [8, 8]], [(3, 3), None], [(8, 8), (3, 3)]),  # who is inside is seen, and does not see
        ([[2, 5], [7, 8]], [(2, 5), (7, 8)], [(7, 8), None]),
        ([[3, 2], [7, 9]], [(3, 2), None], [(7, 9), None]),  # a column outside on either side
        ([[7, 5], [3, 6]], [(7, 5), (3, 6)], [(3, 6), (7, 5)]),
    ],
)
def test_an_agent_in_the_area_is_seen_by_the_other(place, first, second):
    _, outcome = moved(place, (STAY, STAY))
    assert [positions(row) for row in outcome.obs] == [first, second]


@pytest.mark.parametrize(
    "settings", [{"columns": 11}, {"rows": 0}, {"horizon": 0}, {"penalty": -1.0}, {"penalty": np.nan}]
)
def test_impossible_grids_are_refused(settings):
    with pytest.raises(UsageError, match="not"):
        ReversedGrid(**settings)


def test_it_is_a_suite_and_a_pettingzoo_environment():
    """The shortest way, as another library walks it."""
    family = suite_of("reversed-grid").family("reversed-grid")
    env = mesax.parallel_env(family, 7)
    env.reset(seed=0)
    for number, action in enumerate([(DOWN, UP)] * 5 + [(RIGHT, LEFT)] * 5):
        _, rewards, terminated, truncated, _ = env.step(dict(zip(env.agents, action, strict=True)))
        last = number == 9
        assert set(rewards.values()) == {10.0 * last} and set(terminated.values()) == {last}
        assert not any(truncated.values())
    assert env.agents == [] and family.optimal_return == 10.0 and family.suboptimal_return == 0.0
