"""Annotations are facts: in tests, what is taken and given back is held to them, shapes included."""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

import mesax
import type_checks
from mesax.algorithms.targets import lambda_returns
from mesax.nets import Dense
from mesax.policy import UniformPolicy
from mesax.types import Box, Discrete, Episode, Label, blank_episode

pytestmark = pytest.mark.skipif(not type_checks.ON, reason="MESAX_TYPECHECK=0")


def test_axes_of_one_name_have_one_size():
    three, four = jnp.ones(3), jnp.ones(4)
    assert lambda_returns(three, three, three, 0.9).shape == (3,)
    with pytest.raises(TypeCheckError, match="discount_t"):
        lambda_returns(three, four, three, 0.9)


def test_an_episode_has_one_observation_more_than_steps():
    def episode(instants: int) -> Episode:
        steps = np.zeros((5, 3), np.float32)
        happened = steps > 0
        action = np.zeros((5, 3, 2), np.int32)
        return Episode(np.zeros((5, instants, 2, 7), np.float32), action, steps, happened, happened, Label.of(0))

    assert episode(instants=4).reward.shape == (5, 3)
    with pytest.raises(TypeCheckError, match="instants-1"):
        episode(instants=3)


def test_kinds_of_numbers_are_told_apart():
    obs, key = jnp.zeros((2, 3)), jax.random.key(0)
    for space in (Discrete(4), Box(1)):
        policy = UniformPolicy(space)
        policy.act((), obs, key)
        with pytest.raises(TypeCheckError, match="obs"):
            policy.act((), obs.astype(jnp.int32), key)
    with pytest.raises(TypeCheckError, match="parameter 'key'"):
        policy.act((), obs, jax.random.split(key))


def test_what_is_built_is_checked():
    assert Dense(jnp.zeros((3, 2)), jnp.zeros(2))(jnp.ones(3)).shape == (2,)
    with pytest.raises(TypeCheckError, match="parameter 'bias'"):
        Dense(jnp.zeros((3, 2)), jnp.zeros(3))


def test_shapes_hold_under_transformations():
    policy = UniformPolicy(Discrete(4))
    keys = jax.random.split(jax.random.key(0), 5)
    act = jax.jit(jax.vmap(lambda obs, key: policy.act((), obs, key)[0]))
    assert act(jnp.zeros((5, 2, 3)), keys).shape == (5, 2)
    with pytest.raises(TypeCheckError, match="obs"):
        act(jnp.zeros((5, 3)), keys)


@pytest.mark.usefixtures("unchecked")
def test_the_checks_can_be_left_out():
    assert Dense(jnp.zeros((3, 2)), jnp.zeros(3)).bias.shape == (3,)


def functions_of(module) -> Iterator[typing.Callable]:
    """Functions and methods that a module defines."""
    values = list(vars(module).values())
    members = [member for value in values if inspect.isclass(value) for member in vars(value).values()]
    for value in values + members:
        plain = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(plain) and plain.__module__ == module.__name__:
            yield plain


def is_readable(function: typing.Callable) -> bool:
    try:
        typing.get_type_hints(function)
    except NameError:
        return False
    return True


def test_every_annotation_can_be_read():
    """One with a name that is unknown when a module runs would be passed over in silence."""
    names = [found.name for found in pkgutil.walk_packages(mesax.__path__, "mesax.")]
    modules = [importlib.import_module(name) for name in names if name.startswith(type_checks.PARTS)]
    functions = [function for module in modules for function in functions_of(module)]
    assert inspect.unwrap(blank_episode) in functions
    unknown = [function.__qualname__ for function in functions if not is_readable(function)]
    # Inherited fields keep names that the module of their base knows.
    inherits = ("LearnedMesa", "EpisodeReward", "RecordReward", "ToldCoverage", "SteadyMesa")
    assert sorted(unknown) == sorted(f"{name}.__init__" for name in inherits)
