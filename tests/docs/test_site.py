"""The checks of the built documentation find what leads nowhere and what is cut; formulas are set."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.look_at_site import problems

from browser import Browser, find_browser, opened_browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_site.py"


def check(site: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, str(CHECK), str(site)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_broken_links_of_a_site_are_named(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="deep/b.html#here">b</a><a href="https://example.org/x">x</a><a href="#top">up</a>'
    )
    (tmp_path / "deep" / "b.html").write_text('<p id="here"><a href="../a.html#top">a</a><img src="../p%20q.png"></p>')
    (tmp_path / "p q.png").write_bytes(b"")
    assert check(tmp_path) == (0, ["2 pages, 0 broken links"])
    (tmp_path / "c.html").write_text('<a href="a.html#gone">1</a><img src="no.png"><iframe src="deep"></iframe>')
    code, lines = check(tmp_path)
    assert code == 1 and lines == [
        "c.html: a.html#gone leads to no heading",
        "c.html: no.png leads to no file",
        "c.html: deep leads to no file",
        "3 pages, 3 broken links",
    ]


def test_an_empty_site_is_no_site(tmp_path):
    assert check(tmp_path)[0] == 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    command = find_browser()
    if command is None:
        pytest.skip("there is no Chromium; $MESAX_BROWSER names one")
    with opened_browser(command) as opened:
        yield opened


def themed(table: str, style: str = "") -> str:
    """A page with a table in the box that the theme makes for it."""
    boxes = '<div class="md-typeset"><div class="md-typeset__scrollwrap"><div class="md-typeset__table">'
    head = f'<link rel="icon" href="data:,"><style>{style}</style>'
    return f"<!doctype html><head>{head}</head><body>{boxes}{table}</div></div></div></body>"


def test_what_is_cut_is_named(browser: Browser, tmp_path: Path):
    cells = "".join(f"<td>{'wide ' * 12}</td>" for _ in range(12))
    table = f"<table><tr><td>first</td>{cells.replace(' ', '&nbsp;')}</tr></table>"
    (tmp_path / "cut.html").write_text(themed(table))
    found = list(problems(browser, tmp_path))
    assert any("cut.html at 390: the page is" in line for line in found)
    (tmp_path / "cut.html").write_text(themed(table, ".md-typeset__scrollwrap {overflow-x: auto}"))
    found = list(problems(browser, tmp_path))
    assert len(found) == 2 and all(line.endswith("its first column moves") for line in found)
    theme = ".md-typeset__scrollwrap {overflow-x: auto} table {border-collapse: collapse}"
    style = (DOCS / "site.css").read_text(encoding="utf-8") + theme
    (tmp_path / "cut.html").write_text(themed(table, style))
    assert list(problems(browser, tmp_path)) == []


def test_formulas_are_set(browser: Browser, tmp_path: Path):
    script = (DOCS / "site.js").read_text(encoding="utf-8")
    formula = r"T^* = \frac{2 m^2}{\delta U_1^2} \left( 1 - \delta \right), \quad \text{steps} \le \hat{N}"
    (tmp_path / "page.html").write_text(f'<p class="arithmatex">\\[{formula}\\]</p><script>{script}</script>')
    browser.open(tmp_path / "page.html")
    assert browser.js("document.querySelector('math').getAttribute('display')") == "block"
    assert browser.js("document.querySelector('math').textContent").replace(" ", "") == "T*=2m2δU12(1−δ),steps≤N^"
    count = "(name) => document.querySelectorAll(name).length"
    assert browser.js(f"['mfrac', 'msubsup', 'msup', 'mover', 'mtext'].map({count})") == [1, 1, 2, 1, 1]
    assert browser.complaints() == []
