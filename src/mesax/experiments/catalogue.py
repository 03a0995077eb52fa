"""Every named run as a value: method x environment x preset -> Experiment.

`plain` and `uniform` share learner and schedule with `mesa` in the same preset, by construction; a world may give the
learner settings of its own for a learner that is alone (`Preset.alone`). What each preset
changes against the paper is printed by every run and explained in docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import cast

from mesax.algorithms.base import Learner
from mesax.errors import UsageError, unknown_name
from mesax.experiments.names import AROUND_ANY, LEARNERS, PRESETS, WRAPPERS, Wrapper, refuse_swapped
from mesax.methods.base import Experiment, Method
from mesax.methods.preset import NamedLearner, Preset
from mesax.store.modules import attribute_of, is_reference
from mesax.store.settings import name_of
from mesax.suites.registry import suite_of
from mesax.training.contract import check_members
from mesax.training.schedule import Budget, Schedule

OWN = Wrapper("a method of one's own", "", "")
"""Around a learner like any other; what it is called and does is said by its class."""


def experiment(method: str, environment: str, preset: str, learner: str | None = None) -> Experiment:
    """The named experiment, or a `UsageError` that lists the choices; `learner` replaces what the preset wraps.

    A method, a learner or an environment of one's own is named as `module:attribute`, and that module loaded.
    """
    refuse_swapped(method, environment)
    suite = suite_of(environment)
    if preset not in PRESETS:
        raise unknown_name("unknown preset", preset, PRESETS)
    chosen = suite.preset(environment, preset)
    wrapper = OWN if is_reference(method) else WRAPPERS.get(method)
    if wrapper is not None:
        if learner is not None and wrapper.brings_learner:
            raise UsageError(f"method '{method}' brings its own learner: --learner goes with {', '.join(AROUND_ANY)}")
        own = _own_method(method) if wrapper is OWN else None
        around = _around(environment, chosen, method, wrapper, learner)
        return builder(method)(around) if own is None else replace(around.mesa, method=own)
    if method not in chosen.by_name:
        raise _unknown("method", method, environment, [*WRAPPERS, *chosen.by_name])
    if learner is not None:
        raise UsageError(f"method '{method}' is a learner itself: --learner goes with {', '.join(AROUND_ANY)}")
    return builder("plain")(chosen.around(chosen.by_name[method]))


def paid_here(chosen: Experiment, environment: str, preset: str) -> Experiment:
    """An experiment whose reward model has the settings of its world, if there are some."""
    return replace(chosen, reward_model=suite_of(environment).preset(environment, preset).paying(chosen.reward_model))


def builder(method: str) -> Callable[[Preset], Experiment]:
    """What makes an experiment of a method around a learner; it is imported from this package only."""
    module, _, function = WRAPPERS[method].build.partition(":")
    build: Callable[[Preset], Experiment] = vars(import_module(module))[function]
    return build


def method_name(experiment: Experiment) -> str:
    """The name of an experiment's method, whatever learner is in it; one that is not ours goes by that of its class."""
    kind, told = type(experiment.method), experiment.is_privileged
    ours = {(wrapper.kind, wrapper.tells): name for name, wrapper in reversed(WRAPPERS.items())}
    names = (ours.get((name_of(base), told)) for base in kind.__mro__) if name_of(kind) == kind.__name__ else ()
    return next((name for name in names if name is not None), kind.__name__)


def _own_method(reference: str) -> Method:
    """A method of the user's own, named as `module:attribute`: its class, or one with settings."""
    found = attribute_of(reference)
    found = _made(reference, found, "a method") if isinstance(found, type) else found
    if not isinstance(found, Method):
        raise UsageError(
            f"'{reference}' is no method; if it is a learner, run it alone: plain with --learner {reference}"
        )
    return found


def _around(environment: str, preset: Preset, method: str, wrapper: Wrapper, learner: str | None) -> Preset:
    """The preset around a learner: if others' episodes are mixed in, one that learns from these too."""
    name = wrapper.learner if learner is None else learner
    if name is None:
        return preset
    fitting = [name for name, entry in preset.by_name.items() if _fits(wrapper, entry)]
    if is_reference(name):
        chosen = _own(name)
    elif name in preset.by_name:
        chosen = preset.by_name[name]
    else:
        raise _unknown("learner", name, environment, fitting)
    if not _fits(wrapper, chosen):
        raise UsageError(
            f"learner '{name}' learns on-policy, from its own episodes only, and cannot be wrapped by '{method}';"
            f" choose one of {', '.join(fitting)}, or run it alone: plain with --learner {name}"
        )
    return preset.around(chosen)


def _fits(wrapper: Wrapper, learner: NamedLearner) -> bool:
    return wrapper.takes_on_policy or learner.algorithm.needs_replay


def _own(reference: str) -> NamedLearner:
    """A learner of the user's own, named as `module:attribute`: its class, one with settings, or a `NamedLearner`."""
    found = attribute_of(reference)
    if isinstance(found, type):
        found = _made(reference, found, "a learner")
    named = found if isinstance(found, NamedLearner) else NamedLearner(cast(Learner, found))
    try:
        check_members(named.algorithm)
    except UsageError as error:
        raise UsageError(f"'{reference}' cannot be a learner: {error}") from error
    _check_schedule(reference, named)
    return named


def _made(reference: str, kind: type, word: str) -> object:
    """What is made of a user's class with the settings that are its defaults; what breaks there is one line."""
    try:
        return kind()
    except UsageError:
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"'{reference}' cannot be {word} as it stands: {text}") from error


def _check_schedule(reference: str, named: NamedLearner) -> None:
    """Refuse a learner that brings a schedule of the other kind."""
    schedule, replays = named.schedule, named.algorithm.needs_replay
    if schedule is None or (isinstance(schedule, Budget) and isinstance(schedule, Schedule) == replays):
        return
    learns, needed = ("from replay", "a mesax.Schedule") if replays else ("on-policy", "a mesax.Budget")
    raise UsageError(
        f"'{reference}' learns {learns}, and its schedule is a {type(schedule).__name__}: give it {needed}, or none"
    )


def _unknown(word: str, name: str, environment: str, choices: list[str]) -> UsageError:
    """One line about a name that exists nowhere, or only in other worlds."""
    what = f"{environment} has no {word}" if name in LEARNERS else f"unknown {word}"
    own = ", or name one of your own as MODULE:CLASS" if word == "learner" else ""
    return unknown_name(what, name, choices, own)
