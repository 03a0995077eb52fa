"""What is shipped is whole: wheel, source archive, the recipe for a container, and what the metadata promise."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesax.experiments.rebuild import own_kinds

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
sys.path.insert(0, str(ROOT / "tools"))

import check_dist  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("dist")
    yield tuple(  # type: ignore[misc]
        Path(next(builder(str(ROOT)).build(directory=str(folder), versions=["standard"])))
        for builder in (WheelBuilder, SdistBuilder)
    )


def test_wheel_and_source_archive_hold_all_they_should(built):
    wheel, archive = built
    assert [*check_dist.wheel_problems(wheel), *check_dist.archive_problems(archive)] == []


def test_a_file_that_was_left_out_is_named(built, tmp_path):
    """Against a tree with a data file more than what was packed."""
    wheel, _ = built
    shutil.copytree(ROOT / "src" / "mesax", tmp_path / "src" / "mesax", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src" / "mesax" / "results" / "page" / "more.css").touch()
    (tmp_path / "src" / "mesax" / "py.typed").unlink()
    lacks, has = check_dist.wheel_problems(wheel, tmp_path)
    assert lacks.endswith("lacks mesax/results/page/more.css")
    assert "has mesax/py.typed" in has


def test_extras_that_are_promised():
    assert {"cuda12", "cuda13", "tensorboard", "wandb", "mujoco", "envs"} <= set(EXTRAS)


def test_pythons_that_were_tested_are_those_that_are_named():
    """Classifiers, the page about installing and the least version agree."""
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert named == re.findall(r"^\| (3\.\d+) \|", page, re.MULTILINE)
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert tuple(map(int, named[0].split("."))) == check_dist.LEAST


WITHOUT_EXTRAS = """
import importlib, json, pkgutil, sys
sys.modules |= dict.fromkeys(json.loads(sys.argv[1]))
import mesax
from mesax.errors import MissingLibrary
from mesax.experiments.rebuild import own_kinds
missing = []
for name in (entry.name for entry in pkgutil.walk_packages(mesax.__path__, "mesax.")):
    try:
        name.endswith("__main__") or importlib.import_module(name)
    except MissingLibrary as error:
        missing.append((name, str(error)))
print(json.dumps([sorted(own_kinds()), missing]))
"""


def test_all_but_one_module_need_no_extra():
    """A run with worker processes, and every verb that rebuilds one, looks through the modules that define settings."""
    names = {re.split(r"[>=\[]", needed)[0] for group in EXTRAS.values() for needed in group} - {"jax"}
    blocked = json.dumps(sorted(name.replace("-", "_") for name in names))
    command = [sys.executable, "-c", WITHOUT_EXTRAS, blocked]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    kinds, missing = json.loads(told)
    assert kinds == sorted(own_kinds())
    ((module, line),) = missing
    assert module == "mesax.bridges.environments.pettingzoo_export" and "pip install 'mesax[envs]'" in line


@pytest.mark.parametrize("wish", ["9.99", "/nowhere/python"])
def test_a_python_that_is_not_there_is_told_in_one_line(wish, tmp_path):
    (python,) = check_dist.chosen([wish])
    with pytest.raises(RuntimeError, match=re.escape(python)):
        check_dist.trial(python, tmp_path / "mesax.whl", tmp_path)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, those over several lines as one."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_container_copies_what_is_there_and_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    assert copied
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists() and f"!{name}" in ignored, name


def test_container_has_everything_that_the_build_reads():
    """Files that pyproject.toml names must be copied before the wheel is built."""
    copied = {name for word, rest in instructions() if word == "COPY" for name in rest.split()[:-1]}
    assert {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "src"} <= copied


def test_container_runs_what_is_installed():
    told = instructions()
    defaults = dict(rest.split("=") for word, rest in told if word == "ARG" and "=" in rest)
    assert set(defaults["EXTRAS"].split(",")) <= set(EXTRAS)
    assert f"Programming Language :: Python :: {defaults['PYTHON']}" in PROJECT["classifiers"]
    assert ("ENTRYPOINT", '["mesax"]') in told and "mesax" in PROJECT["scripts"]
    assert ("USER", "mesax") in told
