"""All suites: the built-in ones, a line each, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from mesax import clone
from mesax.errors import UsageError, unknown_name
from mesax.store.modules import is_reference
from mesax.suites.base import OpenEnded, Suite
from mesax.suites.climb.suite import ClimbSuite
from mesax.suites.foreign.suite import suite_named
from mesax.suites.particles.suite import ParticlesSuite
from mesax.suites.swimmer.suite import SwimmerSuite

OF_THE_PAPER: tuple[Suite, ...] = (
    ClimbSuite(),
    ParticlesSuite(),
    SwimmerSuite(),
)
GAMES: tuple[Suite, ...] = clone.part("games.suite", "a proof game").GAMES if clone.is_here() else ()
"""Proof games, in a clone."""
BUILT_IN: tuple[Suite, ...] = (*OF_THE_PAPER, *GAMES)
GROUP = "mesax.suites"
"""Entry points of installed packages: each names a `Suite`."""


def suite_of(environment: str) -> Suite:
    """The suite of a named environment, or a `UsageError` that lists the names.

    A name such as `module:attribute`, which a person types for an environment of their own, loads that module; so this
    is not for names that a file has (see `suite_of_run`).
    """
    if is_reference(environment):
        return suite_named(environment)
    for suite in _all_suites():
        if environment in suite.environments or (isinstance(suite, OpenEnded) and suite.knows(environment)):
            return suite
    own = ", or name one of your own as MODULE:ATTRIBUTE"
    raise unknown_name("unknown environment", environment, [*environments(), *patterns()], own)


def suite_of_run(run: Mapping[str, object], modules: Iterable[ModuleType] = ()) -> Suite | None:
    """The suite behind a run.json, found by its name or its environment's; None if it is not among those known here.

    Nothing is imported because a file names it: a suite of the user's own is known if its module is one of `modules`.
    """
    environment = str(run.get("env"))
    if is_reference(environment):
        module = environment.partition(":")[0]
        return suite_named(environment) if module in {loaded.__name__ for loaded in modules} else None
    for suite in _all_suites():
        # Runs of earlier versions do not say which suite they are of.
        known = run["suite"] == suite.name if "suite" in run else run.get("env") in list(suite.environments)
        if known:
            return suite
    return None


def is_of_the_paper(run: Mapping[str, object]) -> bool:
    """Whether a run.json is about an environment of the paper's own worlds."""
    return any(run.get("env") in suite.environments for suite in OF_THE_PAPER)


def environments() -> dict[str, str]:
    """Every environment that can be named, with a line about each."""
    return {name: text for suite in _all_suites() for name, text in suite.environments.items()}


def patterns() -> list[str]:
    """How environments are named that are too many to list."""
    return [suite.pattern for suite in _all_suites() if isinstance(suite, OpenEnded)]


def _all_suites() -> Iterator[Suite]:
    """Built-in suites first: a name of theirs imports no other package."""
    yield from BUILT_IN
    yield from installed()


@cache
def installed() -> tuple[Suite, ...]:
    """Suites of installed packages; what is wrong with one of them is a line on stderr, once."""
    suites, problems = admitted(entry_points(group=GROUP))
    for problem in problems:
        print(f"mesax: {problem}", file=sys.stderr)
    return suites


def packages_of_suites() -> tuple[ModuleType, ...]:
    """The packages that suites of installed packages are from: their classes may be settings of a run."""
    return tuple(sys.modules[type(suite).__module__.partition(".")[0]] for suite in installed())


def admitted(points: Iterable[EntryPoint]) -> tuple[tuple[Suite, ...], list[str]]:
    """The suites behind entry points, and a line about each that cannot be used; names in use stay with their owner."""
    suites: list[Suite] = []
    problems: list[str] = []
    for point in points:
        try:
            suites.append(_loaded(point, [*BUILT_IN, *suites]))
        except Exception as error:  # whatever a foreign package does must not break the others
            reason = " ".join(str(error).split()) or type(error).__name__
            problems.append(f"the installed suite '{point.name}' ({point.value}) is left out: {reason}")
    return tuple(suites), problems


def _loaded(point: EntryPoint, known: list[Suite]) -> Suite:
    suite = point.load()
    if isinstance(suite, type) or not isinstance(suite, Suite):
        raise UsageError(f"it is {suite!r}, and a Suite (an object, not its class) was expected")
    taken = {suite.name for suite in known} | {name for suite in known for name in suite.environments}
    for name in (suite.name, *suite.environments):
        if name in taken:
            raise UsageError(f"the name '{name}' is taken")
    return suite
