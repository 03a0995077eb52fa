"""Every experiment survives its run.json, and nothing that a file names is imported."""

import json
import re
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import ModuleType

import equinox as eqx
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

from mesax.algorithms.actor_updates import ActorProblem, GumbelGradient, Memoryless
from mesax.algorithms.base import Learner
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mixers import MixerBase, MixerStep
from mesax.algorithms.value_decomposition import ValueDecomposition
from mesax.baselines.maven import CodedValues, Maven
from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import ForeignEnvironment
from mesax.errors import DamageError, StoreError, UsageError
from mesax.experiments.catalogue import experiment
from mesax.experiments.names import AROUND_ANY, ENVIRONMENTS, METHODS, PRESETS
from mesax.experiments.overrides import apply_all, digest, digest_of_plain
from mesax.experiments.provenance import git_commit, versions
from mesax.experiments.rebuild import ModuleNeeded, check_found_again, check_tasks, experiment_of, own_kinds
from mesax.experiments.request import described as described_tasks
from mesax.methods.base import Experiment
from mesax.store import settings
from mesax.store.json_values import json_ready
from mesax.store.modules import attribute_of, how_to_load, load_module, load_modules, named_in
from mesax.store.settings import FROM_STRANGERS, from_plain, name_of, settings_in, to_plain
from mesax.suites.registry import suite_of
from mesax.types import ActionSpace, EnvSpec, Key

HERE = sys.modules[__name__]


def described(entry: Experiment) -> dict:
    """What run.json has of an experiment, as it comes back from a file."""
    return resealed(json.loads(json.dumps({"id": "x", "config": to_plain(entry)})))


def resealed(run: dict) -> dict:
    """With the hash of its configuration: as another version, or a careful stranger, would have left it."""
    return run | {"config_hash": digest_of_plain(run["config"])}


@pytest.mark.parametrize("method", METHODS)
def test_every_cell_survives_its_configuration(method: str):
    """As it is, and around learners of another kind: over all environments every method has every learner."""
    for env, preset in product(ENVIRONMENTS, PRESETS):
        for learner in (None, *(wrapped_in(method, env, preset) if method in AROUND_ANY else ())):
            entry = experiment(method, env, preset, learner)
            run = described(entry)
            rebuilt = experiment_of(run)
            assert rebuilt == entry and digest(rebuilt) == run["config_hash"], (env, preset, learner)


def wrapped_in(method: str, env: str, preset: str) -> list[str]:
    """One in so many as there are such methods, other ones in the next environment."""
    known = suite_of(env).preset(env, preset).by_name
    names = [name for name, learner in known.items() if learner.algorithm.needs_replay]
    turn = AROUND_ANY.index(method) + list(ENVIRONMENTS).index(env)
    return [name for place, name in enumerate(names) if (place - turn) % len(AROUND_ANY) == 0]


def test_large_budgets_and_infinite_numbers_survive():
    entry = experiment("mesa", "wide-2a3l", "quick")
    entry = apply_all(entry, [("schedule.total-steps", str(2**31 - 1)), ("seed", str(2**32 - 1))])
    assert experiment_of(described(entry)) == entry
    plain = described(entry)["config"]
    plain["schedule"]["total_steps"] = 10**12
    with pytest.raises(StoreError, match="digits, more than"):
        from_plain(plain, own_kinds(), FROM_STRANGERS)


def test_names_of_settings_are_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A bare name in a file must mean one class."""
    (tmp_path / "twins").mkdir()
    for module, name in (("one", "Setting"), ("other", "Setting")):
        text = f"from dataclasses import dataclass\n@dataclass(frozen=True)\nclass {name}:\n    x: int = 0\n"
        (tmp_path / "twins" / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(settings, "HOMES", {"twins"})  # whose classes are called by their names alone
    with pytest.raises(TypeError, match=r"two settings are called Setting: in twins\.one and twins\.other"):
        settings_in("twins")


def test_settings_of_our_own_are_known():
    assert {"Experiment", "Mesa", "Maddpg", "ForeignEnvironment", "Schedule"} <= own_kinds().keys()
    assert not [name for name in own_kinds() if name.startswith("_")]


@dataclass(frozen=True)
class OwnLearner(Maddpg):
    """A learner of somebody else's."""

    extra: float = 1.0


def make(seed: int):
    raise AssertionError(f"nobody asked for task {seed}")


def own() -> Experiment:
    entry = experiment("plain", "climb-one", "smoke")
    family = ForeignFamily(ForeignEnvironment(make, 5), 5.0)
    return replace(entry, algorithm=OwnLearner(extra=2.5), family=family)


