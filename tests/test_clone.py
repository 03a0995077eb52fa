"""What only a clone has: its verbs and games are there as if they were part of mesax; elsewhere one line says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mesax import clone
from mesax.cli.parser import main
from mesax.errors import USAGE
from mesax.experiments.names import ENVIRONMENTS
from mesax.experiments.rebuild import own_kinds
from mesax.store.settings import name_of
from paper.envs.half_circle import HalfCircleFamily

ROOT = Path(__file__).resolve().parent.parent


def test_settings_of_a_clone_go_by_their_names_alone():
    assert clone.is_here() and own_kinds()["HalfCircleFamily"] is HalfCircleFamily
    assert name_of(HalfCircleFamily) == "HalfCircleFamily" and "half-circle" in ENVIRONMENTS


@pytest.mark.parametrize("words", [("theory",), ("reproduce", "table-2", "--plan"), ("verify", str(ROOT / "results"))])
def test_elsewhere_a_line_says_what_is_missing(words, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(clone, "PLACE", tmp_path / "paper" / "__init__.py")
    assert main(list(words)) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert words[0] in line and "pip install -e . in a clone" in line


def outside(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command with a package that lies as the wheel's does, in a directory of the user's."""
    shutil.copytree(ROOT / "src" / "mesax", folder / "lib" / "mesax", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(folder / "lib")}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_neither_verbs_nor_games_of_a_clone(tmp_path):
    (tmp_path / "paper.py").write_text("MINE = 1\n", encoding="utf-8")
    code = "import paper; from mesax.experiments.names import ENVIRONMENTS; from mesax.store.settings import HOMES"
    found = outside(tmp_path, "-c", f"{code}; print(paper.MINE, 'half-circle' in ENVIRONMENTS, *HOMES)")
    assert found.stdout.split() == ["1", "False", "mesax"], found.stderr


def test_a_module_of_the_same_name_is_told_apart(tmp_path):
    (tmp_path / "paper.py").write_text("raise RuntimeError('not meant')\n", encoding="utf-8")
    code = "from mesax import clone; print(clone.part('theory.study', 'it').__file__)"
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == str(ROOT / "paper" / "theory" / "study.py"), found.stderr
    mine = f"import sys; sys.modules['paper'] = sys; {code}"
    refused = subprocess.run(
        [sys.executable, "-c", mine], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "another module is called paper" in refused.stderr.splitlines()[-1]
