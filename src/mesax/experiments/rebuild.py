"""An experiment from the configuration in run.json: what was run, however it was built and named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import ModuleType

from mesax import clone
from mesax.errors import DamageError, StoreError, UsageError
from mesax.experiments.overrides import digest, digest_of_plain
from mesax.experiments.provenance import git_commit, versions
from mesax.experiments.request import described, family_facts
from mesax.methods.base import Experiment
from mesax.store.json_values import flatten, json_ready
from mesax.store.modules import loaded_modules, named_in
from mesax.store.settings import FROM_RUNS, Named, UnknownName, foreign_modules, from_plain, settings_in, to_plain
from mesax.suites.foreign.families import tasks_are_seeds

PACKAGES = (
    *("algorithms", "baselines", "bridges.environments", "envs", "explorers", "mesa", "methods", "nets", "ours"),
    *("rewards", "training", "types"),
)
"""Parts of mesax that define settings."""
SHOWN_DIFFERENCES = 8


class ModuleNeeded(UsageError):
    """A configuration names classes or functions of modules that are not loaded."""

    def __init__(self, what: str, modules: Sequence[str]) -> None:
        super().__init__(what)
        self.modules = tuple(modules)


def experiment_of(run: Mapping[str, object], modules: Iterable[ModuleType] = ()) -> Experiment:
    """The experiment that a run.json describes, with classes and functions of mesax and of `modules`, and no others.

    What cannot be built, or would be another configuration than the one that was run, is refused in one line.
    """
    name = run.get("id", "this directory")
    kinds = dict(own_kinds())
    for module in modules:
        kinds |= named_in(module)
    if not isinstance(run.get("config"), dict) or "config_hash" not in run:
        raise UsageError(f"run.json of {name} describes no run of mesax (it has no config, or no config_hash)")
    if digest_of_plain(run["config"]) != run["config_hash"]:
        raise DamageError(
            f"run.json of {name} was changed after it was written: its config_hash {run['config_hash']}"
            f" does not belong to its config"
        )
    try:
        experiment = from_plain(run["config"], kinds, FROM_RUNS)
    except UnknownName as error:
        raise _unknown(run, error, kinds) from None
    except StoreError as error:
        raise UsageError(f"run {name} {_otherwise(run)}: {error}") from error
    if not isinstance(experiment, Experiment):
        raise UsageError(f"run.json of {name} describes no run of mesax: its config is no Experiment")
    if digest(experiment) != run["config_hash"]:
        raise UsageError(
            f"run {name} {_otherwise(run)}: the same configuration now reads otherwise:"
            f" {stored_difference(run, experiment)}"
        )
    return experiment


def check_tasks(run: Mapping[str, object], experiment: Experiment) -> None:
    """Refuse a run whose seeds were drawn otherwise: what it learned would be judged on other tasks."""
    family = experiment.family
    if not tasks_are_seeds(family) or "test_tasks" not in run:
        return
    if _targets(run["test_tasks"]) != _targets(json_ready(described(family, experiment.split.test))):
        raise UsageError(f"run {run.get('id')} {_otherwise(run)}: its test tasks are drawn otherwise now; run it anew")


def check_facts(run: Mapping[str, object], experiment: Experiment) -> None:
    """Refuse a run.json whose words on the result are not those that its configuration gives.

    What another version of mesax wrote it may word otherwise.
    """
    if not _is_of_this_version(run):
        return
    for name, fact in _facts(run, experiment).items():
        stored = json_ready(_stored(run, name))
        if stored != json_ready(fact):
            raise DamageError(
                f"run.json of {run.get('id')} was changed after it was written: its {name} is"
                f" {str(stored)[:60]}, but its configuration gives {str(fact)[:60]}"
            )


def _facts(run: Mapping[str, object], experiment: Experiment) -> dict[str, object]:
    """What follows from a configuration, and is in its run.json because results are read by it."""
    family, split = experiment.family, experiment.split
    facts = {f"family.{name}": value for name, value in family_facts(family, str(run.get("env"))).items()}
    facts |= {"seed": experiment.seed, "privileged": experiment.is_privileged or None}
    facts |= {"train_tasks": described(family, split.train), "test_tasks": described(family, split.test)}
    if isinstance(asked := run.get("request"), dict):
        method, learner = asked.get("method"), asked.get("learner")
        facts |= {"method": method if learner is None else f"{method}+{learner}"}
        facts |= {name: asked.get(name) for name in ("env", "preset")}
    return facts


def _stored(run: Mapping[str, object], name: str) -> object:
    part: object = run
    for entry in name.split("."):
        part = part.get(entry) if isinstance(part, Mapping) else None
    return part


def _targets(tasks: object) -> list[object]:
    """What makes each of these tasks the one it is: how they are called may be worded anew."""
    rows = tasks if isinstance(tasks, list) else []
    return [row.get("target") if isinstance(row, dict) else None for row in rows]


def check_found_again(experiment: Experiment) -> None:
    """Refuse an experiment that cannot be rebuilt from its run.json, as worker processes and `mesax resume` do."""
    if not foreign_modules(experiment):
        return
    described = {"config": to_plain(experiment), "config_hash": digest(experiment)}
    try:
        same = experiment_of(described, loaded_modules(experiment)) == experiment
        reason = "some setting is not the same when it is read again"
    except UsageError as error:
        same, reason = False, str(error)
    if not same:
        raise UsageError(
            f"this experiment cannot be rebuilt from its settings ({reason}): define its classes and functions at the"
            " top of a module or a script, not in a notebook or inside a function; only run_experiment with workers=1"
            " can do without"
        )


@cache
def own_kinds() -> Mapping[str, Named]:
    """The classes of all settings that mesax defines, by name."""
    in_a_clone = [clone.part("envs", "a proof game").__name__] if clone.is_here() else []
    return settings_in(*(f"mesax.{package}" for package in PACKAGES), *in_a_clone)


def stored_difference(run: Mapping[str, object], experiment: Experiment) -> str:
    """Settings of an experiment that differ from those of a run.json, as one line."""
    config = run.get("config")
    stored, asked = flatten(config if isinstance(config, dict) else {}), flatten(to_plain(experiment))
    paths = [path for path in {**stored, **asked} if stored.get(path, ...) != asked.get(path, ...)]
    texts = [f"{path} {_shown(stored, path)} there, {_shown(asked, path)} here" for path in paths]
    more = f"; {len(texts) - SHOWN_DIFFERENCES} more" if len(texts) > SHOWN_DIFFERENCES else ""
    return "; ".join(texts[:SHOWN_DIFFERENCES]) + more or "only the way it is written differs"


def _unknown(run: Mapping[str, object], error: UnknownName, kinds: Iterable[str]) -> UsageError:
    module, colon, _ = error.name.partition(":")
    run_name = f"run {run['id']}" if "id" in run else "it"
    what = f"'{error.name}'{f' ({error.place})' if error.place else ''}"
    if not colon:
        known = ", ".join(sorted(kinds))
        return UsageError(f"{run_name} has a setting of the unknown type {what}; known are {known}")
    loaded = {kind.partition(":")[0] for kind in kinds if ":" in kind}
    if module in loaded:
        return UsageError(f"{run_name} needs {what}, and module '{module}' does not define it at its top")
    listed = run.get("modules")
    needed = [str(entry) for entry in listed] if isinstance(listed, list) else []
    return ModuleNeeded(f"{run_name} needs {what}, which is not part of mesax", needed or [module])


def _shown(settings: Mapping[str, object], path: str) -> str:
    return str(settings[path])[:60] if path in settings else "absent"


def _otherwise(run: Mapping[str, object]) -> str:
    """Why a configuration may not be readable any more: another version of mesax, if that is known."""
    if _is_of_this_version(run):
        return "cannot be rebuilt from its settings"
    version, commit = _made_by(run)
    return f"was made with another version of mesax ({version}{f', commit {commit}' if commit else ''})"


def _is_of_this_version(run: Mapping[str, object]) -> bool:
    """Whether the mesax that is installed has written it, as far as is known."""
    return "versions" not in run or _made_by(run) == (versions()["mesax"], git_commit())


def _made_by(run: Mapping[str, object]) -> tuple[object, object]:
    stored = run.get("versions")
    return (stored.get("mesax") if isinstance(stored, dict) else None), run.get("git_commit")
