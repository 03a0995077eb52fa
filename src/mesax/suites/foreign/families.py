"""A task family around whatever a user names: how long episodes are is asked, or else found out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeGuard

import numpy as np

from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import PROBE_SEED, ForeignEnvironment, Running, UnlikeTask, close, made_by
from mesax.bridges.environments.jaxmarl import JaxMarlEnvironment
from mesax.bridges.environments.layout import Layout
from mesax.bridges.environments.limits import LIMITS, own_limit
from mesax.bridges.environments.parallel import is_jaxmarl
from mesax.envs.base import TaskFamily
from mesax.envs.contract import OF_A_FAMILY, check_family
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.runtime import staying
from mesax.store.settings import is_setting, to_plain

LONGEST_PROBE = 1_000
"""Steps after which an episode is taken to have no end."""
PROBES = 16
"""Episodes that are played at most, each on a task of its own."""
ENOUGH_CUTS = 4
"""Episodes that are cut at one step, and none at another: then all are taken to be."""
LEAST_OF_A_FAMILY = 3
"""Members of a family that something must have to be meant as one, though it may lack others."""
HOW_TO_GIVE_A_HORIZON = (
    f"give the environment an attribute {LIMITS[0]}, or name mesax.ForeignEnvironment(make, horizon=...) in place of"
    " the function"
)


def family_of(reference: str, found: object, expected: str) -> TaskFamily:
    """The tasks of what a user has named; what is of no known kind, or breaks, is one line that names it."""
    try:
        family = _usable(found)
        check_family(family)
        unusable = unusable_task(family) if isinstance(family, ForeignFamily) else None
        if unusable is not None:
            raise UsageError("; ".join(unusable))
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
    except TypeError as error:  # not hashable, for example
        raise UsageError(f"{error}; write a function or a frozen dataclass") from error
    unsuited = no_setting(family)
    if unsuited is not None:
        raise UsageError("; ".join(unsuited))
    return family


@lru_cache(maxsize=16)
def unusable_task(family: ForeignFamily) -> tuple[str, str] | None:
    """(What is wrong with a task that a run may draw, what to do about it); None if those that are tried can be made.

    Seeds that a person tries are small, and those of a run are not: a list of a few maps serves the ones alone.
    """
    if not isinstance(family.env, ForeignEnvironment):  # one environment serves all tasks
        return None
    if family.num_tasks is None:
        seeds = [int(seed) for drawn in family.seeds(0, 1, 1) for seed in drawn]
        advice = "a run draws seeds up to 2**32: use seed % n, or name a mesax.ForeignFamily with num_tasks=n"
    else:
        seeds = [family.num_tasks - 1]
        advice = f"num_tasks={family.num_tasks} says that seeds up to {seeds[0]} are tasks"
    try:
        for seed in seeds:
            close(family.env.open(seed).env)
    except UnlikeTask as fault:
        return str(fault), fault.advice
    except EnvironmentFault as fault:
        return str(fault), advice
    return None


def no_setting(family: TaskFamily) -> tuple[str, str] | None:
    """(What of a family cannot be a setting of a run, what to do about it); None if all of it can be."""
    try:
        to_plain(family)
    except TypeError as error:
        if isinstance(family, ForeignFamily):
            return str(error), "write a function or a frozen dataclass"
        if not is_setting(type(family)):
            return str(error), f"make {type(family).__name__} a frozen dataclass"
        return str(error), "use numbers, text, tuples and frozen dataclasses"
    return None


def _family_of(found: object) -> TaskFamily:
    if isinstance(found, ForeignEnvironment | JaxMarlEnvironment):
        return around(found)
    refuse_class(found)
    if is_family(found):
        return found
    if not callable(found):
        raise _Unknown(f"a {type(found).__name__}")
    if not takes_a_seed(found):
        raise _Unknown("a function that cannot be called with one seed")
    return around(environment_of(found), getattr(found, "tasks_per_layout", 1))


def is_family(found: object) -> TypeGuard[TaskFamily]:
    """Whether something is meant to be a family of tasks; what else it must have is for `check_family` to say."""
    if isinstance(found, type):
        return False
    offered = _offered(found)
    return {"env", "split"} <= offered or (len(offered) >= LEAST_OF_A_FAMILY and not callable(found))


def refuse_class(found: object) -> None:
    """Refuse the class of a family where one of its instances is meant."""
    if isinstance(found, type) and "split" in (offered := _offered(found)) and len(offered) >= LEAST_OF_A_FAMILY:
        name = found.__name__
        raise UsageError(f"it is the class {name}: name an instance of it (FAMILY = {name}())")


def _offered(found: object) -> set[str]:
    """Members of a family that something has; those of its class are not asked, for to ask may break."""
    kind = found if isinstance(found, type) else type(found)
    fields = vars(kind).get("__dataclass_fields__", ())
    return {name for name in OF_A_FAMILY if name in fields or hasattr(kind, name) or hasattr(found, name)}


def takes_a_seed(factory: Callable[..., object]) -> bool:
    """Whether a factory can be called with one argument."""
    try:
        inspect.signature(factory).bind(0)
    except TypeError:
        return False
    except ValueError:  # some functions written in C do not tell
        return True
    return True


def around(env: ForeignEnvironment | JaxMarlEnvironment, tasks_per_layout: int = 1) -> ForeignFamily:
    """Seeds as tasks; the best return is taken to be a reward of 1 at every step."""
    return ForeignFamily(env, optimal_return=float(env.spec.horizon), tasks_per_layout=tasks_per_layout)


def best_is_guessed(found: object) -> bool:
    """Whether the best return of what a user names is unknown, so that `around` guesses it."""
    return isinstance(found, ForeignEnvironment | JaxMarlEnvironment) or not is_family(found)


def tasks_are_seeds(family: TaskFamily) -> bool:
    """Whether mesax draws the tasks of a user's world, as numbers."""
    return isinstance(family, ForeignFamily)


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
    """Steps after which an environment cuts the longest of its episodes, found by playing.

    Tasks may be cut at different lengths, so that several are played. Where an episode terminates says nothing of how
    long another may last; so an environment that never cuts one is refused, unless all end at the same step. Half of
    the episodes, on tasks of either parity, hold one joint action: a random one may never get to the end where a
    single wrong action is fatal.
    """
    env, random = ForeignEnvironment(make, LONGEST_PROBE), np.random.default_rng(PROBE_SEED)
    lengths: list[int] = []
    cuts: list[int] = []
    while len(lengths) < PROBES and not (len(cuts) == ENOUGH_CUTS and len(set(cuts)) == 1):
        seed = PROBE_SEED + len(lengths)
        running = env.open(seed)
        try:
            with staying():
                steps, ended = _episode(running, env.layout, random, seed, held=len(lengths) // 2 % 2 == 1)
        finally:
            close(running.env)
        if ended is None:
            raise _endless(f"one still went on after {LONGEST_PROBE} steps")
        lengths.append(steps)
        if ended == "truncated":
            cuts.append(steps)
    if cuts or len(set(lengths)) == 1:
        return max(lengths)
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
        f"the length of its episodes is unknown (of those played at random, {what}): {HOW_TO_GIVE_A_HORIZON}"
    )
