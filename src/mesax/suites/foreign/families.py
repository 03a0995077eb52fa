"""A task family around whatever a user names: how long episodes are is asked, or else found out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeGuard

import numpy as np

from mesax.envs.adapters.family import ForeignFamily
from mesax.envs.adapters.foreign import PROBE_SEED, ForeignEnvironment, Running, close, made_by
from mesax.envs.adapters.jaxmarl import JaxMarlEnvironment
from mesax.envs.adapters.layout import Layout
from mesax.envs.adapters.limits import LIMITS, own_limit
from mesax.envs.adapters.parallel import is_jaxmarl
from mesax.envs.base import TaskFamily
from mesax.envs.contract import check_family
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.store.settings import to_plain

LONGEST_PROBE = 1_000
"""Steps after which nobody waits any longer for an episode to end."""
PROBES = 16
"""Episodes that are played at most until one is cut."""
HOW_TO_GIVE_A_HORIZON = (
    f"give the environment an attribute {LIMITS[0]}, or name mesax.ForeignEnvironment(make, horizon=...) in place of"
    " the function"
)


def family_of(reference: str, found: object, expected: str) -> TaskFamily:
    """The tasks of what a user has named; what is of no known kind, or breaks, is one line that names it."""
    try:
        family = _usable(found)
        check_family(family)
        return family
    except _Unknown as error:
        raise UsageError(f"'{reference}' is {error}, and {expected} was expected") from None
    except (UsageError, EnvironmentFault) as error:
        raise UsageError(f"'{reference}' cannot be used: {error}") from error


class _Unknown(Exception):
    """What something is that is of no known kind."""


def _usable(found: object) -> TaskFamily:
    """The tasks of what was named, if they can be a setting."""
    try:
        family = _family_of(found)
        to_plain(family)
        return family
    except TypeError as error:
        raise UsageError(f"{error}; write a function or a frozen dataclass") from error


def _family_of(found: object) -> TaskFamily:
    if isinstance(found, ForeignEnvironment | JaxMarlEnvironment):
        return around(found)
    if is_family(found):
        return found
    if not callable(found):
        raise _Unknown(f"a {type(found).__name__}")
    if not takes_a_seed(found):
        raise _Unknown("a function that cannot be called with one seed")
    return around(environment_of(found))


def is_family(found: object) -> TypeGuard[TaskFamily]:
    """Whether something is meant to be a family of tasks; what else it must have is for `check_family` to say."""
    return not isinstance(found, type) and all(hasattr(found, name) for name in ("env", "split"))


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
    return ForeignEnvironment(make, length_of_a_cut(make) if limit is None else limit)


def length_of_a_cut(make: Callable[[int], object]) -> int:
    """Steps after which an environment cuts an episode, found by playing.

    Where an episode terminates says nothing of how long another may last; so one that is never cut is refused, unless
    all end at the same step. Every other episode holds one joint action: a random one may never get to the end where a
    single wrong action is fatal.
    """
    env, random = ForeignEnvironment(make, LONGEST_PROBE), np.random.default_rng(PROBE_SEED)
    lengths: list[int] = []
    while len(lengths) < PROBES:
        seed = PROBE_SEED + len(lengths)
        running = env.open(seed)  # each on a task of its own, whose episodes may be shorter or longer
        try:
            steps, ended = _episode(running, env.layout, random, seed, held=len(lengths) % 2 == 1)
        finally:
            close(running.env)
        if ended == "truncated":
            return steps
        if ended is None:
            raise _endless(f"one still went on after {LONGEST_PROBE} steps")
        lengths.append(steps)
    if len(set(lengths)) == 1:
        return lengths[0]
    raise _endless(f"{PROBES} terminated, after {min(lengths)} to {max(lengths)} steps, and none was cut")


def _episode(
    running: Running, layout: Layout, random: np.random.Generator, seed: int, held: bool
) -> tuple[int, Literal["terminated", "truncated"] | None]:
    """(steps, how it ended; None if it did not) of an episode of random actions, or of one that is held."""
    running.reset(seed)
    action = layout.random_action(random)
    for steps in range(1, LONGEST_PROBE + 1):
        outcome = running.step(action)
        if outcome.terminated or outcome.truncated:
            return steps, "terminated" if outcome.terminated else "truncated"
        if not held:
            action = layout.random_action(random)
    return LONGEST_PROBE, None


def _endless(what: str) -> UsageError:
    return UsageError(
        f"nobody knows how long its episodes may last (of those played at random, {what}): {HOW_TO_GIVE_A_HORIZON}"
    )
