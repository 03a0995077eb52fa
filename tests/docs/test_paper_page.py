"""docs/paper.md names files, classes and functions: every one of them is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "src" / "mesax", ROOT, ROOT / "tests", ROOT / "tests" / "algorithms")
QUOTED = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "paper.md").read_text(encoding="utf-8"))
FILES = sorted({text for text in QUOTED if re.fullmatch(r"[\w/-]+\.py(: [\w., ]+)?", text)})
NAMES = sorted({text for text in QUOTED if re.fullmatch(r"[A-Z][A-Za-z]+(\.\w+)?", text)})


def file_at(path: str) -> Path:
    found = [place / path for place in PLACES if (place / path).is_file()]
    assert found, f"there is no {path}"
    return found[0]


def members(node: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """What a module or a class defines, by name."""
    found: dict[str, ast.AST] = {}
    for part in node.body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef):
            found[part.name] = part
        for target in getattr(part, "targets", [getattr(part, "target", None)]):
            found |= {target.id: part} if isinstance(target, ast.Name) else {}
    return found


@cache
def in_file(path: Path) -> dict[str, ast.AST]:
    return members(ast.parse(path.read_text(encoding="utf-8")))


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package and of `paper/`."""
    found: dict[str, ast.ClassDef] = {}
    for path in [*(ROOT / "src" / "mesax").rglob("*.py"), *(ROOT / "paper").rglob("*.py")]:
        found |= {name: node for name, node in in_file(path).items() if isinstance(node, ast.ClassDef)}
    return found


def has(owner: ast.ClassDef, name: str) -> bool:
    """Whether a class or one of its bases defines a name."""
    bases = [ast.unparse(base).partition("[")[0] for base in owner.bases]
    return name in members(owner) or any(has(classes()[base], name) for base in bases if base in classes())


@pytest.mark.parametrize("text", FILES)
def test_what_a_file_is_said_to_define_it_defines(text: str):
    path, _, names = text.partition(": ")
    known = in_file(file_at(path))
    for name in filter(None, names.split(", ")):
        first, _, attribute = name.partition(".")
        assert first in known, f"{path} does not define {first}"
        owner = known[first]
        assert not attribute or (isinstance(owner, ast.ClassDef) and has(owner, attribute)), text


@pytest.mark.parametrize("text", NAMES)
def test_a_class_has_what_is_said_of_it(text: str):
    name, _, attribute = text.partition(".")
    assert name in classes(), f"no class is called {name}"
    assert not attribute or has(classes()[name], attribute), f"{name} has no {attribute}"


def test_the_page_names_much():
    assert len(FILES) > 40 and len(NAMES) > 40
