"""Pages that quote results: blocks that are written from the store, numbers that name their source, a check of both.

    <!-- results: NAME ARGUMENT... -->     what stands between these lines is written by `mesax verify results --write`
    <!-- end of results -->

    69.05<!--= FILE KEY/KEY/... -->        the number is that entry of results/FILE.json, to the digits that are shown
    91%<!--= FILE KEY/... -->              the same, times 100

    <!-- traced -->                        between these every figure must be of one of the two kinds: decimals, shares,
    <!-- end of traced -->                 whole numbers of three digits or more

Comments of Markdown are not shown, so a page reads as if they were not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mesax.errors import StoreError, UsageError
from mesax.store.files import write_file
from mesax.store.json_files import read_json

BLOCK = re.compile(
    r"(?P<open><!-- results: (?P<words>[^\n]*?) -->\n)(?P<text>.*?)(?P<close><!-- end of results -->)", re.S
)
TRACE = re.compile(
    r"(?P<number>[-+]?[\d,]*\.?\d+)(?P<percent>%?)(?P<mark>\W?\W?)<!--= (?P<file>\S+) (?P<path>[^\n]*?) -->"
)
ANY_TRACE = re.compile(r"<!--= [^\n]*? -->")
REGION = re.compile(r"<!-- traced -->(?P<text>.*?)<!-- end of traced -->", re.S)
NO_FIGURES = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>", re.S)
"""Code, targets of links and HTML: numbers there are no results."""
FIGURE = re.compile(r"(?<![\w.])(?:\d*\.\d+|\d+(?:\.\d+)?%|\d{3,})(?![\w])")

Write = Callable[[str], str]
"""From the words of a block to its text."""


@dataclass(frozen=True)
class Finding:
    """Something on a page that is not what the store says."""

    page: Path
    line: int
    reason: str


@dataclass(frozen=True)
class Checked:
    """How much of a page was held against the store, and what is wrong."""

    blocks: int
    numbers: int
    findings: tuple[Finding, ...]


def pages_beside(store: Path) -> list[Path]:
    """The README and all of `docs/` next to a store."""
    root = store.resolve().parent
    found = [path for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if path.is_file()]
    return found


def check_page(page: Path, store: Path, write: Write) -> Checked:
    """Hold a page against the store: every block, every number that names a source, every figure of a traced part."""
    text = page.read_text(encoding="utf-8")
    findings = [*_block_findings(page, text, write), *_trace_findings(page, text, store), *_untraced(page, text)]
    return Checked(len(BLOCK.findall(text)), len(ANY_TRACE.findall(text)), tuple(findings))


def rewrite_page(page: Path, store: Path, write: Write) -> bool:
    """Write all blocks of a page, and all numbers that name a source, anew; says whether anything changed."""
    old = page.read_text(encoding="utf-8")
    new = BLOCK.sub(lambda found: found["open"] + write(found["words"]) + found["close"], old)
    new = TRACE.sub(lambda found: _said(found, store) + found[0][len(found["number"] + found["percent"]) :], new)
    if new != old:
        write_file(page, new.encode())
    return new != old


def _block_findings(page: Path, text: str, write: Write) -> Iterator[Finding]:
    for found in BLOCK.finditer(text):
        try:
            wanted = write(found["words"])
        except (UsageError, StoreError) as error:
            yield Finding(page, _line(text, found.start()), str(error))
            continue
        if found["text"] != wanted:
            ours, theirs = found["text"].splitlines(), wanted.splitlines()
            first = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
            place = min(len(ours), len(theirs)) if first is None else first
            line = _line(text, found.start("text")) + place
            yield Finding(page, line, f"the block '{found['words']}' is not what the store says from this line on")
    opened, closed = text.count("<!-- results:"), text.count("<!-- end of results -->")
    if opened != len(BLOCK.findall(text)) or opened != closed:
        yield Finding(page, 1, f"{opened} blocks of results begin and {closed} end")


def _trace_findings(page: Path, text: str, store: Path) -> Iterator[Finding]:
    traced = {found.end() for found in TRACE.finditer(text)}
    for found in ANY_TRACE.finditer(text):
        if found.end() not in traced:
            yield Finding(page, _line(text, found.start()), f"{found[0]} follows no number")
    for found in TRACE.finditer(text):
        shown = found["number"] + found["percent"]
        try:
            wanted = _said(found, store)
        except (UsageError, StoreError) as error:
            yield Finding(page, _line(text, found.start()), str(error))
            continue
        if shown != wanted:
            reason = f"{shown} is {wanted} in {found['file']}.json ({found['path']})"
            yield Finding(page, _line(text, found.start()), reason)


def _untraced(page: Path, text: str) -> Iterator[Finding]:
    for region in REGION.finditer(text):
        part = BLOCK.sub(_blank, region["text"])
        part = TRACE.sub(_blank, part)
        part = NO_FIGURES.sub(_blank, part)
        for found in FIGURE.finditer(part):
            line = _line(text, region.start("text") + found.start())
            yield Finding(
                page, line, f"{found[0]} names no source: write it by a block, add <!--= FILE KEY -->, or drop it"
            )


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _said(found: re.Match[str], store: Path) -> str:
    """The number as the store has it, with as many digits as are shown and in the same style."""
    value = _entry(store / f"{found['file']}.json", found["path"])
    digits = len(found["number"].partition(".")[2])
    style = f"{',' if ',' in found['number'] else ''}.{digits}f"
    text = format(100 * value if found["percent"] else value, style)
    if found["number"].lstrip("+-").startswith("."):
        text = text.replace("0.", ".", 1)
    if found["number"].startswith("+") and value >= 0:
        text = f"+{text}"
    return text + found["percent"]


def _entry(path: Path, keys: str) -> float:
    value: object = read_json(path)
    for key in keys.split("/"):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise UsageError(f"{path.name} has no entry {keys}: {key!r} is not there")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{path.name}: {keys} is not a number")
    return float(value)
