"""The check of the built documentation finds what leads nowhere."""

import subprocess
import sys
from pathlib import Path

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
