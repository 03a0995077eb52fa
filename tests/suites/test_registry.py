"""Suites are found by the names of their environments; a broken package harms nobody, and no file names an import."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from mesax.errors import UsageError
from mesax.experiments.names import ENVIRONMENTS
from mesax.suites import registry
from mesax.suites.base import Suite
from mesax.suites.climb.suite import ClimbSuite
from mesax.suites.registry import BUILT_IN, GROUP, admitted, environments, suite_of, suite_of_run


class Islands(ClimbSuite):
    name = "islands"
    environments = {"island-one": "a climb game by another name"}  # noqa: RUF012


ISLANDS = Islands("islands")
TAKEN = ClimbSuite("other")
NOTHING = 7


def point(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{attribute}", GROUP)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules["suites.test_registry"])


@pytest.fixture
def install(monkeypatch):
    """Pretend that packages with these entry points are installed."""

    def pretend(*points: EntryPoint) -> None:
        registry.installed.cache_clear()
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == GROUP else ())

    yield pretend
    registry.installed.cache_clear()


def test_every_built_in_suite_keeps_the_contract():
    for suite in BUILT_IN:
        assert isinstance(suite, Suite)
        for environment in suite.environments:
            assert suite_of(environment) is suite
    assert list(ENVIRONMENTS) == [name for suite in BUILT_IN for name in suite.environments]


def test_an_unknown_environment_is_one_line_with_all_names():
    with pytest.raises(
        UsageError, match=r"unknown environment 'moon'; choose one of climb-one, .*swimmer-wide, .*or name"
    ):
        suite_of("moon")


def test_an_installed_package_adds_a_suite(install):
    install(point("islands", "ISLANDS"))
    assert suite_of("island-one") is ISLANDS and "island-one" in environments()
    assert suite_of_run({"env": "island-one"}) is ISLANDS


def test_built_in_names_need_no_installed_package(install):
    install(EntryPoint("bomb", "no_such_module_at_all:suite", GROUP))
    assert suite_of("climb-one").name == "climb"
    assert registry.installed.cache_info().currsize == 0, "nobody has been asked"


def test_a_broken_package_is_one_line_and_the_others_serve(install, capsys):
    install(
        EntryPoint("missing", "no_such_module_at_all:suite", GROUP),
        point("nothing", "NOTHING"),
        point("class", "Islands"),
        point("taken", "TAKEN"),
        point("islands", "ISLANDS"),
        point("twice", "ISLANDS"),
    )
    assert suite_of("island-one") is ISLANDS
    assert suite_of("island-one") is ISLANDS
    lines = capsys.readouterr().err.splitlines()
    for line, (name, reason) in zip(
        lines,
        (
            ("missing", "No module named 'no_such_module_at_all'"),
            ("nothing", "it is 7, and a Suite"),
            ("class", "an object, not its class"),
            ("taken", "the name 'climb-one' is taken"),
            ("twice", "the name 'islands' is taken"),
        ),
        strict=True,
    ):
        assert line.startswith(f"mesax: the installed suite '{name}' ") and reason in line


def test_a_suite_that_fails_in_its_own_way_is_left_out():
    class Exploding(EntryPoint):
        def load(self):
            raise RuntimeError("two\nlines")

    suites, (problem,) = admitted([Exploding("bad", "a:b", GROUP)])
    assert suites == () and problem == "the installed suite 'bad' (a:b) is left out: two lines"


def test_stored_runs_name_their_suite_or_only_their_environment():
    assert suite_of_run({"suite": "swimmer", "env": "climb-one"}).name == "swimmer"
    assert suite_of_run({"env": "wide-2a5l"}).name == "particles"
    for unknown in ({"env": "own"}, {}, {"suite": None, "env": "climb-one"}, {"suite": "os:system"}, {"env": ["x"]}):
        assert suite_of_run(unknown) is None


def test_a_file_cannot_name_an_import():
    code = (
        "import sys; from mesax.suites.registry import suite_of_run;"
        "print(suite_of_run({'suite': 'this', 'env': 'this:s'}), 'this' in sys.modules, 'jax' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["None", "False", "False"]


def test_figures_need_no_jax():
    code = (
        "import sys; from mesax.suites.registry import OF_THE_PAPER;"
        "print(*(len(suite.figures()) for suite in OF_THE_PAPER), 'jax' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["2", "1", "2", "False"]
