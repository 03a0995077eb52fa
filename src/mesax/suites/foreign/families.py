"""A task family around whatever a user names: how long episodes are is asked, or else found out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np

from mesax.envs.adapters.family import ForeignFamily
from mesax.envs.adapters.foreign import PROBE_SEED, ForeignEnvironment, close, made_by
from mesax.envs.adapters.jaxmarl import JaxMarlEnvironment
from mesax.envs.adapters.parallel import is_jaxmarl
from mesax.envs.base import TaskFamily
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.store.settings import to_plain

LIMITS = ("max_cycles", "max_episode_steps", "_max_episode_steps", "max_steps", "episode_length", "episode_limit")
"""Under these names environments keep the number of steps after which they end an episode themselves."""
LONGEST_PROBE = 1_000
"""Steps after which nobody waits any longer for a random episode to end."""
OF_A_FAMILY = ("env", "split", "describe", "score", "breakdown", "optimal_return", "optimal_threshold", "facts")


def family_of(reference: str, found: object, expected: str) -> TaskFamily:
    """The tasks of what a user has named; what is of no known kind, or breaks, is one line that names it."""
    try:
        family = _family_of(found)
        to_plain(family)
        return family
    except TypeError as error:
        raise UsageError(f"'{reference}' cannot be used: {error}; write a function or a frozen dataclass") from error
    except _Unknown as error:
        raise UsageError(f"'{reference}' is {error}, and {expected} was expected") from None
    except (UsageError, EnvironmentFault) as error:
        raise UsageError(f"'{reference}' cannot be used: {error}") from error


class _Unknown(Exception):
    """What something is that is of no known kind."""


def _family_of(found: object) -> TaskFamily:
    if isinstance(found, ForeignEnvironment | JaxMarlEnvironment):
        return around(found)
    if not isinstance(found, type) and all(hasattr(found, name) for name in OF_A_FAMILY):
        return cast(TaskFamily, found)
    if not callable(found):
        raise _Unknown(f"a {type(found).__name__}")
    if not takes_a_seed(found):
        raise _Unknown("a function that cannot be called with one seed")
    return around(environment_of(found))


def takes_a_seed(factory: Callable[..., object]) -> bool:
    """Whether a factory can be called with one argument."""
    try:
        inspect.signature(factory).bind(0)
    except TypeError:
        return False
    except ValueError:  # some functions written in C do not tell
        return True
    return True


def around(env: ForeignEnvironment | JaxMarlEnvironment) -> ForeignFamily:
    """Seeds as tasks; the best return is taken to be a reward of 1 at every step."""
    return ForeignFamily(env, optimal_return=float(env.spec.horizon))


@lru_cache(maxsize=16)
def environment_of(make: Callable[[int], Any]) -> ForeignEnvironment | JaxMarlEnvironment:
    """The adapter for what a factory makes."""
    probe = made_by(make, PROBE_SEED)
    if is_jaxmarl(probe):
        return JaxMarlEnvironment(make)
    limit = own_limit(probe)
    close(probe)
    return ForeignEnvironment(make, random_length(make) if limit is None else limit)


def own_limit(env: object) -> int | None:
    """Steps after which an environment says that it ends an episode."""
    for holder in (env, getattr(env, "spec", None), getattr(env, "unwrapped", None)):
        for name in LIMITS:
            value = getattr(holder, name, None)
            if isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0:
                return int(value)
    return None


def random_length(make: Callable[[int], object]) -> int:
    """Steps of one random episode."""
    env = ForeignEnvironment(make, LONGEST_PROBE)
    running, random = env.open(PROBE_SEED), np.random.default_rng(PROBE_SEED)
    running.reset(PROBE_SEED)
    steps, over = 0, False
    while not over and steps < LONGEST_PROBE:
        outcome = running.step(env.layout.random_action(random))
        steps, over = steps + 1, outcome.terminated or outcome.truncated
    close(running.env)
    return steps
