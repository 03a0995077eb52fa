"""Looks at every page of the built documentation in Chromium, as wide as a desk and as a phone.

    make docs && python tools/look_at_site.py [site] [--pictures DIR]     1 if something is wrong, with a line for each

Wrong are: a page wider than its window, a table or a formula that is cut, a first column that does not stay when its
table is scrolled, and whatever a script or the browser complains about.
"""

import argparse
import http.server
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import Browser, find_browser, opened_browser

WIDTHS = (1300, 390)
FOUND = """(() => {
  const wide = document.documentElement.clientWidth, found = [];
  const over = document.documentElement.scrollWidth - wide;
  if (over > 0) found.push(`the page is ${over} pixels too wide`);
  const name = (table) => JSON.stringify((table.rows[0]?.innerText || '').trim().slice(0, 40));
  for (const table of document.querySelectorAll('.md-typeset table:not([class])')) {
    const box = table.closest('.md-typeset__scrollwrap'), inside = box?.getBoundingClientRect();
    if (!box || inside.right > wide + 1) { found.push(`table ${name(table)} is cut`); continue; }
    const cell = table.rows[0].cells[0], before = cell.getBoundingClientRect().left;
    box.scrollLeft = 1e6;
    const moved = Math.abs(cell.getBoundingClientRect().left - before) > 1;
    const share = cell.getBoundingClientRect().width / inside.width;
    if (moved) found.push(`table ${name(table)}: its first column moves`);
    if (box.scrollLeft && share > .6) found.push(`table ${name(table)}: its first column leaves no room`);
    box.scrollLeft = 0;
  }
  for (const math of document.querySelectorAll('.arithmatex')) {
    if (!math.querySelector('math')) found.push(`formula ${math.textContent.slice(0, 30)} is not set`);
    else if (math.getBoundingClientRect().right > wide + 1)
      found.push(`formula ${math.textContent.slice(0, 30)} is cut`);
  }
  for (const image of document.images)
    if (image.complete && !image.naturalWidth) found.push(`${image.src} is no picture`);
  return found;
})()"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def problems(browser: Browser, site: Path, pictures: Path | None = None) -> Iterator[str]:
    """A line for each."""
    with served(site) as address:
        for path in sorted(site.rglob("*.html")):
            page = path.relative_to(site).as_posix()
            for width in WIDTHS:
                browser.visit(f"{address}/{page}", width=width)
                browser.js("new Promise((done) => setTimeout(done, 100))")
                for found in [*browser.js(FOUND), *browser.complaints()]:
                    yield f"{page} at {width}: {found}"
                if pictures:
                    browser.picture(pictures / f"{page.replace('/', '-')}-{width}.png", whole=True)


def main() -> int:
    """Print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, nargs="?", default=Path("site"))
    parser.add_argument("--pictures", type=Path, help="directory for a picture of every page")
    options = parser.parse_args()
    command = find_browser()
    if not command or not options.site.is_dir():
        parser.error(
            "there is no Chromium ($MESAX_BROWSER names one)" if options.site.is_dir() else "run make docs first"
        )
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with opened_browser(command) as browser:
        found = list(problems(browser, options.site, options.pictures))
    for line in found:
        print(line)
    pages = len(list(options.site.rglob("*.html")))
    print(f"{pages} pages at {' and '.join(map(str, WIDTHS))} pixels, {len(found)} problems")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
