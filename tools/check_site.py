"""Checks the built documentation: links and pictures of every page lead to files of the site, and to anchors in them.

    python tools/check_site.py [site]      1 if one does not, with a line for each

Addresses of other sites are not visited. Needs the standard library only.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LEADING = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8", errors="replace"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note its addresses and names."""
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        address = given.get(LEADING.get(tag, ""))
        if address and given.get("rel") not in ("canonical", "preconnect"):
            self.links.append(address)


@cache
def page_at(path: Path) -> Page:
    """A page, read once."""
    return Page(path)


def broken(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its addresses are absolute: it is shown anywhere
            continue
        for link in dict.fromkeys(page_at(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = unquote(parts.path)
            target = (site / place.lstrip("/") if place.startswith("/") else path.parent / place) if place else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link} leads to no file"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page_at(target).anchors:
                yield f"{path.relative_to(site)}: {link} leads to no heading"


def main() -> int:
    """Print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, nargs="?", default=Path("site"))
    options = parser.parse_args()
    pages = len(list(options.site.rglob("*.html")))
    problems = list(broken(options.site))
    for problem in problems:
        print(problem)
    print(f"{pages} pages, {len(problems)} broken links")
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