def test_classes_and_functions_of_a_user_need_their_module():
    entry = own()
    run = described(entry)
    assert run["config"]["algorithm"]["type"] == f"{__name__}:OwnLearner"
    assert run["config"]["family"]["env"]["make"] == f"{__name__}:make"
    assert experiment_of(run, [HERE]) == entry
    with pytest.raises(ModuleNeeded, match="not part of mesax") as refused:
        experiment_of(run)
    assert refused.value.modules == (__name__,)
    assert how_to_load(entry) == (__name__,)
    check_found_again(entry)


@dataclass(frozen=True)
class OwnActorUpdate(Memoryless):
    """An actor update of somebody else's."""

    weight: float = 1.0

    def check(self, action_space: ActionSpace) -> None:
        """Serves every action space."""

    def loss(self, problem: ActorProblem, key: Key) -> Float[Array, "batch time"]:
        """As the paper's, but weighted."""
        return self.weight * GumbelGradient().loss(problem, key)


class Weighted(MixerBase):
    """The mixer of those settings."""

    weight: float = eqx.field(static=True)

    def __call__(self, step: MixerStep) -> Float[Array, " 1"]:
        """Qtot."""
        return self.weight * jnp.sum(step.q, keepdims=True)


@dataclass(frozen=True)
class OwnMixer:
    """A mixer of somebody else's."""

    weight: float = 1.0

    def build(self, spec: EnvSpec, key: Key, latent_size: int = 0) -> Weighted:
        """Nothing to be learned."""
        return Weighted(self.weight)


