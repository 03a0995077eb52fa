"""The values that all parts share: index draws, action spaces, episodes, masked means, trees, schedules."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesax.errors import UsageError
from mesax.types import (
    Box,
    Discrete,
    Elapsed,
    EnvSpec,
    Episode,
    Label,
    Linear,
    LinearOwnSteps,
    LinearSteps,
    leading_size,
    mapped,
    masked_mean,
    random_index,
    tree_index,
    tree_stack,
    tree_where,
)
from probes import put


def episode() -> Episode:
    """Three steps, the last of which never happened."""
    return Episode(
        obs=put(np.arange(8.0).reshape(4, 2, 1)),
        action=put([[0, 1], [1, 1], [0, 0]]),
        reward=put([1.0, 2.0, 0.0]),
        terminated=put([False, True, False]),
        mask=put([True, True, False]),
        label=jax.jit(lambda: Label.of(0))(),
    )


@pytest.mark.parametrize("number", [1, 3])
def test_mapped_is_vmap_whether_one_or_many(number: int):
    rows = np.arange(4.0 * number, dtype=np.float32).reshape(4, number)
    tree = {"scale": np.arange(2.0, 2.0 + number, dtype=np.float32), "nothing": None}
    keys = jax.random.split(jax.random.key(0), number)

    def function(tree, row, key):
        return tree["scale"] * row, jax.random.uniform(key, (4, 2))

    scaled, drawn = jax.jit(mapped(function, in_axes=(0, 1, 0), out_axes=1))(tree, rows, keys)
    np.testing.assert_array_equal(scaled, rows * tree["scale"])
    for lane in range(number):
        np.testing.assert_array_equal(drawn[:, lane], jax.random.uniform(keys[lane], (4, 2)))


@pytest.mark.parametrize("number", [1, 2, 7])
def test_random_index_is_uniform(getkey, number: int):
    drawn = np.asarray(jax.jit(lambda key: random_index(key, (20_000,), number))(getkey()))
    frequencies = np.bincount(drawn, minlength=number) / drawn.size
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(frequencies, np.full(number, 1 / number), atol=0.02)


def test_random_index_takes_a_traced_number(getkey):
    key = getkey()
    draws = jax.jit(lambda number: (random_index(key, (50,), number), random_index(key, (50,), 5)))
    np.testing.assert_array_equal(*draws(put(5, np.int32)))


def test_discrete():
    space = Discrete(4)
    assert space.feature_size == 4
    compute = jax.jit(lambda action, numbers: (space.encode(action), space.from_uniform(numbers)))
    encoded, drawn = compute(put([2, 0]), put([0.0, 0.249, 0.25, 0.999_999_94]))
    np.testing.assert_array_equal(encoded, [[0, 0, 1, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(drawn, [0, 0, 1, 3])


def test_from_uniform_never_leaves_the_actions():
    # For this many actions, the largest number below 1 times their number rounds up to their number.
    largest = np.nextafter(np.float32(1.0), np.float32(0.0))
    assert int(jax.jit(Discrete(2**24 + 2).from_uniform)(largest)) <= 2**24 + 1


def test_samples(getkey):
    discrete = np.asarray(jax.jit(lambda key: Discrete(3).sample(key, (6_000, 2)))(getkey()))
    assert discrete.shape == (6_000, 2)
    np.testing.assert_allclose(np.bincount(discrete.ravel()) / discrete.size, np.full(3, 1 / 3), atol=0.02)
    joint = np.bincount(discrete @ [3, 1], minlength=9) / len(discrete)
    np.testing.assert_allclose(joint, np.full(9, 1 / 9), atol=0.02)  # agents draw independently
    box = np.asarray(jax.jit(lambda key: Box(2).sample(key, (2_000, 3)))(getkey()))
    assert box.shape == (2_000, 3, 2)
    assert box.min() >= -1 and box.max() <= 1
    assert abs(box.mean()) < 0.02 and abs(box.std() - 1 / np.sqrt(3)) < 0.02
    np.testing.assert_array_equal(Box(2).encode(box), box)


@pytest.mark.parametrize("field", ["num_agents", "obs_size", "horizon"])
def test_spec_refuses_what_cannot_be_built(field: str):
    sizes = {"num_agents": 2, "obs_size": 3, "horizon": 1} | {field: 0}
    with pytest.raises(UsageError, match=f"{field} must be at least 1, not 0"):
        EnvSpec(action_space=Discrete(2), **sizes)


def test_joint_size():
    assert EnvSpec(2, 3, Discrete(5), 1).joint_size == 2 * (3 + 5)
    assert EnvSpec(3, 4, Box(2), 1).joint_size == 3 * (4 + 2)


def test_episode_tells_what_continues():
    continues, transitions = jax.device_get(jax.jit(lambda played: (played.continues, played.transitions))(episode()))
    np.testing.assert_array_equal(continues, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(transitions.obs[:, 0, 0], [0, 2, 4])
    np.testing.assert_array_equal(transitions.next_obs[:, 0, 0], [2, 4, 6])
    np.testing.assert_array_equal(transitions.action, episode().action)


mean = jax.jit(masked_mean)


def test_masked_mean():
    mask = np.array([[True, True], [False, True]])
    values = np.array([[1.0, 2.0], [100.0, 6.0]])
    assert float(mean(values, mask)) == 3.0
    assert float(mean(np.stack([values, 2 * values], axis=-1), mask)) == 4.5
    assert float(mean(values, np.zeros((2, 2), bool))) == 0.0


@given(st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.booleans()), min_size=6, max_size=6))
def test_masked_mean_is_the_mean_of_what_happened(steps):
    values, mask = (np.array(column) for column in zip(*steps, strict=True))
    expected = values[mask].mean() if mask.any() else 0.0
    actual = mean(values.astype(np.float32), mask)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_trees():
    first, second = {"a": put([1.0]), "b": put(2)}, {"a": put([3.0]), "b": put(4)}
    stacked, chosen = jax.device_get(
        jax.jit(lambda *trees: (tree_stack(list(trees)), tree_where(put(True), *trees)))(first, second)
    )
    assert leading_size(stacked) == 2
    assert jax.tree.all(jax.tree.map(np.array_equal, tree_index(stacked, 1), second))
    assert jax.tree.all(jax.tree.map(np.array_equal, chosen, first))


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.01, 1), st.floats(-0.5, 2))
def test_linear(start: float, end: float, fraction: float, progress: float):
    expected = np.interp(progress / fraction, [0, 1], [start, end])
    actual = Linear(start, end, fraction)(Elapsed.at(progress))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_linear_over_nothing_is_its_end():
    assert float(Linear(1.0, 0.25, 0.0)(Elapsed.at(0.0))) == 0.25


def test_linear_steps_do_not_depend_on_the_budget():
    line = LinearSteps(1.0, 0.2, 100)
    for fraction in (0.0, 0.5, 1.0):
        assert float(line(Elapsed.at(fraction, 25.0))) == pytest.approx(0.8)
    assert float(line(Elapsed.at(0.0, 1_000.0))) == pytest.approx(0.2)
    assert float(line(Elapsed.end())) == pytest.approx(0.2)


def test_linear_own_steps_begin_after_the_warm_up():
    line = LinearOwnSteps(1.0, 0.2, 100)
    for warmup in (0.0, 500.0):
        values = [float(line(Elapsed.at(0.5, warmup + steps, warmup))) for steps in (-10.0, 0.0, 25.0, 1_000.0)]
        assert values == pytest.approx([1.0, 1.0, 0.8, 0.2])
    assert float(line(Elapsed.end())) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", [LinearSteps, LinearOwnSteps])
def test_a_schedule_takes_time(kind):
    with pytest.raises(UsageError, match="steps must be at least 1, not 0"):
        kind(1.0, 0.0, 0)
