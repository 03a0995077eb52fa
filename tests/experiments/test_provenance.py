"""Which commit a result is said to be of."""

import subprocess
from pathlib import Path

import pytest

from mesax.experiments.provenance import commit_of

NOBODY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a tree with one commit."""
    found = tmp_path / "src" / "package"
    found.mkdir(parents=True)
    (found / "code.py").write_text("1\n")
    for words in (["init", "--quiet"], ["add", "."], [*NOBODY, "commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return found


def test_only_the_package_itself_makes_it_dirty(package: Path):
    clean = commit_of(package)
    assert clean is not None and len(clean) == 12 and int(clean, 16) >= 0
    (package.parents[1] / "results.json").write_text("{}")
    assert commit_of(package) == clean
    (package / "more.py").write_text("2\n")
    assert commit_of(package) == f"{clean}-dirty"
    (package / "more.py").unlink()
    (package / "code.py").write_text("3\n")
    assert commit_of(package) == f"{clean}-dirty"


def test_what_is_installed_below_another_tree_is_of_no_commit(package: Path):
    installed = package.parents[1] / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("1\n")
    assert commit_of(installed) is None
    assert commit_of(package.parents[2]) is None, "no tree at all"


def test_a_tree_without_a_commit(tmp_path: Path):
    (tmp_path / "code.py").write_text("1\n")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert commit_of(tmp_path) is None