@pytest.mark.parametrize(
    "algorithm",
    [
        Maddpg(actor_update=OwnActorUpdate(0.5)),
        ValueDecomposition(mixer=OwnMixer(0.5)),
        Maven(CodedValues(mixer=OwnMixer(0.5))),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_parts_of_learners_may_be_of_a_user(algorithm: Learner):
    """They check what a learner of one's own is checked for, and are found again by whoever offers their module."""
    entry = replace(experiment("plain", "climb-one", "smoke"), algorithm=algorithm)
    entry.check()
    run = described(entry)
    assert experiment_of(run, [HERE]) == entry and digest(experiment_of(run, [HERE])) == run["config_hash"]
    with pytest.raises(ModuleNeeded):
        experiment_of(run)
    assert how_to_load(entry) == (__name__,)


def test_a_module_gives_only_what_it_defines():
    """Else a file could name whatever a module of the user's happens to import."""
    known = named_in(HERE)
    assert known[f"{__name__}:make"] is make
    assert not [name for name in known if not name.startswith(__name__)]
    run = described(own())
    run["config"]["family"]["env"]["make"] = "os:system"
    with pytest.raises(ModuleNeeded, match="os:system"):
        experiment_of(resealed(run), [HERE])


def test_nothing_named_in_a_file_is_imported(tmp_path, monkeypatch):
    (tmp_path / "thief.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = described(own())
    run["config"]["algorithm"]["type"] = "thief:Learner"
    with pytest.raises(ModuleNeeded, match="thief:Learner"):
        experiment_of(resealed(run), [HERE])
    assert "thief" not in sys.modules


def test_what_cannot_be_found_again_is_refused():
    @dataclass(frozen=True)
    class Inside(Maddpg):
        """Nobody can import this."""

    with pytest.raises(UsageError, match=r"Inside.*inside a function; only run_experiment"):
        check_found_again(replace(own(), algorithm=Inside()))
    with pytest.raises(UsageError, match="cannot be rebuilt from its settings"):
        check_found_again(replace(own(), family=ForeignFamily(ForeignEnvironment(lambda seed: None, 5), 5.0)))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda run: run.update(config=to_plain(Maddpg())), "no Experiment"),
        (lambda run: run["config"].pop("lanes"), "lanes absent there, 5 here"),
        (lambda run: run["config"].update(lanes=None), "Experiment.lanes cannot be NoneType"),
        (lambda run: run["config"].update(colour=1), "Experiment has no setting 'colour'"),
        (lambda run: run["config"]["algorithm"].update(type="Thief"), "unknown type 'Thief'"),
        (
            lambda run: run["config"]["algorithm"].update(type=f"{__name__}:Gone"),
            r"Gone' \(algorithm\), and module .* does not define it at its top",
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_one_line(change, message: str):
    run = described(replace(own(), lanes=2))
    change(run)
    with pytest.raises(UsageError, match=message) as refused:
        experiment_of(resealed(run), [HERE])
    assert "\n" not in str(refused.value)


def test_a_run_whose_tasks_were_drawn_otherwise_is_refused_where_these_are_needed():
    entry = own()
    run = described(entry) | {"test_tasks": json_ready(described_tasks(entry.family, entry.split.test))}
    check_tasks(run, entry)
    run["test_tasks"][0]["label"] = "as another version called it"
    check_tasks(run, entry)
    run["test_tasks"][0]["target"] = [[1]]
    with pytest.raises(UsageError, match=r"run x cannot be rebuilt .*: its test tasks are drawn otherwise now"):
        check_tasks(run, entry)
    assert experiment_of(run, [HERE]) == entry, "its policies can be loaded"


def test_the_version_is_blamed_only_if_it_is_another():
    run = described(own())
    run["config"].update(lanes=None)
    run = resealed(run) | {"versions": versions(), "git_commit": git_commit()}
    with pytest.raises(UsageError, match=r"run x cannot be rebuilt from its settings: Experiment\.lanes cannot be"):
        experiment_of(run, [HERE])
    for change in ({"versions": versions() | {"mesax": "0.0.1"}}, {"git_commit": "0123456789ab"}):
        with pytest.raises(UsageError, match=r"was made with another version of mesax \(0\..*: Experiment\.lanes"):
            experiment_of(run | change, [HERE])


@pytest.mark.parametrize("name", ["config", "config_hash"])
def test_a_file_without_a_configuration_describes_no_run(name: str):
    run = described(own())
    del run[name]
    with pytest.raises(UsageError, match=r"run\.json of x describes no run"):
        experiment_of(run, [HERE])


@pytest.mark.parametrize("change", [{"config_hash": "0" * 12}, {"config": to_plain(replace(own(), seed=3))}])
def test_a_hash_that_does_not_belong_to_its_configuration_is_damage(change: dict):
    with pytest.raises(DamageError, match=r"run\.json of x was changed after it was written"):
        experiment_of(described(own()) | change, [HERE])


def test_scripts_are_loaded_under_their_own_name(tmp_path):
    script = tmp_path / "a_script_of_mine.py"
    script.write_text("def make(seed): return seed\nif __name__ == '__main__': raise SystemExit(3)\n")
    try:
        (module,) = load_modules([str(script)])
        assert load_modules([str(script)]) == (module,)
        assert isinstance(module, ModuleType) and named_in(module).keys() == {"a_script_of_mine:make"}
        assert name_of(module.make) == "a_script_of_mine:make"
    finally:
        sys.modules.pop("a_script_of_mine", None)
        sys.path.remove(str(tmp_path))


def test_a_script_that_is_called_like_a_module_is_refused(tmp_path):
    (tmp_path / "random.py").write_text("")
    with pytest.raises(UsageError, match="is called like the module 'random', which is loaded: rename it"):
        load_module(str(tmp_path / "random.py"))
    with pytest.raises(UsageError, match="there is no script"):
        load_module(str(tmp_path / "no_such_script.py"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("raise SystemExit('bye')", "module 'broken_one' cannot be imported: SystemExit: bye"),
        ("1 / 0", "module 'broken_one' cannot be imported: ZeroDivisionError: division by zero"),
        ("import gymnasium", r"broken_one.*gymnasium.* \(pip install 'mesax\[envs\]'\)$"),
        ("def make(:", "module 'broken_one' cannot be imported: SyntaxError"),
    ],
)
def test_modules_that_break_are_one_line(tmp_path, monkeypatch, text: str, message: str):
    (tmp_path / "broken_one.py").write_text(text)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UsageError, match=message):
        load_module("broken_one")


def test_attributes_are_found_or_named():
    assert attribute_of("collections:OrderedDict.fromkeys")
    with pytest.raises(UsageError, match=r"module 'this.one' cannot be imported: ModuleNotFoundError"):
        attribute_of("this.one:make")
    with pytest.raises(UsageError, match=r"module 'json' has no 'make'; it has .*dump"):
        attribute_of("json:make")
    with pytest.raises(UsageError, match="is a file: name the module, mine:make"):
        attribute_of("mine.py:make")
    for name, proper in {"./corridor": "corridor", "maps/corridor": "maps.corridor", ".corridor": "corridor"}.items():
        with pytest.raises(UsageError, match=f"^'{re.escape(name)}' is a path: name the module, {proper}$"):
            load_module(name)
