"""Every named run as a value: method x environment x preset -> Experiment.

`plain` and `uniform` share learner and schedule with `mesa` in the same preset, by construction; a world may give the
learner settings of its own for where nobody shows it anything (`Preset.alone`). What each preset
changes against the paper is printed by every run and explained in docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from mesax.algorithms.base import Learner
from mesax.errors import UsageError
from mesax.experiments.names import AROUND_ANY, LEARNERS, PRESETS, WRAPPERS
from mesax.methods.base import Experiment
from mesax.methods.preset import NamedLearner, Preset
from mesax.store.modules import attribute_of, is_reference
from mesax.suites.registry import suite_of
from mesax.training.contract import check_members


def experiment(method: str, environment: str, preset: str, learner: str | None = None) -> Experiment:
    """The named experiment, or a `UsageError` that lists the choices; `learner` replaces what the preset wraps.

    A learner or an environment of one's own is named as `module:attribute`, and that module loaded.
    """
    suite = suite_of(environment)
    if preset not in PRESETS:
        raise UsageError(f"unknown preset '{preset}'; choose one of {', '.join(PRESETS)}")
    chosen = suite.preset(environment, preset)
    if method in WRAPPERS:
        if learner is not None and method not in AROUND_ANY:
            raise UsageError(f"method '{method}' brings its own learner: --learner goes with {', '.join(AROUND_ANY)}")
        return builder(method)(_around(environment, chosen, method, learner))
    if method not in chosen.learners:
        raise _unknown("method", method, environment, [*WRAPPERS, *chosen.learners])
    if learner is not None:
        raise UsageError(f"method '{method}' is a learner itself: --learner goes with {', '.join(AROUND_ANY)}")
    return builder("plain")(chosen.around(chosen.learners[method]))


def builder(method: str) -> Callable[[Preset], Experiment]:
    """What makes an experiment of a method around a learner; it is imported from this package only."""
    module, _, function = WRAPPERS[method].build.partition(":")
    build: Callable[[Preset], Experiment] = vars(import_module(module))[function]
    return build


def method_name(experiment: Experiment) -> str:
    """The name of an experiment's method, whatever learner is in it; one that is not ours goes by that of its class."""
    kind = type(experiment.method)
    ours = {(wrapper.build.partition(":")[0], wrapper.kind, wrapper.tells): name for name, wrapper in WRAPPERS.items()}
    return ours.get((kind.__module__, kind.__name__, experiment.is_privileged), kind.__name__)


def _around(environment: str, preset: Preset, method: str, learner: str | None) -> Preset:
    """The preset around a learner: if others' episodes are mixed in, one that learns from these too."""
    usual = WRAPPERS[method].learner
    name = usual if learner is None else learner
    if name is None:
        return preset
    fitting = [name for name, entry in preset.learners.items() if usual or entry.algorithm.needs_replay]
    if is_reference(name):
        chosen = _own(name)
    elif name in preset.learners:
        chosen = preset.learners[name]
    else:
        raise _unknown("learner", name, environment, fitting)
    if not usual and not chosen.algorithm.needs_replay:
        raise UsageError(
            f"learner '{name}' learns on-policy, from its own episodes only, and cannot be wrapped;"
            f" choose one of {', '.join(fitting)}, or run it alone as a method"
        )
    return preset.around(chosen)


def _own(reference: str) -> NamedLearner:
    """A learner of the user's own, named as `module:attribute`: its class, one with settings, or a `NamedLearner`."""
    found = attribute_of(reference)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise UsageError(f"'{reference}' cannot be a learner as it stands: {error}") from error
    if isinstance(found, NamedLearner):
        return found
    check_members(found)
    assert isinstance(found, Learner)
    return NamedLearner(found)


def _unknown(word: str, name: str, environment: str, choices: list[str]) -> UsageError:
    """One line about a name that exists nowhere, or only in other worlds."""
    what = f"{environment} has no {word} '{name}'" if name in LEARNERS else f"unknown {word} '{name}'"
    own = ", or name one of your own as MODULE:CLASS" if word == "learner" else ""
    return UsageError(f"{what}; choose one of {', '.join(choices)}{own}")
