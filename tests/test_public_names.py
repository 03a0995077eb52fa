"""`import mesax` offers what users need, by name, and loads nothing heavy for it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mesax

SOURCE = Path(mesax.__file__)


@pytest.mark.parametrize("name", mesax.__all__)
def test_every_name_is_there(name: str):
    value = getattr(mesax, name)
    assert value is getattr(mesax, name)
    if name != "__version__":
        assert value.__name__ == name and value.__doc__


def test_type_checkers_are_told_the_same():
    told = {
        (node.module, alias.asname)
        for node in ast.walk(ast.parse(SOURCE.with_suffix(".pyi").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mesax.")
        for alias in node.names
    }
    assert told == {(module, name) for name, module in mesax._HOMES.items()}


def test_tutorials_need_nothing_else():
    """What a page for beginners imports is offered by name, and stays when internal parts move."""
    pages = sorted((SOURCE.parents[2] / "docs").glob("tutorial-*.md"))
    assert len(pages) >= 2
    for page in pages:
        assert "from mesax." not in page.read_text(encoding="utf-8"), page


@pytest.mark.parametrize(
    "names",
    [
        ("HostEnvironment", "HostBatch", "HostStep"),
        ("Emc", "Curiosity", "Falling", "BestReturns"),
        ("Schedule", "Prioritized"),
        ("LinearSteps", "LinearOwnSteps", "Elapsed"),
        ("Tour", "TourPlan"),
        ("Filled",),
        ("Pretrain", "Pretraining", "CBet", "CountReward", "ProjectedKeys", "Guided"),
    ],
)
def test_what_belongs_together_is_offered_together(names: tuple[str, ...]):
    """A setting is of little use without those that it is made of."""
    assert set(names) <= set(mesax.__all__)


def test_names_are_listed_once_and_shown():
    assert len(set(mesax.__all__)) == len(mesax.__all__)
    assert set(mesax.__all__) <= set(dir(mesax))
    with pytest.raises(AttributeError, match="'mesax' has no attribute 'Sarsa'"):
        _ = mesax.Sarsa


def test_importing_the_package_loads_no_jax():
    code = "import sys, mesax; dir(mesax); mesax.UsageError; print(*{'jax', 'equinox', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_star_gives_all_of_them():
    names: dict[str, object] = {}
    exec("from mesax import *", names)
    assert set(mesax.__all__) <= names.keys()
