"""The documentation says what is so: links lead somewhere, files and names exist, words are the ones we use."""

import re
import subprocess
import sys
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import mesax
from mesax import errors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))])
SOURCES = [path for folder in ("src", "paper") for path in sorted((ROOT / folder).rglob("*.py"))]
AVOIDED = {
    r"(?<![\w`\"])learnt(?![\w`\"])": "learned",
    r"\b(?:behaviour|neighbour|colour|favour|centre|metre)\w*": "the US spelling",
    r"\b(?:general|normal|standard|optim|initial|summar|organ|random|minim|maxim|visual)is(?:e|ing|ation)\w*": "-ize",
    r"\b[Rr]ivals?\b": "baselines",
    r"thousand million": "billion",
    r"\bmay be others\b": "may differ",
    r"\b[Nn]ewcomers?\b": "a new one",
    r"obituary": "how it ended",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What its headings can be linked by."""
    heads = re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {re.sub(r"[ -]+", "-", head.strip()) for head in kept}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def resolved(path: str) -> list[Path]:
    """Files that a page may mean by a path; a bare name means any file of that name."""
    places = [ROOT / "src" / "mesax" / path, ROOT / "tests" / path, ROOT / path]
    anywhere = [] if "/" in path else [*(ROOT / "src").rglob(path), *(ROOT / "tests").rglob(path)]
    return [place for place in places if place.is_file()] or anywhere


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_files_and_names_exist(page: Path):
    """`file.py: Name` as pages refer to the code; scripts that a page shows itself are known by their titles."""
    text = prose(page.read_text(encoding="utf-8"))
    shown = set(re.findall(r"`(\w+\.py)`(?: \([^)]*\))?:", text)) | {"corridor.py", "joint_q.py"}
    missing = []
    for path, names in re.findall(r"`([\w/]+\.py)(?:: ([\w., ]+))?`", text):
        if path in shown:
            continue
        files = resolved(path)
        source = files[0].read_text(encoding="utf-8") if files else ""
        words = [word for name in re.split(r"[, ]+", names) for word in name.split(".") if word]
        missing += [f"{path}: {word}" for word in words if not re.search(rf"\b{word}\b", source)]
        missing += [path] if not files else []
    assert missing == []


def test_every_exit_code_is_explained():
    text = (DOCS / "reliability.md").read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    explained = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.M) for code in row.split(", ")}
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    assert {0, 1, 130} | codes - {errors.MOST_LETTERS} <= explained


def test_words():
    found = {
        f"{name_of(path)}: {word}": better
        for path in (*PAGES, *SOURCES)
        for rule, better in AVOIDED.items()
        for word in re.findall(rule, path.read_text(encoding="utf-8"))
    }
    assert found == {}


def test_the_api_page_is_what_the_source_says():
    result = subprocess.run(
        [sys.executable, "tools/api_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_api_page_has_every_field_of_every_public_dataclass():
    """As a row of a table, or as a line of settings; those of a base that has an entry of its own are there."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    fields = {name: set(re.findall(r"^(?:\| `)?(\w+)(?:`|: )", entry, re.MULTILINE)) for name, entry in entries.items()}
    public = [one for name in entries if is_dataclass(one := getattr(mesax, name)) and isinstance(one, type)]
    assert len(public) > 50
    missing = {
        one.__name__: lacking
        for one in public
        if (
            lacking := {field.name for field in dataclass_fields(one) if field.name[0] != "_"}
            - set().union(*(fields.get(base.__name__, set()) for base in one.__mro__))
        )
    }
    assert missing == {}


def test_the_api_page_has_the_methods_that_tutorials_call():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    called = {"LearnedPolicy": "start", "Player": "act", "Trainable": "descend", "Label": "of", "Elapsed": "at"}
    called |= {"Discrete": "encode", "Box": "sample", "Mlp": "build", "Gru": "build"}
    assert [name for name, method in called.items() if f"\ndef {method}(" not in entries[name]] == []
    assert "@staticmethod\ndef create(" in entries["Trainable"]


@pytest.mark.parametrize("name", [name for name in mesax.__all__ if name != "__version__"])
def test_every_public_name_has_an_entry(name: str):
    assert f"\n### {name}\n" in (DOCS / "api.md").read_text(encoding="utf-8")
