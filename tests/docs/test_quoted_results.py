"""Every number that the README and the pages quote from results is what the files say; a changed digit is found."""

import re
from pathlib import Path

import pytest

from mesax.suites.deviations import DEVIATIONS
from paper.quoting.blocks import Evidence
from paper.quoting.checking import verify_store
from paper.quoting.tracing import BLOCK, REGION, check_page

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence(ROOT / "results")


def test_pages_and_files_agree():
    """If this fails: `mesax verify results --write`, and look at what changed."""
    found = verify_store(ROOT / "results")
    assert found.damaged == ()
    assert [f"{one.page.name}:{one.line}: {one.reason}" for one in found.findings] == []


@pytest.mark.parametrize("name", ["docs/results.md", "docs/results-wide.md"])
def test_a_changed_digit_is_found(name: str, evidence: Evidence, tmp_path: Path):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert REGION.search(text), "the part about results is checked for figures without a source"
    block = BLOCK.search(text)
    assert block is not None
    digits = [found.start() for found in re.finditer(r"\d(?=\d*[\s†\]|,])", block["text"])]
    for place in (digits[0], digits[len(digits) // 2], digits[-1]):
        at = block.start("text") + place
        page = tmp_path / "page.md"
        page.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], encoding="utf-8")
        assert check_page(page, evidence.store, evidence.write).findings, text[at - 20 : at + 5]


def test_a_number_without_a_source_is_found(evidence: Evidence, tmp_path: Path):
    page = tmp_path / "results.md"
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    inside = REGION.search(text)
    assert inside is not None
    at = inside.start() + inside.group(0).index("\n\n") + 2
    page.write_text(f"{text[:at]}It comes to 69.3.\n\n{text[at:]}", encoding="utf-8")
    assert [one.reason[:4] for one in check_page(page, evidence.store, evidence.write).findings] == ["69.3"]


def test_every_deviation_has_a_line_and_every_line_an_entry():
    text = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### `([a-z0-9-]+)`$", text, re.M)
    lines = [name for section in DEVIATIONS.values() for name in section]
    assert lines == entries and len(set(lines)) == len(lines)
    assert [title for title in DEVIATIONS if f"\n## {title}\n" not in text] == []
    named = {
        name for row in re.findall(r"^\|.*\|$", text, re.M) for name in re.findall(r"`([a-z0-9-]+-[a-z0-9-]+)`", row)
    }
    assert {"random-collection", "relabel-off", "told-demand"} <= named
